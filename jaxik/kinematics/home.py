"""Where `q_home` comes from, and where a search begins on a robot whose model names no home."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.reduced import apply_couplings_clipped, tighten_leader_limits
from jaxik.kinematics.sampling import coupled_coordinates

# Casting to float32, which rounds limits inward, moves qpos0 on a limit by less [rad or m].
SAME = 1e-6


def first_start(robot: RobotModel) -> jax.Array:
    """Where a search of one robot begins (nq,): `q_home`, but mid-range where that is only qpos0 inside the limits.

    On a limit and stretched, as qpos0 often is, a first attempt mostly fails. Joints without two limits, balls and free
    joints are as in `q_home`, joints that a coupling drives where it has them.
    """
    if robot.topology.has_home:
        return robot.q_home
    moving = coupled_coordinates(robot.topology)
    kept = tighten_leader_limits(robot, moving)
    lower, upper = _coordinate_limits(kept)
    middle = jnp.where(jnp.isfinite(lower) & jnp.isfinite(upper), (lower + upper) / 2, robot.q_home)
    middle = apply_couplings_clipped(kept, moving, middle)
    return jnp.where(jnp.all(_is_qpos0(robot)), middle, robot.q_home)


def home_origin(robot: RobotModel) -> str:
    """Where `q_home` comes from, in words; under a trace, where numbers are not known, where a model's comes from."""
    named = robot.topology.has_home
    words = "keyframe 'home'" if named else "qpos0 moved inside the limits"
    leaves = robot.q_home, robot.keyframes, robot.qpos0, robot.limit_lower, robot.limit_upper
    if any(isinstance(x, Tracer) for x in leaves):
        return words
    if named:
        keyframe = np.asarray(robot.keyframes)[..., robot.topology.keyframes.index("home"), :]
        same = np.abs(np.asarray(robot.q_home) - keyframe) <= SAME
    else:
        same = _is_qpos0(robot)
    return words if np.all(same) else "set after loading"


@partial(jax.jit, inline=True)
def _is_qpos0(robot: RobotModel) -> jax.Array:
    """Whether each coordinate of `q_home` (*batch, nq) is qpos0's, both inside limits that may have become narrower.

    Or of a joint that others drive, which is where its coupling has it.
    """
    limits, driven = _coordinate_limits(robot), np.zeros(robot.topology.nq, bool)
    driven[[robot.topology.joints[coupling.follower].q_index for coupling in robot.topology.couplings]] = True
    return jnp.asarray(driven) | (jnp.abs(jnp.clip(robot.q_home, *limits) - jnp.clip(robot.qpos0, *limits)) <= SAME)


def _coordinate_limits(robot: RobotModel) -> tuple[jax.Array, jax.Array]:
    """Limits (*batch, nq) of the coordinates of hinges and slides; of others none, as they are no limits of each."""
    topology = robot.topology
    order, scalar = np.zeros(topology.nq, int), np.zeros(topology.nq, bool)
    for j, joint in enumerate(topology.joints):
        order[list(joint.q_indices)], scalar[joint.q_index] = j, j in topology.scalar_joints
    lower, upper = (jnp.asarray(limit)[..., order] for limit in (robot.limit_lower, robot.limit_upper))
    return jnp.where(scalar, lower, -jnp.inf), jnp.where(scalar, upper, jnp.inf)
