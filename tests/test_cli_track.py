"""`jaxik track`: the scenes that are shipped, what it reads and refuses, and what it writes."""

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import Status, Track
from jaxik.cli import main
from jaxik.cli.config_help import TRACK_HELP
from jaxik.cli.tracking import follow, read_track_job
from jaxik.cli.yaml_file import read_yaml

CONFIGS = Path(__file__).parents[1] / "configs"
ARM = """
<mujoco><compiler angle="radian" autolimits="true"/><worldbody><body>
  <joint name="shoulder" axis="0 0 1" range="-3 3"/><geom size=".1" mass="1"/>
  <body pos=".5 0 0"><joint name="elbow" axis="0 0 1" range="-3 3"/><geom size=".1" mass="1"/>
    <site name="tip" pos=".5 0 0"/></body>
</body></worldbody><keyframe><key name="home" qpos="0.3 0.9"/></keyframe></mujoco>
"""
CONFIG: dict[str, Any] = {
    "robot": "arm.xml",
    "dtype": "float64",
    "tasks": {"tip": {"frame": "tip", "orientation_cost": None, "target": {"from": "home"}}},
    "track": {"dt": 0.02, "duration": 1.0},
}


class Scene(NamedTuple):
    """What a shipped configuration must reach."""

    largest_error: float  # of the task "tip" at any time [m]
    final_error: float
    peak_acceleration: float  # relative to its limit
    last: Status = Status.CONVERGED
    held: float = 1e-5  # the largest norm of a constraint at any time [m or rad]; of gaze [rad]
    constraints: tuple[str, ...] = ()


FEET = ("front_left", "front_right", "rear_left", "rear_right")
SCENES = {
    "panda_circle": Scene(4e-4, 1e-5, 0.3),
    "panda_out_of_reach": Scene(0.08, 1e-4, 1.0),
    "panda_yield_and_recover": Scene(0.07, 1e-4, 1.0),
    "pendulum_stuck": Scene(1.3, 0.9, 1.0, Status.STALLED),
    "panda_reach_and_hold": Scene(1e-4, 1e-5, 0.3),
    "panda_whole_path": Scene(1e-6, 1e-6, 0.3),
    "panda_engrave": Scene(4e-5, 1e-5, 0.2),
    "ur5e_through_singularity": Scene(1e-3, 1e-6, 0.3),
    "dual_arm_screw": Scene(1e-4, 1e-6, 0.1, constraints=("grasp",)),
    "hand_fingertips": Scene(2e-3, 1e-6, 0.02),
    "gaze_while_moving": Scene(5e-4, 1e-6, 0.3, held=3e-4, constraints=("gaze",)),
    "mobile_manipulator_drive": Scene(6e-5, 1e-6, 0.05),
    "wheeled_biped_roll": Scene(6e-4, 1e-6, 0.05, constraints=("left", "right")),
    "quadruped_squat": Scene(2e-6, 1e-7, 0.2, constraints=FEET),
    "panda_over_rubble": Scene(9e-3, 1e-5, 1.0),
    "humanoid_step": Scene(1e-3, 5e-4, 0.1, constraints=("left_foot",)),
}
COMMON = ("pendulum_stuck",)
PLANNED = ("panda_shelf_motion",)


@pytest.mark.parametrize("name", mostly_exhaustive(SCENES, COMMON))
def test_a_shipped_scene_reaches_what_it_must(name: str) -> None:
    scene, job = SCENES[name], read_track_job(read_yaml(CONFIGS / f"{name}.yaml"))
    found, robot = follow(job), job.problem.robot
    tip: Any = found.residuals["tip"]
    error = np.linalg.norm(tip["position"] if isinstance(tip, dict) else tip, axis=-1)
    assert error.max() <= scene.largest_error and error[-1] <= scene.final_error
    assert found.peak_speed <= 1 + 1e-6 and found.peak_acceleration <= scene.peak_acceleration * (1 + 1e-6)
    assert found.peak_jerk <= 1 + 2e-2  # in float32: differences of differences
    assert np.all(robot.check_limits(found.q))
    for constraint in scene.constraints:
        assert all(np.max(np.abs(x)) <= scene.held for x in jax.tree.leaves(found.residuals[constraint])), constraint
    assert found.status[-1] == scene.last
    if scene.last is Status.STALLED:
        assert np.all(found.q[-1] == robot.limit_upper)


def test_every_configuration_is_listed_and_every_scene_has_its_numbers() -> None:
    listed = (CONFIGS / "README.md").read_text()
    files = sorted(file.name for file in CONFIGS.glob("*.yaml"))
    assert [name for name in files if f"`{name}`" not in listed] == []
    texts = {file.removesuffix(".yaml"): (CONFIGS / file).read_text() for file in files}
    tracked = {name for name, text in texts.items() if "\ntrack:" in text and "\ndataset:" not in text}
    assert tracked == {*SCENES, *PLANNED}


@exhaustive
@pytest.mark.parametrize("name", PLANNED)
def test_a_shipped_motion_is_planned_to_where_its_tasks_are_met(name: str) -> None:
    job = read_track_job(read_yaml(CONFIGS / f"{name}.yaml"))
    found, task = follow(job).check(), job.problem.tasks["tip"]
    away = job.problem.robot.frame_pose(found.q[-1], "tcp").inverse() @ task.target
    assert np.linalg.norm(away.log()) < 1e-3
    assert found.peak_speed > 0.99 and found.peak_acceleration > 0.99


@pytest.fixture(name="folder")
def arm_folder(tmp_path: Path) -> Path:
    (tmp_path / "arm.xml").write_text(ARM)
    return tmp_path


def run(folder: Path, changes: dict[str, Any], *options: str) -> int:
    config = CONFIG | changes
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    return main(["track", str(folder / "c.yaml"), *options])


def targets(folder: Path, path: dict[str, Any], **track: Any) -> np.ndarray:
    """The positions of a path (T, 3)."""
    config = CONFIG | {"track": CONFIG["track"] | {"paths": {"tip": path}} | track}
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    return np.asarray(read_track_job(read_yaml(folder / "c.yaml")).targets["tip"].wxyz_xyz[:, 4:])


def start(folder: Path) -> np.ndarray:
    robot = jaxik.load_robot(folder / "arm.xml")
    return np.asarray(robot.frame_pose(robot.q_home, "tip").translation())


def test_it_writes_what_track_returns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    track = {"track": CONFIG["track"] | {"paths": {"tip": {"shape": "circle", "radius": 0.03}}}}
    names = {option: folder / f"o.{option}" for option in ("npz", "csv", "png")}
    options = ["-o", str(names["npz"]), "--csv", str(names["csv"]), "--plot", str(names["png"])]
    limits = {"limits": {"velocity": 3, "acceleration": {"shoulder": 20, "elbow": 20}}}
    assert run(folder, track | limits, "--json", *options) == 0
    facts = json.loads(capsys.readouterr().out)
    found: Any = jaxik.load(names["npz"])
    assert isinstance(found, Track) and found.q.shape == (50, 2)
    assert facts["steps"] == 50 and facts["dt"] == 0.02 and facts["status"]["CONVERGED"] == 50
    assert facts["errors"]["tip/position"]["unit"] == "m" and facts["errors"]["tip/position"]["max"] < 2e-3
    assert 0 < facts["peak_speed"] < 1 and 0 < facts["peak_acceleration"] < 1
    with names["csv"].open() as file:
        assert len(list(csv.reader(file))) == 51
    assert names["png"].stat().st_size > 10_000
    assert run(folder, track | limits, *options) == 2  # they exist
    capsys.readouterr()
    assert run(folder, track | limits, "-q", "--force", "--dtype", "float64", *options) == 0
    assert capsys.readouterr() == ("", "")
    assert run(folder, track | limits) == 0
    said = capsys.readouterr().out
    assert "50 steps of 0.02 s" in said and "50 CONVERGED" in said and "tip/position [m]" in said


def test_a_planned_motion_ends_where_the_tasks_are_met(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = {"from": {"shoulder": -0.8, "elbow": 1.2}}
    changes = {
        "tasks": {"tip": CONFIG["tasks"]["tip"] | {"target": target}},
        "track": CONFIG["track"] | {"mode": "planned", "duration": 3.0},
        "limits": {"velocity": 2, "acceleration": 8},
    }
    assert run(folder, changes, "-o", str(folder / "o.npz"), "--plot", str(folder / "o.png")) == 0
    assert "150 CONVERGED" in capsys.readouterr().out
    found: Any = jaxik.load(folder / "o.npz")
    robot = jaxik.load_robot(folder / "arm.xml")
    ends = (robot.frame_pose(jnp.asarray(q), "tip").translation() for q in (found.q[-1], [-0.8, 1.2]))
    np.testing.assert_allclose(*ends, atol=1e-4)
    assert run(folder, changes | {"track": changes["track"] | {"paths": {}}}) == 2
    assert "paths" in capsys.readouterr().err


def test_shapes_start_at_the_target_at_rest_and_are_what_they_are_called(folder: Path) -> None:
    about = {"laps": 1, "ramp": 0.2}
    circle = targets(folder, {"shape": "circle", "radius": 0.1} | about)
    assert np.allclose(np.linalg.norm(circle - (start(folder) - [0.1, 0, 0]), axis=1), 0.1)
    assert np.allclose(circle[-1], start(folder))
    around = targets(folder, {"shape": "circle", "radius": 0.1, "normal": [1, 0, 0], "toward": [0, 0, 1]} | about)
    assert np.allclose(np.linalg.norm(around - (start(folder) - [0, 0, 0.1]), axis=1), 0.1)
    assert np.allclose(around[:, 0], start(folder)[0])
    eight = targets(folder, {"shape": "lemniscate", "radius": 0.2} | about)
    x, y = (eight - start(folder))[:, :2].T / 0.2
    assert np.allclose(y**2, x**2 * (1 - x**2)) and 0.99 < x.max() < 1.01 and -1.01 < x.min() < -0.99
    for path in (circle, around, eight):
        assert np.linalg.norm(path[0] - start(folder)) < 0.3 * np.linalg.norm(path[25] - path[24])
        # Its speed is constant between the ramps.
    speed = np.linalg.norm(np.diff(circle, axis=0), axis=1)
    assert np.allclose(speed[12:38], speed[20], rtol=1e-6)


def test_a_line_goes_there_or_there_and_back(folder: Path) -> None:
    there = targets(folder, {"shape": "line", "to": [0.1, 0.2, 0.0]}) - start(folder)
    assert np.allclose(np.cross(there, [0.1, 0.2, 0.0]), 0) and np.allclose(there[-1], [0.1, 0.2, 0.0])
    back = targets(folder, {"shape": "line", "to": [0.1, 0.2, 0.0], "laps": 1}) - start(folder)
    assert np.allclose(back[24], [0.1, 0.2, 0.0], atol=1e-3) and np.allclose(back[-1], 0)


def test_waypoints_are_passed_at_their_times(folder: Path) -> None:
    points = [{"from": "home", "offset": [0.1, 0, 0]}, {"position": [0.4, 0.5, 0.0]}]
    way = targets(folder, {"waypoints": points, "times": [0.4, 1.0]})
    assert np.allclose(way[19] - start(folder), [0.1, 0, 0]) and np.allclose(way[-1], [0.4, 0.5, 0])
    assert np.linalg.norm(way[0] - start(folder)) < 0.005


def test_postures_have_waypoints_too_in_the_units_of_the_configuration(folder: Path) -> None:
    tasks = {"rest": {"type": "posture", "target": "home"}}
    path = {"rest": {"waypoints": [{"shoulder": 60, "elbow": 30}], "times": [1.0]}}
    changes = {"tasks": tasks, "units": {"angle": "deg"}, "track": CONFIG["track"] | {"paths": path}}
    (folder / "c.yaml").write_text(yaml.safe_dump(CONFIG | changes | {"limits": {"velocity": {"elbow": 90}}}))
    job = read_track_job(read_yaml(folder / "c.yaml"))
    assert np.allclose(job.targets["rest"][-1], np.radians([60, 30]))
    limits: Any = job.problem.limits
    assert np.allclose(limits[1].max_velocity["elbow"], np.pi / 2)


def test_configuration_of_the_help_is_one(folder: Path) -> None:
    (folder / "h.yaml").write_text(TRACK_HELP.split("\n\n", 1)[1])
    job = read_track_job(read_yaml(folder / "h.yaml"))
    assert job.num_steps == 500 and set(job.targets) == {"tip"} and job.problem.limits is not None


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no section": ({"track": None}, "track: is a mapping"),
    "no duration": ({"track": {"dt": 0.1}}, "track: has no 'duration'"),
    "no step": ({"track": {"dt": 0.1, "duration": 0.01}}, "track.duration: is 0.01 s, less than one step"),
    "no dt": ({"track": {"dt": 0, "duration": 1}}, "track.dt: is the duration of a step"),
    "key": ({"track": {"duration": 1, "path": {}}}, "unknown key 'path'; did you mean 'paths'"),
    "of generate": ({"dataset": {}}, "c.yaml: has the section dataset: jaxik generate CONFIG"),
    "search": ({"search": True}, "unknown key 'search'"),
    "no task": ({"track": {"duration": 1, "paths": {"tap": {}}}}, "paths.tap: is the path of a task, one of tip"),
    "shape": ({"track": {"duration": 1, "paths": {"tip": {"shape": "cirle"}}}}, "is one of line, circle, lemniscate"),
    "ramp": (
        {"track": {"duration": 1, "paths": {"tip": {"shape": "line", "to": [1, 0, 0], "ramp": 2}}}},
        "tip.ramp: is a time above 0 and up to half",
    ),
    "toward": (
        {"track": {"duration": 1, "paths": {"tip": {"shape": "circle", "radius": 1, "toward": [0, 0, 1]}}}},
        "tip.toward: is a direction in the plane",
    ),
    "times beyond the end": (
        {"track": {"duration": 1, "paths": {"tip": {"waypoints": [{"position": [0, 0, 0]}], "times": [2]}}}},
        "paths.tip.times: goes on to 2 s, beyond the duration of 1 s",
    ),
    "times": (
        {"track": {"duration": 1, "paths": {"tip": {"waypoints": [{"position": [0, 0, 0]}], "times": [0]}}}},
        "paths.tip: times increase",
    ),
    "several targets": ({"tasks": {"tip": CONFIG["tasks"]["tip"] | {"target": {"sample": 3}}}}, "has several targets"),
    "velocity": ({"limits": {"velocity": True}}, "limits.velocity: arm has no velocity limits"),
    "acceleration": ({"limits": {"acceleration": {"elbw": 1}}}, "did you mean 'elbow'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_told_with_its_place(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, said = WRONG[case]
    assert run(folder, changes) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
