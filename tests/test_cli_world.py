"""Obstacles of a configuration, and the limits and tasks about them: what each way of writing means, and mistakes."""

import fnmatch
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jaxlie
import numpy as np
import pytest
import yaml
from cli_runs import ARM, TIP, arm_folder, solve_command, without_solving  # noqa: F401 (fixtures)

import jaxik
from jaxik.cli import batches
from jaxik.cli.job import Job, read_job
from jaxik.cli.yaml_file import read_yaml

MM = {"length": "mm", "angle": "deg"}
HEIGHTS, CLOUD = np.array([[0.0, 0.1, 0.2], [0.1, 0.0, 0.1]]), np.array([[0.3, 0, 0.2], [0.4, 0.1, 0.3]])
CUBES = np.zeros((2, 3, 2), bool)
CUBES[1, 2, 0] = True
CORNERS = np.array([[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]])
GRID = np.arange(8.0).reshape(2, 2, 2) / 10
TURNED = jaxlie.SE3(np.array([np.sqrt(0.5), 0, 0, np.sqrt(0.5), 0.1, 0.2, 0.3]))  # a quarter about z
AT = {"position": [100, 200, 300], "rpy": [0, 0, 90]}


def write_arrays(folder: Path) -> None:
    np.savetxt(folder / "heights.csv", 1e3 * HEIGHTS, delimiter=",", header="along y")
    np.save(folder / "cloud.npy", 1e3 * CLOUD)
    np.savez(folder / "cubes.npz", CUBES)
    np.savez(folder / "two.npz", a=CUBES, b=CUBES)
    np.savetxt(folder / "cloud.csv", 1e3 * CLOUD, delimiter=",", header="x,y,z", comments="")
    (folder / "text.npy").write_text("1 2 3")
    np.save(folder / "words.npy", np.array([["a", "b", "c"]]))


def job_of(folder: Path, **changes: Any) -> Job:
    write_arrays(folder)
    (folder / "arm.xml").write_text(ARM)
    config = {"robot": "arm.xml", "tasks": {"tip": TIP}, "units": MM, **changes}
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    return read_job(read_yaml(folder / "c.yaml"), count=None, seed=None, max_steps=None)


def same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), found, expected)


# In millimetres and degrees.
WORLDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"field": {"heights": (1e3 * HEIGHTS).tolist(), "spacing": 100, "cell": 50} | AT},
        {"field": jaxik.VoxelField.from_heights(HEIGHTS, 0.1, TURNED, cell=0.05)},
    ),
    (
        {"field": {"heights": "heights.csv", "spacing": [100, 200], "room": 100}},
        {"field": jaxik.VoxelField.from_heights(HEIGHTS, (0.1, 0.2), room=0.1)},
    ),
    (
        {"field": {"points": "cloud.npy", "radius": 10, "cell": 50}},
        {"field": jaxik.VoxelField.from_points(CLOUD, 0.01, cell=0.05)},
    ),
    (
        {"field": {"cubes": "cubes.npz", "cell": 50} | AT},
        {"field": jaxik.VoxelField.from_occupancy(CUBES, 0.05, TURNED)},
    ),
    (
        {"field": {"cubes": CUBES.astype(int).tolist(), "cell": 50}, "spheres": [{"position": [0, 0, 0], "radius": 1}]},
        {"field": jaxik.VoxelField.from_occupancy(CUBES, 0.05), "spheres": jaxik.Spheres([[0.0, 0, 0]], [0.001])},
    ),
    (
        {"field": {"distance": (1e3 * GRID).tolist(), "cell": 50, "position": [1, 2, 3]}},
        {"field": jaxik.VoxelField(GRID, 0.05, [0.001, 0.002, 0.003])},
    ),
    ({"points": {"positions": "cloud.npy", "radius": 10}}, {"points": jaxik.Points(CLOUD, 0.01)}),
    ({"points": {"positions": "cloud.csv", "radius": 10}}, {"points": jaxik.Points(CLOUD, 0.01)}),
    ({"points": {"positions": (1e3 * CLOUD).tolist(), "radius": 10}}, {"points": jaxik.Points(CLOUD, 0.01)}),
    (
        {"hulls": [{"corners": (1e3 * CORNERS).tolist()} | AT]},
        {"hulls": jaxik.Hulls(TURNED.wxyz_xyz[None], CORNERS[None])},
    ),
]


@pytest.mark.parametrize(("written", "expected"), WORLDS, ids=[str(i) for i in range(len(WORLDS))])
def test_a_world_is_what_is_written(folder: Path, written: dict[str, Any], expected: dict[str, Any]) -> None:
    limits = job_of(folder, world=written, limits={"collision": True}).limits
    assert limits is not None
    same(limits[-1], jaxik.CollisionLimit(jaxik.World(**expected)))


AT = {"type": "frame", "frame": "tool", "target": {"position": [100, 0, 0], "quaternion": [1, 0, 0, 0]}}


def at(robot: jaxik.Robot) -> jaxik.FrameTask:
    return jaxik.FrameTask(robot.frame("tool"), jaxlie.SE3.from_translation(np.array([0.1, 0, 0])))


ENDS = {"first": "tool", "second": "upper", "second_kind": "body"}
Make = Callable[[jaxik.Robot], jaxik.Limit]
LIMITS: list[tuple[dict[str, Any], Make]] = [
    (
        {"collision": {"margin": 10, "rate": 20, "rows": 4, "pairs": [["hand", "upper"]]}},
        lambda robot: jaxik.CollisionLimit(margin=0.01, rate=20.0, rows=4, pairs=(("hand", "upper"),)),
    ),
    ({"collision": {"gain": 0.5}}, lambda robot: jaxik.CollisionLimit(gain=0.5)),
    (
        {"half_spaces": [{"frame": "tool", "normal": [0, 0, 1], "offset": 300, "rate": 5}]},
        lambda robot: jaxik.PositionLimit(robot.frame("tool"), [0, 0, 1.0], 0.3, rate=5.0),
    ),
    (
        {"distances": [ENDS | {"distance": 200, "rate": 5}]},
        lambda robot: jaxik.DistanceLimit(robot.frame("tool"), robot.frame("upper", "body"), 0.2, rate=5.0),
    ),
    (
        {"tasks": [{"task": AT, "lower": {"position": [-20, None, 0]}, "largest": {"orientation": 30}, "rate": 5}]},
        lambda robot: jaxik.TaskLimit(
            at(robot), {"position": [-0.02, -np.inf, 0.0]}, largest={"orientation": np.radians(30)}, rate=5.0
        ),
    ),
    (
        {"tasks": [{"task": {"type": "com", "target": {"position": [0, 0, 100]}}, "upper": [1, None, None]}]},
        lambda robot: jaxik.TaskLimit(jaxik.ComTask([0, 0, 0.1]), upper=[0.001, np.inf, np.inf]),
    ),
    (
        {"distances": [ENDS | {"distance": 200, "gain": 0.5}]},
        lambda robot: jaxik.DistanceLimit(robot.frame("tool"), robot.frame("upper", "body"), 0.2, gain=0.5),
    ),
]


@pytest.mark.parametrize(("written", "make"), LIMITS, ids=[str(i) for i in range(len(LIMITS))])
def test_a_limit_is_what_is_written(folder: Path, written: dict[str, Any], make: Make) -> None:
    job = job_of(folder, limits=written)
    assert job.limits is not None
    same(job.limits[-1], make(job.robot))


def test_a_clearance_task_keeps_from_the_world_and_needs_no_limit(folder: Path) -> None:
    room = {"type": "clearance", "distance": 30, "rows": 4, "cost": 2, "tolerance": 2, "pairs": [["hand", "world"]]}
    world = {"spheres": [{"position": [500, 0, 0], "radius": 100}]}
    job = job_of(folder, world=world, tasks={"tip": TIP, "room": room | {"priority": 1}})
    expected = jaxik.ClearanceTask(
        jaxik.World(spheres=jaxik.Spheres([[0.5, 0, 0]], [0.1])),
        0.03,
        pairs=(("hand", "world"),),
        cost=2.0,
        rows=4,
        tolerance=0.002,
        priority=1,
    )
    same(job.tasks["room"], expected)
    assert job.robot.geometry is not None and job.limits is None


def test_a_distance_task_touches_the_world_and_needs_no_limit(folder: Path) -> None:
    touch = {"type": "distance", "distance": 2, "pairs": [["hand", "spheres/0"]], "tolerance": 1}
    world = {"spheres": [{"position": [500, 0, 0], "radius": 100}]}
    job = job_of(folder, world=world, tasks={"touch": touch})
    ball = jaxik.World(spheres=jaxik.Spheres([[0.5, 0, 0]], [0.1]))
    same(job.tasks["touch"], jaxik.DistanceTask([("hand", "spheres/0")], 0.002, ball, tolerance=0.001))
    assert job.robot.geometry is not None


KEPT: dict[str, Any] = {"limits": {"collision": True}}


def field(**given: Any) -> dict[str, Any]:
    return KEPT | {"world": {"field": given}}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"world": {"points": {}}}, "world: holds obstacles that nothing keeps away from: *"),
    (field(), "world.field: is made from one of heights, points, cubes, distance, not none"),
    (field(heights=[[0]], cubes=[[[1]]]), "world.field: is made from one of *, not heights and cubes"),
    (field(heights=[[0, 0], [0, 0]]), "world.field: has no 'spacing', and needs one"),
    (field(heights=[[0, 0], [0]], spacing=1), "world.field.heights: is 2 x 2 numbers; its rows differ in length"),
    (field(heights=[[0, 0]], spacing=1), "world.field: heights are (nx, ny) with 2 nodes along each *"),
    (field(heights=[0, 0], spacing=1), "world.field.heights: has shape (nx, ny), not (2,)"),
    (field(heights=[], spacing=1), "world.field.heights: is a file (.npy, .npz, .csv) or a list of nx x ny numbers*"),
    (field(heights="gone.csv", spacing=1), "world.field.heights: *gone.csv: no such file"),
    (field(heights="cloud.txt", spacing=1), "world.field.heights: *cloud.txt: is an .npy, an .npz or a .csv file"),
    (field(heights="heights.csv", spacing=0), "world.field: spacing, cell and room are above zero*"),
    (field(heights="heights.csv", spacing=1, radius=1), "world.field: unknown key 'radius'*"),
    (field(points="words.npy"), "world.field.points: *words.npy: holds numbers (n, 3), not <U1"),
    (field(points="text.npy"), "world.field.points: *text.npy: is no .npy or .npz file: numpy.save *"),
    (field(heights=[[0, 0], [0, np.nan]], spacing=1), "world.field: heights are finite: 1 of 4 numbers are NaN *"),
    (field(points=[[0, 0, np.inf]], cell=1), "world.field: points are finite: 1 of 3 numbers are NaN or infinite"),
    (field(points="heights.csv", position=[0, 0, 0]), "world.field: unknown key 'position'*"),
    (field(points=[[0, 0]]), "world.field.points: has shape (n, 3), not (1, 2)"),
    (field(cubes="two.npz", cell=1), "world.field.cubes: *two.npz: holds 2 arrays, and is read where it holds one"),
    (field(cubes="cubes.npz"), "world.field: has no 'cell', and needs one"),
    (field(cubes=[[[0.5]]], cell=1), "world.field.cubes: are 1 where it is solid, and 0 where it is free"),
    (field(cubes=[[[0]]], cell=1), "world.field: occupied is of bool, (nx, ny, nz), with one at least*"),
    (field(distance=[[[0.1]]], cell=1), "world.field: VoxelField: distance has shape *"),
    (KEPT | {"world": {"points": {"positions": [[0, 0, 0]]}}}, "world.points: has no 'radius', and needs one"),
    (
        KEPT | {"world": {"points": {"positions": [[0, 0, 0]], "radius": 0}}},
        "world.points: Points: radius is above zero*",
    ),
    (KEPT | {"world": {"hulls": [{"position": [0, 0, 0]}]}}, "world.hulls[0]: has no 'corners', and needs one"),
    (KEPT | {"world": {"hills": []}}, "world: unknown key 'hills'; did you mean 'hulls'*"),
    ({"limits": {"collision": {"rate": 1, "gain": 1}}}, "limits.collision.rate: stands in the place of gain: *"),
    ({"limits": {"collision": {"rate": 0}}}, "limits.collision: rate is above zero and finite, not *"),
    ({"limits": {"collision": {"rows": 0}}}, "limits.collision.rows: is a whole number from 1 on, not 0"),
    ({"limits": {"collision": {"margins": 0}}}, "limits.collision: unknown key 'margins'; did you mean 'margin'*"),
    ({"limits": {"distances": ENDS}}, "limits.distances: is a list, each {first: FRAME, second: FRAME, *"),
    ({"limits": {"distances": [ENDS]}}, "limits.distances[0]: has no 'distance', and needs one"),
    (
        {"limits": {"distances": [{"first": "tool", "second": "tool", "distance": 1}]}},
        "limits.distances[0]: first and second are both 'tool': nothing is between them",
    ),
    (
        {"tasks": {"room": {"type": "clearance", "pairs": [["hnad", "upper"]]}}},
        "tasks.room: unknown *'hnad'*",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_a_mistake_is_said_in_one_line(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: str
) -> None:
    monkeypatch.setattr(batches, "solve_part", lambda *problem: pytest.fail("it was solved nevertheless"))
    write_arrays(folder)
    done = jaxik_run(changes)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    said = done.err.removeprefix(f"jaxik: {folder}/c.yaml: ").strip()
    assert fnmatch.fnmatchcase(said, expected.replace("[", "[[]")), said


def test_a_margin_that_home_does_not_have_is_warned_of_once(jaxik_run: Any, folder: Path, unsolved: None) -> None:
    (folder / "arm.xml").write_text(ARM.replace('size="0.1" mass="0.5"', 'size="0.55" mass="0.5"'))
    done = jaxik_run({"limits": {"collision": {"margin": 0.08}}}, "--num-targets", "2")
    assert done.code == 0
    assert done.err.count("apart at home") == 1 and "in YAML collision: {pairs: [...]}" in done.err
