"""A planar arm and its targets, of which tests of `solve` over batch axes solve some or many."""

from functools import cache
from typing import Any

import jax
import numpy as np
import own_tasks

import jaxik
from jaxik import FrameTask, Problem, solve
from jaxik.robot.robot import Robot

MANY = 5000


@cache
def robot() -> Robot:
    return jaxik.load_robot(own_tasks.PLANAR)


def problem(target: Any, **changes: Any) -> Problem:
    return Problem(robot(), {"tip": FrameTask(robot().frame("tip"), target, orientation_cost=None)}, **changes)


@cache
def targets() -> np.ndarray:
    """Positions (MANY, 3) of which some are out of reach."""
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(-1.5, 1.5, MANY), rng.uniform(0.2, 2.2, MANY)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle], -1)


@cache
def batched(count: int) -> jaxik.Solution:
    return jax.device_get(solve(problem(targets()[:count])))
