"""Bounds of which some are elastic: projected Newton steps from piece to piece of a piecewise quadratic objective.

An elastic bound is a kink: beyond it the objective of its variable is steeper by the penalty. Sweeps go across kinks.
Between two of them the objective is quadratic, and they are the bounds of a step of `projected_newton`. A variable
that is pressed against a kink by more than the penalty goes on to the piece behind it. The objective is continuous, so
that steps decrease it across pieces as they do within one. What holds takes as many steps as hard bounds.
"""

import dataclasses
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.core.status import Status
from jaxik.numerics.fusion import materialize
from jaxik.numerics.linalg import product
from jaxik.qp_solver.finalize import all_finite, solution_of
from jaxik.qp_solver.optimality import stationarity
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution
from jaxik.qp_solver.projected_newton import (
    NOISE,
    Kink,
    State,
    pressed,
    projected_relaxation,
    projected_step,
    rounding,
    state_at,
)
from jaxik.qp_solver.scaling import units


class _Piece(NamedTuple):
    """Where the objective is quadratic.

    Attributes:
      lower, upper (n,): the next kinks or bounds.
      c (n,): of the program, with the slope of the elastic bounds.
      below, above (n,): by how much that changes beyond `lower` and `upper`; infinite at hard bounds.
    """

    lower: jax.Array
    upper: jax.Array
    c: jax.Array
    below: jax.Array
    above: jax.Array


def elastic_projected_newton(
    program: Program, warm_start: ActiveSet | None, limit: jax.Array | int, tolerance: jax.Array | float
) -> QPSolution:
    """Minimise a program that has a minimum; its H is symmetric, and its rows are as `minimise_in_elastic_box` says."""
    # Once: each kernel that reads it would round it to a power of two again.
    unit = materialize(units(program.H))
    box = Program(unit[:, None] * program.H * unit, unit * program.c, program.lower / unit, program.upper / unit)
    kinks = _kinks(program, unit)
    state, piece = _start(box, kinks) if warm_start is None else _warm_start(box, kinks, warm_start)
    unfinished = lambda carry: ~carry[0].done & (carry[0].iterations < limit)  # noqa: E731
    state, _ = lax.while_loop(unfinished, lambda carry: _step(box, kinks, *carry), (state, piece))
    return _solution(program, box, kinks, unit, state, tolerance)


def _kinks(program: Program, unit: jax.Array) -> list[Kink]:
    """The kinks of a program, in the order of its rows, with variables in units (n,)."""
    assert program.h is not None and program.row_penalties is not None
    blocks = zip(program.h.reshape(-1, unit.shape[0]), program.row_penalties.reshape(-1, unit.shape[0]), strict=True)
    signs = itertools.cycle((1, -1))
    return [Kink(sign, sign * h / unit, penalty * unit) for sign, (h, penalty) in zip(signs, blocks, strict=False)]


def _start(box: Program, kinks: list[Kink]) -> tuple[State, _Piece]:
    """The state after sweeps, and the piece that it is in."""
    x = jnp.clip(jnp.zeros_like(box.c), box.lower, box.upper)
    x = projected_relaxation(box, x, kinks)
    state = state_at(box, x, box.lower == box.upper)
    # What a kink holds is pressed against it from beyond.
    piece = _piece_at(box, kinks, x, state.gradient < 0)
    within, gradient = _within(box, piece), state.gradient + (piece.c - box.c)
    fixed = state.fixed | pressed(within, x, gradient, rounding(within, x))
    return state._replace(gradient=gradient, fixed=fixed), piece


def _warm_start(box: Program, kinks: list[Kink], active: ActiveSet) -> tuple[State, _Piece]:
    """The state at the bounds and kinks of an active set, and the piece that it is in."""
    bound = jnp.where(active.bounds > 0, box.upper, box.lower)
    fixed = (active.bounds != 0) & jnp.isfinite(bound)
    x, passed = jnp.where(fixed, bound, 0), jnp.zeros(fixed.shape, bool)
    holds = active.rows.reshape(-1, x.shape[0])
    yields = jnp.zeros_like(holds) if active.yielding is None else active.yielding.reshape(holds.shape) != 0
    for kink, at, beyond in zip(kinks, holds, yields, strict=True):
        farther = jnp.maximum if kink.sign > 0 else jnp.minimum
        place = jnp.where(jnp.isfinite(kink.place), kink.place, x)
        x = jnp.where(beyond, farther(x, place), jnp.where(at, place, x))
        fixed, passed = fixed | at, passed | (beyond & (kink.sign > 0))
    x = jnp.clip(x, box.lower, box.upper)
    piece = _piece_at(box, kinks, x, passed)
    return state_at(_within(box, piece), x, fixed | (box.lower == box.upper)), piece


def _step(box: Program, kinks: list[Kink], state: State, piece: _Piece) -> tuple[State, _Piece]:
    """A projected Newton step within the piece; where it ends at a kink that does not hold, the piece behind that."""
    state, clipped = projected_step(_within(box, piece), piece.lower == piece.upper, state)
    # The scaled H has a diagonal of about 1, which bounds its entries. What is not finite makes this NaN: none leaves.
    noise = jnp.abs(piece.c) + jnp.sum(jnp.abs(state.x) + 0 * (state.gradient + state.added))
    noise = NOISE * jnp.finfo(noise.dtype).eps * noise
    rises = (state.x >= piece.upper) & (state.gradient < -piece.above - noise)
    falls = (state.x <= piece.lower) & (state.gradient > piece.below + noise)
    leaves = rises | falls
    some = jnp.any(leaves)
    state = state._replace(done=state.done & ~some)

    def onward() -> tuple[State, _Piece]:
        behind = _piece_at(box, kinks, state.x, rises)
        new = jax.tree.map(lambda there, here: jnp.where(leaves, there, here), behind, piece)
        return state._replace(gradient=state.gradient + (new.c - piece.c), fixed=state.fixed & ~leaves), new

    # After a step to the first bound, those that are fixed stay so: else it might be repeated.
    return lax.cond(clipped & some, onward, lambda: (state, piece))


def _within(box: Program, piece: _Piece) -> Program:
    """The program of a piece."""
    return box._replace(c=piece.c, lower=piece.lower, upper=piece.upper)


def _piece_at(box: Program, kinks: list[Kink], x: jax.Array, upper: jax.Array) -> _Piece:
    """The piece about a point (n,); where a variable is at a kink, the upper one by the mask `upper` (n,)."""
    lower, higher, c = box.lower, box.upper, box.c
    for kink in kinks:
        passed = (kink.place < x) | (upper & (kink.place == x))
        lower = jnp.where(passed, jnp.maximum(lower, kink.place), lower)
        higher = jnp.where(passed, higher, jnp.minimum(higher, kink.place))
        c = c + jnp.where(passed == (kink.sign > 0), kink.sign * kink.penalty, 0)
    below = jnp.where(lower == box.lower, jnp.inf, _penalties_at(kinks, lower))
    above = jnp.where(higher == box.upper, jnp.inf, _penalties_at(kinks, higher))
    return _Piece(lower, higher, c, below, above)


def _penalties_at(kinks: list[Kink], x: jax.Array) -> jax.Array:
    """By how much (n,) the slope changes at a point (n,)."""
    change = jnp.zeros_like(x)
    for kink in kinks:
        change = change + jnp.where(kink.place == x, kink.penalty, 0)
    return change


def _solution(
    program: Program, box: Program, kinks: list[Kink], unit: jax.Array, state: State, tolerance: jax.Array | float
) -> QPSolution:
    """The solution of the last state, in the units of the program, of which `unit` (n,) makes those of the box."""
    x = jnp.where(jnp.isfinite(state.x), state.x, 0)
    force, sizes = -(product(box.H, x) + box.c), product(jnp.abs(box.H), jnp.abs(x)) + jnp.abs(box.c)
    # What the kinks that yield leave of it, then the bounds, then the kinks that hold.
    rest = force
    for kink in kinks:
        rest = rest - jnp.where(kink.sign * x > kink.sign * kink.place, kink.sign * kink.penalty, 0)
    side = jnp.where((x == box.upper) & (rest >= 0), 1, jnp.where((x == box.lower) & (rest <= 0), -1, 0))
    # A shortened step fixes no variable but what it hits, and may be the last.
    held = state.fixed | (jnp.abs(rest) > state.noise)
    side = jnp.where(box.lower == box.upper, jnp.where(rest < 0, -1, 1), jnp.where(held, side, 0))
    # Else each field would compute it again.
    bounds = materialize(jnp.where(side != 0, rest, 0))
    rest, pushes, rows, active, yields = rest - bounds, bounds, [], [], []
    for kink in kinks:
        beyond = kink.sign * x > kink.sign * kink.place
        # Of kinks at one place the first holds most.
        push = jnp.where(x == kink.place, jnp.clip(kink.sign * rest, 0, kink.penalty), 0)
        rest = rest - kink.sign * push
        multiplier = jnp.where(beyond, kink.penalty, push)
        pushes, sizes = pushes + kink.sign * multiplier, sizes + jnp.abs(multiplier)
        rows, active, yields = [*rows, multiplier / unit], [*active, push > 0], [*yields, beyond]
    # Complementarity holds exactly: what is left is stationarity.
    residual = stationarity((pushes - force) / unit, sizes / unit, unit)
    status = jnp.where((residual <= tolerance) & jnp.isfinite(state.added), Status.CONVERGED, Status.TIMEOUT)
    # The rows are those of the identity, whatever G is.
    status = jnp.where(all_finite(program._replace(G=None)), status, Status.NONFINITE)
    multipliers = bounds / unit, jnp.concatenate(rows), jnp.zeros(0, x.dtype)
    active_set = ActiveSet(side, jnp.concatenate(active), jnp.concatenate(yields))
    scaled = program._replace(H=box.H, c=box.c)
    solution = solution_of(scaled, x, status, multipliers, active_set, residual, state.iterations, -force)
    return dataclasses.replace(solution, x=unit * x)
