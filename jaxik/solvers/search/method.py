"""How a search works on one element: attempts from start after start, and then the phases of `solve`."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jaxik.batching.method import Method, Phase
from jaxik.problem.problem import Level, Problem
from jaxik.solvers.nonlinear import levenberg_marquardt
from jaxik.solvers.nonlinear.finalize import Found, finalize
from jaxik.solvers.nonlinear.phases import (
    Context,
    Result,
    SearchCounters,
    aimed,
    formulate,
    of_state,
    phases,
    start,
)
from jaxik.solvers.options import SolveOptions
from jaxik.solvers.search import multistart
from jaxik.solvers.search.preference import merit, unwrap_to_reference
from jaxik.solvers.search.starts import StartSampler, starts_of


@functools.cache
def search_method(level_count: int, constrained: bool, rank_by: str) -> Method:
    """From a problem, a configuration (nq,), options and a `StartSampler` to what is `Found`."""
    first = _attempts(functools.partial(aimed, constrained))
    return Method(_formulate, start, phases(level_count, constrained, first), functools.partial(_finalize, rank_by))


def _formulate(problem: Problem, q0: jax.Array, options: SolveOptions, spread: StartSampler) -> Context:
    context = formulate(problem, q0, options)
    return context._replace(starts=starts_of(context.prepared, spread))


def _attempts(names: functools.partial[Level]) -> Phase:
    """Gauss-Newton from one start after the other."""

    def init(context: Context, result: Result, number: jax.Array) -> levenberg_marquardt.State:
        level = names(context.prepared.levels)
        return multistart.start(
            context.prepared, context.starts, context.q, result.errors, context.options, level, number
        )

    def step(context: Context, state: levenberg_marquardt.State) -> levenberg_marquardt.State:
        return multistart.step(context.prepared, state, context.starts, context.options, names(context.prepared.levels))

    return Phase(
        active=None,
        init=init,
        step=step,
        ended=lambda state: state.ended,
        conclude=lambda context, result, state: _judge(context, names(context.prepared.levels), result, state),
        attempts=True,
    )


def _judge(
    context: Context, level: Level, so_far: Result, state: levenberg_marquardt.State
) -> tuple[Result, jax.Array]:
    """What comes after has steps of its own; Newton's tell whether the best failure could be no better."""
    tried = so_far.spent.starts
    best = multistart.Best(so_far.q, so_far.cost, so_far.errors, so_far.met)
    verdict = multistart.judge(context.prepared, context.starts, level, best, state, tried)
    result = of_state(state)._replace(
        q=verdict.best.q,
        cost=verdict.best.cost,
        errors=verdict.best.errors,
        met=verdict.best.met,
        crawling=verdict.unfinished,
        iterations=jnp.zeros_like(tried),
        spent=SearchCounters(so_far.spent.steps + state.iterations, tried + 1),
    )
    return result, verdict.again


def _finalize(rank_by: str, context: Context, result: Result, record: None) -> Found:
    """The solution, its hinges turned towards the reference, and what the search ranks it by."""
    found = finalize(context, result, record)
    reference = context.starts.spread.reference
    q = unwrap_to_reference(context.prepared, found.solution.q, reference)
    return Found(
        dataclasses.replace(found.solution, q=q),
        found.first_cost,
        merit(rank_by, context.prepared, q, found.solution.cost, reference),
    )
