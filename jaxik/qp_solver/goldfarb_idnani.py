"""The dual active-set method of Goldfarb and Idnani (1983), by pivots on a tableau.

Multipliers keep their signs throughout. The constraint that is violated most enters: its multiplier grows until its
value is at the limit, and where another multiplier reaches zero before, that constraint leaves first. Each entering
raises the dual objective, so that no active set comes twice, ties or not.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.qp_solver.certificate import farkas
from jaxik.qp_solver.form import ScaledQP
from jaxik.qp_solver.program import Program
from jaxik.qp_solver.sweep_tableau import (
    Point,
    Tableau,
    at,
    balance,
    column,
    corrected,
    curvature,
    diagonal,
    factors,
    rounding,
    sweep_pivot,
)

NONE = -1
# Violations and wrong signs below so many roundings are none.
NOISE = 32


class State(NamedTuple):
    """Between two pivots.

    Attributes:
      tableau: which constraints are active.
      point: values and multipliers.
      center (N,): where the curvature that was added pulls to.
      entering (): the constraint on its way in, or NONE.
      ignored (N,): violated constraints that follow from active ones, to rounding; until the next correction.
      ray (N,): multipliers that prove that nothing satisfies the constraints, or zeros.
      infeasible, idle (): nothing satisfies the constraints; there is nothing to do.
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


class Move(NamedTuple):
    """How far the multiplier of an entering constraint goes, and who changes sides there.

    Attributes:
      step (): change of the multiplier.
      blocked (): whether another constraint leaves.
      leaving (): which.
    """

    step: jax.Array
    blocked: jax.Array
    leaving: jax.Array


def pick(k: jax.Array, x: jax.Array) -> jax.Array:
    """The entry k (), of x (N,)."""
    return jnp.sum(jnp.where(at(k, x.shape[0]), x, 0))


def first(mask: jax.Array) -> jax.Array:
    """Where the first True of a mask (N,) is; N - 1 if there is none. `argmax` is 14 times slower on lanes."""
    size = mask.shape[0]
    return jnp.min(jnp.where(mask, jnp.arange(size, dtype=jnp.int32), size - 1))


def given_weights(form: ScaledQP, multipliers: jax.Array) -> jax.Array:
    """Multipliers of rows and equalities (m + p,) in the units of the program."""
    return (multipliers * form.multiplier_scale)[form.variables :]


def value_noise(form: ScaledQP, point: Point) -> jax.Array:
    """Violations below this are rounding (N,)."""
    largest = jnp.max(jnp.where(form.is_bound, jnp.abs(point.value), 0))
    return NOISE * rounding(largest.dtype).eps * (largest + jnp.where(form.is_bound, 0, jnp.abs(form.vector)))


def violation(form: ScaledQP, point: Point, tableau: Tableau) -> jax.Array:
    """How far inactive constraints are above (positive) or below their limits, beyond rounding (N,)."""
    value, noise = point.value, value_noise(form, point)
    above, below = value > form.upper + noise, value < form.lower - noise
    # Limits that are infinite are not met, and must not meet each other.
    excess = jnp.where(above, value - jnp.where(above, form.upper, 0), 0)
    excess = jnp.where(below, value - jnp.where(below, form.lower, 0), excess)
    return jnp.where(tableau.active, 0, excess)


def signs(form: ScaledQP, point: Point) -> jax.Array:
    """What sign the multiplier of an active constraint has: 1 at the upper limit, -1 at the lower one, 0 for any."""
    upper, lower = point.value == form.upper, point.value == form.lower
    return jnp.where(upper & lower, 0, jnp.where(upper, 1, -1)).astype(point.value.dtype)


def multiplier_noise(form: ScaledQP, point: Point) -> jax.Array:
    """Wrong signs of multipliers below this are rounding ()."""
    eps = rounding(point.value.dtype).eps
    slopes = jnp.max(jnp.where(form.is_bound, jnp.abs(form.vector), 0))
    return NOISE * eps * jnp.maximum(slopes, jnp.max(jnp.abs(point.multiplier)))


def out_of_limits(form: ScaledQP, state: State) -> jax.Array:
    """Which inactive constraints are violated, and which active ones have multipliers of the wrong sign (N,)."""
    (value, multiplier), active = state.point, state.tableau.active
    loose, dual = value_noise(form, state.point), multiplier_noise(form, state.point)
    violated = ~state.ignored & ((value > form.upper + loose) | (value < form.lower - loose))
    turned = ((multiplier < -dual) & (value != form.lower)) | ((multiplier > dual) & (value != form.upper))
    return jnp.where(active, turned, violated)


class Sweep(NamedTuple):
    """What `sweep_pivot` takes, each (N,)."""

    stays: jax.Array
    edge: jax.Array
    ratio: jax.Array


def pivot_step(program: Program, form: ScaledQP, state: State, due: Sweep) -> tuple[State, Sweep]:
    """One constraint enters or leaves the active set, or nothing is left to do.

    The sweep of the tableau is `due` one step later: in the same one, its factors would be computed again for every
    entry.
    """
    point = state.point
    tableau = state.tableau._replace(entries=sweep_pivot(state.tableau.entries, *due))
    size, numbers = point.value.shape[0], rounding(point.value.dtype)
    sign = signs(form, point)
    signed = jnp.where(tableau.active, sign * point.multiplier, 0)
    excess = violation(form, point, tableau)
    pivots = diagonal(tableau.entries)

    # A multiplier that a new start or a new centre has turned round leaves before anything enters.
    underway = state.entering != NONE
    worst = jnp.min(signed)
    turned = (worst < -multiplier_noise(form, point)) & ~underway
    # Of the violated ones the one whose entering raises the dual objective most.
    gain = jnp.where(state.ignored, 0, excess * excess / jnp.maximum(-pivots, numbers.flat))
    best = jnp.max(gain)
    chosen = jnp.where(underway, state.entering, first(jnp.where(turned, signed == worst, gain == best)))
    here = at(chosen, size)
    idle = ~underway & ~turned & ~(best > 0)

    slopes = column(tableau.entries, chosen)
    own, value = pick(chosen, pivots), pick(chosen, point.value)
    over = value > pick(chosen, form.upper)
    target = jnp.where(over, pick(chosen, form.upper), pick(chosen, form.lower))
    direction = jnp.where(over, 1, -1).astype(slopes.dtype)

    distance = jnp.abs(target - value)
    infeasible = ignored = jnp.zeros((), bool)
    ray = state.ray
    if size == form.variables:
        # No bound follows from others.
        move = _move(form, state, slopes, direction, distance / -own, sign)
    else:
        dependent = ~turned & ~idle & (own > -numbers.dependent)
        slopes, own = lax.cond(dependent, lambda: _precise(form, tableau, chosen), lambda: (slopes, own))
        move = _move(form, state, slopes, direction, distance / jnp.maximum(-own, numbers.eps**2), sign)
        hopeless = dependent & ~move.blocked
        ray = direction * jnp.where(here, 1, jnp.where(tableau.active, slopes, 0))
        infeasible = lax.cond(hopeless, lambda: farkas(program, given_weights(form, ray))[1], lambda: infeasible)
        noise = 1e3 * numbers.eps * jnp.maximum(jnp.max(jnp.abs(slopes)), 1)
        ignored = hopeless & ~infeasible & (own > -noise * noise)

    # A turned multiplier goes to zero as its value is let go; that of an entering constraint grows.
    freed = curvature(own, chosen < form.variables, numbers)
    step = jnp.where(turned, -pick(chosen, point.multiplier) / freed, move.step)
    halted = idle | infeasible | ignored
    step = jnp.where(halted, 0, step)
    moved = Point(
        point.value + step * jnp.where(tableau.active, jnp.where(turned & here, -1, 0), slopes),
        point.multiplier + step * jnp.where(tableau.active, slopes, jnp.where(here, 1, 0)),
    )

    # Who changes sides: the chosen constraint, or the one that blocks it.
    other = ~turned & move.blocked
    changing = jnp.where(other, move.leaving, chosen)
    there = at(changing, size)
    activating = ~turned & ~move.blocked
    pivot_column = jnp.where(other, column(tableau.entries, changing), slopes)
    raw = jnp.where(other, pick(changing, pivots), own)
    pivot = jnp.where(activating, raw, curvature(raw, changing < form.variables, numbers))
    rounder = there & ~halted & ~activating & (pivot > raw)
    sweep = Sweep(*factors(there, pivot_column, pivot, activating, ~halted))
    changed = Tableau(
        tableau.entries,
        jnp.where(there & ~halted, activating, tableau.active),
        tableau.added + jnp.where(rounder, pivot - raw, 0),
        tableau.convex,
    )
    snapped = Point(
        jnp.where(there & activating, target, moved.value), jnp.where(there & ~activating, 0, moved.multiplier)
    )
    after = State(
        tableau=changed,
        point=jax.tree.map(lambda new, old: jnp.where(halted, old, new), snapped, point),
        center=jnp.where(rounder, point.value, state.center),
        entering=jnp.where(other & ~halted, chosen, NONE),
        ignored=state.ignored | (here & ignored),
        ray=jnp.where(infeasible, ray, state.ray),
        infeasible=infeasible,
        # What another constraint's multiplier has moved on the way has to be solved for again.
        idle=idle | infeasible | (ignored & underway),
        iterations=state.iterations + jnp.where(halted, 0, 1),
    )
    return after, sweep


def _move(
    form: ScaledQP, state: State, slopes: jax.Array, direction: jax.Array, full: jax.Array, sign: jax.Array
) -> Move:
    """The ratio test, in two passes (Harris 1973): of those that block within rounding, the one that blocks fastest."""
    tableau, point = state.tableau, state.point
    rates = jnp.where(tableau.active, -direction * slopes * sign, 0)
    fastest = jnp.max(jnp.where(tableau.active, jnp.abs(slopes), 0))
    blocking = rates > NOISE * rounding(rates.dtype).eps * fastest
    left = jnp.maximum(sign * point.multiplier, 0)
    rate = jnp.where(blocking, rates, 1)
    ratios = jnp.where(blocking, left / rate, jnp.inf)
    loose = jnp.where(blocking, (left + multiplier_noise(form, point)) / rate, jnp.inf)
    candidates = jnp.where(ratios <= jnp.min(loose), rates, -1)
    leaving = first(candidates == jnp.max(candidates))
    ratio = jnp.sum(jnp.where(at(leaving, rates.shape[0]), jnp.where(blocking, ratios, 0), 0))
    blocked = jnp.any(blocking) & (ratio < full)
    return Move(direction * jnp.where(blocked, ratio, full), blocked, leaving)


def _precise(form: ScaledQP, tableau: Tableau, k: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The column and the pivot of an inactive constraint that nearly follows from active ones.

    The tableau has its pivot as a difference of numbers of order one, and so half of the digits of the column.
    """
    zero = jnp.zeros_like(form.vector)
    slopes = column(tableau.entries, k)
    here = at(k, slopes.shape[0])
    point = Point(jnp.where(tableau.active, 0, slopes), jnp.where(here, 1, jnp.where(tableau.active, slopes, 0)))
    for _ in range(2):
        fresh, error = balance(form, tableau.active, point, zero, tableau.added)
        point = corrected(tableau, point, fresh, error)
    slopes = jnp.where(tableau.active, point.multiplier, point.value)
    motion = jnp.where(form.is_bound, point.value, 0)
    bent = jnp.where(form.is_bound, form.matrix @ motion + tableau.added * motion, 0)
    own = -jnp.sum(motion * bent)
    return jnp.where(here, own, slopes), own


def run(program: Program, form: ScaledQP, state: State, limit: Any) -> State:
    """Pivot until multipliers have their signs and values are within their limits, unless that is so: idle."""
    size, dtype = state.ignored.shape[0], state.point.value.dtype
    nothing = Sweep(jnp.ones(size, dtype), jnp.zeros(size, dtype), jnp.zeros(size, dtype))
    state, due = lax.while_loop(
        lambda carry: ~carry[0].idle & (carry[0].iterations < limit),
        lambda carry: pivot_step(program, form, *carry),
        (state, nothing),
    )
    return state._replace(tableau=state.tableau._replace(entries=sweep_pivot(state.tableau.entries, *due)))
