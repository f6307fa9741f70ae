"""One step for tasks of several priorities: a quadratic program each, the lower in what the higher leave free."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.status import Status
from jaxik.qp_solver import (
    ActiveSet,
    Program,
    QPOptions,
    QPSolution,
    minimise,
    minimise_in_box,
    minimise_in_elastic_box,
)
from jaxik.qp_solver.derivatives import Optimum, optimum_of
from jaxik.solvers.differential.limit_recovery import Demands, minimise_at_largest_scale
from jaxik.solvers.differential.linearization import Linearization, WeightedRows, program_of, scaled
from jaxik.solvers.differential.refine import refined


class Descent(NamedTuple):
    """The displacement that all levels lead to.

    Attributes:
      displacement (nv,): meaningless where the status is INFEASIBLE or NONFINITE.
      status (): of `Status`.
      first: the solution of the highest level.
      each: the minima of all levels.
    """

    displacement: jax.Array
    status: jax.Array
    first: QPSolution
    each: tuple[Optimum, ...]


def highest_level(
    model: Linearization, demands: Demands | None, warm_start: ActiveSet | None, options: QPOptions | None
) -> tuple[Linearization, QPSolution]:
    """Minimise the objective of the highest level: the linearization with its demands scaled as needed, the minimum."""
    program = program_of(model)
    if demands is not None:
        scale, first = minimise_at_largest_scale(program, demands, warm_start, options)
        model = scaled(model, demands, scale)
        return model, refined(model, first)
    # A sum of squares has a minimum whatever its curvature, so in a box the status need not be checked.
    if program.A is not None:
        solver = minimise
    elif program.G is None:
        solver = minimise_in_box
    else:
        solver = minimise_in_elastic_box if model.rows_are_elastic_bounds else minimise
    return model, refined(model, solver(program, warm_start, options))


def descend(model: Linearization, first: QPSolution, options: QPOptions | None) -> Descent:
    """Minimise the objectives of all levels in order, each subject to limits, constraints and the levels above it.

    A level keeps J x of all rows above it, J weighted with their costs, so that none of their residuals changes.
    Repeated and dependent rows are allowed. What yields does so at the highest level, and stays as it is there.

    Args:
      first: of `highest_level`.
    """
    program = program_of(model)
    x, status, each = first.x, first.status, [optimum_of(first)]
    last = ActiveSet(first.active.bounds, first.active.rows)
    program = _with_yielded(program, each[0].yielding, x)
    for objective, above in zip(model.objectives[1:], model.weighted_rows, strict=False):
        program = _with_level_above(program, above, x)._replace(H=objective.H, c=objective.c)
        solution = minimise(program, last, options)
        each.append(optimum_of(solution))
        good = (status == Status.CONVERGED) & (solution.status == Status.CONVERGED)
        x, last = (
            jnp.where(good, solution.x, x),
            jax.tree.map(lambda n, o, g=good: jnp.where(g, n, o), solution.active, last),
        )
        # The displacement so far keeps all constraints: INFEASIBLE can only be rounding.
        failed = jnp.where(solution.status == Status.INFEASIBLE, Status.TIMEOUT, solution.status)
        status = jnp.where(status == Status.CONVERGED, failed, status)
    return Descent(x, status.astype(jnp.int32), first, tuple(each))


def program_below(model: Linearization, level: int, minima: Sequence[jax.Array], yielding: jax.Array | None) -> Program:
    """The program of a level, given the minima (nv,) of those above it, and what yields at the highest (k + p,)."""
    program = program_of(model)
    if level:
        program = _with_yielded(program, yielding, minima[0])
    for above, x in zip(model.weighted_rows[:level], minima, strict=True):
        program = _with_level_above(program, above, x)
    return program._replace(H=model.objectives[level].H, c=model.objectives[level].c)


def _with_yielded(program: Program, yielding: jax.Array | None, x: jax.Array) -> Program:
    """The program in which rows and equalities that yield keep their value at `x` (nv,), and all others hold."""
    if yielding is None:
        return program
    count = 0 if program.h is None else program.h.shape[0]
    yields, right = yielding != 0, {"h": program.h, "b": program.b}
    if program.G is not None and program.h is not None:
        right["h"] = jnp.where(yields[:count], program.G @ x, program.h)
    if program.A is not None and program.b is not None:
        right["b"] = jnp.where(yields[count:], program.A @ x, program.b)
    return program._replace(**right, row_penalties=None, equality_penalties=None)


def _with_level_above(program: Program, above: WeightedRows, x: jax.Array) -> Program:
    """Add the rows of a level above as equalities, at their values at `x` (nv,)."""
    matrix, right = above.matrix, above.matrix @ x
    if program.A is not None and program.b is not None:
        matrix, right = jnp.concatenate([program.A, matrix]), jnp.concatenate([program.b, right])
    return program._replace(A=matrix, b=right)
