"""Runs of the command line in tests: a small robot, configurations on it, and a solve that takes no time."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

import jaxik
from jaxik.cli import batches, main

# Four joints in three types, small enough that a solve compiles quickly; both "tool" and "hand" are frames.
ARM = """
<mujoco model="arm">
  <compiler angle="radian" autolimits="true"/>
  <worldbody>
    <body name="lift" pos="0 0 0.1">
      <joint name="lift" type="slide" axis="0 0 1" range="0 0.5"/>
      <geom size="0.1" mass="2"/>
      <body name="upper" pos="0.2 0 0">
        <joint name="shoulder" axis="0 0 1" range="-2.5 2.5"/>
        <geom name="shell" size="0.1" mass="1"/>
        <body name="lower" pos="0.4 0 0">
          <joint name="elbow" axis="0 0 1" range="-2.5 0.5"/>
          <geom size="0.1" mass="1"/>
          <body name="hand" pos="0.3 0 0">
            <joint name="wrist" axis="0 0 1"/>
            <geom size="0.1" mass="0.5"/>
            <site name="tool" pos="0.1 0 0"/>
            <site name="hand"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <equality>
    <joint name="geared" joint1="wrist" joint2="elbow" active="false"/>
  </equality>
  <keyframe>
    <key name="folded" qpos="0.1 1 -2 0.5"/>
  </keyframe>
</mujoco>
"""
TIP: dict[str, Any] = {"frame": "tool", "orientation_cost": None, "target": {"sample": 8}}
POINT = {"position": [0.5, 0.3, 0.4]}


@pytest.fixture(name="folder")
def arm_folder(tmp_path: Path) -> Path:
    (tmp_path / "arm.xml").write_text(ARM)
    return tmp_path


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(name="jaxik_run")
def solve_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `jaxik solve` on a configuration, given as changes to a small good one or as text."""

    def run(changes: dict[str, Any] | str, *options: str) -> Ran:
        text = changes if isinstance(changes, str) else yaml.safe_dump(config(changes))
        (folder / "c.yaml").write_text(text)
        code = main(["solve", str(folder / "c.yaml"), *options])
        return Ran(code, *capsys.readouterr())

    return run


def config(changes: dict[str, Any]) -> dict[str, Any]:
    return {"robot": "arm.xml", "tasks": {"tip": TIP}, "start": "folded"} | changes


def tip(**changes: Any) -> dict[str, Any]:
    """A configuration with one task that differs from the usual one."""
    return {"tasks": {"tip": {key: x for key, x in (TIP | changes).items() if x != "drop"}}}


def stay(problem: jaxik.Problem, q0: jax.Array, options: jaxik.SolveOptions, keys: None) -> jaxik.Solution:
    """A solve that compiles in no time: it returns the start, with a frame's target position as its residual."""
    batch, residuals = q0.shape[:1], {}
    for name, task in (problem.tasks | (problem.constraints or {})).items():
        if isinstance(task, jaxik.FrameTask):
            position = jnp.broadcast_to(task.target.wxyz_xyz[..., 4:], (*batch, 3))
            residuals[name] = {part: position for part in task.tolerances()}
        else:
            rows = problem.robot.nv if isinstance(task, jaxik.PostureTask) else 3
            residuals[name] = jnp.zeros((*batch, rows), q0.dtype)
    zero, whole = jnp.zeros(batch, q0.dtype), jnp.zeros(batch, jnp.int32)
    q, topology = jnp.broadcast_to(q0, (*batch, q0.shape[-1])), problem.robot.topology
    return jaxik.Solution(q, whole, residuals, whole, whole, zero, zero, topology=topology)


@pytest.fixture(name="unsolved")
def without_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is read and written."""
    monkeypatch.setattr(batches, "solve_part", stay)


def interrupted_after(calls: int) -> Any:
    """`jax.device_get` that a person ends with Ctrl-C."""
    get, done = jax.device_get, []

    def fetch(x: Any) -> Any:
        done.append(1)
        if len(done) > calls:
            raise KeyboardInterrupt
        return get(x)

    return fetch


POSITIONS = np.array([[0.5, 0.3, 0.4], [0.2, -0.6, 0.3], [0.6, 0.1, 0.2]])
QUATERNIONS = np.array([[1, 0, 0, 0], [0.8, 0, 0, 0.6], [0, 0, 0, 1.0]])
ANGLES = np.degrees([0, 2 * np.arctan2(0.6, 0.8), np.pi])
ROWS = np.hstack([POSITIONS, QUATERNIONS])


def csv_of(rows: np.ndarray, header: str = "") -> str:
    return header + "".join(",".join(repr(float(x)) for x in row) + "\n" for row in rows)


def write_inputs(folder: Path) -> None:
    millimetres = np.hstack([np.zeros((3, 2)), ANGLES[:, None], POSITIONS * 1e3])
    (folder / "plain.csv").write_text(csv_of(ROWS))
    (folder / "header.csv").write_text("\ufeff# poses\n" + csv_of(ROWS[:, ::-1], "qz, qy, qx, qw, z, y, x\n"))
    (folder / "mm.csv").write_text(csv_of(millimetres, "roll,pitch,yaw,x,y,z\n"))
    (folder / "names.csv").write_text(csv_of(ROWS, "px,py,pz,a,b,c,d\n"))
    transforms = np.tile(np.eye(4), (3, 1, 1))
    transforms[:, :3, :3] = Rotation.from_quat(QUATERNIONS, scalar_first=True).as_matrix()
    transforms[:, :3, 3] = POSITIONS
    np.savez(folder / "t.npz", position=POSITIONS, quaternion=QUATERNIONS, matrix4=transforms, other=np.ones(2))
