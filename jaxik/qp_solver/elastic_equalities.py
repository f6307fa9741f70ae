"""Equalities of which some may yield, within bounds: an interior point tells what holds, Newton steps end there.

The multiplier of an equality that yields is its penalty, so that

    min 1/2 x'Hx + c'x + sum of penalty |A x - b|  over the box of x

is a saddle point, least in x and greatest in the multipliers y, over a box of both. With w = (x, y) and
F(w) = (H x + c + A'y, b - A x), an entry of w is inside its bounds where F is zero; at an upper bound F <= 0, at a
lower one F >= 0. So an equality that holds is a y between its bounds, and one that yields a y at one of them.

Where penalties are far above the objective this is nearly a linear program, whose active set takes one pivot after the
other. The predictor and corrector of Mehrotra (1992) take six to eight steps, of all elements alike.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.core.status import Status
from jaxik.numerics.fusion import materialize
from jaxik.numerics.linalg import first_true, solve_small_positive
from jaxik.qp_solver.finalize import all_finite, solution_of
from jaxik.qp_solver.optimality import kkt_residual
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution
from jaxik.qp_solver.scaling import power_of_two, units

# Steps of the interior point, at most, and how far complementarity falls until then. Pandas take six to eight.
STEPS, SMALL = 12, 1e-7
# The share of the way to the boundary that a step goes.
WITHIN = 0.99
# Sets that are tried after that: of 8,192 steps of Pandas one does for 97 %, two for 99.8, four for all.
ROUNDS = 8
# Newton steps in each, which refine as well.
REFINEMENTS = 3
# The stiffness of what is fixed. Elimination takes c^2 / RIGID from the entries beside a coupling c to it: rounding,
# where entries are about one. Rows have weights w of up to 1e12 (in interior steps in float64; 1e8 at a corner, 1e7 in
# float32), of which it is a share w / RIGID, 1e-8: a step is inexact by that, and the next one begins at its exact F.
RIGID = 1e20
# Errors below this many roundings of their terms are zero, and those of a refined point below as many of these.
NOISE, EXACT = 32, 8


class _Saddle(NamedTuple):
    """F and the box, in units in which H has a diagonal and A rows of about one.

    Attributes:
      H (n, n), A (m, n): of F.
      constant (n + m,): F(0), (c, b).
      lower, upper (n + m,): the box; infinite where there is no bound.
      unit (n + m,): entries of w over their scaled values.
    """

    H: jax.Array
    A: jax.Array
    constant: jax.Array
    lower: jax.Array
    upper: jax.Array
    unit: jax.Array

    @property
    def equal(self) -> jax.Array:
        """Mask (n + m,) of entries that their bounds fix."""
        return self.lower == self.upper

    def slope(self, w: jax.Array) -> jax.Array:
        """F(w) (n + m,)."""
        return self.product(w) + self.constant

    def product(self, w: jax.Array) -> jax.Array:
        """F(w) - F(0)."""
        n = self.H.shape[0]
        x, y = w[:n], w[n:]
        return materialize(jnp.concatenate([_times(self.H, x) + _times(self.A.T, y), -_times(self.A, x)]))

    def noise(self, w: jax.Array) -> jax.Array:
        """The size (n + m,) of what rounding leaves of F(w)."""
        n, size = self.H.shape[0], jnp.abs(w)
        across = jnp.abs(self.A)
        terms = [_times(jnp.abs(self.H), size[:n]) + _times(across.T, size[n:]), _times(across, size[:n])]
        return NOISE * jnp.finfo(w.dtype).eps * (jnp.concatenate(terms) + jnp.abs(self.constant))


class _Interior(NamedTuple):
    """An interior point.

    Attributes:
      w (n + m,): within the box.
      force (2, n + m): of upper and lower bounds, positive; zero where there is none.
      side (n + m,): the bound that an entry goes to, 1 or -1, or 0 for none.
      gap (), first (): mean product of forces and distances, now and before the first step.
      steps ().
    """

    w: jax.Array
    force: jax.Array
    side: jax.Array
    gap: jax.Array
    first: jax.Array
    steps: jax.Array


class _Corner(NamedTuple):
    """A point at which some entries are at their bounds, and F of the others is to be zero.

    Attributes:
      w, side (n + m,): as in `_Interior`.
      rounds (): so far.
      done (): this is the saddle point.
    """

    w: jax.Array
    side: jax.Array
    rounds: jax.Array
    done: jax.Array


def elastic_equalities(program: Program, limit: jax.Array | int, tolerance: jax.Array | float) -> QPSolution:
    """Minimise a program of bounds and equalities, some with penalties; its H is symmetric.

    The status is TIMEOUT where that is not found, as for equalities without penalties that contradict each other.
    """
    saddle = _saddle(program)
    inner = _interior_start(saddle)
    going = lambda s: (s.gap > SMALL * s.first) & (s.steps < jnp.minimum(limit, STEPS))  # noqa: E731
    inner = lax.while_loop(going, lambda s: _interior_step(saddle, s), inner)
    corner = _Corner(inner.w, inner.side, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    again = lambda s: ~s.done & (s.rounds < jnp.minimum(limit - inner.steps, ROUNDS))  # noqa: E731
    corner = lax.while_loop(again, lambda s: _round(saddle, s), corner)
    return _solution(program, saddle, corner, inner.steps + corner.rounds, tolerance)


def _saddle(program: Program) -> _Saddle:
    assert program.A is not None and program.b is not None and program.equality_penalties is not None
    unit = units(program.H)
    rows = program.A * unit
    length = jnp.sqrt(jnp.sum(rows * rows, axis=1))
    scale = power_of_two(1 / jnp.where(length > 0, length, 1))
    penalty = program.equality_penalties / scale
    return _Saddle(
        unit[:, None] * program.H * unit,
        scale[:, None] * rows,
        jnp.concatenate([unit * program.c, scale * program.b]),
        jnp.concatenate([program.lower / unit, -penalty]),
        jnp.concatenate([program.upper / unit, penalty]),
        jnp.concatenate([unit, scale]),
    )


class _System(NamedTuple):
    """A linear system over x (n,), the multipliers eliminated: its `matrix`, and their `weight` (m,) in it."""

    matrix: jax.Array
    weight: jax.Array
    free: jax.Array


def _system(saddle: _Saddle, stiff: jax.Array, fixed: jax.Array, least: float) -> _System:
    """The system `F'(w) change + stiff * change = right`, with a change of zero where fixed.

    Multipliers have the stiffness `least` besides: a step of the proximal-point method, which ends at the same point.
    """
    n = saddle.H.shape[0]
    weight = materialize(jnp.where(fixed[n:], 0, 1 / (stiff[n:] + least)))
    free = ~fixed[:n]
    # By itself, and no mask of pairs: else XLA shares the sum out to threads, for ten times its time.
    rows = materialize(weight[:, None] * saddle.A)
    matrix = saddle.H + jnp.sum(saddle.A[:, :, None] * rows[:, None, :], axis=0)
    return _System(matrix + jnp.diag(jnp.where(free, stiff[:n], RIGID)), weight, free)


def _change(saddle: _Saddle, system: _System, right: jax.Array) -> jax.Array:
    """The change (n + m,) that a system has for a right-hand side (n + m,)."""
    n = system.free.shape[0]
    towards = jnp.where(system.free, right[:n] - _times(saddle.A.T, system.weight * right[n:]), 0)
    x, _ = solve_small_positive(system.matrix, materialize(towards))
    x = jnp.where(system.free, x, 0)
    return materialize(jnp.concatenate([x, system.weight * (right[n:] + _times(saddle.A, x))]))


def _times(matrix: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(matrix * x, axis=1)


def _interior_start(saddle: _Saddle) -> _Interior:
    """The middle of the box, with forces on equalities that leave their F at zero."""
    n = saddle.H.shape[0]
    below, above = jnp.isfinite(saddle.lower), jnp.isfinite(saddle.upper)
    low = jnp.where(below, saddle.lower, jnp.where(above, saddle.upper - 2, -1))
    high = jnp.where(above, saddle.upper, low + 2)
    w = jnp.where(saddle.equal, saddle.lower, 0.5 * (low + high))
    outward = _outward(saddle)
    room = _room(saddle, outward, w)
    missed = -saddle.slope(w)[n:]
    most = 0.5 * jnp.maximum(jnp.max(jnp.abs(missed)), jnp.finfo(w.dtype).eps)
    # Multipliers start at zero, so that their distances are their penalties.
    penalty = jnp.where(jnp.isfinite(saddle.upper[n:]), saddle.upper[n:], 0)
    gap = most * jnp.sum(penalty) / jnp.maximum(jnp.sum(penalty > 0), 1)
    rows = jnp.maximum(jnp.stack([missed, -missed]), 0) + most
    force = jnp.concatenate([gap / room[:, :n], rows], axis=1)
    side = jnp.where(saddle.equal, 1, 0)
    return _Interior(w, jnp.abs(outward) * force, side, gap, gap, jnp.zeros((), jnp.int32))


def _outward(saddle: _Saddle) -> jax.Array:
    """Of upper and lower bounds (2, n + m) the way out, 1 and -1; 0 where there is no bound, or no room."""
    bounded = jnp.isfinite(jnp.stack([saddle.upper, saddle.lower])) & ~saddle.equal
    return jnp.where(bounded, jnp.asarray([[1], [-1]], saddle.upper.dtype), 0)


def _room(saddle: _Saddle, outward: jax.Array, w: jax.Array) -> jax.Array:
    """Distances (2, n + m) to upper and lower bounds, 1 where there is none."""
    bounds = jnp.where(outward != 0, jnp.stack([saddle.upper, saddle.lower]), 0)
    least = jnp.finfo(w.dtype).eps * jnp.abs(bounds) + jnp.finfo(w.dtype).tiny
    return materialize(jnp.maximum(jnp.where(outward != 0, outward * (bounds - w), 1), least))


def _interior_step(saddle: _Saddle, state: _Interior) -> _Interior:
    """One step of the predictor and corrector of Mehrotra (1992)."""
    w, force, outward = state.w, state.force, _outward(saddle)
    room = _room(saddle, outward, w)
    slope, stiff = saddle.slope(w), materialize(jnp.sum(force / room, axis=0))
    system = _system(saddle, stiff, saddle.equal, 1e-12 if w.dtype == jnp.float64 else 1e-7)

    def towards(aim: jax.Array) -> tuple[jax.Array, ...]:
        """The change of w, and of distances and forces, to products of these of `aim` (2, n + m); its largest share."""
        change = _change(saddle, system, -slope - jnp.sum(outward * aim / room, axis=0))
        moved = -outward * change
        pushed = materialize((jnp.abs(outward) * aim - force * moved) / room - force)
        shares = jnp.maximum(-moved / room, -pushed / jnp.where(force > 0, force, 1))
        return (
            change,
            moved,
            pushed,
            materialize(1 / jnp.maximum(jnp.max(jnp.maximum(shares[0], shares[1])[None], axis=1)[0], 1)),
        )

    change, moved, pushed, length = towards(jnp.zeros_like(room))
    # Of an entry at a bound it is the distance that goes to zero, of another the force (Tapia 1980).
    near = (moved < -0.5 * room).astype(jnp.int32)
    count = jnp.maximum(_total(jnp.abs(outward)), 1)
    predicted = _total((force + length * pushed) * (room + length * moved)) / count
    centred = materialize(jnp.clip(predicted / state.gap, 0, 1) ** 3 * state.gap)
    change, moved, pushed, length = towards(centred - moved * pushed)
    force = materialize(jnp.maximum(force + WITHIN * length * pushed, 0))
    w = materialize(w + WITHIN * length * change)
    gap = _total(force * _room(saddle, outward, w)) / count
    side = jnp.where(saddle.equal, 1, near[0] - near[1])
    return _Interior(w, force, side, gap, state.first, state.steps + 1)


def _total(pairs: jax.Array) -> jax.Array:
    """The sum () of (2, n + m).

    As of a matrix, which is written out on lanes: XLA's own reduction, with what it sums fused into it, is not
    vectorised and takes ten times as long.
    """
    return jnp.sum((pairs[0] + pairs[1])[None], axis=1)[0]


def _round(saddle: _Saddle, state: _Corner) -> _Corner:
    """Newton steps with entries at the sides where they are; then one that is on a wrong side changes it.

    That is the first, a rule that does not cycle in linear programs (Murty 1974). Where F does not come to zero, as for
    more equalities than entries that are free, w moves on and on: the one that blocks that motion changes its side.
    """
    fixed = state.side != 0
    w = jnp.where(state.side > 0, saddle.upper, jnp.where(state.side < 0, saddle.lower, state.w))
    system = _system(saddle, jnp.zeros_like(w), fixed, 1e-8 if w.dtype == jnp.float64 else 1e-5)

    def refine(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        w = carry[0]
        change = _change(saddle, system, -saddle.slope(w))
        return w + change, change

    w, change = lax.fori_loop(0, REFINEMENTS, refine, (w, jnp.zeros_like(w)))
    slope, noise = saddle.slope(w), saddle.noise(w)
    exact = jnp.all(fixed | (jnp.abs(slope) <= EXACT * noise))
    # The sizes of x and of the multipliers have nothing in common.
    n, place = saddle.H.shape[0], jnp.arange(w.shape[0])
    size = jnp.where(place < n, jnp.max(jnp.abs(w[:n])), jnp.max(jnp.abs(w[n:])))
    slack = NOISE * jnp.finfo(w.dtype).eps * size
    beyond = jnp.where(w > saddle.upper + slack, 1, jnp.where(w < saddle.lower - slack, -1, 0))
    pulled = fixed & ~saddle.equal & (state.side * slope > noise)
    wrong = jnp.where(fixed, pulled, beyond != 0)
    rates = jnp.where(fixed, state.side * saddle.product(change), jnp.abs(change))
    ahead = jnp.where(change > 0, saddle.upper - w, w - saddle.lower)
    left = jnp.maximum(jnp.where(fixed, -state.side * slope, ahead), 0)
    blocks = ~saddle.equal & (rates > 0)
    ratio = jnp.where(blocks, left / jnp.where(blocks, rates, 1), jnp.inf)
    order = jnp.where(exact, jnp.where(wrong, place, jnp.inf), ratio).astype(w.dtype)
    least_order = jnp.min(order)
    chosen = place == first_true(order == least_order)
    to = jnp.where(fixed, 0, jnp.where(exact, beyond, jnp.where(change > 0, 1, -1)))
    side = jnp.where(chosen & (least_order < jnp.inf), to, state.side)
    return _Corner(w, side, state.rounds + 1, exact & ~jnp.any(wrong))


def _solution(
    program: Program, saddle: _Saddle, state: _Corner, iterations: jax.Array, tolerance: jax.Array | float
) -> QPSolution:
    """The solution of the last round, in the units of the program."""
    n = program.c.shape[0]
    w = jnp.clip(jnp.where(jnp.isfinite(state.w), state.w, 0), saddle.lower, saddle.upper)
    force = -saddle.slope(w)
    side = jnp.where(saddle.equal & (force < 0), -1, state.side)
    # Of the right signs, where they are rounding.
    bounds = (side * jnp.maximum(side * force, 0))[:n] / saddle.unit[:n]
    x, multipliers, nothing = saddle.unit[:n] * w[:n], saddle.unit[n:] * w[n:], jnp.zeros(0, w.dtype)
    residual = kkt_residual(program, x, bounds, nothing, multipliers)
    status = jnp.where(state.done & (residual <= tolerance), Status.CONVERGED, Status.TIMEOUT)
    status = jnp.where(all_finite(program), status, Status.NONFINITE)
    active = ActiveSet(side[:n], nothing.astype(bool), side[n:])
    return solution_of(program, x, status, (bounds, nothing, multipliers), active, residual, iterations)
