"""Joint limits as a box on displacements of the reduced coordinates."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics import reduced
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.kinematics.reduced import Coordinates, movable
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import PAD, static_gather
from jaxik.robot.robot import Robot

# Rounding of the angle of a ball, which is at most pi, in units of eps.
ROUNDINGS = 16


class Box(NamedTuple):
    """Bounds of a displacement at one configuration.

    Its coordinates are those of `Coordinates`, except for ball joints: the first coordinate of a ball is the rotation
    about the axis of its total angle, the only direction in which that angle changes to first order.

    Attributes:
      lower, upper (n,): bounds of the displacement, zero where the degree of freedom is masked.
      axes: a basis (3, 3), by columns, for each ball joint.
      slopes (ncoupling,): derivative of each follower by its coordinate.
      moves (n,): whether a coordinate may move; None: all may.
    """

    lower: jax.Array
    upper: jax.Array
    axes: tuple[jax.Array, ...]
    slopes: jax.Array
    moves: jax.Array | None


def box(robot: Robot, moving: Coordinates, q: jax.Array, dof_mask: jax.Array | None = None) -> Box:
    """The box of displacements that keep the joint limits and the mask (nv,)."""
    coordinate = scalar_coordinates(robot.topology, q)
    lower, upper = tangent_bounds(robot)
    low, high = jnp.minimum(lower - coordinate, 0), jnp.maximum(upper - coordinate, 0)
    axes = []
    for j in moving.balls:
        joint = robot.topology.joints[j]
        quaternion = lie.normalized(q[joint.q_index : joint.q_index + 4])
        rotation = lie.log_of_either_sign(quaternion)
        angle = jnp.linalg.norm(rotation)
        axis = lie.normalized(rotation + jnp.where(angle > 1e-6, 0, 1) * unit_matrix(1, 3, dtype=q.dtype)[0])
        axes.append(_basis(axis))
        mask = jnp.arange(robot.nv) == joint.v_index
        # The angle has some rounding: within it, a ball is at its limit.
        room = robot.limit_upper[j] - angle
        high = jnp.where(mask, jnp.where(room > ROUNDINGS * jnp.finfo(q.dtype).eps, room, 0), high)
    slopes = reduced.slopes(robot, moving, q) if moving.couplings else jnp.zeros(0, q.dtype)
    moves = None if dof_mask is None else movable_coordinates(moving, dof_mask)
    moves = jnp.zeros(1, bool) if moving.is_empty else moves
    return Box(static_gather(low, moving.own), static_gather(high, moving.own), tuple(axes), slopes, moves)


def _dependents_by_rank(moving: Coordinates) -> list[list[int]]:
    """For each coordinate its first follower or PAD, then its second, and so on."""
    depth = max((len(places) for places in moving.dependents), default=0)
    return [[places[k] if k < len(places) else PAD for places in moving.dependents] for k in range(depth)]


def movable_coordinates(moving: Coordinates, dof_mask: jax.Array) -> jax.Array:
    """The mask (n,) of coordinates that move no fixed degree of freedom."""
    dof_mask = movable(moving.topology, dof_mask)
    moves = static_gather(dof_mask, moving.own)
    for places in _dependents_by_rank(moving):
        real = jnp.asarray([place != PAD for place in places])
        dofs = [PAD if place == PAD else moving.follower_dofs[place] for place in places]
        moves = moves & (~real | static_gather(dof_mask, dofs))
    return moves


def _basis(axis: jax.Array) -> jax.Array:
    """An orthonormal basis (3, 3), by columns, that starts with `axis` (Duff et al. 2017)."""
    x, y, z = axis
    sign = jnp.where(z < 0, -1.0, 1.0).astype(axis.dtype)
    a = -1 / (sign + z)
    b = x * y * a
    second = jnp.stack([1 + sign * x * x * a, sign * b, -sign * x])
    third = jnp.stack([b, sign + y * y * a, -y])
    return jnp.stack([axis, second, third], axis=1)


def to_box(moving: Coordinates, box: Box, columns: jax.Array) -> jax.Array:
    """Rewrite rows (..., nv) on degrees of freedom as rows (..., n) on the box's coordinates."""
    rotated = _rotate(moving, columns, box.axes)
    rows = static_gather(rotated, moving.own, axis=-1)
    if moving.couplings:
        follower_part = static_gather(rotated, moving.follower_dofs, axis=-1) * box.slopes
        for places in _dependents_by_rank(moving):
            rows = rows + static_gather(follower_part, places, axis=-1)
    return rows if box.moves is None else rows * box.moves.astype(rows.dtype)


def from_box(moving: Coordinates, box: Box, displacement: jax.Array) -> jax.Array:
    """The tangent (nv,) of a displacement (n,) of the box's coordinates."""
    place = {dof: i for i, dof in enumerate(moving.own)}
    tangent = static_gather(displacement, [place.get(dof, PAD) for dof in range(moving.topology.nv)])
    return _rotate(moving, tangent, tuple(axes.T for axes in box.axes))


def box_curvature(robot: Robot, moving: Coordinates, q: jax.Array, box: Box, gradient: jax.Array) -> jax.Array:
    """The second derivative (n, n) of a cost with gradient (nv,) due to the curvature of the coordinates.

    A follower of a coupling moves along a polynomial. A ball held at the limit a of its total angle moves on the sphere
    of that limit: turned by y about an axis orthogonal to its own, its angle grows by cot(a / 2) / 4 y^2, from
    cos(angle / 2) = cos(a / 2) cos(y / 2).
    """
    diagonal = jnp.zeros(len(moving.own), gradient.dtype)
    if moving.couplings:
        second = reduced.second_slopes(robot, moving, q, box.slopes)
        follower_part = static_gather(gradient, moving.follower_dofs) * second
        for places in _dependents_by_rank(moving):
            diagonal = diagonal + static_gather(follower_part, places)
    for j, axes in zip(moving.balls, box.axes, strict=True):
        start = robot.topology.joints[j].v_index
        first = moving.own.index(start)
        force = jnp.where(box.upper[first] <= 0, jnp.maximum(-(gradient[start : start + 3] @ axes[:, 0]), 0), 0)
        limit = robot.limit_upper[j]
        limited = (limit > 0) & jnp.isfinite(limit)
        curvature = jnp.where(limited, 0.5 * force / jnp.tan(jnp.where(limited, limit, 1.0) / 2), 0)
        place = jnp.arange(len(moving.own))
        diagonal = diagonal + jnp.where((place == first + 1) | (place == first + 2), curvature, 0)
    if box.moves is not None:
        diagonal = jnp.where(box.moves, diagonal, 0)
    return jnp.diag(diagonal)


def bounds_of(robot: Robot, moving: Coordinates) -> tuple[jax.Array, jax.Array]:
    """Absolute bounds (n,) of the coordinates; those of a ball's first one are on its total angle."""
    lower, upper = tangent_bounds(robot)
    for j in moving.balls:
        mask = jnp.arange(robot.nv) == robot.topology.joints[j].v_index
        upper = jnp.where(mask, robot.limit_upper[j], upper)
    return static_gather(lower, moving.own), static_gather(upper, moving.own)


def _rotate(moving: Coordinates, columns: jax.Array, axes: tuple[jax.Array, ...]) -> jax.Array:
    if not axes:
        return columns
    parts, end = [], 0
    for j, basis in zip(moving.balls, axes, strict=True):
        start = moving.topology.joints[j].v_index
        parts += [columns[..., end:start], columns[..., start : start + 3] @ basis]
        end = start + 3
    parts.append(columns[..., end:])
    return jnp.concatenate(parts, axis=-1)


def coordinate_range(robot: Robot, moving: Coordinates) -> jax.Array:
    """Width of the joint limits of each coordinate (n,) [rad or m], infinite without limits."""
    lower, upper = tangent_bounds(robot)
    width = upper - lower
    for j in moving.balls:
        start = robot.topology.joints[j].v_index
        inside = (jnp.arange(robot.nv) >= start) & (jnp.arange(robot.nv) < start + 3)
        width = jnp.where(inside, 2 * robot.limit_upper[j], width)
    return static_gather(width, moving.own)
