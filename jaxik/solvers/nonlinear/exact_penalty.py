"""Newton steps for constraints and joint limits that may yield: quadratic programs with an exact L1 penalty.

Minimises the cost of the tasks of the highest priority plus `penalty * |violation|` of each row of the constraints
(S l1 QP: Fletcher, "Practical Methods of Optimization", 1987, section 14.4). Each step minimises a quadratic model of
the Lagrangian with the linearised rows, whose multipliers are capped at their penalties, within a trust region. The
rows are evaluated where that leads, and the program is solved once more with what they curve: without this second-order
correction a step along a curved constraint is refused, however short (the Maratos effect; same book, section 14.4).

A row whose multiplier stays below a weight holds at any larger penalty, and steps along curved constraints are short
where weights are large. So rows have less than their penalties, some times the multipliers, and those that have to hold
have no other; where a multiplier asks for more, it grows.

Where joint limits may yield, a step stays in the cell of each coordinate (`elastic_joints`).
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import largest, solve_positive
from jaxik.qp_solver import ActiveSet, Program, QPOptions, QPSolution, minimise, minimise_in_box
from jaxik.solvers.nonlinear.box import Box, box_curvature, to_box
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    curvature,
    errors,
    evaluate,
    hard_constraints,
    in_cells,
    met,
    retract,
    rows,
)
from jaxik.solvers.nonlinear.hard_constraint import holding
from jaxik.solvers.nonlinear.penalties import row_penalties
from jaxik.solvers.nonlinear.scaling import NOISE, limits_at, step_scale
from jaxik.solvers.options import SolveOptions, step_tolerance

# Curvature that is added where the Hessian has a negative one, relative to its largest: the first that leaves none.
SHIFTS = 0.0, 1e-10, 1e-7, *(1e-5 * 4.0**k for k in range(12))
# Of rows that hold, so many times their squares are added, relative to the Hessian: that changes no step which holds
# them, and makes curvature positive that is so along them.
HELD = 10.0
# Steps, in units of joint range, are no longer than this at first, and at most.
RADIUS, MOST = 0.25, 1.0
# The trust region shrinks and grows, where the model is worse and better than these.
POOR, GOOD, ACCEPTED = 0.25, 0.75, 1e-4
# Programs of bounds alone need not be solved to the end. Lanes wait for the slowest: a Panda's `solve` beside joint
# limits that yield takes 0.74 s for 4,096 targets without an end, 0.18, 0.13 and 0.11 with 16, 8 and 4 iterations, and
# as many steps.
INEXACT = 8
# Rows weigh so many times what multipliers are. Of 1,000 Pandas that reach for a point, upright where they can be, with
# penalties of 0.1, 1, 10, 100 and 1000 4 % take more than 100 steps; by their penalties 4, 7, 16, 37 and 45 %.
FIRM = 10.0
# At least, relative to the largest penalty, and at most. Beside joint limits that yield, at least 1 is little better
# where a pose holds, of which 24 for 29 of 4,096 Pandas take more than 100 steps, and 15 for 4 % above.
LEAST, FIRMEST = 1e-7, 1e6


class Model(NamedTuple):
    """The problem to second order, in units of step.

    Attributes:
      cost (), gradient (n,): of the tasks.
      hessian (n, n): of the Lagrangian.
      rows (p, n), violation (p,): of the constraints.
    """

    cost: jax.Array
    gradient: jax.Array
    hessian: jax.Array
    rows: jax.Array
    violation: jax.Array


class State(NamedTuple):
    """One element between two steps.

    Attributes:
      q (nq,), model, errors: the best configuration so far; the cost is infinite before the first evaluation.
      multipliers (p,), active: of the last program.
      penalties (p,), firm (): of rows, infinite for those that have to hold; and the most that they weigh.
      cells (n,): of coordinates, where joint limits may yield.
      radius (): of the trust region, in units of step.
      size (): largest entry of the last step [rad or m].
      met, stationary, ended (): as in `levenberg_marquardt.State`, without a constraint that yields; iterations, spent.
    """

    q: jax.Array
    model: Model
    errors: Any
    multipliers: jax.Array
    active: ActiveSet
    penalties: jax.Array
    firm: jax.Array
    cells: jax.Array | None
    radius: jax.Array
    size: jax.Array
    met: jax.Array
    stationary: jax.Array
    ended: jax.Array
    iterations: jax.Array
    spent: Any

    @property
    def cost(self) -> jax.Array:
        """Of the tasks ()."""
        return self.model.cost

    @property
    def damping(self) -> jax.Array:
        """What a trace has of the trust region ()."""
        return 1 / self.radius


def start(prepared: Formulation, q: jax.Array, errors: Any, iterations: jax.Array, spent: Any) -> State:
    """Before the first step from `q` (nq,); nothing is evaluated."""
    size, dtype, no = len(prepared.moving.own), q.dtype, jnp.zeros((), bool)
    penalties = row_penalties(prepared, evaluate(prepared, q))
    count, infinite = penalties.shape[0], jnp.full((), jnp.inf, dtype)
    nothing = jnp.zeros((size, size), dtype), jnp.zeros((count, size), dtype), jnp.zeros(count, dtype)
    active = ActiveSet(jnp.zeros(size, jnp.int32), jnp.zeros(0, bool), jnp.zeros(count, jnp.int32) if count else None)
    return State(
        q=q,
        model=Model(infinite, nothing[0][0], *nothing),
        errors=errors,
        multipliers=nothing[2],
        active=active,
        penalties=penalties,
        firm=jnp.zeros((), dtype),
        cells=None if prepared.elastic is None else prepared.elastic.cells(q),
        radius=jnp.full((), RADIUS, dtype),
        size=infinite,
        met=no,
        stationary=no,
        ended=no,
        iterations=iterations,
        spent=spent,
    )


class _Verdict(NamedTuple):
    """What becomes of a step: whether it is taken, is the last, its length () [rad or m], and the next radius."""

    accepted: jax.Array
    stationary: jax.Array
    size: jax.Array
    radius: jax.Array


def step(prepared: Formulation, state: State, options: SolveOptions) -> State:
    """Propose a step, evaluate where it leads, and accept or reject that."""
    first, weights, joints = jnp.isinf(state.cost), jnp.minimum(state.penalties, state.firm), prepared.elastic
    # Units are those inside of elastic limits, in whatever cells coordinates are.
    scale, prepared = step_scale(prepared), in_cells(prepared, state.cells)
    limits, model = limits_at(prepared, state.q), state.model
    if joints is not None and state.cells is not None:
        model = model._replace(gradient=model.gradient + scale * joints.slope(state.cells))
    hessian = _convex(model.hessian + _squares(model, state.multipliers, weights))
    steps, multipliers, found = _proposed(prepared, state._replace(model=model), limits, scale, weights, hessian)
    proposed, taken = jnp.where(first, 0, steps)
    q = retract(prepared, state.q, limits, scale * taken)
    trial, reported = _expanded(prepared, q, scale, multipliers)
    missed = jnp.sum(weights * jnp.abs(model.violation))
    before, after = model.cost + missed, trial.cost + jnp.sum(weights * jnp.abs(trial.violation))
    if joints is not None:
        before, after = before + joints.cost(state.q), after + joints.cost(q)
    left = jnp.sum(weights * jnp.abs(model.violation + model.rows @ proposed))
    predicted = missed - left - proposed @ (model.gradient + 0.5 * (hessian @ proposed))
    # Rows are differences of lengths, that round as these do, however small they are.
    rounding = NOISE * before + jnp.sum(weights * jnp.max(jnp.abs(model.rows), axis=1, initial=0))
    verdict = _judged(state, options, scale, proposed, (before, after), predicted, rounding)
    accepted, iterations = verdict.accepted, state.iterations + jnp.where(first, 0, 1).astype(jnp.int32)

    def chosen(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(accepted, n, o), new, old)

    errors_now = chosen(reported, state.errors)
    judged = tuple(name for level in prepared.levels[: prepared.task_level + 1] for name in level)
    firm, strained = _firmness(prepared, state, multipliers, trial, errors_now, accepted)
    cells, active, leaves = _next_cells(prepared, state, q, found, scale, accepted)
    stationary = verdict.stationary & ~strained & ~leaves
    return State(
        q=chosen(q, state.q),
        model=chosen(trial, state.model),
        errors=errors_now,
        multipliers=jnp.where(first, state.multipliers, chosen(multipliers, state.multipliers)),
        active=jax.tree.map(lambda n, o: jnp.where(first, o, n), active, state.active),
        penalties=state.penalties,
        firm=firm,
        cells=cells,
        radius=jnp.where(first, state.radius, verdict.radius),
        size=jnp.where(first, jnp.inf, verdict.size),
        met=met(prepared, errors_now, judged),
        stationary=stationary,
        ended=stationary | (iterations >= options.max_steps) | (first & ~accepted),
        iterations=iterations,
        spent=state.spent,
    )


def _judged(
    state: State,
    options: SolveOptions,
    scale: jax.Array,
    proposed: jax.Array,
    costs: tuple[jax.Array, jax.Array],
    predicted: jax.Array,
    rounding: jax.Array,
) -> _Verdict:
    """Judge a step (n,), in units (n,), by the costs () before and after it and what the model predicted."""
    first, decrease, dtype = jnp.isinf(state.cost), costs[0] - costs[1], proposed.dtype
    noise, length = jnp.finfo(dtype).eps * rounding, jnp.max(jnp.abs(proposed))
    hidden = predicted <= noise
    accepted = first | (decrease > ACCEPTED * predicted) | (hidden & (decrease >= -noise))
    accepted = accepted & jnp.isfinite(costs[1])
    size, inside = jnp.max(jnp.abs(scale * proposed)), length < 0.99 * state.radius
    small = (size <= step_tolerance(options, dtype)) & inside
    # Where the decrease drowns in rounding, steps that do not shrink have come to their end.
    stationary = ~first & (small | (hidden & inside & (~accepted | (size > 0.5 * state.size))))
    worse = ~accepted | (decrease < POOR * predicted) & ~hidden
    better = (decrease > GOOD * predicted) & ~inside
    radius = jnp.where(worse, POOR * length, jnp.where(better, jnp.minimum(2 * state.radius, MOST), state.radius))
    return _Verdict(accepted, stationary, size, radius)


def _firmness(
    prepared: Formulation, state: State, multipliers: jax.Array, trial: Model, errors: Any, accepted: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The next weight () of rows whose penalties are larger, and whether their multipliers (p,) asked for more.

    It begins with what multipliers may be of the gradient at the start, of `trial`.
    """
    if not state.penalties.shape[0]:
        return state.firm, jnp.zeros((), bool)
    first, larger = jnp.isinf(state.cost), state.penalties > state.firm
    strained = jnp.any(larger & (jnp.abs(multipliers) >= 0.99 * state.firm)) & ~first
    strained = strained & (state.firm < FIRMEST * jnp.max(jnp.where(jnp.isinf(state.penalties), 1, state.penalties)))
    # Far larger than multipliers it makes steps along curved constraints short.
    some = LEAST * _largest_penalty(prepared, state.penalties)
    slope = jnp.max(jnp.abs(trial.gradient)) / largest(jnp.max(jnp.abs(trial.rows), axis=1))
    begin, least = (FIRM * jnp.maximum(x, some) for x in (slope, jnp.max(jnp.abs(multipliers))))
    enough = ~first & accepted
    if held := holding(prepared.problem):
        enough = enough & met(prepared, errors, held)
    firm = jnp.where(strained, 10 * state.firm, jnp.where(enough, jnp.minimum(state.firm, least), state.firm))
    return jnp.where(first, begin, firm), strained


def _largest_penalty(prepared: Formulation, penalties: jax.Array) -> jax.Array:
    """The largest penalty () of rows (p,) that may yield; where there are none, of joint limits, up to 1."""
    least = 0 if prepared.elastic is None else jnp.minimum(prepared.elastic.penalty, 1)
    return jnp.max(jnp.where(jnp.isinf(penalties), 0, penalties), initial=least)


def _next_cells(
    prepared: Formulation, state: State, q: jax.Array, found: QPSolution, scale: jax.Array, accepted: jax.Array
) -> tuple[jax.Array | None, ActiveSet, jax.Array]:
    """The next cells (n,), the active set to start from there, and whether a coordinate leaves its cell ()."""
    if prepared.elastic is None or state.cells is None:
        return None, found.active, jnp.zeros((), bool)
    there = prepared.elastic.following(state.cells, q, found.bound_multipliers / scale)
    cells = jnp.where(accepted & ~jnp.isinf(state.cost), there, state.cells)
    leaves = cells != state.cells
    bounds = jnp.where(leaves, 0, found.active.bounds)
    return cells, dataclasses.replace(found.active, bounds=bounds), jnp.any(leaves)


def _expanded(prepared: Formulation, q: jax.Array, scale: jax.Array, multipliers: jax.Array) -> tuple[Model, Any]:
    """The problem at a configuration (nq,), given units (n,) and multipliers (p,); and what tasks report there."""
    kin, limits, moving = evaluate(prepared, q), limits_at(prepared, q), prepared.moving
    above, level = hard_constraints(prepared.problem), prepared.levels[prepared.task_level]
    held, found = rows(prepared, kin, above), rows(prepared, kin, level)
    bent, force = curvature(prepared, kin, level, found.residual), found.residual @ found.jacobian
    if above:
        bent, force = bent + curvature(prepared, kin, above, multipliers), force + multipliers @ held.jacobian
    bent = to_box(moving, limits, to_box(moving, limits, bent).T)
    bent = bent + box_curvature(prepared.robot, moving, q, limits, force)
    jacobian = scale * to_box(moving, limits, found.jacobian)
    model = Model(
        cost=0.5 * found.residual @ found.residual,
        gradient=found.residual @ jacobian,
        hessian=jacobian.T @ jacobian + scale[:, None] * bent * scale,
        rows=scale * to_box(moving, limits, held.jacobian),
        violation=held.residual,
    )
    return model, errors(prepared, kin)


def _squares(model: Model, multipliers: jax.Array, weights: jax.Array) -> jax.Array:
    """Squares (n, n) of the rows that hold (p,), and are so near that their penalty is more than what these pull."""
    if not weights.shape[0]:
        return jnp.zeros_like(model.hessian)
    tops = largest(jnp.abs(jnp.diagonal(model.hessian))), largest(jnp.sum(model.rows * model.rows, axis=0))
    weight = HELD * tops[0] / tops[1]
    holds = jnp.abs(multipliers) + 2 * weight * jnp.abs(model.violation) < weights
    kept = jnp.where(holds[:, None], model.rows, 0)
    return weight * (kept.T @ kept)


def _convex(hessian: jax.Array) -> jax.Array:
    """The Hessian (n, n), made positive definite by more of the identity where it is not."""
    shifts = largest(jnp.max(jnp.abs(hessian), axis=0)) * jnp.asarray(SHIFTS, hessian.dtype)
    eye, nothing = unit_matrix(hessian.shape[0], dtype=hessian.dtype), jnp.zeros(hessian.shape[0], hessian.dtype)
    positive = jax.vmap(lambda shift: solve_positive(hessian + shift * eye, nothing)[1] > 0)(shifts)
    return hessian + jnp.where(jnp.any(positive), shifts[jnp.argmax(positive)], shifts[-1]) * eye


def _proposed(
    prepared: Formulation, state: State, limits: Box, scale: jax.Array, weights: jax.Array, hessian: jax.Array
) -> tuple[jax.Array, jax.Array, QPSolution]:
    """The step of the model and the corrected one (2, n), the multipliers (p,) of the latter, and its program's end."""
    model = state.model
    lower, upper = (jnp.clip(x / scale, -state.radius, state.radius) for x in (limits.lower, limits.upper))
    if limits.moves is not None:
        lower, upper = jnp.where(limits.moves, lower, 0), jnp.where(limits.moves, upper, 0)

    if not weights.shape[0]:
        program, inexact = Program(hessian, model.gradient, lower, upper), QPOptions(max_iterations=INEXACT)
        found = minimise_in_box(program, state.active, inexact)
        return jnp.stack([found.x, found.x]), weights, found

    def solve(carry: tuple[jax.Array, ActiveSet], _: None) -> tuple[tuple[jax.Array, ActiveSet], QPSolution]:
        offset, active = carry
        program = Program(hessian, model.gradient, lower, upper, A=model.rows, b=-offset, equality_penalties=weights)
        found = minimise(program, active)
        q = retract(prepared, state.q, limits, scale * found.x)
        seen = rows(prepared, evaluate(prepared, q), hard_constraints(prepared.problem)).residual
        following = jnp.where(jnp.isfinite(seen), seen, model.violation + model.rows @ found.x) - model.rows @ found.x
        return (following, found.active), found

    _, both = lax.scan(solve, (model.violation, state.active), None, length=2)
    found = jax.tree.map(lambda x: x[1], both)
    return both.x, found.equality_multipliers, found
