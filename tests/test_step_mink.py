"""`step` and `linearize` against mink's `build_ik` and `solve_ik`, which run here on the same models.

Cases are chosen where mink is right, as in `test_objective`; balls have no cost in the posture task, since mink's
Jacobian of it is the identity for them too.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jaxlie
import mink
import models
import mujoco
import numpy as np
import oracle
import own_tasks
import pytest
import random_trees
from limit_rows import BUNDLED, UNOPTIMISED, agree
from tables import mostly_exhaustive

import jaxik
from jaxik import Status
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.topology import JointType
from jaxik.robot.robot import Robot

BATCH = 4
MASKED = slice(2, 4)  # elements in which some degrees of freedom are frozen
DT, DAMPING = np.array([0.02, 0.005, 0.01, 0.1]), np.array([1e-6, 1e-3, 1e-2, 1e-6])
GAIN, LM, POSITION, ORIENTATION = 0.7, 0.3, np.array([1.0, 2.0, 0.5]), np.array([0.3, 0.0, 1.5])
CLOSURES = "robotiq_2f85"
ROBOTS = ("panda", "humanoid", "mobile_manipulator", "mixed", "tree", CLOSURES)
# quadprog takes no rows that depend on each other, as planar loops have them; daqp needs its tolerances tightened.
TIGHT = {"primal_tol": 1e-13, "dual_tol": 1e-13}


class Scene(NamedTuple):
    """A robot in both libraries, and what is asked of it in each element."""

    model: mujoco.MjModel
    robot: Robot
    q: np.ndarray
    targets: dict[str, np.ndarray]
    held: list[int]
    fast: dict[str, np.ndarray]


def mujoco_model(name: str) -> mujoco.MjModel:
    if name == CLOSURES:
        return oracle.exact(models.reference_model(name))
    if name == "tree":
        return oracle.exact(random_trees.compiled(1))
    if name == "mixed":
        return mujoco.MjModel.from_xml_string(own_tasks.MIXED)
    return mujoco.MjModel.from_xml_path(str(BUNDLED / f"{name}.xml"))


def poses(rng: np.random.Generator) -> np.ndarray:
    quaternions = rng.standard_normal((BATCH, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    return np.concatenate([quaternions, rng.uniform(-1, 1, (BATCH, 3))], axis=1)


@cache
def scene(name: str) -> Scene:
    model = mujoco_model(name)
    robot, rng = jaxik.load_robot(model), np.random.default_rng(3)
    joints = robot.topology.joints
    if name == CLOSURES:  # near enough to be closed with the velocities that are allowed
        q = np.clip(model.qpos0 + rng.uniform(-1e-3, 1e-3, (BATCH, model.nq)), robot.limit_lower, robot.limit_upper)
    else:
        q = np.stack([random_trees.random_qpos(model, rng) for _ in range(BATCH)])
    scalar = [joint.v_index for joint in joints if joint.type in (JointType.HINGE, JointType.SLIDE)]
    targets = {
        "frame": poses(rng),
        "relative": poses(rng),
        "com": rng.uniform(-1, 1, (BATCH, 3)),
        "posture": np.stack([random_trees.random_qpos(model, rng) for _ in range(BATCH)]),
        # Near enough to be met with the velocities that are allowed.
        "held": np.stack([mink.Configuration(model, x).data.subtree_com[1] for x in q])
        + rng.uniform(-1e-6, 1e-6, (BATCH, 3)),
    }
    fast = {j.name: rng.uniform(0.5, 3.0, j.type.nv) for j in joints if j.type is not JointType.FREE and j.name}
    # What closes a loop is not free to be frozen.
    held = [] if name == CLOSURES else sorted(scalar[:: max(len(scalar) // 2, 2)])
    return Scene(model, robot, q, targets, held, fast)


def frames(at: Scene) -> tuple[Frame, Frame]:
    """The last geom and a body before it, which mink takes by index as well."""
    tip, root = Frame("geom", at.model.ngeom - 1), Frame("body", at.model.nbody // 2)
    if not at.model.ngeom or at.robot.topology.frame_body(tip) in (0, root.index):
        tip = Frame("body", at.model.nbody - 1)
    return tip, root


def posture_costs(at: Scene) -> np.ndarray:
    costs = np.linspace(0.2, 1.0, at.model.nv)
    for joint in at.robot.topology.joints:
        if joint.type is JointType.BALL:
            costs[list(joint.v_indices)] = 0
    return costs


def problem(at: Scene, name: str, targets: Any, mask: Any) -> jaxik.Problem:
    tip, root = frames(at)
    own = {"gain": GAIN, "lm_damping": LM}
    tasks = {
        "frame": jaxik.FrameTask(tip, jaxlie.SE3(targets["frame"]), POSITION, ORIENTATION, **own),
        "relative": jaxik.RelativeFrameTask(tip, root, jaxlie.SE3(targets["relative"]), 0.4, 0.2, **own),
        "com": jaxik.ComTask(targets["com"], POSITION, subtree=1, **own),
        "posture": jaxik.PostureTask(targets["posture"], posture_costs(at), **own),
        "damping": jaxik.DampingTask(0.1),
        "energy": jaxik.KineticEnergyTask(1e-5),
    }
    if name == CLOSURES:
        constraints: Any = {"closures": jaxik.EqualityConstraintTask(at.robot.equalities(), 0.3, gain=0.01)}
    else:
        constraints = {"held": jaxik.ComTask(targets["held"], [0.3, 2.0, 1.0], subtree=1, gain=0.5)}
    limits: list[Any] = [jaxik.ConfigurationLimit(), jaxik.VelocityLimit(at.fast)]
    for j in at.robot.topology.free_joints:
        limits.append(
            jaxik.FreeJointVelocityLimit(
                at.robot.topology.joints[j].name, max_linear_velocity=0.7, max_angular_velocity=0.9
            )
        )
    return jaxik.Problem(at.robot, tasks, tuple(limits), constraints, mask)


def ours(at: Scene, name: str) -> tuple[Any, Any]:
    mask = np.ones((BATCH, at.model.nv), bool)
    mask[MASKED, at.held] = False

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def both(q: Any, targets: Any, mask: Any, dt: Any, damping: Any) -> Any:
        asked = problem(at, name, targets, mask)
        return jaxik.linearize(asked, q, dt, damping=damping), jaxik.step(asked, q, dt, damping=damping)

    return jax.device_get(both(at.q, at.targets, mask, DT, DAMPING))


def theirs(at: Scene, name: str, i: int) -> tuple[mink.Configuration, list[Any], dict[str, Any]]:
    """The configuration, the tasks, and limits and constraints of mink for one element."""
    configuration = mink.Configuration(at.model, at.q[i])
    tip, root = frames(at)
    own = {"gain": GAIN, "lm_damping": LM}
    frame = mink.FrameTask(tip.index, tip.kind, POSITION, ORIENTATION, **own)
    frame.set_target(mink.SE3(at.targets["frame"][i]))
    relative = mink.RelativeFrameTask(tip.index, tip.kind, root.index, root.kind, 0.4, 0.2, **own)
    relative.set_target(mink.SE3(at.targets["relative"][i]))
    com = mink.ComTask(POSITION, **own)
    com.set_target(at.targets["com"][i])
    posture = mink.PostureTask(at.model, posture_costs(at), **own)
    posture.set_target(at.targets["posture"][i])
    energy = mink.KineticEnergyRegularizationTask(1e-5)
    energy.set_dt(DT[i])
    if name == CLOSURES:
        constraints: list[Any] = [mink.EqualityConstraintTask(at.model, 0.3, gain=0.01)]
    else:
        held = mink.ComTask([0.3, 2.0, 1.0], gain=0.5)
        held.set_target(at.targets["held"][i])
        constraints = [held]
    if at.held and i >= MASKED.start:
        constraints.append(mink.DofFreezingTask(at.model, at.held))
    limits: list[Any] = [mink.ConfigurationLimit(at.model), mink.VelocityLimit(at.model, at.fast)]
    for j in at.robot.topology.free_joints:
        limits.append(mink.FreeJointVelocityLimit(at.model, 0.7, 0.9, at.robot.topology.joints[j].name))
    tasks = [frame, relative, com, posture, mink.DampingTask(at.model, 0.1), energy]
    return configuration, tasks, {"limits": limits, "constraints": constraints}


def tightest(matrix: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of rows that are the same, as from several limits of one joint, the one that counts."""
    kept: dict[bytes, tuple[np.ndarray, float]] = {}
    for row, h in zip(matrix, most, strict=True):
        if row.any() and np.isfinite(h):
            key = (np.round(row, 9) + 0.0).tobytes()
            kept[key] = (row, min(h, kept[key][1]) if key in kept else h)
    rows, rights = zip(*kept.values(), strict=True)
    return np.stack(rows), np.asarray(rights)


@pytest.mark.parametrize("name", mostly_exhaustive(ROBOTS, ["mixed"]))
def test_a_step_is_that_of_mink(name: str) -> None:
    at = scene(name)
    model, result = ours(at, name)
    matrix, most = jax.device_get(model.inequalities())
    np.testing.assert_array_equal(result.status, Status.CONVERGED)
    bound = stopped = 0
    for i in range(BATCH):
        configuration, tasks, more = theirs(at, name, i)
        want = mink.build_ik(configuration, tasks, DT[i], DAMPING[i], **more)
        scale = max(1.0, np.abs(want.P).max())
        np.testing.assert_allclose(model.H[i], want.P, rtol=0, atol=1e-9 * scale)
        np.testing.assert_allclose(model.c[i], want.q, rtol=0, atol=1e-9 * scale)
        rows = model.A.shape[1]
        np.testing.assert_allclose(model.A[i], want.A[:rows], rtol=0, atol=1e-9)
        np.testing.assert_allclose(model.b[i], want.b[:rows], rtol=0, atol=1e-9)
        if i < MASKED.start or not at.held:
            agree(tightest(matrix[i], most[i]), tightest(want.G, want.h))
        else:
            np.testing.assert_array_equal(np.stack([model.lower, model.upper])[:, i, at.held], 0)
            np.testing.assert_array_equal(result.velocity[i, at.held], 0)
        solver, options = ("daqp", TIGHT) if name == CLOSURES else ("quadprog", {})
        velocity = mink.solve_ik(configuration, tasks, DT[i], solver, DAMPING[i], **more, **options)
        np.testing.assert_allclose(result.qp.x[i] / DT[i], velocity, rtol=0, atol=1e-7, err_msg=f"element {i}")
        bound += np.count_nonzero(result.qp.active.bounds[i]) - len(at.held) * (i >= MASKED.start)
        configuration.integrate_inplace(velocity, DT[i])
        same = np.ones(at.model.nv, bool)
        for j in at.robot.topology.ball_joints:
            joint, limit = at.robot.topology.joints[j], float(at.robot.limit_upper[j])
            if angle(configuration.q[list(joint.q_indices)]) > limit:
                # It turns across the axis of its angle, which adds to that: ours stops, mink's is outside.
                assert angle(result.q[i, list(joint.q_indices)]) == pytest.approx(limit, abs=1e-9)
                same[list(joint.v_indices)] = False
                stopped += 1
        np.testing.assert_allclose(result.velocity[i, same], velocity[same], rtol=0, atol=1e-7, err_msg=f"element {i}")
        moved = np.zeros(at.model.nv)
        mujoco.mj_differentiatePos(at.model, moved, 1.0, configuration.q, result.q[i])
        np.testing.assert_allclose(moved[same], 0, rtol=0, atol=1e-8)
    assert bound > 0  # limits were in the way
    assert stopped or name != "tree"


def angle(quaternion: np.ndarray) -> float:
    return float(2 * np.arctan2(np.linalg.norm(quaternion[1:]), abs(quaternion[0])))
