"""A grid of poses: where a frame is to be brought, voxel by voxel, in directions that are spread evenly."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError

# Rows of a grid are counted in 32 bits.
MOST = 2**31 - 1
# Constants of the super-Fibonacci spiral.
PHI, PSI = math.sqrt(2), 1.533751168755204288118041


@dataclasses.dataclass(frozen=True)
class Grid:
    """Poses at the centres of voxels, each in so many directions: what a map of reachability asks.

    Args:
      center (3,) [m]: of the box that the voxels fill.
      size (3,) [m]: of its edges.
      resolution: edge of a voxel [m].
      directions: orientations at each centre, spread evenly over SO(3); 1 where a task has no orientation.

    Raises:
      JaxikError: for numbers that make no grid.
    """

    center: Any
    size: Any
    resolution: float
    directions: int = 1

    def __post_init__(self) -> None:
        center, size = (np.asarray(x, float) for x in (self.center, self.size))
        if center.shape != (3,) or size.shape != (3,) or not (np.isfinite(center).all() and (size > 0).all()):
            raise JaxikError(f"a grid has center (3,) and size (3,) above 0 [m], not {self.center} and {self.size}")
        if not (np.isfinite(self.resolution) and self.resolution > 0):
            raise JaxikError(f"resolution is the edge of a voxel, above 0 m, not {self.resolution}")
        if not (isinstance(self.directions, int) and self.directions >= 1):
            raise JaxikError(f"directions is a whole number from 1 on, not {self.directions!r}")
        object.__setattr__(self, "center", tuple(center.tolist()))
        object.__setattr__(self, "size", tuple(size.tolist()))
        if self.count > MOST:
            raise JaxikError(f"a grid of {self.count:,} poses is too large: raise resolution, or lower directions")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Voxels along x, y and z, which fill at least the box."""
        nx, ny, nz = (max(1, math.ceil(edge / self.resolution - 1e-9)) for edge in self.size)
        return nx, ny, nz

    @property
    def count(self) -> int:
        """Poses in all: row i is direction i % directions of voxel i // directions, z quickest."""
        return math.prod(self.shape) * self.directions

    def centers(self) -> np.ndarray:
        """Centres of the voxels (nx, ny, nz, 3) [m]."""
        axes = [
            c + self.resolution * (np.arange(n) - (n - 1) / 2) for c, n in zip(self.center, self.shape, strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)

    def pose(self, row: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """Position (3,) [m] and quaternion (4,) wxyz of a row ()."""
        voxel, direction = row // self.directions, row % self.directions
        _, ny, nz = self.shape
        place = jnp.stack([voxel // (ny * nz), voxel // nz % ny, voxel % nz]).astype(dtype)
        low = np.asarray(self.center) - self.resolution * (np.asarray(self.shape) - 1) / 2
        position = jnp.asarray(low, dtype) + self.resolution * place
        return position, jnp.asarray(even_rotations(self.directions), dtype)[direction]


def even_rotations(count: int) -> np.ndarray:
    """Quaternions (count, 4) wxyz that are spread evenly over SO(3).

    Alexa, "Super-Fibonacci Spirals: Fast, Low-Discrepancy Sampling of SO(3)", CVPR 2022.
    """
    s = np.arange(count) + 0.5
    near, far = np.sqrt(s / count), np.sqrt(1 - s / count)
    alpha, beta = 2 * np.pi * s / PHI, 2 * np.pi * s / PSI
    return np.stack([near * np.sin(alpha), near * np.cos(alpha), far * np.sin(beta), far * np.cos(beta)], axis=1)
