"""Slacks and multipliers of a motion's limits: the rows of a primal-dual interior point.

Nocedal and Wright, "Numerical Optimization", 19.3. Each limit is a distance that stays above zero, d = s > 0, with a
multiplier z > 0 and s z = mu, and mu shrinks from step to step. Distances count in half widths of their limits,
and mu in what a motion pays that uses all of one, so that displacements and jerks are alike.

A limit that is `Elastic` may yield by t > 0 at a price of rho for each half width: d + t = s, with (rho - z) t = mu
beside s z = mu, so that its multiplier ends below rho where it holds, and at rho where it yields.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Slacks begin at least so large where a limit says nothing else, and larger by how far one of its kind is passed;
# multipliers begin at this.
FIRST_SLACK, FIRST_MULTIPLIER = 0.1, 1e-2
# The first mu of limits that yield, in its units: with 0.01 multipliers of what is passed by far began next to rho, and
# only a hundredth of a step could be taken.
FIRST_MU = 1.0
# Where contradicting limits drive multipliers no further.
MOST_MULTIPLIER = 1e8
# Where mu ends: what is left of it presses joints away from their limits.
LAST_MU = 1e-10
# Of the way to where a slack or a multiplier would be zero.
SHORT = 0.99
# By how much mu shrinks in a step: at most, after a whole one, and at least.
CENTRING = 0.05, 0.8
# The unit of limits that yield is no less [rad or m]: their half widths may be zero.
LEAST_WIDTH = 1e-2
# Of how far slacks are from distances, mu is no less: slacks that come to zero earlier let no step through. Of 24 paths
# of a Panda within six sets of tight limits 89 of 144 are kept, without this 82. With 0.1 there are as many, but
# CppFlow's square did not settle.
MISSING = 0.01
# A limit is kept that is passed by less, as a share of its width.
KEPT = 1e-9


class Distances(NamedTuple):
    """To the lower and the upper bounds (2, kinds, N, *batch, nv), where `counts`, and else 1.

    Attributes:
      room: in half widths.
      width (kinds, N, *batch, nv): half of what is between the bounds.
      scale: the unit of mu.
      price: rho, infinite where a limit holds.
      first_mu, first_slack (kinds, N, *batch, nv): the mu that limits begin with that yield, and the least slack.
    """

    room: jax.Array
    counts: jax.Array
    width: jax.Array
    scale: jax.Array
    price: jax.Array
    first_mu: jax.Array
    first_slack: jax.Array


class Interior(NamedTuple):
    """Slacks, multipliers, and how far limits yield (2, kinds, N, *batch, nv); the share of the last step (*batch,)."""

    slack: jax.Array
    multiplier: jax.Array
    yields: jax.Array
    share: jax.Array


def distances(
    value: jax.Array,
    lower: jax.Array,
    upper: jax.Array,
    counts: jax.Array,
    weight: jax.Array,
    penalty: jax.Array | float = jnp.inf,
    first_mu: float = FIRST_MU,
    first_slack: jax.Array | float = FIRST_SLACK,
    least_width: float = LEAST_WIDTH,
) -> Distances:
    """Of values (kinds, N, *batch, nv) between bounds, infinite where there is none, and where they count.

    Args:
      weight: of the squared value in what a motion pays.
      penalty: rho by the unit of the values, infinite where a limit holds.
      first_mu: of limits that yield, to begin with.
      first_slack: of all, to begin with.
      least_width: of these [the unit of the values].
    """
    finite = jnp.isfinite(jnp.stack([lower, upper]))
    low, high = jnp.where(finite[0], lower, -jnp.abs(upper)), jnp.where(finite[1], upper, jnp.abs(lower))
    counts = counts & finite
    some = jnp.any(counts, axis=0)
    width = jnp.where(some, (high - low) / 2, 1)
    holds = jnp.isinf(penalty)
    width = jnp.maximum(width, jnp.where(holds, jnp.finfo(value.dtype).eps, least_width))
    room = jnp.where(counts, jnp.stack([value - low, high - value]) / width, 1)
    scale = jnp.where(some, weight * width**2, 1)
    # Not infinity times the width, whose derivative is NaN.
    price = jnp.where(holds, jnp.inf, jnp.where(holds, 0, penalty) * width)
    return Distances(
        room, counts, width, scale, price, jnp.full_like(width, first_mu), jnp.broadcast_to(first_slack, width.shape)
    )


def begun(distances: Distances) -> Interior:
    """Slacks and multipliers to begin with; those of elastic limits are exactly where s z = (rho - z) t = mu."""
    most = jnp.max(jnp.where(distances.counts, -distances.room, 0), axis=(0, 2, -1), keepdims=True, initial=0)
    slack = jnp.where(distances.counts, jnp.maximum(distances.room, distances.first_slack + most), 1)
    multiplier = jnp.where(distances.counts, FIRST_MULTIPLIER * distances.scale, 0)
    elastic = distances.counts & jnp.isfinite(distances.price)
    price = jnp.where(elastic, distances.price / distances.scale, 1)
    # Slack and yield differ by the room; their mean is of two roots the one where both are positive.
    first = distances.first_mu
    mean = (first + jnp.hypot(first, price * distances.room / 2)) / price
    larger = mean + jnp.abs(distances.room) / 2
    smaller = 2 * first * mean / (price * larger)
    inner = distances.room > 0
    yields = jnp.where(elastic, jnp.where(inner, smaller, larger), 0)
    slack = jnp.where(elastic, jnp.where(inner, larger, smaller), slack)
    multiplier = jnp.where(elastic, first / slack * distances.scale, multiplier)
    return Interior(slack, multiplier, yields, jnp.ones(distances.room.shape[3:-1], slack.dtype))


def entered(inside: Interior, distances: Distances, fresh: jax.Array) -> Interior:
    """With limits (kinds, N, *batch, nv) that are others than before: at the mean of s z, and s = z where these end."""
    fresh, now = fresh & distances.counts, gap(inside, distances)[..., None]
    slack = jnp.where(fresh, jnp.maximum(distances.room, jnp.sqrt(now)), inside.slack)
    return inside._replace(slack=slack, multiplier=jnp.where(fresh, now * distances.scale / slack, inside.multiplier))


def gap(inside: Interior, distances: Distances) -> jax.Array:
    """The mean of s z, and of t (rho - z) where a limit is elastic, in its units (*batch,)."""
    axes, elastic = (0, 1, 2, -1), distances.counts & jnp.isfinite(distances.price)
    left = jnp.where(elastic, distances.price - inside.multiplier, 0)
    products = inside.slack * inside.multiplier + inside.yields * left
    total = jnp.sum(products / distances.scale, axis=axes)
    return total / jnp.maximum(jnp.sum(distances.counts, axis=axes) + jnp.sum(elastic, axis=axes), 1)


def aimed(inside: Interior, distances: Distances) -> jax.Array:
    """The mu (*batch,) that the next step aims at."""
    now = gap(inside, distances)
    missing = jnp.where(distances.counts, inside.slack - inside.yields - distances.room, 0)
    least = jnp.maximum(MISSING * jnp.max(missing, axis=(0, 1, 2, -1), initial=0), LAST_MU)
    return jnp.maximum(now * jnp.clip((1 - inside.share) ** 2, *CENTRING), least)


def slopes(inside: Interior, distances: Distances, mu: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What limits add to the gradient and to the diagonal, by value (kinds, N, *batch, nv)."""
    pull = jnp.where(distances.counts, _following(inside, distances, mu, 0), 0)
    return (pull[1] - pull[0]) / distances.width, jnp.sum(firmness(inside, distances), axis=0) / distances.width**2


def firmness(inside: Interior, distances: Distances) -> jax.Array:
    """How much multipliers grow for each half width that a limit is nearer, z / s where it holds."""
    return inside.multiplier / _give(inside, distances)


def _give(inside: Interior, distances: Distances) -> jax.Array:
    slack, multiplier, yields, _ = inside
    return slack + multiplier * yields / (distances.price - multiplier)


def _following(inside: Interior, distances: Distances, mu: jax.Array, change: jax.Array | float) -> jax.Array:
    """The multipliers of Newton's step, after which distances are `change` larger."""
    slack, multiplier, yields, _ = inside
    aim = mu[..., None] * distances.scale
    missing = distances.room + change - slack
    yielding = (aim - multiplier * yields) / (distances.price - multiplier)
    return (aim - multiplier * (missing + yielding)) / _give(inside, distances)


def moved(
    inside: Interior, distances: Distances, mu: jax.Array, change: jax.Array, most: jax.Array
) -> tuple[Interior, jax.Array]:
    """Slacks and multipliers after a step whose values change by (kinds, N, *batch, nv), and the share that is taken.

    Args:
      most (*batch,): of the step that may be taken.
    """
    slack, multiplier, yields, _ = inside
    way, left = jnp.stack([change, -change]) / distances.width, distances.price - multiplier
    to_multiplier = _following(inside, distances, mu, way) - multiplier
    # Of slack and yield the smaller by its own product, as rounding of the larger one would drown it; d + t = s.
    aim, counts, more = mu[..., None] * distances.scale, distances.counts, way + distances.room
    passed = multiplier > left
    to_slack = (aim - slack * to_multiplier) / jnp.where(passed, multiplier, 1) - slack
    to_yield = (aim + yields * to_multiplier) / left - yields
    to_slack, to_yield = (
        jnp.where(passed, to_slack, more + yields + to_yield - slack),
        jnp.where(passed, slack + to_slack - more - yields, to_yield),
    )

    def share(*moves: tuple[jax.Array, jax.Array]) -> jax.Array:
        shrinks = jnp.stack([jnp.where(counts & (x > 0), -to / jnp.where(x > 0, x, 1), 0) for x, to in moves])
        return jnp.minimum(1, SHORT / jnp.max(shrinks, axis=(0, 1, 2, 3, -1), initial=SHORT))

    along = jnp.minimum(share((slack, to_slack), (yields, to_yield)), most)
    across = share((multiplier, to_multiplier), (left, -to_multiplier))
    slack = jnp.where(counts, slack + along[..., None] * to_slack, 1)
    yields = jnp.where(counts, yields + along[..., None] * to_yield, 0)
    multiplier = jnp.where(counts, multiplier + across[..., None] * to_multiplier, 0)
    # Of what yields it stays below the price.
    capped = jnp.minimum(multiplier, MOST_MULTIPLIER * distances.scale)
    multiplier = jnp.where(jnp.isinf(distances.price), capped, multiplier)
    return Interior(slack, multiplier, yields, jnp.minimum(along, across)), along


def passed(distances: Distances, spare: jax.Array | float = 0.0) -> jax.Array:
    """By how much a limit that holds is passed at most, beyond what it has to spare, in half widths (*batch,)."""
    holds = distances.counts & jnp.isinf(distances.price)
    return jnp.max(jnp.where(holds, -distances.room - spare, 0), axis=(0, 1, 2, -1), initial=0)


def ended(inside: Interior, distances: Distances) -> jax.Array:
    """Whether limits hold, but for what a step mends, and mu is where it ends (*batch,)."""
    beyond = jnp.where(distances.counts, -distances.room - inside.yields, 0)
    met = jnp.max(beyond, axis=(0, 1, 2, -1), initial=0) <= KEPT
    return met & (gap(inside, distances) <= 2 * LAST_MU)
