"""Loops that an arm carries, as those of a gripper's fingers: steps of the arm are as good as without them."""

import functools

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import mostly_exhaustive

import jaxik

# A finger, one of two that mirror each other: a four-bar whose last link is held by springs alone.
FINGER = """
<body name="base_{name}" {at}>
  <body pos="0 .031 .055"><joint name="driver_{name}" axis="1 0 0" range="0 .8"/>
    <geom size=".01"/><body name="coupler_{name}" pos="0 .0315 -.0041">
      <joint axis="1 0 0" range="-1.57 .2"/><geom size=".01"/></body></body>
  <body pos="0 .0132 .061"><joint axis="1 0 0" range="-.3 .8"/>
    <geom size=".01"/><body name="follower_{name}" pos="0 .055 .0375">
      <joint axis="1 0 0" pos="0 -.018 .0065" range="-.9 .9"/><geom size=".01"/></body></body>
</body>
"""
MODEL = f"""
<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
  <body><joint axis="0 0 1" range="-3 3"/><geom size=".05"/>
  <body pos="0 0 .3"><joint axis="0 1 0" range="-2 2"/><geom size=".05"/>
  <body pos="0 0 .3"><joint axis="0 1 0" range="-2 2"/><geom size=".05"/>
  <body name="hand" pos="0 0 .2" euler=".3 .5 .7"><joint axis="1 0 0" range="-2 2"/><geom size=".05"/>
    <site name="tip" pos="0 0 .1"/>
    {FINGER.format(name="right", at="")}{FINGER.format(name="left", at='euler="0 0 3.141592653589793"')}
  </body></body></body></body></worldbody>
  <equality>
    <connect body1="follower_right" body2="coupler_right" anchor="0 0 0"/>
    <connect body1="follower_left" body2="coupler_left" anchor="0 0 0"/>
    <joint joint1="driver_right" joint2="driver_left"/>
  </equality>
</mujoco>
"""
ARMS, STEPS = 32, 60


@functools.cache
def robot() -> jaxik.Robot:
    return jaxik.load_robot(MODEL)


@pytest.mark.parametrize("dtype", mostly_exhaustive(["float32", "float64"], ["float32"]))
def test_an_arm_reaches_its_target_while_the_loops_that_it_carries_move(dtype: str) -> None:
    # Rows across the planes of the loops held the arm as soon as these were open by rounding: TIMEOUT and INFEASIBLE.
    draws = np.random.default_rng(0)
    arm = draws.uniform(-1, 1, (2, ARMS, 4)) * 0.4 + np.array([0, 0.5, 1.0, 0])
    driver = int(robot().v_indices("driver_right")[0])
    q0 = jnp.tile(robot().q_home, (ARMS, 1)).at[:, :4].set(arm[0])
    goal = robot().frame_pose(q0.at[:, :4].set(arm[1]), "tip").translation().astype(dtype)
    wanted = q0.at[:, driver].set(draws.uniform(0.1, 0.7, ARMS)).astype(dtype)
    limits = (jaxik.ConfigurationLimit(), jaxik.VelocityLimit(3.0))
    cost = jnp.zeros(robot().nv, dtype).at[driver].set(0.3)

    def body(q: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        target = jaxlie.SE3.from_translation(goal)
        tip = jaxik.FrameTask(robot().frame("tip"), target, orientation_cost=None, gain=0.3)
        grip = jaxik.PostureTask(wanted, cost=cost, gain=0.3)
        result = jaxik.step(jaxik.Problem(robot(), {"tip": tip, "grip": grip}, limits), q, 0.02)
        return result.q, (result.status, result.residuals["model"])

    q, (status, gaps) = jax.jit(lambda q: jax.lax.scan(body, q, length=STEPS))(q0.astype(dtype))
    exact = dtype == "float64"
    assert np.mean(status == jaxik.Status.CONVERGED) >= (1.0 if exact else 0.99)
    assert not np.any(status == jaxik.Status.INFEASIBLE)
    assert float(jnp.abs(gaps[-1]).max()) < (1e-13 if exact else 2e-6)
    np.testing.assert_allclose(robot().frame_pose(q, "tip").translation(), goal, atol=1e-6 if exact else 1e-5)
    np.testing.assert_allclose(q[:, driver], wanted[:, driver], atol=1e-5)
