"""Rows of a step that may yield: their penalties, and what singularities keep from their demands."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Rows
from jaxik.limits.elastic import Elastic, rows_of_limit
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import first_true, largest, product, solve_small_positive, weak_directions
from jaxik.problem.problem import Problem, constraints_of, elastic_constraints_of, elastic_limits_of, limits_of
from jaxik.tasks.base import Task
from jaxik.tasks.objective import Objective
from jaxik.tasks.weights import row_weights

# Factors of the damping by second derivatives. On that of the residual: an arm then stretches in no less than the time
# of its gain. On that of the demand: a semidefinite 2 by 2 matrix is at most twice its diagonal.
RESIDUAL, DEMAND = 1.0, 2.0
# The part of that damping where the demand bends a stretched arm again, which is to be prompt. And the factor on the
# square of the singular value: the damping that is left where the demand changes its sign and both others are zero.
RETURN, FLOOR = 0.5, 0.1


def with_elastic_limits(
    problem: Problem, held: Rows | None, kin: Kinematics, motion: Motion
) -> tuple[Rows | None, jax.Array | None, tuple[tuple[str, bool, int], ...]]:
    """Rows of limits that hold and, below these, of those that may yield; with their penalties, and what is where."""
    elastic = elastic_limits_of(problem)
    if not elastic:
        return held, None, ()
    nv, dtype = kin.nv, kin.q.dtype
    matrix, right = (jnp.zeros((0, nv), dtype), jnp.zeros(0, dtype)) if held is None else held
    matrices, rights, penalties, places = [matrix], [right], [jnp.full(right.shape, jnp.inf, dtype)], []
    for name, limit in elastic.items():
        (matrix, right), boxed = rows_of_limit(limit.of, limits_of(problem), problem.robot, kin, motion)
        matrices.append(matrix)
        rights.append(right)
        penalties.append(jnp.broadcast_to(limit.row_penalty.astype(dtype), right.shape))
        places.append((name, boxed, right.shape[0] - 2 * nv * boxed))
    return (jnp.concatenate(matrices), jnp.concatenate(rights)), jnp.concatenate(penalties), tuple(places)


class SoftRows(NamedTuple):
    """What constraints with p rows are where some of them may yield.

    Attributes:
      penalties (p,): infinite for those that hold.
      unmet (p,): what is taken from b: what singularities keep from the demands.
      damping (nv,): of what the second derivatives of residuals make of a motion there.
    """

    penalties: jax.Array
    unmet: jax.Array
    damping: jax.Array


def soft_rows(
    problem: Problem, rows: Rows, residuals: dict[str, Any], kin: Kinematics, fixed: jax.Array, objective: Objective
) -> SoftRows:
    """Of all constraints of a problem, of which some may yield; the arguments are those of `beyond_reach`."""
    elastic = elastic_constraints_of(problem)
    penalties = equality_penalties_of(constraints_of(problem, couplings=True), elastic, residuals)
    return SoftRows(penalties, *beyond_reach(problem, elastic, rows, residuals, kin, fixed, objective))


def rows_that_hold(rows: Rows | None, soft: SoftRows | None) -> Rows | None:
    """Rows of constraints, with zeros for those that may yield."""
    if rows is None or soft is None:
        return rows
    holds = jnp.isinf(soft.penalties)
    return jnp.where(holds[:, None], rows[0], 0), jnp.where(holds, rows[1], 0)


def equality_penalties_of(
    constraints: dict[str, Task], elastic: dict[str, Elastic], residuals: dict[str, Any]
) -> jax.Array:
    """The penalty (p,) of each row of the constraints: infinite for those that hold."""
    found = []
    for name, task in constraints.items():
        residual = residuals[name]
        for w, r in zip(*map(jax.tree.leaves, (row_weights(task, residual), residual)), strict=True):
            if name in elastic:
                # Rows of cost zero are zero.
                weight = jnp.where(w != 0, jnp.abs(w), 1)
                found.append(jnp.ravel(jnp.broadcast_to(weight * elastic[name].row_penalty, r.shape)).astype(r.dtype))
            else:
                found.append(jnp.full(r.size, jnp.inf, r.dtype))
    return jnp.concatenate(found)


def beyond_reach(
    problem: Problem,
    elastic: dict[str, Elastic],
    rows: Rows,
    residuals: dict[str, Any],
    kin: Kinematics,
    fixed: Any,
    objective: Objective,
) -> tuple[jax.Array, jax.Array]:
    """What is not demanded of elastic constraints, in directions of singular values that are small.

    There a constraint is a task: least squares with a weight that grows without bound towards the singular value from
    which on it is held. So what the other tasks do is taken up smoothly where the arm stretches. With a weight alone,
    motions that the rows leave free would be as fast as the next step undoes them: what the second derivative of the
    residual makes of a motion is damped, by the size of its diagonal.

    Args:
      rows: A (p, nv) and b (p,) of all constraints.
      residuals: of these.
      fixed: mask (nv,) of degrees of freedom that do not move.
      objective: of the tasks of the highest priority.

    Returns:
      What is taken from b (p,), and that damping (nv,).
    """
    matrix, right, constraints = jax.lax.stop_gradient(rows[0]), rows[1], constraints_of(problem, couplings=True)
    parts: dict[str, _Weak] = {}
    unmet: dict[str, jax.Array] = {}
    start, damping = 0, jnp.zeros(kin.nv, right.dtype)
    for name, residual in residuals.items():
        end = start + sum(leaf.size for leaf in jax.tree.leaves(residual))
        unmet[name] = jnp.zeros(end - start, right.dtype)
        if name in elastic:
            task = constraints[name]
            costs = jnp.concatenate([jnp.ravel(w) for w in jax.tree.leaves(row_weights(task, residual))])
            part = _weak_part(elastic[name], jnp.where(fixed, 0, matrix[start:end]), right[start:end], costs != 0)
            bend = functools.partial(_bending, problem, task, elastic[name], part, residual, kin)
            damping = damping + _where_any(part, bend, jnp.zeros_like(damping))
            parts[name] = part
        start = end
    damping = jax.lax.stop_gradient(damping)
    for name, part in parts.items():
        unmet[name] = _where_any(part, functools.partial(_unmet, part, objective, damping, fixed), unmet[name])
    return jnp.concatenate(list(unmet.values())), damping


class _Weak(NamedTuple):
    """Of one constraint with p rows.

    Attributes:
      matrix (p, nv), demand (p,): its rows, without degrees of freedom that do not move.
      share (p, p): of the identity, 1 in directions without any singular value, 0 in those that are held.
      inverse (p, p): of matrix matrix', regular.
      values (k,), vectors (p, k): eigenvalues of that and eigenvectors, of which one is zero where p is odd.
      weight (): of least squares in directions of share 1.
      any (): whether a direction is weak.
    """

    matrix: jax.Array
    demand: jax.Array
    share: jax.Array
    inverse: jax.Array
    values: jax.Array
    vectors: jax.Array
    weight: jax.Array
    any: jax.Array


def _weak_part(elastic: Elastic, matrix: jax.Array, demand: jax.Array, asked: jax.Array) -> _Weak:
    """The weak directions of a constraint, of whose rows (p,) only some are asked; the others are zero."""
    given = jax.lax.stop_gradient(demand)
    least = elastic.singular_value.astype(given.dtype) ** 2 + jnp.sqrt(jnp.sum(given * given))
    least = jax.lax.stop_gradient(jnp.maximum(least, jnp.finfo(given.dtype).tiny ** 0.5))
    # A row that nothing is asked of is no weak direction: it counts as held.
    square = matrix @ matrix.T + jnp.diag(jnp.where(asked, 0, 2 * least))
    share, inverse, values, vectors = weak_directions(square, least)
    weight = jax.lax.stop_gradient(elastic.row_penalty.astype(given.dtype) / least)
    return _Weak(matrix, demand, share, inverse, values, vectors, weight, jnp.any(share != 0))


def _where_any(part: _Weak, function: Callable[[], jax.Array], otherwise: jax.Array) -> jax.Array:
    """What a function returns where a direction is weak; it is run only there."""
    return jax.lax.cond(part.any, function, lambda: otherwise)


def _unmet(part: _Weak, objective: Objective, damping: jax.Array, fixed: jax.Array) -> jax.Array:
    """What (p,) of the demand the least squares leave, of all tasks and the rows; quasidefinite, so without pivoting.

    Vanderbei, "Symmetric quasidefinite matrices" (SIAM J. Optim. 5, 1995).
    """
    unmoved = unit_matrix(damping.shape[0], dtype=damping.dtype)
    curvature = objective.H + jnp.diag(damping)
    # Else the pivot of a degree of freedom that no task reads is zero, or rounding, where the damping of the step is.
    least = jnp.finfo(damping.dtype).eps * largest(jnp.diagonal(curvature))
    curvature = jnp.where(fixed[:, None] | fixed, unmoved, curvature + least * unmoved)
    loose = part.share / part.weight
    columns = jnp.concatenate([curvature, part.matrix]), jnp.concatenate([part.matrix.T, -loose])
    right = jnp.concatenate([jnp.where(fixed, 0, -objective.c), part.demand])
    solution, _ = solve_small_positive(jax.lax.stop_gradient(jnp.concatenate(columns, axis=1)), right)
    return -product(loose, solution[damping.shape[0] :])


class _Bent(NamedTuple):
    """Second derivatives so far, of motions that rows leave free.

    Attributes:
      waiting (k,): mask of directions, that of the demand first.
      stretching (nv,): of the residual along the demand, in weak directions.
      squares (nv,): of those along other directions, their sum.
    """

    waiting: jax.Array
    stretching: jax.Array
    squares: jax.Array


def _bending(problem: Problem, task: Task, elastic: Elastic, part: _Weak, residual: Any, kin: Kinematics) -> jax.Array:
    """The damping (nv,) of motions that the rows of a constraint leave free, where it has weak directions."""
    if type(task).constraint_rows is not Task.constraint_rows:
        # Its rows are not its residual, whose second derivative is known.
        return jnp.zeros(kin.nv, part.demand.dtype)
    # The damping counts as given: a loop that carried tangents would have no reverse derivative.
    robot, task, elastic, part, kin = jax.lax.stop_gradient((problem.robot, task, elastic, part, kin))
    demand, gain = part.demand, jnp.asarray(task.gain, part.demand.dtype)
    leaves, structure = jax.tree.flatten(residual)
    ends = list(itertools.accumulate((leaf.size for leaf in leaves), initial=0))
    # In the motions that the rows leave free; and those that they hardly hold.
    free = unit_matrix(kin.nv, dtype=demand.dtype) - part.matrix.T @ part.inverse @ part.matrix
    # The demand, then the directions that are weak without one: one at a time, as of most arms none or one is.
    singular = elastic.singular_value.astype(demand.dtype) ** 2
    weak = jnp.maximum(1 - part.values / jnp.where(singular > 0, singular, 1), 0) ** 4
    along = product(part.share, product(part.share, -demand))
    directions = jnp.concatenate([along[None], (weak * part.vectors).T])

    def bend(carry: _Bent) -> _Bent:
        chosen = first_true(carry.waiting) == jnp.arange(directions.shape[0])
        direction = jnp.sum(jnp.where(chosen[:, None], directions, 0), axis=0)
        parts = [direction[i:j].reshape(x.shape) for (i, j), x in zip(itertools.pairwise(ends), leaves, strict=True)]
        curved = task.second_derivative(robot, kin, jax.tree.unflatten(structure, parts))
        bent = jnp.sum(free * (curved @ free), axis=0)
        stretching = jnp.where(chosen[0], bent, carry.stretching)
        squares = carry.squares + jnp.where(chosen[0], 0, bent * bent)
        return _Bent(carry.waiting & ~chosen, stretching, squares)

    none = jnp.zeros(kin.nv, demand.dtype)
    waiting = jnp.any(directions != 0, axis=1)
    waiting = waiting & ((singular > 0) | (jnp.arange(waiting.shape[0]) == 0))
    bent = jax.lax.while_loop(lambda carry: jnp.any(carry.waiting), bend, _Bent(waiting, none, none))
    stretching = bent.stretching
    resisted = (RESIDUAL / jnp.where(gain > 0, gain, 1) + DEMAND) * jnp.maximum(stretching, -RETURN * stretching)
    return part.weight * (resisted + FLOOR * singular * jnp.sqrt(bent.squares))
