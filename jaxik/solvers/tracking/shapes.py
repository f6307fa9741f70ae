"""Named shapes of paths in a plane, and how far along one a motion from rest to rest is."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# Shapes by name: the phase, 2 pi a lap, to where the path is in its plane, in sizes, from where it starts.
SHAPES: dict[str, Callable[[jax.Array], tuple[jax.Array, jax.Array]]] = {
    "line": lambda phase: ((1 - jnp.cos(phase)) / 2, jnp.zeros_like(phase)),
    "circle": lambda phase: (jnp.cos(phase) - 1, jnp.sin(phase)),
    "lemniscate": lambda phase: (jnp.sin(phase), jnp.sin(phase) * jnp.cos(phase)),
}


def eased(times: jax.Array, ramp: float) -> jax.Array:
    """Shares of the way at times (T,): from rest to a constant speed, and to rest again, at a constant acceleration.

    Args:
      times: increasing, the last of them is the duration [s].
      ramp: how long it speeds up, and how long it slows down [s].
    """
    duration = times[-1]
    left, late = jnp.maximum(ramp - times, 0), jnp.maximum(times - (duration - ramp), 0)
    return (times - ramp / 2 + (left**2 - late**2) / (2 * ramp)) / (duration - ramp)
