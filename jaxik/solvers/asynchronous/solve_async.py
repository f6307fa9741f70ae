"""`solve_async`: start a solve, and go on; watch it, change its targets, stop it, wait for it."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from jaxik.batching.broadcast import batch_shape
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import core_ranks
from jaxik.problem.arguments import check_problem, configuration
from jaxik.problem.problem import Problem
from jaxik.solvers.asynchronous.handle import SolveHandle
from jaxik.solvers.options import SolveOptions, count


def solve_async(
    problem: Problem, q0: Any = None, *, options: SolveOptions | None = None, chunk: int = 20
) -> SolveHandle:
    """Start `solve` in a thread, compilation included, and return at once.

    It runs as calls of `solve` of at most `chunk` steps, each from where the one before ended, with a damping that
    follows the residual there, as of any start. So the result is a solution as `solve` finds them, though not step by
    step the same one. Of a step rule without an acceptance test each chunk begins with an empty memory, and it takes 20
    steps of one chunk without progress to end as STALLED or DIVERGED.

    Args:
      problem, q0, options: those of `solve`; `max_steps` are of all chunks together, since targets last changed.
      chunk: how many steps pass at most before changes of targets, and `stop`, are heard; from 1 on. Changing it does
        not recompile.

    Returns:
      A `SolveHandle`.

    Raises:
      JaxikError: for wrong shapes, inside `jit`, and for a trace. What is found later, `handle.result()` raises.
    """
    check_problem(problem)
    options = SolveOptions() if options is None else options
    if not isinstance(options, SolveOptions):
        raise JaxikError(f"options is a jaxik.SolveOptions, not {type(options).__name__}")
    if options.record_trace:
        raise JaxikError("solve_async records no trace: solve from q0, with SolveOptions(record_trace=True)")
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((problem, q0, options))):
        raise JaxikError("solve_async works on the host: inside jit, vmap and grad take solve")
    q0 = configuration("q0", problem.robot.q_home if q0 is None else q0, problem.robot)
    ranks = {"problem": core_ranks(problem), "q0": 1, "options": core_ranks(options)}
    shape = batch_shape({"problem": problem, "q0": q0, "options": options}, ranks)
    return SolveHandle(problem, jnp.broadcast_to(q0, (*shape, q0.shape[-1])), options, count("chunk", chunk))
