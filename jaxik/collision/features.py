"""Two polytopes by the corners that are nearest to each other: how the direction between them turns."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.collision.convex import BOX, Convex, Hull
from jaxik.numerics.vectors import Vector, cross, divide, dot, length_and_direction, select

# As a share of the extents, in float32 and float64: corners that are lower than the highest by less are as high, and
# corners that are nearer to each other are one.
ALIKE = (1e-5, 1e-8)
_SIGNS = np.array([(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]).T


class _Feature(NamedTuple):
    """A corner, an edge or a face: a corner, from the centre, and the way to two others, zero where there are none."""

    corner: Vector
    first: Vector
    second: Vector


def is_curved(shape: Convex) -> jax.Array:
    """Which shapes are no polytopes."""
    return jnp.zeros_like(shape.center.x, bool) if isinstance(shape, Hull) else shape.form != BOX


def direction_of_features(a: Convex, b: Convex, normal: Vector) -> tuple[Vector, Vector]:
    """The direction from one polytope to the other, and the nearest point of the first, as functions of both.

    They belong to the lines and planes of the features that are nearest, given that these stay the same: an edge and a
    corner, two edges, a face and a corner. Of more, as of two faces, some of the corners are taken.

    Args:
      normal: the direction, by which features are told.
    """
    size = a.extent + b.extent
    short = ALIKE[size.dtype == jnp.float64] * size
    on_a, on_b = _feature(a, normal, short), _feature(b, -normal, short)
    between = b.center - a.center + on_b.corner - on_a.corner
    # The nearest of `between + s u + t w`, differences of points of b and a: along edges of one shape or of both.
    has_edge, has_face = dot(on_a.first, on_a.first) > 0, dot(on_a.second, on_a.second) > 0
    none = between.map(jnp.zeros_like)
    u_of_a, w_of_a = on_a.first, select(has_face, on_a.second, none)
    u = select(has_edge, -u_of_a, on_b.first)
    w = select(has_face, -w_of_a, select(has_edge, on_b.first, on_b.second))
    _, along = length_and_direction(u, none)
    aside = w - along * dot(along, w)
    # An edge that is parallel to one way along a face is not to the other.
    aside_of_face = on_b.second - along * dot(along, on_b.second)
    parallel = has_edge & ~has_face & (dot(aside, aside) <= short * short)
    w, aside = select(parallel, on_b.second, w), select(parallel, aside_of_face, aside)
    is_face = dot(aside, aside) > short * short
    t = jnp.where(is_face, -divide(dot(aside, between), dot(aside, aside)), 0)
    s = -divide(dot(u, between + w * t), dot(u, u))
    # That of a face is known where the shapes touch, or overlap, as well.
    _, across = length_and_direction(cross(u, aside), normal)
    _, straight = length_and_direction(between + u * s, normal, short)
    found = select(is_face, select(dot(across, normal) < 0, -across, across), straight)
    return found, a.center + on_a.corner + u_of_a * s + w_of_a * t


def _feature(shape: Convex, direction: Vector, short: jax.Array) -> _Feature:
    """What is farthest on a polytope in a direction; what is within `short` counts as alike."""
    box = jax.tree.map(lambda x: x[..., None], shape.box)
    signs = Vector(*jnp.asarray(_SIGNS, short.dtype))
    corners = box.outward(shape.corners if isinstance(shape, Hull) else signs.map(jnp.multiply, box.half))
    height = dot(corners, direction[..., None])
    top = height >= jnp.max(height, axis=-1, keepdims=True) - short[..., None]

    def farthest(of: Vector) -> Vector:
        """The way to the one, of those at the top, whose part `of` is longest."""
        squared = jnp.where(top, dot(of, of), -1)
        which = jnp.argmax(squared, axis=-1)[..., None]
        long = jnp.take_along_axis(squared, which, axis=-1)[..., 0] > short * short
        found = away.map(lambda c: jnp.take_along_axis(c, which, axis=-1)[..., 0])
        return select(long, found, found.map(jnp.zeros_like))

    highest = jnp.argmax(height, axis=-1)[..., None]
    corner = corners.map(lambda c: jnp.take_along_axis(c, highest, axis=-1)[..., 0])
    away = corners - corner[..., None]
    first = farthest(away)
    _, along = length_and_direction(first, first)
    return _Feature(corner, first, farthest(away - along[..., None] * dot(along[..., None], away)))
