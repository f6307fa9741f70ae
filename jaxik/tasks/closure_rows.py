"""The rows of a closure that `robot.with_closure` added, and their derivatives by the two frames."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.equality import Equality
from jaxik.kinematics.forward import Kinematics
from jaxik.numerics import lie
from jaxik.numerics.linalg import static_gather
from jaxik.robot.robot import Robot


class _Ends(NamedTuple):
    """Where a closure holds its frames.

    Attributes:
      arms (3,): from the origin of the first, and the second, frame to the point that is held, in world axes.
      shift (3,): from the second point to the first, in world axes.
      axes (3, 3): of the second end, in the world.
      turn (3, 3): the rotation from the second end to the first, in axes of the second.
    """

    arms: tuple[jax.Array, jax.Array]
    shift: jax.Array
    axes: jax.Array
    turn: jax.Array


def closure_rows(equality: Equality, robot: Robot, kin: Kinematics) -> jax.Array:
    """The shift and rotation (n,) that a closure holds at zero, in axes of its second end."""
    ends = _ends(equality, robot, kin)
    shift, rotation = _parts(equality)
    parts = [static_gather(ends.axes.T @ ends.shift, shift)]
    if len(rotation) == 3:
        parts.append(lie.log_rotation(ends.turn))
    elif rotation:
        parts.append(jnp.stack([row for row, _ in _tilts(ends.turn, rotation)]))
    return jnp.concatenate(parts)


def closure_slopes(equality: Equality, robot: Robot, kin: Kinematics) -> list[tuple[Any, jax.Array]]:
    """Of each frame the derivative (n, 6) by its displacement and rotation, in world axes."""
    ends = _ends(equality, robot, kin)
    shift, rotation = _parts(equality)
    to_axes, none = ends.axes.T, jnp.zeros_like(ends.axes)
    # The axes of the second end turn with its frame, and the shift in them.
    lever = (-lie.skew(ends.arms[0]), lie.skew(ends.arms[1]) + lie.skew(ends.shift))
    if len(rotation) == 3:
        _, left = lie.log_rotation_derivative(ends.turn)
        turning = left
    elif rotation:
        turning = jnp.stack([slope for _, slope in _tilts(ends.turn, rotation)])
    else:
        turning = none[:0]
    slopes = []
    for sign, frame, arm in zip((1, -1), equality.frames, lever, strict=True):
        moved = to_axes @ jnp.concatenate([sign * jnp.eye(3, dtype=arm.dtype), arm], axis=1)
        turned = jnp.concatenate([none[: len(rotation)], sign * turning @ to_axes], axis=1)
        slopes.append((frame, jnp.concatenate([static_gather(moved, shift), turned])))
    return slopes


def _parts(equality: Equality) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The directions of its shift and of its rotation, each from 0 to 2."""
    shift = tuple(d for d in equality.directions if d < 3)
    return shift, tuple(d - 3 for d in equality.directions if d >= 3)


def _ends(equality: Equality, robot: Robot, kin: Kinematics) -> _Ends:
    data = robot.equality_data[equality.index]
    first, second = (kin.transform(frame) for frame in equality.frames)
    arms = first.rotation @ data[3:6], second.rotation @ data[:3]
    one, other = (
        pose.rotation @ lie.quaternion_to_matrix(quaternion)
        for pose, quaternion in ((first, data[10:14]), (second, data[6:10]))
    )
    shift = (first.position - second.position) + (arms[0] - arms[1])
    return _Ends(arms, shift, other, other.T @ one)


def _tilts(turn: jax.Array, rotation: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
    """One or two of the rotations, and their derivatives (3,) by the rotation vector in axes of the second end.

    Two are the components of e x t, with e the axis of the third and t where the turn takes it; one, about e_k, is the
    component along the axis after the next of where the next axis is taken. To first order both are the rotation
    vector's, and neither has its jump at half a turn about an axis that is free.
    """
    if len(rotation) == 2:
        (free,) = {0, 1, 2} - set(rotation)
        axis = jnp.eye(3, dtype=turn.dtype)[free]
        tilt = lie.skew(axis) @ turn[:, free]
        slope = -lie.skew(axis) @ lie.skew(turn[:, free])
        return [(tilt[i], slope[i]) for i in rotation]
    (k,) = rotation
    i, j = (k + 1) % 3, (k + 2) % 3
    return [(turn[j, i], -lie.skew(turn[:, i])[j])]
