"""Lagrangians of all levels of a problem at one configuration.

Each level keeps its gradient zero in the null space of the levels above it; the multipliers of these balance the rest
of its gradient. A level that is unreachable has the Hessian of that Lagrangian, one that is fulfilled that of its
linearised residual.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import integrate
from jaxik.kinematics.reduced import apply_couplings
from jaxik.numerics.fusion import materialize
from jaxik.numerics.linalg import largest, pinv_psd
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.box import Box, box_curvature, from_box, to_box
from jaxik.solvers.nonlinear.formulation import Formulation, Rows, curvature, evaluate, hard_constraints, rows
from jaxik.solvers.nonlinear.hard_constraint import yielding
from jaxik.solvers.nonlinear.nullspace_point import is_stationary, unit_of
from jaxik.solvers.nonlinear.penalties import pull_of
from jaxik.solvers.nonlinear.scaling import limits_at, not_held

# In float32 and float64: distances and steps [rad or m] up to which a constraint is met, and from which on a level is
# clearly missed.
VISIBLE, FIRM = (1e-4, 1e-9), (1e-3, 1e-7)
# A bound is active if its joint, released, would move on by more than WEAK [rad or m], and weakly active up to STRONG.
# In float32 this distance is off by 4e-7 in 99 % of 4,096 solutions of a Panda, and by 2e-6 at most.
WEAK, STRONG = (4e-6, 1e-9), (1e-5, 1e-7)
# A bound is one that a solution is at up to this distance [rad or m].
NEAR = (1e-5, 1e-9)
# Curvature, relative to a level's largest, that counts as zero, so that the solution is not unique.
FLAT = (1e-5, 1e-10)


class LevelsAt(NamedTuple):
    """All levels to first order at one configuration, by degree of freedom (`models`) and box coordinate (`boxed`).

    Rows of constraints that yield are zero; `pull` has these with their constant forces in the place of residuals, and
    `slope` (n,) those of joint limits that yield. Both pull at the tasks of the highest priority.
    """

    prepared: Formulation
    kin: Kinematics
    limits: Box
    models: list[Rows]
    boxed: list[jax.Array]
    pull: Rows | None = None
    slope: jax.Array | None = None

    def gradient(self, level: int) -> jax.Array:
        """Gradient (n,) of a level's cost, with that of what yields."""
        gradient = self.models[level].residual @ self.boxed[level]
        return gradient + self.yielding_gradient() if self.yields_at(level) else gradient

    def yields_at(self, level: int) -> bool:
        """Whether something may yield, and pulls at a level then."""
        return self.yields and level % len(self.models) == self.prepared.task_level

    @property
    def yields(self) -> bool:
        return self.pull is not None or self.slope is not None

    def yielding_gradient(self) -> jax.Array:
        """Gradient (n,) of the penalties of what yields."""
        gradient = jnp.zeros_like(self.limits.lower) if self.slope is None else self.slope
        if self.pull is None:
            return gradient
        return gradient + self.pull.residual @ to_box(self.prepared.moving, self.limits, self.pull.jacobian)


def levels_at(prepared: Formulation, q: jax.Array) -> LevelsAt:
    """Evaluate all levels at a configuration (nq,)."""
    return _evaluate_levels(prepared, q, limits_at(prepared, q), prepared.levels)


def _evaluate_levels(prepared: Formulation, q: jax.Array, limits: Box, levels: Sequence[Level]) -> LevelsAt:
    kin = evaluate(prepared, q)
    models = [rows(prepared, kin, names) for names in levels]
    pull = None
    if yielding(prepared.problem):
        force, held = pull_of(prepared, kin, models[0].residual), models[0]
        models[0] = Rows(*(jnp.where((force == 0).reshape(-1, *[1] * (x.ndim - 1)), x, 0) for x in held))
        pull = Rows(force, held.jacobian)
    boxed = [materialize(to_box(prepared.moving, limits, m.jacobian)) for m in models]
    slope = None
    if prepared.elastic is not None and prepared.cells is not None:
        slope = prepared.elastic.slope(prepared.cells)
        slope = slope if limits.moves is None else jnp.where(limits.moves, slope, 0)
    return LevelsAt(prepared, kin, limits, models, boxed, pull, slope)


def lagrangian_hessian(point: LevelsAt, cotangents: Sequence[jax.Array], pulls: Any) -> jax.Array:
    """Second derivative (n, n) of the sum of cotangent . residual over the first levels, for constant cotangents.

    `pulls`: whether () what yields is in it.
    """
    prepared, moving, limits = point.prepared, point.prepared.moving, point.limits
    hessian = sum(
        curvature(prepared, point.kin, prepared.levels[j], cotangent, exact=True)
        for j, cotangent in enumerate(cotangents)
    )
    gradient = sum(cotangent @ point.models[j].jacobian for j, cotangent in enumerate(cotangents))
    if point.pull is not None:
        force = jnp.where(pulls, point.pull.residual, 0)
        hessian = hessian + curvature(prepared, point.kin, prepared.levels[0], force)
        gradient = gradient + force @ point.pull.jacobian
    inner = to_box(moving, limits, to_box(moving, limits, jnp.asarray(hessian)).T)
    return inner + box_curvature(prepared.robot, moving, point.kin.q, limits, jnp.asarray(gradient))


def derivative_along(point: LevelsAt, multiplier: jax.Array, function: Callable[[LevelsAt], Any]) -> Any:
    """Derivative of a function of the levels above the last along a multiplier (n,), in axes fixed to their bodies.

    Derivatives taken this way are not symmetric: those of a gradient and of a Jacobian along a multiplier differ from
    the symmetric ones by terms that cancel, as gradients are zero and stay zero.
    """
    prepared, robot, moving = point.prepared, point.prepared.robot, point.prepared.moving

    def moved(fraction: jax.Array) -> Any:
        tangent = from_box(moving, point.limits, fraction * multiplier)
        q = apply_couplings(robot, moving, integrate(robot.topology, point.kin.q, tangent))
        limits = limits_at(prepared, q)._replace(axes=point.limits.axes)
        return function(_evaluate_levels(prepared, q, limits, prepared.levels[:-1]))

    none = jnp.zeros((), multiplier.dtype)
    return jax.jvp(moved, (none,), (none + 1,))[1]


class Levels(NamedTuple):
    """The levels above the last one, an entry each.

    Attributes:
      gradients (n,), hessians (n, n): of the Lagrangian of each.
      cotangents: of the levels above it in that Lagrangian, a tuple of (m,).
      unreachable (): whether it is stationary and not fulfilled.
    """

    gradients: list[jax.Array]
    hessians: list[jax.Array]
    cotangents: list[tuple[jax.Array, ...]]
    unreachable: list[jax.Array]


class NullSpace(NamedTuple):
    """The null space of some levels.

    Attributes:
      projector (n, n): onto the null space of the levels and the active bounds.
      inverses: of their Hessians, each in the null space of those above it.
      rank (): of all levels together.
    """

    projector: jax.Array
    inverses: tuple[jax.Array, ...]
    rank: jax.Array

    def without(self, hessian: jax.Array) -> "NullSpace":
        """Intersect it with the null space of one more level, given its Hessian (n, n)."""
        threshold = at(FLAT, self.projector.dtype)
        inverse, space, _ = pinv_psd(self.restrict(hessian), largest(jnp.diagonal(hessian)), threshold)
        return NullSpace(self.projector - space, (*self.inverses, inverse), self.rank + jnp.trace(space))

    def restrict(self, matrix: jax.Array) -> jax.Array:
        """Project a symmetric matrix (n, n) onto it."""
        if self.inverses:
            return self.projector @ matrix @ self.projector
        free = jnp.diagonal(self.projector)
        return free[:, None] * matrix * free


def whole_space(free: jax.Array, dtype: Any) -> NullSpace:
    """The null space of no level: all coordinates (n,) that are free."""
    return NullSpace(jnp.diag(free.astype(dtype)), (), jnp.zeros((), dtype))


def balance(
    gradient: jax.Array, hessians: Sequence[jax.Array], inverses: Sequence[jax.Array]
) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Multipliers of levels that balance a gradient (n,) below them, or each column of (n, k), and the remainder.

    The last level balances it first; the levels above it balance the rest, and what the last level adds to it.
    """
    multipliers: list[jax.Array] = []
    for hessian, inverse in zip(reversed(hessians), reversed(inverses), strict=True):
        multipliers.insert(0, -inverse @ gradient)
        gradient = gradient + hessian @ multipliers[0]
    return tuple(multipliers), gradient


def may_be_unreachable(prepared: Formulation) -> range:
    """Levels above the last that may be unreachable: not the constraints, which are met, or there is no solution."""
    return range(1 if hard_constraints(prepared.problem) else 0, len(prepared.levels) - 1)


def levels_above(point: LevelsAt, inside: jax.Array) -> tuple[Levels, NullSpace]:
    """All levels above the last one, and their null space, among the coordinates of a mask (n,)."""
    levels, nullspace = Levels([], [], [], []), whole_space(inside, point.kin.q.dtype)
    for j, (model, jacobian) in enumerate(zip(point.models[:-1], point.boxed[:-1], strict=True)):
        multipliers, gradient = balance(point.gradient(j), levels.hessians, nullspace.inverses)
        cotangents = tuple(J @ m for J, m in zip(point.boxed[:j], multipliers, strict=True))
        hessian, unreachable = jacobian.T @ jacobian, jnp.zeros((), bool)
        if j in may_be_unreachable(point.prepared):
            curve = lagrangian_hessian(point, (*cotangents, model.residual), point.yields_at(j))
            unit = unit_of(hessian, curve)
            stationary, weight = is_stationary(model.residual, gradient / unit, unit, point.limits)
            unreachable = stationary & (weight > at(FIRM, weight.dtype))
            if point.yields_at(j):
                unreachable = unreachable | jnp.any(point.yielding_gradient() != 0)
            # The remainder of a residual that can reach zero would add curvature in the null space of the level.
            hessian = jnp.where(unreachable, hessian + curve, hessian)
        nullspace = nullspace.without(hessian)
        levels.gradients.append(gradient)
        levels.hessians.append(hessian)
        levels.cotangents.append(cotangents)
        levels.unreachable.append(unreachable)
    return levels, nullspace


def active_bounds(point: LevelsAt, gradient: jax.Array, curve: jax.Array, threshold: tuple[float, float]) -> jax.Array:
    """Mask (n,) of active bounds: released, a coordinate would move on by more than the threshold."""
    distance = jnp.abs(gradient) / largest(jnp.diagonal(curve))
    return (distance > at(threshold, distance.dtype)) & ~not_held(point.limits, gradient)


def at(pair: tuple[float, float], dtype: Any) -> float:
    """The entry for a dtype, of float32 and float64."""
    return pair[dtype == jnp.float64]
