"""Derivatives of a solution by its problem: the implicit function theorem at a stationary point of the tasks.

Let g be the gradient of a level in the reduced coordinates, and H its exact Hessian. A solution keeps g = 0, except for
joints at active bounds, which move with the bounds: H dx = -dg, where dg is the change of the gradient at a fixed
configuration. With several levels, each keeps its gradient zero in the null space of those above it, and the Hessian of
the lowest is that of its Lagrangian, with the multipliers of the levels above. In that Lagrangian an unreachable level
stands with its gradient, in the place of its residual.
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
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import PAD, pinv_psd, static_gather
from jaxik.solvers.nonlinear.active_pairs import GivenPairs, active_pairs, formulation_with, trust
from jaxik.solvers.nonlinear.box import bounds_of, from_box
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    distances,
    errors,
    evaluate,
    formulation,
    rows,
    soft_tasks,
)
from jaxik.solvers.nonlinear.lagrangian import (
    FIRM,
    FLAT,
    NEAR,
    STRONG,
    VISIBLE,
    WEAK,
    Levels,
    LevelsAt,
    NullSpace,
    active_bounds,
    at,
    balance,
    lagrangian_hessian,
    levels_above,
    levels_at,
    may_be_unreachable,
    whole_space,
)
from jaxik.solvers.nonlinear.nullspace_point import unit_of
from jaxik.solvers.nonlinear.penalties import row_penalties, yielded_of
from jaxik.solvers.nonlinear.scaling import limits_at
from jaxik.solvers.nonlinear.unreachable import UnreachableTerms, has_neglected_terms, unreachable_terms

# A solution is not stationary if the next Newton step is longer than this [rad or m], in float32 and float64.
SETTLED = (1e-3, 1e-6)


class Condition(NamedTuple):
    """The linearisation of one element's optimality conditions, in its n box coordinates.

    Attributes:
      responses (n, n): of each level, the displacement per unit change of its gradient. In the last one, columns of
        coordinates at active bounds are the displacement per unit change of the bound.
      cotangents: for each level but the last, the cotangent (m,) of its weighted residual in the last Lagrangian.
      unreachable: terms of the unreachable level, where there may be one, which has no cotangent.
      side (n,): -1 and 1 at active lower and upper bounds, else 0; int32.
      active: of each clearance the pairs that are active.
      cells (n,): of joint limits that yield, where coordinates are between them.
      derivative_status (): of `DerivativeStatus`, int32.
    """

    responses: tuple[jax.Array, ...]
    cotangents: tuple[jax.Array, ...]
    unreachable: UnreachableTerms | None
    side: jax.Array
    active: dict[str, GivenPairs]
    cells: jax.Array | None
    derivative_status: jax.Array


class _Bounds(NamedTuple):
    """Masks (n,) of bounds at a solution.

    Attributes:
      moves: coordinates that may move.
      lower, upper: those at a bound; `near`: those within rounding of one.
      active, firm: those that a level holds at a bound; firmly, where derivatives have no kink.
    """

    moves: jax.Array
    lower: jax.Array
    upper: jax.Array
    near: jax.Array
    active: jax.Array
    firm: jax.Array


def _bounds(point: LevelsAt) -> tuple[_Bounds, Levels, jax.Array]:
    """Tell the active bounds by their multipliers.

    Returns:
      The bounds; the levels above the last, with all bounds held that the solution is at; and J'J (n, n) of the last.
    """
    limits, dtype = point.limits, point.kin.q.dtype
    square = point.boxed[-1].T @ point.boxed[-1]
    moves = jnp.ones(limits.lower.shape, bool) if limits.moves is None else limits.moves
    lower, upper = (limits.lower >= 0) & moves, (limits.upper <= 0) & moves
    above, nullspace = levels_above(point, moves & ~lower & ~upper)
    _, gradient = balance(point.gradient(-1), above.hessians, nullspace.inverses)
    distance = at(NEAR, dtype)
    near = ((limits.lower >= -distance) | (limits.upper <= distance)) & moves
    active, firm = (
        (lower & upper)
        | active_bounds(point, gradient, square, threshold)
        | sum(
            (active_bounds(point, g, h, threshold) for g, h in zip(above.gradients, above.hessians, strict=True)),
            lower & upper,
        )
        for threshold in (WEAK, STRONG)
    )
    return _Bounds(moves, lower, upper, near, active, firm), above, square


def _linearize_at(arguments: tuple[Any, ...], result: Any) -> Condition:
    """Invert the Hessians of all levels at a solution, and tell how far its derivative can be trusted."""
    problem, solution = arguments[0], result.solution
    prepared = formulation(problem)
    solved, dtype = _with_slacks(prepared, solution.q), solution.q.dtype
    active = active_pairs(prepared, solved)
    cells = None if prepared.elastic is None else prepared.elastic.cells(solved)
    prepared = formulation_with(problem, active, cells)
    point = levels_at(prepared, solved)
    bounds, above, square = _bounds(point)
    free = bounds.moves & ~bounds.active
    nullspace = functools.reduce(NullSpace.without, above.hessians, whole_space(free, dtype))
    multipliers, gradient = balance(point.gradient(-1), above.hessians, nullspace.inverses)
    cotangents = tuple(J @ m for J, m in zip(point.boxed[:-1], multipliers, strict=True))
    unreachable, third, neglected = None, jnp.zeros_like(square), jnp.zeros((), bool)
    if may_be_unreachable(prepared):
        unreachable, third = unreachable_terms(point, above, nullspace.inverses, multipliers)
        cotangents = tuple(jnp.where(c == 1, 0, x) for c, x in zip(unreachable.chosen, cotangents, strict=True))
        neglected = has_neglected_terms(point, above, unreachable)
    curve = lagrangian_hessian(point, (*cotangents, point.models[-1].residual), point.yields_at(-1))
    hessian = square + curve + third
    hessian, inverse, space, minimum = _inverted(hessian, square, nullspace)
    side = jnp.where(bounds.active & bounds.lower, -1, jnp.where(bounds.active & bounds.upper, 1, 0)).astype(jnp.int32)
    hessians, inverses = [*above.hessians, hessian], [*nullspace.inverses, inverse]
    responses = _responses(hessians, inverses, side)
    newton_step = _displacement(responses, side, [*above.gradients, gradient], jnp.zeros_like(gradient))
    # The inverse of a matrix that is not finite may be zero, and the response with it.
    finite = jnp.isfinite(sum(jnp.sum(part) for part in (*hessians, *inverses)))
    if prepared.slack:
        shortening = _shortening(prepared, nullspace.projector - space)
        responses = tuple(shortening @ response for response in responses)
    # An infeasible problem is not stationary, however small its next step.
    settled = minimum & (jnp.max(jnp.abs(newton_step)) <= at(SETTLED, dtype)) & (solution.status != Status.INFEASIBLE)
    non_unique = nullspace.rank + jnp.sum(jnp.diagonal(space)) < jnp.sum(free) - 0.5
    pairs = trust(point, above, cotangents, square)
    kink = pairs.kink
    # What may yield does so for the tasks of the highest priority.
    level = prepared.task_level
    if point.pull is not None:
        kink = kink | _hardly_holds(point, (*above.cotangents, cotangents)[level][0])
    if prepared.elastic is not None:
        forces = jnp.abs((*above.gradients, gradient)[level]) / (1 - at(FIRM, dtype))
        kink = kink | jnp.any(prepared.elastic.hardly_holds(jnp.where(cells == 0, side, 0), forces))
    statuses = (
        (non_unique, DerivativeStatus.NON_UNIQUE),
        (jnp.any(bounds.near & ~bounds.firm) | kink, DerivativeStatus.WEAKLY_ACTIVE),
        (neglected | pairs.held, DerivativeStatus.APPROXIMATE),
        (~settled, DerivativeStatus.NOT_STATIONARY),
        (~finite | (solution.status == Status.NONFINITE), DerivativeStatus.UNAVAILABLE),
    )
    status = jnp.asarray(DerivativeStatus.EXACT, jnp.int32)
    for applies, worse in statuses:
        status = jnp.where(applies, jnp.int32(worse), status)
    return Condition(responses, cotangents, unreachable, side, active, cells, status)


def _hardly_holds(point: LevelsAt, cotangent: jax.Array) -> jax.Array:
    """Whether a row that may yield holds, with a cotangent (m,) of its penalty: a little more, and it yields."""
    assert point.pull is not None
    penalties = row_penalties(point.prepared, point.kin)
    firm = penalties * (1 - at(FIRM, penalties.dtype))
    return jnp.any((point.pull.residual == 0) & jnp.isfinite(penalties) & (jnp.abs(cotangent) > firm))


def _inverted(hessian: jax.Array, square: jax.Array, nullspace: NullSpace) -> tuple[jax.Array, ...]:
    """Invert the Hessian in the null space; where it is not that of a minimum, J'J in its place.

    Returns:
      The Hessian used (n, n), its pseudoinverse, the projector onto its row space, and whether it is a minimum ().
    """
    threshold, unit = at(FLAT, hessian.dtype), unit_of(square, hessian - square)
    inverse, space, unswept = pinv_psd(nullspace.restrict(hessian), unit, threshold)
    minimum = unswept <= threshold
    hessian = jnp.where(minimum, hessian, square)
    inverse, space = jax.lax.cond(
        minimum, lambda: (inverse, space), lambda: pinv_psd(nullspace.restrict(square), unit, threshold)[:2]
    )
    return hessian, inverse, space, minimum


def _shortening(prepared: Formulation, undetermined: jax.Array) -> jax.Array:
    """The matrix (n, n) that makes displacements as short as a projector (n, n) onto undetermined directions allows.

    Slacks do not count as length: otherwise the distance of a half space would change the motion far from it.
    """
    own = jnp.asarray([dof < prepared.problem.robot.nv for dof in prepared.moving.own]).astype(undetermined.dtype)
    weighed = undetermined * own
    one = jnp.ones((), own.dtype)
    inverse, _, _ = pinv_psd(weighed @ undetermined, one, at(FLAT, own.dtype))
    return unit_matrix(own.shape[0], dtype=own.dtype) - inverse @ weighed


def _responses(hessians: Sequence[jax.Array], inverses: Sequence[jax.Array], side: jax.Array) -> tuple[jax.Array, ...]:
    """Responses of levels, given their Hessians (n, n) and inverses in the null spaces of those above each.

    A level whose gradient changes by g takes a displacement x on to x - inverse (g + hessian x).
    """
    last, above = -inverses[-1], list[jax.Array]()
    newton_step = unit_matrix(side.shape[0], dtype=last.dtype) + last @ hessians[-1]
    for hessian, inverse in zip(reversed(hessians[:-1]), reversed(inverses[:-1]), strict=True):
        above.append(-(newton_step @ inverse))
        newton_step = newton_step + above[-1] @ hessian
    return *reversed(above), jnp.where(side == 0, last, newton_step)


def _displacement(
    responses: Sequence[jax.Array], side: jax.Array, gradients: Sequence[jax.Array], on_bounds: jax.Array
) -> jax.Array:
    """The displacement (n,) that compensates changes of the levels' gradients and follows active bounds."""
    *above, last = gradients
    by = [*above, jnp.where(side == 0, last, on_bounds)]
    return sum((r @ x for r, x in zip(responses, by, strict=True)), jnp.zeros_like(last))


def _with_slacks(prepared: Formulation, q: jax.Array) -> jax.Array:
    """Append the slacks of one-sided constraints to a configuration (nq,)."""
    if not prepared.slack:
        return q
    q = jnp.concatenate([q, jnp.zeros(len(prepared.slack), q.dtype)])
    seen = distances(prepared, evaluate(prepared, q))
    # Constraints hold up to this distance: within it a slack is at its bound.
    return jnp.concatenate([q[: -len(prepared.slack)], jnp.where(seen > at(VISIBLE, q.dtype), seen, 0)])


def _from_start(prepared: Formulation, q0: jax.Array, q: jax.Array) -> jax.Array:
    """The solution (nq,) as a function of the start, in joints that do not move, and of couplings, in followers."""
    moving, robot = prepared.moving, prepared.robot
    mask = limits_at(prepared, q).moves
    places = {dof: i for i, dof in enumerate(moving.own)}
    order = [PAD] * robot.nq
    for joint in moving.topology.joints:
        for i in joint.q_indices:
            order[i] = places.get(joint.v_indices[0], PAD)
    if PAD in order or mask is not None:
        q0 = jnp.where(jnp.isfinite(q0), q0, prepared.problem.robot.q_home)
        start = clamp(robot, jnp.concatenate([q0, jnp.zeros(len(prepared.slack), q.dtype)]))
        own = jnp.asarray([i != PAD for i in order])
        own = own if mask is None else own & static_gather(mask, order)
        q = jnp.where(own, q, start)
    return apply_couplings(robot, moving, q)


def _tangent(arguments: tuple[Any, ...], result: Any, condition: Condition, jvp_of: Jvp) -> Any:
    """Tangents of a solution's configuration, residuals and cost, and of what yields."""
    solution = result.solution
    solved = _with_slacks(formulation(arguments[0]), solution.q)
    unreachable = condition.unreachable

    def balanced(arguments: tuple[Any, ...]) -> tuple[list[jax.Array], tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        prepared = formulation_with(arguments[0], condition.active, condition.cells)
        point = levels_at(prepared, _from_start(prepared, arguments[1], solved))
        gradients = [point.gradient(j) for j in range(len(point.models))]
        gradients[-1] += sum(cotangent @ J for cotangent, J in zip(condition.cotangents, point.boxed[:-1], strict=True))
        products: tuple[jax.Array, ...] = ()
        if unreachable is not None:
            gradients, products = unreachable.constrained_gradients(point, gradients)
        return gradients, products, bounds_of(prepared.robot, prepared.moving)

    gradients, products, (lower, upper) = jvp_of(balanced)
    if unreachable is not None:
        gradients = unreachable.with_cotangent_changes(gradients, products)
    on_bounds = jnp.where(condition.side < 0, lower, upper)
    displacement = _displacement(condition.responses, condition.side, gradients, on_bounds)

    def outcome(arguments: tuple[Any, ...], displacement: jax.Array) -> tuple[jax.Array, Any, jax.Array, Any]:
        prepared = formulation_with(arguments[0], condition.active, condition.cells)
        robot, moving = prepared.robot, prepared.moving
        base = _from_start(prepared, arguments[1], solved)
        tangent = from_box(moving, limits_at(prepared, base), displacement)
        q = apply_couplings(robot, moving, integrate(robot.topology, base, tangent))
        kin = evaluate(prepared, q)
        found = errors(prepared, kin)
        residuals = {name: found[name] for name in solution.residuals}
        return (
            q[: prepared.problem.robot.nq],
            residuals,
            0.5 * jnp.sum(rows(prepared, kin, soft_tasks(prepared.problem)).residual ** 2),
            yielded_of(prepared, q, found),
        )

    return jvp_of(outcome, (jnp.zeros_like(displacement), displacement))


def _differentiable(result: Any) -> Any:
    solution = result.solution
    return solution.q, solution.residuals, solution.cost, solution.yielded


def _status_fields(result: Any, condition: Condition) -> list[tuple[Any, jax.Array]]:
    return [(result.solution.derivative_status, condition.derivative_status)]


SOLUTION = Sensitivity(_linearize_at, _tangent, _differentiable, _status_fields)
"""Of methods whose first two arguments are problem and start."""
