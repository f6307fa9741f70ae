"""Keep joints from moving faster than they may."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Bounds, Limit, times
from jaxik.limits.per_joint import by_joint, check_by_joint, on_rates
from jaxik.robot.robot import Robot

_REMEDY = "FreeJointVelocityLimit limits a free joint, in the axes of its body"


@pytree
class VelocityLimit(Limit):
    """Keep joints from moving faster than they may: `dt * min_velocity <= dq <= dt * max_velocity`.

    Each of a ball's three rates has its bound, in the axes of its body. Free joints are left to
    `FreeJointVelocityLimit`.

    Args:
      max_velocity: [rad/s, m/s], infinite where there is no limit: None for the robot's own, `robot.velocity_limit`,
        which URDF gives, and MJCF as a `<numeric name="velocity_limit:joint">`; a number for all hinges, slides and
        balls; (*batch, nv); or a dict from joint name to a number, (*batch, 1), or (*batch, 3) for balls, which limits
        no other joint.
      min_velocity: the same with zero or below; None, and joints that a dict does not name: `-max_velocity`.

    Raises:
      JaxikError: for a wrong type or sign; in `Problem`, for joints that the robot does not have, a wrong shape, a
        limit of a free joint, and, without `max_velocity`, for a robot that has no velocity limits.
    """

    velocity_level = True
    max_velocity: Any = leaf(1, default=None)
    min_velocity: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        if self.max_velocity is not None:
            set_fields(self, max_velocity=by_joint("max_velocity", self.max_velocity, "zero or above"))
        if self.min_velocity is not None:
            set_fields(self, min_velocity=by_joint("min_velocity", self.min_velocity, "zero or below"))

    def check(self, robot: Robot) -> None:
        super().check(robot)
        if self.max_velocity is None:
            own = robot.velocity_limit
            if self.min_velocity is None and not isinstance(own, Tracer) and not np.isfinite(own).any():
                raise JaxikError(
                    f"{robot.name} has no velocity limits of its own, as URDF gives them: "
                    "say VelocityLimit(max_velocity), a number or a dict by joint name, or leave the limit out"
                )
            check_by_joint("robot.velocity_limit", own, robot, _REMEDY)
        else:
            check_by_joint("max_velocity", self.max_velocity, robot, _REMEDY)
        if self.min_velocity is not None:
            check_by_joint("min_velocity", self.min_velocity, robot, _REMEDY)

    def bounds(self, robot: Robot, kin: Kinematics, motion: Motion) -> Bounds:
        upper = on_rates(robot, robot.velocity_limit if self.max_velocity is None else self.max_velocity, jnp.inf)
        lower = -upper if self.min_velocity is None else on_rates(robot, self.min_velocity, -upper)
        return times(motion.dt, lower), times(motion.dt, upper)
