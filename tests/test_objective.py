"""Objectives of tasks against mink itself, which runs here on the same models and configurations.

Cases are chosen where mink is right: rotation errors above the 1e-5 rad below which it takes its `jlog` for the
identity; balls at their posture, since its posture Jacobian is the identity for them too; the centre of mass of body
1's subtree, which is all that it knows; no welds, whose rotation rows are MuJoCo's quaternion rows there.
"""

import dataclasses
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mink
import models
import mujoco
import numpy as np
import oracle
import own_tasks
import pytest
import random_trees
from tables import mostly_exhaustive

import jaxik
from jaxik.core.errors import JaxikWarning
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.topology import JointType
from jaxik.robot.robot import Robot

UNOPTIMISED = {"xla_backend_optimization_level": 0}
ROBOTS = ("mjlab_g1", "aloha", "pendula", "robotiq_2f85", "gym_hil_panda", "shadow_hand", 3)
WITH_CLOSURES = ("robotiq_2f85", "gym_hil_panda")
BATCH = 3
DT = 0.02
GAINS = {"gain": 0.7, "lm_damping": 0.3}
POSITION, ORIENTATION = np.array([1.0, 2.0, 0.5]), np.array([0.3, 0.0, 1.5])

Case = tuple[Any, Any]  # a task of ours and the same of mink's


def posed(rng: np.random.Generator) -> np.ndarray:
    quaternion = rng.standard_normal(4)
    return np.concatenate([quaternion / np.linalg.norm(quaternion), rng.uniform(-1, 1, 3)])


def set_target(task: Any, target: Any) -> Any:
    task.set_target(target)
    return task


def frame_cases(model: mujoco.MjModel, robot: Robot, rng: np.random.Generator) -> dict[str, Case]:
    """Tasks on the last geom and the middle body, which mink takes by index as well."""
    tip, root = Frame("geom", model.ngeom - 1), Frame("body", model.nbody // 2)
    if robot.topology.frame_body(tip) in (0, root.index):
        tip = Frame("body", model.nbody - 1)
    costs = {"position_cost": POSITION, "orientation_cost": ORIENTATION}
    pose, relative, point, way = posed(rng), posed(rng), rng.uniform(-1, 1, 3), rng.standard_normal(3)
    axis = (1.0, 2.0, -2.0)
    own, other = (tip.index, tip.kind), (root.index, root.kind)
    return {
        "frame": (
            jaxik.FrameTask(tip, jaxlie.SE3(jnp.asarray(pose)), **costs, **GAINS),
            set_target(mink.FrameTask(*own, **costs, **GAINS), mink.SE3(pose)),
        ),
        "relative": (
            jaxik.RelativeFrameTask(tip, root, jaxlie.SE3(jnp.asarray(relative)), **costs, **GAINS),
            set_target(mink.RelativeFrameTask(*own, *other, **costs, **GAINS), mink.SE3(relative)),
        ),
        "look at": (
            jaxik.LookAtTask(tip, point, axis, cost=1.3, **GAINS),
            set_target(mink.LookAtTask(*own, axis, cost=1.3, **GAINS), point),
        ),
        "align": (
            jaxik.AxisAlignTask(tip, way, axis, cost=1.3, **GAINS),
            set_target(mink.AxisAlignTask(*own, axis, cost=1.3, **GAINS), way),
        ),
    }


def body_cases(model: mujoco.MjModel, robot: Robot, rng: np.random.Generator) -> dict[str, Case]:
    costs, point = rng.uniform(0.1, 2.0, model.nv), rng.uniform(-1, 1, 3)
    posture = random_trees.random_qpos(model, rng)
    for joint in robot.topology.joints:
        if joint.type is JointType.BALL:
            posture[list(joint.q_indices)] = [1.0, 0.0, 0.0, 0.0]
    cases: dict[str, Case] = {
        "posture": (
            jaxik.PostureTask(posture, cost=costs, **GAINS),
            set_target(mink.PostureTask(model, costs, **GAINS), posture),
        ),
        "damping": (jaxik.DampingTask(costs), mink.DampingTask(model, costs)),
        "kinetic energy": (jaxik.KineticEnergyTask(0.4), mink.KineticEnergyRegularizationTask(0.4)),
    }
    cases["kinetic energy"][1].set_dt(DT)
    if model.body_subtreemass[1] > 0:
        cases["centre of mass"] = (
            jaxik.ComTask(point, POSITION, subtree=1, **GAINS),
            set_target(mink.ComTask(POSITION, **GAINS), point),
        )
    return cases


def closure_cases(model: mujoco.MjModel, robot: Robot) -> dict[str, Case]:
    backwards, costs = list(range(model.neq))[::-1], np.linspace(0.5, 2.0, model.neq)
    return {
        "closures": (
            jaxik.EqualityConstraintTask(robot.equalities(backwards), costs, **GAINS),
            mink.EqualityConstraintTask(model, costs, backwards, **GAINS),
        )
    }


def configurations(model: mujoco.MjModel, robot: Robot) -> np.ndarray:
    rng = np.random.default_rng(5)
    qs = np.stack([random_trees.random_qpos(model, rng) for _ in range(BATCH)])
    for joint in robot.topology.joints:
        if joint.type is JointType.BALL:
            qs[0, list(joint.q_indices)] = [1.0, 0.0, 0.0, 0.0]
    return qs


@pytest.mark.parametrize("name", mostly_exhaustive(ROBOTS, ["robotiq_2f85"]))
def test_objectives_agree_with_mink(name: str | int) -> None:
    model = oracle.exact(random_trees.compiled(name) if isinstance(name, int) else models.reference_model(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxikWarning)
        robot = jaxik.load_robot(model)
    rng = np.random.default_rng(4)
    cases = {**frame_cases(model, robot, rng), **body_cases(model, robot, rng)}
    if name in WITH_CLOSURES:
        cases |= closure_cases(model, robot)
    tasks = {what: ours for what, (ours, _) in cases.items()}
    frames = [frame for task in tasks.values() for frame in task.frames]
    motion = jaxik.Motion(DT)

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    @jax.vmap
    def objectives(q: jax.Array) -> dict[str, jaxik.Objective]:
        kin = robot.kinematics(q, frames, [0, 1])
        return {
            what: task.objective(robot, kin, *([motion] if isinstance(task, jaxik.VelocityTask) else []))
            for what, task in tasks.items()
        }

    qs = configurations(model, robot)
    got = objectives(qs)
    x = rng.standard_normal(model.nv) * 0.01
    balls = any(joint.type is JointType.BALL for joint in robot.topology.joints)
    for i, q in enumerate(qs):
        configuration = mink.Configuration(model, q)
        for what, (_, theirs) in cases.items():
            if what == "posture" and balls and i:
                continue  # balls away from their posture, where mink's Jacobian is wrong
            want = theirs.compute_qp_objective(configuration)
            ours = jax.tree.map(lambda leaf, i=i: leaf[i], got[what])
            scale = max(1.0, np.abs(want.H).max())
            np.testing.assert_allclose(ours.H, want.H, atol=1e-9 * scale, err_msg=what)
            np.testing.assert_allclose(ours.c, want.c, atol=1e-9 * scale, err_msg=what)
            # mink's own value lacks the half.
            np.testing.assert_allclose(ours.value(x), x @ want.H @ x / 2 + want.c @ x, atol=1e-9 * scale, err_msg=what)


def test_batches_of_targets_are_mapped_and_float32_stays() -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    tip, q = robot.frame("tip"), robot.q_home.astype(np.float32)
    task = jaxik.FrameTask(tip, jnp.zeros(3), orientation_cost=None, gain=0.5)

    @jax.jit
    def objective(task: jaxik.FrameTask, q: jax.Array) -> jaxik.Objective:
        return task.objective(robot, robot.kinematics(q, task.frames))

    targets = jaxik.FrameTask(tip, jnp.asarray([[1.0, 0.2, 0.0], [0.5, 0.5, 0.0]]), orientation_cost=None).target
    poses = jax.vmap(lambda target: objective(dataclasses.replace(task, target=target), q))(targets)
    assert {leaf.dtype for leaf in poses} == {np.dtype(np.float32)}
    for i in range(2):
        alone = objective(dataclasses.replace(task, target=jaxlie.SE3(targets.wxyz_xyz[i])), q)
        np.testing.assert_allclose(poses.c[i], alone.c, atol=1e-6)


def test_the_best_displacement_meets_the_task_to_first_order() -> None:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    q, tip = robot.configuration({"first": 0.1, "second": 0.8}), robot.frame("tip")
    there = robot.frame_pose(robot.configuration({"first": 0.1001, "second": 0.7998}), tip)
    task = jaxik.FrameTask(tip, there.translation(), orientation_cost=None, gain=0.5)
    objective = jax.jit(lambda q: task.objective(robot, robot.kinematics(q, task.frames)))(q)
    best = np.linalg.lstsq(objective.H, -objective.c, rcond=1e-9)[0]
    np.testing.assert_allclose(best, [0.5e-4, -1e-4], atol=1e-7)  # half of the way: the gain
