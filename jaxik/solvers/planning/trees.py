"""Two trees of configurations, one from each end, that grow until a straight way joins them.

RRT-Connect (Kuffner and LaValle 2000): the smaller tree grows towards a sample, from its nearest node, as far as the
way is free and by `reach` at most; then the other one towards the new node, as far as the way is free. With constraints
it goes there by `reach` at a time, and each end is projected onto them (CBiRRT, Berenson et al. 2009).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.solvers.planning.projection import project
from jaxik.solvers.planning.setting import Setting, drawn

# The most waypoints that a path may have.
WAYPOINTS = 32
# A shorter way adds no node [rad or m], as the root of the sum of squares over joints.
LEAST = 0.1
# More than any attempt draws.
SAMPLES = 1 << 16


class Trees(NamedTuple):
    """Both trees, and the way that is looked at: from a node of one to a sample, or to a node of the other.

    Attributes:
      nodes (2, M, nq): of the tree from the first end, and of that from the last.
      parents (2, M): int32; roots, which are nodes 0, are their own.
      counts (2,): int32, of nodes.
      side, near (): int32: the tree that grows, and its node from which it does.
      other (): int32: the node of the other tree to which it grows; -1: it grows to a sample.
      samples (): int32, how many were drawn.
      joined (): whether the way joins the trees.
    """

    nodes: jax.Array
    parents: jax.Array
    counts: jax.Array
    side: jax.Array
    near: jax.Array
    other: jax.Array
    samples: jax.Array
    joined: jax.Array


def planted(setting: Setting, attempt: jax.Array) -> tuple[Trees, jax.Array, jax.Array]:
    """The roots, and the way (nq,), (nq,) from the last to the first; each attempt () has samples of its own."""
    count, zero, one = setting.options.nodes, jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
    roots = jnp.stack([setting.first, setting.last])
    nodes = jnp.broadcast_to(roots[:, None], (2, count, roots.shape[-1]))
    parents, counts = jnp.zeros((2, count), jnp.int32), jnp.ones(2, jnp.int32)
    trees = Trees(nodes, parents, counts, one, zero, zero, SAMPLES * attempt, jnp.zeros((), bool))
    return trees, setting.last, setting.first


def grown(
    setting: Setting, trees: Trees, begin: jax.Array, share: jax.Array, end: jax.Array
) -> tuple[Trees, jax.Array, jax.Array]:
    """The trees after a way (nq,), (nq,) that was free up to a share () of it; and the next way."""
    way, length = end - begin, length_of(end - begin)
    reached = begin + share * way
    connects, arrived = trees.other >= 0, share == 1
    joined, goes_on, aim = connects & arrived, jnp.zeros((), bool), end
    if setting.manifold is not None:
        aim = _node(trees.nodes, 1 - trees.side, trees.other)
        joined = joined & jnp.all(end == aim)
        nearer = length_of(aim - end) < length_of(aim - begin) - LEAST * setting.unit
        goes_on = connects & arrived & ~joined & nearer
    side, capacity = trees.side, trees.nodes.shape[1]
    place = trees.counts[side]
    adds = (arrived | (share * length > LEAST * setting.unit)) & ~joined
    at = jnp.arange(capacity) == place
    here = (jnp.arange(2) == side)[:, None] & at & adds
    nodes = jnp.where(here[..., None], reached, trees.nodes)
    parents = jnp.where(here, trees.near, trees.parents)
    counts = trees.counts + (jnp.arange(2) == side) * adds
    # A new node is what the other tree grows to; else the smaller one grows to a sample.
    turns = adds & ~connects
    connecting, other = turns | goes_on, jnp.where(goes_on, trees.other, place)
    smaller = jnp.where(counts[1] < counts[0], 1, 0)
    side = jnp.where(turns, 1 - side, jnp.where(goes_on, side, smaller)).astype(jnp.int32)
    target = jnp.where(turns, reached, jnp.where(goes_on, aim, drawn(setting, trees.samples)))
    own = jnp.where(side == 0, nodes[0], nodes[1])
    away = jnp.sum((own - target) ** 2, axis=1)
    away = jnp.where(jnp.arange(capacity) < counts[side], away, jnp.inf)
    near = jnp.where(goes_on, place, jnp.argmin(away)).astype(jnp.int32)
    begin = own[near]
    distance = length_of(target - begin)
    part = jnp.minimum(1, setting.options.reach / jnp.where(distance > 0, distance, 1))
    if setting.manifold is None:
        part = jnp.where(connecting, 1, part)
    onward = jnp.where(part < 1, begin + part * (target - begin), target)
    if setting.manifold is not None:
        ahead = project(setting.manifold, onward)
        onward = jnp.where((connecting & (part == 1)) | ~ahead.kept, onward, ahead.q)
    samples = trees.samples + ~connecting
    other = jnp.where(connecting, other, -1).astype(jnp.int32)
    after = Trees(nodes, parents, counts, side, near, other, samples, joined)
    # The way that joins is kept.
    after = after._replace(
        side=jnp.where(joined, trees.side, side),
        near=jnp.where(joined, trees.near, near),
        other=jnp.where(joined, trees.other, other),
        counts=jnp.where(joined, trees.counts, counts),
    )
    return after, begin, onward


def _node(nodes: jax.Array, side: jax.Array, place: jax.Array) -> jax.Array:
    """A node (nq,) of one tree."""
    of_side = jnp.where(side == 0, nodes[0], nodes[1])
    return of_side[jnp.maximum(place, 0)]


def is_full(trees: Trees) -> jax.Array:
    """Whether a tree has no place for another node ()."""
    return jnp.any(trees.counts == trees.nodes.shape[1])


def length_of(way: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(way**2))


def path_through(trees: Trees) -> tuple[jax.Array, jax.Array]:
    """The waypoints (K, nq) from the first end to the last, and how many there are (); 0 where these are too many."""
    from_first = jnp.where(trees.side == 0, trees.near, trees.other)
    from_last = jnp.where(trees.side == 0, trees.other, trees.near)
    chains = [_chain(trees.parents[0], from_first), _chain(trees.parents[1], from_last)]
    (up, depth), (down, rest) = chains
    k = jnp.arange(WAYPOINTS)
    first = trees.nodes[0][up[jnp.clip(depth - 1 - k, 0, WAYPOINTS - 1)]]
    last = trees.nodes[1][down[jnp.clip(k - depth, 0, WAYPOINTS - 1)]]
    count = depth + rest
    points = jnp.where((k < depth)[:, None], first, last)
    end = trees.nodes[1][0]
    return jnp.where((k < count)[:, None], points, end), jnp.where(count <= WAYPOINTS, count, 0)


def _chain(parents: jax.Array, leaf: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The nodes (K,) from a leaf to the root, and how many there are (); more than K where they do not fit."""

    def up(node: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return parents[node], node

    beyond, chain = lax.scan(up, leaf, None, length=WAYPOINTS)
    depth = 1 + jnp.sum(chain != 0, dtype=jnp.int32)
    return chain, jnp.where(beyond == 0, depth, WAYPOINTS + 1)
