"""The shortest path through layers of candidates, a layer each waypoint: dynamic programming, linear in those."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.kinematics import manifold
from jaxik.kinematics.topology import Topology

# Paths that move more by a smaller share are as good.
TIED = 1e-6
# Steps that are longer than they may be by up to this count as a waypoint missed and not as a jump: the tolerances of
# the path may make them shorter.
STRAINED = 1.5
# A displacement of a joint without a speed limit that is no jump [rad or m]: 7 degrees, as CppFlow has it.
LONGEST_STEP = 0.12
# Limits are too low for a path where no more than this share of its steps can be made within them: jumps are told then
# as without limits, as one that leaves the path would be fewer than all steps along it.
SLOW = 0.1
# Jumps up to so many times the longest step may be spread over several steps by smoothing, and count as one waypoint
# missed less.
SPREAD = 6.0


class Cost(NamedTuple):
    """What paths are compared by, the first number first.

    Attributes:
      events: how many waypoints are missed, how many steps strained, and the cost of each jump.
      movement: the sum over all steps of the squared displacement, in shares of the longest that is no jump; and of
        misses and penalties.
    """

    events: jax.Array
    movement: jax.Array


def shortest_path(
    topology: Topology,
    q: jax.Array,
    missed: jax.Array,
    miss: jax.Array,
    penalty: jax.Array,
    longest_step: jax.Array,
    jump_cost: jax.Array,
    start: jax.Array | None,
    steps: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Choose one candidate at every waypoint.

    Fewest waypoints missed and fewest jumps, steps in which a joint moves further than it may; one that moves a little
    too far counts as a waypoint missed. Then least movement and penalties. Of a path that is too fast for its limits
    everywhere, jumps are told as if there were none.
    Hinges are not wrapped: a whole turn is a way to go.

    Args:
      q (T, L, nq): candidates of each waypoint.
      missed (T, L): whether a candidate is not on the path there.
      miss (T, L): how far off it is then, on the scale of `Cost.movement`.
      penalty (T, L): of what yields there, on that scale.
      longest_step (nv,): the longest displacement that is no jump.
      jump_cost (): how many waypoints are missed rather than one more jump made, int32.
      start (nq,): the configuration before the first waypoint; None: free.
      steps (T,): over how many the way to a candidate is spread; None: one.

    Returns:
      The index (T,) of the candidate; and whether a path that ends more than a step away costs as much ().
    """
    steps = jnp.ones(q.shape[0], q.dtype) if steps is None else steps.astype(q.dtype)
    relieved = _too_fast(topology, q, missed, longest_step, steps) & (longest_step > 0)
    longest_step = jnp.where(relieved, jnp.maximum(longest_step, LONGEST_STEP), longest_step)

    def move(a: jax.Array, b: jax.Array, steps: jax.Array) -> Cost:
        way = manifold.difference(topology, a, b) / steps
        far, jump, strained = (~jnp.all(jnp.abs(way) <= x * longest_step) for x in (SPREAD, STRAINED, 1.0))
        # A joint that must not move has no share, and not 0 / 0.
        share = jnp.where(longest_step > 0, way / jnp.where(longest_step > 0, longest_step, 1), 0)
        short = jnp.where(jump, jnp.maximum(jump_cost - 1, 1), strained.astype(jnp.int32))
        return Cost(jnp.where(far, jump_cost, short), steps * jnp.sum(share * share))

    between = jax.vmap(jax.vmap(move, (None, 0, None)), (0, None, None))

    def own(missed: jax.Array, miss: jax.Array, penalty: jax.Array) -> Cost:
        return Cost(missed.astype(jnp.int32), jnp.where(missed, miss, 0) + penalty)

    def extend(before: tuple[Cost, jax.Array], layer: tuple[jax.Array, ...]) -> tuple[tuple, jax.Array]:
        cost, here = before
        there, steps, *costs = layer
        step = between(here, there, steps)
        events = cost.events[:, None] + step.events
        fewest = jnp.min(events, axis=0)
        movement = jnp.where(events == fewest, cost.movement[:, None] + step.movement, jnp.inf)
        came_from = jnp.argmin(movement, axis=0)
        at = own(*costs)
        return (Cost(fewest + at.events, jnp.min(movement, axis=0) + at.movement), there), came_from

    first = own(missed[0], miss[0], penalty[0])
    if start is not None:
        step = jax.vmap(move, (None, 0, None))(start, q[0], steps[0])
        first = Cost(first.events + step.events, first.movement + step.movement)
    (last, there), came_from = lax.scan(extend, (first, q[0]), (q[1:], steps[1:], missed[1:], miss[1:], penalty[1:]))
    end = jnp.argmin(jnp.where(last.events == jnp.min(last.events), last.movement, jnp.inf))
    back = lambda lane, sources: (sources[lane], lane)  # noqa: E731
    origin, chosen = lax.scan(back, end, came_from, reverse=True)
    apart = jax.vmap(move, (None, 0, None))(there[end], there, jnp.ones((), q.dtype)).events > 0
    as_good = (last.events == last.events[end]) & (last.movement <= last.movement[end] * (1 + TIED))
    return jnp.concatenate([origin[None], chosen]), jnp.any(apart & as_good)


def _too_fast(
    topology: Topology, q: jax.Array, missed: jax.Array, longest_step: jax.Array, steps: jax.Array
) -> jax.Array:
    """Whether nearly all steps along a path, of those that move, are jumps between any two candidates ()."""

    def length(a: jax.Array, b: jax.Array) -> jax.Array:
        way = jnp.abs(manifold.difference(topology, a, b))
        return jnp.max(jnp.where(longest_step > 0, way / jnp.where(longest_step > 0, longest_step, 1), 0))

    def shortest(pair: tuple[jax.Array, ...]) -> jax.Array:
        here, there, off, missed, steps = pair
        lengths = jax.vmap(jax.vmap(length, (None, 0)), (0, None))(here, there) / steps
        return jnp.min(jnp.where(off[:, None] | missed, jnp.inf, lengths))

    found = lax.map(shortest, (q[:-1], q[1:], missed[:-1], missed[1:], steps[1:]))
    # Not where the last waypoint is repeated up to the length of the program, nor out of reach.
    moves = (found > 0) & jnp.isfinite(found)
    return jnp.sum(moves & (found <= 1)) < SLOW * jnp.sum(moves)
