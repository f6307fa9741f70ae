"""Joint limits as a box on the displacement from a configuration."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik import lie
from jaxik.errors import JaxikError
from jaxik.manifold import scalar_coordinates, tangent_bounds
from jaxik.pytree import leaf, pytree, set_fields
from jaxik.robot.model import Robot


@pytree
class ConfigurationLimit:
    """Keep every joint inside its limits, which are the robot's.

    Args:
      gain: the share of the distance to a limit that one step of differential IK may use; `solve` ignores it.
      margin: distance to keep from the limits (*batch,) [rad or m].

    Raises:
      JaxikError: if the gain is outside (0, 1] or the margin is negative.
    """

    gain: Any = leaf(0, default=0.95)
    margin: Any = leaf(0, default=0.0)

    def __post_init__(self) -> None:
        gain, margin = jnp.asarray(self.gain, float), jnp.asarray(self.margin, float)
        if not isinstance(gain, Tracer) and not ((np.asarray(gain) > 0) & (np.asarray(gain) <= 1)).all():
            raise JaxikError(f"gain is in (0, 1], not {self.gain}")
        if not isinstance(margin, Tracer) and not ((np.asarray(margin) >= 0) & np.isfinite(margin)).all():
            raise JaxikError(f"margin is a finite distance to keep from the limits, not negative: {self.margin}")
        set_fields(self, gain=gain, margin=margin)

    def narrowed(self, robot: Robot) -> Robot:
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


def unlimited(robot: Robot) -> Robot:
    """The robot without limits."""
    infinite = jnp.full_like(robot.limit_upper, jnp.inf)
    return _with_limits(robot, -infinite, infinite)


def _with_limits(robot: Robot, lower: jax.Array, upper: jax.Array) -> Robot:
    return dataclasses.replace(robot, limit_lower=lower, limit_upper=upper)


class Box(NamedTuple):
    """How far each coordinate of a displacement may go (nv,), at one configuration.

    The coordinates are the degrees of freedom, but for a ball joint: its first one is the rotation about the axis by
    which it is turned already, the only direction in which its total angle changes.
    """

    lower: jax.Array
    upper: jax.Array
    axes: tuple[jax.Array, ...]


def box(robot: Robot, q: jax.Array) -> Box:
    """The box of displacements that keep the limits."""
    coordinate = scalar_coordinates(robot.topology, q)
    lower, upper = tangent_bounds(robot)
    low, high = jnp.minimum(lower - coordinate, 0), jnp.maximum(upper - coordinate, 0)
    axes = []
    for j in robot.topology.ball_joints:
        joint = robot.topology.joints[j]
        quaternion = lie.normalized(q[joint.q_index : joint.q_index + 4])
        rotation = lie.log_quaternion(jnp.where(quaternion[0] < 0, -quaternion, quaternion))
        angle = jnp.linalg.norm(rotation)
        axis = lie.normalized(rotation + jnp.where(angle > 1e-6, 0, 1) * jnp.eye(1, 3, dtype=q.dtype)[0])
        axes.append(_basis(axis))
        at = jnp.arange(robot.nv) == joint.v_index
        high = jnp.where(at, jnp.maximum(robot.limit_upper[j] - angle, 0), high)
    return Box(low, high, tuple(axes))


def _basis(axis: jax.Array) -> jax.Array:
    """An orthonormal basis (3, 3), by columns, that starts with `axis` (Duff et al. 2017)."""
    x, y, z = axis
    sign = jnp.where(z < 0, -1.0, 1.0).astype(axis.dtype)
    a = -1 / (sign + z)
    b = x * y * a
    second = jnp.stack([1 + sign * x * x * a, sign * b, -sign * x])
    third = jnp.stack([b, sign + y * y * a, -y])
    return jnp.stack([axis, second, third], axis=1)


def to_box(robot: Robot, box: Box, columns: jax.Array) -> jax.Array:
    """Rewrite (..., nv) rows on degrees of freedom as rows on the box's coordinates."""
    return _turn(robot, columns, box.axes)


def from_box(robot: Robot, box: Box, displacement: jax.Array) -> jax.Array:
    """The tangent (nv,) of a displacement in the box's coordinates."""
    return _turn(robot, displacement, tuple(axes.T for axes in box.axes))


def _turn(robot: Robot, columns: jax.Array, axes: tuple[jax.Array, ...]) -> jax.Array:
    if not axes:
        return columns
    parts, end = [], 0
    for j, basis in zip(robot.topology.ball_joints, axes, strict=True):
        start = robot.topology.joints[j].v_index
        parts += [columns[..., end:start], columns[..., start : start + 3] @ basis]
        end = start + 3
    parts.append(columns[..., end:])
    return jnp.concatenate(parts, axis=-1)


def coordinate_range(robot: Robot) -> jax.Array:
    """Width of the limits behind each degree of freedom (nv,) [rad or m], infinite without limits."""
    lower, upper = tangent_bounds(robot)
    width = upper - lower
    for j in robot.topology.ball_joints:
        start = robot.topology.joints[j].v_index
        inside = (jnp.arange(robot.nv) >= start) & (jnp.arange(robot.nv) < start + 3)
        width = jnp.where(inside, 2 * robot.limit_upper[j], width)
    return width
