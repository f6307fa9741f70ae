"""Derivatives of `step` in the programs that users run, whose kernels do not all round a value in the same way."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from test_step_rules import ARM

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    DerivativeStatus,
    FrameTask,
    PostureTask,
    Problem,
    VelocityLimit,
)

COUNT, DT, ACCELERATION, STEP = 4, 0.02, 5.0, 1e-6


def test_joints_that_an_acceleration_limit_holds_follow_the_velocity_before() -> None:
    robot = jaxik.load_robot(ARM)
    tip = robot.frame("tip")
    noise = [jax.random.normal(jax.random.key(i), (COUNT, robot.nv)) for i in range(6)]
    q, before = robot.q_home + 0.3 * noise[0], 0.5 * noise[1]
    target = robot.frame_pose(q, tip).translation() + 0.02 * noise[2][:, :3]
    limits = (ConfigurationLimit(), VelocityLimit(1.0), AccelerationLimit(ACCELERATION))

    def stepped(target: Any, q: Any, before: Any) -> tuple[jax.Array, jaxik.StepResult]:
        tasks = {
            "tip": FrameTask(tip, target, orientation_cost=None, gain=0.3),
            "rest": PostureTask(robot.q_home, cost=0.1, gain=0.2),
        }
        step = jaxik.step(Problem(robot, tasks, limits=limits), q, DT, previous_velocity=before)
        return step.velocity, step

    at, along, pull = (target, q, before), (noise[3][:, :3], noise[4], noise[5]), noise[2]
    # A program each: in one of both, every bound was rounded once.
    forward = jax.jit(lambda at, along: jax.jvp(stepped, at, along, has_aux=True))
    _, forth, step = forward(at, along)
    back = jax.jit(lambda at, pull: jax.vjp(stepped, *at, has_aux=True)[1](pull))(at, pull)
    moved = (jax.tree.map(lambda x, d, by=by: x + by * d, at, along) for by in (STEP, -STEP))
    ahead, behind = (forward(other, along)[0] for other in moved)
    differences = np.asarray(ahead - behind) / (2 * STEP)

    np.testing.assert_array_equal(step.derivative_status, DerivativeStatus.EXACT)
    for side in (-1, 1):
        assert np.sum(np.abs(step.velocity - before - side * ACCELERATION * DT) < 1e-9) >= 3
    np.testing.assert_allclose(forth, differences, atol=1e-7)
    pulled = sum(jnp.sum(x * d) for x, d in zip(back, along, strict=True))
    np.testing.assert_allclose(pulled, np.sum(pull * differences), atol=1e-6)
