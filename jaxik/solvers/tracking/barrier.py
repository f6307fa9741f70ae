"""Slacks and multipliers of a motion's limits: the rows of a primal-dual interior point.

Nocedal and Wright, "Numerical Optimization", 19.3. Each limit is a distance that stays above zero, d = s > 0, with a
multiplier z > 0 and s z = mu, and mu shrinks from step to step. Distances count in half widths of their limits,
and mu in what a motion pays that uses all of one, so that displacements and jerks are alike.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Slacks begin at least so large, and larger by how far a limit of the kind is passed; multipliers begin at this.
FIRST_SLACK, FIRST_MULTIPLIER = 0.1, 1e-2
# Where contradicting limits drive multipliers no further.
MOST_MULTIPLIER = 1e8
# Where mu ends: what is left of it presses joints away from their limits. By whether the precision is double.
LAST_MU = {False: 1e-4, True: 1e-10}
# Of the way to where a slack or a multiplier would be zero.
SHORT = 0.99
# By how much mu shrinks in a step: at most, after a whole one, and at least.
CENTRING = 0.05, 0.8
# A limit is kept that is passed by less, as a share of its width.
KEPT = {False: 1e-3, True: 1e-9}


class Distances(NamedTuple):
    """To the lower and the upper bounds (2, kinds, N, *batch, nv), where `counts`, and else 1.

    Attributes:
      room: in half widths.
      width (kinds, N, *batch, nv): half of what is between the bounds.
      scale: the unit of mu.
    """

    room: jax.Array
    counts: jax.Array
    width: jax.Array
    scale: jax.Array


class Interior(NamedTuple):
    """Slacks and multipliers (2, kinds, N, *batch, nv), and how much of the last step was taken (*batch,)."""

    slack: jax.Array
    multiplier: jax.Array
    share: jax.Array


def distances(value: jax.Array, lower: jax.Array, upper: jax.Array, counts: jax.Array, weight: jax.Array) -> Distances:
    """Of values (kinds, N, *batch, nv) between bounds, infinite where there is none, and where they count.

    Args:
      weight: of the squared value in what a motion pays.
    """
    finite = jnp.isfinite(jnp.stack([lower, upper]))
    low, high = jnp.where(finite[0], lower, -jnp.abs(upper)), jnp.where(finite[1], upper, jnp.abs(lower))
    counts = counts & finite
    some = jnp.any(counts, axis=0)
    width = jnp.where(some, (high - low) / 2, 1)
    width = jnp.maximum(width, jnp.finfo(value.dtype).eps)
    room = jnp.where(counts, jnp.stack([value - low, high - value]) / width, 1)
    return Distances(room, counts, width, jnp.where(some, weight * width**2, 1))


def begun(distances: Distances) -> Interior:
    """Slacks and multipliers to begin with."""
    most = jnp.max(jnp.where(distances.counts, -distances.room, 0), axis=(0, 2, -1), keepdims=True, initial=0)
    slack = jnp.where(distances.counts, jnp.maximum(distances.room, FIRST_SLACK + most), 1)
    multiplier = jnp.where(distances.counts, FIRST_MULTIPLIER * distances.scale, 0)
    batch = distances.room.shape[3:-1]
    return Interior(slack, multiplier, jnp.ones(batch, slack.dtype))


def gap(inside: Interior, distances: Distances) -> jax.Array:
    """The mean of s z, in its units (*batch,)."""
    axes = (0, 1, 2, -1)
    total = jnp.sum(inside.slack * inside.multiplier / distances.scale, axis=axes)
    return total / jnp.maximum(jnp.sum(distances.counts, axis=axes), 1)


def aimed(inside: Interior, distances: Distances) -> jax.Array:
    """The mu (*batch,) that the next step aims at."""
    now, last = gap(inside, distances), LAST_MU[inside.slack.dtype == jnp.float64]
    return jnp.maximum(now * jnp.clip((1 - inside.share) ** 2, *CENTRING), last)


def slopes(inside: Interior, distances: Distances, mu: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What limits add to the gradient and to the diagonal, by value (kinds, N, *batch, nv)."""
    slack, multiplier, _ = inside
    firm = multiplier / slack
    missing = distances.room - slack
    pull = jnp.where(distances.counts, mu[..., None] * distances.scale / slack - firm * missing, 0)
    return (pull[1] - pull[0]) / distances.width, jnp.sum(firm, axis=0) / distances.width**2


def moved(
    inside: Interior, distances: Distances, mu: jax.Array, change: jax.Array, most: jax.Array
) -> tuple[Interior, jax.Array]:
    """Slacks and multipliers after a step whose values change by (kinds, N, *batch, nv), and the share that is taken.

    Args:
      most (*batch,): of the step that may be taken.
    """
    slack, multiplier, _ = inside
    way = change / distances.width
    to_slack = jnp.stack([way, -way]) + distances.room - slack
    to_multiplier = (mu[..., None] * distances.scale - multiplier * to_slack) / slack - multiplier
    along, across = (
        jnp.minimum(1, SHORT / jnp.max(jnp.where(distances.counts, -to / x, 0), axis=(0, 1, 2, -1), initial=SHORT))
        for x, to in ((slack, to_slack), (jnp.where(distances.counts, multiplier, 1), to_multiplier))
    )
    along = jnp.minimum(along, most)
    slack = jnp.where(distances.counts, slack + along[..., None] * to_slack, 1)
    multiplier = jnp.where(distances.counts, multiplier + across[..., None] * to_multiplier, 0)
    multiplier = jnp.minimum(multiplier, MOST_MULTIPLIER * distances.scale)
    return Interior(slack, multiplier, jnp.minimum(along, across)), along


def passed(distances: Distances) -> jax.Array:
    """By how much a limit is passed at most, in half widths (*batch,); 0 for none."""
    return jnp.max(jnp.where(distances.counts, -distances.room, 0), axis=(0, 1, 2, -1), initial=0)


def ended(inside: Interior, distances: Distances) -> jax.Array:
    """Whether limits hold, but for what a step mends, and mu is where it ends (*batch,)."""
    double = inside.slack.dtype == jnp.float64
    return (passed(distances) <= KEPT[double]) & (gap(inside, distances) <= 2 * LAST_MU[double])
