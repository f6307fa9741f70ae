"""What is known of a pair of shapes: how far they are apart, in which direction, and where."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.vectors import Vector, select


class Contact(NamedTuple):
    """Signed distance of shapes a and b, for any batch shape.

    Attributes:
      distance [m]: below zero where they overlap: by so much b has to move along the normal.
      normal: unit vector from a to b.
      point: the point of a's surface that is nearest to b, or deepest in it; `point + distance normal` is b's.
    """

    distance: jax.Array
    normal: Vector
    point: Vector

    @property
    def point_of_b(self) -> Vector:
        return self.point + self.normal * self.distance

    def reversed(self) -> Contact:
        """Of b and a."""
        return Contact(self.distance, -self.normal, self.point_of_b)

    def swept(self, radius_of_a: Any, radius_of_b: Any = 0) -> Contact:
        """Of the same shapes, each with all points nearer to it than its radius."""
        return Contact(self.distance - radius_of_a - radius_of_b, self.normal, self.point + self.normal * radius_of_a)


def either(condition: jax.Array, a: Contact, b: Contact) -> Contact:
    """`a` where the condition holds, else `b`."""
    return Contact(
        jnp.where(condition, a.distance, b.distance),
        select(condition, a.normal, b.normal),
        select(condition, a.point, b.point),
    )


def roundings(dtype: Any) -> float:
    """The share of a pair's extent below which a length is rounding, and has no direction."""
    return 16 * float(jnp.finfo(dtype).eps)
