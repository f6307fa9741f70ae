"""Velocity tasks and the mass matrix: rows, signs, what `solve` makes of them."""

import dataclasses
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import models
import mujoco
import numpy as np
import oracle
import own_tasks
import pytest
import random_trees
from tables import mostly_exhaustive

import jaxik
from jaxik.core.errors import JaxikError, JaxikWarning
from jaxik.kinematics.dynamics import mass_matrix
from jaxik.robot.robot import Robot

UNOPTIMISED = {"xla_backend_optimization_level": 0}
DT = 0.02


@cache
def mixed() -> Robot:
    """Free, ball, slide and hinge joints: the first six degrees of freedom are the free joint's."""
    return jaxik.load_robot(own_tasks.MIXED)


@cache
def velocity() -> np.ndarray:
    return np.linspace(-1.0, 2.0, mixed().nv)


# --- mass matrix ---------------------------------------------------------------------------------------------------

BODIES = (0, 1, 2, "mjlab_g1", "pendula", "robotiq_2f85", "shadow_hand")


def with_motors(name: str | int) -> mujoco.MjModel:
    model = oracle.exact(random_trees.compiled(name) if isinstance(name, int) else models.reference_model(name))
    model.dof_armature[:] += np.linspace(0.0, 0.2, model.nv)
    return model


def inertia(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """C MuJoCo's mass matrix, column by column: the arguments of mj_fullM differ between its versions."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    columns = np.zeros((model.nv, model.nv))
    for column, unit in zip(columns, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, column, unit)
    return columns.T


@pytest.mark.parametrize("name", mostly_exhaustive(BODIES, [0, "robotiq_2f85"]))
def test_mass_matrix_agrees_with_c_mujoco(name: str | int) -> None:
    model = with_motors(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxikWarning)
        robot = jaxik.load_robot(model)
    rng = np.random.default_rng(2)
    qs = np.stack([random_trees.random_qpos(model, rng) for _ in range(3)])
    got = robot.mass_matrix(qs)
    want = np.stack([inertia(model, q) for q in qs])
    np.testing.assert_allclose(got, want, atol=1e-12 * max(1.0, np.abs(want).max()))


def test_mass_matrices_of_other_robots_are_their_own() -> None:
    robot, q = mixed(), mixed().q_home
    heavy = jnp.asarray([1.0, 2.0, 5.0])
    robots = dataclasses.replace(
        robot,
        body_mass=heavy[:, None] * robot.body_mass,
        body_inertia=heavy[:, None, None, None] * robot.body_inertia,
        armature=heavy[:, None] * robot.armature,
    )
    want = heavy[:, None, None] * robot.mass_matrix(q)
    np.testing.assert_allclose(robots.mass_matrix(q), want, atol=1e-12)


def test_mass_matrix_needs_every_joint() -> None:
    kin = mixed().kinematics(mixed().q_home, ["elsewhere"])
    with pytest.raises(JaxikError, match="list 0, the whole robot"):
        mass_matrix(mixed(), kin)


# --- rows ----------------------------------------------------------------------------------------------------------

MOTION = jaxik.Motion(DT, np.arange(mixed().nv) / 7)
FIXED = np.diag([0.0] * 6 + [1.0] * (mixed().nv - 6))
EYE = np.eye(mixed().nv)

ROWS: dict[str, tuple[jaxik.VelocityTask, jaxik.Motion, np.ndarray, np.ndarray]] = {
    "damping": (jaxik.DampingTask(), MOTION, FIXED, np.zeros(mixed().nv)),
    "damping of the base": (jaxik.DampingTask(free_joints=True), MOTION, EYE, np.zeros(mixed().nv)),
    "joint velocity": (jaxik.JointVelocityTask(velocity()), MOTION, FIXED, FIXED @ velocity() * DT),
    "whole velocity": (jaxik.JointVelocityTask(velocity(), free_joints=True), MOTION, EYE, velocity() * DT),
    "low acceleration": (jaxik.LowAccelerationTask(), MOTION, FIXED, FIXED @ np.arange(mixed().nv) / 7 * DT),
    "from rest": (jaxik.LowAccelerationTask(free_joints=True), jaxik.Motion(DT), EYE, np.zeros(mixed().nv)),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_are_those_of_the_definition(case: str) -> None:
    task, motion, matrix, wanted = ROWS[case]
    robot = mixed()
    kin = robot.kinematics(robot.q_home)
    got_matrix, got_wanted = task.rows(robot, kin, motion)
    np.testing.assert_allclose(got_matrix, matrix, atol=1e-15)
    np.testing.assert_allclose(got_wanted, wanted, atol=1e-15)
    costs = np.linspace(0.5, 2.0, robot.nv)
    objective = dataclasses.replace(task, cost=costs).objective(robot, kin, motion)
    np.testing.assert_allclose(objective.H, matrix.T @ np.diag(costs**2) @ matrix, atol=1e-14)
    np.testing.assert_allclose(objective.c, -matrix.T @ (costs**2 * wanted), atol=1e-14)


def test_joint_velocity_drives_forwards() -> None:
    robot = mixed()
    task = jaxik.JointVelocityTask(velocity(), cost=3.0, free_joints=True)
    objective = task.objective(robot, robot.kinematics(robot.q_home), jaxik.Motion(DT))
    best = np.linalg.solve(objective.H, -objective.c)
    np.testing.assert_allclose(best / DT, velocity(), atol=1e-12)  # pink's task gives the negative
    assert objective.value(best) < objective.value(0 * best) < objective.value(-best)


def test_kinetic_energy_is_its_objective() -> None:
    robot = mixed()
    task, motion = jaxik.KineticEnergyTask(cost=0.3), jaxik.Motion(DT)
    q = robot.sample(jax.random.key(0))

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def both(q: jax.Array) -> Any:
        kin = robot.kinematics(q, task.frames, task.subtrees)
        return task.objective(robot, kin, motion), task.rows(robot, kin, motion)

    objective, (matrix, wanted) = both(q)
    model = mujoco.MjModel.from_xml_string(own_tasks.MIXED)
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, velocity()
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(objective.value(velocity() * DT), 0.3 * data.energy[1], rtol=1e-12)
    np.testing.assert_array_equal(objective.c, 0)
    weighted = task.weights() * matrix
    np.testing.assert_allclose(weighted.T @ weighted, objective.H, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(wanted, 0)


def test_a_batch_of_motions_is_mapped() -> None:
    robot = mixed()
    kin = robot.kinematics(robot.q_home)
    speeds = jnp.asarray([[1.0], [2.0]]) * velocity()
    task = jaxik.JointVelocityTask(velocity())
    objective = jax.vmap(lambda v: dataclasses.replace(task, velocity=v).objective(robot, kin, MOTION))(speeds)
    np.testing.assert_allclose(objective.c[1], 2 * objective.c[0], atol=1e-14)


# --- in problems ---------------------------------------------------------------------------------------------------


def planar() -> tuple[Robot, jaxik.FrameTask]:
    robot = jaxik.load_robot(own_tasks.PLANAR)
    tip = robot.frame("tip")
    target = robot.frame_pose(robot.configuration({"first": 0.2, "second": 0.9}), tip)
    return robot, jaxik.FrameTask(tip, target.translation(), orientation_cost=None)


def test_solve_leaves_velocity_tasks_out_and_says_so_once() -> None:
    robot, tip = planar()
    extra = {"slow": jaxik.DampingTask(cost=1e3), "light": jaxik.KineticEnergyTask()}
    start = robot.configuration({"second": 0.4})
    with pytest.warns(JaxikWarning, match="solve leaves out light, slow") as said:
        got = jaxik.solve(jaxik.Problem(robot, {"tip": tip, **extra}), start)
    assert len(said) == 1
    want = jaxik.solve(jaxik.Problem(robot, {"tip": tip}), start)
    np.testing.assert_array_equal(got.q, want.q)
    assert set(got.residuals) == {"tip"}
    assert got.converged


NV = mixed().nv
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "velocity tasks alone": (
        lambda: jaxik.solve(jaxik.Problem(mixed(), {"slow": jaxik.DampingTask()})),
        r"velocity tasks alone \(slow\)",
    ),
    "as a constraint": (
        lambda: jaxik.Problem(planar()[0], {"tip": planar()[1]}, constraints={"slow": jaxik.DampingTask()}),
        "is a Task such as FrameTask, not DampingTask",
    ),
    "cost of another robot": (
        lambda: jaxik.Problem(mixed(), {"slow": jaxik.DampingTask(cost=np.ones(3))}),
        rf"task 'slow': cost has shape .* nv = {NV}, a number, or \(\*batch, 1\); not \(3,\)",
    ),
    "velocity of another robot": (
        lambda: jaxik.Problem(mixed(), {"go": jaxik.JointVelocityTask(np.ones(3))}),
        rf"task 'go': velocity has shape \(\*batch, nv\) with nv = {NV}; not \(3,\)",
    ),
    "negative cost": (lambda: jaxik.KineticEnergyTask(cost=-1.0), "must not be negative"),
    "negative costs": (lambda: jaxik.LowAccelerationTask(cost=[-1.0]), "must not be negative"),
    "priority that is no number": (lambda: jaxik.DampingTask(priority="low"), "priority is an int"),  # type: ignore[arg-type]
    "priority above the highest": (lambda: jaxik.LowAccelerationTask(priority=-1), "priority is an int, .* not -1"),
    "priority of an energy": (lambda: jaxik.KineticEnergyTask(priority=-1), "priority is an int, .* not -1"),
    "priority by yes and no": (lambda: jaxik.KineticEnergyTask(priority=True), "priority is an int, .* not True"),
    "no duration": (lambda: jaxik.Motion(0.0), "dt is a positive duration"),
    "text for a velocity": (lambda: jaxik.JointVelocityTask("fast"), "velocity is a number or an array"),
    "rows not written": (
        lambda: jaxik.VelocityTask().rows(mixed(), None, MOTION),  # type: ignore[arg-type]
        "has to define rows",
    ),
    "kinematics of a batch": (
        lambda: mixed().kinematics(np.zeros((2, mixed().nq))),
        r"one configuration \(nq,\), not of a batch \(2,\)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    make, said = MISTAKES[mistake]
    with pytest.raises((JaxikError, TypeError), match=said):
        make()
