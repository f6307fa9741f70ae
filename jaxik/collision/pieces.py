"""Pieces of a robot's shapes, as capsules, and obstacles of no shape: grids of distances and clouds of points.

What encloses a shape is cut, so that a long link has a row for each part of it that is near.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.contact import Contact
from jaxik.collision.enclosing import enclosing_capsules
from jaxik.collision.pairs import piece_counts
from jaxik.collision.segments import Segment, point_segment
from jaxik.kinematics.geometry import Geometry
from jaxik.numerics.fusion import materialize
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.vectors import Vector, divide, dot, from_array, length_and_direction, upright

# Points of each piece at which a grid is looked up.
LOOKED_UP = 4


class Grid(NamedTuple):
    """Lower bounds of distances in a box, and beyond it.

    Attributes:
      corner: where the first node is, in the world; axes: of the box.
      cell (): distance of two nodes [m].
      values (nx, ny, nz) [m]: at the nodes.
    """

    corner: Vector
    axes: tuple[Vector, Vector, Vector]
    cell: jax.Array
    values: jax.Array


class Cloud(NamedTuple):
    """Points (m,) with a radius each; -inf of those that are masked."""

    position: Vector
    radius: jax.Array


def pieces(geometry: Geometry, rotation: jax.Array, position: jax.Array) -> tuple[Segment, jax.Array]:
    """Segments (n,) and radii (n,) of the pieces of all shapes, shape after shape.

    Args:
      rotation (n, 3, 3), position (n, 3): of the bodies that carry the shapes.
    """
    whole, radius = enclosing_capsules(geometry, rotation, position)
    counts = piece_counts(geometry.kinds)
    shapes = [i for i, count in enumerate(counts) for _ in range(count)]
    shares = jnp.asarray([1 / count for count in counts for _ in range(count)], radius.dtype)
    middles = jnp.asarray([(2 * k + 1) / count - 1 for count in counts for k in range(count)], radius.dtype)
    cut = jax.tree.map(lambda x: static_gather(x, shapes), whole)
    return Segment(cut.at(middles), cut.half * shares), static_gather(radius, shapes)


def piece_grid(a: Segment, b: Grid) -> Contact:
    """The least of what is known at some points of a segment, less what it may shrink by between two of them."""
    reach = jnp.sqrt(dot(a.half, a.half)) / LOOKED_UP
    best, at = jnp.full_like(reach, jnp.inf), jnp.zeros_like(reach)
    for k in range(LOOKED_UP):
        t = (2 * k + 1) / LOOKED_UP - 1
        value, _ = _lookup(a.at(jnp.asarray(t, reach.dtype)), b)
        best, at = jnp.minimum(value, best), jnp.where(value < best, t, at)
    point = a.at(materialize(at))
    _, slope = _lookup(point, b)
    _, away = length_and_direction(slope, upright(reach))
    return Contact(best - reach, -away, point)


def _lookup(point: Vector, grid: Grid) -> tuple[jax.Array, Vector]:
    """A lower bound of the distance of points (p,) from what a grid describes, and its slope, of any length.

    Between nodes a distance differs from what is interpolated by no more than half a cell's diagonal. What is nearest
    to a point beyond the box is in the box, and so not nearer than the point of the box that is nearest, squared.
    """
    apart = point - grid.corner
    place = Vector(*(dot(axis, apart) / grid.cell for axis in grid.axes))
    sizes = grid.values.shape
    inside = Vector(*(jnp.clip(c, 0, n - 1) for c, n in zip(place.components, sizes, strict=True)))
    first = [jnp.clip(jnp.floor(c), 0, n - 2) for c, n in zip(inside.components, sizes, strict=True)]
    share = [c - f for c, f in zip(inside.components, first, strict=True)]
    x, y, z = (f.astype(jnp.int32) for f in first)
    flat = (x * sizes[1] + y) * sizes[2] + z
    values = grid.values.reshape(-1)
    corners = {
        (i, j, k): values[flat + (i * sizes[1] + j) * sizes[2] + k] for i in (0, 1) for j in (0, 1) for k in (0, 1)
    }
    value, *slopes = _interpolated(corners, share)
    known = value - jnp.sqrt(3.0).astype(value.dtype) / 2 * grid.cell
    out = (place - inside) * grid.cell
    beyond, outward = length_and_direction(out, out.map(jnp.zeros_like))
    positive = known > 0
    far = jnp.sqrt(jnp.where(positive, known * known + beyond * beyond, 1))
    found = jnp.where(positive, far, known + beyond)
    # Along what is clipped the lookup does not change.
    within = [jnp.where(o == 0, s / grid.cell, 0) for s, o in zip(slopes, out.components, strict=True)]
    weight_in, weight_out = jnp.where(positive, known / far, 1), jnp.where(positive, beyond / far, 1)
    local = [weight_in * s + weight_out * o for s, o in zip(within, outward.components, strict=True)]
    along = [axis * s for axis, s in zip(grid.axes, local, strict=True)]
    return found, along[0] + along[1] + along[2]


def _interpolated(corners: dict[tuple[int, int, int], jax.Array], share: list[jax.Array]) -> tuple[jax.Array, ...]:
    """Value and slopes, for each cell, of what is linear along each axis of a cell."""
    u, v, w = share
    edges = {(j, k): (1 - u) * corners[0, j, k] + u * corners[1, j, k] for j in (0, 1) for k in (0, 1)}
    rises = {(j, k): corners[1, j, k] - corners[0, j, k] for j in (0, 1) for k in (0, 1)}
    faces = [(1 - v) * edges[0, k] + v * edges[1, k] for k in (0, 1)]
    along_x = [(1 - v) * rises[0, k] + v * rises[1, k] for k in (0, 1)]
    along_y = [edges[1, k] - edges[0, k] for k in (0, 1)]
    value = (1 - w) * faces[0] + w * faces[1]
    return value, (1 - w) * along_x[0] + w * along_x[1], (1 - w) * along_y[0] + w * along_y[1], faces[1] - faces[0]


def piece_cloud(a: Segment, b: Cloud) -> Contact:
    """The nearest point of a cloud, by its own radius."""

    def each(x: jax.Array) -> jax.Array:
        return x[:, None]

    center, half = a.center.map(each), a.half.map(each)
    apart = b.position.map(lambda c: c[None]) - center
    t = jnp.clip(divide(dot(apart, half), dot(half, half)), -1, 1)
    off = apart - half * t
    squared = dot(off, off)
    distance = jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0) - b.radius
    which = jnp.argmin(jax.lax.stop_gradient(distance), axis=1)
    # The least is taken without the index: where that is not asked for, it is not computed.
    radius = jnp.where(jnp.isfinite(b.radius), b.radius, 0)[which]
    contact = point_segment(b.position[which], a).swept(radius).reversed()
    return contact._replace(distance=jnp.min(distance, axis=1))


def cloud(position: jax.Array, radius: jax.Array, mask: jax.Array) -> Cloud:
    return Cloud(from_array(position), jnp.where(mask, radius, -jnp.inf))
