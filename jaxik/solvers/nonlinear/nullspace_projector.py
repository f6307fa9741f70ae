"""Row spaces of higher levels at one configuration, and their common null space."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import row_space, solve_positive
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.scaling import not_held

# Until an unreachable level is restored, its Hessian is off by its third derivative along the way there: directions
# with less curvature than this many times its gradient count as its null space. With 0, 1, 3 and 10, 16, 12, 6 and 10
# of 64 stretched Pandas with a posture below took more than 100 steps.
HESSIAN_ERROR = 3.0


class HigherLevels(NamedTuple):
    """The levels above, an entry each, in units of step and of their largest curvature.

    Attributes:
      gradients (n,), hessians (n, n): of each level.
      unreachable (): whether it is stationary and not fulfilled.
    """

    gradients: Any
    hessians: Any
    unreachable: Any


class RowSpaces(NamedTuple):
    """Row spaces of the levels above, among the coordinates that are free.

    Attributes:
      free (n,): mask of coordinates that are not held at a bound.
      spaces (k, n, n): projectors onto the row space of each level in the null space of those above it.
      hessians (k, n, n): of each level, in that null space.
    """

    free: jax.Array
    spaces: jax.Array
    hessians: jax.Array


def active_bounds(limits: Box, above: HigherLevels) -> jax.Array:
    """Mask (n,) of bounds that hold some level above: released, their coordinates would move visibly."""
    dtype = limits.lower.dtype
    visible = 1e-9 if dtype == jnp.float64 else 1e-4
    active = jnp.zeros(limits.lower.shape, bool)
    for gradient, hessian, unreachable in zip(*above, strict=True):
        displacement = gradient / jnp.maximum(jnp.diagonal(hessian), rank_threshold(dtype))
        # Of an unreachable level gradients of rounding are zero. Others count, however small: with coordinates that are
        # coupled to them they may move a thousand times as far as alone.
        least = jnp.where(unreachable, 0, visible)
        active = active | ((jnp.abs(displacement) > least) & ~not_held(limits, displacement))
    return active


def rank_threshold(dtype: Any) -> float:
    """Curvature, relative to a level's largest, below which a direction is in its null space.

    In float32 four roundings: with 1e-5, 35 and 39 of 1,024 Pandas and UR5es with a posture below a pose took more than
    100 steps, creeping along directions of small curvature of the pose until they were at its tolerance; now 4 and 10.
    """
    return 1e-10 if dtype == jnp.float64 else 5e-7


def row_spaces(above: HigherLevels, free: jax.Array) -> RowSpaces:
    """Row spaces of the levels above, among the free coordinates (n,)."""
    projector = jnp.diag(jnp.where(free, 1, 0).astype(above.gradients[0].dtype))
    threshold = rank_threshold(projector.dtype)
    spaces, hessians = [], []
    for gradient, hessian, unreachable in zip(*above, strict=True):
        projected = jnp.where(free[:, None] & free[None, :], hessian, 0)
        if spaces:
            projected = projector @ projected @ projector
        uncertain = jnp.where(unreachable, HESSIAN_ERROR * jnp.max(jnp.abs(projector @ gradient)), 0)
        spaces.append(row_space(projected, jnp.maximum(threshold, uncertain)))
        hessians.append(projected)
        projector = projector - spaces[-1]
    return RowSpaces(free, jnp.stack(spaces), jnp.stack(hessians))


def nullspace_projector(within: RowSpaces) -> jax.Array:
    """Projector (n, n) onto the null space of all levels above, among the free coordinates."""
    return jnp.diag(jnp.where(within.free, 1, 0).astype(within.spaces.dtype)) - jnp.sum(within.spaces, axis=0)


def solve_within(within: RowSpaces, level: int, right: jax.Array) -> jax.Array:
    """Solve hessian @ x = right (n,) within the row space of a level."""
    space, eye = within.spaces[level], unit_matrix(right.shape[0], dtype=right.dtype)
    # The identity elsewhere, and a little of it here, keeps the matrix regular where the level hardly has curvature.
    regular = within.hessians[level] + (1 + 1e-3 * rank_threshold(right.dtype)) * eye - space
    solution, _ = solve_positive(regular, space @ right)
    return space @ solution


def restoration_step(within: RowSpaces, above: HigherLevels) -> jax.Array:
    """The Newton step (n,) to where all levels above are stationary."""
    total = jnp.zeros_like(above.gradients[0])
    for level, (gradient, hessian) in enumerate(zip(above.gradients, above.hessians, strict=True)):
        total = total - solve_within(within, level, gradient + hessian @ total)
    return total
