"""Grids of distances that are never above the true ones, from heights, points and cubes; on the host."""

from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError

# Nodes of a grid and samples of a surface, at most: some hundred MB and a minute.
MOST = 20_000_000
# Between samples a surface may be nearer than the nearest of them by this share of a cell, which takes so many samples
# along one, where it is not too steep.
MISSED, MOST_PARTS = 0.25, 24


def of_heights(heights: Any, spacing: Any, cell: float | None, room: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Distances (nx, ny, nz), the corner (3,) and the cell of a grid; see `VoxelField.from_heights`."""
    heights, spacing = np.asarray(heights, float), np.broadcast_to(np.asarray(spacing, float), (2,))
    if heights.ndim != 2 or min(heights.shape) < 2:
        raise JaxikError(f"heights are (nx, ny) with 2 nodes along each at least, not {heights.shape}")
    _finite("heights", heights)
    cell = float(spacing.min()) if cell is None else float(cell)
    if not (spacing > 0).all() or not cell > 0 or not room > 0:
        raise JaxikError(f"spacing, cell and room are above zero, not {spacing}, {cell}, {room}")
    lengths, bottom = spacing * (np.array(heights.shape) - 1), heights.min() - room
    # Samples that are `step` apart miss the height between them by what it rises from one to the middle of four.
    rise = sum(np.abs(np.diff(heights, axis=axis)).max() / spacing[axis] for axis in (0, 1))
    step = cell / np.clip(np.ceil(np.sqrt(2 + rise**2) / (2 * MISSED)), 1, MOST_PARTS)
    missed = step / 2 * np.sqrt(2 + rise**2)
    lines = [np.linspace(0, length, 1 + int(np.ceil(length / step))) for length in lengths]
    _few(lines[0].size * lines[1].size, "samples of the surface")
    x, y = np.meshgrid(*lines, indexing="ij")
    top = np.stack([x, y, _surface(heights, spacing, x, y)], axis=-1)
    edge = np.concatenate([top[0], top[-1], top[:, 0], top[:, -1]])
    levels = np.arange(bottom, edge[:, 2].max(), step)
    walls = [np.column_stack([edge[edge[:, 2] > z, :2], np.full((edge[:, 2] > z).sum(), z)]) for z in levels]
    # Around the walls as well: beyond the grid distances are less exact.
    corner, shape = _box(np.array([-room, -room, bottom]), np.array([*(lengths + room), heights.max() + room]), cell)
    nodes = _nodes(corner, shape, cell)
    nearest = _nearest(np.concatenate([top.reshape(-1, 3), *walls]), nodes)
    over = ((nodes[:, :2] >= 0) & (nodes[:, :2] <= lengths)).all(axis=1)
    inside = over & (nodes[:, 2] <= _surface(heights, spacing, *np.clip(nodes[:, :2], 0, lengths).T))
    return np.where(inside, -nearest, nearest - missed).reshape(shape), corner, cell


def _surface(heights: np.ndarray, spacing: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Heights at points (...) of the higher of the two surfaces of triangles."""
    u, v = x / spacing[0], y / spacing[1]
    i, j = (np.clip(np.floor(c).astype(int), 0, n - 2) for c, n in zip((u, v), heights.shape, strict=True))
    u, v = u - i, v - j
    a, b, c, d = heights[i, j], heights[i + 1, j], heights[i, j + 1], heights[i + 1, j + 1]
    rising = np.where(u >= v, a + u * (b - a) + v * (d - b), a + v * (c - a) + u * (d - c))
    falling = np.where(u + v <= 1, a + u * (b - a) + v * (c - a), d + (1 - u) * (c - d) + (1 - v) * (b - d))
    return np.maximum(rising, falling)


def of_points(points: Any, radius: Any, cell: float, room: float) -> tuple[np.ndarray, np.ndarray]:
    """Distances (nx, ny, nz) and the corner (3,) of a grid; see `VoxelField.from_points`."""
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[-1] != 3 or not len(points):
        raise JaxikError(f"points are (n, 3) with one at least, not {points.shape}")
    _finite("points", points)
    if not cell > 0 or not room > 0 or not np.ndim(radius) == 0 or not radius >= 0:
        raise JaxikError(f"cell and room are above zero, and radius not below: not {cell}, {room}, {radius}")
    around = room + radius
    corner, shape = _box(points.min(0) - around, points.max(0) + around, cell)
    return (_nearest(points, _nodes(corner, shape, cell)) - radius).reshape(shape), corner


def of_occupancy(occupied: Any, cell: float) -> tuple[np.ndarray, np.ndarray]:
    """Distances (nx + 2, ny + 2, nz + 2) and the corner (3,) of a grid; see `VoxelField.from_occupancy`."""
    from scipy.ndimage import distance_transform_edt

    occupied = np.asarray(occupied)
    if occupied.ndim != 3 or occupied.dtype != bool or not occupied.any():
        raise JaxikError(f"occupied is of bool, (nx, ny, nz), with one at least, not {occupied.dtype} {occupied.shape}")
    if not cell > 0:
        raise JaxikError(f"cell is above zero, not {cell}")
    padded = np.pad(occupied, 1)
    # To the middle of the nearest cube, which is nearer by half a diagonal at most; and inside, to that of a free one.
    outside = np.asarray(distance_transform_edt(~padded)) - np.sqrt(3) / 2
    inside = np.asarray(distance_transform_edt(padded))
    return cell * np.where(padded, -inside, outside), np.full(3, -cell)


def _finite(name: str, numbers: np.ndarray) -> None:
    if wrong := int((~np.isfinite(numbers)).sum()):
        raise JaxikError(f"{name} are finite: {wrong} of {numbers.size} numbers are NaN or infinite")


def _box(low: np.ndarray, high: np.ndarray, cell: float) -> tuple[np.ndarray, tuple[int, ...]]:
    """The corner and the shape of a grid over a box."""
    shape = tuple(int(n) for n in np.maximum(np.ceil((high - low) / cell).astype(int) + 1, 2))
    _few(np.prod(shape, dtype=float), "nodes")
    return low, shape


def _few(count: float, what: str) -> None:
    if count > MOST:
        raise JaxikError(f"{count:.0f} {what} are too many, of {MOST} at most: choose a larger cell")


def _nodes(corner: np.ndarray, shape: tuple[int, ...], cell: float) -> np.ndarray:
    return corner + cell * np.moveaxis(np.indices(shape), 0, -1).reshape(-1, 3)


def _nearest(samples: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    from scipy.spatial import KDTree

    return np.asarray(KDTree(samples).query(nodes)[0])
