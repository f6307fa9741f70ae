"""The rows of a closure that `robot.with_closure` added, and their derivatives by the two frames."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.lie import Transform
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.rotation_log import left_jacobian, log_of_matrix


class _Held(NamedTuple):
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


def closure_rows(directions: tuple[int, ...], data: jax.Array, first: Transform, second: Transform) -> jax.Array:
    """The shift and rotation (r,) that a closure holds at zero, in axes of its second end."""
    held = _held(data, first, second)
    shift, rotation = _parts(directions)
    parts = [static_gather(held.axes.T @ held.shift, shift)]
    if len(rotation) == 3:
        parts.append(log_of_matrix(held.turn).vector)
    elif rotation:
        parts.append(jnp.stack([row for row, _ in _tilts(held.turn, rotation)]))
    return jnp.concatenate(parts)


def closure_slopes(directions: tuple[int, ...], data: jax.Array, first: Transform, second: Transform) -> jax.Array:
    """Their derivative (r, 12) by twists of the first and the second frame, in world axes at their origins."""
    held = _held(data, first, second)
    shift, rotation = _parts(directions)
    to_axes, none = held.axes.T, jnp.zeros_like(held.axes)
    # The axes of the second end turn with its frame, and the shift in them.
    lever = (-lie.skew(held.arms[0]), lie.skew(held.arms[1]) + lie.skew(held.shift))
    if len(rotation) == 3:
        turning = left_jacobian(log_of_matrix(held.turn))
    elif rotation:
        turning = jnp.stack([slope for _, slope in _tilts(held.turn, rotation)])
    else:
        turning = none[:0]
    columns = []
    for sign, arm in zip((1, -1), lever, strict=True):
        moved = to_axes @ jnp.concatenate([sign * unit_matrix(3, dtype=arm.dtype), arm], axis=1)
        turned = jnp.concatenate([none[: len(rotation)], sign * turning @ to_axes], axis=1)
        columns.append(jnp.concatenate([static_gather(moved, shift), turned]))
    return jnp.concatenate(columns, axis=1)


def _parts(directions: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The directions of the shift and of the rotation, each from 0 to 2."""
    return tuple(d for d in directions if d < 3), tuple(d - 3 for d in directions if d >= 3)


def _held(data: jax.Array, first: Transform, second: Transform) -> _Held:
    arms = first.rotation @ data[3:6], second.rotation @ data[:3]
    one, other = (
        pose.rotation @ lie.quaternion_to_matrix(quaternion)
        for pose, quaternion in ((first, data[10:14]), (second, data[6:10]))
    )
    shift = (first.position - second.position) + (arms[0] - arms[1])
    return _Held(arms, shift, other, other.T @ one)


def _tilts(turn: jax.Array, rotation: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
    """One or two of the rotations, and their derivatives (3,) by the rotation vector in axes of the second end.

    Two are the components of e x t, with e the axis of the third and t where the turn takes it; one, about e_k, is the
    component along the axis after the next of where the next axis is taken. To first order both are the rotation
    vector's, and neither has its jump at half a turn about an axis that is free.
    """
    if len(rotation) == 2:
        (free,) = {0, 1, 2} - set(rotation)
        axis = unit_matrix(3, dtype=turn.dtype)[free]
        tilt = lie.skew(axis) @ turn[:, free]
        slope = -lie.skew(axis) @ lie.skew(turn[:, free])
        return [(tilt[i], slope[i]) for i in rotation]
    (k,) = rotation
    i, j = (k + 1) % 3, (k + 2) % 3
    return [(turn[j, i], -lie.skew(turn[:, i])[j])]
