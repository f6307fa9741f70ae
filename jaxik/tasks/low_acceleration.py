"""Keep the velocity of the step before."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.robot.robot import Robot
from jaxik.tasks.velocity import VelocityTask, check_degrees_of_freedom, own_rates, set_velocity_fields


@pytree
class LowAccelerationTask(VelocityTask):
    """Keep the velocity of the step before: dq = previous_velocity * dt, where None is rest.

    Args:
      cost: weight of each degree of freedom: a number, (*batch, nv), or (*batch, 1).
      free_joints: whether it acts on free joints as well; static.
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or a negative cost; in `Problem`, for a cost of a shape that is not the robot's.
    """

    cost: Any = leaf(1, default=1.0)
    free_joints: bool = static(default=False)
    priority: int = static(default=0)

    def __post_init__(self) -> None:
        set_velocity_fields(self)

    def check(self, robot: Robot) -> None:
        super().check(robot)
        check_degrees_of_freedom("cost", self.cost, robot, isotropic=True)

    def rows(self, robot: Robot, kin: Kinematics, motion: Motion) -> tuple[jax.Array, jax.Array]:
        own = own_rates(robot, kin.q.dtype, self.free_joints)
        if motion.previous_velocity is None:
            return own, jnp.zeros(robot.nv, kin.q.dtype)
        return own, own @ motion.previous_velocity * motion.dt
