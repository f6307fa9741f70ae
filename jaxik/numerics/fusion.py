"""Numbers that XLA computes once, and keeps, where it would compute them again in each of their consumers."""

import jax
import jax.numpy as jnp

from jaxik.numerics.custom_rules import pure_rule


def materialize_mask(condition: jax.Array) -> jax.Array:
    """The same condition, behind a root of zero or one.

    XLA fuses what a condition is made of with what it selects, and computes it again for each entry that is selected;
    but what it deems expensive, as it does roots, it keeps.
    """
    return jnp.sqrt(condition.astype(jnp.float32)) > 0.5


@jax.custom_jvp
def materialize(x: jax.Array) -> jax.Array:
    """The same numbers, behind a division, which XLA does not compute again either."""
    return divide_by_one(x, x)


@materialize.defjvp
@pure_rule
def _kept_along(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    value = materialize(*primals)
    return value, divide_by_one(*tangents, value)


def divide_by_one(x: jax.Array, other: jax.Array) -> jax.Array:
    """The same numbers, forwards and backwards, divided by a one that is made of other ones.

    These may be infinite, but not NaN, which makes NaN of any.
    """
    return x / (1 + 0 * jnp.clip(jax.lax.stop_gradient(other), -1, 1))


def divide_once(x: jax.Array, unit: jax.Array) -> jax.Array:
    """`x / unit` for a number that is the same for all entries, computed once.

    XLA would multiply by its inverse, and do so again in each consumer; so every entry is given a divisor of its own.
    """
    return x / (unit + 0 * x)
