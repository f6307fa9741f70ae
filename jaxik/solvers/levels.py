"""Newton steps on a lower level, in what the levels above leave free.

A level above is fulfilled, or as good as it gets: its gradient is zero, and stays so along the null space of its exact
Hessian. A step goes along that space, with a part that restores the levels above; where a trial point is not restored,
further parts follow, at one linearisation each, before it is judged. A joint that a level above presses against its
bound stays there. So the levels above do not see the costs of the one below.

The Hessian along the null space is that of the Lagrangian: the levels above pull with the multipliers that balance the
gradient of the one below (Absil, Mahony, Sepulchre: Optimization Algorithms on Matrix Manifolds, 2008, section 5.5).
Of a level out of reach that would take third derivatives; without them steps converge linearly.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.evaluation import Prepared, curvature, errors, evaluate, met, reached, rows
from jaxik.limits.box import Box, bends, to_box
from jaxik.linalg import largest, solve_positive
from jaxik.solvers.measure import NOISE, limits_at, not_held, step_scale
from jaxik.solvers.needs import Needs, left_free, needs_of, pressed, rank_threshold, restored_by, solve_within
from jaxik.solvers.options import SolveOptions, step_tolerance

# A step that fails is tried again with at least this damping, relative to the largest entry of the Hessian.
DAMPING = 1e-3
SHRINK, GROW, MAX_DAMPING = 0.05, 10.0, 1e6
# And no longer than this share of it.
SHORTER = 0.25
GOOD_RATIO = 0.5
# A trial point counts as restored when what restores it is this share of the step that led there.
RESTORED = 0.1
RESTORING_STEPS = 4
# How often the coordinates that a bound holds are determined within a step; one more is found each time.
PASSES = 4
# Farther off than this, in units of step, the levels above are restored before anything else.
FAR = 1e-6
# A level whose gradient is below this share of what its residual could give is as good as it gets, but not fulfilled.
OUT_OF_REACH = 1e-3
# A level out of reach may cost so much more than at first, as a share: rounding.
RAISED = 1e-5
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
      needs: what the levels above need of the coordinates that they leave where they are.
      tight: the same, but for the coordinates that the level presses against their bound: where its steps begin. Held
        by the first step that would cross it instead, a joint could stay at a bound that the level pulls it from.
      restore (n,): the step that restores the levels above.
      keeps (): whether it leaves the coordinates of `tight` where they are. Let go, they would come back from their
        bound, by little each time that the level presses them against it.
      slope (): norm of the level's gradient along what they leave free.
      lost (k,): which levels above are out of reach: stationary, but not fulfilled, here or where the steps began.
      above, blur (k,): the costs of the levels above once restored, to second order, and how large the third may be.
      met: whether the tasks of the levels above meet their tolerances.
    """

    q: jax.Array
    errors: Any
    cost: jax.Array
    unit: jax.Array
    gradients: jax.Array
    hessians: jax.Array
    gauss_newton: jax.Array
    needs: Needs
    tight: Needs
    restore: jax.Array
    keeps: jax.Array
    slope: jax.Array
    lost: jax.Array
    above: jax.Array
    blur: jax.Array
    met: jax.Array

    @property
    def merit(self) -> jax.Array:
        """The level's cost where the levels above are restored, to first order."""
        return self.cost + self.unit * jnp.sum(self.gradients[-1] * self.restore)


class State(NamedTuple):
    """One element between two steps.

    Attributes:
      best, base: the best point so far, and the one that the next step starts from, while it is restored.
      required: whether points must meet the tolerances of the levels above, as the first one did.
      lost (k,): which levels above were out of reach at the first point. Where it is not restored, none looks so, and
        an arm that is stretched went astray, restored as if it could be fulfilled.
      allowed (k,): the costs of the levels above there. What makes their gradients zero may lead to worse places.
      damping (), radius (), length (): of the next step along the level its damping and the most that it may be, of the
        last one its length; both in units of step.
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
    damping: jax.Array
    radius: jax.Array
    length: jax.Array
    restorations: jax.Array
    size: jax.Array
    last: jax.Array
    stationary: jax.Array
    ended: jax.Array
    iterations: jax.Array
    spent: Any


def start(prepared: Prepared, q: jax.Array, errors: Any, iterations: jax.Array, spent: Any, level: int) -> State:
    """Before the first step on `level` from `q` (nq,), where the levels above are fulfilled or stationary."""
    dtype, size = q.dtype, len(prepared.moving.own)
    zero, no, none = jnp.zeros((), dtype), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    flat = jnp.zeros((size, size), dtype)
    nothing = Needs(jnp.ones(size, bool), jnp.zeros((level, size, size), dtype), jnp.zeros((level, size, size), dtype))
    point = Point(
        q=q,
        errors=errors,
        cost=jnp.full((), jnp.inf, dtype),
        unit=zero,
        gradients=jnp.zeros((level + 1, size), dtype),
        hessians=jnp.zeros((level + 1, size, size), dtype),
        gauss_newton=flat,
        needs=nothing,
        tight=nothing,
        restore=flat[0],
        keeps=no,
        slope=zero,
        lost=jnp.zeros(level, bool),
        above=jnp.zeros(level, dtype),
        blur=jnp.zeros(level, dtype),
        met=no,
    )
    damping = jnp.asarray(rank_threshold(dtype), dtype)
    unknown = jnp.full((), jnp.inf, dtype)
    return State(
        best=point,
        base=point,
        required=no,
        lost=point.lost,
        allowed=point.above,
        damping=damping,
        radius=zero + 1,
        length=zero,
        restorations=none,
        size=unknown,
        last=no,
        stationary=no,
        ended=no,
        iterations=iterations,
        spent=spent,
    )


def step(prepared: Prepared, state: State, options: SolveOptions, level: int) -> State:
    """Evaluate one trial point, and judge it if the levels above are restored there."""
    best, first = state.best, jnp.isinf(state.best.cost)
    dtype = best.q.dtype
    eps, tolerance = jnp.finfo(dtype).eps, step_tolerance(options, dtype)
    before = jnp.max(jnp.abs(best.restore))
    # Steps that only restore: after one along the level, before the first one, and, free of charge, after the last.
    late = (state.iterations >= options.max_steps) & ~first
    restoring = ((state.restorations > 0) | late | ((state.length == 0) & (before > FAR))) & ~state.last
    limits, scale = limits_at(prepared, state.base.q), step_scale(prepared)
    used = jnp.where(state.last, rank_threshold(dtype), state.damping)
    proposed = _proposed(state.base, limits, scale, used, state.radius, restoring)
    length = jnp.where(restoring & ~late, state.length, jnp.max(jnp.abs(proposed.along)))
    trial = _evaluate(prepared, reached(prepared, state.base.q, limits, scale * proposed.move), level, state.lost)

    finite = jnp.isfinite(trial.cost) & jnp.all(jnp.isfinite(trial.restore))
    left = jnp.max(jnp.abs(trial.restore))
    restored = (left <= jnp.maximum(RESTORED * jnp.maximum(length, before), tolerance)) & (trial.met | ~state.required)
    kept = jnp.all(~state.lost | (trial.above <= state.allowed * (1 + RAISED) + trial.blur))
    # Below rounding, and what the merit leaves out, the cost does not tell the better point from the worse.
    blur = NOISE * eps * best.cost + _left_out(best) + _left_out(trial)
    unseen = jnp.abs(proposed.predicted) <= blur
    lower = trial.merit < best.merit
    flatter = (_unsettled(trial) < _unsettled(best)) & (trial.merit <= best.merit + blur)
    # Where restoring is most of the step, the merit of the point before it says little.
    accepted = finite & (first | (restored & kept & (lower | (unseen & flatter) | (before > length))))
    # Nothing restores what the last step leaves.
    accepted = accepted & (~state.last | (left <= tolerance))
    again = finite & ~first & ~restored & (state.restorations < RESTORING_STEPS)
    rejected = ~accepted & ~again

    undamped, exhausted = used < DAMPING, used >= 1
    judged = ~first & ~restoring & proposed.convex
    blocked = (proposed.size > tolerance) & jnp.all(proposed.move == 0)
    failed = rejected & ~blocked & (unseen & ~proposed.cut & (undamped | exhausted) | (length <= tolerance))
    failed = failed & (before <= 10 * tolerance)
    stationary = (judged & ((undamped & (proposed.size <= tolerance)) | failed)) | (state.last & state.stationary)
    good = accepted & (best.merit - trial.merit > GOOD_RATIO * proposed.predicted)
    worse = rejected & ~proposed.convex
    damping = jnp.where(
        good, SHRINK * state.damping, jnp.where(worse, jnp.maximum(GROW * state.damping, DAMPING), state.damping)
    )
    radius = jnp.where(
        good, jnp.maximum(state.radius, 2 * length), jnp.where(rejected & (length > 0), SHORTER * length, state.radius)
    )
    best = _where(accepted, trial, best)
    iterations = state.iterations + jnp.where(first | late | state.last, 0, 1).astype(jnp.int32)
    settled = jnp.max(jnp.abs(best.restore)) <= tolerance
    over = stationary | ((iterations >= options.max_steps) & settled)
    last = over & ~(judged & undamped) & ~state.last & ~first
    return State(
        best=best,
        base=_where(again & ~state.last, trial, best),
        required=jnp.where(first, trial.met, state.required),
        lost=jnp.where(first, trial.lost, state.lost),
        allowed=jnp.where(first, trial.above, state.allowed),
        damping=jnp.where(first, state.damping, jnp.clip(damping, rank_threshold(dtype), MAX_DAMPING)),
        radius=jnp.where(first, state.radius, radius),
        length=length,
        restorations=jnp.where(again, state.restorations + 1, 0),
        size=jnp.where(judged & undamped, proposed.size, state.size),
        last=last,
        stationary=stationary,
        ended=(over & ~last)
        | state.last
        | (first & ~accepted)
        # What was restored late, from the best point, did not come near: it would not the next time.
        | (late & rejected & (state.length == 0)),
        iterations=iterations,
        spent=state.spent,
    )


def _left_out(point: Point) -> jax.Array:
    """How far the merit may be off: by the square of what restores the levels above."""
    return 10 * point.unit * jnp.sum(point.restore * point.restore)


def _unsettled(point: Point) -> jax.Array:
    """How far a point is from where nothing is left to do, in units of step."""
    return point.slope + jnp.max(jnp.abs(point.restore))


def _where(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def _evaluate(prepared: Prepared, q: jax.Array, level: int, lost: jax.Array) -> Point:
    kin, scale, moving = evaluate(prepared, q), step_scale(prepared), prepared.moving
    limits, names = limits_at(prepared, q), prepared.levels

    def curved(j: int, pull: jax.Array) -> jax.Array:
        """Second derivative of pull . residual, of level j, for a constant pull, along coordinates that do not bend."""
        matrix = curvature(prepared, kin, names[j], pull)
        return scale[:, None] * to_box(moving, limits, to_box(moving, limits, matrix).T) * scale

    def bent(gradient: jax.Array) -> jax.Array:
        return scale[:, None] * bends(prepared.robot, moving, q, limits, gradient) * scale

    models = [rows(prepared, kin, names[j]) for j in range(level + 1)]
    jacobians = [to_box(moving, limits, model.jacobian) * scale for model in models]
    squares = [jacobian.T @ jacobian for jacobian in jacobians]
    units = [largest(jnp.sum(jacobian * jacobian, axis=0)) for jacobian in jacobians]
    gradients = [model.residual @ j / unit for model, j, unit in zip(models, jacobians, units, strict=True)]
    hessians, out_of_reach = [], []
    for j, (model, square) in enumerate(zip(models, squares, strict=True)):
        bend = curved(j, model.residual)
        if j < level:
            bend = bend + bent(model.residual @ model.jacobian)
            # What is left of a residual that can reach zero would bend directions that the level leaves free.
            still, weight = standing(model.residual, gradients[j], units[j], limits)
            bend = jnp.where(still | lost[j], bend, 0)
            out_of_reach.append(lost[j] | (still & (weight > FAR)))
        hessians.append((square + bend) / units[j])
    needs = needs_of(hessians[:level], ~pressed(limits, gradients[:level], hessians[:level]))
    restore = restored_by(needs, gradients[:level], hessians[:level])

    pulled = gradients[level] + hessians[level] @ restore
    # Coordinates that the level itself presses against a bound balance it there, and not the levels above.
    free = needs.free & not_held(limits, left_free(needs) @ pulled)
    tight = needs_of(hessians[:level], free)
    kept = restored_by(tight, gradients[:level], hessians[:level])
    above = list(zip(gradients[:level], hessians[:level], strict=True))
    keeps = jnp.all(
        jnp.stack([_left_over(needs, *own, kept) <= KEPT * _left_over(needs, *own, 0 * kept) for own in above])
    )
    restore = jnp.where(keeps, kept, restore)
    total = models[level].residual @ models[level].jacobian / units[level]
    for j in reversed(range(level)):
        balance = -solve_within(tight, j, pulled)
        pulled = pulled + hessians[j] @ balance
        pull = jacobians[j] @ balance / units[j]
        # Of a level out of reach that is one of three parts of its third derivatives, and worse than nothing: where the
        # others cancel it, as a wrist that the level does not need, steps went a tenth of the way.
        hessians[level] = hessians[level] + jnp.where(out_of_reach[j], 0, curved(j, pull))
        total = total + pull @ models[j].jacobian
    # A limit bends coordinates as far as all levels together press against it.
    hessians[level] = hessians[level] + bent(total)
    reduced = left_free(tight) @ pulled
    reduced = jnp.where(not_held(limits, reduced), reduced, 0)
    found = errors(prepared, kin)
    heights, pulling = jnp.stack(units[:level]), jnp.stack(gradients[:level])
    return Point(
        q=q,
        errors=found,
        cost=0.5 * jnp.sum(models[level].residual ** 2),
        unit=units[level],
        gradients=jnp.stack(gradients),
        hessians=jnp.stack(hessians),
        gauss_newton=squares[level] / units[level],
        needs=needs,
        tight=tight,
        restore=restore,
        keeps=keeps,
        slope=jnp.sqrt(jnp.sum(reduced * reduced)),
        lost=jnp.stack(out_of_reach),
        above=jnp.stack([0.5 * m.residual @ m.residual for m in models[:level]]) + 0.5 * heights * (pulling @ restore),
        blur=heights * jnp.max(jnp.abs(restore)) ** 3,
        met=jnp.all(jnp.stack([met(prepared, found, names[j]) for j in range(level)])),
    )


def standing(residual: jax.Array, gradient: jax.Array, unit: jax.Array, limits: Box) -> tuple[jax.Array, jax.Array]:
    """Whether a level is as good as it gets, and how far from fulfilled (), in units of step.

    Args:
      residual (m,), gradient (n,): of the level, the latter divided by `unit` (), its largest curvature.
    """
    pull = jnp.where(not_held(limits, gradient), gradient, 0)
    weight = jnp.sqrt(jnp.sum(residual**2) / unit)
    return jnp.max(jnp.abs(pull)) <= OUT_OF_REACH * weight, weight


def _left_over(needs: Needs, gradient: jax.Array, hessian: jax.Array, move: jax.Array) -> jax.Array:
    """How far a level is from stationary () after a move (n,), on its free coordinates."""
    return jnp.max(jnp.abs(jnp.where(needs.free, gradient + hessian @ move, 0)))


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
    point: Point, limits: Box, scale: jax.Array, damping: jax.Array, radius: jax.Array, restoring: jax.Array
) -> Proposal:
    """A step from a point.

    Coordinates that would leave a bound they are at are held there, and the rest solved again; the part along the level
    goes no further than to the next bound. Put onto a bound far away, a coordinate would ask of the levels above what
    they cannot give.
    """
    level = point.gradients.shape[0] - 1
    gradients, hessians = list(point.gradients), list(point.hessians)
    lower, upper = limits.lower / scale, limits.upper / scale
    eye = jnp.eye(scale.shape[0], dtype=scale.dtype)
    close = 100 * jnp.finfo(scale.dtype).eps

    def again(found: tuple[Any, ...]) -> tuple[Any, ...]:
        needs, restore, turn = found[:3]
        # What levels above need and bounds hold is filled up, as the slope has nothing there.
        left = left_free(needs)
        filled = (1 + damping) * eye - left
        slope = left @ (gradients[level] + hessians[level] @ restore)

        def minimise(hessian: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            move, pivot = solve_positive(left @ hessian @ left + filled, -slope)
            move = left @ move
            return move, jnp.sum(move * (hessian @ move)), pivot

        exact, bent, least = minimise(hessians[level])
        convex = least > 0
        along, bent = lax.cond(convex, lambda: (exact, bent), lambda: minimise(point.gauss_newton)[:2])
        along = jnp.where(restoring, 0, along)
        wanted = restore + along
        leaving = needs.free & (((lower >= -close) & (wanted < 0)) | ((upper <= close) & (wanted > 0)))

        def held() -> tuple[Needs, jax.Array]:
            narrower = needs_of(hessians[:level], needs.free & ~leaving)
            return narrower, restored_by(narrower, gradients[:level], hessians[:level])

        more = jnp.any(leaving) & (turn < PASSES - 1)
        needs, restore = lax.cond(more, held, lambda: (needs, restore))
        return needs, restore, jnp.where(more, turn + 1, PASSES), along, bent, jnp.sum(slope * along), convex

    zero = jnp.zeros_like(point.cost)
    loose = restoring & ~point.keeps
    needs = _where(loose, point.needs, point.tight)
    kept = point.keeps | restoring
    restore = lax.cond(kept, lambda: point.restore, lambda: restored_by(needs, gradients[:level], hessians[:level]))
    carry = needs, restore, jnp.zeros((), jnp.int32), jnp.zeros_like(scale), zero, zero, jnp.ones((), bool)
    _, restore, _, along, bent, sloping, convex = lax.while_loop(lambda found: found[2] < PASSES, again, carry)
    restore = jnp.clip(restore, lower, upper)
    room = jnp.where(along < 0, lower - restore, upper - restore)
    share = jnp.min(jnp.where(along != 0, room / jnp.where(along != 0, along, 1), 1))
    length = jnp.max(jnp.abs(along))
    cut = length > radius
    share = jnp.minimum(jnp.clip(share, 0, 1), jnp.where(cut, radius / jnp.where(cut, length, 1), 1))
    predicted = point.unit * (-share * sloping - 0.5 * share * share * bent)
    move = jnp.clip(restore + share * along, lower, upper)
    return Proposal(move, share * along, jnp.max(jnp.abs(scale * (restore + along))), cut, predicted, convex)
