"""Derivatives by what only some problems hold: relations between joints, wheels, loops that are tasks, and motions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import own_tasks
import pytest
from derivatives import Case, check_solve, check_step, linkage, near, off_limits
from tables import exhaustive
from test_constraints import FOUR_BAR

import jaxik
from jaxik import (
    ConfigurationLimit,
    EqualityConstraintTask,
    FrameTask,
    FreeJointVelocityLimit,
    JointCouplingTask,
    JointVelocityTask,
    KineticEnergyTask,
    LinearHolonomicTask,
    OmniwheelTask,
    PostureTask,
    Problem,
    RollingTask,
    VelocityLimit,
)

COUNT = 3


def wheels() -> Problem:
    """Relations between joints, wheels and a posture beyond a limit, none of which has what it asks for."""
    robot = jaxik.load_robot(own_tasks.MIXED)
    q = near(robot, jnp.broadcast_to(robot.q_home, (COUNT, robot.nq)), 0.1)
    hub, floor = robot.frame("tip"), robot.frame("elsewhere")
    matrix = jax.random.normal(jax.random.key(5), (2, robot.nv))
    rest = q.at[:, robot.q_indices("hinge")[0]].set(2.0)
    return Problem(
        robot,
        {
            "coupled": JointCouplingTask(("slide", "hinge", "endless"), [1.0, -2.0, 0.5], 0.7, cost=0.8),
            "holonomic": LinearHolonomicTask(matrix, 0.4 * jnp.ones((COUNT, 2)), q, cost=[0.5, 0.9]),
            "rest": PostureTask(rest, cost=0.6, free_joints=True),
            "rolling": RollingTask(hub, 0.2, floor, cost=[0.9, 0.7, 1.1], gain=0.4, lm_damping=0.01),
            "sideways": OmniwheelTask(hub, 0.3, floor, axle=[0.3, 1.0, 0.2], cost=0.8, gain=0.6),
        },
    )


def relations() -> Case:
    problem = wheels()
    return Case({"problem": problem}, problem.tasks["rest"].q, 1)


def loop_as_a_task() -> Case:
    """A loop that has a price, and so closes as far as that says; the robot may then leave its plane."""
    robot = jaxik.load_robot(FOUR_BAR)
    q = linkage(COUNT)
    tip = robot.frame("tip")
    target = robot.frame_pose(q, tip).translation() + jnp.asarray([0.05, 0.02, 0.1])
    tasks = {
        "loop": EqualityConstraintTask(robot.equalities(), cost=0.8),
        "rest": PostureTask(q.at[:, robot.q_indices("wrist")[0]].set(2.3), cost=0.4),
        "tip": FrameTask(tip, target, orientation_cost=None),
    }
    return Case({"problem": Problem(robot, tasks, constraints={})}, q, 1)


def rest_at_the_start() -> Case:
    """Where solving starts is what the posture asks for, of arms whose tip is held."""
    robot = jaxik.load_robot("panda")
    q = robot.sample(jax.random.key(1), (COUNT,))
    tip = robot.frame("tcp")
    place = robot.frame_pose(near(robot, q), tip).translation()

    def problem(arguments: Any) -> Problem:
        held = FrameTask(tip, arguments["place"], orientation_cost=None)
        return Problem(robot, {"rest": PostureTask(arguments["q0"], priority=1), "tip": held})

    return Case({"q0": q, "place": place}, q, 0, problem)


SOLVED: dict[str, Callable[[], Case]] = {
    "relations and wheels": relations,
    "a loop as a task": loop_as_a_task,
    "a posture at the start, below a position": rest_at_the_start,
}


@exhaustive
@pytest.mark.parametrize("name", SOLVED)
def test_derivatives_of_a_solution_are_those_of_solving_again(name: str) -> None:
    check_solve(SOLVED[name]())


def motions() -> dict[str, Any]:
    """Wanted velocities, energy, limits of a base and of joints in either direction, a mask, and damping."""
    robot = jaxik.load_robot(own_tasks.MIXED)
    q = off_limits(robot, COUNT)
    tip = robot.frame("tip")
    target = robot.frame_pose(near(robot, q, 0.5), tip)
    speed = 2 * jax.random.normal(jax.random.key(2), (COUNT, robot.nv))
    limits = (
        ConfigurationLimit(gain=0.4),
        VelocityLimit({"hinge": 0.4, "slide": 0.3}, min_velocity={"hinge": -0.2, "slide": -0.1, "ball": -0.1}),
        FreeJointVelocityLimit(max_linear_velocity=[0.1, 0.2, 0.3], max_angular_velocity=0.3),
    )
    tasks = {
        "energy": KineticEnergyTask(cost=0.02),
        "speed": JointVelocityTask(speed, cost=0.5, free_joints=True),
        "tip": FrameTask(tip, target, gain=0.4, lm_damping=0.02),
    }
    mask = jnp.ones((COUNT, robot.nv), bool).at[0, robot.v_indices("endless")[0]].set(False)
    problem = Problem(robot, tasks, limits=limits, dof_mask=mask)
    return {"problem": problem, "q": q, "dt": 0.05, "damping": 0.03}


def rolled() -> dict[str, Any]:
    problem = wheels()
    return {"problem": problem, "q": off_limits(problem.robot, COUNT), "dt": 0.1}


def opened() -> dict[str, Any]:
    """A loop that has a price and is not closed."""
    case = loop_as_a_task()
    return {"problem": case.arguments["problem"], "q": case.start + 0.1, "dt": 0.1}


STEPPED: dict[str, Callable[[], dict[str, Any]]] = {
    "motions": motions,
    "relations and wheels": rolled,
    "a loop as a task": opened,
}


@exhaustive
@pytest.mark.parametrize("name", STEPPED)
def test_derivatives_of_a_step_are_those_of_stepping_again(name: str) -> None:
    def stepped(arguments: dict[str, Any]) -> jaxik.StepResult:
        rest = dict(arguments)
        return jaxik.step(rest.pop("problem"), rest.pop("q"), rest.pop("dt"), **rest)

    result = check_step(stepped, STEPPED[name]())
    assert name != "motions" or ((result.qp.active.bounds != 0).any(-1) | result.qp.active.rows.any(-1)).all()
