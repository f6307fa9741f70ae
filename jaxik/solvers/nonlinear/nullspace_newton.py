"""Newton steps on a lower level, in what the levels above leave free.

A step goes along the null space of the levels above, with a part that restores them; where a trial point is not
restored, further parts follow, at one linearisation each, before it is judged. A joint that a level above presses
against its bound stays there. So the levels above do not see the costs of the one below.

Of a level out of reach the Lagrangian's Hessian takes third derivatives. What these add is learned from the steps, by a
structured symmetric rank-one update (Nocedal, Wright: Numerical Optimization, 2006, sections 6.2 and 10.3).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.linalg import solve_positive
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.formulation import Formulation, retract
from jaxik.solvers.nonlinear.nullspace_point import Point, empty_point, evaluate_point, threshold
from jaxik.solvers.nonlinear.nullspace_projector import (
    RowSpaces,
    nullspace_projector,
    rank_threshold,
    restoration_step,
    row_spaces,
)
from jaxik.solvers.nonlinear.scaling import NOISE, limits_at, step_scale
from jaxik.solvers.options import SolveOptions, step_tolerance

# A step that fails is tried again with at least this damping, relative to the largest entry of the Hessian.
DAMPING = 1e-3
SHRINK, GROW, MAX_DAMPING = 0.05, 10.0, 1e6
# And no longer than this share of it. The first one goes no further than RADIUS, in units of step.
SHORTER = 0.25
RADIUS = 0.25
GOOD_RATIO = 0.5
# A trial point counts as restored when what restores it is this share of the step that led there, or of what restored
# the point before. After a tenth of the step, some stretched arms were so far off that what restored them led astray.
RESTORED, CLOSER = 0.03, 0.1
RESTORING_STEPS = 4
# Where a level's Hessian has a negative curvature, the first of these, added to it, that leaves none and a step within
# the radius. With Gauss-Newton's in its place 84 of 128 Pandas took more than 100 steps from a saddle, not 3.
SHIFTS = 0.0, *(1e-4 * 4.0**k for k in range(11))
# How often the coordinates that a bound holds are determined within a step; one more is found each time.
PASSES = 4
# A level above may cost so much more than at first, as a share: rounding.
RAISED = 1e-5
# An update of the Hessian whose denominator is below this share of its factors tells nothing.
TELLING = 1e-3


class State(NamedTuple):
    """One element between two steps.

    Attributes:
      best, base: the best point so far, and the one that the next step starts from, while it is restored.
      required: whether points must meet the tolerances of the levels above, as the first one did.
      lost (k,): which levels above were out of reach at the first point. Where it is not restored, none looks so, and
        an arm that is stretched went astray, restored as if it could be fulfilled.
      allowed (k,): the costs of the levels above there. What makes their gradients zero may lead to worse places.
      third (n, n): what third derivatives of the levels out of reach add to the level's Hessian, as far as it is known.
      damping (), radius (): of the next step along the level, and the most that it may be, in units of step.
      along (n,): the last one.
      restorations (): steps since `best`.
      size (): largest entry of the last undamped step [rad or m].
      last (): whether the next step is the last, undamped and free of charge, as of `levenberg_marquardt.newton`.
      stationary, ended (), iterations (), spent: as of `levenberg_marquardt.State`.
    """

    best: Point
    base: Point
    required: jax.Array
    lost: jax.Array
    allowed: jax.Array
    third: jax.Array
    damping: jax.Array
    radius: jax.Array
    along: jax.Array
    restorations: jax.Array
    size: jax.Array
    last: jax.Array
    stationary: jax.Array
    ended: jax.Array
    iterations: jax.Array
    spent: Any


def start(prepared: Formulation, q: jax.Array, errors: Any, iterations: jax.Array, spent: Any, level: int) -> State:
    """Before the first step on `level` from `q` (nq,), where the levels above are fulfilled or stationary."""
    dtype, size = q.dtype, len(prepared.moving.own)
    no, none = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    point = empty_point(q, errors, size, level)
    return State(
        best=point,
        base=point,
        required=no,
        lost=point.lost,
        allowed=point.least,
        third=jnp.zeros((size, size), dtype),
        damping=jnp.asarray(rank_threshold(dtype), dtype),
        radius=jnp.asarray(RADIUS, dtype),
        along=jnp.zeros(size, dtype),
        restorations=none,
        size=jnp.full((), jnp.inf, dtype),
        last=no,
        stationary=no,
        ended=no,
        iterations=iterations,
        spent=spent,
    )


def step(prepared: Formulation, state: State, options: SolveOptions, level: int) -> State:
    """Evaluate one trial point, and judge it if the levels above are restored there."""
    best, first = state.best, jnp.isinf(state.best.cost)
    dtype = best.q.dtype
    eps, tolerance = jnp.finfo(dtype).eps, step_tolerance(options, dtype)
    # What is not a number moves nothing, or restoring it would not end.
    before, unmoved = best.off, ~jnp.any(jnp.abs(state.along) > 0)
    # Steps that only restore: after one along the level, before the first one, and, free of charge, after the last.
    late = (state.iterations >= options.max_steps) & ~first
    restoring = ((state.restorations > 0) | late | (unmoved & (before > threshold(dtype)))) & ~state.last
    limits, scale = limits_at(prepared, state.base.q), step_scale(prepared)
    used = jnp.where(state.last, rank_threshold(dtype), state.damping)
    proposed = _proposed(state.base, state.third, limits, scale, used, state.radius, restoring)
    along = jnp.where(restoring & ~late, state.along, proposed.along)
    length = jnp.max(jnp.abs(along))
    trial = evaluate_point(prepared, retract(prepared, state.base.q, limits, scale * proposed.move), level, state.lost)

    finite, left = jnp.isfinite(trial.cost) & jnp.all(jnp.isfinite(trial.restore)), trial.off
    near = jnp.maximum(jnp.maximum(RESTORED * length, CLOSER * before), tolerance)
    restored = (left <= near) & (trial.met | ~state.required)
    kept = jnp.all(trial.least <= state.allowed * (1 + RAISED))
    # Below rounding, and what the merit leaves out, the cost does not tell the better point from the worse.
    blur = NOISE * eps * best.cost + _left_out(best) + _left_out(trial)
    hidden = jnp.abs(proposed.predicted) <= blur
    lower = trial.merit < best.merit
    flatter = (_unsettled(trial) < _unsettled(best)) & (trial.merit <= best.merit + blur)
    # Where restoring is most of the step, the merit of the point before it says little.
    accepted = finite & (first | (restored & kept & (lower | (hidden & flatter) | (before > length))))
    # Nothing restores what the last step leaves.
    accepted = accepted & (~state.last | (left <= tolerance))
    again = finite & ~first & ~restored & (state.restorations < RESTORING_STEPS)
    rejected = ~accepted & ~again
    # What the steps have learned may mislead: before a level counts as stationary, a step without it has to fail.
    misled = rejected & jnp.any(state.third != 0)

    undamped, exhausted = used < DAMPING, used >= 1
    judged = ~first & ~restoring & proposed.convex
    blocked = (proposed.size > tolerance) & jnp.all(proposed.move == 0)
    failed = rejected & ~blocked & (hidden & ~proposed.cut & (undamped | exhausted) | (length <= tolerance))
    failed = failed & (before <= 10 * tolerance) & ~misled
    stationary = (judged & ((undamped & (proposed.size <= tolerance)) | failed)) | (state.last & state.stationary)
    good = accepted & (best.merit - trial.merit > GOOD_RATIO * proposed.predicted)
    worse = rejected & ~proposed.convex
    damping = jnp.where(
        good, SHRINK * state.damping, jnp.where(worse, jnp.maximum(GROW * state.damping, DAMPING), state.damping)
    )
    radius = jnp.where(
        good,
        jnp.maximum(state.radius, 2 * length),
        jnp.where(rejected & (length > 0) & ~misled, SHORTER * length, state.radius),
    )
    informed = accepted & ~first & ~state.last & jnp.any(state.lost)
    third = jnp.where(misled, 0, state.third)
    third = lax.cond(informed, lambda: _learned(third, state.best, trial, along), lambda: third)
    best = _where(accepted, trial, best)
    iterations = state.iterations + jnp.where(first | late | state.last, 0, 1).astype(jnp.int32)
    settled = best.off <= tolerance
    # What the last steps leave unrestored is dropped: the best point is restored, late.
    onward = again & ~state.last & (late | (iterations < options.max_steps))
    over = stationary | ((iterations >= options.max_steps) & settled)
    last = over & ~(judged & undamped) & ~state.last & ~first
    return State(
        best=best,
        base=_where(onward, trial, best),
        required=jnp.where(first, trial.met, state.required),
        lost=jnp.where(first, trial.lost, state.lost),
        allowed=jnp.where(first, jnp.maximum(trial.least, 0), state.allowed),
        third=third,
        damping=jnp.where(first, state.damping, jnp.clip(damping, rank_threshold(dtype), MAX_DAMPING)),
        radius=jnp.where(first, state.radius, radius),
        along=along,
        restorations=jnp.where(onward, state.restorations + 1, 0),
        size=jnp.where(judged & undamped, proposed.size, state.size),
        last=last,
        stationary=stationary,
        ended=(over & ~last)
        | state.last
        | (first & ~accepted)
        # What was restored late, from the best point, did not come near: it would not the next time.
        | (late & rejected & unmoved),
        iterations=iterations,
        spent=state.spent,
    )


def _left_out(point: Point) -> jax.Array:
    """How far the merit may be off: by the square of what restores the levels above."""
    return 10 * point.unit * jnp.sum(point.restore * point.restore)


def _unsettled(point: Point) -> jax.Array:
    """How far a point is from where nothing is left to do, in units of step."""
    return point.slope + point.off


def _learned(third: jax.Array, before: Point, after: Point, along: jax.Array) -> jax.Array:
    """What third derivatives add to the level's Hessian, so that it explains how a step (n,) changed the gradient."""
    left, same = nullspace_projector(after.tight), jnp.all(after.tight.free == before.tight.free)
    same = same & (jnp.abs(jnp.trace(left) - jnp.trace(nullspace_projector(before.tight))) < 0.5)
    moved = left @ along
    missing = left @ (after.reduced - before.reduced - (after.hessians[-1] + third) @ moved)
    share, most = missing @ moved, jnp.sqrt((missing @ missing) * (moved @ moved))
    telling = same & (jnp.abs(share) > TELLING * most)
    return third + jnp.where(telling, missing[:, None] * missing / jnp.where(telling, share, 1), 0)


def _where(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


class Proposal(NamedTuple):
    """A step, in units of step.

    Attributes:
      move, along (n,): in all, and its part along the level.
      size (): largest entry of the step that bounds did not cut short [rad or m].
      cut (): whether the part along the level was shortened to the radius.
      predicted (): decrease of the level's cost that it promises.
      convex (): whether the model is.
    """

    move: jax.Array
    along: jax.Array
    size: jax.Array
    cut: jax.Array
    predicted: jax.Array
    convex: jax.Array


def _proposed(
    point: Point,
    third: jax.Array,
    limits: Box,
    scale: jax.Array,
    damping: jax.Array,
    radius: jax.Array,
    restoring: jax.Array,
) -> Proposal:
    """A step from a point.

    Coordinates that would leave a bound they are at are held there, and the rest solved again; the part along the level
    goes no further than to the next bound. Put onto a bound far away, a coordinate would ask of the levels above what
    they cannot give.
    """
    above, gradient, hessian = point.above, point.gradients[-1], point.hessians[-1] + third
    lower, upper = limits.lower / scale, limits.upper / scale
    eye = jnp.eye(scale.shape[0], dtype=scale.dtype)
    close = 100 * jnp.finfo(scale.dtype).eps

    def again(found: tuple[Any, ...]) -> tuple[Any, ...]:
        needs, restore, turn = found[:3]
        # What levels above need and bounds hold is filled up, as the slope has nothing there.
        left = nullspace_projector(needs)
        filled = (1 + damping) * eye - left
        slope = left @ (gradient + point.hessians[-1] @ restore)

        def minimise(hessian: jax.Array, shift: jax.Array) -> tuple[jax.Array, jax.Array]:
            move, pivot = solve_positive(left @ hessian @ left + filled + shift * left, -slope)
            return left @ move, pivot > 0

        def shifted() -> tuple[jax.Array, jax.Array]:
            # Below a level out of reach the exact one lacks third derivatives.
            known = jnp.where(jnp.any(point.lost), point.gauss_newton, point.hessians[-1])
            moves, positive = jax.vmap(lambda shift: minimise(known, shift))(jnp.asarray(SHIFTS, slope.dtype))
            fits = positive & (jnp.max(jnp.abs(moves), axis=1) <= radius)
            move = moves[jnp.where(jnp.any(fits), jnp.argmax(fits), len(SHIFTS) - 1)]
            return move, jnp.sum(move * (known @ move))

        exact, convex = minimise(hessian, jnp.zeros_like(damping))
        along, bent = lax.cond(convex, lambda: (exact, jnp.sum(exact * (hessian @ exact))), shifted)
        along = jnp.where(restoring, 0, along)
        wanted = restore + along
        leaving = needs.free & (((lower >= -close) & (wanted < 0)) | ((upper <= close) & (wanted > 0)))

        def held() -> tuple[RowSpaces, jax.Array]:
            narrower = row_spaces(above, needs.free & ~leaving)
            return narrower, restoration_step(narrower, above)

        more = jnp.any(leaving) & (turn < PASSES - 1)
        needs, restore = lax.cond(more, held, lambda: (needs, restore))
        return needs, restore, jnp.where(more, turn + 1, PASSES), along, bent, jnp.sum(slope * along), convex

    zero = jnp.zeros_like(point.cost)
    loose = restoring & ~point.keeps
    needs = _where(loose, point.needs, point.tight)
    kept = point.keeps | restoring
    restore = lax.cond(kept, lambda: point.restore, lambda: restoration_step(needs, above))
    carry = needs, restore, jnp.zeros((), jnp.int32), jnp.zeros_like(scale), zero, zero, jnp.ones((), bool)
    needs, restore, _, along, bent, sloping, convex = lax.while_loop(lambda found: found[2] < PASSES, again, carry)
    restore = jnp.clip(restore, lower, upper)
    room = jnp.where(along < 0, lower - restore, upper - restore)
    share = jnp.min(jnp.where(along != 0, room / jnp.where(along != 0, along, 1), 1))
    length = jnp.max(jnp.abs(along))
    cut = length > radius
    share = jnp.minimum(jnp.clip(share, 0, 1), jnp.where(cut, radius / jnp.where(cut, length, 1), 1))
    predicted = point.unit * (-share * sloping - 0.5 * share * share * bent)
    move = jnp.clip(restore + share * along, lower, upper)
    # What is held a rounding short of its bound goes onto it: derivatives ask which bounds hold.
    move = jnp.where(~needs.free & (upper <= close), upper, jnp.where(~needs.free & (lower >= -close), lower, move))
    return Proposal(move, share * along, jnp.max(jnp.abs(scale * (restore + along))), cut, predicted, convex)
