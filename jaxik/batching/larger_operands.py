"""Which operand of a maximum or minimum is the larger or smaller one, as its derivative asks.

JAX's derivative of max(x, y) follows the operands that are equal to the maximum. XLA computes a value again in each
kernel that reads it, here by a multiplication and an addition, there by both in one, which rounds otherwise: then
neither operand is equal to the maximum, and the derivative is zero, as it was of joints that an acceleration limit
held. Compared with each other, one of them is the larger one however they are rounded.
"""

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend.core import Jaxpr, Literal

# Primitive -> what an operand that is the result is, compared with the other one.
CHOSEN_BY = {lax.max_p: lax.ge_p, lax.min_p: lax.le_p}


def with_operands_compared(jaxpr: Jaxpr) -> Jaxpr:
    """The same function, that compares the operands of maxima and minima with each other, not with the result.

    In `jaxpr` itself: what loops and branches compare stays.
    """
    chosen = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if eqn.primitive in CHOSEN_BY}
    return jaxpr.replace(eqns=[_compared(eqn, chosen) if eqn.primitive is lax.eq_p else eqn for eqn in jaxpr.eqns])


def _compared(eqn: Any, chosen: dict[Any, Any]) -> Any:
    """An equality, or what it says of the two operands of one of the maxima or minima `chosen`, by their result."""
    for operand, result in (eqn.invars, eqn.invars[::-1]):
        source = None if isinstance(result, Literal) else chosen.get(result)
        place = None if source is None else _place(operand, source.invars)
        if source is not None and place is not None:
            return eqn.replace(primitive=CHOSEN_BY[source.primitive], invars=[operand, source.invars[1 - place]])
    return eqn


def _place(operand: Any, operands: Sequence[Any]) -> int | None:
    """Where an operand is among others; a number is wherever an equal one is."""
    for i, other in enumerate(operands):
        numbers = isinstance(operand, Literal) and isinstance(other, Literal)
        if operand is other or (numbers and operand.val == other.val):
            return i
    return None
