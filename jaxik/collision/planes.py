"""Half spaces, with points, line segments and boxes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.boxes import Box
from jaxik.collision.contact import Contact
from jaxik.collision.segments import Segment
from jaxik.numerics.vectors import Vector, dot


class HalfSpace(NamedTuple):
    """All points with `normal . p <= offset`: the solid below a floor."""

    normal: Vector
    offset: jax.Array

    def under(self, point: Vector) -> Contact:
        """Of a point."""
        return Contact(dot(self.normal, point) - self.offset, -self.normal, point)


def point_plane(a: Vector, b: HalfSpace) -> Contact:
    return b.under(a)


def segment_plane(a: Segment, b: HalfSpace) -> Contact:
    return b.under(a.at(jnp.where(dot(a.half, b.normal) > 0, -1.0, 1.0)))


def box_plane(a: Box, b: HalfSpace) -> Contact:
    return b.under(a.support(-b.normal))
