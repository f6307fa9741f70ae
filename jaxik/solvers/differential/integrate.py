"""Where a displacement that keeps the limits leads, in numbers of finite precision."""

import jax
import jax.numpy as jnp

from jaxik.kinematics.manifold import ARRIVED, integrate
from jaxik.numerics import lie
from jaxik.numerics.linalg import set_rows, static_gather
from jaxik.robot.robot import Robot


def integrate_within_limits(
    robot: Robot, q: jax.Array, displacement: jax.Array, lower: jax.Array, upper: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The configuration (nq,) that a displacement (nv,) leads to, and the displacement that does.

    Rounding neither takes a hinge or slide past a limit nor leaves it short of one, and a ball that turns across the
    axis of its total angle, which no bound on the displacement sees, stops at its limit, no further than the bounds
    `lower` and `upper` (nv,) let it go. A joint that is outside already comes no further out.
    """
    topology = robot.topology
    joints = list(topology.scalar_joints)
    places = [topology.joints[j].q_index for j in joints]
    least, most, at = (
        static_gather(robot.limit_lower, joints),
        static_gather(robot.limit_upper, joints),
        static_gather(q, places),
    )
    reached = integrate(topology, q, displacement)
    there = static_gather(reached, places)
    near = ARRIVED * jnp.finfo(q.dtype).eps * jnp.maximum(jnp.abs(at), jnp.abs(there))
    there = jnp.where(jnp.abs(there - least) <= near, least, jnp.where(jnp.abs(there - most) <= near, most, there))
    there = jnp.clip(there, jnp.minimum(least, at), jnp.maximum(most, at))
    reached = set_rows(reached, places, there)
    for j in topology.ball_joints:
        place, rate = topology.joints[j].q_index, topology.joints[j].v_index
        before, after = (lie.normalized(x[place : place + 4]) for x in (q, reached))
        # Roundings outside is at the limit: else each step may add its own, and a thousand steps drift.
        limit, held = robot.limit_upper[j], jnp.linalg.norm(lie.log_of_either_sign(before))
        widest = jnp.where(held - limit <= ARRIVED * jnp.finfo(q.dtype).eps * jnp.maximum(held, 1), limit, held)
        rotation = lie.log_of_either_sign(after)
        angle = jnp.linalg.norm(rotation)
        beyond = angle > widest
        short = lie.exp_quaternion(rotation * jnp.where(beyond, widest / jnp.where(beyond, angle, 1), 1))
        # All turns up to a limit are a convex set, so that the way to where it stops can be cut short.
        own = slice(rate, rate + 3)
        way = lie.quaternion_difference(before, short)
        way = way * _share(way, jnp.minimum(lower[own], 0), jnp.maximum(upper[own], 0))
        there = lie.quaternion_product(before, lie.exp_quaternion(way))
        reached = set_rows(reached, range(place, place + 4), jnp.where(beyond, there, after))
        turned = jnp.where(beyond, way, displacement[own])
        displacement = set_rows(displacement, range(rate, rate + 3), turned)
    return reached, displacement


def _share(way: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """The largest share () of a way (n,) that is within bounds (n,) around zero."""
    length, room = jnp.abs(way), jnp.where(way > 0, upper, -lower)
    crossing = length > room
    return jnp.min(jnp.where(crossing, room, 1) / jnp.where(crossing, length, 1))
