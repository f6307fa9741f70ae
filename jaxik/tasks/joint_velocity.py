"""Move the joints at a given velocity."""

from typing import Any

import jax

from jaxik.core import validation
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.robot.robot import Robot
from jaxik.tasks.velocity import VelocityTask, check_degrees_of_freedom, own_rates, set_velocity_fields


@pytree
class JointVelocityTask(VelocityTask):
    """Move at `velocity`: dq = velocity * dt.

    The sign is that of the velocity; pink's task of this name drives the other way.

    Args:
      velocity: (*batch, nv) [rad/s, m/s], in MuJoCo's tangent.
      cost: weight of each degree of freedom: a number, (*batch, nv), or (*batch, 1).
      free_joints: whether it acts on free joints as well; otherwise their entries of `velocity` are ignored; static.
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or a negative cost; in `Problem`, for shapes that are not the robot's.
    """

    velocity: Any = leaf(1)
    cost: Any = leaf(1, default=1.0)
    free_joints: bool = static(default=False)
    priority: int = static(default=0)

    def __post_init__(self) -> None:
        set_velocity_fields(self)
        set_fields(self, velocity=validation.array("velocity", self.velocity))

    def check(self, robot: Robot) -> None:
        super().check(robot)
        check_degrees_of_freedom("velocity", self.velocity, robot)
        check_degrees_of_freedom("cost", self.cost, robot, isotropic=True)

    def rows(self, robot: Robot, kin: Kinematics, motion: Motion) -> tuple[jax.Array, jax.Array]:
        own = own_rates(robot, kin.q.dtype, self.free_joints)
        return own, own @ self.velocity * motion.dt
