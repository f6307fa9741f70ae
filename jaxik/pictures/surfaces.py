"""Surfaces of triangles of what a collision knows by other numbers: convex hulls, and grids of distances."""

import functools

import numpy as np

from jaxik.kinematics.visual import Mesh


def hull_surface(corners: np.ndarray) -> tuple[np.ndarray, Mesh] | None:
    """The middle (3,) of the box of the convex hull of corners (k, 3), and the hull about it; None of a flat one."""
    points = np.unique(np.asarray(corners, float), axis=0)
    return _hull_surface(points.tobytes(), len(points))


# Each mesh is itself alone: drawn again, it is the same.
@functools.lru_cache(maxsize=256)
def _hull_surface(data: bytes, count: int) -> tuple[np.ndarray, Mesh] | None:
    from scipy.spatial import ConvexHull, QhullError

    points = np.frombuffer(data).reshape(count, 3)
    try:
        hull = ConvexHull(points)
    except (QhullError, ValueError):
        return None
    a, b, c = (points[hull.simplices[:, i]] for i in range(3))
    inward = np.sum(np.cross(b - a, c - a) * hull.equations[:, :3], axis=1) < 0
    faces = np.where(inward[:, None], hull.simplices[:, ::-1], hull.simplices)
    return _about_its_middle(points, faces)


def grid_surface(values: np.ndarray, cell: float) -> tuple[np.ndarray, Mesh] | None:
    """The middle (3,) of the box of all cubes about nodes that are solid, and their surface about it; None of none.

    Args:
      values (nx, ny, nz): zero or below where it is solid.
      cell: edge of a cube; the middle of the first one is the origin.
    """
    solid = np.pad(values <= 0, 1)
    quads = []
    for axis in range(3):
        ahead = np.roll(solid, -1, axis)
        u, v = np.eye(3)[(axis + 1) % 3] / 2, np.eye(3)[(axis + 2) % 3] / 2
        for leaves, turn in ((solid & ~ahead, 1), (~solid & ahead, -1)):
            middle = np.argwhere(leaves) - 1 + np.eye(3)[axis] / 2
            quads.append(
                np.stack([middle - u - v, middle + turn * (u - v), middle + u + v, middle - turn * (u - v)], 1)
            )
    corners = np.concatenate(quads)
    if not len(corners):
        return None
    first = 4 * np.arange(len(corners))[:, None]
    faces = np.concatenate([first + np.array(corner) for corner in ((0, 1, 2), (0, 2, 3))])
    return _about_its_middle(cell * corners.reshape(-1, 3), faces)


def _about_its_middle(points: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, Mesh]:
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    return middle, Mesh(points - middle, faces.astype(np.int32))
