"""Obstacles that are no shapes: a grid of distances, as of a height field or a scan, and a cloud of points."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.collision import voxels
from jaxik.collision.obstacles import checked_mask, checked_points, checked_poses, checked_radii
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields


@pytree
class VoxelField:
    """Distances at the nodes of a grid, which describes all that is in its box and nothing beyond it.

    Between nodes it is interpolated, and half a cell's diagonal less, so that a distance is never above the true one:
    choose cells as small as what may be lost of it. What encloses a shape of the robot, a sphere or a capsule, is kept
    away; it is cut into four pieces, with a row each.

    Args:
      distance: (*batch, nx, ny, nz) [m], below zero inside of what is solid: true distances, or less.
      cell: distance of two nodes (*batch,) [m].
      pose: of the first node, and the axes of the grid: a jaxlie.SE3 (*batch,), or a position (*batch, 3); kept as
        (*batch, 7), wxyz before xyz. New values of all three never recompile; other sizes do.

    Raises:
      JaxikError: for wrong shapes, fewer than two nodes along an axis, what is not finite, and a cell not above zero.
    """

    distance: Any = leaf(3)
    cell: Any = leaf(0)
    pose: Any = leaf(1, default=(0.0, 0.0, 0.0))

    def __post_init__(self) -> None:
        distance = validation.array("VoxelField: distance", self.distance)
        if distance.ndim < 3 or min(distance.shape[-3:]) < 2:
            raise JaxikError(
                f"VoxelField: distance has shape (*batch, nx, ny, nz), with 2 nodes along each, not {distance.shape}"
            )
        if not isinstance(distance, Tracer) and not np.isfinite(distance).all():
            raise JaxikError("VoxelField: a distance is NaN or infinite: what is unknown may have a small one")
        pose = self.pose.wxyz_xyz if isinstance(self.pose, jaxlie.SE3) else jnp.asarray(self.pose)
        if not isinstance(pose, Tracer) and not np.isfinite(pose).all():
            raise JaxikError("VoxelField: pose is not finite")
        pose = checked_poses("VoxelField", pose[..., None, :])[..., 0, :]
        set_fields(self, distance=distance, cell=validation.positive("VoxelField: cell", self.cell), pose=pose)

    @classmethod
    def from_heights(
        cls, heights: Any, spacing: Any, pose: Any = (0.0, 0.0, 0.0), *, cell: float | None = None, room: float = 0.2
    ) -> VoxelField:
        """What is below a surface: solid down to `room` below the lowest height, with walls around it.

        Computed on the host, in about a second for 100 x 100 heights. Whichever way its cells are cut into triangles,
        the surface is nowhere above what is taken for solid.

        Args:
          heights (nx, ny) [m]: at nodes along x and y, above the z = 0 of the pose.
          spacing: of the nodes [m], or (2,) along x and y.
          pose: of the first node.
          cell: of the grid [m]; None: the smaller spacing.
          room: how far above the highest and below the lowest height the grid goes [m].

        Raises:
          JaxikError: for wrong shapes and numbers.
        """
        distance, corner, cell = voxels.of_heights(heights, spacing, cell, room)
        return cls(distance, cell, _moved(pose, corner))

    @classmethod
    def from_points(cls, points: Any, radius: Any = 0.0, *, cell: float = 0.02, room: float = 0.2) -> VoxelField:
        """A cloud of points as a grid: for more points than `Points` is quick with. Computed on the host.

        Args:
          points (n, 3) [m]: in world axes.
          radius: of all of them [m].
          cell: of the grid [m].
          room: how far around the points the grid goes [m].
        """
        distance, corner = voxels.of_points(points, radius, cell, room)
        return cls(distance, cell, corner)

    @classmethod
    def from_occupancy(cls, occupied: Any, cell: float, pose: Any = (0.0, 0.0, 0.0)) -> VoxelField:
        """Cubes that are solid or free; what is beyond the grid is free. Computed on the host.

        Args:
          occupied (nx, ny, nz): bool.
          cell: length of an edge of a cube [m].
          pose: of the middle of the first cube.
        """
        distance, corner = voxels.of_occupancy(occupied, cell)
        return cls(distance, cell, _moved(pose, corner))


@pytree
class Points:
    """A cloud of n points, each with a radius: what encloses a shape of the robot keeps away from the nearest.

    All of them are looked at: of a Panda among 1,000, 2,600 clearances a second on two busy cores, 1,400 among as many
    `Spheres`, each of which has rows of its own. In `VoxelField.from_points` it is 30,000 for any number.

    Args:
      position: (*batch, n, 3) [m], in world axes.
      radius: (*batch, n) [m], or a number for all.
      mask: (*batch, n), False where there is none; None: all are there. Another n recompiles, nothing else.

    Raises:
      JaxikError: for wrong shapes, NaN, and a radius that is not above zero.
    """

    position: Any = leaf(2)
    radius: Any = leaf(1)
    mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        position = checked_points("Points: position", self.position)
        count = position.shape[-2]
        radius = checked_radii("Points: radius", self.radius, count)
        set_fields(self, position=position, radius=radius, mask=checked_mask(self.mask, count))


def _moved(pose: Any, corner: np.ndarray) -> jaxlie.SE3:
    """The pose of a corner, seen from a pose."""
    if not isinstance(pose, jaxlie.SE3):
        numbers = np.asarray(pose, float)
        if numbers.shape not in ((3,), (7,)):
            raise JaxikError(f"pose is a jaxlie.SE3, a position (3,) or wxyz before xyz (7,), not {numbers.shape}")
        pose = jaxlie.SE3(jnp.asarray(numbers)) if numbers.size == 7 else jaxlie.SE3.from_translation(numbers)
    return pose @ jaxlie.SE3.from_translation(jnp.asarray(corner))
