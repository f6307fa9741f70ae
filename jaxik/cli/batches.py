"""Solve many elements in calls of one batch size, so that one compilation serves all calls."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxik.cli.job import Job
from jaxik.problem.problem import Problem
from jaxik.results.solution import Solution
from jaxik.solvers.nonlinear.solve import solve
from jaxik.solvers.options import SearchOptions, SolveOptions
from jaxik.solvers.search.search import search


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The solution of a job, and its times.

    Attributes:
      solution: leaves are numpy arrays (n, ...), of the first n elements where it was interrupted.
      compile_seconds, run_seconds: of wall time.
      interrupted: whether Ctrl-C ended it.
    """

    solution: Solution
    compile_seconds: float
    run_seconds: float
    interrupted: bool


def solve_in_batches(job: Job, size: int, compiled: Callable[[], None], advance: Callable[[int], None]) -> Outcome:
    """Solve all elements of a job.

    Args:
      job: the problem, starts and options of all elements.
      size: elements in one call; the last call repeats its last element to be full.
      compiled: called once, when compilation is over.
      advance: called after each call, with the number of elements that it solved.
    """
    size = min(size, job.count)
    started = time.perf_counter()
    run = jax.jit(solve_part).lower(*job.part(_rows(job, 0, size))).compile()
    running = time.perf_counter()
    compiled()
    parts: list[Solution] = []
    interrupted = False
    try:
        for start in range(0, job.count, size):
            result = jax.device_get(run(*job.part(_rows(job, start, size))))
            count = min(size, job.count - start)
            parts.append(jax.tree.map(lambda x, count=count: x[:count], result))
            advance(count)
    except KeyboardInterrupt:
        if not parts:
            raise
        interrupted = True
    ended = time.perf_counter()
    solution = jax.tree.map(lambda *xs: np.concatenate(xs), *parts)
    return Outcome(solution, running - started, ended - running, interrupted)


def _rows(job: Job, start: int, size: int) -> np.ndarray:
    return np.minimum(np.arange(start, start + size), job.count - 1)


def solve_part(problem: Problem, q0: Any, options: SolveOptions | SearchOptions, keys: Any) -> Solution:
    """Solve the elements of `Job.part`."""
    if isinstance(options, SolveOptions):
        return solve(problem, q0, options=options)
    return search(problem, keys, starts=None if q0 is None else q0[:, None], options=options)
