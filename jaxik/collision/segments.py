"""Points and line segments, which swept by a radius are spheres and capsules."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.contact import Contact, roundings
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, clamped, cross, divide, dot, length_and_direction, perpendicular, upright


class Segment(NamedTuple):
    """All points `center + t half`, t in [-1, 1]."""

    center: Vector
    half: Vector

    def at(self, t: jax.Array) -> Vector:
        return self.center + self.half * t


def point_point(a: Vector, b: Vector) -> Contact:
    """Of coincident points the normal is the z axis."""
    apart = b - a
    distance, normal = length_and_direction(apart, upright(apart.x))
    return Contact(distance, normal, a)


def point_segment(a: Vector, b: Segment) -> Contact:
    """Of a point on the segment the normal is at a right angle to it."""
    t = materialize(_foot(a, b))
    apart = b.at(t) - a
    shortest = roundings(apart.x.dtype) * _extent(b.half, b.half)
    distance, normal = length_and_direction(apart, perpendicular(b.half), shortest)
    return Contact(distance, normal, a)


def segment_segment(a: Segment, b: Segment) -> Contact:
    """Of segments that cross the normal is at right angles to both."""
    # Else each component of point and normal would compute them again. From s alone t takes a quarter of the time of
    # both together: each would be a kernel with all of it.
    s = materialize(nearest_parameter(a, b))
    t = materialize(_foot(a.at(s), b))
    start = a.at(s)
    apart = b.at(t) - start
    extent = _extent(a.half, b.half)
    tiny = roundings(apart.x.dtype)
    area = cross(a.half, b.half)
    _, across = length_and_direction(area, perpendicular(a.half + b.half), tiny * extent * extent)
    distance, normal = length_and_direction(apart, across, tiny * extent)
    return Contact(distance, normal, start)


def nearest_parameter(a: Segment, b: Segment) -> jax.Array:
    """The parameter s of the point of a that is nearest to b.

    It is between those that are nearest to b's ends, on the lines through both: there, where the lines are nearest to
    each other (Ericson, Real-Time Collision Detection, 5.1.9). Of nearly parallel lines that is off by up to 4e-5 m:
    the two are tried as well.
    """
    apart = a.center - b.center
    aa, bb, ab = dot(a.half, a.half), dot(b.half, b.half), dot(a.half, b.half)
    along_a, along_b = dot(a.half, apart), dot(b.half, apart)
    per_a, per_b = divide(jnp.ones_like(aa), aa), divide(jnp.ones_like(bb), bb)
    low = clamped((-along_a - jnp.abs(ab)) * per_a)
    high = clamped((jnp.abs(ab) - along_a) * per_a)

    def squared(s: jax.Array) -> jax.Array:
        between = a.at(s) - b.at(clamped((ab * s + along_b) * per_b))
        return dot(between, between)

    s = clamped(divide(ab * along_b - along_a * bb, aa * bb - ab * ab), low, high)
    best = squared(s)
    for end in (low, high):
        found = squared(end)
        s, best = jnp.where(found < best, end, s), jnp.where(found < best, found, best)
    return s


def _foot(a: Vector, b: Segment) -> jax.Array:
    """The parameter of the point of a segment that is nearest to a point."""
    return clamped(divide(dot(a - b.center, b.half), dot(b.half, b.half)))


def _extent(a: Vector, b: Vector) -> jax.Array:
    """The larger length of two vectors, roughly."""

    def largest(v: Vector) -> jax.Array:
        x, y, z = (jnp.abs(c) for c in v.components)
        return jnp.maximum(x, jnp.maximum(y, z))

    return jnp.maximum(largest(a), largest(b))
