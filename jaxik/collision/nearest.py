"""The nearest pairs of all, which get a row each in a solver."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.collision.contact import Contact
from jaxik.collision.distances import Operands, contact_of, contacts, distance_rows, moved_by, operands
from jaxik.collision.pairs import PairTable
from jaxik.collision.world import World
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.geometry import Geometry


class NearestPairs(NamedTuple):
    """The k nearest pairs, the nearest first.

    Attributes:
      distance (k,) [m]: infinite where there are no more.
      jacobian (k, nv): derivatives of the distances along `integrate`.
    """

    distance: jax.Array
    jacobian: jax.Array


def nearest_pairs(
    geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics, count: int
) -> NearestPairs:
    """The nearest pairs of a table, of one element, with their rows.

    Normals and points are computed for the nearest pairs of each class alone, a quarter of the work.
    """
    signs = jnp.asarray(table.signs(moved_by(kin)), kin.frame_positions.dtype)
    found, start = [], 0
    for given in operands(geometry, world, table, kin):
        size = math.prod(given.shape)
        found.append(_nearest_of_class(given, signs[start : start + size], min(count, size)))
        start += size
    contact, moving = jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)
    if len(found) > 1:
        contact, moving = _nearest(contact.distance, lambda chosen: _sums(chosen, (contact, moving)), count)
    return NearestPairs(contact.distance, distance_rows(kin, moving, contact.normal, contact.point))


def _nearest_of_class(given: Operands, signs: jax.Array, count: int) -> tuple[Contact, jax.Array]:
    """The nearest pairs of one class (k,), and their rows of `signs` (p, nv)."""

    def shapes(chosen: jax.Array) -> Any:
        both = chosen.reshape(given.shape)
        if len(given.shape) == 2:
            ours, theirs = jnp.any(both, axis=1, keepdims=True), jnp.any(both, axis=0, keepdims=True)
        else:
            ours = theirs = both
        return _sums(ours, given.first), _sums(theirs, given.second), _sums(both, given.turned), _sums(chosen, signs)

    distance = jnp.ravel(contact_of(given).distance)
    first, second, turned, moving = _nearest(distance, shapes, count)
    return contact_of(Operands(given.kinds, first, second, (count,), turned)), moving


def _nearest(distance: jax.Array, take: Callable[[jax.Array], Any], count: int) -> Any:
    """What `take` makes of the mask (p,) of the nearest pair, of the next one, and so on, along a new leading axis.

    One after the other, as sums over masks: a gather of what each element chooses is a loop over its entries, sums are
    vector instructions.
    """
    size = distance.shape[0]
    numbers = jnp.arange(size)

    def next_one(left: jax.Array, _: None) -> tuple[jax.Array, Any]:
        chosen = numbers == jnp.min(jnp.where(left == jnp.min(left), numbers, size))
        return jnp.where(chosen, jnp.inf, left), take(chosen)

    return lax.scan(next_one, distance, None, length=min(count, size))[1]


def _sums(chosen: jax.Array, tree: Any) -> Any:
    """The chosen entry of arrays of the mask's axes, or one more behind them; a mask of bool by `any`."""

    def entry(x: jax.Array) -> jax.Array:
        mask = chosen[..., None] if x.ndim > chosen.ndim else chosen
        axes = tuple(range(chosen.ndim))
        if x.dtype == bool:
            return jnp.any(mask & x, axis=axes)
        return jnp.sum(jnp.where(mask, x, 0), axis=axes)

    return jax.tree.map(entry, tree)


def nearest_distances(
    geometry: Geometry, world: World | None, table: PairTable, kin: Kinematics, count: int
) -> jax.Array:
    """The distances (k,) of the nearest pairs of a table alone."""
    distance = contacts(geometry, world, table, kin).distance
    return _nearest(distance, lambda chosen: jnp.sum(jnp.where(chosen, distance, 0)), count)
