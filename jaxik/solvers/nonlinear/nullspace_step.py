"""The step of a lower level from a point: restoration of the levels above, and a Newton step in their null space."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import solve_positive
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.nullspace_point import Point
from jaxik.solvers.nonlinear.nullspace_projector import RowSpaces, nullspace_projector, restoration_step, row_spaces

# Where a level's Hessian has a negative curvature, the first of these, added to it, that leaves none and a step within
# the radius. With Gauss-Newton's in its place 84 of 128 Pandas took more than 100 steps from a saddle, not 3.
SHIFTS = 0.0, *(1e-4 * 4.0**k for k in range(11))
# Updates of the active set within a step; each adds the bounds that the step before would cross.
PASSES = 4


class Proposal(NamedTuple):
    """A step, in units of step.

    Attributes:
      move, tangent (n,): the whole step, and its part in the null space of the levels above.
      size (): largest entry of the step before bounds shorten it [rad or m].
      cut (): whether the tangent part was shortened to the radius.
      predicted (): predicted decrease of the level's cost.
      convex (): whether the Hessian is positive definite in the null space.
    """

    move: jax.Array
    tangent: jax.Array
    size: jax.Array
    cut: jax.Array
    predicted: jax.Array
    convex: jax.Array


class _Pass(NamedTuple):
    """One update of the active set.

    Attributes:
      spaces, restoration (n,): row spaces and restoration with the active bounds so far.
      passes (): updates so far, PASSES once no bound is crossed.
      tangent (n,), curvature (), decrease (): the Newton step, its curvature, and its product with the gradient.
      convex (): see `Proposal`.
    """

    spaces: RowSpaces
    restoration: jax.Array
    passes: jax.Array
    tangent: jax.Array
    curvature: jax.Array
    decrease: jax.Array
    convex: jax.Array


def propose(
    point: Point,
    third: jax.Array,
    limits: Box,
    scale: jax.Array,
    damping: jax.Array,
    radius: jax.Array,
    restoring: jax.Array,
) -> Proposal:
    """The step from a point.

    Coordinates that would leave a bound that they are at are fixed, and the rest solved again; the tangent part goes no
    further than to the next bound. Moved onto a bound far away, a coordinate would make the levels above infeasible.

    Args:
      third (n, n): added to the level's Hessian.
      damping (): added to it, too, as a multiple of the identity.
      radius (): the longest tangent part.
      restoring (): whether the step only restores the levels above.
    """
    above, model = point.above, (point.gradients[-1], point.hessians[-1] + third)
    lower, upper = limits.lower / scale, limits.upper / scale
    eye = unit_matrix(scale.shape[0], dtype=scale.dtype)
    close = 100 * jnp.finfo(scale.dtype).eps

    def update(state: _Pass) -> _Pass:
        spaces, restoration = state.spaces, state.restoration
        tangent, curvature, gradient, convex = _tangent_step(point, model, eye, state, damping, radius)
        tangent = jnp.where(restoring, 0, tangent)
        target = restoration + tangent
        leaving = spaces.free & (((lower >= -close) & (target < 0)) | ((upper <= close) & (target > 0)))

        def with_fixed() -> tuple[RowSpaces, jax.Array]:
            narrower = row_spaces(above, spaces.free & ~leaving)
            return narrower, restoration_step(narrower, above)

        more = jnp.any(leaving) & (state.passes < PASSES - 1)
        spaces, restoration = lax.cond(more, with_fixed, lambda: (spaces, restoration))
        count = jnp.where(more, state.passes + 1, PASSES)
        return _Pass(spaces, restoration, count, tangent, curvature, jnp.sum(gradient * tangent), convex)

    zero = jnp.zeros_like(point.cost)
    relaxed = restoring & ~point.keeps_active_set
    spaces = where(relaxed, point.relaxed, point.active_set)
    known = point.keeps_active_set | restoring
    restoration = lax.cond(known, lambda: point.restoration, lambda: restoration_step(spaces, above))
    first = _Pass(spaces, restoration, jnp.zeros((), jnp.int32), jnp.zeros_like(scale), zero, zero, jnp.ones((), bool))
    last = lax.while_loop(lambda state: state.passes < PASSES, update, first)
    return _within_bounds(point, last, lower, upper, scale, radius, close)


def _tangent_step(
    point: Point,
    model: tuple[jax.Array, jax.Array],
    eye: jax.Array,
    state: _Pass,
    damping: jax.Array,
    radius: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The Newton step (n,) of a model, its gradient and Hessian, in the null space.

    Returns:
      The step, its curvature (), the projected gradient (n,), and whether the model is convex ().
    """
    # The row spaces and fixed coordinates are filled up with the identity, as the gradient is zero there.
    projector = nullspace_projector(state.spaces)
    filled = (1 + damping) * eye - projector
    gradient = projector @ (model[0] + point.hessians[-1] @ state.restoration)

    def minimise(hessian: jax.Array, shift: jax.Array) -> tuple[jax.Array, jax.Array]:
        move, pivot = solve_positive(projector @ hessian @ projector + filled + shift * projector, -gradient)
        return projector @ move, pivot > 0

    def shifted() -> tuple[jax.Array, jax.Array]:
        # Below an unreachable level the exact Hessian lacks third derivatives.
        known = jnp.where(jnp.any(point.unreachable), point.gauss_newton, point.hessians[-1])
        moves, positive = jax.vmap(lambda shift: minimise(known, shift))(jnp.asarray(SHIFTS, gradient.dtype))
        fits = positive & (jnp.max(jnp.abs(moves), axis=1) <= radius)
        move = moves[jnp.where(jnp.any(fits), jnp.argmax(fits), len(SHIFTS) - 1)]
        return move, jnp.sum(move * (known @ move))

    exact, convex = minimise(model[1], jnp.zeros_like(damping))
    tangent, curvature = lax.cond(convex, lambda: (exact, jnp.sum(exact * (model[1] @ exact))), shifted)
    return tangent, curvature, gradient, convex


def _within_bounds(
    point: Point, state: _Pass, lower: jax.Array, upper: jax.Array, scale: jax.Array, radius: jax.Array, close: Any
) -> Proposal:
    """Shorten a step to the bounds (n,) and the radius."""
    restoration, tangent = jnp.clip(state.restoration, lower, upper), state.tangent
    room = jnp.where(tangent < 0, lower - restoration, upper - restoration)
    fraction = jnp.min(jnp.where(tangent != 0, room / jnp.where(tangent != 0, tangent, 1), 1))
    length = jnp.max(jnp.abs(tangent))
    cut = length > radius
    fraction = jnp.minimum(jnp.clip(fraction, 0, 1), jnp.where(cut, radius / jnp.where(cut, length, 1), 1))
    predicted = point.unit * (-fraction * state.decrease - 0.5 * fraction * fraction * state.curvature)
    move = jnp.clip(restoration + fraction * tangent, lower, upper)
    # A fixed coordinate within rounding of its bound goes onto it: derivatives need to know the active bounds.
    fixed = ~state.spaces.free
    move = jnp.where(fixed & (upper <= close), upper, jnp.where(~state.spaces.free & (lower >= -close), lower, move))
    kept = fraction * tangent
    size = jnp.max(jnp.abs(scale * (restoration + tangent)))
    return Proposal(move, kept, size, cut, predicted, state.convex)


def where(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)
