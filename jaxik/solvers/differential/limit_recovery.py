"""Scale the demands of violated limits so that they are feasible together.

A joint outside its limits and a frame behind its plane each demand the fastest return that the others allow. Two such
demands, or one of them and a constraint, may contradict each other although all can return more slowly; the step would
stand still for ever. All demands are then multiplied by one scale, somewhat less than the largest feasible one, which
would leave the tasks no freedom.

Shapes that overlap, of which some push others deeper, share something else: the depth that is left, the same for all.
At a scale of zero all may be as deep as the deepest is. So a step raises the least distance as far as it goes, where
shares of each demand would stop at the first two that contradict each other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.status import Status
from jaxik.limits.base import Bounds, Rows
from jaxik.limits.combine import MergedRows
from jaxik.numerics.fusion import materialize
from jaxik.qp_solver import Program, minimise

# The fraction of the largest feasible scale that is used.
MARGIN = 0.9
# In float32 and float64: the cost of a displacement, in units of the largest demand, beside that of the scale, and how
# near to 1 a scale counts as 1. Joints that hardly move a frame move a thousand times as far, which the cost squares.
COST, NEAR_ONE = (1e-6, 1e-10), (1e-3, 1e-5)
# What a displacement shows of the scale that comes with it; the rest is rounding, for which the margin leaves room.
TRUSTED = 0.95
# How far a displacement may pass a row and count as feasible, in units of the largest demand: in float32 and float64.
PASSED = 1e-5, 1e-8


class Recovery(NamedTuple):
    """Demands that are feasible together.

    Attributes:
      scale (): of all demands; 1 where they are feasible as they are.
      box: lower and upper (n,).
      rows: G (k, n) and h (k,).
    """

    scale: jax.Array
    box: Bounds
    rows: Rows | None


def recovery_of(box: Bounds, rows: MergedRows | None, constraints: Rows | None) -> Recovery:
    """Scale demands on a displacement (n,) until they are feasible.

    Args:
      box: lower and upper (n,); one above, or below, zero is a demand.
      rows: an h below zero is a demand.
      constraints: A (p, n) and b (p,).
    """
    scale = _largest_scale(box, rows, constraints)
    lower, upper = box
    box = jnp.where(lower > 0, scale * lower, lower), jnp.where(upper < 0, scale * upper, upper)
    if rows is None:
        return Recovery(scale, box, None)
    demand = _demands(rows)
    by_depth = jnp.maximum(rows.right + (1 - scale) * demand, jnp.minimum(rows.least, 0))
    scaled = jnp.where(rows.by_depth, by_depth, scale * rows.right)
    # Else each kernel of the quadratic program that reads them would compute them again.
    lower, upper, right = map(materialize, (*box, jnp.where(rows.right < 0, scaled, rows.right)))
    return Recovery(scale, (lower, upper), (rows.matrix, right))


def _demands(rows: MergedRows) -> jax.Array:
    """By how much h (k,) of each row has to be relaxed for a scale of zero; zero where nothing is demanded."""
    deepest = jnp.max(-rows.right, where=rows.by_depth, initial=0)
    apart = rows.right + rows.beyond >= 0
    by_depth = jnp.where(apart, jnp.minimum(deepest, rows.beyond), deepest)
    return jnp.where(rows.right < 0, jnp.where(rows.by_depth, by_depth, -rows.right), 0)


def _largest_scale(box: Bounds, rows: MergedRows | None, constraints: Rows | None) -> jax.Array:
    """The feasible scale () of all demands."""
    lower, upper = box
    dtype, size = lower.dtype, lower.shape[0]
    if rows is None and constraints is None:
        return jnp.ones((), dtype)
    box, constraints = jax.lax.stop_gradient((box, constraints))
    double = dtype == jnp.float64
    lower, upper = box
    unit = jnp.max(jnp.maximum(-upper, lower), initial=0)
    if rows is not None:
        rows = jax.lax.stop_gradient(rows._replace(by_depth=None))._replace(by_depth=rows.by_depth)
        unit = jnp.maximum(unit, jnp.max(-rows.right, initial=0))
    demanded = unit > 0
    unit = jnp.where(demanded, unit, 1)
    lower, upper = lower / unit, upper / unit
    # One more variable: the scale.
    back = jnp.where(upper < 0, 1.0, jnp.where(lower > 0, -1.0, 0.0)).astype(dtype)
    demand = jnp.maximum(jnp.maximum(-upper, lower), 0)
    matrix = jnp.concatenate([jnp.diag(back), jnp.where(back != 0, demand, 0)[:, None]], axis=1)
    offset = jnp.where(back != 0, 0, 1).astype(dtype)
    if rows is not None:
        demands = _demands(rows) / unit
        matrix = jnp.concatenate([matrix, jnp.concatenate([rows.matrix, demands[:, None]], axis=1)])
        offset = jnp.concatenate([offset, rows.right / unit + demands])
    one, zero = jnp.ones(1, dtype), jnp.zeros(1, dtype)
    program = Program(
        H=jnp.diag(jnp.concatenate([jnp.full(size, COST[double], dtype), one])),
        c=jnp.concatenate([jnp.zeros(size, dtype), -one]),
        lower=jnp.concatenate([jnp.minimum(lower, 0), zero]),
        upper=jnp.concatenate([jnp.maximum(upper, 0), one]),
        G=matrix,
        h=offset,
        A=None if constraints is None else jnp.pad(constraints[0], ((0, 0), (0, 1))),
        b=None if constraints is None else constraints[1] / unit,
    )

    def largest() -> jax.Array:
        solution = minimise(program, None, None)
        scale = solution.x[-1]
        # If constraints contradict each other, the step itself reports it. In float32 one program in a hundred runs out
        # of iterations, with its scale right to a thousandth.
        solved, failed = (solution.status == Status.CONVERGED) | (solution.status == Status.TIMEOUT), 1
        if rows is not None and rows.by_depth.any():
            # Not so with shapes that overlap: a wrong scale would be INFEASIBLE for ever.
            certain = _certified(solution.x, (lower, upper), (matrix, offset))
            scale, failed = jnp.where(certain > TRUSTED * scale, scale, certain), 0
        return jnp.where(solved, jnp.where(scale > 1 - NEAR_ONE[double], 1, MARGIN * scale), failed)

    return jax.lax.cond(demanded, largest, lambda: jnp.ones((), dtype))


def _certified(x: jax.Array, box: Bounds, rows: Rows) -> jax.Array:
    """The largest scale () at which a displacement, all but the last of `x`, or part of it, meets the rows."""
    (matrix, offset), way = rows, jnp.clip(x[:-1], jnp.minimum(box[0], 0), jnp.maximum(box[1], 0))
    change, demand, most = matrix[:, :-1] @ way, matrix[:, -1], offset + PASSED[x.dtype == jnp.float64]
    # Standing still meets all of them at a scale of zero.
    beyond = change > most
    change = change * jnp.min(jnp.where(beyond, offset / jnp.where(beyond, change, 1), 1))
    return jnp.clip(jnp.min(jnp.where(demand > 0, (most - change) / jnp.where(demand > 0, demand, 1), 1)), 0, 1)
