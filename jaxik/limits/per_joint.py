"""Read the numbers of a limit: one for all joints, one for each degree of freedom, or by joint name."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.kinematics.manifold_derivatives import free_rates
from jaxik.kinematics.topology import JointType
from jaxik.numerics.linalg import PAD, static_gather
from jaxik.robot.robot import Robot


def by_joint(name: str, value: Any, sense: str) -> Any:
    """`value` as an array, or as a dict from joint name to array; infinite where there is no limit.

    Args:
      sense: "zero or above", "zero or below" or "above zero": the sign that is required.
    """
    if isinstance(value, Mapping):
        if not value or not all(isinstance(joint, str) for joint in value):
            raise JaxikError(f"{name} is a dict from joint name to limit, not {dict(value)!r}")
        return {joint: _signed(f"{name}[{joint!r}]", limit, sense) for joint, limit in value.items()}
    return _signed(name, value, sense)


def _signed(name: str, value: Any, sense: str) -> jax.Array:
    value = validation.array(name, value)
    if not isinstance(value, Tracer):
        given = np.asarray(value)
        fits = {"zero or above": given >= 0, "zero or below": given <= 0, "above zero": given > 0}[sense]
        if not fits.all():
            raise JaxikError(f"{name} is {sense}, not {given!r}")
    return value if value.ndim else value[None]  # as `validation.of_rows` has it


def check_by_joint(name: str, value: Any, robot: Robot, remedy: str) -> None:
    """Check that `by_joint(name, value)` fits the robot.

    Args:
      remedy: the end of an error about a free joint: what limits one.

    Raises:
      UnknownNameError: if there is no joint of a name.
      JaxikError: for a wrong shape, or a limit of a free joint.
    """
    if not isinstance(value, Mapping):
        shape = np.shape(value)
        if shape and shape[-1] not in (1, robot.nv):
            raise JaxikError(
                f"{name} is a number, (*batch, nv) with nv = {robot.nv}, (*batch, 1), or a dict by joint name; "
                f"not {shape}"
            )
        free = free_rates(robot.topology)
        known = shape[-1:] == (robot.nv,) and not isinstance(value, Tracer)
        if known and np.isfinite(np.asarray(value)[..., free]).any():
            raise JaxikError(f"{name} has finite entries for a free joint, at {free}: make them infinite. {remedy}")
        return
    for joint_name, limit in value.items():
        joint = robot.topology.joints[robot.topology.joint_index(joint_name)]
        if joint.type is JointType.FREE:
            raise JaxikError(f"{name} does not limit the free joint {joint_name!r}. {remedy}")
        if np.ndim(limit) and np.shape(limit)[-1] not in (1, joint.type.nv):
            widths = "(*batch, 1)" if joint.type.nv == 1 else f"(*batch, {joint.type.nv}), (*batch, 1)"
            raise JaxikError(
                f"{name}[{joint_name!r}] is a number or {widths} of a {joint.type.name.lower()} joint; "
                f"not {np.shape(limit)}"
            )


def on_rates(robot: Robot, value: Any, otherwise: Any) -> jax.Array:
    """The number of each degree of freedom (nv,); `otherwise` for free joints and for joints without a name in it."""
    topology = robot.topology
    if not isinstance(value, Mapping):
        free = free_rates(topology)
        given = jnp.asarray([dof not in free for dof in range(robot.nv)], bool)
        return jnp.where(given, jnp.broadcast_to(value, (robot.nv,)), otherwise)
    joints = [topology.joints[topology.joint_index(name)] for name in value]
    numbers = jnp.concatenate(
        [jnp.broadcast_to(limit, (joint.type.nv,)) for joint, limit in zip(joints, value.values(), strict=True)]
    )
    place = {dof: i for i, dof in enumerate(dof for joint in joints for dof in joint.v_indices)}
    given = jnp.asarray([dof in place for dof in range(robot.nv)], bool)
    return jnp.where(given, static_gather(numbers, [place.get(dof, PAD) for dof in range(robot.nv)]), otherwise)
