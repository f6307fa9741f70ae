"""Targets that move slowly out of reach and back make no jumps that do not shrink with the step."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest

import jaxik
from jaxik import ConfigurationLimit, FrameTask, PostureTask, Problem, TrackOptions, VelocityLimit

ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
<body><joint name="first" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
  <body pos="0.5 0 0"><joint name="second" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
    <body pos="0.4 0 0"><joint name="third" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
      <site name="tip" pos="0.3 0 0"/>
</body></body></body></worldbody></mujoco>"""
BENT = np.array([0.5, -0.8, -0.5])


@functools.partial(jax.jit, static_argnums=(0, 1))
def followed(robot: Any, steps: int, damping: Any) -> jaxik.Track:
    """5 s in which a target goes 2 mm beyond the reach of an arm and comes back, above a posture of lower priority."""
    dt, tip = 5 / steps, robot.frame("tip")
    start = robot.frame_pose(jnp.asarray(BENT), tip).translation()
    phase = jnp.minimum((jnp.arange(steps) + 1) * dt / 4, 1)
    away = 0.17 * 0.5 * (1 - jnp.cos(2 * jnp.pi * phase))[:, None] * start / jnp.linalg.norm(start)
    tasks = {
        "tip": FrameTask(tip, jaxlie.SE3.from_translation(start), 1.0, None, gain=5 * dt),
        "rest": PostureTask(BENT, cost=0.1, gain=5 * dt, priority=1),
    }
    problem = Problem(robot, tasks, (ConfigurationLimit(), VelocityLimit(2.0)))
    targets = {"tip": jaxlie.SE3.from_translation(start + away)}
    return jaxik.track(problem, BENT, dt, targets, options=TrackOptions(damping=damping))


@pytest.mark.exhaustive
def test_a_lower_priority_hands_over_without_jumps_where_damping_says_so() -> None:
    """With a damping of 1e-4 velocities jump between the speed limits, whatever the step."""
    robot = jaxik.load_robot(ARM)
    jumps = []
    for steps in (500, 5000):
        track = followed(robot, steps, 1e-2)
        jumps.append(np.max(np.abs(np.diff(np.asarray(track.velocity), axis=0))))
        assert np.linalg.norm(np.asarray(track.residuals["tip"]["position"])[-1]) < 1e-4
    assert jumps[0] < 0.03 and jumps[1] < 0.2 * jumps[0], jumps
