"""Keep joints inside their limits."""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError, JaxikWarning
from jaxik.core.pytree import leaf, pytree, set_fields
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Bounds, Limit, Rows, share, times
from jaxik.numerics import lie
from jaxik.numerics.linalg import static_gather
from jaxik.robot.robot import Robot

# Below this angle [rad] a ball's rotation has no axis to speak of, and any direction may be turned to; mink's number.
NO_AXIS = 1e-9


@pytree
class ConfigurationLimit(Limit):
    """Keep every joint inside its limits, which are the robot's; free joints have none.

    A step moves hinges and slides by `gain * (lower + margin - q)` to `gain * (upper - margin - q)`. A ball's total
    angle theta, about the axis a, has the row `a' dq <= gain * (upper - margin - theta)`: a bound along the axis alone,
    as in mink. Turning across the axis adds to the angle to second order: `step` stops the ball at its limit all the
    same, and a velocity limit keeps what it stops small.

    Args:
      gain: the share of the distance to a limit that one step of differential IK may use (*batch,); `solve` ignores it.
      margin: distance to keep from the limits (*batch,) [rad or m], the same for hinges and slides: a joint that it
        leaves no room is held at the middle of its range.

    Raises:
      JaxikError: if the gain is outside (0, 1] or the margin is negative.

    Warns:
      JaxikWarning: in `Problem`, for joints that the margin leaves no room.
    """

    gain: Any = leaf(0, default=0.95)
    margin: Any = leaf(0, default=0.0)

    def __post_init__(self) -> None:
        gain, margin = share(self.gain), validation.array("margin", self.margin)
        if not isinstance(margin, Tracer) and not ((np.asarray(margin) >= 0) & np.isfinite(margin)).all():
            raise JaxikError(f"margin is a finite distance to keep from the limits, not negative: {self.margin}")
        set_fields(self, gain=gain, margin=margin)

    def check(self, robot: Robot) -> None:
        super().check(robot)
        ranges = robot.limit_upper - robot.limit_lower
        if isinstance(self.margin, Tracer) or isinstance(ranges, Tracer):
            return
        margin, widths = float(np.max(self.margin)), np.asarray(ranges).reshape(-1, ranges.shape[-1]).min(axis=0)
        held = [robot.topology.joints[j].name for j in robot.topology.scalar_joints if 0 < widths[j] < 2 * margin]
        if held:
            more = " and more" if len(held) > 5 else ""
            warnings.warn(
                f"ConfigurationLimit(margin={margin:g}): {', '.join(held[:5])}{more} of {robot.name} have no room "
                "left and are held at mid-range: the margin is in rad and m, for all joints",
                JaxikWarning,
                stacklevel=2,
            )

    def tightened(self, robot: Robot) -> Robot:
        """The robot with its limits drawn in by the margin; joints that have no room left keep their middle."""
        lower, upper = robot.limit_lower, robot.limit_upper
        # A margin that turns out to be NaN under jit must not reach the configuration.
        margin = jnp.nan_to_num(jnp.asarray(self.margin, upper.dtype))
        ball = jnp.asarray([i in robot.topology.ball_joints for i in range(len(robot.topology.joints))], bool)
        middle = jnp.where(ball, jnp.maximum(upper - margin, 0), (lower + upper) / 2)
        low, high = jnp.where(ball, lower, lower + margin), upper - margin
        empty = low > high
        return _with_limits(
            robot, jnp.where(empty, jnp.where(ball, lower, middle), low), jnp.where(empty, middle, high)
        )

    def bounds(self, robot: Robot, kin: Kinematics, motion: Motion) -> Bounds:
        lower, upper = tangent_bounds(self.tightened(robot))
        coordinate = scalar_coordinates(robot.topology, kin.q)
        return times(self.gain, lower - coordinate), times(self.gain, upper - coordinate)

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion) -> Rows | None:
        """A row for each ball joint, zero where it has not turned, with h infinite where it has no limit."""
        balls = list(robot.topology.ball_joints)
        if not balls:
            return None
        matrix, angles = ball_rows(robot, kin.q, balls)
        return matrix, times(self.gain, static_gather(self.tightened(robot).limit_upper, balls) - angles)


def ball_rows(robot: Robot, q: jax.Array, balls: list[int]) -> tuple[jax.Array, jax.Array]:
    """Of ball joints, axes (k, nv) in the tangent, zero where one has not turned, and total angles (k,) about them."""
    joints = [robot.topology.joints[j] for j in balls]
    entries = [i for joint in joints for i in joint.q_indices]
    axes, angles = jax.vmap(_axis_angle)(static_gather(q, entries).reshape(-1, 4))
    starts = [joint.v_index for joint in joints]
    return jnp.stack([jnp.pad(x, (at, robot.nv - at - 3)) for x, at in zip(axes, starts, strict=True)]), angles


def _axis_angle(quaternion: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Axis (3,), zero where there is none, and total angle () in [0, pi] of a quaternion (4,)."""
    unit = lie.normalized(quaternion)
    rotation = lie.log_of_either_sign(unit)
    square = jnp.sum(rotation * rotation)
    turned = square > NO_AXIS * NO_AXIS
    angle = jnp.sqrt(jnp.where(turned, square, 1))
    return jnp.where(turned, rotation / angle, 0), jnp.where(turned, angle, 0)


def unlimited(robot: Robot) -> Robot:
    """The robot without limits."""
    infinite = jnp.full_like(robot.limit_upper, jnp.inf)
    return _with_limits(robot, -infinite, infinite)


def _with_limits(robot: Robot, lower: jax.Array, upper: jax.Array) -> Robot:
    return dataclasses.replace(robot, limit_lower=lower, limit_upper=upper)
