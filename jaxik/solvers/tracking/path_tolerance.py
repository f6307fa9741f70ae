"""Waypoints within their tolerances and not exactly on their path: rows of the interior point, beside the limits.

A box inside each tolerance bounds the rows of a part of a residual. In it a row is drawn to the middle, so that only
those waypoints leave it that have to.
"""

import jax
import jax.numpy as jnp

from jaxik.solvers.tracking import barrier
from jaxik.solvers.tracking.horizon import Horizon, Rows

# To use all of a tolerance costs as much as a step of 0.1 rad.
PRICE = 1e-2


def as_kinds(x: jax.Array, nv: int) -> jax.Array:
    """Rows (N, *batch, m) as further kinds of limits (k, N, *batch, nv), filled up with zeros."""
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % nv)])
    return jnp.moveaxis(padded.reshape(*x.shape[:-1], -1, nv), -2, 0)


def as_rows(x: jax.Array, m: int) -> jax.Array:
    """Back from (k, N, *batch, nv) to (N, *batch, m)."""
    x = jnp.moveaxis(x, 0, -2)
    return x.reshape(*x.shape[:-2], -1)[..., :m]


def with_tolerances(limits: barrier.Distances, horizon: Horizon, rows: Rows) -> barrier.Distances:
    """The distances of limits, and behind them those of rows to the ends of their boxes, where they count."""
    nv = rows.moves.shape[-1]
    value, width = (as_kinds(jnp.broadcast_to(x, rows.residual.shape), nv) for x in (rows.residual, rows.tolerance))
    counts = horizon.loose & (width > 0)
    weight = PRICE / jnp.where(width > 0, width * width, 1)
    own = barrier.distances(value, -width, width, counts, weight)
    joined = jnp.concatenate
    return barrier.Distances(
        joined([limits.room, own.room], axis=1),
        joined([limits.counts, own.counts], axis=1),
        joined([limits.width, own.width]),
        joined([jnp.broadcast_to(limits.scale, limits.width.shape), own.scale]),
        joined([jnp.broadcast_to(limits.price, limits.width.shape), own.price]),
    )


def stiffness_of(rows: Rows) -> jax.Array:
    """Of the pull to the middle of a box (N, *batch, m)."""
    return PRICE / jnp.where(rows.tolerance > 0, rows.tolerance * rows.tolerance, 1)
