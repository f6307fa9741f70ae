"""Products of small matrices as sums over products of their entries, for one element by itself.

XLA's CPU backend compiles each product with a vector, of matrices up to 3 x 3, and of batches of these, as a kernel of
its own, however often the same shapes occur: some 10 ms of the processor each, of which `solve` of a Stewart platform
had 130. What fuses to equal sums is compiled once.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex_core
from jax.extend.core.primitives import closed_call_p

# Products of more entries of a matrix stay: a sum over each row of 41 x 41 takes 0.5 us longer.
SMALL = 32 * 32


def with_sums(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of arrays, its small products written as sums, inside of loops and branches as well."""

    def written(*arguments: Any) -> Any:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        out = jex_core.jaxpr_as_fun(_Rewriting().closed(closed))(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return written


class _Rewriting:
    """One program; what it calls in several places stays one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def closed(self, closed: jex_core.ClosedJaxpr) -> jex_core.ClosedJaxpr:
        # The old one is kept, so that its identity stays its own.
        _, new = self._known.get(id(closed), (None, None))
        if new is None:
            new = closed.replace(jaxpr=self._jaxpr(closed.jaxpr))
            self._known[id(closed)] = closed, new
        return new

    def _jaxpr(self, jaxpr: Any) -> Any:
        return jaxpr.replace(eqns=[self._equation(eqn) for eqn in jaxpr.eqns])

    def _equation(self, eqn: Any) -> Any:
        if eqn.primitive.name == "dot_general" and _is_small(eqn):
            call = _sum_of_products(
                tuple((x.aval.shape, x.aval.dtype) for x in eqn.invars),
                eqn.params["dimension_numbers"],
                eqn.outvars[0].aval.dtype,
            )
            return eqn.replace(primitive=closed_call_p, params={"call_jaxpr": call})
        params = {name: self._param(value) for name, value in eqn.params.items()}
        return eqn.replace(params=params) if any(params[n] is not eqn.params[n] for n in params) else eqn

    def _param(self, value: Any) -> Any:
        if isinstance(value, jex_core.ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, tuple) and value and all(isinstance(x, jex_core.ClosedJaxpr) for x in value):
            new = tuple(map(self.closed, value))
            make = getattr(value, "_make", tuple)  # those of linear solves have names
            return make(new)
        return value


def _is_small(eqn: Any) -> bool:
    """Whether XLA would compile a product as a program of its own, and a sum takes as long."""
    left, right = (x.aval for x in eqn.invars)
    (left_contract, _), (batch, _) = eqn.params["dimension_numbers"]
    terms = int(np.prod([left.shape[i] for i in left_contract]))
    own = [x.size // max(1, terms * int(np.prod([left.shape[i] for i in batch]))) for x in (left, right)]
    library = not batch and min(own) > 1 and max(*own, terms) > 3
    return not library and max(left.size, right.size) <= SMALL and jnp.issubdtype(left.dtype, jnp.floating)


@functools.cache
def _sum_of_products(operands: Sequence[Any], dimension_numbers: Any, dtype: Any) -> jex_core.ClosedJaxpr:
    """The product of two arrays of these shapes and dtypes."""
    (left_contract, right_contract), (left_batch, right_batch) = dimension_numbers

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        left, right = left.astype(dtype), right.astype(dtype)
        left_own = [i for i in range(left.ndim) if i not in (*left_contract, *left_batch)]
        right_own = [i for i in range(right.ndim) if i not in (*right_contract, *right_batch)]
        left = lax.transpose(left, (*left_batch, *left_own, *left_contract))
        right = lax.transpose(right, (*right_batch, *right_own, *right_contract))
        batch, after = len(left_batch), len(left_batch) + len(left_own)
        left = lax.expand_dims(left, range(after, after + len(right_own)))
        right = lax.expand_dims(right, range(batch, after))
        return jnp.sum(left * right, axis=tuple(range(after + len(right_own), left.ndim)))

    return jax.make_jaxpr(product)(*(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in operands))
