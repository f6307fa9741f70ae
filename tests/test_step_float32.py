"""Steps in float32 beside the same in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxik
from jaxik import ConfigurationLimit, FrameTask, Limit, PositionLimit, PostureTask, Problem, Task, step


@pytest.mark.parametrize("kind", ["bounds", "rows and constraints"])
def test_motion_in_the_null_space_of_what_weighs_most_is_not_rounding(kind: str) -> None:
    robot = jaxik.load_robot("panda")
    tip, q = robot.frame("tcp"), robot.sample(jax.random.key(0), (256,))
    near = robot.integrate(q, 0.01 * jax.random.normal(jax.random.key(1), (256, robot.nv)))
    target = robot.frame_pose(near, "tcp")
    tasks: dict[str, Task] = {"rest": PostureTask(robot.q_home, cost=1e-3)}
    limits: tuple[Limit, ...] = (ConfigurationLimit(),)
    if kind == "bounds":
        problem = Problem(robot, tasks | {"tip": FrameTask(tip, target)}, limits)
    else:
        tasks["turned"] = FrameTask(tip, target, position_cost=None)
        limits = (*limits, PositionLimit(robot.frame("link6"), [0.0, 0.0, 1.0], 0.5))
        constraints = {"at": FrameTask(tip, target, orientation_cost=None)}
        problem = Problem(robot, tasks, limits, constraints=constraints)
    exact, rounded = (step(problem, q.astype(dtype), 0.01) for dtype in (jnp.float64, jnp.float32))
    assert rounded.velocity.dtype == jnp.float32
    both = (exact.status == rounded.status) & (exact.status == 0)
    assert both.mean() > 0.5
    velocity, difference = exact.velocity[both], (exact.velocity - rounded.velocity)[both]
    error = np.max(np.abs(difference), axis=1) / np.max(np.abs(velocity), axis=1)
    # From H and c alone the medians are 4e-2.
    assert np.median(error) < 2e-3
    assert np.quantile(error, 0.9) < 2e-2
