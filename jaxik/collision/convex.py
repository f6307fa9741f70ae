"""Convex shapes by what is farthest on them in a direction: all that is asked of them where no closed form is known."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.collision.boxes import Box
from jaxik.collision.contact import Contact
from jaxik.collision.planes import HalfSpace
from jaxik.collision.segments import Segment
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, dot, length_and_direction, select, upright

# How many corners of a hull are compared in one piece of code: more compile longer, fewer pass more over memory.
CORNERS_AT_ONCE = 16
# What `Primitive.form` says.
BOX, CYLINDER, ELLIPSOID = 0, 1, 2


class Primitive(NamedTuple):
    """Boxes, cylinders along z and ellipsoids, by the boxes around them; points and segments as boxes without width.

    They are of one type so that a program has one copy of the formulas for all pairs of them: 2 to 3 s to compile each.

    Attributes:
      box: axes are of length 1, or, of points and segments, any.
      form: `BOX`, `CYLINDER` or `ELLIPSOID`, as floating point numbers.
    """

    box: Box
    form: jax.Array

    @property
    def center(self) -> Vector:
        return self.box.center

    @property
    def extent(self) -> jax.Array:
        """The largest distance along an axis from the centre to a point."""
        sizes = [jnp.sqrt(dot(x, x)) * h for x, h in zip(self.box.axes, self.box.half.components, strict=True)]
        return jnp.maximum(sizes[0], jnp.maximum(sizes[1], sizes[2]))

    def inner(self) -> Vector:
        """From the centre to a point inside."""
        return self.center.map(jnp.zeros_like)

    def reach(self, direction: Vector) -> Vector:
        """From the centre to the point that is farthest in a direction of the world."""
        local, half = self.box.inward(direction).map(materialize), self.box.half
        corner = half.map(lambda h, d: jnp.where(d < 0, -h, h), local)
        none = local.map(jnp.zeros_like)
        flat = Vector(local.x, local.y, none.z)
        _, rim = length_and_direction(flat, none)
        _, scaled = length_and_direction(local.map(jnp.multiply, half), none)
        rounded = select(self.form == CYLINDER, Vector(rim.x * half.x, rim.y * half.x, corner.z), corner)
        return self.box.outward(select(self.form == ELLIPSOID, scaled.map(jnp.multiply, half), rounded))


class Hull(NamedTuple):
    """Convex hulls of corners (..., k) in the axes of the boxes that enclose them, around their centres."""

    box: Box
    corners: Vector

    @property
    def center(self) -> Vector:
        return self.box.center

    @property
    def extent(self) -> jax.Array:
        return self.box.extent

    def inner(self) -> Vector:
        """From the centre to a point inside, as the centre of the box need not be."""
        return self.box.outward(self.corners.map(lambda c: jnp.mean(c, axis=-1)))

    def reach(self, direction: Vector) -> Vector:
        return self.box.outward(farthest(self.corners, self.box.inward(direction)))


Convex = Primitive | Hull


def of_box(box: Box) -> Primitive:
    return Primitive(box, jnp.full_like(box.center.x, BOX))


def of_point(point: Vector) -> Primitive:
    return of_segment(Segment(point, point.map(jnp.zeros_like)))


def of_segment(segment: Segment) -> Primitive:
    """As long as its third axis, whatever that is."""
    none = segment.half.map(jnp.zeros_like)
    return of_box(Box(segment.center, (none, none, segment.half), upright(segment.half.x)))


def probes(a: Convex, b: Convex) -> tuple[Vector, ...]:
    """Directions, of any length or none, along which a shape is likely to be left by the shortest way."""
    return *a.box.axes, *b.box.axes


def farthest(corners: Vector, direction: Vector) -> Vector:
    """The corner, of (..., k), that is farthest in a direction (...) of the same axes; of equal ones the first."""
    return at_number(corners, farthest_number(corners, direction))


def at_number(corners: Vector, number: jax.Array) -> Vector:
    return corners.map(lambda c: jnp.take_along_axis(c, number.astype(int)[..., None], axis=-1)[..., 0])


def farthest_number(corners: Vector, direction: Vector) -> jax.Array:
    lowest = jnp.full_like(direction.x, -jnp.inf)
    best = lowest, jnp.zeros_like(lowest)
    count = corners.x.shape[-1]
    if count <= CORNERS_AT_ONCE:
        return materialize(_compared(best, corners, direction, jnp.zeros(()))[1])
    spare = -count % CORNERS_AT_ONCE

    def in_pieces(c: jax.Array) -> jax.Array:
        full = jnp.concatenate([c, jnp.broadcast_to(c[..., :1], (*c.shape[:-1], spare))], axis=-1)
        return jnp.moveaxis(full.reshape(*c.shape[:-1], -1, CORNERS_AT_ONCE), -2, 0)

    def piece(best: tuple[jax.Array, jax.Array], each: tuple[Vector, jax.Array]) -> tuple[tuple, None]:
        return _compared(best, each[0], direction, each[1]), None

    (_, number), _ = lax.scan(piece, best, (corners.map(in_pieces), jnp.arange(0.0, count, CORNERS_AT_ONCE)))
    return jnp.where(number < count, number, 0)


def _compared(
    best: tuple[jax.Array, jax.Array], corners: Vector, direction: Vector, start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The higher of the best so far and of corners (..., k), which are numbered from `start`."""
    height, number = best
    for k in range(corners.x.shape[-1]):
        along = dot(corners[..., k], direction)
        higher = along > height
        height = jnp.where(higher, along, height)
        number = jnp.where(higher, (start + k).astype(number.dtype), number)
    return height, number


def convex_plane(a: Convex, b: HalfSpace) -> Contact:
    return b.under(a.center + a.reach(-b.normal))
