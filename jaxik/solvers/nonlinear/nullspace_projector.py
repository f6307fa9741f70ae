"""What higher levels need of a configuration's coordinates, and what they leave free."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.linalg import row_space, solve_positive
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.scaling import not_held

# Until a level out of reach is restored, its Hessian is off by its third derivative along the way there: what curves
# less than so many times its gradient counts as free. With 0, 1, 3 and 10, 16, 12, 6 and 10 of 64 stretched Pandas with
# a posture below took more than 100 steps.
UNSURE = 3.0


class Above(NamedTuple):
    """The levels above, in units of step and of their largest curvature, an entry each.

    Attributes:
      gradients (n,), hessians (n, n): of each level.
      lost (): whether it is out of reach.
    """

    gradients: Any
    hessians: Any
    lost: Any


class RowSpaces(NamedTuple):
    """What the levels above need, one after the other, of the coordinates that are free.

    Attributes:
      free (n,): no level above, and no bound, holds the coordinate.
      spaces (k, n, n): projectors onto what each level needs of what those above it leave free.
      hessians (k, n, n): of each level, in its space.
    """

    free: jax.Array
    spaces: jax.Array
    hessians: jax.Array


def pressed(limits: Box, above: Above) -> jax.Array:
    """Coordinates (n,) that some level above presses against their bound: released, they would move visibly."""
    dtype = limits.lower.dtype
    visible = 1e-9 if dtype == jnp.float64 else 1e-4
    pressed = jnp.zeros(limits.lower.shape, bool)
    for gradient, hessian in zip(above.gradients, above.hessians, strict=True):
        push = gradient / jnp.maximum(jnp.diagonal(hessian), rank_threshold(dtype))
        pressed = pressed | ((jnp.abs(push) > visible) & ~not_held(limits, push))
    return pressed


def rank_threshold(dtype: Any) -> float:
    """Curvature, relative to a level's largest, below which a direction counts as free of it.

    In float32 four roundings: with 1e-5, 35 and 39 of 1,024 Pandas and UR5es with a posture below a pose crept along
    directions that the pose holds a little, until they were at its tolerance, for 100 steps; now 4 and 10.
    """
    return 1e-10 if dtype == jnp.float64 else 5e-7


def row_spaces(above: Above, free: jax.Array) -> RowSpaces:
    """What the levels above need of the free coordinates."""
    left = jnp.diag(jnp.where(free, 1, 0).astype(above.gradients[0].dtype))
    threshold = rank_threshold(left.dtype)
    spaces, inside = [], []
    for gradient, hessian, lost in zip(*above, strict=True):
        own = jnp.where(free[:, None] & free[None, :], hessian, 0)
        if spaces:
            own = left @ own @ left
        unsure = jnp.where(lost, UNSURE * jnp.max(jnp.abs(left @ gradient)), 0)
        spaces.append(row_space(own, jnp.maximum(threshold, unsure)))
        inside.append(own)
        left = left - spaces[-1]
    return RowSpaces(free, jnp.stack(spaces), jnp.stack(inside))


def nullspace_projector(needs: RowSpaces) -> jax.Array:
    """Projector (n, n) onto what no level above needs, of the free coordinates."""
    return jnp.diag(jnp.where(needs.free, 1, 0).astype(needs.spaces.dtype)) - jnp.sum(needs.spaces, axis=0)


def solve_within(needs: RowSpaces, level: int, right: jax.Array) -> jax.Array:
    """The solution (n,) of hessian @ x = right within the space of a level, the rest of both left out."""
    space, eye = needs.spaces[level], jnp.eye(right.shape[0], dtype=right.dtype)
    # Outside of its space, and where the level hardly curves, nothing moves.
    filled = needs.hessians[level] + (1 + 1e-3 * rank_threshold(right.dtype)) * eye - space
    inner, _ = solve_positive(filled, space @ right)
    return space @ inner


def restoration_step(needs: RowSpaces, above: Above) -> jax.Array:
    """The step (n,) to where all levels above are stationary."""
    total = jnp.zeros_like(above.gradients[0])
    for level, (gradient, hessian) in enumerate(zip(above.gradients, above.hessians, strict=True)):
        total = total - solve_within(needs, level, gradient + hessian @ total)
    return total
