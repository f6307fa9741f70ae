"""The command line: what it solves, writes and prints, and the one line that it says for wrong input."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

import jaxik
from jaxik.cli import chunks, main
from jaxik.cli.arguments import build_parsers
from jaxik.cli.poses import Needs, Units, to_poses
from jaxik.cli.section import Place

CONFIGS = Path(__file__).parents[1] / "configs"

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "arm.xml").write_text(ARM)
    return tmp_path


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def jaxik_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
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


@pytest.fixture
def unsolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is read: a solve that compiles in no time and returns its start."""

    def stay(problem: jaxik.Problem, q0: jax.Array, *, options: jaxik.SolveOptions) -> jaxik.Solution:
        batch = problem.tasks["tip"].target.wxyz_xyz.shape[:1]
        zero = jnp.zeros(batch, q0.dtype)
        residuals = {"tip": {part: jnp.zeros((*batch, 3), q0.dtype) for part in ("position", "orientation")}}
        whole = zero.astype(jnp.int32)
        return jaxik.Solution(jnp.broadcast_to(q0, (*batch, q0.shape[-1])), whole, residuals, whole, zero, zero)

    monkeypatch.setattr(chunks, "solve", stay)


# --- solving -----------------------------------------------------------------------------------------------------


def test_shipped_config_solves_and_says_what_a_newcomer_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", str(CONFIGS / "panda_reach.yaml"), "--targets", "64"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in (
        "panda  7 degrees of freedom, float32",
        "site tcp to 64 targets: position and orientation",
        "of 64 solved",
        "CONVERGED",
        "position [mm]",
        "orientation [deg]",
        "load",
        "compile",
        "run",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100


def test_every_point_of_the_ur5e_config_is_reached_with_the_pen_upright(folder: Path) -> None:
    out = folder / "pen.npz"
    assert main(["solve", str(CONFIGS / "ur5e_reach.yaml"), "--output", str(out), "--quiet"]) == 0
    with np.load(out) as found:
        assert (found["status"] == jaxik.Status.CONVERGED).all()
        np.testing.assert_allclose(found["targets/pen/position"][0], [0.45, -0.2, 0.76], atol=1e-12)
        robot = jaxik.load_robot("ur5e").with_base(jaxlie.SE3.from_translation(np.array([0, 0, 0.75])))
        robot = robot.with_frame("pen", "wrist_3_link", jaxlie.SE3.from_translation(np.array([0, 0, 0.12])))
        pose = robot.frame_pose(found["q"].astype(float), "pen")
        np.testing.assert_allclose(pose.translation(), found["targets/pen/position"], atol=1e-4)
        np.testing.assert_allclose(pose.rotation().as_matrix()[:, :, 2], [[0, 0, -1]] * 5, atol=2e-3)


def test_output_holds_what_solve_returns(jaxik_run: Any, folder: Path) -> None:
    changes = {"options": {"max_steps": 30}, "dtype": "float64"}
    assert jaxik_run(changes, "--output", str(folder / "o.npz"), "--quiet") == (0, "", "")
    robot = jaxik.load_robot(folder / "arm.xml")
    target = robot.frame_pose(robot.sample(jax.random.key(0), (8,)), "tool")
    task = jaxik.FrameTask(robot.frame("tool"), target, orientation_cost=None)
    options = jaxik.SolveOptions(max_steps=30)
    expected = jaxik.solve(jaxik.Problem(robot, {"tip": task}), robot.keyframe("folded"), options=options)
    with np.load(folder / "o.npz") as found:
        for name in ("q", "status", "iterations", "cost", "stationarity"):
            np.testing.assert_array_equal(found[name], getattr(expected, name), err_msg=name)
        np.testing.assert_array_equal(found["residuals/tip/position"], expected.residuals["tip"]["position"])
        np.testing.assert_array_equal(found["targets/tip/position"], target.translation())
        np.testing.assert_array_equal(found["targets/tip/quaternion"], target.rotation().wxyz)
        np.testing.assert_array_equal(found["start"], robot.keyframe("folded"))
        assert list(found["q_joint"]) == list(found["joint_names"]) == ["lift", "shoulder", "elbow", "wrist"]
        assert list(found["q_unit"]) == ["m", "rad", "rad", "rad"]
        assert list(found["status_names"]) == [status.name for status in jaxik.Status]
        assert json.loads(str(found["units"]))["residuals/tip/position"] == "m"
        assert (str(found["format"]), int(found["format_version"])) == ("jaxik solution", 1)
        assert (str(found["dtype"]), str(found["robot"])) == ("float64", "arm")
        assert str(found["jaxik_version"]) == jaxik.__version__
        assert str(found["config"]) == (folder / "c.yaml").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["arm.xml", "c.yaml", "o.npz"]


def test_output_of_one_run_is_a_target_file_of_the_next(jaxik_run: Any, folder: Path) -> None:
    assert jaxik_run({"output": "first.npz"}, "--quiet").code == 0
    again = {"file": "first.npz", "position": "targets/tip/position"}
    assert jaxik_run(tip(target=again) | {"output": "second.npz"}, "--quiet").code == 0
    with np.load(folder / "first.npz") as first, np.load(folder / "second.npz") as second:
        np.testing.assert_array_equal(first["q"], second["q"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_decides_the_precision_and_leaves_jax_as_it_was(jaxik_run: Any, folder: Path, dtype: str) -> None:
    assert jaxik_run({}, "--dtype", dtype, "-o", str(folder / "o.npz"), "-q").code == 0
    with np.load(folder / "o.npz") as found:
        assert found["q"].dtype == found["cost"].dtype == dtype
    assert jax.config.jax_enable_x64


def test_chunks_change_nothing_and_compile_once(jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    solve = chunks.solve
    monkeypatch.setattr(chunks, "solve", lambda *args, **kwargs: compiled.append(1) or solve(*args, **kwargs))
    changes = {"start": "sample", "dtype": "float64"}  # the targets differ as well as the starts
    for name, size in (("whole", "8"), ("parts", "3")):
        assert jaxik_run(changes, "--chunk", size, "-o", str(folder / f"{name}.npz"), "-q").code == 0
        assert len(compiled) == 1
        compiled.clear()
    with np.load(folder / "whole.npz") as whole, np.load(folder / "parts.npz") as parts:
        assert whole["start"].shape == (8, 4)
        for name in ("q", "status", "residuals/tip/position"):
            np.testing.assert_allclose(parts[name], whole[name], atol=1e-9, err_msg=name)


def test_nan_target_is_data(jaxik_run: Any) -> None:
    found = json.loads(jaxik_run(tip(target=[POINT] * 7 + [{"position": [float("nan"), 0, 0]}]), "--json").out)
    assert (found["status"]["NONFINITE"], found["status"]["CONVERGED"]) == (1, 7)
    errors = found["errors"]["tip"]["position"]
    assert errors["max"] is None and errors["median"] < 1e-4 and errors["within_tolerance"] == 7 / 8


def test_json_has_the_whole_summary_in_si_units(jaxik_run: Any) -> None:
    done = jaxik_run(tip(target=[POINT] * 6 + [{"position": [3, 0, 0.4]}] * 2, position_tolerance=0.01), "--json")
    found = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert found["elements"] == sum(found["status"].values()) == 8 and found["success_rate"] == 0.75
    assert set(found["status"]) == {status.name for status in jaxik.Status}
    errors = found["errors"]["tip"]["position"]
    assert errors["unit"] == "m" and errors["tolerance"] == pytest.approx(0.01)
    assert errors["max"] == pytest.approx(2.0, abs=1e-4)  # the arm reaches 0.2 + 0.4 + 0.3 + 0.1 = 1 m
    assert found["iterations"]["max"] >= found["iterations"]["mean"] > 0
    assert set(found["seconds"]) == {"load", "compile", "run"} and found["elements_per_second"] > 0


def test_errors_leave_masked_rows_out_as_tolerances_do(jaxik_run: Any) -> None:
    changes = tip(target={"position": [0.5, 0.3, 9]}, mask=[1, 1, False, 0, 0, 0], axes="world")
    found = json.loads(jaxik_run(changes, "--json").out)
    assert found["status"]["CONVERGED"] == 1
    assert found["errors"]["tip"]["position"]["max"] < 1e-4


@pytest.mark.usefixtures("unsolved")
def test_targets_and_seed_of_the_command_line_replace_those_of_the_config(jaxik_run: Any, folder: Path) -> None:
    outputs = []
    for options in (("--targets", "5", "--seed", "7"), ("--targets", "5", "--seed", "8")):
        assert jaxik_run({"seed": 7}, *options, "-o", str(folder / "o.npz"), "-q", "--force").code == 0
        with np.load(folder / "o.npz") as found:
            outputs.append(found["targets/tip/position"])
            assert json.loads(str(found["arguments"]))["targets"] == 5
    assert outputs[0].shape == (5, 3) and not np.allclose(*outputs)
    assert " of 2 solved" in jaxik_run(tip(target=[POINT] * 3), "--targets", "2").out


# --- targets -----------------------------------------------------------------------------------------------------

ROTATIONS = Rotation.random(20, rng=1)
AS = {
    "quaternion": ROTATIONS.as_quat(scalar_first=True) * 3,
    "rotation_vector": ROTATIONS.as_rotvec(),
    "rpy": ROTATIONS.as_euler("xyz"),
    "matrix": ROTATIONS.as_matrix(),
}


@pytest.mark.parametrize("kind", AS)
def test_rotations_in_every_form_are_the_same(kind: str) -> None:
    poses = to_poses({kind: AS[kind], "position": np.ones((20, 3))}, Units(), Needs(), Place("f"))
    assert np.abs(np.sum(poses[:, :4] * ROTATIONS.as_quat(scalar_first=True), axis=1)) == pytest.approx(np.ones(20))
    assert np.linalg.norm(poses[:, :4], axis=1) == pytest.approx(np.ones(20))


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


MM = {"length": "mm", "angle": "deg"}
INLINE = [{"position": p.tolist(), "quaternion": q.tolist()} for p, q in zip(POSITIONS, QUATERNIONS, strict=True)]
TURNED = [
    {"position": p.tolist(), "rotation_vector": [0, 0, float(a)]} for p, a in zip(POSITIONS * 1e3, ANGLES, strict=True)
]


@pytest.mark.usefixtures("unsolved")
@pytest.mark.parametrize(
    ("target", "units"),
    [
        (INLINE, {}),
        (TURNED, MM),
        ({"file": "plain.csv"}, {}),
        ({"file": "header.csv"}, {}),
        ({"file": "mm.csv", "units": MM}, {}),
        ({"file": "mm.csv"}, MM),
        ({"file": "names.csv", "position": ["px", "py", "pz"], "quaternion": ["a", "b", "c", "d"]}, {}),
        ({"file": "t.npz"}, {}),
        ({"file": "t.npz", "position": "position", "quaternion": "quaternion"}, {}),
        ({"file": "whole.npz", "matrix": "matrix4"}, {}),
    ],
    ids=str,
)
def test_targets_in_every_form_are_the_same(jaxik_run: Any, folder: Path, target: Any, units: Any) -> None:
    write_inputs(folder)
    with np.load(folder / "t.npz") as arrays:
        np.savez(folder / "whole.npz", matrix4=arrays["matrix4"])
    changes = tip(target=target, orientation_cost=1) | {"units": units, "dtype": "float64", "output": "o.npz"}
    done = jaxik_run(changes, "-q")
    assert done == (0, "", "")
    with np.load(folder / "o.npz") as found:
        np.testing.assert_allclose(found["targets/tip/position"], POSITIONS, atol=1e-12)
        turned = np.abs(np.sum(found["targets/tip/quaternion"] * QUATERNIONS, axis=1))
        np.testing.assert_allclose(turned, 1, atol=1e-12)


@pytest.mark.usefixtures("unsolved")
def test_units_hold_for_tolerances_and_starts(jaxik_run: Any, folder: Path) -> None:
    start = {"lift": 100, "shoulder": 90}
    changes = tip(position_tolerance=5, target={"position": [500, 300, 400]}) | {"units": MM, "start": start}
    found = json.loads(jaxik_run(changes | {"output": "o.npz"}, "--json").out)
    assert found["errors"]["tip"]["position"]["tolerance"] == pytest.approx(0.005)
    with np.load(folder / "o.npz") as arrays:
        np.testing.assert_allclose(arrays["start"], [0.1, np.pi / 2, 0, 0], atol=1e-6)
        np.testing.assert_allclose(arrays["targets/tip/position"], [POINT["position"]], atol=1e-6)


@pytest.mark.usefixtures("unsolved")
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("home", [0, 0, 0, 0]),
        ("mid-range", [0.25, 0, -1, 0]),
        ("folded", [0.1, 1, -2, 0.5]),
        ({"elbow": -1}, [0, 0, -1, 0]),
        ([0.1, 0.2, -0.3, 4], [0.1, 0.2, -0.3, 4]),
    ],
    ids=str,
)
def test_start_is_where_it_was_asked_for(jaxik_run: Any, folder: Path, start: Any, expected: list[float]) -> None:
    assert jaxik_run({"start": start, "output": "o.npz"}, "-q").code == 0
    with np.load(folder / "o.npz") as found:
        np.testing.assert_allclose(found["start"], expected, atol=1e-7)


def test_sampled_targets_of_several_tasks_can_be_met_together(jaxik_run: Any) -> None:
    tasks = {"tip": TIP, "elbow": TIP | {"frame": "lower", "kind": "body"}}
    found = json.loads(jaxik_run({"tasks": tasks, "dtype": "float64", "start": "mid-range"}, "--json").out)
    assert found["success_rate"] >= 0.5 and set(found["errors"]) == {"tip", "elbow"}
