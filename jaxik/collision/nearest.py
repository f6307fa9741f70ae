"""The nearest pairs of all, which get a row each in a solver."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.collision.contact import either
from jaxik.collision.distances import (
    SEPARATIONS,
    contact_of,
    distance_rows,
    moved_by,
    operands,
    separations,
    separations_of,
)
from jaxik.collision.pairs import PairTable
from jaxik.collision.reach import largest_motion, seen_pairs
from jaxik.collision.world import World
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.geometry import Geometry
from jaxik.numerics.fusion import materialize


class NearestPairs(NamedTuple):
    """The k nearest pairs, the nearest first.

    Attributes:
      distance (k,) [m]: infinite where there are no more.
      jacobian (k, nv): derivatives of the distances along `integrate`.
    """

    distance: jax.Array
    jacobian: jax.Array


def nearest_pairs(
    geometry: Geometry,
    world: World | None,
    table: PairTable,
    kin: Kinematics,
    count: int,
    soonest: bool = False,
) -> NearestPairs:
    """The nearest pairs of a table, of one element, with their rows.

    By `soonest` these are the pairs that may meet first, all joints at the same rate: a hand that is farther from an
    obstacle than an elbow may be in it before. What overlaps comes first, the deepest before all.

    Normals and points are computed for these alone: once as if all of them were of one class, and then of the next.
    """
    given = operands(geometry, world, table, kin)
    every = separations_of(given)
    found, which = _nearest(every, count)
    if soonest:
        moved, _ = largest_motion(geometry, kin, seen_pairs(geometry, table, kin), jnp.ones_like(kin.q, shape=kin.nv))
        _, which = _nearest(every / jnp.where(every > 0, moved, jnp.min(moved)), count)
        found = every[which]
    contact, start = None, 0
    for pairs in given:
        place, size = which - start, pairs.rows[0].size
        mine = contact_of(pairs.take(jnp.clip(place, 0, size - 1)), SEPARATIONS)
        contact = mine if contact is None else either(place >= 0, mine, contact)
        start += size
    assert contact is not None
    # Else each degree of freedom would compute them again, which doubles the time.
    normal, point = jax.tree.map(materialize, (contact.normal, contact.point))
    signs = jnp.asarray(table.signs(moved_by(kin)), found.dtype)
    return NearestPairs(found, distance_rows(kin, signs[which], normal, point))


def nearest_distances(
    geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics, count: int
) -> jax.Array:
    """The distances (k,) of the nearest pairs of a table alone."""
    return _nearest(separations(geometry, world, table, kin), count)[0]


def _nearest(distance: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The least distances (k,) of all (p,), and which these are; of equal ones the first."""
    least, which = lax.top_k(-distance, min(count, distance.size))
    return -least, which
