"""The convex hulls of a model's meshes, as MuJoCo's compiler found them."""

from typing import Any

import numpy as np


def hull_vertices(model: Any, mesh: int) -> np.ndarray:
    """The corners (k, 3) [m] of a mesh's convex hull, in the mesh's axes; `model` is a mujoco.MjModel."""
    start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    vertices, graph = model.mesh_vert[start : start + count], model.mesh_graphadr[mesh]
    if graph < 0:
        return vertices.astype(float)
    # Numbers of vertices and faces, where each vertex has its edges, and which vertex of the mesh each is.
    hull = model.mesh_graph[graph]
    return vertices[model.mesh_graph[graph + 2 + hull : graph + 2 + 2 * hull]].astype(float)


def padded(corners: list[np.ndarray]) -> np.ndarray:
    """Corners (m, k, 3) of hulls, of which those that have fewer repeat their last one."""
    most = max((len(c) for c in corners), default=0)
    found = np.empty((len(corners), most, 3))
    for row, c in zip(found, corners, strict=True):
        row[: len(c)], row[len(c) :] = c, c[-1]
    return found
