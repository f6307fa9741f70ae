"""Shorten a path of straight pieces: where the straight way between two of its points is free, it goes there.

Every other time the two are waypoints, which takes waypoints away; else they are anywhere on the path.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.kronecker import unit_samples
from jaxik.solvers.planning.trees import WAYPOINTS

# What a shortcut saves, as a share of the path: below that it is not worth two more corners.
WORTH = 0.02


class Path(NamedTuple):
    """Straight pieces between waypoints.

    Attributes:
      points (K, nq): waypoints; behind the last that counts, that one again.
      number (): int32, of those that count.
    """

    points: jax.Array
    number: jax.Array


class Cut(NamedTuple):
    """A shortcut that is tried, from one point of a path to another.

    Attributes:
      tried (): int32, how many there were before.
      first, last (): int32: pieces on which it begins and ends.
      begin, end (nq,): where.
    """

    tried: jax.Array
    first: jax.Array
    last: jax.Array
    begin: jax.Array
    end: jax.Array


def lengths_of(path: Path) -> jax.Array:
    """Of the pieces (K - 1,)."""
    return jnp.sqrt(jnp.sum((path.points[1:] - path.points[:-1]) ** 2, axis=1))


def proposed(path: Path, shift: jax.Array, tried: jax.Array, longest: jax.Array | float = jnp.inf) -> Cut:
    """Shortcut number `tried` (), between two pieces that differ, of at most so much of the path."""
    lengths = lengths_of(path)
    k = jnp.arange(WAYPOINTS - 1)
    ends = jnp.cumsum(lengths)
    total, tail = ends[-1], jnp.sum(jnp.where(k == path.number - 2, lengths, 0))
    shares = unit_samples(shift[-2:], tried).astype(lengths.dtype)
    from_start = shares[0] * (total - tail)
    first = jnp.minimum(jnp.sum(ends <= from_start, dtype=jnp.int32), jnp.maximum(path.number - 3, 0))
    until = ends[first]
    to_end = until + shares[1] * jnp.minimum(total - until, longest)
    last = jnp.clip(jnp.sum(ends <= to_end, dtype=jnp.int32), first + 1, jnp.maximum(path.number - 2, 1))
    snapped = tried % 2 == 0

    def at(piece: jax.Array, along: jax.Array) -> jax.Array:
        length = lengths[piece]
        share = jnp.clip((along - (ends[piece] - length)) / jnp.where(length > 0, length, 1), 0, 1)
        return path.points[piece] + share * (path.points[piece + 1] - path.points[piece])

    begin = jnp.where(snapped, path.points[first], at(first, from_start))
    end = jnp.where(snapped, path.points[last + 1], at(last, to_end))
    return Cut(tried, first, last, begin, end)


def shortened(path: Path, cut: Cut, free: jax.Array) -> Path:
    """The path with a shortcut that is free () of shapes, where that is worth it."""
    added = jnp.where(cut.tried % 2 == 0, 0, 2)
    k = jnp.arange(WAYPOINTS)
    behind = k - cut.first - 1
    source = jnp.where(k <= cut.first, k, behind - added + cut.last + 1)
    points = path.points[jnp.clip(source, 0, WAYPOINTS - 1)]
    points = jnp.where(((added > 0) & (behind == 0))[:, None], cut.begin, points)
    points = jnp.where(((added > 0) & (behind == 1))[:, None], cut.end, points)
    shorter = Path(points, path.number - (cut.last - cut.first) + added)
    before, after = jnp.sum(lengths_of(path)), jnp.sum(lengths_of(shorter))
    worth = (added == 0) | (before - after > WORTH * before)
    takes = free & worth & (shorter.number <= WAYPOINTS)
    return jax.tree.map(lambda a, b: jnp.where(takes, a, b), shorter, path)
