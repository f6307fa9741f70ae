"""The nearest pairs of all, which get a row each in a solver."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.collision.contact import Contact, either
from jaxik.collision.convex import Primitive
from jaxik.collision.distances import (
    PAIRS,
    SEPARATIONS,
    Operands,
    PairFunctions,
    contact_of,
    distance_rows,
    motions,
    moved_by,
    operands,
    separations,
)
from jaxik.collision.features import is_curved
from jaxik.collision.gjk import convex_convex
from jaxik.collision.pairs import PairTable
from jaxik.collision.pieces import Grid
from jaxik.collision.reach import largest_motion, seen_pairs
from jaxik.collision.world import World
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.geometry import Geometry
from jaxik.kinematics.manifold import integrate
from jaxik.numerics.custom_rules import with_derivative_of
from jaxik.numerics.fusion import materialize

# How far beside a configuration curvatures are compared [rad or m], and the share by which they may differ; in float32
# and float64.
BESIDE = (1e-3, 0.3), (1e-6, 1e-2)
# Of fewer pairs, less than 100 for each that is wanted, all are searched at once: of a Panda's 475, two searches for
# eight take as long, and five kernels more.
LEAST_ROWS = 10


class Nearest(NamedTuple):
    """The nearest pairs of a table, the nearest first; derivatives take both for given.

    Attributes:
      which (k,): their places in the table.
      distance (k,) [m]: infinite of an obstacle that is masked.
    """

    which: jax.Array
    distance: jax.Array


class Pairs(NamedTuple):
    """The distances of some pairs, and how they change.

    Attributes:
      distance (k,) [m]: infinite of an obstacle that is masked.
      jacobian (k, nv): derivatives of the distances along `integrate`.
      held (k,): whether the normal counts as given where rows are differentiated, which leaves out how it turns.
    """

    distance: jax.Array
    jacobian: jax.Array
    held: jax.Array


class Curvatures(NamedTuple):
    """Second derivatives of the distances of some pairs.

    Attributes:
      hessian (k, nv, nv): along `integrate`.
      switches (k,): whether other faces, edges or ends of the pair are nearest right beside the configuration.
      held (k,): as of `Pairs`.
    """

    hessian: jax.Array
    switches: jax.Array
    held: jax.Array


def nearest_pairs(
    geometry: Geometry,
    world: World | None,
    table: PairTable,
    kin: Kinematics,
    count: int,
    soonest: bool = False,
) -> Nearest:
    """The nearest pairs of a table, of one element.

    By `soonest` these are the pairs that may meet first, all joints at the same rate: a hand that is farther from an
    obstacle than an elbow may be in it before. What overlaps comes first, the deepest before all.
    """
    every = separations(geometry, world, table, kin)
    if not soonest:
        distance, which = nearest_of(every, count)
        return lax.stop_gradient(Nearest(which, distance))
    moved, _ = largest_motion(geometry, kin, seen_pairs(geometry, table, kin), jnp.ones_like(kin.q, shape=kin.nv))
    _, which = nearest_of(every / jnp.where(every > 0, moved, jnp.min(moved)), count)
    return lax.stop_gradient(Nearest(which, every[which]))


def pairs_at(geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics, nearest: Nearest) -> Pairs:
    """Some pairs (k,) of a table, of one element, with their rows.

    Normals and points are computed for these alone: once as if all of them were of one class, and then of the next.
    """
    found = pairs_of(geometry, world, table, kin, nearest.which)
    return found._replace(distance=with_derivative_of(nearest.distance, found.distance))


def pairs_of(geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics, which: jax.Array) -> Pairs:
    """The same, with distances that are computed as well: of pairs that were chosen elsewhere."""
    given = operands(geometry, world, table, kin)
    contact = contacts_at(given, which)
    return Pairs(contact.distance, _rows(contact, table, kin, which), _held(given, which))


# A gradient looks at the same pairs in several places.
@functools.partial(jax.jit, static_argnums=2)
def curvatures_at(
    geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics, nearest: Nearest
) -> Curvatures:
    """How the rows of some pairs (k,) change along `integrate`."""
    which, signs = nearest.which, _signs(table, kin, nearest.which)

    def read(dq: jax.Array) -> tuple[Any, Any]:
        """What rows are computed from."""
        moved = forward(kin.segments, integrate(kin.plan.topology, kin.q, dq))
        contact = contacts_at(operands(geometry, world, table, moved), which)
        found = motions(moved), contact.normal, contact.point
        return found, found

    def rows_and_derivatives(dq: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Materialized, each by itself: else all entries of the rows compute how normals turn again.
        moves, at = jax.tree.map(materialize, jax.jacfwd(read, has_aux=True)(dq))

        def along(move: Any) -> jax.Array:
            return jax.jvp(lambda *read: distance_rows(signs, *read), at, move)[1]

        return distance_rows(signs, *at), jax.vmap(along, -1, -1)(moves)

    step, share = BESIDE[kin.q.dtype == jnp.float64]
    along = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, kin.nv), kin.q.dtype)
    places = jnp.stack([0 * along, step * along, -step * along])
    # One program for all three. Each of the many that read them would compute them again.
    (there, after, before), (here, ahead, behind) = map(materialize, jax.vmap(rows_and_derivatives)(places))
    scale = jnp.maximum(jnp.max(jnp.abs(here), axis=(1, 2)), jnp.max(jnp.abs(there), axis=1))
    bent = jnp.max(jnp.abs(ahead - behind), axis=(1, 2))
    jump = jnp.max(jnp.abs(after - before - 2 * step * here @ along), axis=1) / step
    symmetric = (here + here.swapaxes(1, 2)) / 2
    held = _held(operands(geometry, world, table, kin), which)
    return Curvatures(symmetric, jnp.maximum(bent, jump) > share * scale, held)


def _held(given: list[Operands], which: jax.Array) -> jax.Array:
    """Which pairs (k,) have a normal that counts as given where it is differentiated: grids, and what is curved."""

    def of_class(pairs: Operands) -> jax.Array:
        held = jnp.full(pairs.rows[0].size, isinstance(pairs.second.core, Grid))
        for shapes, rows in zip((pairs.first, pairs.second), pairs.rows, strict=True):
            if PAIRS[pairs.kinds] is convex_convex and isinstance(shapes.core, Primitive):
                held = held | is_curved(shapes.core)[rows]
        return held

    return jnp.concatenate([of_class(pairs) for pairs in given])[which]


def contacts_at(given: list[Operands], which: jax.Array, functions: PairFunctions = SEPARATIONS) -> Contact:
    """Some pairs (k,), all classes after each other."""
    contact, start = None, 0
    for pairs in given:
        place, size = which - start, pairs.rows[0].size
        mine = contact_of(pairs.take(jnp.clip(place, 0, size - 1)), functions)
        contact = mine if contact is None else either(place >= 0, mine, contact)
        start += size
    assert contact is not None
    return contact


def _rows(contact: Contact, table: PairTable, kin: Kinematics, which: jax.Array) -> jax.Array:
    """The rows (k, nv) of some pairs (k,)."""
    # Else each degree of freedom would compute them again, which doubles the time.
    normal, point = jax.tree.map(materialize, (contact.normal, contact.point))
    return distance_rows(_signs(table, kin, which), motions(kin), normal, point)


def _signs(table: PairTable, kin: Kinematics, which: jax.Array) -> jax.Array:
    """Of some pairs, as `PairTable.signs` (k, nv)."""
    return jnp.asarray(table.signs(moved_by(kin)), kin.q.dtype)[which]


def nearest_distances(
    geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics, count: int
) -> jax.Array:
    """The distances (k,) of the nearest pairs of a table alone."""
    return nearest_of(separations(geometry, world, table, kin), count)[0]


def nearest_of(distance: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The least distances (k,) of all (p,), and which these are; what is NaN comes first, so that it is seen."""
    found, which = _least(jnp.where(jnp.isnan(distance), -jnp.inf, distance), min(count, distance.size))
    return jnp.where(jnp.isneginf(found), jnp.nan, found), which


def _least(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k least entries of x (p,), and which these are.

    They are in the k columns with the least entries, of about as many as those have entries: a search of twice the
    square root of k p entries where one of all takes a fifth of the step that looks for them.
    """
    rows = math.isqrt(x.size // max(k, 1))
    if rows < LEAST_ROWS:
        least, which = lax.top_k(-x, k)
        return -least, which
    columns = -(-x.size // rows)
    # What fills the last row comes after all entries, as those that equal another do whose number here is greater.
    table = jnp.pad(x, (0, rows * columns - x.size), constant_values=jnp.inf).reshape(rows, columns)
    # By themselves: as part of their transposition for the library call they are scalar code, which takes a dual arm
    # of 1,882 pairs 37 us on 32 lanes, and so 8.
    _, nearest = lax.top_k(-materialize(jnp.min(table, axis=0)), k)
    least, which = lax.top_k(-table[:, nearest].reshape(-1), k)
    return -least, which // k * columns + nearest[which % k]
