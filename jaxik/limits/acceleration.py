"""Keep joints from speeding up or braking faster than they may."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, set_fields
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Bounds, Limit, times
from jaxik.limits.per_joint import by_joint, check_by_joint, on_rates
from jaxik.robot.robot import Robot


@pytree
class AccelerationLimit(Limit):
    """Keep joints from speeding up or braking faster than they may, and slow enough to stop before their limits.

    With a the acceleration, dq' = dt * motion.previous_velocity and d the distance to the robot's limit,
    `dq <= min(a dt^2 + dq', dt sqrt(2 a d))`, and the same downwards (pink's limit, after Flacco et al., "Control of
    Redundant Robots Under Hard Joint Constraints", 2015). Outside the limits d is taken as zero. Where a joint is too
    fast to keep both, it brakes as hard as it may: the second term gives way, and only the joint's limit itself, as a
    `ConfigurationLimit`, stops it sooner.

    Args:
      max_acceleration: [rad/s^2, m/s^2], infinite where there is no limit: a number for all hinges, slides and balls;
        (*batch, nv); or a dict from joint name to a number, (*batch, 1), or (*batch, 3) for balls, which limits no
        other joint.

    Raises:
      JaxikError: for a wrong type, or an acceleration that is not above zero; in `Problem`, for joints that the robot
        does not have, a wrong shape, or a limit of a free joint.
    """

    velocity_level = True
    max_acceleration: Any = leaf(1)

    def __post_init__(self) -> None:
        set_fields(self, max_acceleration=by_joint("max_acceleration", self.max_acceleration, "above zero"))

    def check(self, robot: Robot) -> None:
        super().check(robot)
        remedy = "FreeJointVelocityLimit limits the velocity of one; for a smooth motion add a LowAccelerationTask"
        check_by_joint("max_acceleration", self.max_acceleration, robot, remedy)

    def bounds(self, robot: Robot, kin: Kinematics, motion: Motion) -> Bounds:
        acceleration = on_rates(robot, self.max_acceleration, jnp.inf)
        change = times(motion.dt * motion.dt, acceleration)
        kept = 0.0 if motion.previous_velocity is None else motion.dt * motion.previous_velocity
        lower, upper = tangent_bounds(robot)
        coordinate = scalar_coordinates(robot.topology, kin.q)
        back = -times(motion.dt, _stopping_speed(acceleration, coordinate - lower))
        ahead = times(motion.dt, _stopping_speed(acceleration, upper - coordinate))
        return jnp.clip(back, kept - change, kept + change), jnp.clip(ahead, kept - change, kept + change)


def _stopping_speed(acceleration: jax.Array, distance: jax.Array) -> jax.Array:
    """The speed (nv,) from which a joint can stop within a distance; zero outside, infinite without a limit."""
    bounded = jnp.isfinite(acceleration) & jnp.isfinite(distance)
    square = jnp.where(bounded, 2 * jnp.where(bounded, acceleration, 0) * jnp.where(bounded, distance, 0), 0)
    inside = square > 0
    # The root has no derivative at zero: there it is taken as zero.
    speed = jnp.where(inside, jnp.sqrt(jnp.where(inside, square, 1)), 0)
    return jnp.where(bounded, speed, jnp.inf)
