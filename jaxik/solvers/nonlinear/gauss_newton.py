"""Gauss-Newton steps: the model J'J, quadratic in the end where residuals vanish, a crawl where they do not."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.fusion import materialize
from jaxik.numerics.linalg import largest, solve_positive, solve_small_positive
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear import watchdog
from jaxik.solvers.nonlinear.box import Box, to_box
from jaxik.solvers.nonlinear.formulation import Formulation, Rows, count_rows
from jaxik.solvers.nonlinear.hard_constraint import clearances
from jaxik.solvers.nonlinear.levenberg_marquardt import (
    GOOD_RATIO,
    GROW,
    POOR_RATIO,
    SHRINK,
    Rule,
    State,
    Step,
    Trial,
    advance,
    solve_in_box,
)
from jaxik.solvers.nonlinear.scaling import least_damping, limits_at, not_held
from jaxik.solvers.options import SolveOptions, step_tolerance

# The first damping is at most this times |residual|^2 over the largest diagonal entry of the scaled J'J: less, nearer.
# Panda takes 2.1 steps from 0.05 rad away and not 4.8, 1.03 from 0.005 rad and not 3.6; from afar as many as before.
NEAR = 3.0
# A step that promises less than this share of the cost is a crawl, which the exact Hessian ends.
CRAWL = 0.002
# So does one that lasts longer than this.
PATIENCE = 30
# Where relaxed steps have lowered the cost, these are less and more: Newton's steps have to lower it, and get nowhere
# in the valley until a thousandth of a radian is left. Nor is it a crawl while each step is so much shorter than the
# last.
CRAWL_IN_VALLEY, PATIENCE_IN_VALLEY, CONVERGING = 2e-4, 60, 0.3
# By this damping shrinks after relaxed steps that have lowered the cost.
TAKEN_BACK = 0.3
# Polishing goes on while a step leaves less than this of the cost.
POLISHED = 0.25


def _empty(prepared: Formulation, q: jax.Array, level: Level) -> Rows:
    count = count_rows(prepared, level)
    return Rows(jnp.zeros(count, q.dtype), jnp.zeros((count, len(prepared.moving.own)), q.dtype))


def _propose(prepared: Formulation, state: State, scale: jax.Array, limits: Box, options: SolveOptions) -> Step:
    """argmin 1/2 |r + J d|^2 + damping/2 |d / scale|^2 in the box."""
    residual, jacobian = state.model.residual, state.model.jacobian
    # The squares are summed by themselves: else they are written to memory first.
    unit = largest(materialize(jnp.sum(jacobian * jacobian, axis=0)) * (scale * scale))
    square = jnp.sum(residual * residual)
    near = jnp.maximum(NEAR * square / unit, least_damping(square.dtype))
    relative = jnp.where(jnp.isinf(state.size), jnp.minimum(state.damping, near), state.damping)
    damping = relative * unit
    # A loop where steps look at distances, which is 30 kernels less, of two arms 95: it is 7 us of some 700 that such a
    # step of a search takes on 32 lanes, so that there is nothing to gain. A `solve` takes the same steps.
    solve = solve_positive if clearances(prepared.problem) else solve_small_positive

    def minimise(free: jax.Array, fixed: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        left = residual if fixed is None else residual + jacobian @ fixed
        return damped_least_squares(jacobian, jnp.where(free, scale, 0), left, damping, solve)

    displacement, _ = solve_in_box(limits, not_held(limits, residual @ jacobian), minimise)
    moved = residual + jacobian @ displacement
    predicted = 0.5 * (square - jnp.sum(moved * moved))
    return Step(displacement, predicted, jnp.ones((), bool), relative, moved)


def damped_least_squares(
    jacobian: jax.Array,
    scale: jax.Array,
    residual: jax.Array,
    damping: jax.Array,
    solve: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]] = solve_small_positive,
) -> tuple[jax.Array, jax.Array]:
    """argmin 1/2 |r + J d|^2 + damping/2 |d / scale|^2, and the smallest pivot; no step where the scale is zero.

    `solve`: how positive definite systems are solved.
    """
    rows, columns = jacobian.shape
    if rows <= columns:
        # With S = diag(scale)^2, (damping S^-1 + J'J)^-1 J' = S J' (damping + J S J')^-1: for 6 rows and 29 joints 3.5
        # times less work.
        # By itself: which joints are free would be told again for each entry of J S J'.
        square = materialize(scale * scale)
        # J' would be a copy, of as long as the product takes: two arms' searches in a cage take 0.94 without it.
        gram = jnp.tensordot(jacobian * square, jacobian, (1, 1))
        dual, pivot = solve(gram + damping * unit_matrix(rows, dtype=residual.dtype), residual)
        return -square * (dual @ jacobian), pivot
    # J'J by itself, and scaled then: both passes of `solve_in_box` have it in common.
    gram = scale[:, None] * (jacobian.T @ jacobian) * scale + damping * unit_matrix(columns, dtype=residual.dtype)
    inner, pivot = solve(gram, -scale * (residual @ jacobian))
    return scale * inner, pivot


def boxed_rows(prepared: Formulation, kin: Kinematics, found: Rows, level: Level) -> Rows:
    """Residual and Jacobian, on the box's coordinates."""
    jacobian = to_box(prepared.moving, limits_at(prepared, kin.q), found.jacobian)
    return Rows(found.residual, jacobian)


def _conclude(
    crawl: Any,
    prepared: Formulation,
    state: State,
    scale: jax.Array,
    limits: Box,
    proposed: Step,
    trial: Trial,
    options: SolveOptions,
) -> State:
    """The next state; it has ended when the tasks are met and polished, and crawls where nothing helps much."""
    accepted = (trial.cost < state.cost) & (trial.met | ~state.met)
    after = watchdog.is_relaxed(state.watchdog)
    relaxed = ~accepted & _relaxes(state, proposed, trial)
    decrease = state.cost - trial.cost
    good = accepted & (after | (decrease > GOOD_RATIO * proposed.predicted))
    fair = accepted & (decrease > POOR_RATIO * proposed.predicted)
    shrink = jnp.clip(trial.cost / jnp.where(state.cost > 0, state.cost, 1), *SHRINK)
    # What a step takes back says nothing of the one after it.
    shrink = jnp.where(after, TAKEN_BACK, shrink)
    damping = proposed.damping * jnp.where(good, shrink, jnp.where(fair | relaxed, 1.0, GROW))
    moved = advance(state, options, accepted, trial, proposed, damping, relaxed)
    moved = _polished(state, moved, options)
    slow = _crawls(crawl, state, moved, proposed) & ~relaxed
    # Where a residual without tolerance reaches zero, only the size of the steps tells.
    slow = slow | (moved.size <= step_tolerance(options, state.q.dtype))
    return moved._replace(crawling=slow & ~jnp.isinf(state.cost) & ~state.met & ~moved.met)


def _relaxes(state: State, proposed: Step, trial: Trial) -> jax.Array:
    """Whether a step may be a relaxed one ()."""
    goes_on = watchdog.goes_on(state.watchdog, proposed.damping, proposed.displacement)
    return goes_on & ~state.met & ~jnp.isinf(state.cost) & jnp.isfinite(trial.cost)


def _crawls(crawl: Any, state: State, moved: State, proposed: Step) -> jax.Array:
    """Whether a step promises little of the cost (), or steps last too long."""
    taken = moved.iterations - moved.before
    if state.watchdog is None or moved.watchdog is None:
        return ~(proposed.predicted > crawl * state.cost) | (taken >= PATIENCE)
    valley = moved.watchdog.helped
    little = ~(proposed.predicted > jnp.where(valley, CRAWL_IN_VALLEY, crawl) * state.cost)
    # What a correction predicts is of the distance to its aim.
    little = little & ~watchdog.corrects(state.watchdog)
    converges = valley & (moved.size < CONVERGING * state.size)
    return (little & ~converges) | (taken >= jnp.where(valley, PATIENCE_IN_VALLEY, PATIENCE))


def _polished(state: State, moved: State, options: SolveOptions) -> State:
    """The next state, which goes on, free of charge, where all tolerances are met."""
    polishing = state.met
    # An undamped step is proportional to the residual that it removes: what is left of that gives the step still left.
    share = moved.cost / jnp.where(polishing & (state.cost > 0), state.cost, 1)
    size = jnp.where(polishing, jnp.sqrt(share), 1) * moved.size
    again = (share < POLISHED) & (size > step_tolerance(options, size.dtype))
    return moved._replace(
        damping=jnp.where(moved.met, least_damping(size.dtype), moved.damping),
        size=size,
        ended=moved.ended | (polishing & ~again),
        iterations=jnp.where(polishing, state.iterations, moved.iterations),
    )


def gauss_newton(crawl: Any = CRAWL) -> Rule:
    """The rule by which a step that promises less than the share `crawl` () of the cost is a crawl."""
    return Rule(_empty, _propose, boxed_rows, functools.partial(_conclude, crawl), relaxes=True)


GAUSS_NEWTON = gauss_newton()
