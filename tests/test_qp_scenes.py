"""Quadratic programs as scenes make them, with limits and constraints, against DAQP, quadprog and the KKT conditions.

Speeds and ceilings are drawn so that constraints can be kept in some elements and not in others.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import qp_oracle
from limit_rows import UNOPTIMISED, mixed
from tables import exhaustive

import jaxik
from jaxik import (
    ComTask,
    ConfigurationLimit,
    FrameTask,
    FreeJointVelocityLimit,
    JointCouplingTask,
    PositionLimit,
    PostureTask,
    Problem,
    QPSolution,
    RelativeFrameTask,
    Status,
    VelocityLimit,
)
from jaxik.qp_solver import Program
from jaxik.robot.robot import Robot

BATCH, DT, GAIN = 40, 0.02, 0.7
UP = np.array([0.2, -0.1, 1.0])


class Drawn(NamedTuple):
    """What differs from element to element.

    Attributes:
      q, goal: configurations (*batch, nq); targets are what the robot sees at the goal.
      fast: velocity limits (*batch, 1) [rad/s, m/s].
      room: of each half space (*batch,) [m], beyond where its frame is.
      rest: cost of the posture (*batch, 1); zero in a quarter.
    """

    q: Any
    goal: Any
    fast: Any
    room: Any
    rest: Any


def below(robot: Robot, at: Drawn, name: str) -> PositionLimit:
    frame = robot.frame(name)
    offset = robot.frame_pose(at.q, frame).translation() @ UP / np.linalg.norm(UP) + at.room
    return PositionLimit(frame, UP, offset)


def towards(robot: Robot, at: Drawn, name: str, **costs: Any) -> FrameTask:
    return FrameTask(robot.frame(name), robot.frame_pose(at.goal, name), gain=GAIN, **costs)


def panda(robot: Robot, at: Drawn) -> Problem:
    """The tip's point moves as it must, below a ceiling; in some elements damping alone bends what is left free."""
    return Problem(
        robot,
        {"turn": towards(robot, at, "tcp", position_cost=None), "rest": PostureTask(at.goal, at.rest)},
        (ConfigurationLimit(), VelocityLimit(at.fast), below(robot, at, "flange")),
        {"tip": towards(robot, at, "tcp", orientation_cost=None)},
    )


def arms(robot: Robot, at: Drawn) -> Problem:
    """Two hands on one object."""
    left, right = robot.frame("left_tcp"), robot.frame("right_tcp")
    held = robot.frame_pose(at.goal, right).inverse() @ robot.frame_pose(at.goal, left)
    return Problem(
        robot,
        {"left": towards(robot, at, "left_tcp"), "rest": PostureTask(at.q, at.rest)},
        (ConfigurationLimit(), VelocityLimit(at.fast), below(robot, at, "left_tcp"), below(robot, at, "right_tcp")),
        {"grasp": RelativeFrameTask(left, right, held, gain=GAIN)},
    )


def humanoid(robot: Robot, at: Drawn) -> Problem:
    """Both feet where they are, and the centre of mass over them."""
    hands = {name: towards(robot, at, name) for name in ("left_hand", "right_hand")}
    feet = {name: FrameTask(robot.frame(name), robot.frame_pose(at.q, name)) for name in ("left_foot", "right_foot")}
    return Problem(
        robot,
        {**hands, "rest": PostureTask(at.goal, at.rest)},
        (
            ConfigurationLimit(),
            VelocityLimit(at.fast),
            FreeJointVelocityLimit(max_linear_velocity=at.fast, max_angular_velocity=at.fast),
            below(robot, at, "left_hand"),
            below(robot, at, "head"),
        ),
        {**feet, "com": ComTask(robot.center_of_mass(at.goal), [1.0, 1.0, 0.0], gain=GAIN)},
    )


def joints(robot: Robot, at: Drawn) -> Problem:
    """A ball, a slide, a free joint and hinges; the constraints say everything twice, and not always the same."""
    once, coefficients = towards(robot, at, "tip"), np.array([1.0, -2.0])
    there = at.goal[:, [robot.q_indices(joint)[0] for joint in ("hinge", "slide")]] @ coefficients
    apart = np.where(np.arange(BATCH) % 8 == 0, 0.1, 0.0)
    return Problem(
        robot,
        {"base": towards(robot, at, "base"), "rest": PostureTask(at.goal, at.rest)},
        (
            ConfigurationLimit(),
            VelocityLimit(at.fast),
            FreeJointVelocityLimit(max_linear_velocity=at.fast),
            below(robot, at, "upper"),
        ),
        {
            "once": once,
            "twice": dataclasses.replace(once, position_cost=2.0, orientation_cost=0.1),
            "coupling": JointCouplingTask(("hinge", "slide"), coefficients, there, gain=GAIN),
            "double": JointCouplingTask(("hinge", "slide"), 2 * coefficients, 2 * there + apart, gain=GAIN),
        },
    )


class Scene(NamedTuple):
    """A problem, and how far its goals are [rad or m]."""

    robot: Callable[[], Robot]
    problem: Callable[[Robot, Drawn], Problem]
    way: float


SCENES = {
    "panda": Scene(partial(jaxik.load_robot, "panda"), panda, 0.05),
    "dual arm": Scene(partial(jaxik.load_robot, "dual_arm"), arms, 0.05),
    "humanoid": Scene(partial(jaxik.load_robot, "humanoid"), humanoid, 0.03),
    "mixed": Scene(mixed, joints, 0.03),
}
# Of each kind of element at least so many.
ENOUGH = 4


def answers(name: str) -> tuple[Program, QPSolution]:
    robot, problem, way = SCENES[name].robot(), SCENES[name].problem, SCENES[name].way
    rng = np.random.default_rng(0)
    fast, room = 10 ** rng.uniform(-0.5, 2, (BATCH, 1)), rng.uniform(-0.01, 0.03, BATCH)
    rest = np.where(np.arange(BATCH)[:, None] % 4 == 0, 0.0, 0.1)
    about, ahead = np.array([[[0.02]], [[way]]]) * rng.normal(size=(2, BATCH, robot.nv))

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def solved(key: jax.Array, about: jax.Array, ahead: jax.Array, *given: jax.Array) -> tuple[Program, QPSolution]:
        # From a little outside the limits, some joints of them.
        q = robot.integrate(robot.sample(key, (BATCH,)), about)
        at = Drawn(q, robot.integrate(q, ahead), *given)
        model = jaxik.linearize(problem(robot, at), q, DT)
        program = Program(model.H, model.c, model.lower, model.upper, model.G, model.h, model.A, model.b)
        blocks = program._asdict()
        return program, jaxik.qp(blocks.pop("H"), blocks.pop("c"), **blocks)

    return jax.tree.map(np.array, solved(jax.random.key(0), about, ahead, fast, room, rest))


@exhaustive
@pytest.mark.parametrize("name", SCENES)
def test_programs_of_scenes_agree_with_daqp_and_quadprog(name: str) -> None:
    program, solution = answers(name)
    pressed, stiff = np.zeros(2, int), 0
    for i in range(BATCH):
        one, found = qp_oracle.element(program, i), qp_oracle.element(solution, i)
        plain = qp_oracle.without_repetition(one)
        others = [oracle(plain) for oracle in (qp_oracle.from_daqp, qp_oracle.from_quadprog)]
        if found.status == Status.INFEASIBLE:
            assert qp_oracle.proves_infeasible(one, found), i
            assert others == [None, None], i
            continue
        assert found.status == Status.CONVERGED, i
        assert found.kkt_residual < 1e-10 and qp_oracle.residual(one, found) < 1e-10, i
        conditioned = np.linalg.cond(one.H) < 1e6
        pressed += np.array([np.any(found.active.bounds), np.any(found.active.rows)])
        stiff += not conditioned
        for other in others:
            assert other is not None, i
            np.testing.assert_allclose(found.objective, other[1], atol=1e-12, err_msg=str(i))
            if conditioned:
                np.testing.assert_allclose(found.x, other[0], atol=1e-12, err_msg=str(i))
    ended = np.bincount(solution.status, minlength=len(Status))
    assert min(*pressed, stiff, ended[Status.CONVERGED] - stiff, ended[Status.INFEASIBLE]) >= ENOUGH
