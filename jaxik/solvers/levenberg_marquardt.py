"""Bounded Levenberg-Marquardt with an active set, ending in Newton steps where Gauss-Newton would crawl.

Minimises 1/2 |residual|^2 within the joint limits. One trial point a step, linearised once: accepted, it is the next
model; rejected, the old one is kept. Steps are measured in fractions of the joint ranges, damping relative to the
model, so that neither the scale of the costs nor the units of the joints matter.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.limits.configuration import Box, box, coordinate_range, from_box, to_box
from jaxik.linalg import solve_positive
from jaxik.manifold import clamp, integrate
from jaxik.problem import Prepared, Rows, has_tolerances, rows
from jaxik.pytree import leaf, pytree, set_fields

# Factorisations a step. With one, joints that would cross a bound are only cut off: 0.2 % fewer Panda targets solved
# and one step more in the mean; a third changes nothing.
PASSES = 2
# Damping follows the cost (lam *= new / old), within these, where the model holds: quadratic in the end.
SHRINK = (0.05, 0.5)
GROW = 3.0
GOOD_RATIO, POOR_RATIO = 0.5, 0.1
# A step that takes less than this share of the cost away is a crawl: the next one uses the exact Hessian.
CRAWL = 0.1
# A predicted decrease below this many roundings of the cost cannot be seen in it.
NOISE = 64


@pytree
class SolveOptions:
    """Options of `solve`; all are traced, so changing them never recompiles.

    Args:
      max_steps: at most so many steps (*batch,), rejected ones included; the polishing step comes on top.
      initial_damping: first damping, relative to the largest squared column of the Jacobian in units of joint range
        (*batch,). From one mid-range start 0.01 solves 82 % of Panda targets and 75 % of UR5e's, 0.3 88 % and 87 %;
        from 0.3 to 1 it is flat.
      step_tolerance: an undamped step below this (*batch,) [rad or m] is stationary; None: 1e-11 in float64, 1e-5 in
        float32.
    """

    max_steps: Any = leaf(0, default=100)
    initial_damping: Any = leaf(0, default=0.3)
    step_tolerance: Any = leaf(0, default=None)

    def __post_init__(self) -> None:
        set_fields(
            self,
            max_steps=jnp.asarray(self.max_steps, jnp.int32),
            initial_damping=jnp.asarray(self.initial_damping, float),
            step_tolerance=None if self.step_tolerance is None else jnp.asarray(self.step_tolerance, float),
        )


class State(NamedTuple):
    """One element between two steps.

    Attributes:
      q (nq,), residual (m,), jacobian (m, nv), cost (): the model, taken at the best configuration so far.
      damping (): of the next step.
      met, newton, stationary, ended (): every tolerance is met; the next step uses the exact Hessian; no step improves
        the configuration; nothing is left to do.
      iterations (): steps taken, without the polishing one.
    """

    q: jax.Array
    residual: jax.Array
    jacobian: jax.Array
    cost: jax.Array
    damping: jax.Array
    met: jax.Array
    newton: jax.Array
    stationary: jax.Array
    ended: jax.Array
    iterations: jax.Array


class Step(NamedTuple):
    """A displacement in the box's coordinates (nv,), what the model says it gains, and whether the model has a minimum."""

    displacement: jax.Array
    predicted: jax.Array
    convex: jax.Array


def init(prepared: Prepared, q: jax.Array, options: SolveOptions) -> State:
    model = rows(prepared, q)
    cost = _cost(model)
    finite = jnp.isfinite(cost) & jnp.all(jnp.isfinite(model.jacobian))
    return State(
        q=q,
        residual=model.residual,
        jacobian=model.jacobian,
        cost=cost,
        damping=options.initial_damping * _largest_column(prepared, q, model.jacobian),
        met=model.met & has_tolerances(prepared.problem),
        newton=jnp.asarray(False),
        stationary=jnp.asarray(False),
        ended=~finite | ((options.max_steps <= 0) & ~model.met),
        iterations=jnp.zeros((), jnp.int32),
    )


def ended(state: State) -> jax.Array:
    return state.ended


def step(prepared: Prepared, state: State, options: SolveOptions) -> State:
    limits = box(prepared.robot, state.q)
    top = _largest_column(prepared, state.q, state.jacobian)
    floor = 10 * jnp.finfo(state.q.dtype).eps * top
    damping = jnp.where(state.met, floor, state.damping)
    proposed = lax.cond(
        state.newton & ~state.met,
        lambda: _newton_step(prepared, state, limits, damping),
        lambda: _gauss_newton_step(prepared, state, limits, damping),
    )
    tangent = from_box(prepared.robot, limits, proposed.displacement)
    trial = clamp(prepared.robot, integrate(prepared.robot.topology, state.q, tangent))
    model = rows(prepared, trial)
    cost = _cost(model)

    lowered = proposed.convex & (cost < state.cost)
    # Where the decrease drowns in rounding, the projected gradient tells a better point from a worse one.
    unseen = state.newton & proposed.convex & (proposed.predicted <= NOISE * jnp.finfo(cost.dtype).eps * state.cost)
    flatter = _projected_gradient(prepared, trial, model) < _projected_gradient(prepared, state.q, _model(state))
    accepted = jnp.isfinite(cost) & (lowered | (unseen & flatter & (cost <= state.cost * (1 + 1e-4))))
    tolerance = _step_tolerance(options, state.q.dtype)
    small = jnp.max(jnp.abs(proposed.displacement)) <= tolerance
    stationary = state.newton & proposed.convex & ((small & (damping <= 1e-3 * top)) | (unseen & ~accepted))

    ratio = (state.cost - cost) / jnp.where(proposed.predicted > 0, proposed.predicted, 1)
    shrink = jnp.clip(cost / jnp.where(state.cost > 0, state.cost, 1), *SHRINK)
    factor = jnp.where(accepted & (ratio > GOOD_RATIO), shrink, jnp.where(accepted & (ratio > POOR_RATIO), 1.0, GROW))
    next_damping = damping * factor
    crawls = ~(cost < (1 - CRAWL) * state.cost) & (proposed.predicted < CRAWL * state.cost)
    # A Newton step is tried undamped first, and damped noticeably at once where that fails.
    next_damping = jnp.where(state.newton & ~accepted, jnp.maximum(10 * damping, 1e-3 * top), next_damping)
    next_damping = jnp.where(crawls & ~state.newton, floor, next_damping)
    next_damping = jnp.clip(next_damping, floor, 1e6 * top)

    iterations = state.iterations + jnp.where(state.met, 0, 1).astype(jnp.int32)
    met = jnp.where(accepted, model.met, state.met) & has_tolerances(prepared.problem)
    return State(
        q=jnp.where(accepted, trial, state.q),
        residual=jnp.where(accepted, model.residual, state.residual),
        jacobian=jnp.where(accepted, model.jacobian, state.jacobian),
        cost=jnp.where(accepted, cost, state.cost),
        damping=next_damping,
        met=met,
        newton=crawls | (state.newton & ~accepted),
        stationary=stationary,
        ended=state.met | stationary | ((iterations >= options.max_steps) & ~met),
        iterations=iterations,
    )


def stationarity(prepared: Prepared, state: State) -> jax.Array:
    """Largest entry of the undamped projected Newton step at the solution [rad or m]: zero where it is stationary.

    Where the tasks are met the residual is nothing, and the Gauss-Newton model is the exact one.
    """
    limits = box(prepared.robot, state.q)
    floor = 10 * jnp.finfo(state.q.dtype).eps * _largest_column(prepared, state.q, state.jacobian)
    proposed = lax.cond(
        state.met,
        lambda: _gauss_newton_step(prepared, state, limits, floor),
        lambda: _newton_step(prepared, state, limits, floor),
    )
    return jnp.max(jnp.abs(proposed.displacement))


def _model(state: State) -> Rows:
    return Rows(state.residual, state.jacobian, state.met)


def _cost(model: Rows) -> jax.Array:
    return 0.5 * jnp.sum(model.residual * model.residual)


def _step_tolerance(options: SolveOptions, dtype: Any) -> jax.Array | float:
    if options.step_tolerance is not None:
        return options.step_tolerance
    return 1e-11 if dtype == jnp.float64 else 1e-5


def _scale(prepared: Prepared) -> jax.Array:
    """Length of one unit of step for each coordinate (nv,): its range, at most a turn.

    Narrow joints meet their bounds first, and most failures are minima with a joint at a bound: against the identity
    2 to 3 % more Panda targets are solved from one start.
    """
    width = coordinate_range(prepared.robot)
    # A joint without room does not move, whatever its unit; a metre of slide is a unit where there is no limit.
    return jnp.where(width > 0, jnp.minimum(width, 2 * jnp.pi), 1.0)


def _largest_column(prepared: Prepared, q: jax.Array, jacobian: jax.Array) -> jax.Array:
    scaled = jacobian * _scale(prepared)
    largest = jnp.max(jnp.sum(scaled * scaled, axis=0))
    return jnp.where(largest > 0, largest, 1.0)


def _free(limits: Box, gradient: jax.Array) -> jax.Array:
    """Coordinates that are not held at a bound by the gradient."""
    return ~(((limits.lower >= 0) & (gradient > 0)) | ((limits.upper <= 0) & (gradient < 0)))


def _projected_gradient(prepared: Prepared, q: jax.Array, model: Rows) -> jax.Array:
    """Norm of the gradient over the free coordinates, in units of joint range."""
    limits = box(prepared.robot, q)
    gradient = to_box(prepared.robot, limits, jnp.sum(model.jacobian * model.residual[:, None], axis=0))
    scaled = jnp.where(_free(limits, gradient), gradient * _scale(prepared), 0)
    return jnp.sqrt(jnp.sum(scaled * scaled))


def _active_set(limits: Box, free: jax.Array, solve: Any) -> tuple[jax.Array, jax.Array]:
    """Minimise in the box: what would cross a bound is put on it, and the rest solved again.

    `solve(free, fixed)` minimises over the free coordinates, the others displaced by `fixed`; it returns the
    displacement and the smallest pivot.
    """
    fixed = jnp.zeros_like(limits.lower)
    displacement, pivot = solve(free, fixed)
    for _ in range(PASSES - 1):
        inside = jnp.clip(displacement, limits.lower, limits.upper)
        crossing = free & (inside != displacement)
        fixed = jnp.where(crossing, inside, fixed)
        free = free & ~crossing
        displacement, again = solve(free, fixed)
        pivot = jnp.minimum(pivot, again)
    return jnp.clip(displacement, limits.lower, limits.upper), pivot


def _gauss_newton_step(prepared: Prepared, state: State, limits: Box, damping: jax.Array) -> Step:
    """argmin 1/2 |r + J d|^2 + damping/2 |d / scale|^2 in the box."""
    residual, scale = state.residual, _scale(prepared)
    jacobian = to_box(prepared.robot, limits, state.jacobian)
    free = _free(limits, jnp.sum(jacobian * residual[:, None], axis=0))
    scaled = jacobian * scale
    m, n = jacobian.shape

    def by_rows(free: jax.Array, fixed: jax.Array) -> tuple[jax.Array, jax.Array]:
        # (damping + S'S)^-1 S' = S' (damping + S S')^-1: for 6 rows and 29 joints 3.5 times less work.
        part = jnp.where(free, scaled, 0)
        gram = part @ part.T + damping * jnp.eye(m, dtype=residual.dtype)
        dual, pivot = solve_positive(gram, residual + jnp.sum(jacobian * fixed, axis=1))
        return jnp.where(free, -scale * jnp.sum(part * dual[:, None], axis=0), fixed), pivot

    def by_columns(free: jax.Array, fixed: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _primal(scaled.T @ scaled, scaled.T @ residual, scale, damping, free, fixed)

    displacement, _ = _active_set(limits, free, by_rows if m <= n else by_columns)
    moved = residual + jnp.sum(jacobian * displacement, axis=1)
    predicted = 0.5 * (jnp.sum(residual * residual) - jnp.sum(moved * moved))
    return Step(displacement, predicted, jnp.asarray(True))


def _newton_step(prepared: Prepared, state: State, limits: Box, damping: jax.Array) -> Step:
    """The same with the exact Hessian in the place of J'J; not convex where that is indefinite on the free coordinates."""
    scale = _scale(prepared)
    jacobian = to_box(prepared.robot, limits, state.jacobian)
    gradient = jnp.sum(jacobian * state.residual[:, None], axis=0)
    hessian = exact_hessian(prepared, state.q, limits)
    scaled = scale[:, None] * hessian * scale

    def solve(free: jax.Array, fixed: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _primal(scaled, scale * gradient, scale, damping, free, fixed)

    displacement, pivot = _active_set(limits, _free(limits, gradient), solve)
    predicted = -jnp.sum(gradient * displacement) - 0.5 * jnp.sum(displacement * (hessian @ displacement))
    return Step(displacement, predicted, pivot > 0)


def _primal(
    hessian: jax.Array, gradient: jax.Array, scale: jax.Array, damping: jax.Array, free: jax.Array, fixed: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Minimise the scaled quadratic over the free coordinates: displacement, unscaled, and smallest pivot."""
    eye = jnp.eye(scale.shape[0], dtype=scale.dtype)
    both = free[:, None] & free[None, :]
    matrix = jnp.where(both, hessian + damping * eye, eye)
    right = jnp.where(free, -gradient - hessian @ jnp.where(free, 0, fixed / scale), 0)
    solution, pivot = solve_positive(matrix, right)
    return jnp.where(free, scale * solution, fixed), pivot


def exact_hessian(prepared: Prepared, q: jax.Array, limits: Box) -> jax.Array:
    """Second derivative (nv, nv) of 1/2 |residual|^2 along `integrate`, in the box's coordinates."""

    def gradient(displacement: jax.Array) -> jax.Array:
        tangent = from_box(prepared.robot, limits, displacement)
        model = rows(prepared, integrate(prepared.robot.topology, q, tangent))
        return to_box(prepared.robot, limits, jnp.sum(model.jacobian * model.residual[:, None], axis=0))

    slope = jax.jacfwd(gradient)(jnp.zeros(prepared.robot.nv, q.dtype))
    return (slope + slope.T) / 2
