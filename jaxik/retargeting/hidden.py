"""Moments in which a body is not seen, such as those of a marker that was hidden: its pose is not finite there."""

from typing import Any

import jax
import jax.numpy as jnp


def seen(poses: Any) -> jax.Array:
    """Whether poses, `jaxlie.SE3` or positions, are finite (*batch)."""
    (array,) = jax.tree.leaves(poses)
    return jnp.all(jnp.isfinite(array), axis=-1)


def chosen(where: jax.Array, poses: Any, others: Any) -> Any:
    """`poses` where a mask (*batch) says so, else others: of their kind, or a number."""
    (other,) = jax.tree.leaves(others)
    return jax.tree.map(lambda x: jnp.where(where[..., None], x, jnp.asarray(other, x.dtype)), poses)


@jax.jit
def held(poses: Any) -> Any:
    """Poses (T, *batch); where they are not seen the last that was, ahead of all the first; NaN if there is none."""
    known = seen(poses)
    time = jnp.arange(known.shape[0]).reshape(-1, *(1,) * (known.ndim - 1))
    before = jax.lax.cummax(jnp.where(known, time, -1))
    index = jnp.where(before < 0, jnp.argmax(known, axis=0), before)[..., None]
    return jax.tree.map(lambda x: jnp.take_along_axis(x, index, axis=0), poses)
