"""Solutions of a planar arm with traces of their steps."""

from functools import cache

import jax
import numpy as np
import own_tasks

import jaxik
from jaxik import FrameTask, Problem, SolveOptions, solve

STEPS = 60
# In reach; twice behind the first joint's bound; the start itself; no number.
Q0 = np.array([0.05, 0.6])
START = np.array([np.cos(0.05) + 0.7 * np.cos(0.65), np.sin(0.05) + 0.7 * np.sin(0.65), 0])
TARGETS = np.array([[0.9, 0.9, 0], [0.2, 2.5, 0], [-1, 2.2, 0], START, [np.nan, 0, 0]])


@cache
def arm() -> jaxik.Robot:
    return jaxik.load_robot(own_tasks.PLANAR)


@cache
def found(trace: bool | int = STEPS, element: int | None = None) -> jaxik.Solution:
    target = TARGETS if element is None else TARGETS[element]
    tip = FrameTask(arm().frame("tip"), target, orientation_cost=None)
    return jax.device_get(solve(Problem(arm(), {"tip": tip}), Q0, options=SolveOptions(record_trace=trace)))


def trace_of(solution: jaxik.Solution) -> jaxik.Trace:
    assert solution.trace is not None
    return solution.trace
