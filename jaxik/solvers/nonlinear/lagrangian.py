"""All levels of a problem at one configuration, and how those above balance the one below.

Each level keeps its gradient zero along what the levels above it leave free, and they pull with the multipliers that
balance the rest: its Lagrangian. A level that cannot be fulfilled, out of reach, has that Lagrangian's Hessian; one
that is fulfilled has that of its linearised residual.
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
from jaxik.solvers.nonlinear.nullspace_point import is_stationary, unit_of
from jaxik.solvers.nonlinear.scaling import limits_at, not_held

# In float32 and float64: a bound holds a joint that would leave it by more than this [rad or m], and by less than the
# second it hardly does.
VISIBLE, FIRM = (1e-4, 1e-9), (1e-3, 1e-7)
# Curvature, relative to a level's largest, that counts as zero: what a solution leaves undetermined.
FLAT = (1e-5, 1e-10)


class Place(NamedTuple):
    """One configuration, and all levels there to first order, on degrees of freedom and on the box's n coordinates."""

    prepared: Formulation
    kin: Kinematics
    limits: Box
    models: list[Rows]
    boxed: list[jax.Array]

    def gradient(self, level: int) -> jax.Array:
        """Of a level's cost (n,)."""
        return self.models[level].residual @ self.boxed[level]


def place_of(prepared: Formulation, q: jax.Array) -> Place:
    """All levels at a configuration (nq,)."""
    return _seen(prepared, q, limits_at(prepared, q), prepared.levels)


def _seen(prepared: Formulation, q: jax.Array, limits: Box, levels: Sequence[Level]) -> Place:
    kin = evaluate(prepared, q)
    models = [rows(prepared, kin, names) for names in levels]
    return Place(
        prepared, kin, limits, models, [materialize(to_box(prepared.moving, limits, m.jacobian)) for m in models]
    )


def bend(place: Place, pulls: Sequence[jax.Array]) -> jax.Array:
    """Second derivative (n, n) of the sum of pull . residual over the first levels, for constant pulls."""
    prepared, moving, limits = place.prepared, place.prepared.moving, place.limits
    hessian = sum(curvature(prepared, place.kin, prepared.levels[j], pull) for j, pull in enumerate(pulls))
    gradient = sum(pull @ place.models[j].jacobian for j, pull in enumerate(pulls))
    inner = to_box(moving, limits, to_box(moving, limits, jnp.asarray(hessian)).T)
    return inner + box_curvature(prepared.robot, moving, place.kin.q, limits, jnp.asarray(gradient))


def along(place: Place, multiplier: jax.Array, function: Callable[[Place], Any]) -> Any:
    """How something of the levels above the last changes along a multiplier (n,), in axes that turn with their bodies.

    That order of derivatives goes with itself: a derivative of a gradient along a multiplier and one of a Jacobian
    differ from the symmetric ones by terms that cancel, as gradients are zero and stay so.
    """
    prepared, robot, moving = place.prepared, place.prepared.robot, place.prepared.moving

    def moved(share: jax.Array) -> Any:
        tangent = from_box(moving, place.limits, share * multiplier)
        q = apply_couplings(robot, moving, integrate(robot.topology, place.kin.q, tangent))
        limits = limits_at(prepared, q)._replace(axes=place.limits.axes)
        return function(_seen(prepared, q, limits, prepared.levels[:-1]))

    none = jnp.zeros((), multiplier.dtype)
    return jax.jvp(moved, (none,), (none + 1,))[1]


class Levels(NamedTuple):
    """The levels above the last one, an entry each, of which some coordinates are inside their bounds.

    Attributes:
      gradients (n,), hessians (n, n): balanced by the levels above each.
      pulls: by which those above it do that, a tuple of (m,) each.
      lost (): whether it is out of reach.
    """

    gradients: list[jax.Array]
    hessians: list[jax.Array]
    pulls: list[tuple[jax.Array, ...]]
    lost: list[jax.Array]


class Freedom(NamedTuple):
    """What levels leave free.

    Attributes:
      left (n, n): projector onto what they and the bounds leave.
      inverses: of their Hessians, each along what those above it leave.
      rank (): of all of them.
    """

    left: jax.Array
    inverses: tuple[jax.Array, ...]
    rank: jax.Array

    def less(self, hessian: jax.Array) -> "Freedom":
        """What a further level leaves of it."""
        threshold = at(FLAT, self.left.dtype)
        inverse, space, _ = pinv_psd(self.of(hessian), largest(jnp.diagonal(hessian)), threshold)
        return Freedom(self.left - space, (*self.inverses, inverse), self.rank + jnp.trace(space))

    def of(self, matrix: jax.Array) -> jax.Array:
        """What a symmetric matrix (n, n) is along it."""
        if self.inverses:
            return self.left @ matrix @ self.left
        free = jnp.diagonal(self.left)
        return free[:, None] * matrix * free


def all_of(free: jax.Array, dtype: Any) -> Freedom:
    """Of coordinates (n,) that no bound holds."""
    return Freedom(jnp.diag(free.astype(dtype)), (), jnp.zeros((), dtype))


def balance(
    gradient: jax.Array, hessians: Sequence[jax.Array], inverses: Sequence[jax.Array]
) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """The multipliers by which levels balance a gradient (n,) below them, or each column of (n, k), and what is left.

    The last balances it first; what it does not reach, and what it adds, those above it balance.
    """
    multipliers: list[jax.Array] = []
    for hessian, inverse in zip(reversed(hessians), reversed(inverses), strict=True):
        multipliers.insert(0, -inverse @ gradient)
        gradient = gradient + hessian @ multipliers[0]
    return tuple(multipliers), gradient


def may_be_lost(prepared: Formulation) -> range:
    """Which levels above the last may be out of reach: constraints are met, or there is no solution."""
    return range(1 if hard_constraints(prepared.problem) else 0, len(prepared.levels) - 1)


def levels_above(place: Place, inside: jax.Array) -> tuple[Levels, Freedom]:
    """All levels above the last one, and what they leave of the coordinates (n,) inside their bounds."""
    found, freedom = Levels([], [], [], []), all_of(inside, place.kin.q.dtype)
    for j, (model, jacobian) in enumerate(zip(place.models[:-1], place.boxed[:-1], strict=True)):
        multipliers, gradient = balance(place.gradient(j), found.hessians, freedom.inverses)
        pulls = tuple(J @ m for J, m in zip(place.boxed[:j], multipliers, strict=True))
        hessian, lost = jacobian.T @ jacobian, jnp.zeros((), bool)
        if j in may_be_lost(place.prepared):
            curve = bend(place, (*pulls, model.residual))
            unit = unit_of(hessian, curve)
            still, weight = is_stationary(model.residual, gradient / unit, unit, place.limits)
            lost = still & (weight > at(FIRM, weight.dtype))
            # What is left of a residual that can reach zero would bend directions that the level leaves free.
            hessian = jnp.where(lost, hessian + curve, hessian)
        freedom = freedom.less(hessian)
        found.gradients.append(gradient)
        found.hessians.append(hessian)
        found.pulls.append(pulls)
        found.lost.append(lost)
    return found, freedom


def pressed(place: Place, gradient: jax.Array, curve: jax.Array, least: tuple[float, float]) -> jax.Array:
    """Coordinates (n,) at a bound that a gradient presses against it by a visible distance."""
    push = jnp.abs(gradient) / largest(jnp.diagonal(curve))
    return (push > at(least, push.dtype)) & ~not_held(place.limits, gradient)


def at(pair: tuple[float, float], dtype: Any) -> float:
    """Of float32 and float64."""
    return pair[dtype == jnp.float64]
