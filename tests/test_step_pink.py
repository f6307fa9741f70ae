"""`step` and `linearize` against pink's `build_ik` and `solve_ik`, which run here on the same robots.

pink's free joint has its linear rates in axes of its body, ours in those of the world: its matrices are turned.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlie
import numpy as np
import pink
import pinocchio
import pytest
from limit_rows import UNOPTIMISED, agree
from pink.limits import FloatingBaseVelocityLimit
from pink.tasks.manipulability_task import ManipulabilityTask
from tables import exhaustive
from test_limits_pink import Pair, in_our_tangent, pair, pink_configuration
from test_step_mink import tightest

import jaxik
from jaxik import Status
from jaxik.kinematics.topology import JointType
from jaxik.robot.robot import Robot

BATCH = 4
ALONE = BATCH - 1  # the element in which the velocity task alone has a cost
DT, DAMPING = np.array([0.02, 0.005, 0.1, 0.02]), np.array([1e-6, 1e-3, 1e-6, 1e-12])
POSITION, ORIENTATION = np.array([1.0, 2.0, 0.5]), np.array([0.3, 0.0, 1.5])
OWN = {"gain": 0.7, "lm_damping": 0.3}
RATE = 0.2
COST = {"frame": 1.0, "relative": 0.4, "com": 0.7, "posture": 0.3, "damping": 0.1, "smooth": 0.2, "coupling": 0.9,
        "line": 0.6, "dexterity": 0.5}  # fmt: skip


class Names(NamedTuple):
    """Of a robot: two bodies, the first one that moves, two joints, and whether hinges alone move the tip."""

    tip: str
    root: str
    moving: str
    joints: tuple[str, str]
    hinges: bool = False


ROBOTS = {
    "panda": Names("link7", "link3", "link1", ("joint2", "joint4"), True),
    "iiwa14": Names("iiwa_link_7", "iiwa_link_3", "iiwa_link_1", ("iiwa_joint_2", "iiwa_joint_4"), True),
    "arm": Names("wrist", "lift", "turn", ("shoulder_joint", "reach_joint")),
    "floating arm": Names("wrist", "lift", "base", ("shoulder_joint", "reach_joint")),
}


class Scene(NamedTuple):
    """Both robots, and what is asked of them in each element."""

    both: Pair
    names: Names
    free: list[int]
    q: np.ndarray
    given: dict[str, np.ndarray]
    fast: np.ndarray
    hard: np.ndarray


def sampled(robot: Robot, key: int) -> np.ndarray:
    """Configurations (BATCH, nq) whose hinges without limits are less than half a turn apart, where pink's wrap."""
    q = np.array(robot.sample(jax.random.key(key), (BATCH,)))
    endless = [j.q_index for j in robot.topology.joints if j.type is JointType.HINGE and not limited(robot, j.name)]
    q[:, endless] *= 0.49
    return q


def limited(robot: Robot, joint: str) -> bool:
    return bool(np.isfinite(robot.limit_upper[robot.topology.joint_index(joint)]))


def scene(name: str, folder: Path) -> Scene:
    both, names, rng = pair(name, folder), ROBOTS[name], np.random.default_rng(5)
    robot = both.robot
    free = [v for j in robot.topology.free_joints for v in robot.topology.joints[j].v_indices]
    own = [v for v in range(robot.nv) if v not in free]
    q, posture = sampled(robot, 3), sampled(robot, 4)
    matrix = np.zeros((2, robot.nv))
    matrix[:, own] = rng.standard_normal((2, len(own)))
    neutral = np.zeros(robot.nq)
    for j in robot.topology.free_joints:
        neutral[robot.topology.joints[j].q_index + 3] = 1
    quaternion = rng.standard_normal((2, BATCH, 4))
    poses = np.concatenate([quaternion, rng.uniform(-1, 1, (2, BATCH, 3))], axis=-1)
    poses[..., :4] /= np.linalg.norm(quaternion, axis=-1, keepdims=True)
    moved = np.stack([np.asarray(robot.difference(neutral, x)) for x in q])
    fast, hard = rng.uniform(0.2, 3.0, robot.nv), rng.uniform(5.0, 20.0, robot.nv)
    fast[free] = hard[free] = np.inf
    dexterity = ManipulabilityTask(names.tip, both.model) if names.hinges else None
    given = {
        "frame": poses[0],
        "relative": poses[1],
        "com": rng.uniform(-1, 1, (BATCH, 3)),
        "posture": posture,
        "velocity": rng.uniform(-0.1, 0.1, (BATCH, robot.nv)),
        "previous": rng.uniform(-0.1, 0.1, (BATCH, robot.nv)),
        "line": rng.uniform(-1, 1, (BATCH, 2)),
        # Near enough to be met with the velocities that are allowed.
        "held": moved @ matrix[:1].T + rng.uniform(-1e-6, 1e-6, (BATCH, 1)),
        "matrix": np.broadcast_to(matrix, (BATCH, 2, robot.nv)),
        "neutral": np.broadcast_to(neutral, q.shape),
        "dexterity": np.array(
            [dexterity.compute_manipulability(pink_configuration(both, x)) if dexterity else 0.0 for x in q]
        ),
        "heavy": np.array([1.0] * ALONE + [0.0]),
    }
    return Scene(both, names, free, q, given, fast, hard)


def problem(at: Scene, given: Any) -> jaxik.Problem:
    """Of one element."""
    robot, names, heavy = at.both.robot, at.names, given["heavy"]
    tip, root = robot.frame(names.tip, kind="body"), robot.frame(names.root, kind="body")
    cost = {name: heavy * value for name, value in COST.items()}
    frame = jaxlie.SE3(given["frame"])
    relative = jaxlie.SE3(given["relative"])
    tasks: dict[str, Any] = {
        "frame": jaxik.FrameTask(tip, frame, cost["frame"] * POSITION, cost["frame"] * ORIENTATION, **OWN),
        "relative": jaxik.RelativeFrameTask(tip, root, relative, cost["relative"], cost["relative"], **OWN),
        "com": jaxik.ComTask(given["com"], cost["com"], subtree=names.moving, **OWN),
        "posture": jaxik.PostureTask(given["posture"], cost["posture"], **OWN),
        "damping": jaxik.DampingTask(cost["damping"]),
        "smooth": jaxik.LowAccelerationTask(cost["smooth"]),
        "velocity": jaxik.JointVelocityTask(given["velocity"], 0.3),
        "coupling": jaxik.JointCouplingTask(names.joints, np.array([1.0, -2.0]), cost=cost["coupling"], **OWN),
        "line": jaxik.LinearHolonomicTask(given["matrix"], given["line"], given["neutral"], cost["line"], **OWN),
    }
    if names.hinges:
        tasks["dexterity"] = jaxik.ManipulabilityTask(tip, given["dexterity"] + RATE, cost=cost["dexterity"], **OWN)
    held = jaxik.LinearHolonomicTask(given["matrix"][:1], given["held"], given["neutral"], gain=0.5)
    limits: list[Any] = [jaxik.ConfigurationLimit(0.5), jaxik.VelocityLimit(at.fast), jaxik.AccelerationLimit(at.hard)]
    if at.free:
        limits.append(jaxik.FreeJointVelocityLimit(max_linear_velocity=[0.3, 0.4, 0.5], max_angular_velocity=0.6))
    return jaxik.Problem(robot, tasks, tuple(limits), {"held": held})


def ours(at: Scene) -> tuple[Any, jaxik.StepResult]:
    @partial(jax.jit, compiler_options=UNOPTIMISED)
    @jax.vmap
    def both(q: Any, given: Any, dt: Any, damping: Any) -> Any:
        asked, more = problem(at, given), {"damping": damping, "previous_velocity": given["previous"]}
        return jaxik.linearize(asked, q, dt, **more), jaxik.step(asked, q, dt, **more)

    return jax.device_get(both(at.q, at.given, DT, DAMPING))


def theirs(at: Scene, i: int) -> tuple[pink.Configuration, list[Any], dict[str, Any]]:
    """The configuration, the tasks, and limits and constraints of pink for one element."""
    model, names, given = at.both.model, at.names, {name: value[i] for name, value in at.given.items()}
    configuration, heavy = pink_configuration(at.both, at.q[i]), float(given["heavy"])
    cost = {name: heavy * value for name, value in COST.items()}

    def rates(ours: np.ndarray) -> np.ndarray:
        found = np.zeros(model.nv)
        found[at.both.order] = ours
        return found

    frame = pink.tasks.FrameTask(names.tip, cost["frame"] * POSITION, cost["frame"] * ORIENTATION, **OWN)
    frame.set_target(se3(given["frame"]))
    relative = pink.tasks.RelativeFrameTask(names.tip, names.root, cost["relative"], cost["relative"], **OWN)
    relative.set_target(se3(given["relative"]))
    com = pink.tasks.ComTask(cost["com"], **OWN)
    com.set_target(given["com"])
    posture = pink.tasks.PostureTask(cost["posture"], **OWN)
    posture.set_target(pink_configuration(at.both, given["posture"]).q)
    smooth = pink.tasks.LowAccelerationTask(cost["smooth"])
    # It wants the base's rates left out.
    smooth.set_last_integration(rates(given["previous"])[len(at.free) :], DT[i])
    velocity = pink.tasks.JointVelocityTask(0.3)
    # The sign that drives the way that is asked for.
    velocity.set_target(-rates(given["velocity"])[len(at.free) :], DT[i])
    coupling = pink.tasks.JointCouplingTask(names.joints, [1.0, -2.0], cost["coupling"], configuration, **OWN)
    neutral, matrix = pinocchio.neutral(model), np.zeros((2, model.nv))
    matrix[:, at.both.order] = given["matrix"]
    line = pink.tasks.LinearHolonomicTask(matrix, given["line"], neutral, [cost["line"]] * 2, **OWN)
    tasks = [frame, relative, com, posture, pink.tasks.DampingTask(cost["damping"]), smooth, velocity, coupling, line]
    if names.hinges:
        tasks.append(ManipulabilityTask(names.tip, model, cost["dexterity"], manipulability_rate=RATE, **OWN))
    held = pink.tasks.LinearHolonomicTask(matrix[:1], given["held"], neutral, gain=0.5)
    fast, hard = (np.where(np.isfinite(x), x, 0.0) for x in (rates(at.fast), rates(at.hard)))
    accelerating = pink.limits.AccelerationLimit(model, hard)
    accelerating.set_last_integration(rates(given["previous"]), DT[i])
    limits = [pink.limits.ConfigurationLimit(model), pink.limits.VelocityLimit(model, fast), accelerating]
    if at.free:
        limits.append(FloatingBaseVelocityLimit(model, None, [0.3, 0.4, 0.5], 0.6))
    return configuration, tasks, {"limits": limits, "constraints": [held], "damping": DAMPING[i]}


def se3(pose: np.ndarray) -> Any:
    return pinocchio.XYZQUATToSE3(np.concatenate([pose[4:], pose[1:4], pose[:1]]))


@exhaustive
@pytest.mark.parametrize("name", ROBOTS)
def test_a_step_is_that_of_pink(name: str, tmp_path: Path) -> None:
    at = scene(name, tmp_path)
    model, result = ours(at)
    matrix, most = jax.device_get(model.inequalities())
    np.testing.assert_array_equal(result.status, Status.CONVERGED)
    for i in range(BATCH):
        configuration, tasks, more = theirs(at, i)
        want = pink.build_ik(configuration, tasks, DT[i], **more)
        turn = in_our_tangent(at.both, at.q[i], (np.eye(at.both.model.nv), None))[0]
        scale = max(1.0, np.abs(want.P).max())
        np.testing.assert_allclose(model.H[i], turn.T @ want.P @ turn, rtol=0, atol=1e-9 * scale)
        np.testing.assert_allclose(model.c[i], want.q @ turn, rtol=0, atol=1e-9 * scale)
        np.testing.assert_allclose(model.A[i], want.A @ turn, rtol=0, atol=1e-9)
        np.testing.assert_allclose(model.b[i], want.b, rtol=0, atol=1e-9)
        agree(tightest(matrix[i], most[i]), tightest(want.G @ turn, want.h))
        velocity = pink.solve_ik(configuration, tasks, DT[i], "quadprog", safety_break=False, **more)
        np.testing.assert_allclose(result.velocity[i], turn.T @ velocity, rtol=0, atol=1e-7, err_msg=f"element {i}")


def test_a_joint_velocity_drives_the_way_that_it_is_asked_to(tmp_path: Path) -> None:
    """pink's drives backwards; a problem may have velocity tasks alone."""
    both = pair("arm", tmp_path)
    q, asked = sampled(both.robot, 3)[0], np.linspace(-0.1, 0.2, both.robot.nv)
    tasks = {"go": jaxik.JointVelocityTask(asked), "smooth": jaxik.LowAccelerationTask(2.0)}
    problem = jaxik.Problem(both.robot, tasks, limits=())
    result = jaxik.step(problem, q, 0.02, damping=0.0, previous_velocity=asked - 0.5)
    np.testing.assert_allclose(result.velocity, (asked + 4 * (asked - 0.5)) / 5, rtol=0, atol=1e-12)
    assert result.status == Status.CONVERGED and result.residuals == {}
    task = pink.tasks.JointVelocityTask(1.0)
    task.set_target(asked, 0.02)
    theirs = pink.solve_ik(pink_configuration(both, q), [task], 0.02, "quadprog", limits=[])
    np.testing.assert_allclose(theirs, -asked, rtol=0, atol=1e-9)
