"""Scale the demands of violated limits so that they are feasible together.

A joint outside its limits and a frame behind its plane each demand the fastest return that the others allow. Two such
demands, or one of them and a constraint, may contradict each other although all can return more slowly; the step would
stand still for ever. All demands are then multiplied by one scale, somewhat less than the largest feasible one, which
would leave the tasks no freedom.
"""

import jax
import jax.numpy as jnp

from jaxik.core.status import Status
from jaxik.limits.base import Bounds, Rows
from jaxik.qp_solver import Program, minimise

# The fraction of the largest feasible scale that is used.
MARGIN = 0.9
# In float32 and float64: the cost of a displacement, in units of the largest demand, beside that of the scale, and how
# near to 1 a scale counts as 1. Joints that hardly move a frame move a thousand times as far, which the cost squares.
COST, NEAR_ONE = (1e-6, 1e-10), (1e-3, 1e-5)


def recovery_scale_of(box: Bounds, rows: Rows | None, constraints: Rows | None) -> jax.Array:
    """The feasible scale () of all demands on a displacement (n,); 1 where they are feasible as they are.

    Args:
      box: lower and upper (n,); one above, or below, zero is a demand.
      rows: G (k, n) and h (k,); an h below zero is a demand.
      constraints: A (p, n) and b (p,).
    """
    lower, upper = box
    dtype, size = lower.dtype, lower.shape[0]
    if rows is None and constraints is None:
        return jnp.ones((), dtype)
    box, rows, constraints = jax.lax.stop_gradient((box, rows, constraints))
    double = dtype == jnp.float64
    lower, upper = box
    unit = jnp.max(jnp.maximum(-upper, lower), initial=0)
    if rows is not None:
        unit = jnp.maximum(unit, jnp.max(-rows[1], initial=0))
    demanded = unit > 0
    unit = jnp.where(demanded, unit, 1)
    lower, upper = lower / unit, upper / unit
    # One more variable: the scale.
    back = jnp.where(upper < 0, 1.0, jnp.where(lower > 0, -1.0, 0.0)).astype(dtype)
    demand = jnp.maximum(jnp.maximum(-upper, lower), 0)
    matrix = jnp.concatenate([jnp.diag(back), jnp.where(back != 0, demand, 0)[:, None]], axis=1)
    offset = jnp.where(back != 0, 0, 1).astype(dtype)
    if rows is not None:
        normals, right = rows[0], rows[1] / unit
        matrix = jnp.concatenate([matrix, jnp.concatenate([normals, -jnp.minimum(right, 0)[:, None]], axis=1)])
        offset = jnp.concatenate([offset, jnp.maximum(right, 0)])
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
        solved = (solution.status == Status.CONVERGED) | (solution.status == Status.TIMEOUT)
        full = (scale > 1 - NEAR_ONE[double]) | ~solved
        return jnp.where(full, 1, MARGIN * scale)

    return jax.lax.cond(demanded, largest, lambda: jnp.ones((), dtype))
