"""Two boxes by separating axes (Gottschalk et al. 1996): whether they overlap, and the shortest way out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.collision.boxes import Box
from jaxik.collision.contact import Contact
from jaxik.numerics.custom_rules import with_derivative_of
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, cross, dot, length_and_direction, perpendicular, select


def separation(a: Box, b: Box) -> Contact:
    """Two boxes along the axis, of 15, on which they are farthest apart, or overlap least.

    Of boxes that overlap, that is the distance. Of others it is never more than the distance, and less only where
    corners or edges are nearest to each other that no axis is at right angles to. It is a tenth of `box_box`'s work.
    """
    apart = b.center - a.center
    distance, number = map(materialize, _widest(*lax.stop_gradient((a, b, apart))))
    axis = _axis(a, b, number)
    normal = select(dot(axis, apart) < 0, -axis, axis).map(materialize)
    # Nobody differentiates the other 14.
    distance = with_derivative_of(distance, dot(normal, apart) - a.reach(normal) - b.reach(normal))
    return Contact(distance, normal, _point_at_axis(a, b, normal, number))


def _widest(a: Box, b: Box, apart: Vector) -> tuple[jax.Array, jax.Array]:
    """How far apart the boxes are on the best axis, and its number.

    0, 1, 2: a's axes; 3, 4, 5: b's; then at right angles to a's x and b's x, y, z, and so on. All in the cosines of the
    angles between axes, and without a loop: XLA makes one kernel of it, 12 times as fast.
    """
    cosines = [[dot(x, y) for y in b.axes] for x in a.axes]
    sizes = [[jnp.abs(c) for c in row] for row in cosines]
    along_a, along_b = [dot(x, apart) for x in a.axes], [dot(y, apart) for y in b.axes]
    half_a, half_b = a.half.components, b.half.components
    widths = [jnp.abs(along_a[i]) - half_a[i] - _sum(half_b, sizes[i]) for i in range(3)]
    widths += [jnp.abs(along_b[j]) - half_b[j] - _sum(half_a, [row[j] for row in sizes]) for j in range(3)]
    shortest = jnp.finfo(apart.x.dtype).eps
    for i in range(3):
        i1, i2 = (i + 1) % 3, (i + 2) % 3
        for j in range(3):
            j1, j2 = (j + 1) % 3, (j + 2) % 3
            squared = cosines[i1][j] ** 2 + cosines[i2][j] ** 2
            parallel = squared <= shortest
            radius_a = half_a[i1] * sizes[i2][j] + half_a[i2] * sizes[i1][j]
            radius_b = half_b[j1] * sizes[i][j2] + half_b[j2] * sizes[i][j1]
            across = jnp.abs(along_a[i2] * cosines[i1][j] - along_a[i1] * cosines[i2][j])
            width = (across - radius_a - radius_b) / jnp.sqrt(jnp.where(parallel, 1, squared))
            widths.append(jnp.where(parallel, -jnp.inf, width))
    best, number = widths[0], jnp.zeros_like(widths[0])
    for i, width in enumerate(widths[1:], start=1):
        best, number = jnp.maximum(best, width), jnp.where(width > best, i, number)
    return best, number


def _sum(half: tuple[jax.Array, ...], sizes: list[jax.Array]) -> jax.Array:
    return half[0] * sizes[0] + half[1] * sizes[1] + half[2] * sizes[2]


def _axis(a: Box, b: Box, number: jax.Array) -> Vector:
    """The axis of a number, of either sign."""
    axis_a = _chosen(a.axes, jnp.where(number < 3, number, _place_a(number)))
    axis_b = _chosen(b.axes, jnp.where(number < 6, number - 3, _place_b(number)))
    _, across = length_and_direction(cross(axis_a, axis_b), perpendicular(axis_a))
    return select(number < 3, axis_a, select(number < 6, axis_b, across))


def _chosen(axes: tuple[Vector, Vector, Vector], place: jax.Array) -> Vector:
    x, y, z = axes
    return select(place == 0, x, select(place == 1, y, z))


def _place_a(number: jax.Array) -> jax.Array:
    """Which of a's axes (0, 1 or 2) an axis at right angles to one of each box belongs to."""
    # A half more than 6: a third of a multiple of 3 may be rounded down.
    return jnp.floor((number - 5.5) / 3)


def _place_b(number: jax.Array) -> jax.Array:
    return number - 6 - 3 * _place_a(number)


def _point_at_axis(a: Box, b: Box, normal: Vector, number: jax.Array) -> Vector:
    """Where boxes meet along an axis: a corner of one meets a face, or two edges pass each other."""
    corner_a, corner_b = a.support(normal), b.support(-normal)
    edge_a, edge_b = _edge(a, normal, _place_a(number)), _edge(b, -normal, _place_b(number))
    # By directions of unit length: of an edge of 1e-6 m, the derivative of a share of it is past float32's range.
    area, between = cross(edge_a.direction, edge_b.direction), corner_b - corner_a
    squared = dot(area, area)
    parallel = squared <= jnp.finfo(squared.dtype).eps
    passing = dot(cross(between, edge_b.direction), area) / jnp.where(parallel, 1, squared)
    passing = materialize(jnp.clip(passing, -edge_a.length, 0))
    # Not by the distance: who asks for points alone would compute all widths again.
    gap = materialize(dot(normal, between))
    on_face = select(number < 3, corner_b - normal * gap, corner_a)
    return select(number < 6, on_face, corner_a + edge_a.direction * passing)


class _Edge(NamedTuple):
    """All points `corner + t direction`, t in [-length, 0], of the corner that it belongs to."""

    direction: Vector
    length: jax.Array


def _edge(box: Box, outward: Vector, place: jax.Array) -> _Edge:
    """The edge along one of the box's axes through the corner that is farthest in a direction of the world."""
    # As `Box.support` chooses the corner; by the corner itself, each component of a point would look for it again.
    local = box.inward(outward).map(materialize).components
    sign = jnp.where(_entry(local, place) < 0, -1, 1)
    return _Edge(_chosen(box.axes, place) * sign, 2 * _entry(box.half.components, place))


def _entry(entries: tuple[jax.Array, jax.Array, jax.Array], place: jax.Array) -> jax.Array:
    x, y, z = entries
    return jnp.where(place == 0, x, jnp.where(place == 1, y, z))
