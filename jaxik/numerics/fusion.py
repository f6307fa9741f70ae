"""Barriers against recomputation: values that XLA would fuse into each of their consumers are computed once."""

import jax
import jax.numpy as jnp

from jaxik.numerics.custom_rules import pure_rule


def materialize_mask(condition: jax.Array) -> jax.Array:
    """The same condition, through the square root of zero or one.

    XLA fuses the computation of a condition with the selection, and repeats it for each selected entry; operations that
    it considers expensive, such as roots, it does not repeat.
    """
    return jnp.sqrt(condition.astype(jnp.float32)) > 0.5


@jax.custom_jvp
def materialize(x: jax.Array) -> jax.Array:
    """The same numbers, through a division, which XLA does not repeat either."""
    return divide_by_one(x, x)


@materialize.defjvp
@pure_rule
def _materialize_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    value = materialize(*primals)
    return value, divide_by_one(*tangents, value)


def divide_by_one(x: jax.Array, other: jax.Array) -> jax.Array:
    """The same numbers, forwards and backwards, divided by what is 1 whatever `other` is, but not NaN."""
    return x / jnp.maximum(jnp.minimum(jax.lax.stop_gradient(other), 0.5), 1)


def divide_once(x: jax.Array, unit: jax.Array) -> jax.Array:
    """`x / unit` for a unit () that all entries share, computed once.

    XLA would multiply by its inverse, again in each consumer; a divisor for each entry prevents that.
    """
    return x / (unit + 0 * x)
