"""Minimise one convex quadratic program by the dual active-set method, with iterative refinement."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.qp_solver import goldfarb_idnani
from jaxik.qp_solver.certificate import unbounded_direction
from jaxik.qp_solver.finalize import all_finite, finalize
from jaxik.qp_solver.options import QPOptions, max_iterations
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution
from jaxik.qp_solver.scaling import ScaledQP, curved_along_equalities, scaled_qp, with_symmetric_hessian
from jaxik.qp_solver.sweep_tableau import (
    Point,
    Rounding,
    Tableau,
    initial_tableau,
    kkt_errors,
    one_hot,
    pivot_many,
    refine,
    rounding,
)
from jaxik.qp_solver.violations import violated_constraints, yielding

# Refinement is as good as it gets when it shrinks the error by less than this.
STAGNANT = 0.25
# With added curvature each pass is a step of the proximal-point method: a few are usual, and these are enough.
MAX_PASSES = 100
# An extrapolated pass adds twice the last motion, so that the motion triples from pass to pass.
EXTRAPOLATION = 2
# The factor by which the added curvature grows each time that a tableau is rebuilt, and its maximum.
CURVATURE_GROWTH, MAX_CURVATURE = 10, 0.1
# Pivots of one pass, at most: about as many as a tableau takes before its rounding has to be checked.
PIVOTS_PER_PASS = 32


class _State(NamedTuple):
    """The iterate between two passes.

    Attributes:
      dual: active set, values and multipliers.
      changing (N,): constraints that change sides at once in the next pass, to bring a new tableau to the active set.
      error (): the last error of the tableau, relative to values and multipliers.
      stationarity (): the last error of stationarity, relative alike.
      previous (N,): values before the last pass.
      extrapolating (): whether the next pass extrapolates the last motion.
      pivots, rebuilt_at (): iterations of `dual` before the last pass, and when the tableau was last rebuilt.
      added (): the curvature that a rebuilt tableau adds to all variables.
      direction (n,): one along which the objective is unbounded, where it is.
      passes ().
      unbounded, done ().
    """

    dual: goldfarb_idnani.State
    changing: jax.Array
    error: jax.Array
    stationarity: jax.Array
    previous: jax.Array
    extrapolating: jax.Array
    pivots: jax.Array
    rebuilt_at: jax.Array
    added: jax.Array
    direction: jax.Array
    passes: jax.Array
    unbounded: jax.Array
    done: jax.Array


class _Accuracy(NamedTuple):
    """The errors at the start of a pass, and what to do about the tableau.

    Attributes:
      stationarity, error (): see `_State`.
      flat (): whether the tableau has added curvature.
      rebuild (): whether to build the tableau anew, with the curvature `added` ().
    """

    stationarity: jax.Array
    error: jax.Array
    flat: jax.Array
    rebuild: jax.Array
    added: jax.Array


def minimise(program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None) -> QPSolution:
    """Minimise one convex quadratic program: a function of one element, for `lanes` and `vmap`.

    The dual active-set method of Goldfarb and Idnani, on a tableau that is swept as constraints enter and leave. Values
    and multipliers are refined against the program itself. Where H is flat, curvature is added, and removed again by
    the proximal-point method.

    Args:
      program: arrays of one floating dtype; which of its blocks exist is static. Only the symmetric part of H counts.
      warm_start: the active set of a similar program. A bad one costs time, and never changes the solution.
      options: `QPOptions`.

    Returns:
      A `QPSolution`; failure is a status.
    """
    options = QPOptions() if options is None else options
    program = with_symmetric_hessian(program)
    solvable = _solvable(program, all_finite(program) & jnp.all(program.lower <= program.upper))
    scaled = scaled_qp(curved_along_equalities(solvable))
    state = _initial_state(solvable, scaled, warm_start)
    limit = max_iterations(options, scaled.vector.shape[0])
    state = lax.while_loop(lambda s: ~s.done, lambda s: _pass(solvable, scaled, s, limit), state)
    return finalize(program, solvable, scaled, state.dual, state.direction, state.unbounded, options)


def _solvable(program: Program, valid: jax.Array) -> Program:
    """The program if valid, else one of zeros without bounds, so that no NaN keeps the loop going."""
    empty = jax.tree.map(jnp.zeros_like, program)
    penalties = jax.tree.map(jnp.ones_like, (program.row_penalties, program.equality_penalties))
    empty = empty._replace(
        lower=jnp.full_like(program.lower, -jnp.inf),
        upper=jnp.full_like(program.upper, jnp.inf),
        row_penalties=penalties[0],
        equality_penalties=penalties[1],
    )
    return jax.tree.map(lambda x, zero: jnp.where(valid, x, zero), program, empty)


def _initial_state(program: Program, scaled: ScaledQP, warm_start: ActiveSet | None) -> _State:
    n, size, dtype = scaled.variables, scaled.vector.shape[0], scaled.vector.dtype
    rows = 0 if program.G is None else program.G.shape[0]
    lower, upper = scaled.lower[:n], scaled.upper[:n]
    at_upper = at_lower = lower == upper
    active_rows, multiplier, equalities_hold = (
        jnp.zeros(rows, bool),
        jnp.zeros(size, dtype),
        jnp.ones(size - n - rows, bool),
    )
    if warm_start is not None:
        at_upper = at_upper | ((warm_start.bounds > 0) & (upper < jnp.inf))
        at_lower = at_lower | ((warm_start.bounds < 0) & (lower > -jnp.inf))
        active_rows = warm_start.rows
        if warm_start.yielding is not None and scaled.penalty is not None:
            yields = (warm_start.yielding != 0) & jnp.isfinite(scaled.penalty[n:])
            multiplier = jnp.where(yields, warm_start.yielding * scaled.penalty[n:], 0)
            multiplier = jnp.concatenate([jnp.zeros(n, dtype), multiplier])
            active_rows, equalities_hold = active_rows & ~yields[:rows], ~yields[rows:]
    inside = jnp.clip(jnp.zeros(n, dtype), lower, upper)
    x = jnp.where(at_upper, upper, jnp.where(at_lower, lower, inside))
    point = Point(jnp.concatenate([x, jnp.zeros(size - n, dtype)]), multiplier)
    no, count = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    infinite = jnp.full((), jnp.inf, dtype)
    dual = goldfarb_idnani.State(
        tableau=initial_tableau(scaled, jnp.zeros(size, dtype)),
        point=point,
        center=point.value,
        entering=jnp.full((), goldfarb_idnani.NONE, jnp.int32),
        ignored=jnp.zeros(size, bool),
        ray=jnp.zeros(size, dtype),
        infeasible=no,
        idle=no,
        iterations=count,
    )
    return _State(
        dual=dual,
        changing=jnp.concatenate([~(at_upper | at_lower), active_rows, equalities_hold]),
        error=infinite,
        stationarity=infinite,
        previous=point.value,
        extrapolating=no,
        pivots=count,
        rebuilt_at=count,
        added=jnp.zeros((), dtype),
        direction=jnp.zeros(n, dtype),
        passes=count,
        unbounded=no,
        done=no,
    )


def _pass(program: Program, scaled: ScaledQP, state: _State, limit: jax.Array | int) -> _State:
    """Solve for values and multipliers at the active set by one refinement, and find a better active set."""
    numbers = rounding(scaled.vector.dtype)
    before, changing = state.dual, jnp.any(state.changing)
    table = pivot_many(scaled, before.tableau, state.changing)
    active = table.active
    point = _extrapolated(scaled, state, active)
    recomputed, off = kkt_errors(scaled, active, point, scaled.vector)
    accuracy = _accuracy(scaled, state, table, point, off, changing)
    rebuild, flat = accuracy.rebuild, accuracy.flat
    refined = refine(table, point, recomputed, off)
    solved = before._replace(
        tableau=table,
        point=jax.tree.map(lambda new, old: jnp.where(rebuild, old, new), refined, point),
        center=point.value,
        ignored=jnp.zeros_like(before.ignored),
    )

    violated = violated_constraints(scaled, solved.point, active, solved.ignored)
    optimal = ~jnp.any(violated) & (solved.entering == goldfarb_idnani.NONE)
    after = goldfarb_idnani.run(
        program,
        scaled,
        solved._replace(idle=optimal | rebuild),
        jnp.minimum(limit, before.iterations + PIVOTS_PER_PASS),
    )
    unchanged = (after.iterations == before.iterations) & ~rebuild
    passes = state.passes + 1
    direction, unbounded = _unbounded(program, scaled, flat & (passes > 3) & ~rebuild, before.point, after.point)
    settled = _settled(state, accuracy, unchanged, changing, numbers)
    exhausted = (after.iterations >= limit) | (passes >= MAX_PASSES)

    rebuilt = initial_tableau(scaled, jnp.where(scaled.is_bound, accuracy.added, 0).astype(point.value.dtype))
    after = after._replace(
        tableau=jax.tree.map(lambda new, old: jnp.where(rebuild, new, old), rebuilt, after.tableau)._replace(
            convex=table.convex
        ),
    )
    left = accuracy.stationarity
    return _State(
        dual=after,
        changing=rebuild & (active != scaled.is_bound),
        error=accuracy.error,
        stationarity=left,
        previous=before.point.value,
        extrapolating=unchanged & flat & (left < 1.1 * state.stationarity) & (left > STAGNANT * state.stationarity),
        pivots=before.iterations,
        rebuilt_at=jnp.where(rebuild, after.iterations, state.rebuilt_at),
        added=accuracy.added,
        direction=direction,
        passes=passes,
        unbounded=unbounded,
        done=settled | after.infeasible | unbounded | exhausted | ~table.convex,
    )


def _extrapolated(scaled: ScaledQP, state: _State, active: jax.Array) -> Point:
    """The point to refine. Where H is flat the proximal steps all go one way: extrapolation takes longer ones."""
    before = state.dual
    leap = jnp.where(active | ~state.extrapolating, 0, EXTRAPOLATION * (before.point.value - state.previous))
    kept = active | one_hot(before.entering, active.shape[0])
    if scaled.penalty is not None:
        kept = kept | (yielding(scaled, before.point, active) != 0)
    return Point(before.point.value + leap, jnp.where(kept, before.point.multiplier, 0))


def _accuracy(
    scaled: ScaledQP, state: _State, table: Tableau, point: Point, off: jax.Array, changing: jax.Array
) -> _Accuracy:
    """Decide from the errors `off` (N,) of a point whether rounding has spoilt the tableau, so that it is rebuilt."""
    before, numbers = state.dual, rounding(scaled.vector.dtype)
    stationarity = _relative_error(scaled, point, off)
    # The force of the added curvature towards its centre is no error of the tableau.
    force = jnp.where(table.active, 0, table.added * (point.value - before.center))
    moving = changing | state.extrapolating
    error = jnp.where(moving, state.error, _relative_error(scaled, point, off - force))
    since = before.iterations - state.rebuilt_at
    stagnant = (before.iterations == state.pivots) & (error > STAGNANT * state.error)
    inaccurate = (error > numbers.eps**0.4) | ((error > 64 * numbers.eps) & (stagnant | (since > 2 * PIVOTS_PER_PASS)))
    # A rebuilt tableau that is no better is too ill-conditioned for the precision.
    ill_conditioned = stagnant & (error > 64 * numbers.eps) & (state.added < MAX_CURVATURE)
    inaccurate = ((inaccurate & (since > 0)) | ill_conditioned) & ~moving
    flat = jnp.any(table.added > 0)
    rebuild = inaccurate | (flat & ~jnp.all((table.added > 0) | ~scaled.is_bound))
    # One that becomes inaccurate a second time is, too: it gets more curvature, each time.
    again = inaccurate & (flat | (state.rebuilt_at > 0) | (since == 0))
    added = jnp.where(again, jnp.minimum(CURVATURE_GROWTH * state.added, MAX_CURVATURE), state.added)
    added = jnp.where(rebuild & (flat | again), jnp.maximum(added, numbers.added), added)
    return _Accuracy(stationarity, error, flat, rebuild, added)


def _unbounded(
    program: Program, scaled: ScaledQP, tested: jax.Array, before: Point, after: Point
) -> tuple[jax.Array, jax.Array]:
    """The direction (n,) of the last motion, and whether the objective is unbounded along it; zeros if not tested."""
    n = scaled.variables
    return lax.cond(
        tested,
        lambda: unbounded_direction(
            program,
            scaled.variable_scale * (after.value - before.value)[:n],
            rounding(scaled.vector.dtype).eps ** 0.5,
        ),
        lambda: (jnp.zeros(n, before.value.dtype), jnp.zeros((), bool)),
    )


def _settled(
    state: _State, accuracy: _Accuracy, unchanged: jax.Array, changing: jax.Array, numbers: Rounding
) -> jax.Array:
    """Whether the active set is final and refinement is as good as it gets."""
    stuck = (accuracy.stationarity > STAGNANT * state.stationarity) & (
        ~accuracy.flat | (accuracy.stationarity < 64 * numbers.eps)
    )
    stuck = stuck & (state.dual.iterations == state.pivots)
    return unchanged & ((accuracy.stationarity <= 16 * numbers.eps) | (stuck & ~changing))


def _relative_error(scaled: ScaledQP, point: Point, off: jax.Array) -> jax.Array:
    """The largest error () relative to the terms that it is a sum of."""
    values = jnp.max(jnp.where(scaled.is_bound, jnp.abs(point.value), 0))
    gradients = jnp.max(jnp.where(scaled.is_bound, jnp.abs(scaled.vector), 0))
    multipliers = jnp.maximum(jnp.maximum(scaled.max_curvature * values, gradients), jnp.max(jnp.abs(point.multiplier)))
    size = jnp.where(scaled.is_bound, multipliers, values + jnp.abs(scaled.vector))
    return jnp.max(jnp.abs(off) / jnp.where(size > 0, size, 1))
