"""Where feet stand, and targets that keep them there: a recording, scaled, has feet that slide."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.retargeting.link_map import position_of


def contacts(poses: Any, dt: Any, *, height: Any = 0.05, speed: Any = 0.2) -> jax.Array:
    """When a foot stands: near its lowest height, and slow.

    Args:
      poses: of the foot, as it was recorded, with time as the first axis: `jaxlie.SE3` (T, *batch), or positions
        (T, *batch, 3) [m], z up.
      dt: time from one pose to the next [s].
      height: above the lowest one of all [m], below which it may stand.
      speed: [m/s], below which it stands.

    Returns:
      A mask (T, *batch).

    Raises:
      JaxikError: for shapes, fewer than two poses, and numbers below zero.
    """
    position = _positions("poses", poses)
    if position.shape[0] < 2:
        raise JaxikError(f"poses are two or more over time, not {position.shape[0]}")
    dt, height, speed = (
        validation.positive("dt", dt),
        validation.number("height", height),
        validation.number("speed", speed),
    )
    moved = jnp.linalg.norm(jnp.gradient(position, axis=0), axis=-1) / dt
    up = position[..., 2]
    return (up - jnp.nanmin(up, axis=0) <= height) & (moved <= speed)


def planted(targets: Any, mask: Any) -> Any:
    """Targets whose positions stay while a mask says so: at the mean of each such stretch.

    Between two stretches the shift of one turns into that of the next, linearly in time, so that nothing jumps.

    Args:
      targets: with time as the first axis: `jaxlie.SE3` (T, *batch), or positions (T, *batch, 3).
      mask (T, *batch): of bool; or (T,) for all.

    Returns:
      What `targets` is; orientations are as before.

    Raises:
      JaxikError: for shapes, and a mask that is not of bool.
    """
    position, mask = _positions("targets", targets), jnp.asarray(mask)
    shapes = dict.fromkeys((position.shape[:-1], position.shape[:1]))
    if mask.shape not in shapes or mask.dtype != bool:
        allowed = ", or for all ".join(map(str, shapes))
        raise JaxikError(f"mask is of bool and has shape {allowed}, not {mask.dtype} of shape {mask.shape}")
    mask = jnp.broadcast_to(mask.reshape(*mask.shape, *(1,) * (position.ndim - 1 - mask.ndim)), position.shape[:-1])
    count = position.shape[0]
    rows = position.reshape(count, -1, 3), mask.reshape(count, -1)
    moved = jax.vmap(_planted, in_axes=1, out_axes=1)(*rows).reshape(position.shape)
    if not isinstance(targets, jaxlie.SE3):
        return moved
    return jaxlie.SE3(jnp.concatenate([targets.wxyz_xyz[..., :4], moved], axis=-1))


def _planted(position: jax.Array, mask: jax.Array) -> jax.Array:
    """Positions (T, 3) of one foot, by its mask (T,); what is not finite is in no stretch."""
    count, known = mask.shape[0], jnp.all(jnp.isfinite(position), axis=-1)
    mask, seen = mask & known, jnp.where(known[:, None], position, 0)
    begins = mask & ~jnp.concatenate([jnp.zeros(1, bool), mask[:-1]])
    # Stretches count from 1; in 0 is what is in none.
    stretch = jnp.where(mask, jnp.cumsum(begins), 0)
    total = jax.ops.segment_sum(seen, stretch, count + 1)
    size = jax.ops.segment_sum(jnp.ones(count, position.dtype), stretch, count + 1)
    shift = (total / jnp.maximum(size, 1)[:, None])[stretch] - seen
    time = jnp.arange(count)
    before = jax.lax.cummax(jnp.where(mask, time, -1))
    after = jax.lax.cummin(jnp.where(mask, time, count), reverse=True)
    # Before the first stretch its shift, after the last one that.
    first, last = jnp.where(before < 0, after, before), jnp.where(after >= count, before, after)
    share = ((time - first) / jnp.maximum(last - first, 1)).astype(position.dtype)[:, None]
    return position + jnp.where(jnp.any(mask), (1 - share) * shift[first] + share * shift[last], 0)


def _positions(name: str, value: Any) -> jax.Array:
    position = position_of(value)
    if position.ndim < 2 or position.shape[-1] != 3:
        given = f"an array of shape {position.shape}"
        raise JaxikError(f"{name} is a jaxlie.SE3 (T, *batch), or positions (T, *batch, 3), not {given}")
    return position
