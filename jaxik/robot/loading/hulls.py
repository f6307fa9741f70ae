"""Convex hulls of meshes, and capsules and spheres around them."""

from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

# A hull of less than this share of the volume of its box is flat: nothing is said of how much bigger a fit is.
FLAT = 1e-9


class Shape(NamedTuple):
    """A shape that collides.

    Attributes:
      kind: of `KINDS`.
      position (3,), quaternion (4,) wxyz, size (3,), corners (k, 3): as of `Geometry`; None where it has no corners.
      grown: its volume over that of the mesh's hull, where it stands for a mesh.
    """

    kind: str
    position: np.ndarray
    quaternion: np.ndarray
    size: np.ndarray
    corners: np.ndarray | None = None
    grown: float | None = None

    def moved(self, position: np.ndarray, quaternion: np.ndarray) -> "Shape":
        """The same, where its axes are at a pose of others."""
        turned, product = np.empty(3), np.empty(4)
        mujoco.mju_rotVecQuat(turned, self.position, quaternion)
        mujoco.mju_mulQuat(product, quaternion, self.quaternion)
        return self._replace(position=position + turned, quaternion=product)


def as_hull(vertices: np.ndarray) -> Shape:
    middle = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
    corners = vertices - middle
    return Shape("hull", middle, np.array([1.0, 0, 0, 0]), np.abs(corners).max(axis=0), corners)


def as_sphere(vertices: np.ndarray) -> Shape:
    """A sphere around all vertices, about the middle of their box."""
    middle = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
    radius = np.linalg.norm(vertices - middle, axis=1).max()
    grown = _grown(4 / 3 * np.pi * radius**3, vertices)
    return Shape("sphere", middle, np.array([1.0, 0, 0, 0]), np.array([radius, 0, 0]), grown=grown)


def as_capsule(vertices: np.ndarray) -> Shape:
    """The smallest capsule around all vertices of those along the three principal axes."""
    center = vertices.mean(axis=0)
    _, _, principal = np.linalg.svd(vertices - center, full_matrices=False)
    return min((_along(axis, vertices) for axis in principal), key=lambda found: found[0])[1]


def _along(axis: np.ndarray, vertices: np.ndarray) -> tuple[float, Shape]:
    """Volume and capsule along a unit vector: no vertex is outside."""
    x = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    x /= np.linalg.norm(x)
    axes = np.stack([x, np.cross(axis, x), axis], axis=1)
    local = vertices @ axes
    middle = (local.min(axis=0) + local.max(axis=0)) / 2
    local = local - middle
    across = np.linalg.norm(local[:, :2], axis=1)
    radius = across.max()
    # The caps are round: a vertex near the axis needs less of the segment.
    length = np.maximum(np.abs(local[:, 2]) - np.sqrt(radius**2 - across**2), 0).max()
    volume = np.pi * radius**2 * (2 * length + 4 / 3 * radius)
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, axes.ravel())
    size = np.array([radius, length, 0])
    return volume, Shape("capsule", axes @ middle, quaternion, size, grown=_grown(volume, vertices))


def _grown(volume: float, vertices: np.ndarray) -> float | None:
    try:
        hull = ConvexHull(vertices).volume
    except QhullError:
        return None
    return volume / hull if hull > FLAT * np.prod(np.ptp(vertices, axis=0)) else None
