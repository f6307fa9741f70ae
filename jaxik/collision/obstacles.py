"""Obstacles by kind: shapes in the world, all of them data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields
from jaxik.numerics.lie import poses_at


@pytree
class Spheres:
    """n spheres.

    Args:
      center: (*batch, n, 3) [m], in world axes.
      radius: (*batch, n) [m], or a number for all.
      mask: (*batch, n), False where there is none; None: all are there. Moving, masking and resizing obstacles never
        recompiles; another n does.

    Raises:
      JaxikError: for wrong shapes, NaN, and a radius that is not above zero.
    """

    center: Any = leaf(2)
    radius: Any = leaf(1)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        center = checked_points("Spheres: center", self.center)
        count = center.shape[-2]
        set_fields(
            self,
            center=center,
            radius=checked_radii("Spheres: radius", self.radius, count),
            mask=checked_mask(self.mask, count),
        )


@pytree
class Capsules:
    """n capsules: all points nearer than a radius to a line segment.

    Args:
      start, end: of the segments (*batch, n, 3) [m], in world axes.
      radius: (*batch, n) [m], or a number for all.
      mask: as of `Spheres`.

    Raises:
      JaxikError: as for `Spheres`.
    """

    start: Any = leaf(2)
    end: Any = leaf(2)
    radius: Any = leaf(1)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        start, end = checked_points("Capsules: start", self.start), checked_points("Capsules: end", self.end)
        count = start.shape[-2]
        if end.shape[-2] != count:
            raise JaxikError(f"Capsules: start and end are as many, not {count} and {end.shape[-2]}")
        radius = checked_radii("Capsules: radius", self.radius, count)
        set_fields(self, start=start, end=end, radius=radius, mask=checked_mask(self.mask, count))


@pytree
class Boxes:
    """n boxes.

    Args:
      pose: of the centres: a jaxlie.SE3 with batch axes (*batch, n), or positions (*batch, n, 3) [m] of boxes along the
        world's axes. It is kept as an array (*batch, n, 7), wxyz before xyz.
      half_size: (*batch, n, 3) [m], or (3,) for all.
      mask: as of `Spheres`.

    Raises:
      JaxikError: as for `Spheres`, of half sizes.
    """

    pose: Any = leaf(2)
    half_size: Any = leaf(2)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        pose = checked_poses("Boxes", self.pose)
        count = pose.shape[-2]
        half = _sizes("Boxes: half_size", self.half_size, count)
        set_fields(self, pose=pose, half_size=half, mask=checked_mask(self.mask, count))


@pytree
class Ellipsoids:
    """n ellipsoids.

    Args:
      pose: as of `Boxes`.
      half_size: half axes (*batch, n, 3) [m], or (3,) for all.
      mask: as of `Spheres`.

    Raises:
      JaxikError: as for `Boxes`.
    """

    pose: Any = leaf(2)
    half_size: Any = leaf(2)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        pose = checked_poses("Ellipsoids", self.pose)
        count = pose.shape[-2]
        half = _sizes("Ellipsoids: half_size", self.half_size, count)
        set_fields(self, pose=pose, half_size=half, mask=checked_mask(self.mask, count))


@pytree
class Cylinders:
    """n cylinders along the z axes of their poses.

    Args:
      pose: as of `Boxes`.
      radius, half_length: (*batch, n) [m], or a number for all.
      mask: as of `Spheres`.

    Raises:
      JaxikError: as for `Spheres`.
    """

    pose: Any = leaf(2)
    radius: Any = leaf(1)
    half_length: Any = leaf(1)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        pose = checked_poses("Cylinders", self.pose)
        count = pose.shape[-2]
        radius = checked_radii("Cylinders: radius", self.radius, count)
        half_length = checked_radii("Cylinders: half_length", self.half_length, count)
        set_fields(self, pose=pose, radius=radius, half_length=half_length, mask=checked_mask(self.mask, count))


@pytree
class Hulls:
    """n convex hulls of points.

    Args:
      pose: of the points' axes, as of `Boxes`; their origin is best in the middle.
      corners: (*batch, n, k, 3) [m], or (k, 3) for all; points inside the hull change nothing, and where a hull has
        fewer, one is repeated.
      mask: as of `Spheres`.

    Raises:
      JaxikError: for wrong shapes and NaN.
    """

    pose: Any = leaf(2)
    corners: Any = leaf(3)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        pose = checked_poses("Hulls", self.pose)
        count = pose.shape[-2]
        corners = checked_points("Hulls: corners", self.corners)
        if corners.ndim > 2 and corners.shape[-3] not in (1, count):
            raise JaxikError(
                f"Hulls: corners have shape (*batch, n, k, 3) with n = {count}, or (k, 3), not {corners.shape}"
            )
        corners = jnp.broadcast_to(corners, (*corners.shape[:-3], count, *corners.shape[-2:]))
        set_fields(self, pose=pose, corners=corners, mask=checked_mask(self.mask, count))


@pytree
class Planes:
    """n half spaces that are solid, such as the ground: points with `n . p <= offset`, n the normal made of length 1.

    Args:
      normal: (*batch, n, 3), pointing out of what is solid; of any length but zero.
      offset: (*batch, n) [m], or a number for all: distance of the surface from the world's origin along the normal.
      mask: as of `Spheres`.

    Raises:
      JaxikError: for wrong shapes, NaN, and a normal of zero.
    """

    normal: Any = leaf(2)
    offset: Any = leaf(1, default=0.0)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        normal = checked_points("Planes: normal", self.normal)
        length = jnp.linalg.norm(normal, axis=-1, keepdims=True)
        if not isinstance(length, Tracer) and not (np.asarray(length) > 0).all():
            raise JaxikError(f"Planes: a normal points out of what is solid, and is not zero: {np.asarray(normal)!r}")
        count = normal.shape[-2]
        offset = validation.array("Planes: offset", self.offset)
        _finite("Planes: offset", offset)
        offset = _one_each("Planes: offset", offset, count)
        set_fields(self, normal=normal / length, offset=offset, mask=checked_mask(self.mask, count))


def checked_poses(name: str, pose: Any) -> jax.Array:
    """Poses (*batch, n, 7), wxyz before xyz, of a jaxlie.SE3, such an array, or positions alone."""
    if isinstance(pose, jaxlie.SE3) or np.shape(pose)[-1:] == (7,):
        numbers = validation.as_array(pose.wxyz_xyz if isinstance(pose, jaxlie.SE3) else pose)
    else:
        numbers = poses_at(checked_points(f"{name}: pose", pose))
    if np.ndim(numbers) < 2:
        raise JaxikError(f"{name}: pose has axes (*batch, n), not {np.shape(numbers)[:-1]}: write [pose] for one")
    _finite(f"{name}: pose", numbers)
    if not isinstance(numbers, Tracer) and not (np.linalg.norm(np.asarray(numbers)[..., :4], axis=-1) > 0).all():
        raise JaxikError(f"{name}: a pose has a quaternion of zero, which is no rotation; mask says which are there")
    return numbers


def _sizes(name: str, value: Any, count: int) -> jax.Array:
    half = validation.positive(name, value)
    if half.shape[-1:] != (3,) or (half.ndim > 1 and half.shape[-2] not in (1, count)):
        raise JaxikError(f"{name} has shape (*batch, n, 3) with n = {count}, or (3,), not {half.shape}")
    # An operation of its own takes a tenth of a millisecond, whatever it does.
    return half if half.shape[-2:] == (count, 3) else jnp.broadcast_to(half, (*half.shape[:-2], count, 3))


def checked_points(name: str, value: Any) -> jax.Array:
    points = validation.vector(name, value, 3)
    if points.ndim < 2:
        raise JaxikError(f"{name} has shape (*batch, n, 3), not {points.shape}: write [point] for one")
    _finite(name, points)
    return points


def _finite(name: str, value: Any) -> None:
    if not isinstance(value, Tracer) and not (good := np.isfinite(np.asarray(value))).all():
        found = validation.first_bad(value, good)
        raise JaxikError(f"{name} is finite, not {found}; mask says which obstacles are there")


def checked_radii(name: str, value: Any, count: int) -> jax.Array:
    return _one_each(name, validation.positive(name, value), count)


def _one_each(name: str, value: jax.Array, count: int) -> jax.Array:
    """Numbers (*batch, n), from one for all or n."""
    if value.ndim and value.shape[-1] not in (1, count):
        raise JaxikError(f"{name} has shape (*batch, n) with n = {count}, or is a number, not {value.shape}")
    return value if value.shape[-1:] == (count,) else jnp.broadcast_to(value, (*value.shape[:-1], count))


def checked_mask(value: Any, count: int) -> jax.Array:
    if value is None:
        return validation.as_array(np.ones(count, bool))
    mask = validation.as_array(value)
    if mask.dtype != bool or mask.shape[-1:] != (count,):
        raise JaxikError(f"mask is of bool, (*batch, n) with n = {count}, not {mask.dtype} of shape {mask.shape}")
    return mask
