"""The dual active-set method of Goldfarb and Idnani (1983), by pivots on a tableau.

Multipliers keep their signs throughout. The most violated constraint enters: its multiplier grows until its value is at
the limit. If another multiplier reaches zero before, that constraint leaves first. Every constraint that enters raises
the dual objective, so no active set occurs twice, with ties or without.

A penalty on a violation is a bound of the multiplier (the dual of the L1 norm is a box): where the multiplier of an
elastic constraint reaches it, the constraint leaves the active set, yields, and pulls with that constant force. If its
value comes back to the limit, it enters again, and its multiplier falls.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.linalg import first_true
from jaxik.qp_solver.certificate import farkas
from jaxik.qp_solver.program import Program
from jaxik.qp_solver.scaling import ScaledQP
from jaxik.qp_solver.sweep_tableau import (
    Point,
    Tableau,
    column,
    curvature,
    diagonal,
    kkt_errors,
    one_hot,
    refine,
    rounding,
    sweep_factors,
    sweep_pivot,
)
from jaxik.qp_solver.violations import NOISE, multiplier_noise, released_multiplier, signs, violation

NONE = -1


class State(NamedTuple):
    """The iterate between two pivots.

    Attributes:
      tableau: active set and swept matrix.
      point: values and multipliers.
      center (N,): proximal point of the curvature that was added.
      entering (): the constraint that a blocking one interrupted while it entered, or NONE.
      ignored (N,): violated constraints that follow from active ones, to rounding; until the next refinement.
      ray (N,): multipliers that prove infeasibility, or zeros.
      infeasible, idle (): the constraints contradict each other; no pivot is left to do.
      iterations (): pivots so far.
    """

    tableau: Tableau
    point: Point
    center: jax.Array
    entering: jax.Array
    ignored: jax.Array
    ray: jax.Array
    infeasible: jax.Array
    idle: jax.Array
    iterations: jax.Array


class StepLength(NamedTuple):
    """The result of the ratio test.

    Attributes:
      length (): change of the entering constraint's multiplier.
      blocked (): whether the multiplier of another constraint reaches the end of its range first.
      leaving (): which one.
      yields (): whether the multiplier of the entering one does first; None in a program without penalties.
    """

    length: jax.Array
    blocked: jax.Array
    leaving: jax.Array
    yields: jax.Array | None = None


def entry(k: jax.Array, x: jax.Array) -> jax.Array:
    """Entry k () of x (N,)."""
    return jnp.sum(jnp.where(one_hot(k, x.shape[0]), x, 0))


def row_multipliers(scaled: ScaledQP, multipliers: jax.Array) -> jax.Array:
    """Multipliers of rows and equalities (m + p,) in the units of the program."""
    return (multipliers * scaled.multiplier_scale)[scaled.variables :]


class Sweep(NamedTuple):
    """Arguments of `sweep_pivot`, (N,) each."""

    stays: jax.Array
    edge: jax.Array
    ratio: jax.Array


class _Choice(NamedTuple):
    """The constraint of one pivot.

    Attributes:
      k (), mask (N,): which constraint, as a number and as a mask.
      pivots (N,): the diagonal of the tableau.
      wrong_sign (): its multiplier has the wrong sign, so that it leaves; else it enters.
      resumed (): it was entering already when another constraint blocked it.
      optimal (): no constraint is violated and no multiplier has the wrong sign.
    """

    k: jax.Array
    mask: jax.Array
    pivots: jax.Array
    wrong_sign: jax.Array
    resumed: jax.Array
    optimal: jax.Array


class _Direction(NamedTuple):
    """The change of the point as the chosen constraint enters, and where that ends.

    Attributes:
      slopes (N,): the column of the tableau: change per unit of the multiplier.
      pivot (): its entry of the chosen constraint.
      target (): the limit that is violated.
      step: the result of the ratio test.
      infeasible (): the constraint contradicts the active ones, as `ray` (N,) proves.
      ignored (): it follows from the active ones, to rounding.
    """

    slopes: jax.Array
    pivot: jax.Array
    target: jax.Array
    step: StepLength
    infeasible: jax.Array
    ignored: jax.Array
    ray: jax.Array


def pivot_step(program: Program, scaled: ScaledQP, state: State, pending: Sweep) -> tuple[State, Sweep]:
    """Let one constraint enter or leave the active set, or find that nothing is left to do.

    The sweep of the tableau is returned as `pending` and applied one step later: in the same step XLA would compute its
    factors again for every entry.
    """
    point = state.point
    tableau = state.tableau._replace(entries=sweep_pivot(state.tableau.entries, *pending))
    sign = signs(scaled, point)
    choice = _choose(scaled, state, tableau, sign)
    direction = _direction(program, scaled, state, tableau, choice, sign)
    index, mask, leaves = choice.k, choice.mask, choice.wrong_sign
    slopes, step = direction.slopes, direction.step

    # A multiplier of the wrong sign goes to zero as its constraint is released; that of an entering constraint grows.
    released = curvature(direction.pivot, index < scaled.variables, rounding(point.value.dtype))
    beyond = point.multiplier - released_multiplier(scaled, point.multiplier)
    length = jnp.where(leaves, -entry(index, beyond) / released, step.length)
    halted = choice.optimal | direction.infeasible | direction.ignored
    length = jnp.where(halted, 0, length)
    moved = Point(
        point.value + length * jnp.where(tableau.active, jnp.where(leaves & mask, -1, 0), slopes),
        point.multiplier + length * jnp.where(tableau.active, slopes, jnp.where(mask, 1, 0)),
    )
    blocked = ~leaves & step.blocked
    changed, snapped, curved, sweep = _change_sides(scaled, tableau, moved, choice, direction, (blocked, halted))
    after = State(
        tableau=changed,
        point=jax.tree.map(lambda new, old: jnp.where(halted, old, new), snapped, point),
        center=jnp.where(curved, point.value, state.center),
        entering=jnp.where(blocked & ~halted, index, NONE),
        ignored=state.ignored | (mask & direction.ignored),
        ray=jnp.where(direction.infeasible, direction.ray, state.ray),
        infeasible=direction.infeasible,
        # After a pivot that was blocked the point has moved: if its constraint is then ignored, solve for it again.
        idle=choice.optimal | direction.infeasible | (direction.ignored & choice.resumed),
        iterations=state.iterations + jnp.where(halted, 0, 1),
    )
    return after, sweep


def _choose(scaled: ScaledQP, state: State, tableau: Tableau, sign: jax.Array) -> _Choice:
    """Choose the constraint of this pivot; a warm start or a new centre may have left multipliers of the wrong sign."""
    point, numbers = state.point, rounding(sign.dtype)
    signed = jnp.where(tableau.active, sign * point.multiplier, 0)
    if scaled.penalty is not None:
        signed = jnp.where(tableau.active, jnp.minimum(signed, scaled.penalty - jnp.abs(point.multiplier)), 0)
    excess = violation(scaled, point, tableau.active)
    pivots = diagonal(tableau.entries)

    resumed = state.entering != NONE
    worst = jnp.min(signed)
    wrong_sign = (worst < -multiplier_noise(scaled, point)) & ~resumed
    # Of the violated constraints, the one that raises the dual objective most.
    gain = jnp.where(state.ignored, 0, excess * excess / jnp.maximum(-pivots, numbers.flat))
    best = jnp.max(gain)
    index = jnp.where(resumed, state.entering, first_true(jnp.where(wrong_sign, signed == worst, gain == best)))
    mask = one_hot(index, point.value.shape[0])
    return _Choice(index, mask, pivots, wrong_sign, resumed, ~resumed & ~wrong_sign & ~(best > 0))


def _direction(
    program: Program, scaled: ScaledQP, state: State, tableau: Tableau, choice: _Choice, sign: jax.Array
) -> _Direction:
    """The direction of the chosen constraint and the step along it; where none exists, whether that is infeasible."""
    numbers, size = rounding(sign.dtype), sign.shape[0]
    slopes = column(tableau.entries, choice.k)
    pivot, value = entry(choice.k, choice.pivots), entry(choice.k, state.point.value)
    above = value > entry(choice.k, scaled.upper)
    target = jnp.where(above, entry(choice.k, scaled.upper), entry(choice.k, scaled.lower))
    direction = jnp.where(above, 1, -1).astype(slopes.dtype)
    if scaled.penalty is not None:
        # Rows and equalities have one limit, which those that yielded come back to from the other side.
        target = jnp.where(choice.k < scaled.variables, target, 0)

    distance = jnp.abs(target - value)
    infeasible = ignored = jnp.zeros((), bool)
    ray = state.ray
    if size == scaled.variables:
        # No bound follows from other bounds.
        step = _ratio_test(scaled, state, slopes, direction, distance / -pivot, sign)
    else:
        dependent = ~choice.wrong_sign & ~choice.optimal & (pivot > -numbers.dependent)
        slopes, pivot = lax.cond(dependent, lambda: _refined_column(scaled, tableau, choice.k), lambda: (slopes, pivot))
        step = _ratio_test(scaled, state, slopes, direction, distance / jnp.maximum(-pivot, numbers.eps**2), sign)
        if scaled.penalty is not None:
            step = _up_to_penalty(scaled, scaled.penalty, state, choice.k, direction, step)
        unbounded = dependent & ~step.blocked
        if step.yields is not None:
            unbounded = unbounded & ~step.yields
        ray = direction * jnp.where(choice.mask, 1, jnp.where(tableau.active, slopes, 0))
        if scaled.penalty is not None:
            # What may yield proves nothing.
            ray = jnp.where(jnp.isfinite(scaled.penalty), 0, ray)
        infeasible = lax.cond(unbounded, lambda: farkas(program, row_multipliers(scaled, ray))[1], lambda: infeasible)
        noise = 1e3 * numbers.eps * jnp.maximum(jnp.max(jnp.abs(slopes)), 1)
        ignored = unbounded & ~infeasible & (pivot > -noise * noise)
    return _Direction(slopes, pivot, target, step, infeasible, ignored, ray)


def _change_sides(
    scaled: ScaledQP,
    tableau: Tableau,
    moved: Point,
    choice: _Choice,
    direction: _Direction,
    how: tuple[jax.Array, jax.Array],
) -> tuple[Tableau, Point, jax.Array, Sweep]:
    """Activate or release the chosen constraint, or release the one that blocks it.

    Args:
      moved: the point after the step.
      how: whether another constraint blocks (), and whether nothing changes ().

    Returns:
      The tableau before its sweep; the point, on the limit that it reached; whether the constraint (N,) was given
      curvature; and the pending sweep.
    """
    slopes, step = direction.slopes, direction.step
    blocked, halted = how
    changing = jnp.where(blocked, step.leaving, choice.k)
    mask = one_hot(changing, slopes.shape[0])
    activating, swept = ~choice.wrong_sign & ~step.blocked, ~halted
    if step.yields is not None:
        yields = ~choice.wrong_sign & step.yields
        activating, swept = activating & ~yields, swept & ~yields
    pivot_column = jnp.where(blocked, column(tableau.entries, changing), slopes)
    raw = jnp.where(blocked, entry(changing, choice.pivots), direction.pivot)
    pivot = jnp.where(activating, raw, curvature(raw, changing < scaled.variables, rounding(slopes.dtype)))
    curved = mask & ~halted & ~activating & (pivot > raw)
    sweep = Sweep(*sweep_factors(mask, pivot_column, pivot, activating, swept))
    changed = Tableau(
        tableau.entries,
        jnp.where(mask & ~halted, activating, tableau.active),
        tableau.added + jnp.where(curved, pivot - raw, 0),
        tableau.convex,
    )
    snapped = Point(
        jnp.where(mask & activating, direction.target, moved.value),
        jnp.where(mask & ~activating, released_multiplier(scaled, moved.multiplier), moved.multiplier),
    )
    return changed, snapped, curved, sweep


def _ratio_test(
    scaled: ScaledQP, state: State, slopes: jax.Array, direction: jax.Array, full: jax.Array, sign: jax.Array
) -> StepLength:
    """The ratio test, in two passes (Harris 1973): of those that block within rounding, the one that blocks fastest.

    Args:
      slopes (N,): change of values and multipliers per unit of the entering multiplier.
      direction (): its sign.
      full (): the length of the step to the violated limit.
      sign (N,): signs that multipliers of active constraints keep.
    """
    tableau, point = state.tableau, state.point
    rates = jnp.where(tableau.active, -direction * slopes * sign, 0)
    remaining = jnp.maximum(sign * point.multiplier, 0)
    if scaled.penalty is not None:
        grows = tableau.active & jnp.isfinite(scaled.penalty) & ((rates < 0) | (sign == 0))
        rates = jnp.where(grows, jnp.abs(slopes), rates)
        room = scaled.penalty - jnp.where(direction * slopes < 0, -point.multiplier, point.multiplier)
        remaining = jnp.where(grows, jnp.maximum(room, 0), remaining)
    fastest = jnp.max(jnp.where(tableau.active, jnp.abs(slopes), 0))
    blocking = rates > NOISE * rounding(rates.dtype).eps * fastest
    rate = jnp.where(blocking, rates, 1)
    ratios = jnp.where(blocking, remaining / rate, jnp.inf)
    relaxed = jnp.where(blocking, (remaining + multiplier_noise(scaled, point)) / rate, jnp.inf)
    candidates = jnp.where(ratios <= jnp.min(relaxed), rates, -1)
    leaving = first_true(candidates == jnp.max(candidates))
    ratio = jnp.sum(jnp.where(one_hot(leaving, rates.shape[0]), jnp.where(blocking, ratios, 0), 0))
    blocked = jnp.any(blocking) & (ratio < full)
    return StepLength(direction * jnp.where(blocked, ratio, full), blocked, leaving)


def _up_to_penalty(
    scaled: ScaledQP, penalty: jax.Array, state: State, k: jax.Array, direction: jax.Array, step: StepLength
) -> StepLength:
    """End the step where the multiplier of the entering constraint k does: at its penalty, or coming back at zero."""
    largest, multiplier = entry(k, penalty), entry(k, state.point.multiplier)
    least = jnp.where(entry(k, scaled.lower) == entry(k, scaled.upper), -largest, 0)
    room = jnp.where(direction > 0, largest - multiplier, multiplier - least)
    yields = jnp.isfinite(largest) & (room < jnp.abs(step.length))
    return StepLength(jnp.where(yields, direction * room, step.length), step.blocked & ~yields, step.leaving, yields)


def _refined_column(scaled: ScaledQP, tableau: Tableau, k: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Refine the column (N,) and the pivot () of an inactive constraint k that nearly follows from active ones.

    The tableau has its pivot as a difference of numbers of order one, and so only half of the digits of the column.
    """
    zero = jnp.zeros_like(scaled.vector)
    slopes = column(tableau.entries, k)
    mask = one_hot(k, slopes.shape[0])
    point = Point(jnp.where(tableau.active, 0, slopes), jnp.where(mask, 1, jnp.where(tableau.active, slopes, 0)))
    for _ in range(2):
        fresh, error = kkt_errors(scaled, tableau.active, point, zero, tableau.added)
        point = refine(tableau, point, fresh, error)
    slopes = jnp.where(tableau.active, point.multiplier, point.value)
    motion = jnp.where(scaled.is_bound, point.value, 0)
    # Not a sum: it would be part of the next one, without vector instructions, in seven times the time.
    gradient = jnp.where(scaled.is_bound, scaled.matrix @ motion + tableau.added * motion, 0)
    pivot = -jnp.sum(motion * gradient)
    return jnp.where(mask, pivot, slopes), pivot


def run(program: Program, scaled: ScaledQP, state: State, limit: Any) -> State:
    """Pivot until the state is idle: multipliers have their signs and values are within their limits."""
    size, dtype = state.ignored.shape[0], state.point.value.dtype
    identity = Sweep(jnp.ones(size, dtype), jnp.zeros(size, dtype), jnp.zeros(size, dtype))
    state, pending = lax.while_loop(
        lambda carry: ~carry[0].idle & (carry[0].iterations < limit),
        lambda carry: pivot_step(program, scaled, *carry),
        (state, identity),
    )
    return state._replace(tableau=state.tableau._replace(entries=sweep_pivot(state.tableau.entries, *pending)))
