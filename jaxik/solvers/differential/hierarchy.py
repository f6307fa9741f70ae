"""One step for tasks of several priorities: a quadratic program each, the lower in what the higher leave free."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.status import Status
from jaxik.qp_solver import ActiveSet, Program, QPOptions, QPSolution, minimise, minimise_in_box
from jaxik.qp_solver.derivatives import Active, active
from jaxik.solvers.differential.linearization import Linearization, WeightedRows


class Descent(NamedTuple):
    """What the levels agree on.

    Attributes:
      displacement (nv,): of no use where the status is INFEASIBLE or NONFINITE.
      status (): of `Status`.
      first: the program of the highest level.
      each: the minima of all levels.
    """

    displacement: jax.Array
    status: jax.Array
    first: QPSolution
    each: tuple[Active, ...]


def descend(model: Linearization, warm_start: ActiveSet | None, options: QPOptions | None) -> Descent:
    """Minimise the objective of each level over what limits, constraints and the levels above it leave.

    A level keeps J x of all rows above it, J weighted with their costs, so that none of their residuals changes; rows
    that are repeated or not independent are normal for the program.
    """
    program = program_of(model)
    # Squares of residuals have a minimum, whatever their curvature: in a box there is nothing else to look for.
    within = program.G is None and program.A is None
    first = (minimise_in_box if within else minimise)(program, warm_start, options)
    x, status, last, each = first.x, first.status, first.active, [active(first)]
    for objective, above in zip(model.objectives[1:], model.weighted_rows, strict=False):
        program = _keeping(program, above, x)._replace(H=objective.H, c=objective.c)
        found = minimise(program, last, options)
        each.append(active(found))
        good = (status == Status.CONVERGED) & (found.status == Status.CONVERGED)
        x, last = (
            jnp.where(good, found.x, x),
            jax.tree.map(lambda n, o, g=good: jnp.where(g, n, o), found.active, last),
        )
        # The displacement so far keeps all constraints: if one is not found that does, rounding is to blame.
        failed = jnp.where(found.status == Status.INFEASIBLE, Status.TIMEOUT, found.status)
        status = jnp.where(status == Status.CONVERGED, failed, status)
    return Descent(x, status.astype(jnp.int32), first, tuple(each))


def program_of(model: Linearization) -> Program:
    """The program of the highest level."""
    return Program(model.H, model.c, model.lower, model.upper, model.G, model.h, model.A, model.b)


def program_below(model: Linearization, level: int, minima: Sequence[jax.Array]) -> Program:
    """The program of a level, given the minima (nv,) of those above it."""
    program = program_of(model)
    for above, x in zip(model.weighted_rows[:level], minima, strict=True):
        program = _keeping(program, above, x)
    return program._replace(H=model.objectives[level].H, c=model.objectives[level].c)


def _keeping(program: Program, above: WeightedRows, x: jax.Array) -> Program:
    """The program with what a level above wanted held where `x` has it."""
    matrix, right = above.matrix, above.matrix @ x
    if program.A is not None and program.b is not None:
        matrix, right = jnp.concatenate([program.A, matrix]), jnp.concatenate([program.b, right])
    return program._replace(A=matrix, b=right)
