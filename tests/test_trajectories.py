"""Datasets of motions: rows follow from their index, are what C MuJoCo says they are, and keep to what was drawn."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.cli import main
from jaxik.cli.plans import read_plan
from jaxik.cli.showing import read_rows
from jaxik.cli.yaml_file import read_yaml
from jaxik.datasets.rows import RowSolver
from jaxik.datasets.store import digests
from jaxik.robot.loading.catalog import find_by_name

STEPS, DT, COUNT, SHARD = 20, 0.05, 150, 64
CONFIG = """
robot: ur5e
tasks:
  tip: {frame: tcp, target: {sample: 1}, position_tolerance: 1e-2, orientation_tolerance: 5e-2}
limits: {velocity: 1.0}
track: {dt: 0.05, duration: 1, path: {waypoints: 2, speed: [0.1, 0.3]}}
dataset: {count: 150, shard: 64}
"""


@pytest.fixture(scope="module")
def problem() -> jaxik.Problem:
    robot = jaxik.load_robot("ur5e")
    loose = {"position_tolerance": 1e-2, "orientation_tolerance": 5e-2}
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp", **loose)
    return jaxik.Problem(robot, {"tip": task}, (jaxik.ConfigurationLimit(), jaxik.VelocityLimit(1.0)))


@pytest.fixture(scope="module")
def plan(problem: jaxik.Problem) -> jaxik.Plan:
    motion = jaxik.Trajectories(STEPS, DT, waypoints=2, speed=(0.1, 0.3))
    return jaxik.Plan(problem, COUNT, trajectories=motion, shard=SHARD, model="ur5e")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> jaxik.Dataset:
    """Made by the command line."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "c.yaml").write_text(CONFIG)
    assert main(["generate", str(folder / "c.yaml"), str(folder / "whole.zarr"), "--dtype", "float64", "--quiet"]) == 0
    return jaxik.open_dataset(folder / "whole.zarr")


@pytest.fixture
def copied(whole: jaxik.Dataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.path, tmp_path / "copy.zarr"))


def test_steps_are_where_c_mujoco_has_them_and_within_limits(whole: jaxik.Dataset) -> None:
    rows = whole[0:COUNT]
    assert {name: x.shape[1:] for name, x in rows.items()} == {
        "q0": (6,), "success": (), "time": (STEPS,), "q": (STEPS, 6), "velocity": (STEPS, 6), "status": (STEPS,),
        "targets/tip/position": (STEPS, 3), "targets/tip/quaternion": (STEPS, 4),
        "residuals/tip/position": (STEPS,), "residuals/tip/orientation": (STEPS,),
    }  # fmt: skip
    assert rows["success"].mean() > 0.8 and np.unique(rows["q0"], axis=0).shape[0] == COUNT
    np.testing.assert_allclose(rows["time"], np.tile(DT * np.arange(1, STEPS + 1), (COUNT, 1)))
    model = mujoco.MjModel.from_xml_path(str(find_by_name("ur5e")))
    data = mujoco.MjData(model)
    for i in np.flatnonzero(rows["success"])[:20]:
        for k in (0, 7, STEPS - 1):
            data.qpos[:] = rows["q"][i, k]
            mujoco.mj_kinematics(model, data)
            error = np.linalg.norm(data.site("tcp").xpos - rows["targets/tip/position"][i, k])
            np.testing.assert_allclose(error, rows["residuals/tip/position"][i, k], atol=1e-9)
            assert error <= 1e-2
    ways = np.diff(np.concatenate([rows["q0"][:, None], rows["q"]], axis=1), axis=1) / DT
    np.testing.assert_allclose(ways, rows["velocity"], atol=1e-9)
    assert np.abs(ways).max() <= 1 + 1e-9
    # Targets leave the start at rest, and rest at the end.
    moved = np.linalg.norm(np.diff(rows["targets/tip/position"], axis=1), axis=-1)
    assert (moved[:, -1] < 0.4 * moved.max(axis=1)).all()
    report = whole.verify(rows=None)
    assert report.ok and report.judged == COUNT * STEPS and report.judged_unit == "steps"


def test_parts_and_rows_alone_have_the_same_bytes(plan: jaxik.Plan, whole: jaxik.Dataset, tmp_path: Path) -> None:
    found = jaxik.generate(plan, tmp_path / "other.zarr", part=(2, 2), batch_size=7)
    assert found.missing == (0, 2)
    assert found._store.committed()[1]["sha256"] == whole._store.committed()[1]["sha256"]
    alone = RowSolver(plan, 1).rows(77, 78)
    for name in whole.names:
        np.testing.assert_array_equal(alone[name][0], whole[name][77])


CHANGES = {
    "a configuration": ("q", (5, 3, 0), 1e-3, "wrong"),
    "a velocity": ("velocity", (5, 3, 0), 1e-3, "wrong"),
    "a residual": ("residuals/tip/position", (5, 3), 1e-3, "wrong"),
    "a speed": ("q0", (5, 0), 1.0, "too_fast"),
    "a limit": ("q", (5, 3, 0), 20.0, "outside"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_wrong_step_is_found_by_c_mujoco(copied: Path, what: str) -> None:
    name, place, by, field = CHANGES[what]
    store = jaxik.open_dataset(copied)._store
    arrays, record = store.read(0), store.committed()[0]
    arrays[name][place] += by
    store.write(0, arrays, record | {"sha256": digests(arrays)})
    report = jaxik.open_dataset(copied).verify(rows=None)
    assert not report.ok and not report.damaged and getattr(report, field) >= 1


@exhaustive
def test_a_circle_is_one_of_the_size_that_was_drawn_from_where_the_start_is(problem: jaxik.Problem) -> None:
    robot = problem.robot
    motion = jaxik.Trajectories(STEPS, DT, "circle", size=(0.02, 0.04), laps=1)
    rows = RowSolver(jaxik.Plan(problem, 50, trajectories=motion, start=robot.q_home), 50).rows(0, 50)
    np.testing.assert_array_equal(rows["q0"], np.tile(robot.q_home, (50, 1)))
    start = np.asarray(robot.frame_pose(robot.q_home, "tcp").wxyz_xyz)
    np.testing.assert_allclose(rows["targets/tip/quaternion"], np.broadcast_to(start[:4], (50, STEPS, 4)), atol=1e-12)
    points = rows["targets/tip/position"]
    np.testing.assert_allclose(points[:, -1], np.tile(start[4:], (50, 1)), atol=1e-9)  # a whole lap
    # Three of its points have a circle of this radius through them.
    a, b, c = (points[:, k] for k in (5, 10, 15))
    sides = [np.linalg.norm(x - y, axis=-1) for x, y in ((a, b), (b, c), (c, a))]
    radius = np.prod(sides, axis=0) / (2 * np.linalg.norm(np.cross(b - a, c - a), axis=-1))
    assert radius.min() >= 0.02 and radius.max() <= 0.04 and np.ptp(radius) > 0.01
    normal = np.cross(b - a, c - a) / np.linalg.norm(np.cross(b - a, c - a), axis=-1, keepdims=True)
    assert np.abs(normal.mean(axis=0)).max() < 0.3
    assert rows["success"].all()


def test_motions_that_do_not_succeed_are_drawn_again_over_randomised_robots(problem: jaxik.Problem) -> None:
    def longer(problem: jaxik.Problem, key: jax.Array) -> Any:
        scale = jax.random.uniform(key, (), minval=0.8, maxval=1.2)
        robot = dataclasses.replace(problem.robot, body_position=problem.robot.body_position * scale)
        return jaxik.Problem(robot, problem.tasks, problem.limits), {"scale": scale}

    motion = jaxik.Trajectories(STEPS, DT, "line", size=(0.01, 0.2))
    plan = jaxik.Plan(problem, 100, trajectories=motion, randomize=longer)
    solver = RowSolver(plan, 1)
    kept = solver.rows(0, 100)
    solver.plan = dataclasses.replace(plan, keep="converged")
    drawn = solver.rows(0, 100)
    good = kept["success"]
    assert 10 < good.sum() < 90 and drawn["success"].all()
    np.testing.assert_array_equal(drawn["q"][good], kept["q"][good])
    assert np.ptp(drawn["scale"]) > 0.3
    for i in (0, 57):
        robot = problem.robot
        own = dataclasses.replace(robot, body_position=robot.body_position * drawn["scale"][i])
        reached = own.frame_pose(jnp.asarray(drawn["q"][i]), "tcp").translation()
        np.testing.assert_allclose(
            np.linalg.norm(reached - drawn["targets/tip/position"][i], axis=-1),
            drawn["residuals/tip/position"][i],
            atol=1e-9,
        )


@exhaustive
def test_a_motion_that_overlaps_an_obstacle_at_its_start_or_later_has_no_success() -> None:
    robot = jaxik.load_robot("pendulum", geometry="model")
    world = jaxik.World(spheres=jaxik.Spheres([(0.0, 0, -1)], 0.3))
    limits = jaxik.ConfigurationLimit(), jaxik.CollisionLimit(world, rows=1, gain=1e-3)
    problem = jaxik.Problem(robot, {"rest": jaxik.PostureTask(robot.q_home, tolerance=0.01)}, limits)
    slow = jaxik.Trajectories(5, DT, waypoints=1, speed=0.001)
    rows = RowSolver(jaxik.Plan(problem, 100, trajectories=slow), 100).rows(0, 100)
    passed = np.concatenate([rows["q0"][:, None], rows["q"]], axis=1)
    np.testing.assert_allclose(rows["clearance"], robot.distances(passed, world).distance.min(axis=(1, 2)), atol=1e-9)
    clear, met = rows["clearance"] >= 0, (rows["residuals/rest"] <= 0.01).all(axis=1)
    assert not rows["success"][~clear].any() and (met & ~clear).any() and rows["success"][clear].mean() > 0.8


@exhaustive
def test_joints_that_are_held_stay_where_home_is_and_targets_are_met(problem: jaxik.Problem) -> None:
    mask = np.arange(6) != 1
    held = jaxik.Problem(problem.robot, problem.tasks, problem.limits, dof_mask=mask)
    motion = jaxik.Trajectories(STEPS, DT, waypoints=2, speed=(0.1, 0.3))
    rows = RowSolver(jaxik.Plan(held, 100, trajectories=motion), 100).rows(0, 100)
    assert np.ptp(rows["q0"], axis=0)[mask].min() > 1
    np.testing.assert_allclose(rows["q0"][:, 1], np.asarray(problem.robot.q_home)[1], atol=1e-12)
    assert rows["success"].mean() > 0.8


def test_verify_writes_into_the_card_how_many_motions_succeed(whole: jaxik.Dataset, capsys: Any) -> None:
    assert main(["dataset", "verify", str(whole.path), "--rows", "200", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] and facts["judged"] >= 200 and facts["too_fast"] == 0
    card, good = (whole.path / "README.md").read_text(), int(whole["success"][:].sum())
    assert "20 steps of 0.05 s each" in card and f"{good} of 150 have `success`" in card.replace("\n", " ")


def test_the_first_motion_is_played(whole: jaxik.Dataset) -> None:
    played = read_rows(whole.path, 5)[1].motion
    assert played is not None and played.dt == DT
    np.testing.assert_array_equal(played.q, np.concatenate([whole["q0"][:1], whole["q"][0]]))


WRONG = {
    "waypoints: 2, speed|shape: spiral, speed": "spiral",
    "waypoints: 2, speed|shape: circle, speed": "speed",
    "speed: [0.1, 0.3]|speed: [0.3, 0.1]": "speed is (least, most)",
    "duration: 1|duration: 0.01": "duration",
    "track: {|track: {continuous: 3, ": "continuous is True or False",
    "shard: 64|shard: 100": "shard is at most 64 rows or a multiple of them",
    "shard: 64|spread: workspace": "spread",
    "robot: ur5e|robot: ur5e\nsearch: true": "search",
    "target: {sample: 1}|target: {from: home}": "draw nothing",
}


def test_options_of_track_are_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.replace("track: {", "track: {continuous: true, damping: 1e-3, "))
    plan = read_plan(read_yaml(tmp_path / "c.yaml"), count=None, seed=None)
    assert isinstance(plan.options, jaxik.TrackOptions) and plan.options.continuous and plan.options.damping == 1e-3


@pytest.mark.parametrize("change", WRONG)
def test_a_wrong_configuration_is_named_in_one_line(tmp_path: Path, change: str, capsys: Any) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.replace(*change.split("|")))
    assert main(["generate", str(tmp_path / "c.yaml"), str(tmp_path / "out.zarr")]) == 2
    said = capsys.readouterr().err
    assert WRONG[change] in said and said.count("\n") == 1 and not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(("wrong", "said"), [
    ({"options": jaxik.SearchOptions()}, "options of trajectories are TrackOptions"),
    ({"spread": "workspace"}, "neither grid nor spread"),
    ({"trajectories": 10}, "trajectories is a jaxik.Trajectories"),
    ({"start": jnp.zeros(5)}, "start is one configuration"),
])  # fmt: skip
def test_a_wrong_plan_is_refused(problem: jaxik.Problem, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        jaxik.Plan(problem, **{"count": 10, "trajectories": jaxik.Trajectories(STEPS)} | wrong)


def test_closed_loops_take_a_start_and_a_shape() -> None:
    robot = jaxik.load_robot("four_bar")
    problem = jaxik.Problem(robot, {"pen": jaxik.FrameTask.from_configuration(robot, robot.q_home, "pen")})
    for path, start in (("waypoints", robot.q_home), ("line", None)):
        with pytest.raises(jaxik.JaxikError, match="random configurations do not close the loops"):
            jaxik.Plan(problem, 10, trajectories=jaxik.Trajectories(STEPS, path=path), start=start)
    jaxik.Plan(problem, 10, trajectories=jaxik.Trajectories(STEPS, path="line"), start=robot.q_home)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"num_steps": 0}, "num_steps is a whole number"),
    ({"dt": -0.1}, "dt is the duration"),
    ({"dt": "a"}, "dt is the duration"),
    ({"dt": [0.1, 0.2]}, "dt is the duration"),
    ({"speed": "x"}, "speed is .least, most."),
    ({"laps": (1, 2, 3)}, "laps is .least, most."),
    ({"size": (0.2, 0.1)}, "size is .least, most."),
    ({"path": "spline"}, "path"),
])  # fmt: skip
def test_wrong_trajectories_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        jaxik.Trajectories(**{"num_steps": STEPS} | wrong)


def test_a_shape_moves_frames_alone(problem: jaxik.Problem) -> None:
    tasks = problem.tasks | {"rest": jaxik.PostureTask(problem.robot.q_home)}
    both = jaxik.Problem(problem.robot, tasks)
    with pytest.raises(jaxik.JaxikError, match="rest takes path"):
        jaxik.Plan(both, 10, trajectories=jaxik.Trajectories(STEPS, path="circle"))
