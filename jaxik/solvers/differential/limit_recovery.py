"""The way back inside limits, where what they demand together is more than there is.

A joint outside its limits and a frame behind its plane each ask for the fastest way back that the others allow. Two
such demands, or one of them and a constraint, may contradict each other although there is a way back for all; a step
would stand still for ever. Each is met to the same share then, somewhat less than the largest possible, which would
leave no choice.
"""

import jax
import jax.numpy as jnp

from jaxik.core.status import Status
from jaxik.limits.base import Bounds, Rows
from jaxik.qp_solver import Program, minimise

# Of the largest share that there is a way for.
LEFT = 0.9
# In float32 and float64: what a displacement, in units of the largest demand, costs beside the share, and how near to 1
# a share is all of it. Joints that move a frame a little move a thousandfold, squared, of what it has to.
COST, ALL = (1e-6, 1e-10), (1e-3, 1e-5)


def recovery_scale_of(box: Bounds, rows: Rows | None, held: Rows | None) -> jax.Array:
    """How much () of what bounds and rows demand of a displacement (n,) may be met: 1 where all of it can.

    Args:
      box: lower and upper (n,); one above, or below, zero is a demand.
      rows: G (k, n) and h (k,); an h below zero is a demand.
      held: A (p, n) and b (p,) of constraints.
    """
    lower, upper = box
    dtype, size = lower.dtype, lower.shape[0]
    if rows is None and held is None:
        return jnp.ones((), dtype)
    box, rows, held = jax.lax.stop_gradient((box, rows, held))
    double = dtype == jnp.float64
    lower, upper = box
    unit = jnp.max(jnp.maximum(-upper, lower), initial=0)
    if rows is not None:
        unit = jnp.maximum(unit, jnp.max(-rows[1], initial=0))
    demanded = unit > 0
    unit = jnp.where(demanded, unit, 1)
    lower, upper = lower / unit, upper / unit
    # One more variable, the share.
    back = jnp.where(upper < 0, 1.0, jnp.where(lower > 0, -1.0, 0.0)).astype(dtype)
    demand = jnp.maximum(jnp.maximum(-upper, lower), 0)
    matrix = jnp.concatenate([jnp.diag(back), jnp.where(back != 0, demand, 0)[:, None]], axis=1)
    most = jnp.where(back != 0, 0, 1).astype(dtype)
    if rows is not None:
        own, right = rows[0], rows[1] / unit
        matrix = jnp.concatenate([matrix, jnp.concatenate([own, -jnp.minimum(right, 0)[:, None]], axis=1)])
        most = jnp.concatenate([most, jnp.maximum(right, 0)])
    one, zero = jnp.ones(1, dtype), jnp.zeros(1, dtype)
    program = Program(
        H=jnp.diag(jnp.concatenate([jnp.full(size, COST[double], dtype), one])),
        c=jnp.concatenate([jnp.zeros(size, dtype), -one]),
        lower=jnp.concatenate([jnp.minimum(lower, 0), zero]),
        upper=jnp.concatenate([jnp.maximum(upper, 0), one]),
        G=matrix,
        h=most,
        A=None if held is None else jnp.pad(held[0], ((0, 0), (0, 1))),
        b=None if held is None else held[1] / unit,
    )

    def largest() -> jax.Array:
        found = minimise(program, None, None)
        share = found.x[-1]
        # Where constraints contradict each other, that is for the step itself to say. In float32 one program in a
        # hundred runs out of iterations, its share right to a thousandth.
        found_one = (found.status == Status.CONVERGED) | (found.status == Status.TIMEOUT)
        every = (share > 1 - ALL[double]) | ~found_one
        return jnp.where(every, 1, LEFT * share)

    return jax.lax.cond(demanded, largest, lambda: jnp.ones((), dtype))
