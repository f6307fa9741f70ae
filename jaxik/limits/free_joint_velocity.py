"""Keep a floating base from moving or turning faster than it may."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.kinematics.topology import Joint, JointType, Topology
from jaxik.limits.base import Bounds, Limit, Rows, lowest, times
from jaxik.numerics import lie
from jaxik.robot.robot import Robot


@pytree
class FreeJointVelocityLimit(Limit):
    """Keep a free joint's velocity, linear and angular, inside bounds in the axes of its body.

    With R the body's rotation, `|R' dq_linear| <= dt * max_linear_velocity`, as rows, since that part of a tangent is
    in world axes, and `|dq_angular| <= dt * max_angular_velocity`, as bounds: mink's FreeJointVelocityLimit, and pink's
    FloatingBaseVelocityLimit for a base frame at the free joint's body.

    Args:
      joint: name of the free joint; None for the only one; static.
      max_linear_velocity, max_angular_velocity: bounds (*batch, 3) [m/s], [rad/s], or a number, or (*batch, 1) for a
        batch of isotropic bounds, infinite where there is none; None: no such bounds exist, static.

    Raises:
      JaxikError: if both are None or one is negative; in `Problem`, if the joint is not a free one, if there is none,
        or if there are several and `joint` is None.
    """

    velocity_level = True
    joint: str | None = static(default=None)
    max_linear_velocity: Any = leaf(1, default=None)
    max_angular_velocity: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        if self.joint is not None and not isinstance(self.joint, str):
            raise JaxikError(f"joint is the name of a free joint, or None for the only one, not {self.joint!r}")
        if self.max_linear_velocity is None and self.max_angular_velocity is None:
            raise JaxikError(
                "max_linear_velocity and max_angular_velocity are both None: give one of them, in m/s or rad/s"
            )
        for name in ("max_linear_velocity", "max_angular_velocity"):
            if getattr(self, name) is not None:
                set_fields(self, **{name: _speed(name, getattr(self, name))})

    def check(self, robot: Robot) -> None:
        super().check(robot)
        self._joint(robot.topology)

    def _joint(self, topology: Topology) -> Joint:
        if self.joint is not None:
            joint = topology.joints[topology.joint_index(self.joint)]
            if joint.type is not JointType.FREE:
                raise JaxikError(f"{self.joint!r} is a {joint.type.name.lower()} joint: VelocityLimit limits those")
            return joint
        free = [topology.joints[j] for j in topology.free_joints]
        if len(free) == 1:
            return free[0]
        if free:
            raise JaxikError(f"{topology.name} has several free joints, say which: {[joint.name for joint in free]}")
        raise JaxikError(f"{topology.name} has no free joint: its base is fixed; VelocityLimit limits its joints")

    def bounds(self, robot: Robot, kin: Kinematics, motion: Motion) -> Bounds | None:
        if self.max_angular_velocity is None:
            return None
        start = self._joint(robot.topology).v_index + 3
        around = (start, robot.nv - start - 3)
        reach = jnp.pad(self._reach(self.max_angular_velocity, motion), around, constant_values=jnp.inf)
        return -reach, reach

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion) -> Rows | None:
        if self.max_linear_velocity is None:
            return None
        start = self._joint(robot.topology).v_index
        seen = jnp.pad(self._rotation(robot, kin).T, ((0, 0), (start, robot.nv - start - 3)))
        reach = self._reach(self.max_linear_velocity, motion)
        return jnp.concatenate([seen, -seen]), jnp.concatenate([reach, reach])

    def lower_bound_of_rows(
        self, robot: Robot, kin: Kinematics, motion: Motion, directions: jax.Array
    ) -> tuple[jax.Array, jax.Array] | None:
        if self.max_linear_velocity is None:
            return None
        start = self._joint(robot.topology).v_index
        reach = self._reach(self.max_linear_velocity, motion)
        minima = lowest(directions[:, start : start + 3] @ self._rotation(robot, kin), -reach, reach)
        own = jnp.arange(robot.nv)
        return minima, jnp.where((own >= start) & (own < start + 3), 0, directions)

    def _rotation(self, robot: Robot, kin: Kinematics) -> jax.Array:
        start = self._joint(robot.topology).q_index + 3
        return lie.quaternion_to_matrix(kin.q[start : start + 4])

    def _reach(self, velocity: jax.Array, motion: Motion) -> jax.Array:
        return times(motion.dt, jnp.broadcast_to(velocity, (3,)))


def _speed(name: str, value: Any) -> jax.Array:
    value = validation.of_rows(name, value)
    if value.shape[-1] not in (1, 3):
        raise JaxikError(f"{name} is a number, (*batch, 3) or (*batch, 1), not {value.shape}")
    return value
