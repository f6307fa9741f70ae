"""Rows of a step that may yield: their penalties, and what singularities keep from their demands."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Rows
from jaxik.limits.elastic import Elastic, rows_of_limit
from jaxik.numerics.linalg import weak_directions
from jaxik.problem.problem import Problem, constraints_of, elastic_limits_of, limits_of
from jaxik.tasks.base import Task
from jaxik.tasks.weights import row_weights

# A semidefinite second derivative is at most this many times its diagonal in size, of as many joints.
BENDING = 4.0


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
    problem: Problem, elastic: dict[str, Elastic], rows: Rows, residuals: dict[str, Any], kin: Kinematics, fixed: Any
) -> tuple[jax.Array, jax.Array]:
    """What is not demanded of elastic constraints, in directions of singular values that are small.

    There the linear rows leave motions free that a penalty on the residual itself would not: its second derivative is
    the penalty times that of the residual. The size of its diagonal, times a constant, is added as damping: of either
    sign, as motions that were free of a sudden, where the demand of a target that returns changes its sign, would jump.

    Args:
      rows: A (p, nv) and b (p,) of all constraints.
      residuals: of these.
      fixed: mask (nv,) of degrees of freedom that do not move.

    Returns:
      What is taken from b (p,), and that damping (nv,).
    """
    (matrix, right), constraints = jax.lax.stop_gradient(rows), constraints_of(problem, couplings=True)
    found, start, bending = [], 0, jnp.zeros(kin.nv, right.dtype)
    for name, residual in residuals.items():
        leaves, structure = jax.tree.flatten(residual)
        ends = list(itertools.accumulate((leaf.size for leaf in leaves), initial=start))
        own, demand = jnp.where(fixed, 0, matrix[start : ends[-1]]), right[start : ends[-1]]
        start = ends[-1]
        if name not in elastic:
            found.append(jnp.zeros_like(demand))
            continue
        least = elastic[name].singular_value.astype(own.dtype) ** 2 + jnp.sqrt(jnp.sum(demand * demand))
        least = jnp.maximum(least, jnp.finfo(own.dtype).tiny ** 0.5)
        weak, inverse = weak_directions(own @ own.T, jax.lax.stop_gradient(least))
        found.append(weak @ rows[1][ends[0] : start])
        if type(constraints[name]).constraint_rows is not Task.constraint_rows:
            continue  # its rows are not its residual, whose second derivative is known
        # A share of the second derivative at a gain, as rows demand that share of the residual.
        gain = jnp.asarray(constraints[name].gain, right.dtype)
        force = -elastic[name].row_penalty.astype(right.dtype) / jnp.where(gain > 0, gain, 1) * (weak @ demand) / least
        parts = [
            force[i - ends[0] : j - ends[0]].reshape(x.shape)
            for (i, j), x in zip(itertools.pairwise(ends), leaves, strict=True)
        ]
        forces = jax.tree.unflatten(structure, parts)
        bent = functools.partial(_bent, constraints[name], problem, kin, forces, own, inverse)
        bending = bending + jax.lax.cond(jnp.any(weak != 0), bent, lambda: jnp.zeros(kin.nv, right.dtype))
    return jnp.concatenate(found), jax.lax.stop_gradient(bending)


def _bent(task: Task, problem: Problem, kin: Kinematics, forces: Any, rows: jax.Array, inverse: jax.Array) -> jax.Array:
    """The damping (nv,) that the second derivative asks for in the motions that rows leave free, or hardly hold.

    Args:
      task: the constraint.
      problem, kin: its robot, and where that is.
      forces: on its residual, in the structure of that.
      rows (p, nv): of the constraint.
      inverse (p, p): of `rows @ rows.T`, in directions that are not weak.
    """
    curved = task.second_derivative(problem.robot, kin, forces)
    free = jnp.eye(kin.nv, dtype=rows.dtype) - rows.T @ inverse @ rows
    return BENDING * jnp.abs(jnp.sum(free * (curved @ free), axis=0))
