"""How a solution moves with its problem: the implicit function theorem at a stationary point of the tasks.

In the coordinates that a solver moves, with g the gradient of a level of tasks and H its exact Hessian, it keeps
g = 0 but for joints that their bounds hold, which move as the bounds do: H dx = -dg, with dg what the gradient changes
by where the solution is. Of several levels each keeps its gradient zero along what those above it leave free, and the
Hessian of the lowest is that of the Lagrangian, in which the levels above pull with the multipliers that balance it.
A level out of reach pulls with its gradient, in the place of its residual.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.implicit_diff import Jvp, Sensitivity
from jaxik.core.status import DerivativeStatus, Status
from jaxik.kinematics.manifold import clamp, integrate
from jaxik.kinematics.reduced import apply_couplings
from jaxik.numerics.linalg import PAD, pinv_psd, static_gather
from jaxik.solvers.nonlinear.box import bounds_of, from_box
from jaxik.solvers.nonlinear.formulation import Formulation, distances, errors, evaluate, formulation, rows, soft_tasks
from jaxik.solvers.nonlinear.lagrangian import (
    FIRM,
    FLAT,
    VISIBLE,
    Freedom,
    all_of,
    at,
    balance,
    bend,
    levels_above,
    may_be_lost,
    place_of,
    pressed,
)
from jaxik.solvers.nonlinear.nullspace_point import unit_of
from jaxik.solvers.nonlinear.scaling import limits_at
from jaxik.solvers.nonlinear.unreachable import UnreachableTerms, left_out, unreachable_terms

# A solution from which a Newton step leads farther than this [rad or m] is none.
SETTLED = (1e-3, 1e-6)


class Condition(NamedTuple):
    """What the derivative of one element's solution is made of, in the n coordinates of its box.

    Attributes:
      responses (n, n): of each level, the displacement for a unit of change of its gradient. In the last one, columns
        of coordinates that bounds hold, whose gradient has no say, are that for a unit of the bound's displacement.
      pulls: for each level but the last, how its weighted residual (m,) pulls on the last one.
      stretch: the level out of reach, where there may be one, which pulls with its gradient in the place of that.
      side (n,): -1 and 1 where the lower and the upper bound hold a coordinate, else 0; int32.
      derivative (): of `DerivativeStatus`, int32.
    """

    responses: tuple[jax.Array, ...]
    pulls: tuple[jax.Array, ...]
    stretch: UnreachableTerms | None
    side: jax.Array
    derivative_status: jax.Array


def _assess(arguments: tuple[Any, ...], answer: Any) -> Condition:
    """What the derivative of a solution needs to know of it."""
    problem, solution = arguments[0], answer.solution
    prepared = formulation(problem)
    place = place_of(prepared, _with_slacks(prepared, solution.q))
    limits, dtype = place.limits, solution.q.dtype
    square = place.boxed[-1].T @ place.boxed[-1]
    moves = jnp.ones(limits.lower.shape, bool) if limits.moves is None else limits.moves
    low, high = (limits.lower >= 0) & moves, (limits.upper <= 0) & moves
    # Where all bounds hold that the solution is at, multipliers tell which of them do.
    above, freedom = levels_above(place, moves & ~low & ~high)
    _, gradient = balance(place.gradient(-1), above.hessians, freedom.inverses)
    visible = at(VISIBLE, dtype)
    near = ((limits.lower >= -visible) | (limits.upper <= visible)) & moves
    held, firm = (
        (low & high)
        | pressed(place, gradient, square, least)
        | sum((pressed(place, g, h, least) for g, h in zip(above.gradients, above.hessians, strict=True)), low & high)
        for least in (VISIBLE, FIRM)
    )
    free = moves & ~held
    freedom = functools.reduce(Freedom.less, above.hessians, all_of(free, dtype))
    multipliers, gradient = balance(place.gradient(-1), above.hessians, freedom.inverses)
    pulls = tuple(J @ m for J, m in zip(place.boxed[:-1], multipliers, strict=True))
    stretch, stretching, unknown = None, jnp.zeros_like(square), jnp.zeros((), bool)
    if may_be_lost(prepared):
        stretch, stretching = unreachable_terms(place, above, freedom.inverses, multipliers)
        pulls = tuple(jnp.where(c == 1, 0, pull) for c, pull in zip(stretch.chosen, pulls, strict=True))
        unknown = left_out(place, above, stretch)
    curve = square + bend(place, (*pulls, place.models[-1].residual)) + stretching
    hessian, inverse, space, minimum = _inverted(curve, square, freedom)
    side = jnp.where(held & low, -1, jnp.where(held & high, 1, 0)).astype(jnp.int32)
    hessians, inverses = [*above.hessians, hessian], [*freedom.inverses, inverse]
    responses = _responses(hessians, inverses, side)
    onward = _moved(responses, side, [*above.gradients, gradient], jnp.zeros_like(gradient))
    # Of what is not finite an inverse may be zero, and the response with it.
    finite = jnp.isfinite(sum(jnp.sum(part) for part in (*hessians, *inverses)))
    if prepared.slack:
        shortest = _shortest(prepared, freedom.left - space)
        responses = tuple(shortest @ response for response in responses)
    # What contradicts itself has no balance, however small its next step.
    settled = minimum & (jnp.max(jnp.abs(onward)) <= at(SETTLED, dtype)) & (solution.status != Status.INFEASIBLE)
    undetermined = freedom.rank + jnp.sum(jnp.diagonal(space)) < jnp.sum(free) - 0.5
    kinds = (
        (undetermined, DerivativeStatus.NON_UNIQUE),
        (jnp.any(near & ~firm), DerivativeStatus.WEAKLY_ACTIVE),
        (unknown, DerivativeStatus.APPROXIMATE),
        (~settled, DerivativeStatus.NOT_STATIONARY),
        (~finite | (solution.status == Status.NONFINITE), DerivativeStatus.UNAVAILABLE),
    )
    kind = jnp.full((), DerivativeStatus.EXACT, jnp.int32)
    for found, worse in kinds:
        kind = jnp.where(found, jnp.int32(worse), kind)
    return Condition(responses, pulls, stretch, side, kind)


def _inverted(hessian: jax.Array, square: jax.Array, freedom: Freedom) -> tuple[jax.Array, ...]:
    """The Hessian, inverted along what is free, and its space there; J'J in its place where it is no minimum."""
    threshold, unit = at(FLAT, hessian.dtype), unit_of(square, hessian - square)
    inverse, space, unswept = pinv_psd(freedom.of(hessian), unit, threshold)
    minimum = unswept <= threshold
    hessian = jnp.where(minimum, hessian, square)
    inverse, space = jax.lax.cond(
        minimum, lambda: (inverse, space), lambda: pinv_psd(freedom.of(square), unit, threshold)[:2]
    )
    return hessian, inverse, space, minimum


def _shortest(prepared: Formulation, undetermined: jax.Array) -> jax.Array:
    """Takes off a displacement what a projector (n, n) leaves undetermined, as far as that makes it shorter.

    Slacks count as no length: how far a half space is away would bend the way that a robot takes far from it.
    """
    own = jnp.asarray([dof < prepared.problem.robot.nv for dof in prepared.moving.own]).astype(undetermined.dtype)
    weighed = undetermined * own
    one = jnp.ones((), own.dtype)
    inverse, _, _ = pinv_psd(weighed @ undetermined, one, at(FLAT, own.dtype))
    return jnp.eye(own.shape[0], dtype=own.dtype) - inverse @ weighed


def _responses(hessians: Sequence[jax.Array], inverses: Sequence[jax.Array], side: jax.Array) -> tuple[jax.Array, ...]:
    """Of levels with these Hessians (n, n), inverted along what those above each and the bounds leave free.

    A displacement x goes on, by a level whose gradient changes by g, to x - inverse (g + hessian x).
    """
    last, above = -inverses[-1], list[jax.Array]()
    onward = jnp.eye(side.shape[0], dtype=last.dtype) + last @ hessians[-1]
    for hessian, inverse in zip(reversed(hessians[:-1]), reversed(inverses[:-1]), strict=True):
        above.append(-(onward @ inverse))
        onward = onward + above[-1] @ hessian
    return *reversed(above), jnp.where(side == 0, last, onward)


def _moved(
    responses: Sequence[jax.Array], side: jax.Array, gradients: Sequence[jax.Array], on_bounds: jax.Array
) -> jax.Array:
    """The displacement (n,) that makes up for changes of the levels' gradients and follows bounds where they hold."""
    *above, last = gradients
    by = [*above, jnp.where(side == 0, last, on_bounds)]
    return sum((r @ x for r, x in zip(responses, by, strict=True)), jnp.zeros_like(last))


def _with_slacks(prepared: Formulation, q: jax.Array) -> jax.Array:
    """A configuration (nq,) with the slacks of what is one-sided behind it."""
    if not prepared.slack:
        return q
    q = jnp.concatenate([q, jnp.zeros(len(prepared.slack), q.dtype)])
    seen = distances(prepared, evaluate(prepared, q))
    # What is held to so much is at its bound.
    return jnp.concatenate([q[: -len(prepared.slack)], jnp.where(seen > at(VISIBLE, q.dtype), seen, 0)])


def _based(prepared: Formulation, q0: jax.Array, q: jax.Array) -> jax.Array:
    """The solution (nq,), with what does not move where the start has it, and followers where their leaders do."""
    moving, robot = prepared.moving, prepared.robot
    mask = limits_at(prepared, q).moves
    place = {dof: i for i, dof in enumerate(moving.own)}
    order = [PAD] * robot.nq
    for joint in moving.topology.joints:
        for i in joint.q_indices:
            order[i] = place.get(joint.v_indices[0], PAD)
    if PAD in order or mask is not None:
        q0 = jnp.where(jnp.isfinite(q0), q0, prepared.problem.robot.q_home)
        start = clamp(robot, jnp.concatenate([q0, jnp.zeros(len(prepared.slack), q.dtype)]))
        own = jnp.asarray([i != PAD for i in order])
        own = own if mask is None else own & static_gather(mask, order)
        q = jnp.where(own, q, start)
    return apply_couplings(robot, moving, q)


def _moves(arguments: tuple[Any, ...], answer: Any, condition: Condition, along: Jvp) -> Any:
    """The tangents of a solution's configuration, residuals and cost."""
    solved = _with_slacks(formulation(arguments[0]), answer.solution.q)
    stretch = condition.stretch

    def balanced(arguments: tuple[Any, ...]) -> tuple[list[jax.Array], tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        prepared = formulation(arguments[0])
        place = place_of(prepared, _based(prepared, arguments[1], solved))
        gradients = [place.gradient(j) for j in range(len(place.models))]
        gradients[-1] += sum(pull @ J for pull, J in zip(condition.pulls, place.boxed[:-1], strict=True))
        asked: tuple[jax.Array, ...] = ()
        if stretch is not None:
            gradients, asked = stretch.pulled(place, gradients)
        return gradients, asked, bounds_of(prepared.robot, prepared.moving)

    gradients, asked, (lower, upper) = along(balanced)
    if stretch is not None:
        gradients = stretch.answered(gradients, asked)
    on_bounds = jnp.where(condition.side < 0, lower, upper)
    displacement = _moved(condition.responses, condition.side, gradients, on_bounds)

    def outcome(arguments: tuple[Any, ...], displacement: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
        prepared = formulation(arguments[0])
        robot, moving = prepared.robot, prepared.moving
        base = _based(prepared, arguments[1], solved)
        tangent = from_box(moving, limits_at(prepared, base), displacement)
        q = apply_couplings(robot, moving, integrate(robot.topology, base, tangent))
        kin = evaluate(prepared, q)
        residuals = errors(prepared, kin)
        kept = {name: residuals[name] for name in answer.solution.residuals}
        return (
            q[: prepared.problem.robot.nq],
            kept,
            0.5 * jnp.sum(rows(prepared, kin, soft_tasks(prepared.problem)).residual ** 2),
        )

    return along(outcome, (jnp.zeros_like(displacement), displacement))


def _smooth(answer: Any) -> Any:
    solution = answer.solution
    return solution.q, solution.residuals, solution.cost


def _judged(answer: Any, condition: Condition) -> list[tuple[Any, jax.Array]]:
    return [(answer.solution.derivative_status, condition.derivative_status)]


SOLUTION = Sensitivity(_assess, _moves, _smooth, _judged)
"""Of what `descent` finds: problem and start are the first two arguments."""
