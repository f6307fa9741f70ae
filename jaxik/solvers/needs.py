"""What higher levels need of a configuration's coordinates, and what they leave free."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.limits.box import Box
from jaxik.linalg import row_space, solve_positive
from jaxik.solvers.measure import not_held


class Needs(NamedTuple):
    """What the levels above need, one after the other, of the coordinates that are free.

    Attributes:
      free (n,): no level above, and no bound, holds the coordinate.
      spaces (k, n, n): projectors onto what each level needs of what those above it leave free.
      hessians (k, n, n): of each level, in its space.
    """

    free: jax.Array
    spaces: jax.Array
    hessians: jax.Array


def pressed(limits: Box, gradients: Any, hessians: Any) -> jax.Array:
    """Coordinates (n,) that some level above presses against their bound: released, they would move visibly."""
    dtype = limits.lower.dtype
    visible = 1e-9 if dtype == jnp.float64 else 1e-4
    pressed = jnp.zeros(limits.lower.shape, bool)
    for gradient, hessian in zip(gradients, hessians, strict=True):
        push = gradient / jnp.maximum(jnp.diagonal(hessian), rank_threshold(dtype))
        pressed = pressed | ((jnp.abs(push) > visible) & ~not_held(limits, push))
    return pressed


def rank_threshold(dtype: Any) -> float:
    """Curvature, relative to a level's largest, below which a direction counts as free of it."""
    return 1e-10 if dtype == jnp.float64 else 1e-5


def needs_of(hessians: Any, free: jax.Array) -> Needs:
    """What levels with these Hessians (n, n) need of the free coordinates."""
    left = jnp.diag(jnp.where(free, 1, 0).astype(hessians[0].dtype))
    spaces, inside = [], []
    for hessian in hessians:
        own = jnp.where(free[:, None] & free[None, :], hessian, 0)
        if spaces:
            own = left @ own @ left
        spaces.append(row_space(own, rank_threshold(own.dtype)))
        inside.append(own)
        left = left - spaces[-1]
    return Needs(free, jnp.stack(spaces), jnp.stack(inside))


def left_free(needs: Needs) -> jax.Array:
    """Projector (n, n) onto what no level above needs, of the free coordinates."""
    return jnp.diag(jnp.where(needs.free, 1, 0).astype(needs.spaces.dtype)) - jnp.sum(needs.spaces, axis=0)


def solve_within(needs: Needs, level: int, right: jax.Array) -> jax.Array:
    """The solution (n,) of hessian @ x = right within the space of a level, the rest of both left out."""
    space, eye = needs.spaces[level], jnp.eye(right.shape[0], dtype=right.dtype)
    # Outside of its space, and where the level hardly curves, nothing moves.
    filled = needs.hessians[level] + (1 + 1e-3 * rank_threshold(right.dtype)) * eye - space
    inner, _ = solve_positive(filled, space @ right)
    return space @ inner


def restored_by(needs: Needs, gradients: Any, hessians: Any) -> jax.Array:
    """The step (n,) to where all levels above are stationary."""
    total = jnp.zeros_like(gradients[0])
    for level, (gradient, hessian) in enumerate(zip(gradients, hessians, strict=True)):
        total = total - solve_within(needs, level, gradient + hessian @ total)
    return total
