"""How a solution moves with its problem: the implicit function theorem at a stationary point of the tasks.

In the coordinates that a solver moves, with g the gradient of a level of tasks and H its exact Hessian, it keeps
g = 0 but for joints that their bounds hold, which move as the bounds do: H dx = -dg, with dg what the gradient changes
by where the solution is. Of several levels each keeps its gradient zero along what those above it leave free, and the
Hessian of the lowest is that of the Lagrangian, in which the levels above pull with the multipliers that balance it.
Where the highest level is out of reach, it is not its residual that stays zero, but its gradient: that pulls, and what
the pull bends is the third derivative of its cost along the multiplier.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.coordinates import carried
from jaxik.evaluation import Prepared, Rows, curvature, distances, errors, evaluate, held_by, prepare, rows, wanted_of
from jaxik.implicit import Along, Sensitivity
from jaxik.kinematics import Kinematics
from jaxik.limits.box import Box, bends, bounds_of, from_box, to_box
from jaxik.linalg import NOTHING, arrange, inverse_within, largest
from jaxik.manifold import clamp, integrate
from jaxik.problem import Level
from jaxik.solvers.measure import limits_at, not_held
from jaxik.solvers.needs import rank_threshold
from jaxik.solvers.point import standing
from jaxik.status import Derivative, Status

# In float32 and float64: a bound holds a joint that would leave it by more than this [rad or m], and by less than the
# second it hardly does.
VISIBLE, FIRM = (1e-4, 1e-9), (1e-3, 1e-7)
# A solution from which a Newton step leads farther than this [rad or m] is none.
SETTLED = (1e-3, 1e-6)


class Condition(NamedTuple):
    """What the derivative of one element's solution is made of, in the n coordinates of its box.

    Attributes:
      hessians, inverses (k, n, n): of each level, the last one's of the Lagrangian; inverted along what the levels
        above and bounds leave free.
      pulls: for each level but the last, how its weighted residual (m,) pulls on the last one.
      lost (), multiplier (n,): whether the highest level is out of reach, with others below it, and how its gradient
        pulls then, in the place of its residual.
      low, high (n,): the coordinates that their lower and upper bounds hold.
      derivative (): of `Derivative`, int32.
    """

    hessians: jax.Array
    inverses: jax.Array
    pulls: tuple[jax.Array, ...]
    lost: jax.Array
    multiplier: jax.Array
    low: jax.Array
    high: jax.Array
    derivative: jax.Array


class _Place(NamedTuple):
    """One configuration, and all levels there to first order, on degrees of freedom and on the box's coordinates."""

    prepared: Prepared
    kin: Kinematics
    limits: Box
    models: list[Rows]
    boxed: list[jax.Array]


def _place(prepared: Prepared, q: jax.Array) -> _Place:
    return _seen(prepared, q, limits_at(prepared, q), prepared.levels)


def _seen(prepared: Prepared, q: jax.Array, limits: Box, levels: Sequence[Level]) -> _Place:
    kin = evaluate(prepared, q)
    models = [rows(prepared, kin, names) for names in levels]
    return _Place(prepared, kin, limits, models, [to_box(prepared.moving, limits, m.jacobian) for m in models])


def _bend(place: _Place, pulls: dict[int, jax.Array]) -> jax.Array:
    """Second derivative (n, n) of the sum of pull . residual over levels, for constant pulls."""
    prepared, moving, limits = place.prepared, place.prepared.moving, place.limits
    hessian = sum(curvature(prepared, place.kin, prepared.levels[j], pull) for j, pull in pulls.items())
    gradient = sum(pull @ place.models[j].jacobian for j, pull in pulls.items())
    inner = to_box(moving, limits, to_box(moving, limits, jnp.asarray(hessian)).T)
    return inner + bends(prepared.robot, moving, place.kin.q, limits, jnp.asarray(gradient))


class _Above(NamedTuple):
    """The levels above the last one: gradient and Hessian, balanced by those above it, and whether out of reach."""

    gradients: list[jax.Array]
    hessians: list[jax.Array]
    lost: list[jax.Array]


def _above(place: _Place, inside: jax.Array) -> _Above:
    """All levels above the last one, where these coordinates (n,) are inside their bounds."""
    found = _Above([], [], [])
    for j, (model, jacobian) in enumerate(zip(place.models[:-1], place.boxed[:-1], strict=True)):
        gradient, square, pulls = _gradient(place, j), jacobian.T @ jacobian, {j: model.residual}
        if j:
            own = place._replace(models=place.models[: j + 1], boxed=place.boxed[: j + 1])
            balance = _balance(own, found, inside)
            gradient, pulls = balance.gradient, pulls | dict(enumerate(balance.pulls))
        unit = largest(jnp.diagonal(square))
        still, weight = standing(model.residual, gradient / unit, unit, place.limits)
        lost = still & (weight > _at(FIRM, weight.dtype))
        # What is left of a residual that can reach zero would bend directions that the level leaves free.
        found.gradients.append(gradient)
        found.hessians.append(jnp.where(lost, square + _bend(place, pulls), square))
        found.lost.append(lost)
    return found


class _Balance(NamedTuple):
    """What the levels above leave free, and how they balance the last one's gradient.

    Attributes:
      left (n, n): projector onto what they and the bounds leave free.
      inverses: of their Hessians, each along what those above it leave free.
      rank (): of all of them.
      multipliers, pulls: by what their gradients (n,) and weighted residuals (m,) pull.
      gradient (n,): of the last level and these pulls.
    """

    left: jax.Array
    inverses: list[jax.Array]
    rank: jax.Array
    multipliers: tuple[jax.Array, ...]
    pulls: tuple[jax.Array, ...]
    gradient: jax.Array


def _balance(place: _Place, above: _Above, free: jax.Array) -> _Balance:
    left = jnp.diag(free.astype(place.kin.q.dtype))
    inverses, rank = [], jnp.zeros((), left.dtype)
    for hessian in above.hessians:
        inverse, space, _ = inverse_within(
            left @ hessian @ left, largest(jnp.diagonal(hessian)), rank_threshold(left.dtype)
        )
        inverses.append(inverse)
        left, rank = left - space, rank + jnp.trace(space)
    pulled, multipliers = place.models[-1].residual @ place.boxed[-1], []
    for inverse, hessian in zip(reversed(inverses), reversed(above.hessians), strict=True):
        multipliers.insert(0, -inverse @ pulled)
        pulled = pulled + hessian @ multipliers[0]
    pulls = [jacobian @ multiplier for jacobian, multiplier in zip(place.boxed[:-1], multipliers, strict=True)]
    return _Balance(left, inverses, rank, tuple(multipliers), tuple(pulls), pulled)


def _may_be_lost(prepared: Prepared) -> bool:
    """Whether the highest level of several may be out of reach: constraints are met, or there is no solution."""
    return len(prepared.levels) > 1 and not held_by(prepared.problem)


def _along(place: _Place, multiplier: jax.Array, function: Callable[[_Place], jax.Array]) -> jax.Array:
    """How something of the highest level changes along a multiplier (n,), in axes that turn with their bodies."""
    prepared, robot, moving = place.prepared, place.prepared.robot, place.prepared.moving

    def moved(share: jax.Array) -> jax.Array:
        tangent = from_box(moving, place.limits, share * multiplier)
        q = carried(robot, moving, integrate(robot.topology, place.kin.q, tangent))
        limits = limits_at(prepared, q)._replace(axes=place.limits.axes)
        return function(_seen(prepared, q, limits, prepared.levels[:1]))

    none = jnp.zeros((), multiplier.dtype)
    return jax.jvp(moved, (none,), (none + 1,))[1]


def _gradient(place: _Place, level: int = 0) -> jax.Array:
    """Of a level's cost (n,)."""
    return place.models[level].residual @ place.boxed[level]


def _hessian(place: _Place) -> jax.Array:
    """Of the highest level's cost (n, n)."""
    return place.boxed[0].T @ place.boxed[0] + _bend(place, {0: place.models[0].residual})


def _at(pair: tuple[float, float], dtype: Any) -> float:
    """Of float32 and float64."""
    return pair[dtype == jnp.float64]


def _pressed(place: _Place, gradient: jax.Array, curve: jax.Array, least: tuple[float, float]) -> jax.Array:
    """Coordinates (n,) at a bound that a gradient presses against it by a visible distance."""
    push = jnp.abs(gradient) / largest(jnp.diagonal(curve))
    return (push > _at(least, push.dtype)) & ~not_held(place.limits, gradient)


def _assess(arguments: tuple[Any, ...], answer: Any) -> Condition:
    """What the derivative of a solution needs to know of it."""
    problem, solution = arguments[0], answer.solution
    prepared = prepare(problem)
    place = _place(prepared, _with_slacks(prepared, solution.q))
    limits, dtype = place.limits, solution.q.dtype
    square = place.boxed[-1].T @ place.boxed[-1]
    moves = jnp.ones(limits.lower.shape, bool) if limits.moves is None else limits.moves
    low, high = (limits.lower >= 0) & moves, (limits.upper <= 0) & moves
    above = _above(place, moves & ~low & ~high)
    visible = _at(VISIBLE, dtype)
    near = ((limits.lower >= -visible) | (limits.upper <= visible)) & moves
    # Where all bounds hold that the solution is at, multipliers tell which of them do.
    balance = _balance(place, above, moves & ~low & ~high)
    held, firm = (
        (low & high)
        | _pressed(place, balance.gradient, square, least)
        | sum((_pressed(place, g, h, least) for g, h in zip(above.gradients, above.hessians, strict=True)), low & high)
        for least in (VISIBLE, FIRM)
    )
    free = moves & ~held
    balance = _balance(place, above, free) if above.hessians else balance._replace(left=jnp.diag(free.astype(dtype)))
    pulls = (*balance.pulls, place.models[-1].residual)
    lost, multiplier, bend = jnp.zeros((), bool), jnp.zeros_like(balance.gradient), _bend(place, dict(enumerate(pulls)))
    if _may_be_lost(prepared):
        lost, multiplier = above.lost[0], balance.multipliers[0]
        others = {j: pull for j, pull in enumerate(pulls) if j > 0}
        bend = jax.lax.cond(lost, lambda: _along(place, multiplier, _hessian) + _bend(place, others), lambda: bend)
    hessian, inverse, space, minimum = _inverted(square + bend, square, balance.left)
    condition = Condition(
        hessians=jnp.stack([*above.hessians, hessian]),
        inverses=jnp.stack([*balance.inverses, inverse]),
        pulls=balance.pulls,
        lost=lost,
        multiplier=multiplier,
        low=held & low,
        high=held & high & ~low,
        derivative=jnp.zeros((), jnp.int32),
    )

    onward = _moved(condition, [*above.gradients, balance.gradient], jnp.zeros_like(balance.gradient))
    finite = jnp.all(jnp.isfinite(condition.inverses)) & jnp.isfinite(jnp.sum(condition.hessians))
    settled = minimum & (jnp.max(jnp.abs(onward)) <= _at(SETTLED, dtype)) & (solution.status != Status.INFEASIBLE)
    undetermined = balance.rank + jnp.trace(space) < jnp.sum(free) - 0.5
    kinds = (
        (undetermined, Derivative.UNDETERMINED),
        (jnp.any(near & ~firm), Derivative.KINK),
        (_unknown(place, above), Derivative.APPROXIMATE),
        (~settled, Derivative.UNSETTLED),
        (~finite | (solution.status == Status.NONFINITE), Derivative.NONE),
    )
    kind = jnp.full((), Derivative.EXACT, jnp.int32)
    for found, worse in kinds:
        kind = jnp.where(found, jnp.int32(worse), kind)
    return condition._replace(derivative=kind)


def _unknown(place: _Place, above: _Above) -> jax.Array:
    """Whether a level is out of reach whose third derivatives are left out: between others, or at a ball's limit."""
    prepared, lost = place.prepared, above.lost
    if not _may_be_lost(prepared):
        return jnp.any(jnp.asarray(lost, bool))
    pressed = _pressed(place, above.gradients[0], above.hessians[0], VISIBLE)
    balls = [prepared.moving.own.index(prepared.robot.topology.joints[j].v_index) for j in prepared.moving.balls]
    limited = jnp.any(jnp.asarray([pressed[i] for i in balls], bool))
    return jnp.any(jnp.stack([lost[0] & limited, *lost[1:]]))


def _inverted(hessian: jax.Array, square: jax.Array, left: jax.Array) -> tuple[jax.Array, ...]:
    """The Hessian, inverted within a projector, and its space there; J'J in its place where it is no minimum."""
    threshold, unit = rank_threshold(hessian.dtype), largest(jnp.diagonal(square))
    inverse, space, unswept = inverse_within(left @ hessian @ left, unit, threshold)
    minimum = unswept <= threshold
    hessian = jnp.where(minimum, hessian, square)
    inverse, space = jax.lax.cond(
        minimum, lambda: (inverse, space), lambda: inverse_within(left @ square @ left, unit, threshold)[:2]
    )
    return hessian, inverse, space, minimum


def _moved(condition: Condition, gradients: Sequence[jax.Array], displacement: jax.Array) -> jax.Array:
    """The displacement (n,) that makes up for changes of the levels' gradients, from one of what bounds hold."""
    for hessian, inverse, change in zip(condition.hessians, condition.inverses, gradients, strict=True):
        displacement = displacement - inverse @ (change + hessian @ displacement)
    return displacement


def _with_slacks(prepared: Prepared, q: jax.Array) -> jax.Array:
    """A configuration (nq,) with the slacks of what is one-sided behind it."""
    if not prepared.slack:
        return q
    q = jnp.concatenate([q, jnp.zeros(len(prepared.slack), q.dtype)])
    seen = distances(prepared, evaluate(prepared, q))
    # What is held to so much is at its bound.
    return jnp.concatenate([q[: -len(prepared.slack)], jnp.where(seen > _at(VISIBLE, q.dtype), seen, 0)])


def _based(prepared: Prepared, q0: jax.Array, q: jax.Array) -> jax.Array:
    """The solution (nq,), with what does not move where the start has it, and followers where their leaders do."""
    moving, robot = prepared.moving, prepared.robot
    mask = limits_at(prepared, q).moves
    place = {dof: i for i, dof in enumerate(moving.own)}
    order = [NOTHING] * robot.nq
    for joint in moving.topology.joints:
        for i in joint.q_indices:
            order[i] = place.get(joint.v_indices[0], NOTHING)
    if NOTHING in order or mask is not None:
        q0 = jnp.where(jnp.isfinite(q0), q0, prepared.problem.robot.q_home)
        start = clamp(robot, jnp.concatenate([q0, jnp.zeros(len(prepared.slack), q.dtype)]))
        own = jnp.asarray([i != NOTHING for i in order])
        own = own if mask is None else own & arrange(mask, order)
        q = jnp.where(own, q, start)
    return carried(robot, moving, q)


def _moves(arguments: tuple[Any, ...], answer: Any, condition: Condition, along: Along) -> Any:
    """The tangents of a solution's configuration, residuals and cost."""
    at = _with_slacks(prepare(arguments[0]), answer.solution.q)

    def balance(arguments: tuple[Any, ...]) -> tuple[list[jax.Array], tuple[jax.Array, jax.Array]]:
        prepared = prepare(arguments[0])
        place = _place(prepared, _based(prepared, arguments[1], at))
        own = [model.residual @ jacobian for model, jacobian in zip(place.models, place.boxed, strict=True)]
        pulled = [pull @ jacobian for pull, jacobian in zip(condition.pulls, place.boxed[:-1], strict=True)]
        if _may_be_lost(prepared):
            first = pulled[0]
            pulled[0] = jax.lax.cond(
                condition.lost, lambda: _along(place, condition.multiplier, _gradient), lambda: first
            )
        own[-1] = own[-1] + sum(pulled)
        return own, bounds_of(prepared.robot, prepared.moving)

    gradients, (lower, upper) = along(balance)
    on_bounds = jnp.where(condition.low, lower, jnp.where(condition.high, upper, 0))
    displacement = _moved(condition, gradients, on_bounds)

    def outcome(arguments: tuple[Any, ...], displacement: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
        prepared = prepare(arguments[0])
        robot, moving = prepared.robot, prepared.moving
        base = _based(prepared, arguments[1], at)
        tangent = from_box(moving, limits_at(prepared, base), displacement)
        q = carried(robot, moving, integrate(robot.topology, base, tangent))
        kin = evaluate(prepared, q)
        residuals = errors(prepared, kin)
        kept = {name: residuals[name] for name in answer.solution.residuals}
        return (
            q[: prepared.problem.robot.nq],
            kept,
            0.5 * jnp.sum(rows(prepared, kin, wanted_of(prepared.problem)).residual ** 2),
        )

    moved = along(outcome, (jnp.zeros_like(displacement), displacement))
    return jax.tree.map(lambda x: jnp.where(condition.derivative == Derivative.NONE, 0, x), moved)


def _smooth(answer: Any) -> Any:
    solution = answer.solution
    return solution.q, solution.residuals, solution.cost


def _judged(answer: Any, condition: Condition) -> list[tuple[Any, jax.Array]]:
    return [(answer.solution.derivative, condition.derivative)]


SOLUTION = Sensitivity(_assess, _moves, _smooth, _judged)
"""Of what `descent` finds: problem and start are the first two arguments."""
