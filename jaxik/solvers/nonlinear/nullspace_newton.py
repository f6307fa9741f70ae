"""Newton steps on a lower level, in the null space of the levels above.

A step goes along the null space of the levels above, plus a part that restores them; if the trial point is not
restored, further restoration steps follow, at one linearisation each, before it is accepted or rejected. A joint that a
level above holds at its bound stays there. So the levels above are independent of the costs of the one below.

The Hessian of an unreachable level's Lagrangian has third derivatives. Their part is learned from the steps, by a
structured symmetric rank-one update (Nocedal, Wright: Numerical Optimization, 2006, sections 6.2 and 10.3).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.fusion import materialize_mask
from jaxik.solvers.nonlinear.formulation import Formulation, retract
from jaxik.solvers.nonlinear.nullspace_point import Point, empty_point, evaluate_point, threshold
from jaxik.solvers.nonlinear.nullspace_projector import nullspace_projector, rank_threshold
from jaxik.solvers.nonlinear.nullspace_step import Proposal, propose, where
from jaxik.solvers.nonlinear.scaling import NOISE, limits_at, step_scale
from jaxik.solvers.options import SolveOptions, step_tolerance

# A step that fails is tried again with at least this damping, relative to the largest entry of the Hessian.
DAMPING = 1e-3
SHRINK, GROW, MAX_DAMPING = 0.05, 10.0, 1e6
# And no longer than this fraction of it. The first one goes no further than RADIUS, in units of step.
SHORTER = 0.25
RADIUS = 0.25
GOOD_RATIO = 0.5
# A trial point counts as restored when its restoration is this fraction of the step that led there, or of the
# restoration of the point before. With a tenth of the step, some stretched arms were so far off that their restoration
# led astray.
RESTORED, CLOSER = 0.03, 0.1
RESTORING_STEPS = 4
# The cost of a level above may exceed its first value by this fraction: rounding.
RAISED = 1e-5
# A rank-one update whose denominator is below this fraction of its factors is skipped (Nocedal, Wright, 6.26).
SKIP_UPDATE = 1e-3


class State(NamedTuple):
    """One element between two steps.

    Attributes:
      best, base: the best point so far, and the one that the next step starts from, while it is being restored.
      required: whether points must meet the tolerances of the levels above, as the first one did.
      unreachable (k,): mask of levels above that were unreachable at the first point. Far from restored, none is
        recognised; a stretched arm then went astray, restored as if the level could be fulfilled.
      allowed (k,): the costs of the levels above there. Their gradients are zero at worse places as well.
      third (n, n): estimate of the third derivatives of unreachable levels in the level's Hessian.
      damping (), radius (): of the next step in the null space, and its largest length, in units of step.
      tangent (n,): the last step in the null space.
      restorations (): steps since `best`.
      size (): largest entry of the last undamped step [rad or m].
      last (): whether the next step is the last, undamped and free of charge, as in `levenberg_marquardt.newton`.
      stationary, ended (), iterations (), spent: as in `levenberg_marquardt.State`.
    """

    best: Point
    base: Point
    required: jax.Array
    unreachable: jax.Array
    allowed: jax.Array
    third: jax.Array
    damping: jax.Array
    radius: jax.Array
    tangent: jax.Array
    restorations: jax.Array
    size: jax.Array
    last: jax.Array
    stationary: jax.Array
    ended: jax.Array
    iterations: jax.Array
    spent: Any


class _Trial(NamedTuple):
    """One step and the point that it led to.

    Attributes:
      first (): whether this is the evaluation of the first point.
      before (): size of the restoration of the best point so far.
      unmoved (): whether no step in the null space has been taken.
      late (): whether the steps are used up, and the point is only restored.
      restoring (): whether the step only restores.
      used (): its damping.
      length (): of its tangent part (n,).
    """

    first: jax.Array
    before: jax.Array
    unmoved: jax.Array
    late: jax.Array
    restoring: jax.Array
    used: jax.Array
    proposed: Proposal
    tangent: jax.Array
    length: jax.Array
    point: Point


class _Verdict(NamedTuple):
    """The outcome of a trial, each ().

    Attributes:
      accepted: the trial becomes the best point; `again`: it is restored further; `rejected`: neither.
      hidden: the predicted decrease is below rounding.
      misled: the step used an estimate of third derivatives, and failed.
    """

    accepted: jax.Array
    again: jax.Array
    rejected: jax.Array
    hidden: jax.Array
    misled: jax.Array


def start(prepared: Formulation, q: jax.Array, errors: Any, iterations: jax.Array, spent: Any, level: int) -> State:
    """The state before the first step on `level` from `q` (nq,), where the levels above are fulfilled or stationary."""
    dtype, size = q.dtype, len(prepared.moving.own)
    no, none = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    point = empty_point(q, errors, size, level)
    return State(
        best=point,
        base=point,
        required=no,
        unreachable=point.unreachable,
        allowed=point.predicted_costs,
        third=jnp.zeros((size, size), dtype),
        damping=jnp.asarray(rank_threshold(dtype), dtype),
        radius=jnp.asarray(RADIUS, dtype),
        tangent=jnp.zeros(size, dtype),
        restorations=none,
        size=jnp.full((), jnp.inf, dtype),
        last=no,
        stationary=no,
        ended=no,
        iterations=iterations,
        spent=spent,
    )


def step(prepared: Formulation, state: State, options: SolveOptions, level: int) -> State:
    """Evaluate one trial point, and accept or reject it once the levels above are restored there."""
    first = jnp.isinf(state.best.cost)
    tolerance = step_tolerance(options, state.best.q.dtype)
    trial = _try_step(prepared, state, options, level, first)
    verdict = _acceptance(state, trial, tolerance)
    stationary, undamped, convex = _is_stationary(state, trial, verdict, tolerance)
    damping, radius = _adapt(state, trial, verdict)
    informed = verdict.accepted & ~first & ~state.last & jnp.any(state.unreachable)
    third = jnp.where(verdict.misled, 0, state.third)
    third = lax.cond(informed, lambda: _updated_third(third, state.best, trial.point, trial.tangent), lambda: third)
    best = where(verdict.accepted, trial.point, state.best)
    late, proposed = trial.late, trial.proposed
    iterations = state.iterations + jnp.where(first | late | state.last, 0, 1).astype(jnp.int32)
    settled = best.restoration_size <= tolerance
    # A trial that is not restored when the steps are used up is dropped: the best point is restored, late.
    onward = materialize_mask(verdict.again & ~state.last & (late | (iterations < options.max_steps)))
    over = stationary | ((iterations >= options.max_steps) & settled)
    last = over & ~(convex & undamped) & ~state.last & ~first
    return State(
        best=best,
        base=where(onward, trial.point, best),
        required=jnp.where(first, trial.point.met, state.required),
        unreachable=jnp.where(first, trial.point.unreachable, state.unreachable),
        allowed=jnp.where(first, jnp.maximum(trial.point.predicted_costs, 0), state.allowed),
        third=third,
        damping=jnp.where(first, state.damping, jnp.clip(damping, rank_threshold(damping.dtype), MAX_DAMPING)),
        radius=jnp.where(first, state.radius, radius),
        tangent=trial.tangent,
        restorations=jnp.where(onward, state.restorations + 1, 0),
        size=jnp.where(convex & undamped, proposed.size, state.size),
        last=last,
        stationary=stationary,
        ended=(over & ~last)
        | state.last
        | (first & ~verdict.accepted)
        # A late restoration of the best point that failed would fail again.
        | (late & verdict.rejected & trial.unmoved),
        iterations=iterations,
        spent=state.spent,
    )


def _try_step(prepared: Formulation, state: State, options: SolveOptions, level: int, first: jax.Array) -> _Trial:
    """Take a step from the base point and evaluate where it leads."""
    dtype = state.best.q.dtype
    # A NaN step counts as none, or its restoration would not end.
    before, unmoved = state.best.restoration_size, ~jnp.any(jnp.abs(state.tangent) > 0)
    # Steps that only restore: after one in the null space, before the first one, and, free of charge, after the last.
    late = (state.iterations >= options.max_steps) & ~first
    restoring = ((state.restorations > 0) | late | (unmoved & (before > threshold(dtype)))) & ~state.last
    limits, scale = limits_at(prepared, state.base.q), step_scale(prepared)
    used = jnp.where(state.last, rank_threshold(dtype), state.damping)
    proposed = propose(state.base, state.third, limits, scale, used, state.radius, restoring)
    tangent = jnp.where(restoring & ~late, state.tangent, proposed.tangent)
    length = jnp.max(jnp.abs(tangent))
    q = retract(prepared, state.base.q, limits, scale * proposed.move)
    point = evaluate_point(prepared, q, level, state.unreachable)
    return _Trial(first, before, unmoved, late, restoring, used, proposed, tangent, length, point)


def _acceptance(state: State, trial: _Trial, tolerance: Any) -> _Verdict:
    """Accept a trial point, restore it further, or reject it."""
    best, point, first = state.best, trial.point, trial.first
    before, length = trial.before, trial.length
    finite, remaining = jnp.isfinite(point.cost) & jnp.all(jnp.isfinite(point.restoration)), point.restoration_size
    near = jnp.maximum(jnp.maximum(RESTORED * length, CLOSER * before), tolerance)
    restored = (remaining <= near) & (point.met | ~state.required)
    kept = jnp.all(point.predicted_costs <= state.allowed * (1 + RAISED))
    # Below rounding, and the error of the merit, the cost does not tell the better point.
    noise = NOISE * jnp.finfo(best.q.dtype).eps * best.cost + _merit_error(best) + _merit_error(point)
    hidden = jnp.abs(trial.proposed.predicted) <= noise
    lower = point.merit < best.merit
    flatter = (_optimality_error(point) < _optimality_error(best)) & (point.merit <= best.merit + noise)
    # Where restoration is most of the step, the merit of the point before means little.
    accepted = finite & (first | (restored & kept & (lower | (hidden & flatter) | (before > length))))
    # After the last step there is no restoration. Each of the point's many arrays would compute this mask by itself.
    accepted = materialize_mask(accepted & (~state.last | (remaining <= tolerance)))
    again = finite & ~first & ~restored & (state.restorations < RESTORING_STEPS)
    rejected = ~accepted & ~again
    # The estimate of third derivatives may mislead: a level is stationary only if a step without it fails.
    misled = rejected & jnp.any(state.third != 0)
    return _Verdict(accepted, again, rejected, hidden, misled)


def _is_stationary(
    state: State, trial: _Trial, verdict: _Verdict, tolerance: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether the level is stationary, whether the step was undamped, and whether it was a convex one in the level."""
    proposed, length, before = trial.proposed, trial.length, trial.before
    undamped, exhausted = trial.used < DAMPING, trial.used >= 1
    convex = ~trial.first & ~trial.restoring & proposed.convex
    blocked = (proposed.size > tolerance) & jnp.all(proposed.move == 0)
    failed = (
        verdict.rejected & ~blocked & (verdict.hidden & ~proposed.cut & (undamped | exhausted) | (length <= tolerance))
    )
    failed = failed & (before <= 10 * tolerance) & ~verdict.misled
    stationary = (convex & ((undamped & (proposed.size <= tolerance)) | failed)) | (state.last & state.stationary)
    return stationary, undamped, convex


def _adapt(state: State, trial: _Trial, verdict: _Verdict) -> tuple[jax.Array, jax.Array]:
    """Damping and radius of the next step."""
    decrease = state.best.merit - trial.point.merit
    good = verdict.accepted & (decrease > GOOD_RATIO * trial.proposed.predicted)
    worse = verdict.rejected & ~trial.proposed.convex
    damping = jnp.where(
        good, SHRINK * state.damping, jnp.where(worse, jnp.maximum(GROW * state.damping, DAMPING), state.damping)
    )
    radius = jnp.where(
        good,
        jnp.maximum(state.radius, 2 * trial.length),
        jnp.where(verdict.rejected & (trial.length > 0) & ~verdict.misled, SHORTER * trial.length, state.radius),
    )
    return damping, radius


def _merit_error(point: Point) -> jax.Array:
    """Error of the merit (): it neglects the square of the restoration."""
    return 10 * point.unit * jnp.sum(point.restoration * point.restoration)


def _optimality_error(point: Point) -> jax.Array:
    """Distance () of a point from a stationary one, in units of step."""
    return point.reduced_gradient_norm + point.restoration_size


def _updated_third(third: jax.Array, before: Point, after: Point, tangent: jax.Array) -> jax.Array:
    """Update the third derivatives in the level's Hessian, so that it explains how a step (n,) changed the gradient."""
    projector = nullspace_projector(after.active_set)
    same = jnp.all(after.active_set.free == before.active_set.free)
    same = same & (jnp.abs(jnp.trace(projector) - jnp.trace(nullspace_projector(before.active_set))) < 0.5)
    moved = projector @ tangent
    missing = projector @ (after.reduced_gradient - before.reduced_gradient - (after.hessians[-1] + third) @ moved)
    denominator, most = missing @ moved, jnp.sqrt((missing @ missing) * (moved @ moved))
    used = same & (jnp.abs(denominator) > SKIP_UPDATE * most)
    return third + jnp.where(used, missing[:, None] * missing / jnp.where(used, denominator, 1), 0)
