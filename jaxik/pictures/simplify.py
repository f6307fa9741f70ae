"""Meshes of fewer triangles, for what is small, or stands around hundreds of times."""

import functools

import numpy as np

from jaxik.kinematics.visual import Mesh
from jaxik.pictures.shapes import MESH, Shapes

# Cells grow by what makes the triangles as few as they should be, and by this more.
SPARE = 1.05
# How far the point of a cell goes towards the planes that meet in it, where these leave a direction open.
REGULAR = 1e-3
# Beside the squares of areas [m^4]: where all triangles are degenerate.
TINY = 1e-30
# Vertices that MuJoCo asks of a mesh.
FEWEST = 4


def simplified(shapes: Shapes, most: int) -> Shapes:
    """The shapes with at most so many triangles in all of their meshes, without those of which nothing is left."""
    is_mesh = shapes.kind == MESH
    mesh = shapes.mesh.copy()
    mesh[is_mesh] = _within(tuple(mesh[is_mesh]), most)
    kept = np.array([x is None or len(x.vertices) >= FEWEST for x in mesh], bool)
    return Shapes(*(column[kept] for column in shapes._replace(mesh=mesh)))


@functools.lru_cache(maxsize=8)
def _within(meshes: tuple[Mesh, ...], most: int) -> tuple[Mesh, ...]:
    """The meshes, clustered by cells of one size for all, the smallest that suffice."""
    if sum(len(mesh.faces) for mesh in meshes) <= most:
        return meshes
    area = sum(float(np.linalg.norm(_normals(mesh), axis=1).sum()) / 2 for mesh in meshes)
    # A flat surface has two triangles a cell.
    cell = np.sqrt(2 * area / most) / 2
    while True:
        lighter = {mesh: clustered(mesh, cell) for mesh in dict.fromkeys(meshes)}
        count = sum(len(lighter[mesh].faces) for mesh in meshes)
        if count <= most:
            return tuple(lighter[mesh] for mesh in meshes)
        cell *= SPARE * np.sqrt(count / most)


def clustered(mesh: Mesh, cell: float) -> Mesh:
    """All vertices in a cube of this edge [m] become the point that is nearest to the planes of their triangles.

    Lindstrom, "Out-of-core simplification of large polygonal models", 2000. The point stays in its cube.
    """
    vertices, normals = mesh.vertices.astype(float), _normals(mesh)
    at, count = _cells(vertices, cell)

    def gathered(index: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Sums (count, n) of rows (m, n)."""
        return np.stack([np.bincount(index, column, count) for column in values.T], axis=1)

    mean = gathered(at, vertices) / np.bincount(at, minlength=count)[:, None]
    corners = mesh.faces.T.ravel()
    normals = np.tile(normals, (3, 1))
    outer = (normals[:, :, None] * normals[:, None, :]).reshape(-1, 9)
    quadric = gathered(at[corners], outer).reshape(-1, 3, 3)
    height = np.einsum("fi,fi->f", normals, vertices[corners] - mean[at[corners]])
    offset = gathered(at[corners], height[:, None] * normals)
    regular = REGULAR * np.trace(quadric, axis1=1, axis2=2)[:, None, None] + TINY
    shift = np.linalg.solve(quadric + regular * np.eye(3), offset[..., None])[..., 0]
    faces = at[mesh.faces]
    a, b, c = faces.T
    kept = faces[(a != b) & (b != c) & (c != a)]
    low, middle, high = np.sort(kept, axis=1).T
    _, first = np.unique((low * count + middle) * count + high, return_index=True)
    used, faces = np.unique(kept[first], return_inverse=True)
    moved = mean + np.clip(shift, -cell / 2, cell / 2)
    return Mesh(moved[used].astype(np.float32), faces.reshape(-1, 3).astype(np.int32))


def _cells(vertices: np.ndarray, cell: float) -> tuple[np.ndarray, int]:
    """For each vertex (n, 3) the number of its cube of this edge, and how many cubes there are."""
    cube = np.floor(vertices / cell).astype(np.int64)
    x, y, z = (cube - cube.min(axis=0)).T
    _, at = np.unique((x * (y.max() + 1) + y) * (z.max() + 1) + z, return_inverse=True)
    return at, int(at.max()) + 1


def _normals(mesh: Mesh) -> np.ndarray:
    """Normals (m, 3) of triangles, as long as twice their area [m^2]."""
    a, b, c = mesh.vertices[mesh.faces].astype(float).transpose(1, 0, 2)
    return np.cross(b - a, c - a)
