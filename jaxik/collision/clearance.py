"""The least distance of all pairs of one configuration.

That of two boxes that are apart takes 12 times as long as a bound below it: those boxes alone are looked at exactly
whose bounds are below what was found before. The nearest pair alone is differentiated.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.collision.distances import PAIRS, SEPARATIONS, Operands, contact_of, operands, separations_of
from jaxik.collision.nearest import contacts_at
from jaxik.collision.pairs import PairTable
from jaxik.collision.world import World
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.geometry import Geometry
from jaxik.numerics.custom_rules import with_derivative_of


class _Least(NamedTuple):
    """The least distance so far (), and whose it is; `bounds` (p,) of others, infinite where these are known."""

    distance: jax.Array
    which: jax.Array
    bounds: jax.Array


def clearance(geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics) -> jax.Array:
    """The least distance () of all pairs of a table, of one element; NaN where one is."""
    given = operands(geometry, world, table, kin)
    least = _least([x._replace(first=lax.stop_gradient(x.first), second=lax.stop_gradient(x.second)) for x in given])
    return with_derivative_of(least.distance, contacts_at(given, least.which[None], PAIRS).distance[0])


def _least(given: list[Operands]) -> _Least:
    distance, start = separations_of(given), 0
    bounded = np.concatenate([np.full(x.rows[0].size, PAIRS[x.kinds] is not SEPARATIONS[x.kinds]) for x in given])
    known = jnp.where(bounded, jnp.inf, distance)
    least = _Least(jnp.min(known), jnp.argmin(known).astype(jnp.int32), jnp.where(bounded, distance, jnp.inf))
    for pairs in given:
        size = pairs.rows[0].size
        if bounded[start]:  # it is one class, of two boxes
            least = _with_boxes(pairs, start, least)
        start += size
    return least._replace(distance=jnp.where(jnp.any(jnp.isnan(distance)), jnp.nan, least.distance))


def _with_boxes(pairs: Operands, start: int, least: _Least) -> _Least:
    """The least with the pairs of boxes, which have places from `start` on."""

    def look(least: _Least) -> _Least:
        which = jnp.argmin(least.bounds).astype(jnp.int32)
        distance = contact_of(pairs.take(which[None] - start)).distance[0]
        nearer = distance < least.distance
        bounds = jnp.where(jnp.arange(least.bounds.size) == which, jnp.inf, least.bounds)
        return _Least(jnp.minimum(distance, least.distance), jnp.where(nearer, which, least.which), bounds)

    return lax.while_loop(lambda least: jnp.min(least.bounds) < least.distance, look, least)
