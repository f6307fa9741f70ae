"""Bounds of which some are elastic: projected Newton steps from piece to piece of a piecewise quadratic objective.

An elastic bound is a kink: beyond it the objective of its variable is steeper by the penalty. Between two kinks it is
quadratic, and they are the bounds of a step of `projected_newton`. A variable that is pressed against a kink by more
than the penalty goes on to the piece behind it. The objective is continuous, so that steps decrease it across pieces as
they do within one. What holds takes as many steps as hard bounds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.core.status import Status
from jaxik.numerics.constants import unit_matrix
from jaxik.qp_solver.finalize import all_finite, solution_of
from jaxik.qp_solver.optimality import kkt_residual
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution
from jaxik.qp_solver.projected_newton import NOISE, State, initial_state, projected_step
from jaxik.qp_solver.scaling import units


class _Kinks(NamedTuple):
    """Elastic bounds: their places (k, n), infinite where there is none, and their penalties (k, n)."""

    upper: jax.Array
    lower: jax.Array
    upper_penalty: jax.Array
    lower_penalty: jax.Array


class _Piece(NamedTuple):
    """Where the objective is quadratic.

    Attributes:
      lower, upper (n,): bounds of the piece.
      slope (n,): of the elastic bounds.
      below, above (n,): by how much it changes beyond the bounds of the piece; infinite at hard bounds.
    """

    lower: jax.Array
    upper: jax.Array
    slope: jax.Array
    below: jax.Array
    above: jax.Array


def elastic_projected_newton(
    program: Program, warm_start: ActiveSet | None, limit: jax.Array | int, tolerance: jax.Array | float
) -> QPSolution:
    """Minimise a program that has a minimum; its H is symmetric, and its rows are as `minimise_in_elastic_box` says."""
    unit = units(program.H)
    box = Program(unit[:, None] * program.H * unit, unit * program.c, program.lower / unit, program.upper / unit)
    kinks = _kinks(program, unit)
    x, held = jnp.zeros_like(program.c), jnp.zeros(program.c.shape, bool)
    if warm_start is not None:
        x, held = _started(box, kinks, warm_start)
    held = held | (box.lower == box.upper)
    state = initial_state(box, jnp.clip(x, box.lower, box.upper), held)
    piece = _piece_at(box, kinks, state.x, state.gradient < 0)
    state = state._replace(gradient=state.gradient + piece.slope)
    unfinished = lambda carry: ~carry[0].done & (carry[0].iterations < limit)  # noqa: E731
    state, piece = lax.while_loop(unfinished, lambda carry: _step(box, kinks, *carry), (state, piece))
    return _solution(program, box, kinks, unit, state, tolerance)


def _kinks(program: Program, unit: jax.Array) -> _Kinks:
    """The kinks of a program, with variables in units (n,)."""
    assert program.h is not None and program.row_penalties is not None
    places, penalties = (x.reshape(-1, 2, unit.shape[0]) for x in (program.h, program.row_penalties))
    places, penalties = places / unit, penalties * unit
    return _Kinks(places[:, 0], -places[:, 1], penalties[:, 0], penalties[:, 1])


def _started(box: Program, kinks: _Kinks, warm_start: ActiveSet) -> tuple[jax.Array, jax.Array]:
    """The point (n,) at the bounds and kinks of an active set, and the mask (n,) of variables that stay there first."""
    bound = jnp.where(warm_start.bounds > 0, box.upper, box.lower)
    held = (warm_start.bounds != 0) & jnp.isfinite(bound)
    x = jnp.where(held, bound, 0)
    active = warm_start.rows.reshape(-1, 2, x.shape[0])
    if warm_start.yielding is not None:
        active = active | (warm_start.yielding.reshape(active.shape) != 0)
    for place, at in zip((*kinks.upper, *kinks.lower), (*active[:, 0], *active[:, 1]), strict=True):
        at = at & jnp.isfinite(place)
        x, held = jnp.where(at, place, x), held | at
    return x, held


def _step(box: Program, kinks: _Kinks, state: State, piece: _Piece) -> tuple[State, _Piece]:
    """A projected Newton step within the piece; where it ends at a kink that does not hold, the piece behind that."""
    within = box._replace(c=box.c + piece.slope, lower=piece.lower, upper=piece.upper)
    state, clipped = projected_step(within, piece.lower == piece.upper, state)
    # The scaled H has a diagonal of about 1, which bounds its entries.
    noise = jnp.abs(within.c) + jnp.sum(jnp.abs(state.x))
    noise = NOISE * jnp.finfo(noise.dtype).eps * noise
    rises = (state.x >= piece.upper) & (state.gradient < -piece.above - noise)
    leaves = rises | ((state.x <= piece.lower) & (state.gradient > piece.below + noise))
    state = state._replace(done=state.done & (~jnp.any(leaves) | _failed(state)))

    def onward() -> tuple[State, _Piece]:
        piece_behind = _piece_at(box, kinks, state.x, rises)
        new = jax.tree.map(lambda there, here: jnp.where(leaves, there, here), piece_behind, piece)
        return state._replace(gradient=state.gradient + (new.slope - piece.slope), fixed=state.fixed & ~leaves), new

    # After a step to the first bound, those that are fixed stay so: else it might be repeated.
    return lax.cond(clipped & jnp.any(leaves), onward, lambda: (state, piece))


def _failed(state: State) -> jax.Array:
    return jnp.isinf(state.added) | ~jnp.isfinite(jnp.sum(state.gradient))


def _piece_at(box: Program, kinks: _Kinks, x: jax.Array, upper: jax.Array) -> _Piece:
    """The piece about a point (n,); where a variable is at a kink, the upper one by the mask `upper` (n,)."""
    places, penalties = jnp.concatenate([kinks.upper, kinks.lower]), jnp.concatenate(kinks[2:])
    passed = jnp.where(upper, places <= x, places < x)
    count = kinks.upper.shape[0]
    slope = _sum(kinks.upper_penalty, passed[:count]) - _sum(kinks.lower_penalty, ~passed[count:])
    lower = jnp.maximum(jnp.max(jnp.where(passed, places, -jnp.inf), axis=0), box.lower)
    higher = jnp.minimum(jnp.min(jnp.where(passed, jnp.inf, places), axis=0), box.upper)
    below = jnp.where(lower == box.lower, jnp.inf, _sum(penalties, places == lower))
    above = jnp.where(higher == box.upper, jnp.inf, _sum(penalties, places == higher))
    return _Piece(lower, higher, slope, below, above)


def _sum(penalties: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(mask, penalties, 0), axis=0)


def _solution(
    program: Program, box: Program, kinks: _Kinks, unit: jax.Array, state: State, tolerance: jax.Array | float
) -> QPSolution:
    """The solution of the last state, in the units of the program, of which `unit` (n,) makes those of the box."""
    dtype = program.c.dtype
    over, under = state.x > kinks.upper, state.x < kinks.lower
    rest = -(box.H @ state.x + box.c) - _sum(kinks.upper_penalty, over) + _sum(kinks.lower_penalty, under)
    equal = box.lower == box.upper
    side = jnp.where((state.x == box.upper) & (rest >= 0), 1, jnp.where((state.x == box.lower) & (rest <= 0), -1, 0))
    side = jnp.where(equal, jnp.where(rest < 0, -1, 1), jnp.where(state.fixed, side, 0))
    bounds = jnp.where(side != 0, rest, 0)
    rest = jnp.where(side == 0, rest, 0)
    rows = []
    for upper, lower, upper_penalty, lower_penalty in zip(*kinks, strict=True):
        # Of bounds at one place the first holds most.
        push = jnp.where(state.x == upper, jnp.clip(rest, 0, upper_penalty), 0)
        pull = jnp.where(state.x == lower, jnp.clip(-rest, 0, lower_penalty), 0)
        rest = rest - push + pull
        rows += [push, pull]
    held = jnp.concatenate(rows)
    yields = jnp.stack([over, under], axis=1).reshape(-1)
    penalties = jnp.stack([kinks.upper_penalty, kinks.lower_penalty], axis=1).reshape(-1)
    x = unit * jnp.where(jnp.isfinite(state.x), state.x, 0)
    bounds, rows = bounds / unit, jnp.where(yields, penalties, held) / jnp.tile(unit, held.shape[0] // unit.shape[0])
    nothing = jnp.zeros(0, dtype)
    # Complementarity of rows holds exactly: what is left is stationarity.
    pushes = jnp.sum(rows.reshape(-1, 2, unit.shape[0]) * jnp.asarray([[1], [-1]], dtype), axis=(0, 1))
    # As rows of the identity, so that the size of the penalties counts where stationarity is relative to its terms.
    plain = program._replace(G=None, h=None, A=unit_matrix(x.shape[0], dtype=dtype))
    residual = kkt_residual(plain, x, bounds, nothing, pushes)
    status = jnp.where((residual <= tolerance) & jnp.isfinite(state.added), Status.CONVERGED, Status.TIMEOUT)
    status = jnp.where(all_finite(program), status, Status.NONFINITE)
    active = ActiveSet(side, held > 0, yields)
    return solution_of(program, x, status, (bounds, rows, nothing), active, residual, state.iterations)
