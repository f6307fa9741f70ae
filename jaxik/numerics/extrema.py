"""The lesser and the greater of two numbers that are not NaN.

`jnp.minimum` is NaN where one of both is, which takes a processor three instructions more.
"""

import jax
import jax.numpy as jnp


def lesser(a: jax.Array, b: jax.Array) -> jax.Array:
    """The lesser of two; `b` where one is NaN."""
    return jnp.where(a < b, a, b)


def greater(a: jax.Array, b: jax.Array) -> jax.Array:
    """The greater of two; `b` where one is NaN."""
    return jnp.where(a > b, a, b)
