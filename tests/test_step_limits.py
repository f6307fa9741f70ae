"""Limits of steps in a closed loop: a robot that pushes against its limits never leaves them."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from limit_rows import mixed
from tables import exhaustive

import jaxik
from jaxik import ConfigurationLimit, PostureTask, Problem, Status, VelocityLimit, step
from jaxik.kinematics.manifold import ball_angle, limit_excess
from jaxik.kinematics.topology import JointType

EVERY, DT = 25, 0.02
# Each joint is inside its limits to this much: hinges and slides exactly.
BALLS = {"float64": 1e-14, "float32": 2e-7}


LIMITED_BALL = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="arm">
      <joint name="ball" type="ball" range="0 1" limited="true"/>
      <geom size=".1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


def test_a_ball_that_slides_along_its_limit_turns_no_faster_than_it_may() -> None:
    robot, fastest, dt = jaxik.load_robot(LIMITED_BALL), 2.0, 0.05
    rng = np.random.default_rng(0)
    axes = rng.standard_normal((2, 200, 3))
    axes /= np.linalg.norm(axes, axis=-1, keepdims=True)
    on_it = np.concatenate([np.full((200, 1), np.cos(0.5)), np.sin(0.5) * axes[0]], axis=1)
    away = np.concatenate([np.full((200, 1), np.cos(1.2)), np.sin(1.2) * axes[1]], axis=1)
    limits = (ConfigurationLimit(), VelocityLimit(fastest))
    result = step(Problem(robot, {"push": PostureTask(away)}, limits), on_it, dt)
    np.testing.assert_array_equal(result.status, Status.CONVERGED)
    speed = np.abs(np.asarray(result.velocity)).max(axis=1)
    assert speed.max() <= fastest * (1 + 1e-12) and np.median(speed) > 0.9 * fastest
    assert jax.jit(jax.vmap(ball_angle))(result.q).max() <= 1 + 1e-14
    np.testing.assert_allclose(robot.difference(on_it, result.q) / dt, result.velocity, atol=1e-12)


@cache
def pushed(dtype: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Configurations (steps, 3, nq) and statuses: postures far outside the limits, a new one every EVERY steps."""
    robot = mixed()
    scalar = [j.q_index for j in robot.topology.joints if j.type in (JointType.HINGE, JointType.SLIDE)]
    goals = np.array(robot.sample(jax.random.key(0), (steps // EVERY, 3)))
    goals[..., scalar] += np.random.default_rng(0).choice([-3.0, 3.0], (steps // EVERY, 3, len(scalar)))
    ball = list(robot.q_indices("ball"))
    goals[..., ball] = np.random.default_rng(1).standard_normal((steps // EVERY, 3, 4))
    goals[..., ball] /= np.linalg.norm(goals[..., ball], axis=-1, keepdims=True)
    gains = jnp.asarray([1.0, 0.95, 0.3], dtype)

    @jax.jit
    def run() -> Any:
        def advance(q: Any, goal: Any) -> Any:
            limits = (ConfigurationLimit(gains), VelocityLimit(jnp.asarray([3.0, 50.0, 3.0], dtype)[:, None]))
            result = step(Problem(robot, {"push": PostureTask(goal)}, limits), q, DT)
            return result.q, (result.q, result.status)

        start = jnp.broadcast_to(robot.q_home.astype(dtype), goals[0].shape)
        return jax.lax.scan(advance, start, jnp.repeat(jnp.asarray(goals, dtype), EVERY, axis=0))[1]

    return jax.device_get(run())


@pytest.mark.parametrize(("dtype", "steps"), [
    ("float32", 150),
    pytest.param("float32", 500, marks=exhaustive),
    pytest.param("float64", 500, marks=exhaustive),
])  # fmt: skip
def test_a_robot_that_pushes_against_its_limits_never_leaves_them(dtype: str, steps: int) -> None:
    """mink's and pink's drift past by the tolerance of their solvers."""
    robot = mixed()
    q, status = pushed(dtype, steps)
    assert q.dtype == dtype
    np.testing.assert_array_equal(status, Status.CONVERGED)
    excess = np.asarray(jax.jit(jax.vmap(partial(limit_excess, robot)))(q.reshape(-1, robot.nq).astype(float)))
    kinds = np.array([joint.type for joint in robot.topology.joints])
    np.testing.assert_array_equal(excess[:, kinds != JointType.BALL], 0)
    assert excess.max() < BALLS[dtype]
    for j in robot.topology.scalar_joints:
        bounds = robot.astype(dtype)
        for bound in (bounds.limit_lower[j], bounds.limit_upper[j]):
            if np.isfinite(bound):  # with a gain of one it is on each of its limits at times
                assert (q[:, :2, robot.topology.joints[j].q_index] == bound).any(), robot.topology.joints[j].name
    most = robot.limit_upper[robot.topology.joint_index("ball")]
    angle = jax.jit(jax.vmap(ball_angle))(q[:, 0, list(robot.q_indices("ball"))].astype(float))
    assert np.mean(angle > most - 1e-6) > 0.3
