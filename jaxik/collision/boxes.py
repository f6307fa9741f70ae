"""Boxes, with points and line segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.collision.contact import Contact, roundings
from jaxik.collision.segments import Segment
from jaxik.numerics.custom_rules import pure_rule
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, clamped, cross, divide, dot, length_and_direction, select

Axes = tuple[Vector, Vector, Vector]


class Box(NamedTuple):
    """Boxes: centre and axes in the world, half sizes along the axes."""

    center: Vector
    axes: Axes
    half: Vector

    def inward(self, v: Vector) -> Vector:
        """A direction of the world in the box's axes."""
        return Vector(*(dot(axis, v) for axis in self.axes))

    def outward(self, v: Vector) -> Vector:
        """A direction of the box's axes in the world."""
        x, y, z = self.axes
        return x * v.x + y * v.y + z * v.z

    def support(self, direction: Vector) -> Vector:
        """The corner that is farthest in a direction of the world."""
        # Of an axis at a right angle to the direction, rounding has the sign: the same one for each component.
        local = self.inward(direction).map(materialize)
        return self.center + self.outward(self.half.map(lambda h, d: jnp.where(d < 0, -h, h), local))

    def reach(self, direction: Vector) -> jax.Array:
        """How far the box stands out from its centre in a direction of the world, of unit length."""
        return dot(self.half, self.inward(direction).map(materialize).map(jnp.abs))

    @property
    def extent(self) -> jax.Array:
        return jnp.maximum(self.half.x, jnp.maximum(self.half.y, self.half.z))


def clipped(p: Vector, half: Vector) -> Vector:
    """The nearest point of a box around the origin."""
    return p.map(lambda c, h: jnp.clip(c, -h, h), half)


def beyond(p: Vector, half: Vector) -> Vector:
    """What takes a point to the outside of a box around the origin from the nearest point of it."""
    # By comparison: two thirds of the time that a difference to `clipped` takes.
    return p.map(lambda c, h: jnp.where(c > h, c - h, jnp.where(c < -h, c + h, 0)), half)


def point_box(a: Vector, b: Box) -> Contact:
    """Inside the box the distance is that to the nearest face."""
    local = b.inward(a - b.center)
    distance, direction = _outside(local, b)
    depth, face = _nearest_face(local, local.map(jnp.zeros_like), b.half)
    normal = b.outward(select(distance > 0, direction, -face))
    return Contact(jnp.where(distance > 0, distance, -depth), normal, a)


def segment_box(a: Segment, b: Box) -> Contact:
    """Of a segment that passes through the box the distance is the shortest way out of it."""
    local = Segment(b.inward(a.center - b.center), b.inward(a.half))
    # What is materialized here would be computed again for each component of point and normal.
    t = materialize(nearest_parameter(local, b.half))
    distance, direction = _outside(local.at(t), b)
    depth, axis = _shortest_way_out(*lax.stop_gradient((local, b.half)))
    out, t_inside = jax.tree.map(materialize, _way_out(local, b.half, materialize(axis)))
    apart = distance > 0
    normal = b.outward(select(apart, direction, -out))
    return Contact(jnp.where(apart, distance, -depth), normal, a.at(jnp.where(apart, t, t_inside)))


def _outside(local: Vector, b: Box) -> tuple[jax.Array, Vector]:
    """Distance of a point from a box around the origin, 0 inside, and the direction to it, in the box's axes."""
    return length_and_direction(-beyond(local, b.half), local, roundings(local.x.dtype) * b.extent)


@jax.custom_jvp
def nearest_parameter(local: Segment, half: Vector) -> jax.Array:
    """The parameter t of the point of a segment that is nearest to a box around the origin.

    The squared distance is convex in t, and its slope linear between the six planes of the faces: the root lies between
    the last plane with a slope of zero or below and the first with one of zero or above.
    """

    def slope(t: jax.Array, axes: Sequence[int] = (0, 1, 2)) -> jax.Array:
        """What some of the axes add to it."""
        parts = local.half.map(jnp.multiply, beyond(local.at(t), half)).components
        return sum((parts[i] for i in axes[1:]), parts[axes[0]])

    one = jnp.ones_like(local.center.x)
    low, high = -one, one
    slope_low, slope_high = slope(low), slope(high)
    for axis, others in enumerate(((1, 2), (0, 2), (0, 1))):
        along, center, h = (v.components[axis] for v in (local.half, local.center, half))
        inverse = divide(jnp.ones_like(along), along)
        for face in (-h, h):
            # On its own face an axis adds nothing.
            t = (face - center) * inverse
            value = slope(t, others)
            falls, rises = value <= 0, value >= 0
            low, slope_low = (jnp.where(falls & (y > x), y, x) for x, y in ((low, t), (slope_low, value)))
            high, slope_high = (jnp.where(rises & (y < x), y, x) for x, y in ((high, t), (slope_high, value)))
    root = low - divide(slope_low * (high - low), slope_high - slope_low)
    return clamped(jnp.where(slope_low >= 0, low, jnp.where(slope_high <= 0, high, root)))


@nearest_parameter.defjvp
@pure_rule
def _on_nearest_faces(primals: tuple[Segment, Vector], tangents: tuple[Segment, Vector]) -> tuple[jax.Array, jax.Array]:
    """The derivative while the same faces, edge or corner are nearest, which nobody looks for again."""
    t = nearest_parameter(*primals)

    def root(local: Segment, half: Vector) -> jax.Array:
        sides = lax.stop_gradient(beyond(local.at(t), half).map(jnp.sign))
        along = local.half.map(lambda h, side: jnp.where(side == 0, 0, h), sides)
        return divide(dot(along, sides.map(jnp.multiply, half) - local.center), dot(along, along))

    _, tangent = jax.jvp(root, primals, tangents)
    return t, jnp.where(jnp.abs(t) < 1, tangent, 0)


def _nearest_face(center: Vector, reach: Vector, half: Vector) -> tuple[jax.Array, Vector]:
    """The shortest way out of a box through a face: length and direction, in the box's axes.

    Args:
      center: of a body in the box's axes.
      reach: by how much the body stands out from its centre along each axis.
      half: sizes of the box.
    """
    x, y, z = _ways_through_faces(center, reach, half)
    axis = jnp.where((x <= y) & (x <= z), 0, jnp.where(y <= z, 1, 2))
    return jnp.minimum(x, jnp.minimum(y, z)), _face(center, axis)


def _ways_through_faces(center: Vector, reach: Vector, half: Vector) -> tuple[jax.Array, ...]:
    return tuple(
        h + r - jnp.abs(c) for h, r, c in zip(half.components, reach.components, center.components, strict=True)
    )


def _face(center: Vector, axis: jax.Array) -> Vector:
    """The outward normal of the face that is passed along an axis (0, 1 or 2) by what is around `center`."""
    return Vector(
        *(
            jnp.where(axis == i, jnp.where(c < 0, -1.0, 1.0), 0.0).astype(c.dtype)
            for i, c in enumerate(center.components)
        )
    )


def _shortest_way_out(local: Segment, half: Vector) -> tuple[jax.Array, jax.Array]:
    """The length and which of six separating axes is the shortest way of a segment out of a box around the origin.

    0, 1, 2: through a face; 3, 4, 5: past an edge along x, y, z, at a right angle to it and to the segment.
    """
    ways = [*_ways_through_faces(local.center, local.half.map(jnp.abs), half)]
    for axis in range(3):
        (u, v), (cu, cv), (hu, hv) = (_without(x, axis) for x in (local.half, local.center, half))
        squared = u * u + v * v
        parallel = _is_parallel(squared, local)
        way = hu * jnp.abs(v) + hv * jnp.abs(u) - jnp.abs(cu * v - cv * u)
        ways.append(jnp.where(parallel, jnp.inf, way / jnp.sqrt(jnp.where(parallel, 1, squared))))
    shortest, chosen = ways[0], jnp.zeros_like(ways[0])
    for axis, way in enumerate(ways[1:], start=1):
        chosen, shortest = jnp.where(way < shortest, axis, chosen), jnp.minimum(way, shortest)
    return shortest, chosen


def _without(v: Vector, axis: int) -> tuple[jax.Array, jax.Array]:
    """The other two components."""
    first, second = (c for i, c in enumerate(v.components) if i != axis)
    return first, second


def _is_parallel(squared: jax.Array, local: Segment) -> jax.Array:
    """Whether a segment is parallel to an axis, given the square of its half length at right angles to that."""
    return squared <= roundings(squared.dtype) * dot(local.half, local.half)


def _way_out(local: Segment, half: Vector, axis: jax.Array) -> tuple[Vector, jax.Array]:
    """The way out along one of six axes: its direction, and the parameter of the segment's deepest point."""
    face = _face(local.center, axis)
    # At a right angle to the segment and to an edge; of the segment, what is at a right angle to the edge.
    edge = Vector(*(jnp.where(axis == 3 + i, 1.0, 0.0).astype(c.dtype) for i, c in enumerate(half.components)))
    flat = local.half.map(lambda h, e: jnp.where(e > 0, 0, h), edge)
    squared = dot(flat, flat)
    past = cross(flat, edge) * (1 / jnp.sqrt(jnp.where(_is_parallel(squared, local), 1, squared)))
    past = select(dot(past, local.center) < 0, -past, past)
    # Where the segment passes the edge: the parameter at which both are in one plane with the axis.
    corner = half.map(lambda h, n: jnp.where(n < 0, -h, h), past)
    passing = jnp.clip(divide(dot(corner - local.center, flat), squared), -1, 1)
    end = jnp.where(dot(local.half, face) > 0, -1.0, 1.0).astype(axis.dtype)
    return select(axis < 3, face, past), jnp.where(axis < 3, end, passing)
