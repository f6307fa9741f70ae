"""The configuration space: adding a tangent, taking differences, and limits, for one configuration.

A tangent has nv entries in MuJoCo's convention: a free joint's are the world linear and then the body angular ones.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import JointType, Topology
from jaxik.numerics import lie
from jaxik.numerics.linalg import PAD, static_gather
from jaxik.numerics.trigonometry import angle_by_sine

# A coordinate this many roundings from its limit has arrived there.
ARRIVED = 4


def quaternion_places(topology: Topology) -> list[tuple[int, int]]:
    """(index in q, index in the tangent) of every quaternion and its angular rates."""
    places = []
    for joint in topology.joints:
        if joint.type is JointType.BALL:
            places.append((joint.q_index, joint.v_index))
        elif joint.type is JointType.FREE:
            places.append((joint.q_index + 3, joint.v_index + 3))
    return places


def _vector_part(topology: Topology) -> tuple[list[int], list[int]]:
    """Indices in q and in the tangent of the coordinates that simply add: hinges, slides and free positions."""
    in_q, in_v = [], []
    for joint in topology.joints:
        count = {JointType.FREE: 3, JointType.BALL: 0}.get(joint.type, 1)
        in_q += range(joint.q_index, joint.q_index + count)
        in_v += range(joint.v_index, joint.v_index + count)
    return in_q, in_v


def integrate(topology: Topology, q: jax.Array, dq: jax.Array) -> jax.Array:
    """The configuration (nq,) reached from `q` (nq,) along the tangent `dq` (nv,); quaternions come out normalised."""
    quaternions = quaternion_places(topology)
    if not quaternions:
        return q + dq
    in_q, in_v = _vector_part(topology)
    parts = [static_gather(q, in_q) + static_gather(dq, in_v)]
    stored = list(in_q)
    for at, rate in quaternions:
        turned = lie.quaternion_product(lie.normalized(q[at : at + 4]), lie.exp_quaternion(dq[rate : rate + 3]))
        parts.append(lie.normalized(turned))
        stored += range(at, at + 4)
    return static_gather(jnp.concatenate(parts), np.argsort(stored).tolist())


def difference(topology: Topology, q_from: jax.Array, q_to: jax.Array) -> jax.Array:
    """The shortest tangent (nv,) with `integrate(q_from, tangent) = q_to`."""
    quaternions = quaternion_places(topology)
    if not quaternions:
        return q_to - q_from
    in_q, in_v = _vector_part(topology)
    parts = [static_gather(q_to, in_q) - static_gather(q_from, in_q)]
    stored = list(in_v)
    for at, rate in quaternions:
        parts.append(lie.quaternion_difference(q_from[at : at + 4], q_to[at : at + 4]))
        stored += range(rate, rate + 3)
    return static_gather(jnp.concatenate(parts), np.argsort(stored).tolist())


def tangent_bounds(robot: RobotModel) -> tuple[jax.Array, jax.Array]:
    """Limits of the coordinate of each degree of freedom (nv,): infinite but for hinges and slides."""
    topology = robot.topology
    place = {topology.joints[j].v_index: j for j in topology.scalar_joints}
    order = [place.get(dof, PAD) for dof in range(topology.nv)]
    scalar = jnp.asarray([i != PAD for i in order])
    lower = jnp.where(scalar, static_gather(robot.limit_lower, order), -jnp.inf)
    upper = jnp.where(scalar, static_gather(robot.limit_upper, order), jnp.inf)
    return lower, upper


def scalar_coordinates(topology: Topology, q: jax.Array) -> jax.Array:
    """For each degree of freedom its coordinate (nv,): zero but for hinges and slides."""
    place = {topology.joints[j].v_index: topology.joints[j].q_index for j in topology.scalar_joints}
    return static_gather(q, [place.get(dof, PAD) for dof in range(topology.nv)])


def ball_angle(quaternion: jax.Array) -> jax.Array:
    """Total angle [rad] in [0, pi] of a ball joint."""
    q = lie.normalized(quaternion)
    square = jnp.sum(q[1:] * q[1:])
    turned = square > 0
    # The angle has a kink at zero rotation: its derivative there is taken as zero.
    sine = jnp.sqrt(jnp.where(turned, square, 1.0))
    return jnp.where(turned, 2 * sine * angle_by_sine(square, jnp.abs(q[0])), 0.0)


def limit_excess(robot: RobotModel, q: jax.Array) -> jax.Array:
    """By how much each joint is outside its limits (njoint,) [rad or m]; zero inside and for free joints."""
    topology = robot.topology
    parts, stored = [], []
    if topology.scalar_joints:
        joints = list(topology.scalar_joints)
        value = static_gather(q, scalar_places(topology))
        lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
        parts.append(jnp.maximum(jnp.maximum(lower - value, value - upper), 0))
        stored += joints
    for j in topology.ball_joints:
        start = topology.joints[j].q_index
        parts.append(jnp.maximum(ball_angle(q[start : start + 4]) - robot.limit_upper[j], 0)[None])
        stored.append(j)
    for j in topology.free_joints:
        parts.append(jnp.zeros(1, q.dtype))
        stored.append(j)
    return static_gather(jnp.concatenate(parts), np.argsort(stored).tolist()) if parts else jnp.zeros(0, q.dtype)


def clamp(robot: RobotModel, q: jax.Array) -> jax.Array:
    """The nearest configuration (nq,) inside the limits; quaternions come out normalised."""
    # What is on a limit is inside, also for derivatives, of which a clip would give half.
    return _clamp(robot, q, lambda x, lower, upper: jnp.where(x < lower, lower, jnp.where(x > upper, upper, x)))


def snap_to_limits(robot: RobotModel, before: jax.Array, q: jax.Array) -> jax.Array:
    """The same for a configuration (nq,) that a displacement from another one (nq,) led to.

    A hinge or slide that goes as far as its limit is on it then: the sum of a number and what is left to the limit may
    be a rounding short of that, where nothing would hold it.
    """

    def onto(x: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
        near = static_gather(
            ARRIVED * jnp.finfo(q.dtype).eps * jnp.maximum(jnp.abs(before), jnp.abs(q)), scalar_places(robot.topology)
        )
        return jnp.where(x <= lower + near, lower, jnp.where(x >= upper - near, upper, x))

    return _clamp(robot, q, onto)


def scalar_places(topology: Topology) -> list[int]:
    """Where hinges and slides are in a configuration."""
    return [topology.joints[j].q_index for j in topology.scalar_joints]


def _clamp(robot: RobotModel, q: jax.Array, inside: Callable[..., jax.Array]) -> jax.Array:
    topology = robot.topology
    joints = list(topology.scalar_joints)
    in_q = scalar_places(robot.topology)
    parts = [
        inside(
            static_gather(q, in_q), static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
        )
    ]
    stored = list(in_q)
    for j in topology.ball_joints:
        start = topology.joints[j].q_index
        parts.append(_clamp_ball(q[start : start + 4], robot.limit_upper[j]))
        stored += range(start, start + 4)
    for j in topology.free_joints:
        start = topology.joints[j].q_index
        parts += [q[start : start + 3], lie.normalized(q[start + 3 : start + 7])]
        stored += range(start, start + 7)
    return static_gather(jnp.concatenate(parts), np.argsort(stored).tolist())


def _clamp_ball(quaternion: jax.Array, limit: jax.Array) -> jax.Array:
    q = lie.normalized(quaternion)
    q = jnp.where(q[0] < 0, -q, q)
    rotation = lie.log_quaternion(q)
    square = jnp.sum(rotation * rotation)
    outside = square > limit * limit
    angle = jnp.sqrt(jnp.where(outside, square, 1.0))
    # An unlimited ball has an infinite limit, and is never outside.
    shrink = jnp.where(outside, jnp.where(outside, limit, 0.0) / angle, 1.0)
    return jnp.where(outside, lie.exp_quaternion(rotation * shrink), lie.normalized(quaternion))
