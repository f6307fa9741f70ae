"""Distances of one configuration: of all pairs, class by class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.collision.box_box import box_box
from jaxik.collision.boxes import point_box, segment_box
from jaxik.collision.contact import Contact, either
from jaxik.collision.convex import convex_plane
from jaxik.collision.gjk import convex_convex
from jaxik.collision.material_points import contact_by_points
from jaxik.collision.pairs import PIECE, PRIMITIVE, NamedPairs, PairClass, PairTable, pair_table, shape_list
from jaxik.collision.pieces import piece_cloud, piece_grid
from jaxik.collision.planes import box_plane, point_plane, segment_plane
from jaxik.collision.segments import point_point, point_segment, segment_segment
from jaxik.collision.separating_axes import separation
from jaxik.collision.shapes import Field, Swept, all_shapes
from jaxik.collision.world import World
from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.geometry import Geometry
from jaxik.kinematics.topology import Topology
from jaxik.numerics.fusion import materialize
from jaxik.numerics.vectors import Vector, cross, to_array

PairFunctions = dict[tuple[str, str], Callable[[Any, Any], Contact]]

PAIRS: PairFunctions = {
    ("sphere", "sphere"): point_point,
    ("sphere", "capsule"): point_segment,
    ("sphere", "box"): point_box,
    ("sphere", "plane"): point_plane,
    ("capsule", "capsule"): segment_segment,
    ("capsule", "box"): segment_box,
    ("capsule", "plane"): segment_plane,
    ("box", "box"): box_box,
    ("box", "plane"): box_plane,
    (PRIMITIVE, PRIMITIVE): convex_convex,
    (PRIMITIVE, "hull"): convex_convex,
    (PRIMITIVE, "plane"): convex_plane,
    ("hull", "hull"): convex_convex,
    ("hull", "plane"): convex_plane,
    (PIECE, "field"): piece_grid,
    (PIECE, "points"): piece_cloud,
}
"""Contacts of two cores, of shapes before they are swept by a radius, by the kinds of a `PairClass`."""

BY_POINTS = {point_point, point_segment, point_box, segment_segment, segment_box, box_box}
"""Those of which the distance changes by its points of contact."""

SEPARATIONS = {**PAIRS, ("box", "box"): separation}
"""The same, where a number that is never above the distance, and has its sign, will do."""


# Of all pairs of two ranges of shapes, the share that a class has at least if all are looked at: what a pair takes from
# its two shapes is then read where it stands, and not copied, which takes half as long as the distance of two shapes.
DENSE = 0.4
# Kinds whose formulas take shapes (n, 1) and (1, m).
IN_GRIDS = ("sphere", "capsule", "box")


class PairGrid(NamedTuple):
    """All pairs of two ranges of shapes, from and to."""

    first: tuple[int, int]
    second: tuple[int, int]


class Operands(NamedTuple):
    """Pairs of a class.

    Attributes:
      kinds: of the first and the second shapes.
      first, second: all shapes of these kinds.
      rows: the first and the second shape of each pair (p,), among these.
      turned (p,): bool, which pairs are named the other way round; None for none.
      few: whether these are some of the pairs, which differ between elements of a batch.
      grid: where most shapes of a range have a pair with most of another, both ranges; None elsewhere.
    """

    kinds: tuple[str, str]
    first: Swept
    second: Swept
    rows: tuple[jax.Array, jax.Array]
    turned: jax.Array | None
    few: bool = False
    grid: PairGrid | None = None

    def take(self, which: jax.Array) -> Operands:
        """Some of the pairs (k,)."""
        rows = self.rows[0][which], self.rows[1][which]
        turned = None if self.turned is None else self.turned[which]
        return self._replace(few=True, rows=rows, turned=turned, grid=None)


def operands(geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics) -> list[Operands]:
    """The pairs of each class, in the world."""
    return operands_of(all_shapes(geometry, world, kin), table)


def operands_of(shapes: dict[str, Swept], table: PairTable) -> list[Operands]:
    """The pairs of each class, among shapes by kind."""

    def of_class(pairs: PairClass) -> Operands:
        first, second = (shapes[kind] for kind in pairs.kinds)
        rows = jnp.asarray(pairs.rows[0]), jnp.asarray(pairs.rows[1])
        turned = jnp.asarray(pairs.turned) if any(pairs.turned) else None
        return Operands(pairs.kinds, first, second, rows, turned, grid=_grid(pairs))

    return [of_class(pairs) for pairs in table.classes]


def _grid(pairs: PairClass) -> PairGrid | None:
    ranges = [(min(rows), max(rows) + 1) for rows in pairs.rows]
    size = np.prod([end - start for start, end in ranges])
    return PairGrid(*ranges) if len(pairs.turned) >= DENSE * size and {*pairs.kinds} <= {*IN_GRIDS} else None


def contact_of(given: Operands, pairs: PairFunctions = PAIRS) -> Contact:
    """The pairs (p,) of one class; an obstacle that is masked is infinitely far away."""
    return _contact(pairs[given.kinds], given.few, given.grid, given.first, given.second, given.rows, given.turned)


# A program looks at the same pairs in many places: traced once, `search` is traced in half of the time.
@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _contact(
    function: Callable[[Any, Any], Contact],
    few: bool,
    grid: PairGrid | None,
    first: Swept,
    second: Swept,
    rows: tuple[jax.Array, jax.Array],
    turned: jax.Array | None,
) -> Contact:
    take = _gathered_at_once if few else gathered
    if grid is None:
        a, b = take(first, rows[0]), take(second, rows[1])
    else:
        a = jax.tree.map(lambda x: x[slice(*grid.first)][:, None], first)
        b = jax.tree.map(lambda x: x[slice(*grid.second)][None], second)
    contact = contact_by_points(function, a.core, b.core) if function in BY_POINTS else function(a.core, b.core)
    contact, exists = contact.swept(a.radius, b.radius), a.exists & b.exists
    if grid is not None:
        place = (rows[0] - grid.first[0]) * (grid.second[1] - grid.second[0]) + rows[1] - grid.second[0]
        contact, exists = jax.tree.map(lambda x: x.reshape(-1)[place], (contact, exists))
    if turned is not None:
        contact = either(turned, contact.reversed(), contact)
    return contact._replace(distance=jnp.where(exists, contact.distance, jnp.inf))


def gathered(shapes: Swept, at: jax.Array) -> Swept:
    if isinstance(shapes.core, Field):  # there is one, for all pairs
        return shapes
    return jax.tree.map(lambda x: x[at], shapes)


def _gathered_at_once(shapes: Swept, at: jax.Array) -> Swept:
    """The same by one gather: a program with 56 kernels less; of all pairs it would take twice the time."""
    if isinstance(shapes.core, Field):
        return shapes
    leaves, structure = jax.tree.flatten(shapes._replace(exists=shapes.exists.astype(shapes.radius.dtype)))
    numbers = iter(jnp.stack([x for x in leaves if x.ndim == 1])[:, at])
    found: Swept = jax.tree.unflatten(structure, [next(numbers) if x.ndim == 1 else x[at] for x in leaves])
    return found._replace(exists=found.exists > 0.5)


def contacts(geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics) -> Contact:
    """All pairs of a table (p,), in its order."""
    found = [contact_of(given) for given in operands(geometry, world, table, kin)]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)


def separations(geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics) -> jax.Array:
    """What limits keep above their margins (p,): the distances, or less where two boxes meet with corners or edges."""
    return separations_of(operands(geometry, world, table, kin))


def separations_of(given: list[Operands]) -> jax.Array:
    """The same, of all classes. What comes of it is not part of its kernels: all that look at distances share these."""
    return materialize(jnp.concatenate([contact_of(one, SEPARATIONS).distance for one in given]))


def table_of(topology: Topology, geometry: Geometry, world: World | None, pairs: NamedPairs | None) -> PairTable:
    """The pairs of a robot's geometry and a world; see `pair_table`."""
    counts = () if world is None else tuple(world.counts.items())
    return pair_table(topology, shape_list(geometry), counts, pairs)


class Motions(NamedTuple):
    """How each degree of freedom (nv,) moves what it carries: velocities are `linear + angular x (point - anchors)`."""

    anchors: Vector
    linear: Vector
    angular: Vector


def motions(kin: Kinematics) -> Motions:
    return Motions(*(Vector(*(x[i] for i in range(3))) for x in (kin.anchors, kin.linear, kin.angular)))


def distance_rows(signs: jax.Array, motions: Motions, normal: Vector, point: Vector) -> jax.Array:
    """Derivatives (k, nv) of distances along `integrate`: n . (J_b - J_a) at the points of contact.

    What moves both shapes changes nothing, and the two points, which differ along n, give the same: one is enough.

    Args:
      signs (k, nv): of each pair, as `PairTable.signs`.
      motions: of the degrees of freedom.
      normal, point (k,): of the contacts.
    """
    anchors, linear, angular = (v.map(lambda c: c[None]) for v in motions)
    n, at = normal.map(lambda c: c[:, None]), point.map(lambda c: c[:, None])
    swing = cross(angular, at - anchors) + linear
    return signs * (n.x * swing.x + n.y * swing.y + n.z * swing.z)


def moved_by(kin: Kinematics) -> np.ndarray:
    """Which degrees of freedom move each body (nbody, nv): bool, static, for bodies that carry frames of the plan."""
    topology = kin.plan.topology
    moved = np.zeros((len(topology.body_names), topology.nv), bool)
    for frame, segment in zip(kin.plan.frames, kin.plan.frame_segments, strict=True):
        moved[topology.frame_body(frame)] = kin.moved_by(segment)
    return moved


@pytree
class Distances:
    """Signed distances of p pairs of shapes, with batch axes in front.

    Attributes:
      distance (*batch, p) [m]: below zero where two shapes overlap: by so much they have to move apart; infinite for an
        obstacle that is masked.
      normal (*batch, p, 3): unit vectors from the first shape to the second, in world axes.
      points (*batch, p, 2, 3) [m]: on the first and the second surface, where they are nearest or overlap most.
      pairs: of each, the names of both: shapes of the robot, and obstacles as "boxes/3".
    """

    distance: jax.Array = leaf(1)
    normal: jax.Array = leaf(2)
    points: jax.Array = leaf(3)
    pairs: NamedPairs = static()

    @property
    def clearance(self) -> jax.Array:
        """The least distance (*batch,) [m]; NaN where one is."""
        return least_distance(self.distance)

    @property
    def nearest(self) -> jax.Array:
        """Which pair has it (*batch,): an index of `pairs`."""
        return jnp.argmin(self.distance, axis=-1)

    def __repr__(self) -> str:
        if isinstance(self.distance, Tracer) or not self.distance.size:
            return f"Distances(batch {np.shape(self.distance)[:-1]}, {len(self.pairs)} pairs)"
        least = np.unravel_index(int(np.argmin(self.distance)), self.distance.shape)
        first, second = self.pairs[least[-1]]
        where = f" of element {', '.join(map(str, least[:-1]))}" if len(least) > 1 else ""
        value = float(self.distance[least])
        return f"Distances({len(self.pairs)} pairs, batch {self.distance.shape[:-1]}; least {value:.4f} m: " + (
            f"{first} - {second}{where})"
        )


def distances(geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics) -> Distances:
    """All pairs of a table, of one element."""
    contact = contacts(geometry, world, table, kin)
    # Infinite times a component of zero would be NaN.
    finite = contact._replace(distance=jnp.where(jnp.isfinite(contact.distance), contact.distance, 0))
    points = jnp.stack([to_array(contact.point), to_array(finite.point_of_b)], axis=1)
    return Distances(contact.distance, to_array(contact.normal), points, table.names)


def least_distance(distance: jax.Array) -> jax.Array:
    """The least (...) of distances (..., p), NaN where one is: of many, XLA's minimum leaves that out."""
    least = jnp.min(jnp.where(jnp.isnan(distance), -jnp.inf, distance), axis=-1)
    return jnp.where(jnp.isneginf(least), jnp.nan, least)
