"""The terms that an unreachable level adds to the Lagrangian of the last level.

Such a level does not keep its residual but the gradient g of its own Lagrangian: g = J' r + the sum of A' a over the
levels above it, which have the Jacobians A and the cotangents a. The last level has a multiplier m for g, so that the
Hessian of its own Lagrangian has a third derivative, along m. The cotangents a are unknowns of that Lagrangian: it is
stationary in them where A m = 0, and as the configuration moves by dx, g = 0 requires A' da = -(dg + H dx). Eliminating
both leaves the two products in `unreachable_terms`, and those in `UnreachableTerms.with_cotangent_changes`.

Pairs of shapes are linear in these terms: the third derivatives of their distances take more than half of the time that
it takes to compile the gradient of an arm's `solve` among obstacles with two levels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.constants import unit_matrix
from jaxik.solvers.nonlinear.active_pairs import any_active, with_linear_pairs
from jaxik.solvers.nonlinear.lagrangian import (
    WEAK,
    Levels,
    LevelsAt,
    active_bounds,
    balance,
    derivative_along,
    lagrangian_hessian,
)


class UnreachableTerms(NamedTuple):
    """The highest unreachable level, of p above the last, and its terms; zeros where there is none.

    Attributes:
      chosen (p,): one-hot index of the level.
      multiplier (n,): that of the last level for its gradient.
      hessian (n, n): of its Lagrangian.
      cotangents (m,): of the levels above it, an entry each, without the last one; so are the next two.
      cotangent_jacobians (m, n): derivatives of the cotangents by its gradient.
      jacobian_changes (m, n): derivatives of these levels' Jacobians along the multiplier.
    """

    chosen: jax.Array
    multiplier: jax.Array
    hessian: jax.Array
    cotangents: tuple[jax.Array, ...]
    cotangent_jacobians: tuple[jax.Array, ...]
    jacobian_changes: tuple[jax.Array, ...]

    def gradient(self, point: LevelsAt) -> jax.Array:
        """The gradient (n,) of its Lagrangian, for constant cotangents."""
        cotangents = _cotangents(self.chosen, self.cotangents, point)
        terms = (cotangent @ J for cotangent, J in zip(cotangents, point.boxed, strict=False))
        gradient = sum(terms, jnp.zeros_like(self.multiplier))
        return gradient + _pulls(self.chosen, point) * point.yielding_gradient() if point.yields else gradient

    def constrained_gradients(
        self, point: LevelsAt, gradients: Sequence[jax.Array]
    ) -> tuple[list[jax.Array], tuple[jax.Array, ...]]:
        """The levels' gradients where this level keeps its gradient, and A m (m,) of the levels above it."""
        local, none = self.gradient(point), jnp.zeros_like(self.multiplier)
        above = [jnp.where(c == 1, local, gradient) for c, gradient in zip(self.chosen, gradients, strict=False)]
        linear = with_linear_pairs(point)
        third = jax.lax.cond(
            jnp.any(self.chosen == 1), lambda: derivative_along(linear, self.multiplier, self.gradient), lambda: none
        )
        products = tuple(J @ self.multiplier for J in point.boxed[: len(self.jacobian_changes)])
        return [*above, gradients[-1] + third], products

    def with_cotangent_changes(self, gradients: Sequence[jax.Array], products: Sequence[jax.Array]) -> list[jax.Array]:
        """Changes of the levels' gradients with those of the cotangents, from changes of `constrained_gradients`."""
        *above, last = gradients
        local = _of_chosen(self.chosen, above)
        for by_gradient, of_jacobian, change in zip(
            self.cotangent_jacobians, self.jacobian_changes, products, strict=True
        ):
            last = last + (change @ by_gradient) @ self.hessian + (by_gradient @ local) @ of_jacobian
        return [*above, last]


def unreachable_terms(
    point: LevelsAt, above: Levels, inverses: Sequence[jax.Array], multipliers: Sequence[jax.Array]
) -> tuple[UnreachableTerms, jax.Array]:
    """The terms of the highest unreachable level, and what they add to the Hessian of the last level (n, n).

    Args:
      inverses (n, n): of the Hessians of the levels above the last, in their null spaces.
      multipliers (n,): of these levels, which balance the last one.
    """
    unreachable = jnp.stack(above.unreachable)
    chosen = (unreachable & (jnp.cumsum(unreachable) == 1)).astype(point.kin.q.dtype)
    higher = range(len(unreachable) - 1)
    cotangents = tuple(
        sum(
            (chosen[j] * above.cotangents[j][k] for j in range(k + 1, len(unreachable))),
            jnp.zeros_like(point.models[k].residual),
        )
        for k in higher
    )
    hessian, multiplier = _of_chosen(chosen, above.hessians), _of_chosen(chosen, multipliers)
    higher_inverses = [jnp.any(chosen[k + 1 :] == 1) * inverses[k] for k in higher]
    by_gradient, _ = balance(unit_matrix(hessian.shape[0], dtype=hessian.dtype), above.hessians[:-1], higher_inverses)
    cotangent_jacobians = tuple(J @ m for J, m in zip(point.boxed[: len(higher)], by_gradient, strict=True))

    def hessian_and_jacobians(at: LevelsAt) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        square = sum(c * (J.T @ J) for c, J in zip(chosen, at.boxed, strict=False))
        curve = lagrangian_hessian(at, _cotangents(chosen, cotangents, at), _pulls(chosen, at) == 1)
        return square + curve, tuple(at.boxed[: len(higher)])

    zeros = jnp.zeros_like(hessian), tuple(jnp.zeros_like(J) for J in point.boxed[: len(higher)])
    linear = with_linear_pairs(point)
    third, jacobian_changes = jax.lax.cond(
        jnp.any(unreachable), lambda: derivative_along(linear, multiplier, hessian_and_jacobians), lambda: zeros
    )
    mixed = sum(
        (change.T @ by @ hessian for change, by in zip(jacobian_changes, cotangent_jacobians, strict=True)),
        jnp.zeros_like(hessian),
    )
    terms = UnreachableTerms(chosen, multiplier, hessian, cotangents, cotangent_jacobians, jacobian_changes)
    return terms, third + mixed + mixed.T


def _of_chosen(chosen: jax.Array, entries: Sequence[jax.Array]) -> jax.Array:
    """The entry of the unreachable level, zeros where there is none."""
    return sum((c * x for c, x in zip(chosen, entries, strict=True)), jnp.zeros_like(entries[0]))


def _pulls(chosen: jax.Array, point: LevelsAt) -> jax.Array:
    """1 where what yields pulls at the unreachable level (), else 0."""
    return chosen[point.prepared.task_level]


def _cotangents(chosen: jax.Array, cotangents: Sequence[jax.Array], point: LevelsAt) -> list[jax.Array]:
    """Cotangents of the residuals of the levels above the last, in the Lagrangian of the unreachable one."""
    residuals = [c * model.residual for c, model in zip(chosen, point.models, strict=False)]
    return [*(r + cotangent for r, cotangent in zip(residuals, cotangents, strict=False)), residuals[-1]]


def has_neglected_terms(point: LevelsAt, above: Levels, terms: UnreachableTerms) -> jax.Array:
    """Whether derivatives neglect a term (): of a second unreachable level, of a ball at its limit, or of a pair."""
    prepared = point.prepared
    at_limit = active_bounds(point, _of_chosen(terms.chosen, above.gradients), terms.hessian, WEAK)
    balls = [prepared.moving.own.index(prepared.robot.topology.joints[j].v_index) for j in prepared.moving.balls]
    limited = jnp.any(jnp.asarray([at_limit[i] for i in balls], bool))
    pressed = any_active(prepared, sum(prepared.levels[:-1], ()))
    count = jnp.sum(jnp.stack(above.unreachable))
    return (count > 1) | ((count > 0) & (limited | pressed))
