"""Random pairs of shapes, and their distances by coal, one pair at a time."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import coal
import jax
import jax.numpy as jnp
import numpy as np

from jaxik.collision.boxes import Box
from jaxik.collision.contact import Contact
from jaxik.collision.distances import PAIRS
from jaxik.collision.segments import Segment
from jaxik.numerics.vectors import Vector, from_array

SMALLEST, LARGEST = 0.003, 0.3


class Shapes(NamedTuple):
    """Poses and sizes (n, 3) of shapes of any kind: MuJoCo's sizes."""

    rotation: np.ndarray
    position: np.ndarray
    size: np.ndarray


def rotations(rng: np.random.Generator, count: int) -> np.ndarray:
    matrices, _ = np.linalg.qr(rng.normal(size=(count, 3, 3)))
    return matrices * np.linalg.det(matrices)[:, None, None]


def random_shapes(rng: np.random.Generator, count: int, spread: float = 0.15) -> Shapes:
    size = np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST), (count, 3)))
    return Shapes(rotations(rng, count), rng.normal(size=(count, 3)) * spread, size)


def core(kind: str, shapes: Shapes, dtype: Any = np.float64) -> Any:
    """The core of shapes of a kind, and the radius by which it is swept."""
    vector = lambda x: from_array(jnp.asarray(x, dtype))  # noqa: E731
    rotation, position, size = shapes
    if kind == "sphere":
        return vector(position), jnp.asarray(size[:, 0], dtype)
    if kind == "capsule":
        return Segment(vector(position), vector(rotation[:, :, 2] * size[:, 1:2])), jnp.asarray(size[:, 0], dtype)
    axes = tuple(vector(rotation[:, :, i]) for i in range(3))
    return Box(vector(position), axes, vector(size)), jnp.zeros(len(size), dtype)


def contact(kinds: tuple[str, str], a: Shapes, b: Shapes, dtype: Any = np.float64) -> Contact:
    return evaluated(kinds, np.dtype(dtype))(a, b)


@functools.cache
def evaluated(kinds: tuple[str, str], dtype: Any) -> Callable[..., Contact]:
    def both(a: Shapes, b: Shapes) -> Contact:
        (core_a, radius_a), (core_b, radius_b) = core(kinds[0], a, dtype), core(kinds[1], b, dtype)
        return PAIRS[kinds](core_a, core_b).swept(radius_a, radius_b)

    return jax.jit(both)


_COAL = {
    "sphere": lambda size: coal.Sphere(size[0]),
    "capsule": lambda size: coal.Capsule(size[0], 2 * size[1]),
    "box": lambda size: coal.Box(*(2 * size)),
}


def by_coal(kinds: tuple[str, str], a: Shapes, b: Shapes) -> np.ndarray:
    """Signed distances (n,)."""
    found = np.empty(len(a.size))
    for i in range(len(found)):
        request, result = coal.DistanceRequest(), coal.DistanceResult()
        request.enable_signed_distance = True
        placed = [coal.Transform3s(s.rotation[i], s.position[i]) for s in (a, b)]
        first, second = (_COAL[kind](s.size[i]) for kind, s in zip(kinds, (a, b), strict=True))
        found[i] = coal.distance(first, placed[0], second, placed[1], request, result)
    return found


def array(vector: Vector) -> np.ndarray:
    return np.stack(
        [np.broadcast_to(c, np.broadcast_shapes(*map(np.shape, vector.components))) for c in vector.components], axis=-1
    )
