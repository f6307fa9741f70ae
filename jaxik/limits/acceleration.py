"""Keep joints from speeding up or braking faster than they may."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, set_fields
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Bounds, Limit, Rows, times
from jaxik.limits.configuration import NO_AXIS, ball_rows
from jaxik.limits.per_joint import by_joint, check_by_joint, on_rates
from jaxik.numerics.linalg import static_gather
from jaxik.robot.robot import Robot


@pytree
class AccelerationLimit(Limit):
    """Keep joints from speeding up or braking faster than they may, and slow enough to stop before their limits.

    With a the acceleration, dq' = dt * motion.previous_velocity and d the distance to the limit, `|dq - dq'| <= a dt^2`
    and `dq <= V(d)`, the largest displacement after which braking by a dt^2 a step stops the joint at its limit (pink
    has dt sqrt(2 a d), after Flacco et al., "Control of Redundant Robots Under Hard Joint Constraints", 2015, which no
    sequence of steps can keep without braking harder than a at the end). Where a joint is too fast to keep both, it
    brakes as hard as it may: the second gives way, and only the joint's limit itself, as a `ConfigurationLimit`, stops
    it sooner; so it is outside the limits, where d is taken as zero. It gives way as well where rows of other limits
    ask joints to stop faster, as a `CollisionLimit` with its gain of 0.9 in one step does: with a `rate` of at most the
    acceleration over the largest velocity [1/s] only where the nearest points jump along a link.

    The distance is to the limits that all limits of a problem keep, with the `margin` of a `ConfigurationLimit`, and
    its `gain` is kept on the way. A ball brakes for its total angle, by a row for its turn about its axis. Where it
    turns across that axis as well, what this adds to the angle is foreseen for one step alone, and `step` may stop it
    harder than it may brake.

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

    def bounds(self, robot: Robot, kin: Kinematics, motion: Motion, gain: Any = 1.0) -> Bounds:
        """Bounds (nv,) of the displacement.

        Args:
          robot: with the limits to stop at.
          gain: the share () of the distance to them that one step may use.
        """
        change, kept = self.largest_change(robot, motion), displacement_before(robot, motion)
        lower, upper = tangent_bounds(robot)
        coordinate = scalar_coordinates(robot.topology, kin.q)
        back = -stopping_displacement(change, coordinate - lower, gain)
        ahead = stopping_displacement(change, upper - coordinate, gain)
        return jnp.clip(back, kept - change, kept + change), jnp.clip(ahead, kept - change, kept + change)

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion, gain: Any = 1.0) -> Rows | None:
        """A row for each ball joint with an acceleration: its turn about the axis of its total angle."""
        topology, limited = robot.topology, self.max_acceleration
        balls = [
            j for j in topology.ball_joints if not isinstance(limited, Mapping) or topology.joints[j].name in limited
        ]
        if not balls:
            return None
        axes, angles = ball_rows(robot, kin.q, balls)
        change, kept = self.largest_change(robot, motion), displacement_before(robot, motion)
        # Braking straight against the axis, each rate by its share of it.
        turns = axes != 0
        slower = jnp.min(jnp.where(turns, change / jnp.where(turns, jnp.abs(axes), 1), jnp.inf), axis=1)
        # Turning across the axis adds to the angle, and takes part of the braking.
        own = jnp.asarray([[dof in topology.joints[j].v_indices for dof in range(robot.nv)] for j in balls])
        across = jnp.sum(jnp.where(own, kept - axes * (axes @ kept)[:, None], 0) ** 2, axis=1)
        grows = across / (4 * jnp.tan(jnp.maximum(angles, NO_AXIS) / 2) + jnp.sqrt(across + NO_AXIS))
        left = static_gather(robot.limit_upper, balls) - angles - grows
        stops = stopping_displacement(jnp.maximum(slower - grows, slower / 2), left, gain)
        hardest = axes @ kept - times(1.0, slower)
        return axes, jnp.where(jnp.isfinite(slower), jnp.maximum(jnp.where(left > 0, stops, left), hardest), jnp.inf)

    def largest_change(self, robot: Robot, motion: Motion) -> jax.Array:
        """How much the displacement of a degree of freedom (nv,) may differ from that of the step before."""
        return times(motion.dt * motion.dt, on_rates(robot, self.max_acceleration, jnp.inf))


def displacement_before(robot: Robot, motion: Motion) -> jax.Array:
    """The displacement (nv,) of a step at the velocity before."""
    if motion.previous_velocity is None:
        return jnp.zeros(robot.nv, robot.q_home.dtype)
    return motion.dt * motion.previous_velocity


def stopping_displacement(change: jax.Array, distance: jax.Array, gain: Any) -> jax.Array:
    """The largest displacement (n,) of a step after which a joint can stop within a distance (n,).

    Zero outside, infinite without a limit. The displacements x, x - change, x - 2 change, ... down to zero are the
    shortest way to stop, and each may be the share `gain` of what is left at most. After m others that is
    m x - m (m - 1) change / 2 + (x - m change) / gain <= distance; with c = 1 / gain, p = m + c and
    rest = distance - c (c - 1) change / 2, it is x <= rest / p + (p - 1) change / 2. The least of these bounds is that
    of the first p for which p (p + 1) change / 2 is at least the rest.
    """
    bounded = jnp.isfinite(change) & jnp.isfinite(distance)
    inside = bounded & (distance > 0)
    change, distance = jnp.where(inside, change, 1), jnp.where(inside, distance, 1)
    c = 1 / jnp.asarray(gain, distance.dtype)
    rest = distance - c * (c - 1) / 2 * change
    root = jnp.sqrt(1 + 8 * jax.lax.stop_gradient(jnp.maximum(rest, 0) / change))
    p = c + jnp.maximum(jnp.ceil((root - 1) / 2 - c), 0)
    return jnp.where(bounded, jnp.where(inside, rest / p + (p - 1) / 2 * change, 0), jnp.inf)
