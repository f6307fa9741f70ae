"""What a configuration on a path costs where joint limits yield."""

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import core_ranks
from jaxik.kinematics import manifold
from jaxik.problem.problem import Problem, elastic_limits_of
from jaxik.solvers.tracking.path_setting import elastic_joint_bounds, yielding_joints


def penalties(problem: Problem, q: jax.Array) -> jax.Array:
    """The penalties (*batch,) of configurations (*batch, nq)."""
    joints = yielding_joints(problem)
    if not joints:
        return jnp.zeros(q.shape[:-1], q.dtype)

    def of_one(problem: Problem, q: jax.Array) -> jax.Array:
        at, total = manifold.scalar_coordinates(problem.robot.topology, q), jnp.zeros((), q.dtype)
        for name in joints:
            limit = elastic_limits_of(problem)[name]
            lower, upper = elastic_joint_bounds(limit.of, problem)
            beyond = jnp.maximum(at - upper, 0) + jnp.maximum(lower - at, 0)
            if problem.dof_mask is not None:
                beyond = jnp.where(problem.dof_mask, beyond, 0)
            total = total + limit.row_penalty * jnp.sum(beyond)
        return total

    return over_batch(of_one, {"problem": problem, "q": q}, {"problem": core_ranks(problem), "q": 1})
