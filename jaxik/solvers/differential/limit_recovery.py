"""Scale the demands of violated limits so that they are feasible together.

A joint outside its limits and a frame behind its plane each demand the fastest return that the others allow, and a loop
of the model that is open, or a mimic joint off its coupling, to be closed at once. Two such demands, or one of them and
a speed limit, may contradict each other although all can return more slowly; the step would stand still for ever. All
demands are then multiplied by one scale, somewhat less than the largest feasible one, which would leave the tasks no
freedom.

Shapes that overlap, of which some push others deeper, share something else: the depth that is left, the same for all.
At a scale of zero all may be as deep as the deepest is. So a step raises the least distance as far as it goes, where
shares of each demand would stop at the first two that contradict each other.

Nearly all demands can be met as they are, which the program of the step itself shows. Only where it has no solution is
the scale looked for, by a program of the same shape, and then the first one solved again: turns of one loop, whose body
is compiled once, and which elements that need no scale leave after the first.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.core.status import Status
from jaxik.limits.base import Bounds, Rows
from jaxik.limits.combine import MergedRows
from jaxik.numerics.fusion import materialize
from jaxik.qp_solver import ActiveSet, Certificate, Program, QPOptions, QPSolution, minimise
from jaxik.qp_solver.options import max_iterations, tolerance

# The fraction of the largest feasible scale that is used.
MARGIN = 0.9
# In float32 and float64: the cost of a displacement, in units of the largest demand, beside that of the scale, and how
# near to 1 a scale counts as 1. Joints that hardly move a frame move a thousand times as far, which the cost squares.
COST, NEAR_ONE = (1e-6, 1e-10), (1e-3, 1e-5)
# What a displacement shows of the scale that comes with it; the rest is rounding, for which the margin leaves room.
TRUSTED = 0.95
# How far a displacement may pass a row and count as feasible, in units of the largest demand: in float32 and float64.
PASSED = 1e-5, 1e-8


# With so small a scale of its demands a loop is not closed; it is open where it demands more than this share of the
# largest demand, and more than rounding leaves where loops alone demand anything: in float32 and float64 [m or rad].
STUCK, OPEN = 1e-4, 1e-3
CLOSED = 1e-5, 1e-9
# Turns: the program with its demands as they are, the one of the scale, and the first again, at that scale.
WHOLE, RECOVERING, SCALED, OVER = range(4)


class Demands(NamedTuple):
    """What limits and constraints ask of a displacement (n,).

    Attributes:
      box: lower and upper (n,); one above, or below, zero is a demand.
      rows: an h below zero is a demand; None for none.
      constraints: A (p, n) and b (p,), with zeros for those that may yield; None for none.
      closing: which constraints (p,) are loops and couplings of the model, whose b is a demand; None for none.
    """

    box: Bounds
    rows: MergedRows | None
    constraints: Rows | None
    closing: jax.Array | None = None


def at_scale(program: Program, demands: Demands, scale: jax.Array) -> Program:
    """A program with its demands, which are the first of its rows, at a scale ()."""
    (lower, upper), rows = demands.box, demands.rows
    lower, upper = jnp.where(lower > 0, scale * lower, lower), jnp.where(upper < 0, scale * upper, upper)
    if demands.closing is not None and program.b is not None:
        program = program._replace(b=jnp.where(demands.closing, scale * program.b, program.b))
    if rows is None or program.h is None:
        return program._replace(lower=lower, upper=upper)
    by_depth = jnp.maximum(rows.right + (1 - scale) * _relaxations(rows), jnp.minimum(rows.least, 0))
    scaled = jnp.where(rows.by_depth, by_depth, scale * rows.right)
    # Else each kernel of the quadratic program that reads them would compute them again.
    lower, upper, right = map(materialize, (lower, upper, jnp.where(rows.right < 0, scaled, rows.right)))
    return program._replace(lower=lower, upper=upper, h=jnp.concatenate([right, program.h[right.size :]]))


def minimise_at_largest_scale(
    program: Program, demands: Demands, warm_start: ActiveSet | None, options: QPOptions | None
) -> tuple[jax.Array, QPSolution]:
    """The scale () of all demands, 1 where they are feasible as they are; and the minimum of a program at that scale.

    Args:
      program: with the demands as they are, which are the first of its rows.
      demands, warm_start, options: of it; the scale is looked for with the defaults, from a cold start.
    """
    unit = largest_demand(demands)
    demanded = unit > 0
    asked = _in_units(demands, jnp.where(demanded, unit, 1))
    recovery = _recovery_program(program, asked)

    def minimum(turn: jax.Array, scale: jax.Array) -> QPSolution:
        main = _with_fixed_variable(at_scale(program, demands, scale))
        given = jax.tree.map(lambda own, other: jnp.where(turn == RECOVERING, own, other), recovery, main)
        start = warm_start
        if start is not None:
            start = dataclasses.replace(start, bounds=jnp.pad(start.bounds, (0, 1)))
            start = jax.tree.map(lambda x: jnp.where(turn == RECOVERING, jnp.zeros_like(x), x), start)
        return minimise(given, start, _options_of(turn, given, options))

    def take(state: tuple[jax.Array, jax.Array, QPSolution]) -> tuple[jax.Array, jax.Array, QPSolution]:
        turn, scale, _ = state
        found = minimum(turn, scale)
        lost = (found.status == Status.INFEASIBLE) | (found.status == Status.TIMEOUT)
        over = (turn == SCALED) | ((turn == WHOLE) & ~(lost & demanded))
        scale = jnp.where(turn == RECOVERING, _scale_of(found, asked), scale)
        return jnp.where(over, OVER, turn + 1), scale, found

    first, whole = jnp.full((), WHOLE, jnp.int32), jnp.ones((), program.c.dtype)
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(minimum, first, whole))
    _, scale, found = lax.while_loop(lambda state: state[0] != OVER, take, (first, whole, none))
    if demands.closing is not None:
        # Standing still keeps a loop that nothing can close as it is, for ever. Not where others alone are demanded.
        open_ = _largest_gap(demands) > jnp.maximum(OPEN * unit, CLOSED[int(unit.dtype == jnp.float64)])
        stuck = (scale <= STUCK) & open_ & (found.status == Status.CONVERGED)
        found = dataclasses.replace(found, status=jnp.where(stuck, Status.INFEASIBLE, found.status).astype(jnp.int32))
    return scale, _without_last_variable(found)


def largest_demand(demands: Demands) -> jax.Array:
    """The largest () of what limits demand: zero where nothing is demanded."""
    lower, upper = demands.box
    largest = jnp.max(jnp.maximum(-upper, lower), initial=0)
    largest = jnp.maximum(largest, _largest_gap(demands))
    return largest if demands.rows is None else jnp.maximum(largest, jnp.max(-demands.rows.right, initial=0))


def _largest_gap(demands: Demands) -> jax.Array:
    """The largest () of what loops and couplings of the model demand."""
    if demands.constraints is None or demands.closing is None:
        return jnp.zeros((), demands.box[0].dtype)
    return jnp.max(jnp.abs(demands.constraints[1]), where=demands.closing, initial=0)


def _options_of(turn: jax.Array, program: Program, options: QPOptions | None) -> QPOptions | None:
    """Those given, in all turns but that of the scale: one found in a few iterations may be far off."""
    if options is None:
        return None
    constraints = sum(x.shape[0] for x in (program.c, program.h, program.b) if x is not None)
    default = max_iterations(QPOptions(), constraints), tolerance(QPOptions(), program.c.dtype)
    given = options.max_iterations, options.tolerance
    taken = [x if own is None else jnp.where(turn == RECOVERING, x, own) for own, x in zip(given, default, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(QPOptions(0, 0.0)), taken)


def _relaxations(rows: MergedRows) -> jax.Array:
    """By how much h (k,) of each row has to be relaxed for a scale of zero; zero where nothing is demanded."""
    deepest = jnp.max(-rows.right, where=rows.by_depth, initial=0)
    apart = rows.right + rows.beyond >= 0
    by_depth = jnp.where(apart, jnp.minimum(deepest, rows.beyond), deepest)
    return jnp.where(rows.right < 0, jnp.where(rows.by_depth, by_depth, -rows.right), 0)


def _in_units(demands: Demands, unit: jax.Array) -> Demands:
    (lower, upper), rows, constraints, closing = demands
    if rows is not None:
        rows = rows._replace(right=rows.right / unit, beyond=rows.beyond / unit)
    if constraints is not None:
        constraints = constraints[0], constraints[1] / unit
    return Demands((lower / unit, upper / unit), rows, constraints, closing)


def _moved(box: Bounds) -> jax.Array:
    """The displacements (n,) that a box demands."""
    lower, upper = box
    return jnp.where(lower > 0, lower, jnp.where(upper < 0, upper, 0))


def _recovery_program(program: Program, demands: Demands) -> Program:
    """The program of the largest scale, of the shape of `program` and one more variable: the scale, which is the last.

    The others are the displacement less the scale times what the box demands. Such a demand takes from the room of its
    joint as if the scale were 1, as a bound is a number.
    """
    (lower, upper), rows, dtype = demands.box, demands.rows, program.c.dtype
    moved, size = _moved(demands.box), lower.shape[0]
    one, zero = jnp.ones(1, dtype), jnp.zeros(1, dtype)
    matrix, right, equal = program.G, program.h, (program.A, program.b)
    if matrix is not None and right is not None:
        given, relaxations = jnp.zeros((0, size), dtype), jnp.zeros(0, dtype)
        asked = relaxations
        if rows is not None:
            given, relaxations = rows.matrix, _relaxations(rows)
            asked = rows.right + relaxations
        column = given @ moved + relaxations
        # Nothing is asked of rows that may yield.
        right = jnp.concatenate([asked, jnp.ones_like(right[asked.size :])])
        more = (0, matrix.shape[0] - column.size)
        matrix = jnp.pad(jnp.concatenate([given, column[:, None]], axis=1), (more, (0, 0)))
    if demands.constraints is not None:
        given, equal_to = demands.constraints
        column = given @ moved
        if demands.closing is not None:
            column = jnp.where(demands.closing, column - equal_to, column)
            equal_to = jnp.where(demands.closing, 0, equal_to)
        equal = jnp.concatenate([given, column[:, None]], axis=1), equal_to
    return program._replace(
        H=jnp.diag(jnp.concatenate([jnp.full(size, COST[dtype == jnp.float64], dtype), one])),
        c=jnp.concatenate([jnp.zeros(size, dtype), -one]),
        lower=jnp.concatenate([jnp.minimum(lower, 0) - jnp.minimum(moved, 0), zero]),
        upper=jnp.concatenate([jnp.maximum(upper, 0) - jnp.maximum(moved, 0), one]),
        G=matrix,
        h=right,
        A=equal[0],
        b=equal[1],
    )


def _scale_of(found: QPSolution, demands: Demands) -> jax.Array:
    """The scale () that is used, by the solution of the recovery program."""
    rows, dtype = demands.rows, found.x.dtype
    scale = found.x[-1]
    # If constraints contradict each other, the step itself reports it. In float32 one program in a hundred runs out
    # of iterations, with its scale right to a thousandth.
    solved, failed = (found.status == Status.CONVERGED) | (found.status == Status.TIMEOUT), 1
    if rows is not None and rows.by_depth.any():
        # Not so with shapes that overlap: a wrong scale would be INFEASIBLE for ever.
        certain = _certified(found.x[:-1] + scale * _moved(demands.box), demands.box, rows)
        scale, failed = jnp.where(certain > TRUSTED * scale, scale, certain), 0
    return jnp.where(solved, jnp.where(scale > 1 - NEAR_ONE[dtype == jnp.float64], 1, MARGIN * scale), failed)


def _certified(x: jax.Array, box: Bounds, rows: MergedRows) -> jax.Array:
    """The largest scale () at which a displacement (n,), or part of it, meets what is demanded."""
    moved, relaxations = _moved(box), _relaxations(rows)
    way = jnp.clip(x, jnp.minimum(box[0], 0), jnp.maximum(box[1], 0))
    change = jnp.concatenate([-jnp.sign(moved) * way, rows.matrix @ way])
    demand = jnp.concatenate([jnp.abs(moved), relaxations])
    offset = jnp.concatenate([jnp.where(moved != 0, 0, 1).astype(x.dtype), rows.right + relaxations])
    most = offset + PASSED[x.dtype == jnp.float64]
    # Standing still meets all of them at a scale of zero.
    beyond = change > most
    change = change * jnp.min(jnp.where(beyond, offset / jnp.where(beyond, change, 1), 1))
    return jnp.clip(jnp.min(jnp.where(demand > 0, (most - change) / jnp.where(demand > 0, demand, 1), 1)), 0, 1)


def _with_fixed_variable(program: Program) -> Program:
    """The program with one more variable, which is zero and as curved as others."""
    size = program.c.shape[0]
    curvature = jnp.max(program.H.reshape(-1)[:: size + 1])
    last = jnp.arange(size + 1) == size
    return program._replace(
        H=jnp.where(last & last[:, None], curvature, jnp.pad(program.H, (0, 1))),
        c=jnp.pad(program.c, (0, 1)),
        lower=jnp.pad(program.lower, (0, 1)),
        upper=jnp.pad(program.upper, (0, 1)),
        G=None if program.G is None else jnp.pad(program.G, ((0, 0), (0, 1))),
        A=None if program.A is None else jnp.pad(program.A, ((0, 0), (0, 1))),
    )


def _without_last_variable(found: QPSolution) -> QPSolution:
    proof = found.certificate
    return dataclasses.replace(
        found,
        x=found.x[:-1],
        bound_multipliers=found.bound_multipliers[:-1],
        active=dataclasses.replace(found.active, bounds=found.active.bounds[:-1]),
        certificate=Certificate(proof.lower[:-1], proof.upper[:-1], proof.rows, proof.equalities, proof.direction[:-1]),
    )
