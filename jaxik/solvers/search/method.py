"""How a search works on one element: attempts from start after start, and then the phases of `solve`."""

import functools

import jax

from jaxik.batching.method import Method
from jaxik.problem.problem import Problem
from jaxik.solvers.nonlinear.element import Context, Result, formulate, start
from jaxik.solvers.nonlinear.finalize import Found, finalize
from jaxik.solvers.nonlinear.formulation import formulation
from jaxik.solvers.nonlinear.hard_constraint import clearances, without_clearance
from jaxik.solvers.nonlinear.phases import aimed, phases
from jaxik.solvers.nonlinear.whole_turns import unwrap_to_reference
from jaxik.solvers.options import SolveOptions
from jaxik.solvers.search.attempts import begun, first_phases
from jaxik.solvers.search.preference import merit
from jaxik.solvers.search.starts import StartSampler, starts_of

# Lanes where limits keep shapes apart. Searches of a Panda among 20 boxes take 0.59 of the time of 128 lanes, with
# 64 of them 0.76, and of the robot's own pairs alone 0.88.
APART_WIDTH = 32


@functools.cache
def search_method(
    level_count: int, width: int, constrained: bool, apart: bool, rank_by: str, yields: bool = False
) -> Method:
    """From a problem, a configuration (nq,), options and a `StartSampler` to what is `Found`.

    Args:
      level_count: how many priorities the problem has, with that of its constraints.
      width: lanes side by side, where no limit keeps shapes apart.
      constrained, apart, yields: whether the problem has constraints, limits that keep shapes apart, and a constraint
        or joint limits that may yield.
      rank_by: of the options.
    """
    first = first_phases(functools.partial(aimed, constrained), apart)
    worked = phases(level_count, constrained, first, yields)
    return Method(
        _formulate,
        begun if apart else start,
        worked,
        functools.partial(_finalize, rank_by),
        width=APART_WIDTH if apart else width,
    )


def _formulate(problem: Problem, q0: jax.Array, options: SolveOptions, spread: StartSampler) -> Context:
    context = formulate(problem, q0, options)
    blind = formulation(without_clearance(problem)) if clearances(problem) else None
    return context._replace(starts=starts_of(context.prepared, spread), blind=blind)


def _finalize(rank_by: str, context: Context, result: Result, record: None) -> Found:
    """The solution, its hinges turned towards the reference, and what the search ranks it by."""
    reference = context.starts.spread.reference
    found = finalize(context, result._replace(q=unwrap_to_reference(context.prepared, result.q, reference)), record)
    better = merit(rank_by, context.prepared, found.solution.q, found.merit, reference)
    return found._replace(merit=better)
