"""Where mink is wrong, or ends without an answer: what it does, run here, beside what a step does."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jaxlie
import mink
import mujoco
import numpy as np
import pytest
from limit_rows import UNOPTIMISED
from tables import exhaustive

import jaxik
from jaxik import ConfigurationLimit, FrameTask, PostureTask, Problem, Status, VelocityLimit, linearize, step
from jaxik.robot.robot import Robot

DT = 0.02
# What is welded to the world can turn, a joint at its limit and one far outside of its own.
MODEL = """
<mujoco><compiler angle="radian"/><default><joint axis="0 0 1"/></default><worldbody>
  <body name="base"><freejoint name="free"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
    <body name="head"><joint name="ball" type="ball"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body></body>
  <body name="wheel"><joint name="wheel"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>
  <body name="near"><joint name="near" range="-0.3 0.3" limited="true"/>
    <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>
  <body name="out"><joint name="out" range="-0.3 0.3" limited="true"/>
    <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>
</worldbody><equality><weld name="still" body1="wheel"/></equality></mujoco>"""
TURNED, OUTSIDE, PAST = 2.0, 0.8, 0.3 + 5e-7


@cache
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODEL)


class Answer(NamedTuple):
    """The case, its quadratic program and step, and Jacobians of the tasks by differences of their residuals."""

    robot: Robot
    q: np.ndarray
    target: np.ndarray
    posture: np.ndarray
    linear: Any
    result: jaxik.StepResult
    jacobians: dict[str, np.ndarray]


@cache
def answer() -> Answer:
    robot = jaxik.load_robot(model())
    q = np.array([0, 0, 0, 1, 0, 0, 0, np.cos(0.5), np.sin(0.5), 0, 0, TURNED, 0.2, OUTSIDE])
    # Half a metre off, and turned by less than the 1e-5 rad below which mink's derivative of the logarithm is I.
    target = np.array([1, 2e-6, 0, 0, 0.3, 0.4, 0])
    target[:4] /= np.linalg.norm(target[:4])
    posture = np.array([0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, TURNED, PAST, OUTSIDE])
    tasks = {"frame": FrameTask(robot.frame("base"), jaxlie.SE3(target)), "rest": PostureTask(posture)}
    limits = (ConfigurationLimit(1.0), VelocityLimit({"out": 1.0}))
    around = 1e-6 * np.concatenate([np.zeros((1, robot.nv)), np.eye(robot.nv), -np.eye(robot.nv)])
    qs = np.asarray(robot.integrate(q, around))

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def both() -> Any:
        problem = Problem(robot, tasks, limits)
        return linearize(problem, qs, DT), step(problem, q, DT)

    linear, result = jax.device_get(both())
    jacobians = {}
    for name in tasks:
        rows = linear.residuals[name]
        rows = np.concatenate([rows["position"], rows["orientation"]], axis=1) if name == "frame" else rows
        jacobians[name] = ((rows[1 : robot.nv + 1] - rows[robot.nv + 1 :]) / 2e-6).T
    return Answer(robot, q, target, posture, jax.tree.map(lambda x: x[0], linear), result, jacobians)


@exhaustive
def test_near_the_targets_rotation_the_derivative_of_the_logarithm_still_counts() -> None:
    at = answer()
    rows = at.linear.jacobians["frame"]
    np.testing.assert_allclose(
        np.concatenate([rows["position"], rows["orientation"]]), at.jacobians["frame"], atol=1e-8
    )
    task = mink.FrameTask("base", "body", 1.0, 1.0)
    task.set_target(mink.SE3(at.target))
    theirs = task.compute_jacobian(mink.Configuration(model(), at.q))
    assert np.abs(theirs - at.jacobians["frame"]).max() > 0.1


def test_a_balls_posture_has_the_derivative_of_its_difference() -> None:
    at = answer()
    np.testing.assert_allclose(at.linear.jacobians["rest"], at.jacobians["rest"], atol=1e-8)
    theirs = mink.PostureTask(model(), 1.0)
    theirs.set_target(at.posture)
    assert np.abs(theirs.compute_jacobian(mink.Configuration(model(), at.q)) - at.jacobians["rest"]).max() > 0.1


def test_a_weld_turns_back_by_its_angle() -> None:
    """mink has the imaginary part of MuJoCo's quaternion: half as long, and flatter the further it has turned."""
    at = answer()
    wheel = at.robot.v_indices("wheel")[0]
    assert at.result.status == Status.CONVERGED
    assert at.result.q[at.robot.q_indices("wheel")[0]] == pytest.approx(0, abs=1e-12)
    weld = mink.EqualityConstraintTask(model(), 1.0)
    configuration = mink.Configuration(model(), at.q)
    velocity = mink.solve_ik(configuration, [weld], DT, "daqp", 1e-12, limits=[])
    assert velocity[wheel] * DT == pytest.approx(-2 * np.tan(TURNED / 2), abs=1e-4)


def test_a_joint_ends_on_its_limit_and_not_within_a_tolerance_of_it() -> None:
    at = answer()
    near = at.robot.q_indices("near")[0]
    assert at.result.q[near] == 0.3
    start = at.q.copy()
    start[at.robot.q_indices("out")[0]] = 0.0
    configuration, posture = mink.Configuration(model(), start), mink.PostureTask(model(), 1.0)
    posture.set_target(at.posture)
    limits = [mink.ConfigurationLimit(model(), gain=1.0)]
    configuration.integrate_inplace(mink.solve_ik(configuration, [posture], DT, "daqp", 1e-9, limits=limits), DT)
    assert configuration.q[near] > 0.3 + 1e-7


def test_a_joint_outside_its_limits_comes_back_at_the_speed_that_it_is_allowed() -> None:
    at = answer()
    assert at.result.velocity[at.robot.v_indices("out")[0]] == -1.0
    configuration, posture = mink.Configuration(model(), at.q), mink.PostureTask(model(), 1.0)
    posture.set_target(at.posture)
    limits = [mink.ConfigurationLimit(model()), mink.VelocityLimit(model(), {"out": 1.0})]
    for solver in ("daqp", "quadprog"):
        with pytest.raises(mink.NoSolutionFound):
            mink.solve_ik(configuration, [posture], DT, solver, 1e-6, limits=limits)
