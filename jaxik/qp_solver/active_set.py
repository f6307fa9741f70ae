"""Minimise one convex quadratic program."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.qp_solver import goldfarb_idnani
from jaxik.qp_solver.certificate import endless
from jaxik.qp_solver.finalize import all_finite, finalize
from jaxik.qp_solver.form import ScaledQP, scaled_qp
from jaxik.qp_solver.options import QPOptions, max_iterations
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution
from jaxik.qp_solver.sweep_tableau import Point, at, balance, corrected, exchanged, rounding, untouched

# Corrections are as good as they get when they shrink by less than this.
STAGNANT = 0.25
# With added curvature each one is a step of the proximal-point method, of which a few are usual and so many are enough.
MAX_PASSES = 100
# How much of the last motion a leap adds: the motion triples, pass by pass.
LEAP = 2
# By how much more curvature is added each time that a tableau has worn out, and the most.
STRONGER, STRONGEST = 10, 0.1
# So many pivots wear a tableau out, at most, before somebody looks.
PIVOTS = 32


class _State(NamedTuple):
    """Between two passes.

    Attributes:
      dual: active set, values and multipliers.
      changing (N,): constraints that change sides at once in the next pass, for a new tableau to get there.
      error (): how wrong the tableau was found last, relative to values and multipliers.
      left (): how much of stationarity was, relative alike.
      last (N,): values before that.
      leaping (): whether the next pass leaps along.
      pivots, renewed (): of `dual`, before the last pass and when the tableau was last made anew.
      strength (): the curvature that a tableau made anew adds to all variables.
      direction (n,): without end, where there is one.
      passes (): so far.
      unbounded, ended ().
    """

    dual: goldfarb_idnani.State
    changing: jax.Array
    error: jax.Array
    left: jax.Array
    last: jax.Array
    leaping: jax.Array
    pivots: jax.Array
    renewed: jax.Array
    strength: jax.Array
    direction: jax.Array
    passes: jax.Array
    unbounded: jax.Array
    ended: jax.Array


def minimise(program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None) -> QPSolution:
    """Minimise one convex quadratic program: a function of one element, for `lanes` and `vmap`.

    By the dual active-set method of Goldfarb and Idnani, on a tableau that is swept as constraints enter and leave;
    values and multipliers are refined against the program itself. Where H is flat, curvature is added, and taken back
    by the proximal-point method.

    Args:
      program: arrays of one floating dtype; which of its blocks exist is static. Only the symmetric part of H counts.
      start: the active set of a similar program, for a warm start. A bad one costs time, never the answer.
      options: `QPOptions`.

    Returns:
      A `QPSolution`; failure is a status.
    """
    options = QPOptions() if options is None else options
    program = program._replace(H=0.5 * (program.H + program.H.T))
    easy = _easy(program, all_finite(program) & jnp.all(program.lower <= program.upper))
    scaled = scaled_qp(easy)
    state = _begin(easy, scaled, warm_start)
    limit = max_iterations(options, scaled.vector.shape[0])
    state = lax.while_loop(lambda s: ~s.ended, lambda s: _pass(easy, scaled, s, limit), state)
    return finalize(program, easy, scaled, state.dual, state.direction, state.unbounded, options)


def _easy(program: Program, solvable: jax.Array) -> Program:
    """The program; where it is not solvable, one without anything, so that no NaN keeps a loop going."""
    nothing = jax.tree.map(jnp.zeros_like, program)
    nothing = nothing._replace(
        lower=jnp.full_like(program.lower, -jnp.inf), upper=jnp.full_like(program.upper, jnp.inf)
    )
    return jax.tree.map(lambda x, zero: jnp.where(solvable, x, zero), program, nothing)


def _begin(program: Program, scaled: ScaledQP, warm_start: ActiveSet | None) -> _State:
    n, size, dtype = scaled.variables, scaled.vector.shape[0], scaled.vector.dtype
    rows = 0 if program.G is None else program.G.shape[0]
    lower, upper = scaled.lower[:n], scaled.upper[:n]
    at_upper = at_lower = lower == upper
    held = jnp.zeros(rows, bool)
    if warm_start is not None:
        at_upper = at_upper | ((warm_start.bounds > 0) & (upper < jnp.inf))
        at_lower = at_lower | ((warm_start.bounds < 0) & (lower > -jnp.inf))
        held = warm_start.rows
    inside = jnp.clip(jnp.zeros(n, dtype), lower, upper)
    x = jnp.where(at_upper, upper, jnp.where(at_lower, lower, inside))
    point = Point(jnp.concatenate([x, jnp.zeros(size - n, dtype)]), jnp.zeros(size, dtype))
    no, count = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    infinite = jnp.full((), jnp.inf, dtype)
    begun = goldfarb_idnani.State(
        tableau=untouched(scaled, jnp.zeros(size, dtype)),
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
        dual=begun,
        changing=jnp.concatenate([~(at_upper | at_lower), held, jnp.ones(size - n - rows, bool)]),
        error=infinite,
        left=infinite,
        last=point.value,
        leaping=no,
        pivots=count,
        renewed=count,
        strength=jnp.zeros((), dtype),
        direction=jnp.zeros(n, dtype),
        passes=count,
        unbounded=no,
        ended=no,
    )


def _pass(program: Program, scaled: ScaledQP, state: _State, limit: jax.Array | int) -> _State:
    """Solve for values and multipliers at the active set, by one correction, and find a better active set."""
    n, numbers = scaled.variables, rounding(scaled.vector.dtype)
    before, exchanging = state.dual, jnp.any(state.changing)
    table = exchanged(scaled, before.tableau, state.changing)
    active = table.active
    # Where H is flat the pull leads the same way again and again: further each time.
    leap = jnp.where(active | ~state.leaping, 0, LEAP * (before.point.value - state.last))
    point = Point(
        before.point.value + leap,
        jnp.where(active | at(before.entering, active.shape[0]), before.point.multiplier, 0),
    )
    fresh, off = balance(scaled, active, point, scaled.vector)
    left = _relative(scaled, point, off)
    # What the added curvature pulls is no error of the tableau.
    pull = jnp.where(active, 0, table.added * (point.value - before.center))
    moving = exchanging | state.leaping
    error = jnp.where(moving, state.error, _relative(scaled, point, off - pull))
    since = before.iterations - state.renewed
    stagnant = (before.iterations == state.pivots) & (error > STAGNANT * state.error)
    worn = (error > numbers.eps**0.4) | ((error > 64 * numbers.eps) & (stagnant | (since > 2 * PIVOTS)))
    # A new tableau that is no better is conditioned too badly for the precision.
    hopeless = stagnant & (error > 64 * numbers.eps) & (state.strength < STRONGEST)
    worn = ((worn & (since > 0)) | hopeless) & ~moving
    flat = jnp.any(table.added > 0)
    renewing = worn | (flat & ~jnp.all((table.added > 0) | ~scaled.is_bound))
    # So is one that wears out a second time: it gets more curvature, each time.
    again = worn & (flat | (state.renewed > 0) | (since == 0))
    strength = jnp.where(again, jnp.minimum(STRONGER * state.strength, STRONGEST), state.strength)
    strength = jnp.where(renewing & (flat | again), jnp.maximum(strength, numbers.added), strength)
    solved = before._replace(
        tableau=table,
        point=jax.tree.map(lambda new, old: jnp.where(renewing, old, new), corrected(table, point, fresh, off), point),
        center=point.value,
        ignored=jnp.zeros_like(before.ignored),
    )

    done = ~jnp.any(goldfarb_idnani.out_of_limits(scaled, solved)) & (solved.entering == goldfarb_idnani.NONE)
    after = goldfarb_idnani.run(
        program, scaled, solved._replace(idle=done | renewing), jnp.minimum(limit, before.iterations + PIVOTS)
    )
    still = (after.iterations == before.iterations) & ~renewing
    passes = state.passes + 1
    direction, unbounded = lax.cond(
        flat & (passes > 3) & ~renewing,
        lambda: endless(
            program, scaled.variable_scale * (after.point.value - before.point.value)[:n], numbers.eps**0.5
        ),
        lambda: (jnp.zeros(n, point.value.dtype), jnp.zeros((), bool)),
    )
    stuck = (left > STAGNANT * state.left) & (~flat | (left < 64 * numbers.eps))
    stuck = stuck & (before.iterations == state.pivots)
    settled = still & ((left <= 16 * numbers.eps) | (stuck & ~exchanging))
    over = (after.iterations >= limit) | (passes >= MAX_PASSES)

    anew = untouched(scaled, jnp.where(scaled.is_bound, strength, 0).astype(point.value.dtype))
    after = after._replace(
        tableau=jax.tree.map(lambda new, old: jnp.where(renewing, new, old), anew, after.tableau)._replace(
            convex=table.convex
        ),
    )
    return _State(
        dual=after,
        changing=renewing & (active != scaled.is_bound),
        error=error,
        left=left,
        last=before.point.value,
        leaping=still & flat & (left < 1.1 * state.left) & (left > STAGNANT * state.left),
        pivots=before.iterations,
        renewed=jnp.where(renewing, after.iterations, state.renewed),
        strength=strength,
        direction=direction,
        passes=passes,
        unbounded=unbounded,
        ended=settled | after.infeasible | unbounded | over | ~table.convex,
    )


def _relative(scaled: ScaledQP, point: Point, off: jax.Array) -> jax.Array:
    """Errors relative to the terms that they are sums of."""
    values = jnp.max(jnp.where(scaled.is_bound, jnp.abs(point.value), 0))
    slopes = jnp.max(jnp.where(scaled.is_bound, jnp.abs(scaled.vector), 0))
    multipliers = jnp.maximum(jnp.maximum(scaled.bend * values, slopes), jnp.max(jnp.abs(point.multiplier)))
    size = jnp.where(scaled.is_bound, multipliers, values + jnp.abs(scaled.vector))
    return jnp.max(jnp.abs(off) / jnp.where(size > 0, size, 1))
