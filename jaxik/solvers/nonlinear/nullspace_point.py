"""Evaluate a configuration for a lower level: all levels to second order, with the null space of those above.

A level above is fulfilled or stationary: its gradient is zero, and stays zero along the null space of its exact
Hessian. The Hessian of the level below, along that space, is that of its Lagrangian, with the multipliers of the levels
above that balance its gradient (Absil, Mahony, Sepulchre: Optimization Algorithms on Matrix Manifolds, 2008,
section 5.5).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.numerics.linalg import largest
from jaxik.solvers.nonlinear.box import Box, box_curvature, to_box
from jaxik.solvers.nonlinear.formulation import Formulation, Rows, curvature, errors, evaluate, met, rows
from jaxik.solvers.nonlinear.nullspace_projector import (
    HigherLevels,
    RowSpaces,
    active_bounds,
    nullspace_projector,
    restoration_step,
    row_spaces,
    solve_within,
)
from jaxik.solvers.nonlinear.scaling import limits_at, not_held, step_scale

# In float32 and float64, in units of step: if the levels above are farther off than this, they are restored before
# anything else; a stationary one that is farther from fulfilled is unreachable.
FAR = (1e-4, 1e-6)
# A level is stationary if its gradient is below this fraction of the largest that its residual could have.
STATIONARY = 1e-3
# A Jacobian has vanished if its squares are below this fraction of the curvature of the residual.
VANISHED = 1e-3
# The levels above are restored if no more than this fraction of their gradient is left.
RESTORED = 1e-3


class Point(NamedTuple):
    """An evaluated configuration, its levels in units of step and of their largest curvature.

    Attributes:
      q (nq,), errors, cost (): the configuration, what tasks report there, the cost of the level.
      unit (): largest curvature of the level, by which its derivatives are divided.
      gradients (k + 1, n), hessians (k + 1, n, n): of the levels above and, last, of the level itself, whose Hessian is
        that of its Lagrangian.
      gauss_newton (n, n): J'J of the level.
      unreachable (k,): mask of levels above that are stationary but not fulfilled, here or where the steps began.
      relaxed: row spaces of the levels above, with those bounds active that the levels above hold.
      active_set: the same, with those bounds active as well that the level itself holds: where its steps begin. If the
        first step that would cross a bound activated it instead, a joint could stay at one that the level releases.
      restoration (n,): the step that restores the levels above.
      keeps_active_set (): whether it leaves the coordinates of `active_set` where they are. Released, they would come
        back from their bound, by little each time that the level moves them onto it.
      reduced_gradient (n,): the level's gradient in the null space of the levels above, once these are restored.
      predicted_costs (k,): lower estimates of the costs of the levels above then: to second order, less the most that
        the third may be, and less a distance at which they count as fulfilled.
      met: whether the tasks of the levels above meet their tolerances.
    """

    q: jax.Array
    errors: Any
    cost: jax.Array
    unit: jax.Array
    gradients: jax.Array
    hessians: jax.Array
    gauss_newton: jax.Array
    unreachable: jax.Array
    relaxed: RowSpaces
    active_set: RowSpaces
    restoration: jax.Array
    keeps_active_set: jax.Array
    reduced_gradient: jax.Array
    predicted_costs: jax.Array
    met: jax.Array

    @property
    def above(self) -> HigherLevels:
        return HigherLevels(self.gradients[:-1], self.hessians[:-1], self.unreachable)

    @property
    def merit(self) -> jax.Array:
        """The level's cost once the levels above are restored, to first order."""
        return self.cost + self.unit * jnp.sum(self.gradients[-1] * self.restoration)

    @property
    def reduced_gradient_norm(self) -> jax.Array:
        return jnp.sqrt(jnp.sum(self.reduced_gradient * self.reduced_gradient))

    @property
    def restoration_size(self) -> jax.Array:
        """Largest entry of the step that restores the levels above."""
        return jnp.max(jnp.abs(self.restoration))


def empty_point(q: jax.Array, errors: Any, size: int, level: int) -> Point:
    """A configuration (nq,) of `size` coordinates, not yet evaluated: its cost is infinite, the rest meaningless."""
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
        unreachable=jnp.zeros(level, bool),
        relaxed=nothing,
        active_set=nothing,
        restoration=jnp.zeros(size, dtype),
        keeps_active_set=no,
        reduced_gradient=jnp.zeros(size, dtype),
        predicted_costs=jnp.zeros(level, dtype),
        met=no,
    )


class _Expansion(NamedTuple):
    """All levels down to one at a configuration, an entry each; of the Jacobians in box coordinates and units of step.

    Attributes:
      kin, q (nq,), limits, scale (n,): the configuration, its box, and the units of step.
      models: residual (m,) and Jacobian (m, nv); `jacobians` (m, n).
      units (): largest curvature of each level.
    """

    prepared: Formulation
    kin: Kinematics
    q: jax.Array
    limits: Box
    scale: jax.Array
    models: list[Rows]
    jacobians: list[jax.Array]
    units: list[jax.Array]

    def residual_hessian(self, level: int, cotangent: jax.Array) -> jax.Array:
        """Second derivative (n, n) of cotangent . residual of a level, for straight coordinates."""
        matrix = curvature(self.prepared, self.kin, self.prepared.levels[level], cotangent)
        moving = self.prepared.moving
        return self.scale[:, None] * to_box(moving, self.limits, to_box(moving, self.limits, matrix).T) * self.scale

    def coordinate_curvature(self, gradient: jax.Array) -> jax.Array:
        """Second derivative (n, n) of a cost with gradient (nv,) due to the curvature of the coordinates."""
        robot, moving = self.prepared.robot, self.prepared.moving
        return self.scale[:, None] * box_curvature(robot, moving, self.q, self.limits, gradient) * self.scale

    def lagrangian(
        self, above: HigherLevels, spaces: RowSpaces | None, level: int, gradient: jax.Array, hessian: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Gradient (n,) and Hessian (n, n) of the Lagrangian of a level, from those of its cost.

        And by how much () its cost would rise, to first order, were the levels above it fulfilled.
        """
        model = self.models[level]
        total, rise = model.residual @ model.jacobian / self.units[level], jnp.zeros((), self.q.dtype)
        for k in reversed(range(level)):
            assert spaces is not None
            multiplier = -solve_within(spaces, k, gradient)
            gradient = gradient + above.hessians[k] @ multiplier
            cotangent = self.jacobians[k] @ multiplier / self.units[k]
            # Of an unreachable level that is one of three parts of its third derivatives, and worse than nothing: where
            # the others cancel it, as for a wrist that the level does not need, steps went a tenth of the way.
            hessian = hessian + jnp.where(above.unreachable[k], 0, self.residual_hessian(k, cotangent))
            total = total + cotangent @ self.models[k].jacobian
            rise = rise + jnp.where(above.unreachable[k], 0, cotangent @ self.models[k].residual)
        # At a limit coordinates curve in proportion to the force of all levels together.
        return gradient, hessian + self.coordinate_curvature(total), rise


def evaluate_point(prepared: Formulation, q: jax.Array, level: int, unreachable: jax.Array) -> Point:
    """Evaluate a configuration (nq,) for a level; `unreachable` (k,) are levels above that are known to be so."""
    kin, scale = evaluate(prepared, q), step_scale(prepared)
    limits, names = limits_at(prepared, q), prepared.levels
    models = [rows(prepared, kin, names[j]) for j in range(level + 1)]
    jacobians = [to_box(prepared.moving, limits, model.jacobian) * scale for model in models]
    expansion = _Expansion(prepared, kin, q, limits, scale, models, jacobians, [])
    squares = [j.T @ j for j in jacobians]
    curves = [expansion.residual_hessian(j, model.residual) for j, model in enumerate(models)]
    units = [unit_of(square, curve) for square, curve in zip(squares, curves, strict=True)]
    expansion = expansion._replace(units=units)
    gradients = [model.residual @ j / unit for model, j, unit in zip(models, jacobians, units, strict=True)]
    squares, curves = ([x / unit for x, unit in zip(xs, units, strict=True)] for xs in (squares, curves))
    above, rises = _higher_levels(expansion, gradients, squares, curves, unreachable)

    hessian = squares[-1] + curves[-1]
    relaxed, active_set, restoration, keeps_active_set = _restoration(above, limits, gradients[-1], hessian)
    gradient, hessian, _ = expansion.lagrangian(
        above, active_set, level, gradients[-1] + hessian @ restoration, hessian
    )
    reduced_gradient = nullspace_projector(active_set) @ gradient
    reported, heights = errors(prepared, kin), jnp.stack(units[:-1])
    costs = jnp.stack([0.5 * model.residual @ model.residual for model in models])
    restored = costs[:-1] + heights * (jnp.stack(rises) + 0.5 * jnp.stack(above.gradients) @ restoration)
    return Point(
        q=q,
        errors=reported,
        cost=costs[-1],
        unit=units[-1],
        gradients=jnp.stack([*above.gradients, gradients[-1]]),
        hessians=jnp.stack([*above.hessians, hessian]),
        gauss_newton=squares[-1],
        unreachable=jnp.stack(above.unreachable),
        relaxed=relaxed,
        active_set=active_set,
        restoration=restoration,
        keeps_active_set=keeps_active_set,
        reduced_gradient=jnp.where(not_held(limits, reduced_gradient), reduced_gradient, 0),
        predicted_costs=restored - heights * (jnp.max(jnp.abs(restoration)) ** 3 + 0.5 * threshold(q.dtype) ** 2),
        met=jnp.all(jnp.stack([met(prepared, reported, names[j]) for j in range(level)])),
    )


def _higher_levels(
    expansion: _Expansion,
    gradients: list[jax.Array],
    squares: list[jax.Array],
    curves: list[jax.Array],
    unreachable: jax.Array,
) -> tuple[HigherLevels, list[jax.Array]]:
    """The levels above the last one, and the rise of each one's cost, as `_Expansion.lagrangian` has it."""
    above, rises, dtype = HigherLevels([], [], []), list[jax.Array](), expansion.q.dtype
    for j, (model, unit) in enumerate(zip(expansion.models[:-1], expansion.units[:-1], strict=True)):
        spaces = _active_row_spaces(above, expansion.limits, gradients[j]) if j else None
        gradient, hessian, rise = expansion.lagrangian(above, spaces, j, gradients[j], squares[j] + curves[j])
        rises.append(rise)
        stationary, distance = is_stationary(model.residual, gradient, unit, expansion.limits)
        above.unreachable.append(unreachable[j] | (stationary & (distance > threshold(dtype))))
        # In float32 rounding would lead far along directions of little curvature. In float64 this would leave solutions
        # off by 1e-8.
        rounding = 0 if dtype == jnp.float64 else jnp.finfo(dtype).eps * distance
        zero = above.unreachable[j] & (jnp.abs(gradient) <= rounding)
        above.gradients.append(jnp.where(zero, 0, gradient))
        # The remainder of a residual that can reach zero would add curvature in the null space of the level.
        above.hessians.append(jnp.where(stationary | unreachable[j], hessian, squares[j]))
    return above, rises


def _active_row_spaces(above: HigherLevels, limits: Box, gradient: jax.Array) -> RowSpaces:
    """Row spaces of the levels above, with bounds active that they or a gradient (n,) below them hold."""
    spaces = row_spaces(above, ~active_bounds(limits, above))
    return row_spaces(above, spaces.free & not_held(limits, nullspace_projector(spaces) @ gradient))


def _restoration(
    above: HigherLevels, limits: Box, gradient: jax.Array, hessian: jax.Array
) -> tuple[RowSpaces, RowSpaces, jax.Array, jax.Array]:
    """Relaxed row spaces, active set, restoration and `keeps_active_set` of a `Point`."""
    relaxed = row_spaces(above, ~active_bounds(limits, above))
    restoration = restoration_step(relaxed, above)
    # The multipliers of bounds that the level itself holds balance it there, not those of the levels above.
    restored_gradient = gradient + hessian @ restoration
    active_set = row_spaces(above, relaxed.free & not_held(limits, nullspace_projector(relaxed) @ restored_gradient))
    constrained = restoration_step(active_set, above)

    def restored(gradient: jax.Array, hessian: jax.Array) -> jax.Array:
        """Whether the constrained step makes a level stationary in the coordinates that are free."""
        after = gradient + hessian @ constrained
        before, after = (jnp.max(jnp.abs(jnp.where(relaxed.free, g, 0))) for g in (gradient, after))
        return after <= RESTORED * before

    keeps = jnp.all(jnp.stack([restored(*level) for level in zip(above.gradients, above.hessians, strict=True)]))
    return relaxed, active_set, jnp.where(keeps, constrained, restoration), keeps


def unit_of(square: jax.Array, curve: jax.Array) -> jax.Array:
    """Largest curvature () of a level: of J'J (n, n), or where J vanishes, of the curvature of its residual (n, n).

    J is zero, for example, of an unreachable position along one axis along which the arm is stretched.
    """
    return largest(jnp.maximum(jnp.diagonal(square), VANISHED * jnp.abs(jnp.diagonal(curve))))


def is_stationary(
    residual: jax.Array, gradient: jax.Array, unit: jax.Array, limits: Box
) -> tuple[jax.Array, jax.Array]:
    """Whether a level is stationary (), and its distance () from fulfilled, in units of step.

    Args:
      residual (m,), gradient (n,): of the level, the latter divided by `unit` (), its largest curvature.
    """
    free_gradient = jnp.where(not_held(limits, gradient), gradient, 0)
    distance = jnp.sqrt(jnp.sum(residual**2) / unit)
    return jnp.max(jnp.abs(free_gradient)) <= STATIONARY * distance, distance


def threshold(dtype: Any) -> float:
    """The entry of `FAR` for a dtype."""
    return FAR[dtype == jnp.float64]
