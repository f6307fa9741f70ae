"""Entries at indices that are never negative: what a negative one would mean is three more operations to compile each.

A seventh of the operations of a step were such.
"""

import jax
from jax import lax


def entry(x: jax.Array, k: jax.Array, axis: int = 0) -> jax.Array:
    """Entry `k` () of an axis, which goes."""
    return lax.dynamic_index_in_dim(x, k, axis, keepdims=False, allow_negative_indices=False)


def with_entry(x: jax.Array, k: jax.Array, value: jax.Array) -> jax.Array:
    """`x` with another entry `k` () along its first axis."""
    return lax.dynamic_update_index_in_dim(x, value, k, 0, allow_negative_indices=False)


def entries(x: jax.Array, which: jax.Array) -> jax.Array:
    """Entries `which` (...) along the first axis."""
    return x.at[which].get(wrap_negative_indices=False)


def with_entries(x: jax.Array, which: jax.Array, values: jax.Array) -> jax.Array:
    """`x` with other entries `which` (W,) along its first axis; one out of range is dropped."""
    return x.at[which].set(values, mode="drop", wrap_negative_indices=False)
