"""Barriers against recomputation: values that XLA would fuse into each of their consumers are computed once."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def materialize_mask(condition: jax.Array) -> jax.Array:
    """The same condition, computed once and not for each entry that it selects."""
    return materialize(condition.astype(jnp.float32)) > 0.5


def materialize(x: jax.Array) -> jax.Array:
    """The same numbers, through a division by one, as XLA repeats no division; so are tangents and cotangents."""
    return _materialize.bind(x)


def _through_division(x: jax.Array) -> jax.Array:
    """`x` over a one that XLA takes for two where `x` is less than itself. LLVM does not: no instruction is left."""
    return x / lax.select(lax.lt(x, x), lax.full_like(x, 2), lax.full_like(x, 1))


# A primitive, since a division of tangents by what depends on these has no transpose, and a division by what all
# tangents share is a product to XLA, which it repeats.
_materialize = Primitive("materialize")
_materialize.def_abstract_eval(lambda x: x)
_materialize.def_impl(jax.jit(_through_division))
mlir.register_lowering(_materialize, mlir.lower_fun(_through_division, multiple_results=False))
ad.deflinear2(_materialize, lambda cotangent, x: [materialize(cotangent)])
batching.defvectorized(_materialize)


def divide_once(x: jax.Array, unit: jax.Array) -> jax.Array:
    """`x / unit` for a unit () that all entries share, inverted once: XLA would do so again for each entry."""
    return materialize(x * materialize(1 / unit))
