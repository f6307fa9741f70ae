"""Corners of a path as parabolas, which a robot follows without a stop.

A corner of size d is the parabola from d before a waypoint to d behind it that has the directions of both pieces at its
ends: a quadratic Bezier curve about the waypoint. It is looked at along chords; the curve is off each by no more than
the difference of both directions times d / (4 n^2), of n chords, joint by joint, and distances may be that much less.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.indexing import entry
from jaxik.solvers.planning.shortcuts import Path, lengths_of
from jaxik.solvers.planning.trees import WAYPOINTS

CHORDS = 8
# Halvings of a corner's size before it stays a corner.
HALVINGS = 4


class Rounding(NamedTuple):
    """The corner and the chord of it that is looked at, and the sizes of all corners.

    Attributes:
      corner, chord, halved (): int32: of the waypoint, of its chord, and how often its size was halved.
      sizes (K,): of corners that are free; 0 of others.
    """

    corner: jax.Array
    chord: jax.Array
    halved: jax.Array
    sizes: jax.Array


def unrounded(path: Path) -> Rounding:
    """Before the first corner."""
    zero = jnp.zeros((), jnp.int32)
    return Rounding(zero + 1, zero, zero, jnp.zeros(WAYPOINTS, path.points.dtype))


def directions_of(path: Path) -> jax.Array:
    """Of the pieces (K - 1, nq), of length 1; 0 where a piece has none."""
    lengths = lengths_of(path)[:, None]
    return (path.points[1:] - path.points[:-1]) / jnp.where(lengths > 0, lengths, 1)


def chord_of(path: Path, rounding: Rounding) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The chord that is looked at: from (nq,), to (nq,), and how far the curve may be from it, joint by joint (nq,)."""
    directions, size = directions_of(path), _size(path, rounding)
    into, out = entry(directions, rounding.corner - 1), entry(directions, rounding.corner)
    waypoint = entry(path.points, rounding.corner)

    def at(share: jax.Array) -> jax.Array:
        return waypoint - size * (1 - share) ** 2 * into + size * share**2 * out

    share = rounding.chord / CHORDS
    return at(share), at(share + 1 / CHORDS), size / (4 * CHORDS**2) * (out - into)


def _size(path: Path, rounding: Rounding) -> jax.Array:
    lengths = lengths_of(path)
    shorter = jnp.minimum(entry(lengths, rounding.corner - 1), entry(lengths, rounding.corner))
    return 0.5 * shorter * 0.5**rounding.halved


def rounded(path: Path, rounding: Rounding, free: jax.Array) -> Rounding:
    """After a look at a chord that was free (), or not."""
    smaller = ~free
    halved = rounding.halved + smaller
    sharp = halved > HALVINGS
    done = free & (rounding.chord == CHORDS - 1)
    here = (jnp.arange(WAYPOINTS) == rounding.corner) & done
    sizes = jnp.where(here, _size(path, rounding), rounding.sizes)
    onward = done | sharp
    return Rounding(
        corner=rounding.corner + onward,
        chord=jnp.where(onward | smaller, 0, rounding.chord + 1),
        halved=jnp.where(onward, 0, halved),
        sizes=sizes,
    )
