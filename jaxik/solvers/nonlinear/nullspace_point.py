"""A configuration as a lower level sees it: all levels to second order, and what those above need of it.

A level above is fulfilled, or as good as it gets: its gradient is zero, and stays so along the null space of its exact
Hessian. The Hessian of the level below, along that space, is that of the Lagrangian: the levels above pull with the
multipliers that balance its gradient (Absil, Mahony, Sepulchre: Optimization Algorithms on Matrix Manifolds, 2008,
section 5.5).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.linalg import largest
from jaxik.solvers.nonlinear.box import Box, box_curvature, to_box
from jaxik.solvers.nonlinear.formulation import Formulation, curvature, errors, evaluate, met, rows
from jaxik.solvers.nonlinear.nullspace_projector import (
    Above,
    RowSpaces,
    nullspace_projector,
    pressed,
    restoration_step,
    row_spaces,
    solve_within,
)
from jaxik.solvers.nonlinear.scaling import limits_at, not_held, step_scale

# In float32 and float64: farther off than this, in units of step, the levels above are restored before anything else,
# and one that stays farther from fulfilled is out of reach.
FAR = (1e-4, 1e-6)
# A level whose gradient is below this share of what its residual could give is as good as it gets.
STILL = 1e-3
# A Jacobian whose squares are below this share of what the residual bends has vanished.
VANISHED = 1e-3
# Levels above are restored where no more than this share of what they are off is left.
KEPT = 1e-3


class Point(NamedTuple):
    """An evaluated configuration, its levels in units of step and of their largest curvature.

    Attributes:
      q (nq,), errors, cost (): the configuration, what tasks report there, the cost of the level.
      unit (): by which the level's derivatives are divided.
      gradients (k + 1, n), hessians (k + 1, n, n): of the levels above and, last, of the level itself, whose Hessian is
        the Lagrangian's.
      gauss_newton (n, n): of the level.
      lost (k,): which levels above are out of reach: stationary, but not fulfilled, here or where the steps began.
      needs: what the levels above need of the coordinates that they leave where they are.
      tight: the same, but for the coordinates that the level presses against their bound: where its steps begin. Held
        by the first step that would cross it instead, a joint could stay at a bound that the level pulls it from.
      restore (n,): the step that restores the levels above.
      keeps (): whether it leaves the coordinates of `tight` where they are. Let go, they would come back from their
        bound, by little each time that the level presses them against it.
      reduced (n,): the level's gradient along what they leave free, once they are restored.
      least (k,): what the levels above cost then, to second order, less what the third may be, and less what leaves
        them fulfilled.
      met: whether the tasks of the levels above meet their tolerances.
    """

    q: jax.Array
    errors: Any
    cost: jax.Array
    unit: jax.Array
    gradients: jax.Array
    hessians: jax.Array
    gauss_newton: jax.Array
    lost: jax.Array
    needs: RowSpaces
    tight: RowSpaces
    restore: jax.Array
    keeps: jax.Array
    reduced: jax.Array
    least: jax.Array
    met: jax.Array

    @property
    def above(self) -> Above:
        return Above(self.gradients[:-1], self.hessians[:-1], self.lost)

    @property
    def merit(self) -> jax.Array:
        """The level's cost where the levels above are restored, to first order."""
        return self.cost + self.unit * jnp.sum(self.gradients[-1] * self.restore)

    @property
    def slope(self) -> jax.Array:
        return jnp.sqrt(jnp.sum(self.reduced * self.reduced))

    @property
    def off(self) -> jax.Array:
        """Largest entry of the step that restores the levels above."""
        return jnp.max(jnp.abs(self.restore))


def empty_point(q: jax.Array, errors: Any, size: int, level: int) -> Point:
    """A configuration (nq,) of so many coordinates, not yet evaluated: its cost is infinite, the rest means nothing."""
    dtype = q.dtype
    zero, no = jnp.zeros((), dtype), jnp.zeros((), bool)
    spaces = jnp.zeros((level, size, size), dtype)
    nothing = RowSpaces(jnp.ones(size, bool), spaces, spaces)
    return Point(
        q=q,
        errors=errors,
        cost=jnp.full((), jnp.inf, dtype),
        unit=zero,
        gradients=jnp.zeros((level + 1, size), dtype),
        hessians=jnp.zeros((level + 1, size, size), dtype),
        gauss_newton=jnp.zeros((size, size), dtype),
        lost=jnp.zeros(level, bool),
        needs=nothing,
        tight=nothing,
        restore=jnp.zeros(size, dtype),
        keeps=no,
        reduced=jnp.zeros(size, dtype),
        least=jnp.zeros(level, dtype),
        met=no,
    )


def evaluate_point(prepared: Formulation, q: jax.Array, level: int, lost: jax.Array) -> Point:
    """A configuration (nq,), evaluated for `level`; of the levels above, `lost` (k,) are known to be out of reach."""
    kin, scale, moving = evaluate(prepared, q), step_scale(prepared), prepared.moving
    limits, names = limits_at(prepared, q), prepared.levels

    def curved(j: int, pull: jax.Array) -> jax.Array:
        """Second derivative of pull . residual, of level j, for a constant pull, along coordinates that do not bend."""
        matrix = curvature(prepared, kin, names[j], pull)
        return scale[:, None] * to_box(moving, limits, to_box(moving, limits, matrix).T) * scale

    def bent(gradient: jax.Array) -> jax.Array:
        return scale[:, None] * box_curvature(prepared.robot, moving, q, limits, gradient) * scale

    models = [rows(prepared, kin, names[j]) for j in range(level + 1)]
    jacobians = [to_box(moving, limits, model.jacobian) * scale for model in models]
    squares, curves = [j.T @ j for j in jacobians], [curved(j, model.residual) for j, model in enumerate(models)]
    units = [unit_of(square, curve) for square, curve in zip(squares, curves, strict=True)]
    gradients = [model.residual @ j / unit for model, j, unit in zip(models, jacobians, units, strict=True)]
    squares, curves = ([x / unit for x, unit in zip(xs, units, strict=True)] for xs in (squares, curves))
    above, leans = Above([], [], []), list[jax.Array]()

    def balanced(needs: RowSpaces | None, j: int, pulled: jax.Array, hessian: jax.Array) -> tuple[jax.Array, ...]:
        """Gradient and Hessian of level j, and of the levels above it that pull so that they balance it.

        And how much it would cost more were these fulfilled, to first order.
        """
        total, lean = models[j].residual @ models[j].jacobian / units[j], jnp.zeros((), q.dtype)
        for k in reversed(range(j)):
            assert needs is not None
            balance = -solve_within(needs, k, pulled)
            pulled = pulled + above.hessians[k] @ balance
            pull = jacobians[k] @ balance / units[k]
            # Of a level out of reach that is one of three parts of its third derivatives, and worse than nothing: where
            # the others cancel it, as a wrist that the level does not need, steps went a tenth of the way.
            hessian = hessian + jnp.where(above.lost[k], 0, curved(k, pull))
            total = total + pull @ models[k].jacobian
            lean = lean + jnp.where(above.lost[k], 0, pull @ models[k].residual)
        # A limit bends coordinates as far as all levels together press against it.
        return pulled, hessian + bent(total), lean

    for j, (model, unit) in enumerate(zip(models[:-1], units[:-1], strict=True)):
        needs = _pressing(above, limits, gradients[j]) if j else None
        pulled, hessian, lean = balanced(needs, j, gradients[j], squares[j] + curves[j])
        leans.append(lean)
        still, weight = is_stationary(model.residual, pulled, unit, limits)
        above.lost.append(lost[j] | (still & (weight > threshold(q.dtype))))
        # In float32 rounding would lead far over what hardly curves. In float64 solutions would be off by 1e-8.
        rounding = 0 if q.dtype == jnp.float64 else jnp.finfo(q.dtype).eps * weight
        blurred = above.lost[j] & (jnp.abs(pulled) <= rounding)
        above.gradients.append(jnp.where(blurred, 0, pulled))
        # What is left of a residual that can reach zero would bend directions that the level leaves free.
        above.hessians.append(jnp.where(still | lost[j], hessian, squares[j]))

    hessian = squares[-1] + curves[-1]
    needs, tight, restore, keeps = _restoring(above, limits, gradients[-1], hessian)
    pulled, hessian, _ = balanced(tight, level, gradients[-1] + hessian @ restore, hessian)
    reduced = nullspace_projector(tight) @ pulled
    found, heights = errors(prepared, kin), jnp.stack(units[:-1])
    costs = jnp.stack([0.5 * model.residual @ model.residual for model in models])
    restored = costs[:-1] + heights * (jnp.stack(leans) + 0.5 * jnp.stack(above.gradients) @ restore)
    return Point(
        q=q,
        errors=found,
        cost=costs[-1],
        unit=units[-1],
        gradients=jnp.stack([*above.gradients, gradients[-1]]),
        hessians=jnp.stack([*above.hessians, hessian]),
        gauss_newton=squares[-1],
        lost=jnp.stack(above.lost),
        needs=needs,
        tight=tight,
        restore=restore,
        keeps=keeps,
        reduced=jnp.where(not_held(limits, reduced), reduced, 0),
        least=restored - heights * (jnp.max(jnp.abs(restore)) ** 3 + 0.5 * threshold(q.dtype) ** 2),
        met=jnp.all(jnp.stack([met(prepared, found, names[j]) for j in range(level)])),
    )


def _pressing(above: Above, limits: Box, gradient: jax.Array) -> RowSpaces:
    """What levels above need of the coordinates that neither they nor a gradient below them press against a bound."""
    needs = row_spaces(above, ~pressed(limits, above))
    return row_spaces(above, needs.free & not_held(limits, nullspace_projector(needs) @ gradient))


def _restoring(
    above: Above, limits: Box, gradient: jax.Array, hessian: jax.Array
) -> tuple[RowSpaces, RowSpaces, jax.Array, jax.Array]:
    """What a `Point` knows of its levels above: needs, tight, restore and keeps."""
    needs = row_spaces(above, ~pressed(limits, above))
    restore = restoration_step(needs, above)
    # Coordinates that the level itself presses against a bound balance it there, and not the levels above.
    pulled = gradient + hessian @ restore
    tight = row_spaces(above, needs.free & not_held(limits, nullspace_projector(needs) @ pulled))
    kept = restoration_step(tight, above)

    def left_over(gradient: jax.Array, hessian: jax.Array) -> jax.Array:
        """Whether a level is as good as stationary after the tight step, on the coordinates that are free."""
        before, after = (jnp.max(jnp.abs(jnp.where(needs.free, g, 0))) for g in (gradient, gradient + hessian @ kept))
        return after <= KEPT * before

    keeps = jnp.all(jnp.stack([left_over(*level) for level in zip(above.gradients, above.hessians, strict=True)]))
    return needs, tight, jnp.where(keeps, kept, restore), keeps


def unit_of(square: jax.Array, curve: jax.Array) -> jax.Array:
    """A level's largest curvature (), of J'J (n, n), or where J vanishes of what its residual adds (n, n).

    Of a position along one axis, out of reach, J is zero where the arm is stretched along that.
    """
    return largest(jnp.maximum(jnp.diagonal(square), VANISHED * jnp.abs(jnp.diagonal(curve))))


def is_stationary(
    residual: jax.Array, gradient: jax.Array, unit: jax.Array, limits: Box
) -> tuple[jax.Array, jax.Array]:
    """Whether a level is as good as it gets, and how far from fulfilled (), in units of step.

    Args:
      residual (m,), gradient (n,): of the level, the latter divided by `unit` (), its largest curvature.
    """
    pull = jnp.where(not_held(limits, gradient), gradient, 0)
    weight = jnp.sqrt(jnp.sum(residual**2) / unit)
    return jnp.max(jnp.abs(pull)) <= STILL * weight, weight


def threshold(dtype: Any) -> float:
    """Of `FAR`, what floats of this type can tell."""
    return FAR[dtype == jnp.float64]
