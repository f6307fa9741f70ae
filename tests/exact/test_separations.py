"""Derivatives of how far boxes are apart, in both modes, as users compile them."""

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.collision.boxes import Box
from jaxik.collision.separating_axes import separation
from jaxik.numerics.vectors import from_array


def test_reverse_derivatives_of_boxes_that_meet_with_edges_are_forward_ones() -> None:
    """Along an edge at a right angle to the axis, rounding has the sign, which XLA may compute anew in each kernel."""
    count, rng = 400, np.random.default_rng(0)
    away = rng.normal(size=(count, 3))
    given = rng.normal(size=(count, 12))
    given[:, :3], given[:, 3:6] = 0, 0.17 * away / np.linalg.norm(away, axis=1, keepdims=True)

    def box(center: jax.Array, turn: jax.Array, half: list[float]) -> Box:
        x, y, z = (from_array(axis) for axis in jaxlie.SO3.exp(turn).as_matrix().T)
        return Box(from_array(center), (x, y, z), from_array(jnp.asarray(half)))

    def apart(given: jax.Array) -> jax.Array:
        first, second, turn, other = given.reshape(4, 3)
        return separation(box(first, turn, [0.04, 0.06, 0.05]), box(second, other, [0.08] * 3)).distance

    forward, reverse = (jax.jit(jax.vmap(mode(apart)))(given) for mode in (jax.jacfwd, jax.jacrev))
    np.testing.assert_allclose(reverse, forward, atol=1e-12)
