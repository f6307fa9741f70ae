"""The point of a tetrahedron that is nearest to the origin."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.contact import roundings
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, cross, divide, dot, select

Corners = tuple[Vector, Vector, Vector]

# Two of the three old corners, by the number of what is nearest: edges 0, 1, 2 to one of them; faces 3, 4, 5 to two.
_FIRST, _SECOND = (0, 1, 2, 1, 2, 0), (0, 1, 2, 2, 0, 1)


class Nearest(NamedTuple):
    """Where a tetrahedron is nearest to the origin: on the face of the new corner and two old ones.

    Attributes:
      number: which two, see `corners`.
      first, second: their shares of the point; the rest is the new corner's.
      inside: whether the origin is in the tetrahedron.
    """

    number: jax.Array
    first: jax.Array
    second: jax.Array
    inside: jax.Array

    def corners(self, old: Corners) -> tuple[Vector, Vector]:
        """The two of the old corners."""
        return _chosen(self.number, old, _FIRST), _chosen(self.number, old, _SECOND)

    def point(self, new: Vector, old: Corners) -> Vector:
        first, second = self.corners(old)
        return new + (first - new) * self.first + (second - new) * self.second


def nearest_to_origin(new: Vector, old: Corners) -> Nearest:
    """The nearest point of a tetrahedron, given that it is on a face, an edge or a corner that has the new corner.

    Corners may coincide. All three faces and three edges with their ends are looked at, and the nearest is taken: no
    branch is taken by a sign that rounding may turn.
    """
    u, v, w = edges = old[0] - new, old[1] - new, old[2] - new
    normals = cross(v, w), cross(w, u), cross(u, v)
    least, number = jnp.full_like(new.x, jnp.inf), jnp.zeros_like(new.x)
    for i, (first, second) in enumerate(zip(_FIRST, _SECOND, strict=True)):
        s, t, valid = _on_edge(new, edges[i]) if i < 3 else _on_face(new, edges[first], edges[second], normals[i - 3])
        point = new + edges[first] * s + edges[second] * t
        squared = dot(point, point)
        nearer = valid & (squared < least)
        least, number = jnp.where(nearer, squared, least), jnp.where(nearer, i, number)
    # Else each component of what follows would look for it again.
    number = materialize(number)
    first, second = (_chosen(number, edges, which) for which in (_FIRST, _SECOND))
    edge, face = _on_edge(new, first), _on_face(new, first, second, cross(first, second))
    s, t = (materialize(jnp.where(number < 3, x, y)) for x, y in zip(edge[:2], face[:2], strict=True))
    return Nearest(number, s, t, _is_inside(new, edges, normals))


def _on_edge(new: Vector, edge: Vector) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Shares of the end of an edge, and of nothing else; always valid."""
    t = jnp.clip(divide(-dot(edge, new), dot(edge, edge)), 0, 1)
    return t, jnp.zeros_like(t), jnp.ones_like(t, bool)


def _on_face(new: Vector, first: Vector, second: Vector, normal: Vector) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Shares of two corners of a face, and whether the nearest point of its plane is inside of it."""
    # By cross products: those of dot products are off by the square of what these are in a sliver.
    area, largest = dot(normal, normal), dot(first, first) * dot(second, second)
    sound = area > roundings(area.dtype) ** 2 * largest
    scale = 1 / jnp.where(sound, area, 1)
    s, t = dot(normal, cross(second, new)) * scale, dot(normal, cross(new, first)) * scale
    return s, t, sound & (s >= 0) & (t >= 0) & (s + t <= 1)


def _is_inside(new: Vector, edges: Corners, normals: Corners) -> jax.Array:
    volume, largest = dot(edges[0], normals[0]), dot(edges[0], edges[0]) * dot(edges[1], edges[1])
    x, y, z = (jnp.where(volume < 0, dot(new, n), -dot(new, n)) for n in normals)
    # Of corners that coincide, as all old ones do at first, the volume is rounding, and so is what is inside.
    solid = volume * volume > roundings(volume.dtype) ** 2 * largest * dot(edges[2], edges[2])
    return solid & (x > 0) & (y > 0) & (z > 0) & (x + y + z < jnp.abs(volume))


def _chosen(number: jax.Array, old: Corners, which: tuple[int, ...]) -> Vector:
    first, second = (
        (number == i) | (number == j) for i, j in ([n for n in range(6) if which[n] == place] for place in (0, 1))
    )
    return select(first, old[0], select(second, old[1], old[2]))
