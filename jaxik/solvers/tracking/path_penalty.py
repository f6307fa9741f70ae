"""What a configuration on a path costs where joint limits and constraints yield."""

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import core_ranks
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import forward
from jaxik.problem.problem import Problem, constants_of, elastic_constraints_of, elastic_limits_of
from jaxik.solvers.tracking.path_setting import elastic_joint_bounds, yielding_joints
from jaxik.tasks.weights import pairs, row_weights


def penalties(problem: Problem, q: jax.Array) -> jax.Array:
    """The penalties (*batch,) of configurations (*batch, nq)."""

    def of_one(problem: Problem, q: jax.Array) -> jax.Array:
        joints = [_of_joints(problem, key, q) for key in yielding_joints(problem)]
        return sum([*joints, *_of_constraints(problem, q)], start=jnp.zeros((), q.dtype))

    return over_batch(of_one, {"problem": problem, "q": q}, {"problem": core_ranks(problem), "q": 1})


def _of_joints(problem: Problem, key: str, q: jax.Array) -> jax.Array:
    limit, at = elastic_limits_of(problem)[key], manifold.scalar_coordinates(problem.robot.topology, q)
    lower, upper = elastic_joint_bounds(limit.of, problem)
    beyond = jnp.maximum(at - upper, 0) + jnp.maximum(lower - at, 0)
    if problem.dof_mask is not None:
        beyond = jnp.where(problem.dof_mask, beyond, 0)
    return limit.row_penalty * jnp.sum(beyond)


def _of_constraints(problem: Problem, q: jax.Array) -> list[jax.Array]:
    robot, constraints = problem.robot, elastic_constraints_of(problem)
    kin, found = forward(constants_of(robot, [each.of for each in constraints.values()]), q), []
    for each in constraints.values():
        residual = each.of.residual(robot, kin)
        missed = sum(jnp.sum(jnp.abs(w * r)) for w, r in pairs(row_weights(each.of, residual), residual))
        # A waypoint that is not finite does not count.
        found.append(jnp.where(jnp.isfinite(missed), each.row_penalty * missed, 0))
    return found
