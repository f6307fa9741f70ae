"""Newton steps, on the exact Hessian: for the few elements where Gauss-Newton crawls."""

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.fusion import materialize
from jaxik.numerics.linalg import largest, solve_positive
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear import watchdog
from jaxik.solvers.nonlinear.box import Box, box_curvature, to_box
from jaxik.solvers.nonlinear.formulation import Formulation, QuadraticModel, Rows, quadratic_model
from jaxik.solvers.nonlinear.levenberg_marquardt import (
    GOOD_RATIO,
    Rule,
    State,
    Step,
    Trial,
    advance,
    solve_in_box,
)
from jaxik.solvers.nonlinear.scaling import NOISE, least_damping, limits_at, not_held
from jaxik.solvers.options import SolveOptions, step_tolerance

# A step is tried without damping, and where that fails with this much. From there on damping changes by little, and so
# stays where steps succeed: along the narrow valley of a position out of reach one that grew tenfold and shrank to a
# twentieth failed at every other step.
DAMPING = 1e-3
UNDAMPED = 1e-5
SHRINK, GROW = 0.35, 4.0


def _empty(prepared: Formulation, q: jax.Array, level: Level) -> QuadraticModel:
    size = len(prepared.moving.own)
    return QuadraticModel(jnp.zeros(size, q.dtype), jnp.zeros((size, size), q.dtype))


def _propose(prepared: Formulation, state: State, scale: jax.Array, limits: Box, options: SolveOptions) -> Step:
    """argmin g'd + 1/2 d'H d + damping/2 |d / scale|^2 in the box; not convex where that is indefinite."""
    gradient, hessian = state.model.gradient, state.model.hessian
    scaled = scale[:, None] * hessian * scale
    eye = unit_matrix(scale.size, dtype=scale.dtype)
    relative = jnp.where(_is_last(state, options), least_damping(scale.dtype), state.damping)
    damping = relative * largest(jnp.max(jnp.abs(scaled), axis=0))

    def minimise(free: jax.Array, fixed: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        matrix = jnp.where(free[:, None] & free[None, :], scaled + damping * eye, eye)
        left = gradient if fixed is None else gradient + hessian @ fixed
        right = jnp.where(free, -scale * left, 0)
        inner, pivot = solve_positive(matrix, right)
        return scale * inner, pivot

    displacement, pivot = solve_in_box(limits, not_held(limits, gradient), minimise)
    predicted = -(displacement @ (gradient + 0.5 * (hessian @ displacement)))
    return Step(displacement, predicted, pivot > 0, relative, gradient + hessian @ displacement)


def _is_last(state: State, options: SolveOptions) -> jax.Array:
    """Whether the next step is the last: undamped, and free of charge where the one before it was not.

    Its size tells how far there is to go, and that of an earlier one could be 0.1 where 1e-10 is left.
    """
    return (state.stationary | (state.iterations >= options.max_steps)) & ~jnp.isinf(state.cost)


def _expand(prepared: Formulation, kin: Kinematics, found: Rows, level: Level) -> QuadraticModel:
    """Gradient and Hessian of the cost, on the box's coordinates."""
    limits, moving = limits_at(prepared, kin.q), prepared.moving
    gradient, hessian = quadratic_model(prepared, kin, found, level)
    hessian = to_box(moving, limits, to_box(moving, limits, hessian).T)
    # Once: else each model that it may become, that of the state and that of relaxed steps, would compute it again.
    hessian = materialize(hessian + box_curvature(prepared.robot, moving, kin.q, limits, gradient))
    return QuadraticModel(to_box(moving, limits, gradient), hessian)


def _conclude(
    prepared: Formulation,
    state: State,
    scale: jax.Array,
    limits: Box,
    proposed: Step,
    trial: Trial,
    options: SolveOptions,
) -> State:
    """The next state; it has ended where it is stationary, tolerances met or not."""
    first, last = jnp.isinf(state.cost), _is_last(state, options)
    eps = jnp.finfo(trial.cost.dtype).eps
    unseen = proposed.convex & (jnp.abs(proposed.predicted) <= NOISE * eps * state.cost)
    keeps = trial.met | ~state.met
    lowered = proposed.convex & (trial.cost < state.cost) & keeps
    # Where the decrease drowns in rounding, the projected gradient tells the better point from the worse.
    here = _projected_gradient(scale, limits, state.model.gradient)
    flatter = (_projected_gradient(scale, trial.limits, trial.model.gradient) < here) & keeps
    accepted = first | lowered | (unseen & flatter & (trial.cost <= state.cost * (1 + NOISE * eps)))
    small = jnp.max(jnp.abs(proposed.displacement)) <= step_tolerance(options, eps.dtype)
    after = watchdog.is_relaxed(state.watchdog)
    relaxes = watchdog.goes_on(state.watchdog, proposed.damping, proposed.displacement) & proposed.convex
    # The last step starts from the best configuration, as its size tells how far that has to go.
    relaxes = relaxes & (state.iterations + 1 < options.max_steps)
    relaxed = relaxes & ~(accepted | unseen | small | last) & jnp.isfinite(trial.cost)
    # A step that damping made small says nothing of the point; one that fails however small does.
    damping = proposed.damping
    undamped, exhausted = damping < DAMPING, (damping >= 1) & ~accepted
    stationary = proposed.convex & ((undamped & small) | ((undamped | exhausted) & unseen & ~accepted)) & ~after
    # Of residuals near zero, rounding is a larger share than of the cost.
    stationary = (stationary | (exhausted & state.met) | (last & state.stationary)) & ~first
    good = accepted & (after | (state.cost - trial.cost > GOOD_RATIO * proposed.predicted))
    grown = jnp.where(damping < UNDAMPED, DAMPING, GROW * damping)
    damping = jnp.where(good, SHRINK * damping, jnp.where(accepted | relaxed, damping, grown))
    moved = advance(state, options, accepted, trial, proposed, damping, relaxed)
    iterations = jnp.where(last, state.iterations, moved.iterations)
    over = (stationary | (iterations >= options.max_steps)) & undamped & ~first
    return moved._replace(
        stationary=stationary,
        ended=over | last | (first & ~accepted),
        size=jnp.where(undamped, moved.size, state.size),
        iterations=iterations,
    )


def _projected_gradient(scale: jax.Array, limits: Box, gradient: jax.Array) -> jax.Array:
    """Norm of the gradient (n,) over the free coordinates, in units of joint range."""
    scaled = jnp.where(not_held(limits, gradient), gradient * scale, 0)
    return jnp.sqrt(jnp.sum(scaled * scaled))


NEWTON = Rule(_empty, _propose, _expand, _conclude, relaxes=True, corrects=True)
