"""Tasks, limits and frozen joints of a configuration: what each way of writing means, and what a mistake says."""

import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
import yaml
from cli_runs import ARM, TIP, arm_folder, solve_command, tip  # noqa: F401 (fixtures)
from tables import exhaustive

import jaxik
from jaxik.cli import batches
from jaxik.cli.job import Job, read_job
from jaxik.cli.tasks import TYPES
from jaxik.cli.yaml_file import read_yaml
from jaxik.core.trees import part_units

MM = {"length": "mm", "angle": "deg"}
QUARTER = np.pi / 2
DEG = np.pi / 180


def job_of(folder: Path, task: dict[str, Any] = TIP, **changes: Any) -> Job:
    """What a configuration on the small arm, whose coupling holds, asks for."""
    (folder / "arm.xml").write_text(ARM.replace('active="false"', 'active="true"'))
    (folder / "c.yaml").write_text(yaml.safe_dump({"robot": "arm.xml", "tasks": {"it": task}, **changes}))
    return read_job(read_yaml(folder / "c.yaml"), count=None, seed=None, max_steps=None)


def pose(position: list[float], x: float = 0, z: float = 0) -> jaxlie.SE3:
    """A pose turned about z first, and then about x."""
    turn = jaxlie.SO3.from_x_radians(float(x)) @ jaxlie.SO3.from_z_radians(float(z))
    return jaxlie.SE3.from_rotation_and_translation(turn, np.asarray(position, float))


TOOL: dict[str, Any] = {"frame": "tool"}
TO_TOOL = TOOL | {"type": "frame"}
IN_LOWER = TOOL | {"type": "relative_frame", "root": "lower"}
LOOK, ALIGN = TOOL | {"type": "look_at"}, TOOL | {"type": "axis_align"}
SUM = {"type": "joint_coupling", "joints": ["shoulder", "elbow"], "ratios": [1, -1]}
ROLL = {"type": "rolling", "hub": "tool"}

Expected = Callable[[jaxik.Robot], jaxik.Task]


def frame_task(*position_and_turns: Any) -> Expected:
    return lambda robot: jaxik.FrameTask(robot.frame("tool"), pose(*position_and_turns))


# At home the tool is at (1, 0, 0.1) with the axes of the world, the hand 0.1 m and the elbow 0.4 m before it.
# Lengths are millimetres and angles degrees.
WRITTEN: list[tuple[dict[str, Any], Expected]] = [
    (TO_TOOL | {"target": {"from": "home"}}, frame_task([1, 0, 0.1])),
    (TO_TOOL | {"target": {"from": "home", "offset": [-100, 0, 50]}}, frame_task([0.9, 0, 0.15])),
    (TO_TOOL | {"target": {"from": {"shoulder": 90}}}, frame_task([0.2, 0.8, 0.1], 0, QUARTER)),
    (TO_TOOL | {"target": {"from": [100, 90, 0, 0]}}, frame_task([0.2, 0.8, 0.2], 0, QUARTER)),
    (
        TO_TOOL | {"target": {"from": {"shoulder": 90}, "offset": [0, 0, 10], "turn": {"rpy": [90, 0, 0]}}},
        frame_task([0.2, 0.8, 0.11], QUARTER, QUARTER),
    ),
    (
        TO_TOOL | {"target": {"from": {"shoulder": 90}, "position": [300, 0, 0]}},
        frame_task([0.3, 0, 0], 0, QUARTER),
    ),
    (TO_TOOL | {"target": {"from": {"shoulder": 90}, "rpy": [90, 0, 0]}}, frame_task([0.2, 0.8, 0.1], QUARTER)),
    (
        IN_LOWER | {"target": {"from": {"shoulder": 90}, "offset": [0, 10, 0]}, "priority": 2},
        lambda robot: jaxik.RelativeFrameTask(
            robot.frame("tool"), robot.frame("lower"), pose([0.4, 0.01, 0]), priority=2
        ),
    ),
    (
        IN_LOWER | {"root": "hand", "root_kind": "body", "orientation_cost": None, "target": {"file": "points.csv"}},
        lambda robot: jaxik.RelativeFrameTask(
            robot.frame("tool"),
            robot.frame("hand", "body"),
            jaxlie.SE3(np.array([[1, 0, 0, 0, 0.1, 0.2, 0.3], [1, 0, 0, 0, 0.4, 0.5, 0.6]])),
            orientation_cost=None,
        ),
    ),
    (
        {"type": "com", "target": {"from": "home", "offset": [0, 0, -50]}, "subtree": "hand", "cost": [1, 0, 2]},
        lambda robot: jaxik.ComTask([0.9, 0, 0.05], [1.0, 0, 2], "hand"),
    ),
    (
        {"type": "com", "target": {"file": "points.csv"}, "tolerance": 2},
        lambda robot: jaxik.ComTask([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], tolerance=0.002),
    ),
    ({"type": "posture", "target": "folded"}, lambda robot: jaxik.PostureTask([0.1, 1, -2, 0.5])),
    ({"type": "posture", "target": {"from": "folded"}}, lambda robot: jaxik.PostureTask([0.1, 1, -2, 0.5])),
    (
        {"type": "posture", "target": {"elbow": -90}, "cost": {"elbow": 3}, "free_joints": True},
        # The wrist is driven by the elbow.
        lambda robot: jaxik.PostureTask([0, 0, -QUARTER, -QUARTER], [1, 1, 3.0, 1], free_joints=True),
    ),
    # A tolerance has the unit of what it is of: degrees where the slide has no cost, millimetres where it alone has.
    (
        {"type": "posture", "target": "home", "cost": {"lift": 0}, "tolerance": 1},
        lambda robot: jaxik.PostureTask([0, 0, 0, 0], [0, 1.0, 1, 1], tolerance=DEG),
    ),
    (
        {"type": "posture", "target": "home", "cost": dict.fromkeys(["shoulder", "elbow", "wrist"], 0), "tolerance": 1},
        lambda robot: jaxik.PostureTask([0, 0, 0, 0], [1.0, 0, 0, 0], tolerance=1e-3),
    ),
    ({"type": "posture", "target": "home", "tolerance": 0}, lambda robot: jaxik.PostureTask(np.zeros(4), tolerance=0)),
    (
        {"type": "posture", "target": ["home", [100, 0, 0, 90]], "priority": 1},
        lambda robot: jaxik.PostureTask([[0, 0, 0, 0], [0.1, 0, 0, QUARTER]], priority=1),
    ),
    (
        LOOK | {"target": {"position": [0, 0, 900]}, "axis": [1, 0, 0], "tolerance": 2},
        lambda robot: jaxik.LookAtTask(robot.frame("tool"), [0, 0, 0.9], [1.0, 0, 0], tolerance=2 * DEG),
    ),
    (
        LOOK | {"target": {"from": "home"}, "axis": [2, 0, 0]},
        lambda robot: jaxik.LookAtTask(robot.frame("tool"), [2, 0, 0.1], [2.0, 0, 0]),
    ),
    (ALIGN | {"target": [0, 0, 1]}, lambda robot: jaxik.AxisAlignTask(robot.frame("tool"), [0, 0, 1.0])),
    (
        ALIGN | {"target": {"from": {"shoulder": 90}}, "axis": [1, 0, 0]},
        lambda robot: jaxik.AxisAlignTask(robot.frame("tool"), [0, 1.0, 0], [1.0, 0, 0]),
    ),
    (
        ALIGN | {"target": [[0, 0, 1], [0, 1, 0]]},
        lambda robot: jaxik.AxisAlignTask(robot.frame("tool"), [[0, 0, 1.0], [0, 1, 0]]),
    ),
    (SUM, lambda robot: jaxik.JointCouplingTask(("shoulder", "elbow"), [1, -1])),
    (SUM | {"target": {"from": "folded"}}, lambda robot: jaxik.JointCouplingTask(("shoulder", "elbow"), [1, -1], 3.0)),
    (
        SUM | {"target": [10, 20], "tolerance": 1},
        lambda robot: jaxik.JointCouplingTask(("shoulder", "elbow"), [1, -1], [10 * DEG, 20 * DEG], tolerance=DEG),
    ),
    (
        SUM | {"joints": ["lift"], "ratios": [2], "target": 100, "tolerance": 3},
        lambda robot: jaxik.JointCouplingTask(("lift",), [2], 0.1, tolerance=0.003),
    ),
    (
        SUM | {"joints": ["lift", "elbow"], "target": 0},
        lambda robot: jaxik.JointCouplingTask(("lift", "elbow"), [1, -1]),
    ),
    (
        {"type": "linear_holonomic", "matrix": [{"elbow": 2}, [3, 0, 0, 0], [1, 0, 0, 3]], "target": [10, 20, 0]},
        lambda robot: jaxik.LinearHolonomicTask(
            [[0.0, 0, 2, 0], [3, 0, 0, 0], [1, 0, 0, 3]], [10 * DEG, 0.02, 0], np.zeros(4)
        ),
    ),
    (
        {"type": "linear_holonomic", "matrix": [{"elbow": 2, "wrist": 1}], "target": [[10], [20]], "tolerance": 1},
        lambda robot: jaxik.LinearHolonomicTask([[0.0, 0, 2, 1]], [[10 * DEG], [20 * DEG]], np.zeros(4), tolerance=DEG),
    ),
    (
        {"type": "linear_holonomic", "matrix": [{"elbow": 2}], "q0": "folded", "target": {"from": "home"}},
        lambda robot: jaxik.LinearHolonomicTask([[0.0, 0, 2, 0]], [4.0], [0.1, 1, -2, 0.5]),
    ),
    ({"type": "equality_constraint"}, lambda robot: jaxik.EqualityConstraintTask(robot.equalities())),
    (
        {"type": "equality_constraint", "equalities": ["geared"], "cost": [2], "tolerance": 1},
        lambda robot: jaxik.EqualityConstraintTask(robot.equalities(["geared"]), [2.0], tolerance=DEG),
    ),
    (
        ROLL | {"radius": 50, "floor": "upper"},
        lambda robot: jaxik.RollingTask(robot.frame("tool"), 0.05, robot.frame("upper")),
    ),
    (
        ROLL | {"type": "omniwheel", "radius": {"from": "home"}, "axle": [0, 1, 0], "cost": [1, 2]},
        lambda robot: jaxik.OmniwheelTask(robot.frame("tool"), 0.1, cost=[1.0, 2], axle=[0, 1.0, 0]),
    ),
    (
        TOOL | {"type": "manipulability", "target": 0.3, "mask": [True, 1, 0, 0, 0, False], "axes": "world"},
        lambda robot: jaxik.ManipulabilityTask(
            robot.frame("tool"), 0.3, np.array([1, 1, 0, 0, 0, 0], bool), axes="world"
        ),
    ),
    (
        TOOL | {"type": "manipulability", "target": {"from": {"elbow": -90}}, "mask": [0, 0, 1, 0, 0, 0]},
        # The lift alone moves the tool along z, one metre a metre.
        lambda robot: jaxik.ManipulabilityTask(robot.frame("tool"), 1.0, np.array([0, 0, 1, 0, 0, 0], bool)),
    ),
    ({"type": "clearance", "distance": 20, "cost": 2}, lambda robot: jaxik.ClearanceTask(distance=0.02, cost=2.0)),
    (
        {"type": "distance", "distance": 20, "cost": 2, "pairs": [["hand", "upper"]]},
        lambda robot: jaxik.DistanceTask([("hand", "upper")], 0.02, cost=2.0),
    ),
]


@pytest.mark.parametrize(("task", "expected"), WRITTEN, ids=[f"{i} {w[0]['type']}" for i, w in enumerate(WRITTEN)])
def test_task_is_the_one_that_is_written(folder: Path, task: dict[str, Any], expected: Expected) -> None:
    (folder / "points.csv").write_text("100,200,300\n400,500,600\n")
    job = job_of(folder, task, units=MM)
    found, wanted = job.tasks["it"], expected(job.robot)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_every_type_of_task_is_written_in_the_table_above() -> None:
    assert {task["type"] for task, _ in WRITTEN} == set(TYPES)


def test_sampled_targets_of_all_types_are_those_of_the_same_configurations(folder: Path) -> None:
    sampled = {"target": {"sample": 3}}
    tasks = {"tip": TIP | sampled, "rest": {"type": "posture"} | sampled, "mass": {"type": "com"} | sampled}
    job = job_of(folder, tasks=tasks, seed=2)
    q = job.tasks["rest"].q
    np.testing.assert_array_equal(q, job.robot.sample(jax.random.key(2), (3,)))
    np.testing.assert_allclose(job.tasks["tip"].target.wxyz_xyz, job.robot.frame_pose(q, "tool").wxyz_xyz, atol=1e-12)
    np.testing.assert_allclose(job.tasks["mass"].target, job.robot.center_of_mass(q), atol=1e-12)


def test_part_of_a_job_has_its_own_targets_and_everyones(folder: Path) -> None:
    tasks = {"tip": TIP | {"target": {"sample": 5}}, "rest": {"type": "posture", "target": "folded"}}
    job = job_of(folder, tasks=tasks, start="mid-range")
    problem, start, *_ = job.part(np.array([3, 1]))
    whole = np.asarray(job.tasks["tip"].target.wxyz_xyz)
    np.testing.assert_array_equal(problem.tasks["tip"].target.wxyz_xyz, whole[[3, 1]])
    np.testing.assert_array_equal(problem.tasks["rest"].q, [0.1, 1, -2, 0.5])
    assert (job.count, start.shape) == (5, (2, 4))


CEILING: dict[str, Any] = {"frame": "tool", "normal": [0, 0, 2], "offset": 300}


def arm() -> jaxik.Robot:
    return jaxik.load_robot(ARM.replace('active="false"', 'active="true"'))


def ceiling(height: float) -> jaxik.PositionLimit:
    return jaxik.PositionLimit(arm().frame("tool"), [0, 0, 2.0], height)


def assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-7), found, expected)


@exhaustive
def test_half_spaces_and_constraints_hold_and_are_reported(jaxik_run: Any) -> None:
    tasks = {"tip": TIP | {"target": {"position": [0.5, 0.3, 0.7]}}}
    held = {"level": SUM | {"joints": ["shoulder", "wrist"], "target": 0.5}}
    limits = {"half_spaces": [CEILING | {"offset": 0.3}]}
    done = jaxik_run({"tasks": tasks, "constraints": held, "limits": limits, "dtype": "float64"})
    said = " ".join(done.out.split())
    assert (done.code, done.err) == (0, "")
    assert "level sum of shoulder, wrist to a target: held before all tasks" in said
    assert "half space site tool no further than 300 mm along 0 0 1" in said
    assert "STALLED 1 100.0 %" in said
    assert "tip position [mm] 400 400 400 400 0.1 0.0 %" in said
    assert "level sum [rad or m] < 0.001 < 0.001 < 0.001 < 0.001 0.001 100.0 %" in said


KEPT: list[tuple[Any, ...]] = [
    ({}, None, None, None),
    ({"limits": []}, (), None, None),
    ({"limits": {"margin": 0.02}}, (jaxik.ConfigurationLimit(margin=0.02),), None, None),
    ({"limits": {}}, (jaxik.ConfigurationLimit(),), None, None),
    (
        {"limits": {"half_spaces": [CEILING, CEILING | {"kind": "site", "offset": -1}]}, "units": MM},
        (jaxik.ConfigurationLimit(), ceiling(0.3), ceiling(-0.001)),
        None,
        None,
    ),
    ({"constraints": {}}, None, {}, None),
    (
        {
            "constraints": {
                "gear": {"type": "equality_constraint"},
                "level": ALIGN | {"target": [[0, 0, 1]] * 7 + [[0, 1, 0]]},
            }
        },
        None,
        {
            "gear": jaxik.EqualityConstraintTask(arm().equalities()),
            "level": jaxik.AxisAlignTask(arm().frame("tool"), [[0, 0, 1.0], [0, 1, 0]]),
        },
        None,
    ),
    ({"fixed_joints": ["lift", "elbow"]}, None, None, [False, True, False, True]),
]


@pytest.mark.parametrize(("changes", "limits", "constraints", "moves"), KEPT, ids=[str(row[0]) for row in KEPT])
def test_limits_constraints_and_frozen_joints_reach_the_problem(
    folder: Path, changes: Any, limits: Any, constraints: Any, moves: Any
) -> None:
    problem, *_ = job_of(folder, **changes).part(np.array([6, 7]))
    assert_same(problem.constraints, constraints)
    assert_same(problem.limits, limits)
    assert moves is None if problem.dof_mask is None else problem.dof_mask.tolist() == moves


def test_a_free_base_has_no_margin_and_so_no_unit_of_it(folder: Path) -> None:
    base = '<mujoco><worldbody><body><freejoint/><geom size="1"/>'
    lift = '<body><joint name="lift" type="slide" range="0 1"/><geom size="1"/></body></body></worldbody></mujoco>'
    (folder / "base.xml").write_text(base + lift)
    task = {"type": "posture", "target": "home", "tolerance": 2}
    job = job_of(folder, task, robot="base.xml", units=MM, limits={"margin": 30})
    assert job.limits and float(job.limits[0].margin) == pytest.approx(0.03)
    assert float(job.tasks["it"].tolerance) == pytest.approx(0.002)


BALANCE = {"type": "com", "target": {"from": "home"}}
POSTURE = {"type": "posture", "target": "home"}


def of(task: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A configuration with one task."""
    return {"tasks": {"it": {key: x for key, x in (task | changes).items() if x != "drop"}}}


WRONG: list[tuple[dict[str, Any], str]] = [
    (of(TIP, type="rollin"), "tasks.it.type: unknown type of task 'rollin'; did you mean 'rolling'*"),
    (
        of(TIP, type="damping"),
        "tasks.it.type: damping is a velocity task: it says how to move and acts in differential IK only, where solve "
        "looks for a configuration; one of frame, relative_frame, *",
    ),
    (of(TIP, priority=-1), "tasks.it.priority: is a whole number from 0 on, not -1"),
    (of(TIP, priority=0.5), "tasks.it.priority: is a whole number from 0 on, not 0.5"),
    # where a configuration has a frame
    (tip(target={"from": "hme"}), "tasks.tip.target.from: unknown configuration 'hme'; did you mean 'home'?"),
    (tip(target={"from": {"elbw": 1}}), "tasks.tip.target.from: unknown joint 'elbw'; did you mean 'elbow'?"),
    (
        tip(target={"from": 3}),
        "tasks.tip.target.from: is home, mid-range, a keyframe, *, or 4 numbers; *",
    ),
    (tip(target={"from": "home", "ofset": 1}), "tasks.tip.target: unknown key 'ofset'; did you mean 'offset'*"),
    (tip(target={"from": "home", "offset": [1, 2]}), "tasks.tip.target.offset: is 3 numbers, not [1, 2]"),
    (tip(target={"offset": [1, 2, 3]}), "tasks.tip.target: unknown key 'offset'; *"),
    (
        tip(target={"from": "home", "offset": [1, 2, 3], "position": [0, 0, 0]}),
        "tasks.tip.target: gives the position twice, in itself and as offset from a configuration",
    ),
    (
        tip(target={"from": "home", "turn": {"rpy": [0, 0, 1]}, "rpy": [0, 0, 0]}),
        "tasks.tip.target: gives the rotation twice, as rpy and as turn from a configuration",
    ),
    (
        tip(target={"from": "home", "turn": [0, 0, 1]}),
        "tasks.tip.target.turn: is a mapping (key: value), *",
    ),
    (tip(target={"from": "home", "turn": {}}), "tasks.tip.target.turn: has no rotation: give one of quaternion, *"),
    (tip(target={"from": "home", "turn": {"rpi": 1}}), "tasks.tip.target.turn: unknown key 'rpi'; did you mean 'rpy'?"),
    # relative poses
    (of(IN_LOWER, root="drop", target={"from": "home"}), "tasks.it: has no 'root', and needs one"),
    (of(IN_LOWER, root="lowr", target={"from": "home"}), "tasks.it.root: unknown frame 'lowr'; did you mean 'lower'*"),
    (of(IN_LOWER, root="tool", target={"from": "home"}), "tasks.it: frame and root are both 'tool': *"),
    (of(IN_LOWER, root_kind="link", target={}), "tasks.it.root_kind: is one of site, body, geom, not 'link'"),
    # centres of mass
    (of(BALANCE, subtree="hnd"), "tasks.it.subtree: unknown body 'hnd'; did you mean 'hand'?"),
    (of(BALANCE, cost=[1, 0]), "tasks.it.cost: is 3 numbers, not [1, 0]"),
    (of(BALANCE, target="drop"), "tasks.it: has no 'target', and needs one"),
    (of(BALANCE, target={}), "tasks.it.target: has no 'position', and needs one"),
    (of(BALANCE, target={"position": [0, 1]}), "tasks.it.target.position: is 3 numbers, not [0, 1]"),
    (of(BALANCE, target={"from": "home", "turn": {}}), "tasks.it.target: unknown key 'turn'; *"),
    (of(BALANCE, frame="tool"), "tasks.it: unknown key 'frame'; *"),
    # postures
    (of(POSTURE, target="hoem"), "tasks.it.target: unknown configuration 'hoem'; did you mean 'home'?"),
    (of(POSTURE, target=[0, 1]), "tasks.it.target: is 4 numbers, not [0, 1]"),
    (of(POSTURE, target=["home", "hoem"]), "tasks.it.target[1]: unknown configuration 'hoem'; did you mean 'home'?"),
    (of(POSTURE, target={"from": "home", "offset": 1}), "tasks.it.target: unknown key 'offset'; *"),
    (of(POSTURE, cost={"elbw": 1}), "tasks.it.cost: unknown joint 'elbw'; did you mean 'elbow'?"),
    (of(POSTURE, cost={"elbow": -1}), "tasks.it.cost.elbow: is finite and not negative, not -1.0"),
    (of(POSTURE, free_joints=1), "tasks.it.free_joints: is true or false, not 1"),
    # directions
    (of(ALIGN, target=[0, 1]), "tasks.it.target: is 3 numbers, not [0, 1]"),
    (of(ALIGN, target=[[0, 0, 1], [0, 1]]), "tasks.it.target[1]: is 3 numbers, not [0, 1]"),
    (of(ALIGN, target=[0, 0, 0]), "tasks.it: target is a direction, of any length but zero: *"),
    (of(LOOK, target={"from": "home"}, axis=[0, 0, 0]), "tasks.it: axis is a direction, of any length but zero: *"),
    (of(LOOK, target={"from": "home"}, axis="z"), "tasks.it.axis: is 3 numbers, not 'z'"),
    # relations of joints
    (of(SUM, joints="elbow"), "tasks.it.joints: is a list of joint names, not 'elbow'"),
    (of(SUM, joints=["shoulder", "elbw"]), "tasks.it.joints[1]: unknown joint 'elbw'; did you mean 'elbow'?"),
    (of(SUM, joints=["elbow", "elbow"]), "tasks.it: joints names at least one joint, and none twice: *"),
    (of(SUM, ratios=[1]), "tasks.it.ratios: is 2 numbers, not [1]"),
    (of(SUM, target="far"), "tasks.it.target: is a number, not 'far'"),
    (of({"type": "linear_holonomic"}, target=[0]), "tasks.it: has no 'matrix', and needs one"),
    (
        of({"type": "linear_holonomic"}, target=[0], matrix=[[1, 2]]),
        "tasks.it.matrix[0]: is 4 numbers, not [1, 2]",
    ),
    (
        of({"type": "linear_holonomic"}, target=[0], matrix=[{"elbw": 1}]),
        "tasks.it.matrix[0]: unknown joint 'elbw'; did you mean 'elbow'?",
    ),
    (
        of({"type": "linear_holonomic"}, target=[0], matrix={"elbow": 1}),
        "tasks.it.matrix: is a list of rows, each {joint: number} or 4 numbers",
    ),
    (of({"type": "linear_holonomic"}, target=[0, 1], matrix=[{"elbow": 1}]), "tasks.it.target: is 1 numbers, not *"),
    # numbers about angles and lengths alike
    (
        {"units": MM} | of(POSTURE, tolerance=1),
        "tasks.it.tolerance: is of angles and lengths alike: give it where the units are rad and m",
    ),
    (
        {"units": {"length": "mm"}} | of(SUM, joints=["lift", "elbow"], target=1),
        "tasks.it.target: is of angles and lengths alike: *",
    ),
    ({"units": MM} | of(SUM, joints=["lift", "elbow"], tolerance=1), "tasks.it.tolerance: is of angles and lengths *"),
    (
        {"units": MM} | of({"type": "linear_holonomic"}, matrix=[{"lift": 1, "elbow": 1}], target=[[0], [1]]),
        "tasks.it.target[1]: is of angles and lengths alike: *",
    ),
    (
        {"units": MM}
        | of({"type": "linear_holonomic"}, matrix=[{"lift": 1}, {"elbow": 1}], target=[0, 0], tolerance=1),
        "tasks.it.tolerance: is of angles and lengths alike: *",
    ),
    # equality constraints, of which this model has one that is not active
    (of({"type": "equality_constraint"}), "tasks.it.equalities: arm has no active equality constraint *"),
    (
        of({"type": "equality_constraint"}, equalities=["gared"]),
        "tasks.it.equalities: unknown equality constraint 'gared'; did you mean 'geared'?",
    ),
    (
        of({"type": "equality_constraint"}, equalities="geared"),
        "tasks.it.equalities: is a list of names of equality constraints, not 'geared'",
    ),
    # wheels
    (of(ROLL), "tasks.it: has no 'radius', and needs one"),
    (of(ROLL, radius=-1), "tasks.it: radius is above zero and finite, not *"),
    (of(ROLL, radius=0.1, floor="tool"), "tasks.it: hub and floor are both 'tool'"),
    (of(ROLL, radius=0.1, axle=[0, 1, 0]), "tasks.it: unknown key 'axle'; *"),
    # manipulability
    (of(TOOL, type="manipulability", target=1), "tasks.it: 'tool' has 4 degrees of freedom, fewer than the 6 rows, *"),
    (
        of(TOOL, type="manipulability", target=1, mask=[0.5] * 6),
        "tasks.it.mask: takes rows or leaves them out: 0 or 1 each, not *",
    ),
    # limits, constraints and frozen joints
    ({"limits": {"margins": 1}}, "limits: unknown key 'margins'; did you mean 'margin'*"),
    ({"limits": {"half_spaces": CEILING}}, "limits.half_spaces: is a list, each {frame: NAME, normal: *"),
    ({"limits": {"half_spaces": [CEILING, {"frame": "tol"}]}}, "limits.half_spaces[1].frame: unknown frame 'tol'*"),
    (
        {"limits": {"half_spaces": [CEILING | {"normal": [0, 0, 0]}]}},
        "limits.half_spaces[0]: normal *",
    ),
    ({"limits": {"half_spaces": [CEILING | {"offset": None}]}}, "limits.half_spaces[0].offset: is a number, not *"),
    ({"limits": {"margin": -1}}, "limits.margin: is finite and not negative, not -1.0"),
    ({"limits": 0.1}, "limits: is a mapping (key: value), not 0.1"),
    (
        {"limits": {"margin": 1}, "units": {"angle": "deg"}},
        "limits.margin: is of angles and lengths alike: give it where the units are rad and m",
    ),
    ({"constraints": ["geared"]}, "constraints: is a mapping (key: value), *"),
    ({"constraints": {"tip": ALIGN}}, "constraints.tip: tasks has 'tip' already: *give it another name"),
    ({"constraints": {"a": ALIGN | {"priority": 0}}}, "constraints.a.priority: constraints hold before all tasks*"),
    ({"constraints": {"a": ALIGN | {"frame": "tol"}}}, "constraints.a.frame: unknown frame 'tol'*"),
    (
        {"constraints": {"a": ALIGN | {"target": [[0, 0, 1]] * 3}}},
        "tasks: have different numbers of targets: tip 8, constraints.a 3; *",
    ),
    ({"fixed_joints": "elbow"}, "fixed_joints: is a list of joint names, not 'elbow'"),
    ({"fixed_joints": ["elbw"]}, "fixed_joints[0]: unknown joint 'elbw'; did you mean 'elbow'?"),
    # numbers of targets
    (
        {"tasks": {"a": TIP, "b": ALIGN | {"target": [[0, 0, 1]] * 3}}},
        "tasks: have different numbers of targets: a 8, b 3; give as many to each, or a single one",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_task_is_said_in_one_line(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, changes: Any, expected: str
) -> None:
    monkeypatch.setattr(batches, "solve_part", lambda *problem: pytest.fail("it was solved nevertheless"))
    done = jaxik_run(changes)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    said = done.err.removeprefix(f"jaxik: {folder}/c.yaml: ").strip()
    assert fnmatch.fnmatchcase(said, expected.replace("[", "[[]")), said


# What each says of itself, with the parts and units of its error.
SAID = {
    "along": ("site tool points along a target: direction, within 0.001", {"direction": None}),
    "both": ("sum of shoulder, elbow to a target: sum, within 0.001 rad or m", {"sum": "rad or m"}),
    "gear": ("equality constraints geared: rows, within 0.0001 rad or m", {"rows": "rad or m"}),
    "inside": (
        "site tool to a target in body lower: position and orientation, within 0.1 mm and 0.0573 deg",
        {"position": "m", "orientation": "rad"},
    ),
    "mass": ("centre of mass of hand and what it carries to a target: position, within 0.1 mm", {"position": "m"}),
    "nimble": (
        "manipulability of site tool to a target: manipulability, some directions only, as near as may be",
        {"manipulability": None},
    ),
    "omni": ("site tool above body world at a target: height, within 0.1 mm", {"height": "m"}),
    "rest": ("posture to a target: joints, as near as may be, at priority 1", {"joints": "rad or m"}),
    "roll": ("site tool above body world at a target: height, within 0.1 mm", {"height": "m"}),
    "row": ("linear relations of joints to a target: rows, as near as may be", {"rows": "rad or m"}),
    "sight": ("site tool looks at a target: direction, within 0.001", {"direction": None}),
    "tip": ("site tool to a target: position, within 0.1 mm", {"position": "m"}),
}
TARGETS = """
along/direction both/sum inside/position inside/quaternion mass/position nimble/manipulability omni/radius rest/q
roll/radius row/rows sight/position tip/position tip/quaternion
"""


def errors_at_start(problem: jaxik.Problem, q0: jax.Array, options: Any, keys: None) -> jaxik.Solution:
    """A solve of one element that takes no step: it returns the start and what each task reports there."""
    robot, tasks = problem.robot, problem.tasks
    frames = tuple(dict.fromkeys(frame for task in tasks.values() for frame in task.frames))
    kin = robot.kinematics(q0[0], frames, tuple(root for task in tasks.values() for root in task.subtrees))
    residuals = jax.tree.map(lambda x: x[None], {name: task.report(robot, kin) for name, task in tasks.items()})
    zero, whole = jnp.zeros(1, q0.dtype), jnp.zeros(1, jnp.int32)
    units = part_units(tasks, residuals)
    return jaxik.Solution(q0, whole, residuals, whole, whole, zero, zero, topology=robot.topology, residual_units=units)


def test_summary_and_output_have_every_type_of_task(
    jaxik_run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "solve_part", errors_at_start)
    (folder / "arm.xml").write_text(ARM.replace('active="false"', 'active="true"'))
    bent = {"target": {"from": {"elbow": -1}}}
    tasks = {
        "along": ALIGN | {"axis": [1, 0, 0]} | bent,
        "both": SUM | bent,
        "gear": {"type": "equality_constraint"},
        "inside": IN_LOWER | bent,
        "mass": {"type": "com", "subtree": "hand", "cost": [0, 0, 1]} | bent,
        "nimble": TOOL | {"type": "manipulability", "mask": [1, 1, 0, 0, 0, 0]} | bent,
        "omni": ROLL | {"type": "omniwheel", "radius": {"from": "home"}},
        "rest": {"type": "posture", "priority": 1} | bent,
        "roll": ROLL | {"radius": {"from": "home"}},
        "row": {"type": "linear_holonomic", "matrix": [{"elbow": 1}]} | bent,
        "sight": LOOK | {"axis": [1, 0, 0]} | bent,
        "tip": TIP | bent,
    }
    asked = {"tasks": tasks, "start": {"elbow": -0.5}, "dtype": "float64"}
    done = jaxik_run(asked | {"output": "o.npz"})
    assert (done.code, done.err) == (0, "")
    said = " ".join(done.out.split())
    assert [task for task, (words, _) in SAID.items() if f"{task} {words}" not in said] == [], done.out
    found = json.loads(jaxik_run(asked, "--json").out)["errors"]
    units = {task: {part: error["unit"] for part, error in parts.items()} for task, parts in found.items()}
    assert units == {task: units for task, (_, units) in SAID.items()}
    for task, part, error in (
        ("rest", "joints", 0.5 * 2**0.5),  # elbow, and the wrist that it drives
        ("row", "rows", 0.5),
        ("both", "sum", 0.5),
        ("mass", "position", 0),
    ):
        assert found[task][part]["max"] == pytest.approx(error), task
    assert found["along"]["direction"]["max"] == pytest.approx(2 * np.sin(0.5))
    for task, part in (("nimble", "manipulability"), ("rest", "joints")):
        assert found[task][part]["tolerance"] is found[task][part]["within_tolerance"] is None
    with np.load(folder / "o.npz") as arrays:
        assert {name.removeprefix("targets/") for name in arrays if name.startswith("targets/")} == set(TARGETS.split())
        np.testing.assert_allclose(arrays["targets/omni/radius"], [0.1])
        np.testing.assert_allclose(arrays["targets/rest/q"], [[0, 0, -1, -1]])
        np.testing.assert_allclose(arrays["residuals/rest"], [[0, 0, 0.5, 0.5]])
