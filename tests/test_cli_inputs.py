"""What a configuration means: targets in every form, units, starts."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from cli_runs import (  # noqa: F401 (fixtures)
    ANGLES,
    POINT,
    POSITIONS,
    QUATERNIONS,
    TIP,
    arm_folder,
    solve_command,
    tip,
    without_solving,
    write_inputs,
)
from scipy.spatial.transform import Rotation

import jaxik
from jaxik.cli.poses import Needs, Units, to_poses
from jaxik.cli.section import Place
from jaxik.cli.target_files import read_table

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


def test_a_row_of_empty_cells_is_a_row_but_behind_the_last_one(tmp_path: Path) -> None:
    (tmp_path / "gap.csv").write_text(",,\nx,y,z\n,,\n1,2,3\n,,\n\nnan,nan,nan\n,,\n,,,,\n")
    header, rows = read_table(tmp_path / "gap.csv", Place("f"))
    assert header == ["x", "y", "z"]
    np.testing.assert_array_equal(rows, [[np.nan] * 3, [1, 2, 3], [np.nan] * 3, [np.nan] * 3])


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


@pytest.mark.usefixtures("unsolved")
def test_sampled_targets_of_several_tasks_can_be_met_together(jaxik_run: Any, folder: Path) -> None:
    tasks = {"tip": TIP, "elbow": TIP | {"frame": "lower", "kind": "body"}}
    assert jaxik_run({"tasks": tasks, "dtype": "float64", "output": "o.npz"}, "-q", "--seed", "4").code == 0
    robot = jaxik.load_robot(folder / "arm.xml")
    q = robot.sample(jax.random.key(4), (8,))
    with np.load(folder / "o.npz") as found:
        for task, frame in (("tip", "tool"), ("elbow", "lower")):
            expected = robot.frame_pose(q, frame).translation()
            np.testing.assert_allclose(found[f"targets/{task}/position"], expected, atol=1e-12)


@pytest.mark.usefixtures("unsolved")
def test_a_single_target_is_everyones(jaxik_run: Any, folder: Path) -> None:
    tasks = {"tip": TIP, "hand": TIP | {"frame": "hand", "kind": "site", "target": POINT}}
    assert jaxik_run({"tasks": tasks, "output": "o.npz"}, "-q").code == 0
    with np.load(folder / "o.npz") as found:
        assert found["targets/hand/position"].shape == (8, 3)
