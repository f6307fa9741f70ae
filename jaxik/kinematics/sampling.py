"""Configurations from numbers in [0, 1): random ones, and sequences that fill the joint space evenly."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.reduced import Coordinates, apply_couplings_clipped, coordinates, tighten_leader_limits
from jaxik.kinematics.topology import JointType, Topology
from jaxik.numerics import lie
from jaxik.numerics.linalg import set_rows, static_gather
from jaxik.numerics.trigonometry import sine_cosine


def dimensions(topology: Topology) -> int:
    """How many numbers in [0, 1) make a configuration."""
    return len(topology.scalar_joints) + 3 * len(topology.ball_joints) + 6 * len(topology.free_joints)


def sample(robot: RobotModel, key: jax.Array, unlimited_range: jax.Array) -> jax.Array:
    """A random configuration (nq,), uniform within limits, as `spread` has them, that meets the joint couplings.

    Leaders are uniform where no follower passes its limits.
    """
    shares = jax.random.uniform(key, (dimensions(robot.topology),), robot.q_home.dtype)
    moving = coupled_coordinates(robot.topology)
    kept = tighten_leader_limits(robot, moving)
    return apply_couplings_clipped(kept, moving, spread(kept, shares, unlimited_range))


def onto_couplings(robot: RobotModel, q: jax.Array) -> jax.Array:
    """A configuration (nq,) inside limits and on joint couplings: leaders go to where no follower passes its limits."""
    moving, joints = coupled_coordinates(robot.topology), list(robot.topology.scalar_joints)
    kept, places = tighten_leader_limits(robot, moving), [robot.topology.joints[j].q_index for j in joints]
    lower, upper = static_gather(kept.limit_lower, joints), static_gather(kept.limit_upper, joints)
    inside = jnp.clip(static_gather(q, places), lower, upper)
    return apply_couplings_clipped(kept, moving, set_rows(q, places, inside))


def coupled_coordinates(topology: Topology) -> Coordinates:
    """All degrees of freedom behind the joint couplings, or all on their own where no couplings can hold together.

    Such a robot is one for `constraints={}`, which drops them.
    """
    dofs = range(topology.nv)
    try:
        return coordinates(topology, dofs, hold_couplings=True)
    except JaxikError:
        return coordinates(topology, dofs, hold_couplings=False)


def spread(robot: RobotModel, shares: jax.Array, unlimited_range: jax.Array) -> jax.Array:
    """The configuration (nq,) that shares in [0, 1) stand for; uniform within limits if they are uniform.

    Hinges without limits lie in (-pi, pi], ball and free rotations are uniform on SO(3), limited balls uniform in axis
    and angle, slides without limits and free positions lie in [-unlimited_range, unlimited_range].
    """
    topology = robot.topology
    dtype = robot.q_home.dtype
    joints = list(topology.scalar_joints)
    hinge = jnp.asarray([topology.joints[j].type is JointType.HINGE for j in joints], bool)
    reach = jnp.where(hinge, jnp.pi, unlimited_range).astype(dtype)
    lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
    low = jnp.where(jnp.isfinite(lower), lower, jnp.where(jnp.isfinite(upper), upper - 2 * reach, -reach))
    high = jnp.where(jnp.isfinite(upper), upper, jnp.where(jnp.isfinite(lower), lower + 2 * reach, reach))
    # 1 - u lies in (0, 1], so a full turn is (-pi, pi].
    parts = [jnp.clip(low + (1 - shares[: len(joints)]) * (high - low), low, high)]
    stored = [topology.joints[j].q_index for j in joints]
    used = len(joints)
    for j in (*topology.ball_joints, *topology.free_joints):
        start = topology.joints[j].q_index
        own = shares[used : used + 3]
        used += 3
        if topology.joints[j].type is JointType.FREE:
            parts += [(2 * shares[used : used + 3] - 1) * unlimited_range, _rotation(own)]
            stored += range(start, start + 7)
            used += 3
        else:
            limit = robot.limit_upper[j]
            parts.append(jnp.where(limit < jnp.pi, _turn(own, jnp.minimum(limit, jnp.pi)), _rotation(own)))
            stored += range(start, start + 4)
    return static_gather(jnp.concatenate(parts), np.argsort(stored).tolist())


def _rotation(shares: jax.Array) -> jax.Array:
    """A quaternion, uniform on SO(3) if the shares (3,) are uniform (Shoemake, Graphics Gems III, 1992)."""
    turns = 2 * jnp.pi * shares[1:]
    near, far = jnp.sqrt(1 - shares[0]), jnp.sqrt(shares[0])
    sines, cosines = sine_cosine(turns)
    return jnp.stack([near * sines[0], near * cosines[0], far * sines[1], far * cosines[1]])


def _turn(shares: jax.Array, most: jax.Array) -> jax.Array:
    """A rotation, uniform in its axis and in its angle up to `most`, if the shares (3,) are uniform."""
    height, turn = 2 * shares[0] - 1, 2 * jnp.pi * shares[1]
    wide = jnp.sqrt(jnp.maximum(1 - height * height, 0))
    sine, cosine = sine_cosine(turn)
    axis = jnp.stack([wide * cosine, wide * sine, height])
    return lie.exp_quaternion(most * shares[2] * axis)
