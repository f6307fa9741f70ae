"""Newton steps for constraints that may yield: sequential quadratic programs with an exact L1 penalty.

Minimises the cost of the tasks plus `penalty * |violation|` of each row of the constraints (S l1 QP: Fletcher,
"Practical Methods of Optimization", 1987, section 14.4). Each step minimises a quadratic model of the Lagrangian with
the linearised rows, whose multipliers are capped at their penalties, within a trust region. The rows are evaluated
where that leads, and the program is solved once more with what they curve: without this second-order correction a step
along a curved constraint is refused, however short (the Maratos effect; same book, section 14.4).

A constraint that has to hold has a penalty as well, that grows where its multiplier asks for more.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.kinematics.forward import Kinematics
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import largest, solve_positive
from jaxik.problem.problem import Problem
from jaxik.qp_solver import ActiveSet, Program, minimise
from jaxik.solvers.nonlinear.box import Box, box_curvature, to_box
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    curvature,
    errors,
    evaluate,
    met,
    retract,
    row_spans,
    rows,
    without_slack,
)
from jaxik.solvers.nonlinear.hard_constraint import WEIGHT, HardConstraint, yielding
from jaxik.solvers.nonlinear.scaling import NOISE, limits_at, step_scale
from jaxik.solvers.options import SolveOptions, step_tolerance
from jaxik.tasks.weights import pairs, row_weights

# Curvature that is added where the Hessian has a negative one, relative to its largest: the first that leaves none.
SHIFTS = 0.0, 1e-10, 1e-7, *(1e-5 * 4.0**k for k in range(12))
# Of rows that hold, so many times their squares are added, relative to the Hessian: that changes no step which holds
# them, and makes curvature positive that is so along them.
HELD = 10.0
# Steps, in units of joint range, are no longer than this at first, and at most.
RADIUS, MOST = 0.25, 1.0
# The trust region shrinks and grows, where the model is worse and better than these.
POOR, GOOD, ACCEPTED = 0.25, 0.75, 1e-4
# The first penalty of rows that have to hold, relative to the largest of those that may yield; and the last.
FIRM, FIRMEST = 10.0, 1e6


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
      penalties (p,), firm (): of rows, infinite for those that have to hold; and what stands for that.
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
    return State(
        q=q,
        model=Model(infinite, nothing[0][0], *nothing),
        errors=errors,
        multipliers=nothing[2],
        active=ActiveSet(jnp.zeros(size, jnp.int32), jnp.zeros(0, bool), jnp.zeros(count, jnp.int32)),
        penalties=penalties,
        firm=FIRM * jnp.max(jnp.where(jnp.isinf(penalties), 0, penalties)),
        radius=jnp.full((), RADIUS, dtype),
        size=infinite,
        met=no,
        stationary=no,
        ended=no,
        iterations=iterations,
        spent=spent,
    )


def step(prepared: Formulation, state: State, options: SolveOptions) -> State:
    """Propose a step, evaluate where it leads, and accept or reject that."""
    first, weights = jnp.isinf(state.cost), jnp.minimum(state.penalties, state.firm)
    limits, scale = limits_at(prepared, state.q), step_scale(prepared)
    model, dtype = state.model, state.q.dtype
    hessian = _convex(model.hessian + _squares(model, state.multipliers, weights))
    steps, multipliers, active = _proposed(prepared, state, limits, weights, hessian)
    proposed, taken = jnp.where(first, 0, steps)
    q = retract(prepared, state.q, limits, scale * taken)
    trial, reported = _expanded(prepared, q, multipliers)
    missed = jnp.sum(weights * jnp.abs(model.violation))
    before, after = model.cost + missed, trial.cost + jnp.sum(weights * jnp.abs(trial.violation))
    left = jnp.sum(weights * jnp.abs(model.violation + model.rows @ proposed))
    predicted = missed - left - proposed @ (model.gradient + 0.5 * (hessian @ proposed))
    # Rows are differences of lengths, that round as these do, however small they are.
    rounding = NOISE * before + jnp.sum(weights * jnp.max(jnp.abs(model.rows), axis=1))
    noise, length = jnp.finfo(dtype).eps * rounding, jnp.max(jnp.abs(proposed))
    hidden = predicted <= noise
    decrease = before - after
    accepted = first | (decrease > ACCEPTED * predicted) | (hidden & (decrease >= -noise))
    accepted = accepted & jnp.isfinite(after)
    size, inside = jnp.max(jnp.abs(scale * proposed)), length < 0.99 * state.radius
    small = (size <= step_tolerance(options, dtype)) & inside
    # Where the decrease drowns in rounding, steps that do not shrink have come to their end.
    stationary = ~first & (small | (hidden & inside & (~accepted | (size > 0.5 * state.size))))
    strained = jnp.any(jnp.isinf(state.penalties) & (jnp.abs(multipliers) >= 0.99 * state.firm)) & ~first
    firmest = FIRMEST * jnp.max(jnp.where(jnp.isinf(state.penalties), 1, state.penalties))
    strained = strained & (state.firm < firmest)
    stationary = stationary & ~strained
    worse = ~accepted | (decrease < POOR * predicted) & ~hidden
    better = (decrease > GOOD * predicted) & ~inside
    radius = jnp.where(worse, POOR * length, jnp.where(better, jnp.minimum(2 * state.radius, MOST), state.radius))
    iterations = state.iterations + jnp.where(first, 0, 1).astype(jnp.int32)

    def chosen(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(accepted, n, o), new, old)

    errors_now = chosen(reported, state.errors)
    return State(
        q=chosen(q, state.q),
        model=chosen(trial, state.model),
        errors=errors_now,
        multipliers=jnp.where(first, state.multipliers, chosen(multipliers, state.multipliers)),
        active=jax.tree.map(lambda n, o: jnp.where(first, o, n), active, state.active),
        penalties=state.penalties,
        firm=jnp.where(strained, 10 * state.firm, state.firm),
        radius=jnp.where(first, state.radius, radius),
        size=jnp.where(first, jnp.inf, size),
        met=met(prepared, errors_now, (*prepared.levels[0], *prepared.levels[1])),
        stationary=stationary,
        ended=stationary | (iterations >= options.max_steps) | (first & ~accepted),
        iterations=iterations,
        spent=state.spent,
    )


def row_penalties(prepared: Formulation, kin: Kinematics) -> jax.Array:
    """The penalty (p,) of each weighted row of the constraints, infinite for those that have to hold."""
    problem, own, found = prepared.problem, without_slack(prepared, kin), []
    for name in prepared.levels[0]:
        task = problem.tasks[name]
        assert isinstance(task, HardConstraint)
        residual = task.residual(problem.robot, own)
        for w, r in pairs(row_weights(task.task, residual), residual):
            penalty = jnp.inf if task.penalty is None else task.penalty * jnp.where(w != 0, jnp.abs(w), 1) / WEIGHT
            found.append(jnp.ravel(jnp.broadcast_to(jnp.asarray(penalty, r.dtype), r.shape)))
    return jnp.concatenate(found)


def pull_of(prepared: Formulation, kin: Kinematics, violation: jax.Array) -> jax.Array:
    """The constant force (p,) of each weighted row of the constraints that yields, as `yielded_of` has it."""
    tasks, found = prepared.problem.tasks, []
    for name, span in row_spans(prepared, prepared.levels[0]).items():
        task = tasks[name]
        assert isinstance(task, HardConstraint)
        off = violation[span.start : span.stop]
        limit = jnp.inf if task.penalty is None else WEIGHT * task.tolerance
        found.append(jnp.where(jnp.abs(off) > limit, jnp.sign(off), 0))
    return jnp.concatenate(found) * jnp.where(jnp.isinf(p := row_penalties(prepared, kin)), 0, p)


def price(prepared: Formulation, kin: Kinematics) -> jax.Array:
    """What violations () of constraints that may yield cost."""
    penalties = row_penalties(prepared, kin)
    missed = jnp.abs(rows(prepared, kin, prepared.levels[0]).residual)
    return jnp.sum(jnp.where(jnp.isinf(penalties), 0, penalties) * missed)


def yielded_of(problem: Problem, errors: dict[str, Any]) -> dict[str, Any]:
    """By how much what may yield is off, where that is more than constraints that hold may be; by name, or by limit."""
    found: dict[str, Any] = {}
    for name in yielding(problem):
        task = problem.tasks[name]
        assert isinstance(task, HardConstraint)
        off = jax.tree.map(
            # What is not a number does not hold.
            lambda w, e, task=task: jnp.where((w == 0) | (jnp.abs(e) <= task.tolerance), 0, e),
            row_weights(task, errors[name]),
            errors[name],
        )
        if task.limit is None:
            found[name] = off
        else:
            before = found.get(task.limit, jnp.zeros(0, off.dtype))
            found[task.limit] = jnp.concatenate([before, jnp.reshape(0 - off, 1)])
    return found


def _expanded(prepared: Formulation, q: jax.Array, multipliers: jax.Array) -> tuple[Model, Any]:
    """The problem at a configuration (nq,), given multipliers (p,); and what tasks report there."""
    kin, limits, scale, moving = evaluate(prepared, q), limits_at(prepared, q), step_scale(prepared), prepared.moving
    above, level = prepared.levels
    held, found = rows(prepared, kin, above), rows(prepared, kin, level)
    bent = curvature(prepared, kin, level, found.residual) + curvature(prepared, kin, above, multipliers)
    force = found.residual @ found.jacobian + multipliers @ held.jacobian
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
    prepared: Formulation, state: State, limits: Box, weights: jax.Array, hessian: jax.Array
) -> tuple[jax.Array, jax.Array, ActiveSet]:
    """The step of the model and the corrected one (2, n), the multipliers (p,) of the latter and its active set."""
    model, scale = state.model, step_scale(prepared)
    lower, upper = (jnp.clip(x / scale, -state.radius, state.radius) for x in (limits.lower, limits.upper))
    if limits.moves is not None:
        lower, upper = jnp.where(limits.moves, lower, 0), jnp.where(limits.moves, upper, 0)

    def solve(carry: tuple[jax.Array, ActiveSet], _: None) -> tuple[tuple[jax.Array, ActiveSet], Any]:
        offset, active = carry
        program = Program(hessian, model.gradient, lower, upper, A=model.rows, b=-offset, equality_penalties=weights)
        found = minimise(program, active)
        q = retract(prepared, state.q, limits, scale * found.x)
        seen = rows(prepared, evaluate(prepared, q), prepared.levels[0]).residual
        following = jnp.where(jnp.isfinite(seen), seen, model.violation + model.rows @ found.x) - model.rows @ found.x
        return (following, found.active), (found.x, found.equality_multipliers)

    (_, active), (steps, multipliers) = lax.scan(solve, (model.violation, state.active), None, length=2)
    return steps, multipliers[1], active
