"""Rows over robots and obstacles that differ from row to row, of each kind; what was drawn makes them again."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tables import mostly_exhaustive

import jaxik
from jaxik.cli.plans import read_plan
from jaxik.cli.yaml_file import read_yaml
from jaxik.datasets.randomize import MEANINGS
from jaxik.datasets.rows import RowSolver
from jaxik.datasets.store import Store, open_or_create

COUNT = 64
KINDS: dict[str, dict[str, Any]] = {
    "pairs": {"count": COUNT},
    "grid": {"grid": jaxik.Grid((0, 0, 0), (2, 1, 2), 0.25)},
    "trajectories": {"count": COUNT, "trajectories": jaxik.Trajectories(5, 0.05, waypoints=1, speed=(0.01, 0.02))},
}
DRAWN = jaxik.Randomize(
    link_lengths=(0.8, 1.2), tool_offset=(0.0, 0.02, 0.05), joint_limits=(0.5, 1), base_position=0.1,
    base_rotation=0.3, obstacles=0.2,
)  # fmt: skip


@pytest.fixture(scope="module")
def problem() -> jaxik.Problem:
    robot = jaxik.load_robot("double_pendulum", geometry="model")
    loose = {"orientation_cost": None, "position_tolerance": 1e-2}
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp", **loose)
    world = jaxik.World(spheres=jaxik.Spheres([(3.0, 0, 0)], 0.1), boxes=jaxik.Boxes([(0, 0, 4.0)], (0.1, 0.1, 0.1)))
    limits = jaxik.ConfigurationLimit(), jaxik.CollisionLimit(world, rows=2)
    return jaxik.Problem(robot, {"tip": task}, limits)


@pytest.mark.parametrize("kind", mostly_exhaustive(KINDS, ["pairs"]))
def test_what_was_drawn_makes_the_problem_of_each_row_again(problem: jaxik.Problem, kind: str, tmp_path: Path) -> None:
    plan = jaxik.Plan(problem, randomize=DRAWN, model="double_pendulum", **KINDS[kind])
    solver = RowSolver(plan, COUNT)
    rows = solver.rows(0, plan.rows)
    judged_by_mujoco(open_or_create(tmp_path / "rows.zarr", plan, solver.columns(), {}, False), rows)
    rows = {name: values[:COUNT] for name, values in rows.items()}
    q, target = rows["q"], rows["targets/tip/position"]

    @jax.jit
    def problem_of(drawn: dict[str, Any]) -> jaxik.Problem:
        return DRAWN.apply(problem, drawn)

    @jax.jit
    def tip(drawn: dict[str, Any], q: Any) -> jax.Array:
        return problem_of(drawn).robot.frame_pose(q, "tcp").translation()

    some = range(0, COUNT, 8)
    drawn = {name: values for name, values in rows.items() if name in MEANINGS}
    reached = np.stack([tip({name: values[i] for name, values in drawn.items()}, q[i]) for i in some])
    off = np.linalg.norm(reached - target[some], axis=-1)
    np.testing.assert_allclose(off, rows["residuals/tip/position"][some], atol=1e-9)
    if kind != "trajectories":
        own, together = problem_of(drawn), tip(drawn, q)  # all at once
        np.testing.assert_allclose(together[::8], reached, atol=1e-12)
        off = np.linalg.norm(together - target, axis=-1)
        np.testing.assert_allclose(off, rows["residuals/tip/position"], atol=1e-9)
        assert isinstance(own.limits, tuple) and isinstance(own.limits[1], jaxik.CollisionLimit)
        clearance = own.robot.distances(q, own.limits[1].world).distance.min(axis=-1)
        np.testing.assert_allclose(rows["clearance"], clearance, atol=1e-9)
    each = (np.s_[:], None) if kind == "trajectories" else np.s_[:]
    lower, upper = (rows["joint_limits"][..., side][each] for side in (0, 1))
    assert (q >= lower).all() and (q <= upper).all()
    solved = rows["success"] if kind == "trajectories" else rows["status"] == jaxik.Status.CONVERGED
    assert kind == "grid" or solved.mean() > 0.3


def judged_by_mujoco(store: Store, rows: dict[str, np.ndarray]) -> None:
    """C MuJoCo finds nothing wrong with the robots that were drawn, and finds the rows where one number is another."""
    store.write(0, rows, {})
    report = jaxik.open_dataset(store.path).verify(rows=None)
    assert report.ok and "each row was judged with the robot that was drawn for it" in report.note
    assert report.judged == rows["q"].size // 2 and max(report.errors["tip/position"]) < 1.1e-2
    solved = np.flatnonzero(rows["success"] if "success" in rows else rows["status"] == jaxik.Status.CONVERGED)
    for name, value in (("link_scale", 2.0), ("tool_shift", 0.3), ("base_pose", 0.5), ("joint_limits", 7.0)):
        damaged = {key: x.copy() for key, x in rows.items()}
        damaged[name][solved[3]] = value
        store.write(0, damaged, {})
        report = jaxik.open_dataset(store.path).verify(rows=None)
        found = report.outside if name == "joint_limits" else report.wrong
        assert found == (rows["q"].shape[1] if "success" in rows else 1), name


def test_draws_fill_their_ranges_and_are_independent(problem: jaxik.Problem) -> None:
    draw = jax.jit(jax.vmap(lambda key: DRAWN.draw(problem, key)))
    found = draw(jax.random.split(jax.random.key(0), 4000))
    angle = 2 * np.arccos(np.clip(found["base_pose"][:, 0], -1, 1))
    shift = np.asarray(found["obstacle_shift"]).reshape(4000, 6)
    for values, least, most in (
        (found["link_scale"], 0.8, 1.2), (found["tool_shift"][..., 2], -0.05, 0.05), (angle, 0, 0.3),
        (found["base_pose"][:, 4:], -0.1, 0.1), (shift, -0.2, 0.2),
    ):  # fmt: skip
        assert values.min() >= least - 1e-9 and values.max() <= most + 1e-9
        assert values.min() < least + 0.01 * (most - least) and values.max() > most - 0.01 * (most - least)
    assert (found["tool_shift"][..., 0] == 0).all()
    columns = np.concatenate(
        [np.asarray(found["link_scale"][:, 2:]), shift, np.asarray(found["base_pose"][:, 4:])], axis=1
    )
    assert np.abs(np.corrcoef(columns.T) - np.eye(columns.shape[1])).max() < 0.06


CONFIG = """
robot: double_pendulum
units: {length: mm, angle: deg}
tasks: {tip: {frame: tcp, target: {sample: 1}, orientation_cost: null}}
SECTION
dataset: {count: 10, randomize: {link_lengths: [0.8, 1.2], tool_offset: [0, 20, 50], base_rotation: 90}}
"""


@pytest.mark.parametrize("section", ["search: true", "track: {dt: 0.05, duration: 1, path: {waypoints: 1}}"])
def test_a_configuration_says_it_in_its_units(tmp_path: Path, section: str) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.replace("SECTION", section))
    plan = read_plan(read_yaml(tmp_path / "c.yaml"), count=None, seed=None)
    wanted = jaxik.Randomize(link_lengths=(0.8, 1.2), tool_offset=(0, 0.02, 0.05), base_rotation=np.pi / 2)
    assert plan.randomize == wanted and plan.described()["randomize"]["link_lengths"] == [0.8, 1.2]


WRONG = {
    "link_lengths: [0.8, 1.2]|link_lengths: 0.8": "link_lengths is (least, most), above 0, not 0.8",
    "link_lengths: [0.8, 1.2]|link_lengths: [1.2, 0.8]": "link_lengths is (least, most)",
    "link_lengths: [0.8, 1.2]|joint_limits: [0.8, 1.2]": "joint_limits is (least, most), above 0 to 1",
    "tool_offset: [0, 20, 50]|tool_offset: [0, 20]": "tool_offset is a distance [m] or (3,)",
    "base_rotation: 90|base_rotation: 400": "base_rotation is an angle",
    "base_rotation: 90|links: 3": "unknown key 'links'",
    "randomize: {link_lengths: [0.8, 1.2], tool_offset: [0, 20, 50], base_rotation: 90}|randomize: {}": "draws nothing",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_configuration_is_said_in_one_line(tmp_path: Path, wrong: str) -> None:
    old, new = wrong.split("|")
    (tmp_path / "c.yaml").write_text(CONFIG.replace("SECTION", "search: true").replace(old, new))
    with pytest.raises(jaxik.JaxikError) as error:
        read_plan(read_yaml(tmp_path / "c.yaml"), count=None, seed=None)
    assert WRONG[wrong] in str(error.value) and "\n" not in str(error.value)


def test_what_a_problem_has_not_is_said(problem: jaxik.Problem, tmp_path: Path) -> None:
    alone = jaxik.Problem(problem.robot, problem.tasks)
    with pytest.raises(jaxik.JaxikError, match="obstacles: no limit or task keeps away from spheres"):
        jaxik.Plan(alone, COUNT, randomize=jaxik.Randomize(obstacles=0.1))
    config = CONFIG.replace("SECTION", "search: true").replace("base_rotation: 90", "obstacles: 9")
    (tmp_path / "c.yaml").write_text(config)
    with pytest.raises(jaxik.JaxikError, match="c.yaml: dataset: randomize: obstacles: no limit or task"):
        read_plan(read_yaml(tmp_path / "c.yaml"), count=None, seed=None)


@pytest.mark.parametrize("holders", ["limit and task", "task", "elastic"])
def test_a_world_is_moved_wherever_it_is_kept_away_from(problem: jaxik.Problem, holders: str) -> None:
    """A world that several share stays one, and another one moves by itself."""
    assert isinstance(problem.limits, tuple)
    limit = problem.limits[1]
    assert isinstance(limit, jaxik.CollisionLimit)
    world, other = limit.world, jaxik.World(spheres=jaxik.Spheres([(3.0, 0, 0), (4.0, 0, 0)], 0.1))
    tasks = {"away": jaxik.ClearanceTask(world, rows=2), "other": jaxik.ClearanceTask(other, rows=2)}
    limits = {
        "limit and task": problem.limits,
        "task": (jaxik.ConfigurationLimit(),),
        "elastic": (jaxik.Elastic(limit),),
    }[holders]
    whole = jaxik.Problem(problem.robot, {**problem.tasks, **tasks}, limits)
    moved, drawn = jaxik.Randomize(obstacles=0.2)(whole, jax.random.key(0))
    shift = drawn["obstacle_shift"]
    assert shift.shape == (4, 3) and len(np.unique(shift)) == 12

    def places(world: jaxik.World) -> np.ndarray:
        assert world.spheres is not None and world.boxes is not None
        return np.concatenate([world.spheres.center, world.boxes.pose[:, 4:]])

    is_world = lambda x: isinstance(x, jaxik.World)  # noqa: E731
    both = [jax.tree.leaves(x, is_leaf=is_world) for x in (whole, moved)]
    pairs = [(a, b) for a, b in zip(*both, strict=True) if is_world(a)]
    assert len(pairs) == (2 if holders == "task" else 3)
    shifts = [places(b) - places(a) if a.boxes is not None else b.spheres.center - a.spheres.center for a, b in pairs]
    for found in shifts:
        assert any(np.allclose(found, own, atol=1e-6) for own in (shift[:2], shift[2:]))
    assert len({np.asarray(x).round(5).tobytes() for x in shifts}) == 2
