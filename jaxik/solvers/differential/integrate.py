"""Integrate a displacement that keeps the limits, so that rounding keeps them as well."""

import jax
import jax.numpy as jnp

from jaxik.kinematics.manifold import ARRIVED, integrate
from jaxik.numerics import lie
from jaxik.numerics.linalg import set_rows, static_gather
from jaxik.robot.robot import Robot


def integrate_within_limits(
    robot: Robot, q: jax.Array, displacement: jax.Array, lower: jax.Array, upper: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Integrate a displacement (nv,): the configuration (nq,), and the displacement that leads to it.

    Rounding neither takes a hinge or slide past a limit nor leaves it short of one. A ball that turns across the axis
    of its total angle, which no bound on the displacement restricts, stops at its limit, within the bounds `lower` and
    `upper` (nv,). A joint that is outside already goes no further out.
    """
    topology = robot.topology
    joints = list(topology.scalar_joints)
    places = [topology.joints[j].q_index for j in joints]
    lowest, highest, coordinate = (
        static_gather(robot.limit_lower, joints),
        static_gather(robot.limit_upper, joints),
        static_gather(q, places),
    )
    reached = integrate(topology, q, displacement)
    arrived = static_gather(reached, places)
    near = ARRIVED * jnp.finfo(q.dtype).eps * jnp.maximum(jnp.abs(coordinate), jnp.abs(arrived))
    arrived = jnp.where(
        jnp.abs(arrived - lowest) <= near, lowest, jnp.where(jnp.abs(arrived - highest) <= near, highest, arrived)
    )
    arrived = jnp.clip(arrived, jnp.minimum(lowest, coordinate), jnp.maximum(highest, coordinate))
    reached = set_rows(reached, places, arrived)
    for j in topology.ball_joints:
        place, rate = topology.joints[j].q_index, topology.joints[j].v_index
        before, after = (lie.normalized(x[place : place + 4]) for x in (q, reached))
        # A few roundings outside count as at the limit: else each step may add its own, and a thousand steps drift.
        limit, held = robot.limit_upper[j], jnp.linalg.norm(lie.log_of_either_sign(before))
        largest_angle = jnp.where(held - limit <= ARRIVED * jnp.finfo(q.dtype).eps * jnp.maximum(held, 1), limit, held)
        rotation = lie.log_of_either_sign(after)
        angle = jnp.linalg.norm(rotation)
        beyond = angle > largest_angle
        short = lie.exp_quaternion(rotation * jnp.where(beyond, largest_angle / jnp.where(beyond, angle, 1), 1))
        # Rotations up to a limit are a convex set, so that the way to where it stops can be shortened.
        rates = slice(rate, rate + 3)
        turn = lie.quaternion_difference(before, short)
        turn = turn * _fraction_within(turn, jnp.minimum(lower[rates], 0), jnp.maximum(upper[rates], 0))
        stopped = lie.quaternion_product(before, lie.exp_quaternion(turn))
        reached = set_rows(reached, range(place, place + 4), jnp.where(beyond, stopped, after))
        displaced = jnp.where(beyond, turn, displacement[rates])
        displacement = set_rows(displacement, range(rate, rate + 3), displaced)
    return reached, displacement


def _fraction_within(turn: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """The largest fraction () of a displacement (n,) that is within bounds (n,) around zero."""
    length, room = jnp.abs(turn), jnp.where(turn > 0, upper, -lower)
    crossing = length > room
    return jnp.min(jnp.where(crossing, room, 1) / jnp.where(crossing, length, 1))
