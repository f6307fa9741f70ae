"""Where a displacement that keeps the limits leads, in numbers of finite precision."""

import jax
import jax.numpy as jnp

from jaxik import lie
from jaxik.linalg import arrange, with_rows
from jaxik.manifold import integrate
from jaxik.robot.model import Robot

# A coordinate this many roundings from its limit is on it.
LANDED = 4


def landed(robot: Robot, q: jax.Array, displacement: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The configuration (nq,) that a displacement (nv,) leads to, and the displacement that does.

    Rounding neither takes a hinge or slide past a limit nor leaves it short of one, and a ball that turns across the
    axis of its total angle, which no bound on the displacement sees, stops at its limit. A joint that is outside
    already comes no further out.
    """
    topology = robot.topology
    joints = list(topology.scalar_joints)
    places = [topology.joints[j].q_index for j in joints]
    lower, upper, at = arrange(robot.limit_lower, joints), arrange(robot.limit_upper, joints), arrange(q, places)
    reached = integrate(topology, q, displacement)
    there = arrange(reached, places)
    near = LANDED * jnp.finfo(q.dtype).eps * jnp.maximum(jnp.abs(at), jnp.abs(there))
    there = jnp.where(jnp.abs(there - lower) <= near, lower, jnp.where(jnp.abs(there - upper) <= near, upper, there))
    there = jnp.clip(there, jnp.minimum(lower, at), jnp.maximum(upper, at))
    reached = with_rows(reached, places, there)
    for j in topology.ball_joints:
        place, rate = topology.joints[j].q_index, topology.joints[j].v_index
        before, after = (lie.normalized(x[place : place + 4]) for x in (q, reached))
        # Roundings outside is at the limit: else each step may add its own, and a thousand steps drift.
        limit, held = robot.limit_upper[j], jnp.linalg.norm(lie.log_of_either_sign(before))
        most = jnp.where(held - limit <= LANDED * jnp.finfo(q.dtype).eps * jnp.maximum(held, 1), limit, held)
        rotation = lie.log_of_either_sign(after)
        angle = jnp.linalg.norm(rotation)
        beyond = angle > most
        short = lie.exp_quaternion(rotation * jnp.where(beyond, most / jnp.where(beyond, angle, 1), 1))
        reached = with_rows(reached, range(place, place + 4), jnp.where(beyond, short, after))
        turned = jnp.where(beyond, lie.quaternion_difference(before, short), displacement[rate : rate + 3])
        displacement = with_rows(displacement, range(rate, rate + 3), turned)
    return reached, displacement
