"""What trips solvers of closed chains: joints of several degrees, limits, chains of chains, joint targets, statuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tables import exhaustive

import jaxik
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.chains import slots_of
from jaxik.solvers.nonlinear.formulation import formulation
from jaxik.solvers.nonlinear.hard_constraint import with_hard_constraints


def test_joints_of_several_degrees_have_the_derivatives_of_differences() -> None:
    made = jaxik.Mechanism("stacked")
    made.link("base", joints=("X", "Z", "EX", "EY", "EZ"))
    made.link("arm", "base", position=(0.3, 0.1, 0.0), joints=("Y", "EZ", "EX"))
    made.link("wrist", "arm", position=(0.0, 0.2, 0.1), joints="BALL")
    made.frame("tip", "wrist", position=(0.1, 0.0, 0.2))
    robot = made.build().astype(np.float64)
    q = robot.integrate(robot.q_home, jnp.linspace(-1.3, 1.6, robot.nv))
    pose = robot.frame_pose(q, "tip")

    @jax.jit
    @jax.vmap
    def twist(dq: jax.Array) -> jax.Array:
        return (pose.inverse() @ robot.frame_pose(robot.integrate(q, dq), "tip")).log()

    ways = 1e-6 * jnp.eye(robot.nv)
    np.testing.assert_allclose(robot.frame_jacobian(q, "tip"), (twist(ways) - twist(-ways)).T / 2e-6, atol=1e-9)


def test_chains_that_hang_together_through_others_are_one() -> None:
    made = jaxik.Mechanism("row")
    for i in range(5):
        made.link(f"s{i}", position=(i, 0, 0), joints="Y")
    # The first and the third hang together through the second, in whatever order they are named.
    for first, second in (("s2", "s1"), ("s0", "s1"), ("s4", "s3")):
        made.closure(f"{first}{second}", first, second, ("y",))
    robot = made.build()
    goal = jaxik.FrameTask(robot.frame("s2"), jnp.array([2.0, 0.1, 0.0]), orientation_cost=None)
    found: list[Any] = []

    def prepared(robot: Robot) -> None:
        problem = with_hard_constraints(jaxik.Problem(robot, {"goal": goal}), 1e-9)
        found.extend(slots_of(formulation(problem)).chains)

    jax.eval_shape(prepared, robot)
    assert [chain.joints for chain in found] == [("s0", "s1", "s2"), ("s3", "s4")]
    assert [chain.goals for chain in found] == [("goal",), ()]


def test_joint_targets_in_a_loop_are_met_from_the_limits_and_said_to_be() -> None:
    """A crank and a rocker start at limits that hold them, and leave these; a good solution is never STALLED."""
    made = jaxik.Mechanism("limited")
    made.link("crank", joints={"EZ": (0.5, 2.5)}, rest=0.5)
    made.link("coupler", "crank", position=(0.3, 0, 0), joints="EZ", rest=0.2)
    made.frame("end", "coupler", position=(0.9, 0, 0))
    made.link("rocker", position=(1.0, 0, 0), joints={"EZ": (0.9, 3.0)}, rest=0.9)
    made.frame("pin", "rocker", position=(0.7, 0, 0))
    made.closure("loop", "end", "pin", ("x", "y"))
    robot = made.build().astype(np.float64)
    angles = np.linspace(0.5, 2.5, 64)
    aims = robot.q_home + np.outer(angles - 0.5, [1.0, 0.0, 0.0])
    tasks = {
        "crank": jaxik.PostureTask(aims, cost=jnp.array([1.0, 0.0, 0.0]), tolerance=1e-8),
        "loop": jaxik.EqualityConstraintTask(robot.equalities("loop"), tolerance=1e-8),
    }
    found = jax.device_get(jaxik.solve(jaxik.Problem(robot, tasks, constraints={}), robot.q_home))
    assert np.all(found.status == jaxik.Status.CONVERGED)
    np.testing.assert_allclose(found.q[:, 0], angles, atol=1e-8)
    assert found.q[1:, 0].min() > 0.5 and found.q[:, 2].min() > 0.9 + 1e-3
    assert np.abs(found.residuals["loop"]).max() < 1e-8


@exhaustive
def test_closures_that_contradict_each_other_are_infeasible_at_the_least_miss_within_limits() -> None:
    """A bar of 0.1 m is to end at two places 0.3 m apart, and comes no nearer to the middle than its limit lets it."""
    made = jaxik.Mechanism("bar")
    made.link("bar", joints={"X": (0.02, 1.0), "Y": None, "EZ": None}, rest={"X": 0.4, "Y": 0.3, "EZ": 0.5})
    for name, sign in (("left", -1), ("right", 1)):
        made.frame(name, "bar", position=(0.05 * sign, 0, 0))
        made.frame(f"{name} pin", "world", position=(0.15 * sign, 0, 0))
        made.closure(name, name, f"{name} pin", ("x", "y"))
    robot = made.build()
    away = jaxik.PostureTask(jnp.array([[0.4, 0.3, 0.5], [-9.0, 3.0, -1.0]]))
    found = jaxik.solve(jaxik.Problem(robot, {"away": away}), robot.q_home)
    np.testing.assert_array_equal(found.status, jaxik.Status.INFEASIBLE)
    np.testing.assert_allclose(found.q, [[0.02, 0, 0]] * 2, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.residuals["model"], [[0.12, 0, -0.08, 0]] * 2, rtol=0, atol=1e-6)
    assert robot.check_limits(found.q).all() and np.all(found.iterations < 200)
