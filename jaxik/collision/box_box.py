"""Two boxes: apart by their edges and corners, overlapping by separating axes."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.collision.boxes import Box, clipped, nearest_parameter, point_box
from jaxik.collision.contact import Contact, either, roundings
from jaxik.collision.segments import Segment, closest_parameters
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, cross, dot, length_and_direction, perpendicular, select

# The signs of a box's corners, and of the middles of its edges with the axis that each edge is along.
_SIGNS = (-1.0, 1.0)
_CORNERS = np.array([(x, y, z) for x in _SIGNS for y in _SIGNS for z in _SIGNS])
_EDGE_AXES = np.repeat(np.eye(3), 4, axis=0)
_EDGE_MIDDLES = np.array([np.insert((a, b), axis, 0) for axis in range(3) for a in _SIGNS for b in _SIGNS])


def box_box(a: Box, b: Box) -> Contact:
    """Of boxes that overlap the distance is the shortest way out, by separating axes (Gottschalk et al. 1996)."""
    apart, overlapping = _apart(a, b), _overlapping(a, b)
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
    separation = b.center - a.center
    best = _Nearest(jnp.full_like(separation.x, jnp.inf), separation)
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


def _overlapping(a: Box, b: Box) -> Contact:
    """The axis of 15 along which boxes overlap least, or are farthest apart."""
    separation = b.center - a.center

    def wider(best: _Axis, number: jax.Array, axis: Vector, valid: Any) -> tuple[_Axis, None]:
        distance = jnp.abs(dot(axis, separation)) - _radius(a, axis) - _radius(b, axis)
        wider = valid & (distance > best.distance)
        fields = _Axis(distance, jnp.broadcast_to(number, distance.shape), axis)
        return jax.tree.map(functools.partial(jnp.where, wider), fields, best), None

    def face(best: _Axis, found: tuple[jax.Array, Vector]) -> tuple[_Axis, None]:
        return wider(best, *found, True)

    def edges(best: _Axis, found: tuple[jax.Array, Vector, Vector]) -> tuple[_Axis, None]:
        number, axis_a, axis_b = found
        shortest = jnp.finfo(separation.x.dtype).eps ** 0.5
        length, axis = length_and_direction(cross(axis_a, axis_b), perpendicular(axis_a), shortest)
        return wider(best, number, axis, length > 0)

    shape, dtype = separation.x.shape, separation.x.dtype
    best = _Axis(jnp.full(shape, -jnp.inf, dtype), jnp.zeros(shape, dtype), separation.map(jnp.zeros_like))
    numbers = jnp.arange(15, dtype=dtype)
    best, _ = lax.scan(face, best, (numbers[:6], _stacked([*a.axes, *b.axes], shape)))
    every_a, every_b = [axis for axis in a.axes for _ in b.axes], [*b.axes] * 3
    best, _ = lax.scan(edges, best, (numbers[6:], _stacked(every_a, shape), _stacked(every_b, shape)))
    return _at_axis(a, b, separation, best)


class _Axis(NamedTuple):
    """The axis along which two boxes are farthest apart so far.

    Attributes:
      distance: along it.
      number: 0, 1, 2: a's axes; 3, 4, 5: b's; then a's x with b's x, y, z, and so on.
      axis: of either sign.
    """

    distance: jax.Array
    number: jax.Array
    axis: Vector


def _at_axis(a: Box, b: Box, separation: Vector, best: _Axis) -> Contact:
    """The contact along an axis: at a corner of one box that meets a face, or where two edges pass each other."""
    normal = select(dot(best.axis, separation) < 0, -best.axis, best.axis)
    corner_a, corner_b = a.support(normal), b.support(-normal)
    pair = best.number - 6

    def edge(box: Box, corner: Vector, place: jax.Array) -> Segment:
        x, y, z = (axis * h for axis, h in zip(box.axes, box.half.components, strict=True))
        along = select(place == 0, x, select(place == 1, y, z))
        sign = jnp.where(dot(corner - box.center, along) < 0, -1, 1)
        return Segment(corner - along * sign, along)

    first = edge(a, corner_a, jnp.floor(pair / 3))
    s, _ = closest_parameters(first, edge(b, corner_b, pair - 3 * jnp.floor(pair / 3)))
    # Of an edge of 1e-6 m, the derivative of the parameter is past float32's range.
    s = lax.stop_gradient(materialize(s))
    on_face = select(best.number < 3, corner_b - normal * best.distance, corner_a)
    return Contact(best.distance, normal, select(best.number < 6, on_face, first.at(s)))


def _stacked(vectors: list[Vector], shape: tuple[int, ...]) -> Vector:
    """Vectors of a shape that broadcasts to `shape`, one after the other along a new leading axis."""
    return jax.tree.map(lambda *c: jnp.stack([jnp.broadcast_to(x, shape) for x in c]), *vectors)


def _radius(box: Box, axis: Vector) -> jax.Array:
    return dot(box.inward(axis).map(jnp.abs), box.half)
