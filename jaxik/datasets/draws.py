"""Random configurations of a problem: what `dof_mask` holds stays where it is."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.kinematics.reduced import apply_couplings_clipped, movable
from jaxik.kinematics.sampling import coupled_coordinates
from jaxik.problem.problem import Problem


def random_configurations(problem: Problem, key: jax.Array, shape: tuple[int, ...] = (), base: Any = None) -> jax.Array:
    """Configurations (*shape, nq) as `robot.sample` draws them, but for joints that are held.

    Args:
      base: configuration (nq,) where held joints are; None: `q_home`.
    """
    robot = problem.robot
    q = robot.sample(key, shape)
    if problem.dof_mask is None:
        return q
    base = robot.q_home if base is None else jnp.asarray(base, q.dtype)
    moved = jnp.where(movable(robot.topology, problem.dof_mask), robot.difference(base, q), 0)
    moving = coupled_coordinates(robot.topology)
    # Followers of held leaders.
    follow = jnp.vectorize(lambda q: apply_couplings_clipped(robot, moving, q), signature="(n)->(n)")
    return follow(robot.integrate(base, moved))
