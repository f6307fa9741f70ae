"""What makes one solution of a redundant or many-branched robot better than another."""

import jax
import jax.numpy as jnp

from jaxik.kinematics.manifold import difference
from jaxik.numerics.linalg import static_gather
from jaxik.solvers.nonlinear.formulation import Formulation, in_whole_range


def merit(rank_by: str, prepared: Formulation, q: jax.Array, cost: jax.Array, reference: jax.Array) -> jax.Array:
    """What is to be small (): of a solution (nq,) of some cost, by a preference of `SearchOptions`."""
    topology, robot = prepared.problem.robot.topology, in_whole_range(prepared, jnp.asarray(True)).robot
    if rank_by == "reference":
        away = difference(topology, reference, q)
        return jnp.sum(away * away)
    if rank_by == "limits":
        joints = [j for j in topology.scalar_joints if topology.joints[j].v_index in prepared.moving.own]
        at = static_gather(q, [topology.joints[j].q_index for j in joints])
        lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
        limited = jnp.isfinite(lower) & jnp.isfinite(upper) & (upper > lower)
        width = jnp.where(limited, upper - lower, 1)
        room = jnp.where(limited, jnp.minimum(at - lower, upper - at) / width, 0.5)
        return -jnp.min(room, initial=0.5)
    return cost
