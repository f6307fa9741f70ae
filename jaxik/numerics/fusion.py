"""Barriers against recomputation: values that XLA would fuse into each of their consumers are computed once."""

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def materialize_mask(condition: jax.Array) -> jax.Array:
    """The same condition, through the square root of zero or one.

    XLA fuses the computation of a condition with the selection, and repeats it for each selected entry; operations that
    it considers expensive, such as roots, it does not repeat.
    """
    return jnp.sqrt(condition.astype(jnp.float32)) > 0.5


def materialize(x: jax.Array) -> jax.Array:
    """The same numbers, through a division, which XLA does not repeat either; so are tangents and cotangents."""
    return _materialize.bind(x)


def _through_division(x: jax.Array) -> jax.Array:
    return x / jnp.maximum(jnp.minimum(x, 0.5), 1)


# A primitive, since a division of tangents by what depends on these has no transpose, and a division by what all
# tangents share is a product to XLA, which it repeats.
_materialize = Primitive("materialize")
_materialize.def_abstract_eval(lambda x: x)
_materialize.def_impl(jax.jit(_through_division))
mlir.register_lowering(_materialize, mlir.lower_fun(_through_division, multiple_results=False))
ad.deflinear2(_materialize, lambda cotangent, x: [materialize(cotangent)])
batching.defvectorized(_materialize)


def divide_once(x: jax.Array, unit: jax.Array) -> jax.Array:
    """`x / unit` for a unit () that all entries share, computed once.

    XLA would multiply by its inverse, again in each consumer; a divisor for each entry prevents that.
    """
    return x / (unit + 0 * x)
