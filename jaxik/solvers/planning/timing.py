"""How fast a path is followed: as fast as limits on speeds and accelerations allow, from rest to rest.

Along the path, of length s, speeds are bounds of x = (ds/dt)^2, and accelerations of a joint are q'' x + q' u with
u = d2s/dt2 = dx/ds / 2. On a grid whose cells have one u each, the largest x from which the end can be reached are
found backwards, then the largest x that can be reached forwards (Pham and Pham, "A new approach to time-optimal path
parameterization based on reachability analysis", 2018). On straight pieces and parabolas q'' x + q' u is linear in s
within a cell, and so bounded by its ends.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.solvers.planning.corners import directions_of
from jaxik.solvers.planning.setting import Rates
from jaxik.solvers.planning.shortcuts import Path, lengths_of

# Even cells, beside those that corners cut.
CELLS = 96
# Halvings of the interval in which the best end of a cell is sought.
BISECTIONS = 20
# Of a length of a path: shorter cells are none. Of a direction: more of a change is a corner, where the robot stops.
NO_CELL, STRAIGHT = 1e-13, 1e-6
# Of limits: what rounding may take.
SPARE = 1 - 1e-5
# How far beside a point of a path slopes of its image are compared, of its length.
BESIDE = 1e-5
# Of a path, where nothing limits it [its length / s].
FASTEST = 1e6

# Where the robot is instead of a configuration (nq,).
Image: TypeAlias = Callable[[jax.Array], jax.Array]


class Curve(NamedTuple):
    """A path with its corners as parabolas.

    Attributes:
      path: the waypoints.
      directions (K - 1, nq): of the pieces.
      sizes (K,): of corners.
      at (K,): how far along the curve [its length] the middle of each corner is; the last counts the whole.
    """

    path: Path
    directions: jax.Array
    sizes: jax.Array
    at: jax.Array


def curve_of(path: Path, sizes: jax.Array) -> Curve:
    """A path with corners of sizes (K,), each parabola of twice its size in length."""
    at = jnp.concatenate([jnp.zeros(1, sizes.dtype), jnp.cumsum(lengths_of(path))])
    return Curve(path, directions_of(path), sizes, at)


class Along(NamedTuple):
    """A point of a curve: the configuration (nq,), its derivative by the length (nq,), and the second one (nq,)."""

    q: jax.Array
    slope: jax.Array
    bend: jax.Array


def along(curve: Curve, s: jax.Array, within: jax.Array) -> Along:
    """The point at `s` () of the piece or parabola that has `within` () inside: at their ends two have the same s."""
    inner = jnp.arange(curve.at.shape[0])
    rounds = (jnp.abs(within - curve.at) < curve.sizes) & (inner > 0) & (inner < curve.path.number - 1)
    piece = jnp.clip(jnp.sum(curve.at <= within) - 1, 0, jnp.maximum(curve.path.number - 2, 0))
    corner = jnp.argmax(rounds)
    into, out = curve.directions[corner - 1], curve.directions[jnp.minimum(corner, curve.directions.shape[0] - 1)]
    size = curve.sizes[corner]
    length = 2 * jnp.where(size > 0, size, 1)
    share = (s - curve.at[corner] + size) / length
    parabola = Along(
        curve.path.points[corner] - size * (1 - share) ** 2 * into + size * share**2 * out,
        (1 - share) * into + share * out,
        (out - into) / length,
    )
    direction = curve.directions[piece]
    line = Along(curve.path.points[piece] + (s - curve.at[piece]) * direction, direction, 0 * direction)
    return jax.tree.map(lambda a, b: jnp.where(jnp.any(rounds), a, b), parabola, line)


class Cells(NamedTuple):
    """Cells (N,) of a curve, from grid point to grid point.

    Attributes:
      s (N + 1,): where the grid points are.
      length (N,): of the cells; 0 of those that are none.
      start, end (N, nq): derivatives of the configuration by the length at both ends.
      bend (N, nq): the second one.
      stops (N + 1,): whether the robot rests at a grid point: at both ends, and at corners.
    """

    s: jax.Array
    length: jax.Array
    start: jax.Array
    end: jax.Array
    bend: jax.Array
    stops: jax.Array


def cells_of(curve: Curve, image: Image | None = None) -> Cells:
    """Even cells, cut where parabolas begin and end; derivatives are those of the curve's image, where it has one."""
    total, k = curve.at[-1], jnp.arange(curve.at.shape[0])
    ends = jnp.clip(jnp.concatenate([curve.at - curve.sizes, curve.at + curve.sizes]), 0, total)
    s = jnp.sort(jnp.concatenate([jnp.linspace(0, 1, CELLS + 1, dtype=total.dtype) * total, ends]))
    length, middle = jnp.diff(s), (s[:-1] + s[1:]) / 2
    length = jnp.where(length > NO_CELL * total, length, 0)
    starts, stops = (jax.vmap(lambda at, within: along(curve, at, within))(x, middle) for x in (s[:-1], s[1:]))
    start, end, bend = starts.slope, stops.slope, starts.bend
    if image is not None:
        start, end = _slopes_of_image(curve, image, jnp.stack([s[:-1], s[1:]]), middle)
        bend = (end - start) / jnp.where(length > 0, length, 1)[:, None]
    turn = jnp.max(jnp.abs(curve.directions[1:] - curve.directions[:-1]), axis=1)
    sharp = (k > 0) & (k < curve.path.number - 1) & (curve.sizes <= NO_CELL * total)
    sharp = sharp & (jnp.concatenate([jnp.zeros(1), turn, jnp.zeros(1)]) > STRAIGHT)
    rests = jnp.any(sharp & (jnp.abs(s[:, None] - curve.at) <= NO_CELL * total), axis=1)
    rests = rests | (s <= NO_CELL * total) | (s >= (1 - NO_CELL) * total)
    return Cells(s, length, start, end, bend, rests)


def _slopes_of_image(curve: Curve, image: Image, s: jax.Array, within: jax.Array) -> jax.Array:
    """Derivatives (k, N, nq) by the length at points (k, N), by central differences on pieces with `within` (N,)."""
    aside = BESIDE * curve.at[-1]
    beside = jnp.stack([s - aside, s + aside])
    points = jax.vmap(lambda at, within: image(along(curve, at, within).q))
    before, after = points(beside.reshape(-1), jnp.tile(within, 2 * s.shape[0])).reshape(*beside.shape, -1)
    return (after - before) / jnp.where(aside > 0, 2 * aside, 1)


class Rows(NamedTuple):
    """Bounds |at_start x + at_end y| <= most (m,) of the squared speeds x and y at both ends of a cell.

    Attributes:
      none (): whether the cell has no length: then x = y.
    """

    at_start: jax.Array
    at_end: jax.Array
    most: jax.Array
    none: jax.Array


def speeds_of(cells: Cells, rates: Rates) -> jax.Array:
    """The largest squared speeds (N + 1,) along a curve, from rest to rest."""
    lower, upper, acceleration = rates
    some = cells.length > 0
    fastest = jnp.minimum(_fastest(cells.start, lower, upper), _fastest(cells.end, lower, upper))
    fastest = jnp.where(some, jnp.minimum(fastest, FASTEST**2), jnp.inf)
    none = jnp.full(1, jnp.inf, fastest.dtype)
    highest = jnp.minimum(jnp.concatenate([none, fastest]), jnp.concatenate([fastest, none]))
    highest = SPARE * jnp.where(cells.stops, 0, highest)
    per = 1 / (2 * jnp.where(some, cells.length, 1))[:, None]
    rows = Rows(
        at_start=jnp.concatenate([cells.bend - per * cells.start, -per * cells.end], axis=1),
        at_end=jnp.concatenate([per * cells.start, cells.bend + per * cells.end], axis=1),
        most=jnp.broadcast_to(SPARE * jnp.tile(acceleration, 2), (some.shape[0], 2 * acceleration.shape[0])),
        none=~some,
    )

    def backward(ahead: jax.Array, cell: tuple[Rows, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row, most = cell
        found = jnp.minimum(most, jnp.where(row.none, ahead, _most_at_start(row, ahead)))
        return found, found

    def forward(behind: jax.Array, cell: tuple[Rows, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row, most = cell
        found = jnp.minimum(most, jnp.where(row.none, behind, _most_at_end(row, behind)))
        return found, found

    _, back = lax.scan(backward, highest[-1], (rows, highest[:-1]), reverse=True)
    _, speeds = lax.scan(forward, back[0], (rows, jnp.concatenate([back[1:], highest[-1:]])))
    return jnp.concatenate([back[:1], speeds])


def _fastest(slope: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """The largest squared speeds (N,) along a curve that rates of joints allow, by slopes (N, nq)."""
    moves = slope != 0
    most = jnp.where(slope > 0, upper, -lower) / jnp.where(moves, jnp.abs(slope), 1)
    return jnp.min(jnp.where(moves, most, jnp.inf), axis=1) ** 2


def _most_at_end(row: Rows, x: jax.Array) -> jax.Array:
    """The largest y () that goes with x."""
    moves, sign = row.at_end != 0, jnp.sign(row.at_end)
    most = (row.most - sign * row.at_start * x) / jnp.where(moves, jnp.abs(row.at_end), 1)
    return jnp.maximum(jnp.min(jnp.where(moves, most, jnp.inf)), 0)


def _most_at_start(row: Rows, ahead: jax.Array) -> jax.Array:
    """The largest x () that goes with some y in [0, ahead]: of a concave function of y, by halving its interval.

    At rest, x = y = 0, all bounds hold.
    """
    moves, sign = row.at_start != 0, jnp.sign(row.at_start)
    scale, slope = jnp.where(moves, jnp.abs(row.at_start), 1), -sign * row.at_end
    alone = jnp.min(jnp.where(~moves & (row.at_end != 0), row.most / jnp.abs(row.at_end), jnp.inf))

    def bounds(y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        most = jnp.where(moves, (row.most + slope * y) / scale, jnp.inf)
        least = jnp.where(moves, (slope * y - row.most) / scale, -jnp.inf)
        upper = jnp.min(most)
        rises = jnp.min(jnp.where(most == upper, slope, jnp.inf)) > 0
        return upper, jnp.maximum(jnp.max(least), 0) <= upper, rises

    def halve(_: jax.Array, interval: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = interval
        middle = (low + high) / 2
        _, fits, rises = bounds(middle)
        up = fits & rises
        return jnp.where(up, middle, low), jnp.where(up, high, middle)

    most = jnp.minimum(ahead, alone)
    _, fits, rises = bounds(most)
    low, _ = lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros_like(most), most))
    return bounds(jnp.where(fits & rises, most, low))[0]


class Timed(NamedTuple):
    """A motion (T, nq), and how long it takes () [s]."""

    q: jax.Array
    duration: jax.Array


def timed(
    path: Path, sizes: jax.Array, rates: Rates, dt: jax.Array, num_steps: int, image: Image | None = None
) -> Timed:
    """Follow a path, of one element, as fast as limits allow; at the end it rests.

    Args:
      sizes (K,): of its corners.
      rates: bounds of joints.
      dt (): [s].
      num_steps: how many configurations are returned, the first one a step after the start.
      image: where the robot is at a point (nq,) of the path, which limits are of; None: there.
    """
    curve = curve_of(path, sizes)
    cells = cells_of(curve, image)
    x = speeds_of(cells, rates)
    root, some = jnp.sqrt(x), cells.length > 0
    mean = (root[:-1] + root[1:]) / 2
    takes = jnp.where(some, cells.length / jnp.where(some, mean, 1), 0)
    time = jnp.concatenate([jnp.zeros(1, takes.dtype), jnp.cumsum(takes)])
    push = jnp.where(some, jnp.diff(x) / (2 * jnp.where(some, cells.length, 1)), 0)

    def at(_: None, step: jax.Array) -> tuple[None, jax.Array]:
        now = step * dt
        i = jnp.clip(jnp.sum(time <= now) - 1, 0, push.shape[0] - 1)
        since = now - time[i]
        s = jnp.clip(cells.s[i] + root[i] * since + push[i] * since**2 / 2, cells.s[i], cells.s[i + 1])
        q = along(curve, s, (cells.s[i] + cells.s[i + 1]) / 2).q
        q = jnp.where(now < time[-1], q, path.points[-1])
        return None, q if image is None else image(q)

    _, q = lax.scan(at, None, jnp.arange(1, num_steps + 1, dtype=takes.dtype))
    return Timed(q, time[-1])
