"""Two boxes: apart by their edges and corners, overlapping by separating axes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.collision.boxes import Box, clipped, nearest_parameter, point_box
from jaxik.collision.contact import Contact, either, roundings
from jaxik.collision.segments import Segment
from jaxik.collision.separating_axes import separation
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, dot, select

# The signs of a box's corners, and of the middles of its edges with the axis that each edge is along.
_SIGNS = (-1.0, 1.0)
_CORNERS = np.array([(x, y, z) for x in _SIGNS for y in _SIGNS for z in _SIGNS])
_EDGE_AXES = np.repeat(np.eye(3), 4, axis=0)
_EDGE_MIDDLES = np.array([np.insert((a, b), axis, 0) for axis in range(3) for a in _SIGNS for b in _SIGNS])


def box_box(a: Box, b: Box) -> Contact:
    """Of boxes that overlap the distance is the shortest way out."""
    apart, overlapping = _apart(a, b), separation(a, b)
    # An edge of b may pierce a face of a and touch none of its edges: only the axes tell. A gap of a few roundings has
    # no direction of its own.
    tiny = roundings(apart.distance.dtype) * jnp.maximum(a.extent, b.extent)
    return either((overlapping.distance > 0) & (apart.distance > tiny), apart, overlapping)


def _apart(a: Box, b: Box) -> Contact:
    """Of boxes that do not overlap: one of a's edges is nearest, or one of b's corners to a face of a."""

    def scaled(signs: jax.Array, half: Vector) -> Vector:
        return Vector(signs[0] * half.x, signs[1] * half.y, signs[2] * half.z)

    def edge(best: _Nearest, signs: tuple[jax.Array, jax.Array]) -> tuple[_Nearest, None]:
        middle, along = (scaled(s, a.half) for s in signs)
        segment = Segment(a.center + a.outward(middle), a.outward(along))
        local = Segment(b.inward(segment.center - b.center), b.inward(segment.half))
        t = materialize(nearest_parameter(local, b.half))
        return best.or_nearer(_squared_from_box(local.at(t), b), middle + along * t), None

    def corner(best: _Nearest, signs: jax.Array) -> tuple[_Nearest, None]:
        local = a.inward(b.center + b.outward(scaled(signs, b.half)) - a.center)
        return best.or_nearer(_squared_from_box(local, a), clipped(local, a.half)), None

    dtype = a.half.x.dtype
    middles, axes, corners = (jnp.asarray(x, dtype) for x in (_EDGE_MIDDLES, _EDGE_AXES, _CORNERS))
    offset = b.center - a.center
    best = _Nearest(jnp.full_like(offset.x, jnp.inf), offset)
    best, _ = lax.scan(edge, best, (middles, axes))
    best, _ = lax.scan(corner, best, corners)
    return point_box(a.center + a.outward(best.point), b)


class _Nearest(NamedTuple):
    """The least squared distance so far, and a's point in a's axes."""

    squared: jax.Array
    point: Vector

    def or_nearer(self, squared: jax.Array, point: Vector) -> "_Nearest":
        closer = squared < self.squared
        return _Nearest(jnp.where(closer, squared, self.squared), select(closer, point, self.point))


def _squared_from_box(local: Vector, box: Box) -> jax.Array:
    apart = local - clipped(local, box.half)
    return dot(apart, apart)
