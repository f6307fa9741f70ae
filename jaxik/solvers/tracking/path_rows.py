"""Rows of tasks in the interior point, beside the limits: waypoints within their tolerances, and what yields.

A box inside each tolerance bounds the rows of a part of a residual. In it a row is drawn to the middle, so that only
those waypoints leave it that have to. A row of a constraint that yields has a box of no size, which it may leave for
its penalty.
"""

import jax
import jax.numpy as jnp

from jaxik.solvers.tracking import barrier
from jaxik.solvers.tracking.horizon import Horizon, Rows

# To use all of a tolerance costs as much as a step of 0.1 rad.
PRICE = 1e-2
# The kink in the cost of a row that yields is rounded over so much [m or rad] before limits are looked at, and over
# this times mu in the interior point, which begins with FIRST_MU.
ROUNDED, FIRST_MU = 0.1, 0.01
# The unit of these rows [m or rad]. Joints that the path leaves free move by so much in a step that a row is off by
# 5e-3 of second order: in units of 0.01 that kept mu up for all limits (`barrier.MISSING`), and 200 steps were too few
# for a hand to be upright on its way where 13 are enough.
UNIT = 10.0
# Distances of shapes count in this unit [m], and to use all of it costs so much. Of 64 motions of a Panda around a wall
# 60 settle within 30 steps; in units of 0.1 m at a price of 0.01 none.
APART, APART_PRICE = 3.0, 1.0
# Shapes may be nearer than is aimed at by so much [m]: half of what that is beyond the margin at least.
TOUCHED = 5e-5
# Their slacks begin at least so large, in that unit, 9 mm: with 0.1 a motion went through an obstacle to its other
# side, and motions around balls cost twice as much.
FIRST_APART = 3e-3


def as_kinds(x: jax.Array, nv: int) -> jax.Array:
    """Rows (N, *batch, m) as further kinds of limits (k, N, *batch, nv), filled up with zeros."""
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % nv)])
    return jnp.moveaxis(padded.reshape(*x.shape[:-1], -1, nv), -2, 0)


def behind_limits(x: jax.Array, horizon: Horizon) -> jax.Array:
    """Rows (N, *batch, m) as further kinds behind those of limits, which have zeros."""
    kinds = as_kinds(x, horizon.problem.robot.nv)
    return jnp.pad(kinds, [(horizon.kinds, 0)] + [(0, 0)] * (kinds.ndim - 1))


def as_rows(x: jax.Array, m: int) -> jax.Array:
    """Back from (k, N, *batch, nv) to (N, *batch, m)."""
    x = jnp.moveaxis(x, 0, -2)
    return x.reshape(*x.shape[:-2], -1)[..., :m]


def yields(rows: Rows) -> jax.Array:
    """Which rows (N, *batch, m) may yield."""
    return jnp.isfinite(rows.penalty)


def with_rows(limits: barrier.Distances, horizon: Horizon, rows: Rows) -> barrier.Distances:
    """The distances of limits, and behind them those of rows to the ends of their boxes, where they count."""
    nv, may = rows.moves.shape[-1], yields(rows)
    # Of one bound, which is half a width away at zero.
    value, width = rows.residual - rows.apart * APART, jnp.where(rows.apart, APART, rows.tolerance)
    given = value, width, may, jnp.where(may, rows.penalty, 0), rows.apart
    value, width, may, penalty, apart = (as_kinds(jnp.broadcast_to(x, rows.residual.shape), nv) for x in given)
    counts = horizon.loose & (width > 0) | may & (horizon.limited > 0) | apart
    of_mu = jnp.where(may, penalty * ROUNDED, jnp.where(apart, APART_PRICE, PRICE))
    weight = of_mu / jnp.where(may, UNIT, jnp.where(width > 0, width, 1)) ** 2
    price = jnp.where(may, penalty, jnp.inf)
    own = barrier.distances(
        value,
        -width,
        jnp.where(apart, jnp.inf, width),
        counts,
        weight,
        price,
        first_mu=FIRST_MU,
        least_width=UNIT,
        first_slack=jnp.where(apart, FIRST_APART, barrier.FIRST_SLACK),
    )
    joined = jnp.concatenate
    return barrier.Distances(
        joined([limits.room, own.room], axis=1),
        joined([limits.counts, own.counts], axis=1),
        joined([limits.width, own.width]),
        joined([jnp.broadcast_to(limits.scale, limits.width.shape), own.scale]),
        joined([jnp.broadcast_to(limits.price, limits.width.shape), own.price]),
        joined([limits.first_mu, own.first_mu]),
        joined([limits.first_slack, own.first_slack]),
    )


def centring_of(rows: Rows) -> jax.Array:
    """The stiffness of the pull to the middle of a box (N, *batch, m)."""
    some = rows.tolerance > 0
    return jnp.where(some, PRICE / jnp.where(some, rows.tolerance * rows.tolerance, 1), 0)


def rounded(rows: Rows) -> jax.Array:
    """The stiffness of rows that yield (N, *batch, m) with the kink of their cost rounded, as to begin with."""
    return rows.penalty / jnp.maximum(jnp.abs(rows.residual), ROUNDED)
