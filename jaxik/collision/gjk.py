"""Any two convex shapes: how far they are apart by Gilbert, Johnson and Keerthi (1988), and the way out by the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxik.batching.trailing_vmap import vmap_last
from jaxik.collision.contact import Contact, roundings
from jaxik.collision.convex import Convex, probes
from jaxik.collision.features import direction_of_features, is_curved
from jaxik.collision.material_points import moving_apart
from jaxik.collision.simplex import Corners, nearest_to_origin
from jaxik.numerics.custom_rules import pure_rule, with_derivative_of
from jaxik.numerics.fusion import materialize, materialize_mask
from jaxik.numerics.vectors import Vector, dot, length_and_direction, select, upright

# Steps at most while apart, and in each round of those that overlap: of 10, half of the ways out are not the shortest.
STEPS, STEPS_OF_ROUND, ROUNDS = 24, 24, 5
# Where shapes overlap or nearly touch, the nearest point is that to a point so far outside, as a share of the extents:
# its direction is then known to rounding.
OFFSET = 0.05
# A step that brings less ends a stage, as a share of the extents: in float32 and float64.
TOLERANCE = (4e-7, 1e-9)


class State(NamedTuple):
    """Of each pair; b - a are the differences of points of the two shapes.

    Attributes:
      a: three points of the first shape, from its centre.
      y: the differences of these three.
      origin: the point to which the nearest difference is looked for.
      apart: from there to the nearest of the differences so far.
      near: the point of the first shape that belongs to it.
      separation, normal: the best lower bound of the distance so far, and its direction.
      before: the separation when the round began.
      stage: 0 while apart; then the number of the axis that is looked at; then that of the last axis and of the round.
      steps: of the stage.
      done: nothing is left to improve.
    """

    a: Corners
    y: Corners
    origin: Vector
    apart: Vector
    near: Vector
    separation: jax.Array
    normal: Vector
    before: jax.Array
    stage: jax.Array
    steps: jax.Array
    done: jax.Array


class Support(NamedTuple):
    """The differences that are farthest in a direction.

    Attributes:
      direction: a unit vector.
      of_a, difference: the point of the first shape, from its centre, and the difference.
      separation: of the shapes along the direction: no more than their distance.
    """

    direction: Vector
    of_a: Vector
    difference: Vector
    separation: jax.Array


def convex_convex(a: Convex, b: Convex) -> Contact:
    """Of two convex shapes, the separation along the best direction that is found: never more than the distance.

    Apart, it is the distance: exactly between hulls and boxes, to the tolerance of the steps at curved surfaces.
    Overlapping, it is minus a way out, the shortest one nearby, and not always the shortest of all: deeper than the
    shapes are, never less deep. Derivatives of normal and point are those of the corners, edges and faces that are
    nearest, and zero where a shape is curved; the first one of the distance is then that of the points of contact.
    """
    normal, point = _best_direction(a, b)
    first, second = a.center + a.reach(normal), b.center + b.reach(-normal)
    contact = Contact(dot(normal, second - first), normal, point)
    # Of a box or a hull beside a curved shape, the corner that is farthest is not what is nearest.
    change = jnp.where(is_curved(a) | is_curved(b), moving_apart(a, b, contact), contact.distance)
    return contact._replace(distance=with_derivative_of(contact.distance, change))


@jax.custom_jvp
def _best_direction(a: Convex, b: Convex) -> tuple[Vector, Vector]:
    """The direction, and the point of the first shape that is nearest to the second or deepest in it."""
    return _best(a, b)


@_best_direction.defjvp
@pure_rule
def _turned(primals: tuple[Convex, Convex], tangents: tuple[Convex, Convex]) -> tuple[Any, Any]:
    (a, b), found = primals, _best_direction(*primals)
    normal = lax.stop_gradient(found[0])
    _, turned = jax.jvp(lambda a, b: direction_of_features(a, b, normal), primals, tangents)
    curved = is_curved(a) | is_curved(b)
    return found, jax.tree.map(lambda x: jnp.where(curved, 0, x), turned)


@custom_vmap
def _best(a: Convex, b: Convex) -> tuple[Vector, Vector]:
    """Of an element alone: all of its pairs together, each as it was when it was done."""
    offset, size = b.center - a.center, a.extent + b.extent
    shape = jnp.broadcast_shapes(offset.x.shape, size.shape)
    offset, size = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (offset, size))
    _, ahead = length_and_direction(offset, upright(size))

    def step(state: State) -> State:
        new = _step(_farthest(a, b, offset, size, ahead, state), size, len(probes(a, b)), state)
        return jax.tree.map(lambda x, y: jnp.where(state.done, x, y), state, new) if shape else new

    end = lax.while_loop(lambda state: ~jnp.all(state.done), step, _start(offset, size, ahead, a.inner(), b.inner()))
    return end.normal, a.center + end.near


@_best.def_vmap
def _of_batch(size: int, batched: Any, a: Convex, b: Convex) -> tuple[Any, Any]:
    """Of many elements: one pair of each after the other, which takes long only where some are near in that pair.

    All pairs of all elements together would wait for the slowest of all, which takes ten times as many steps as most.
    """

    def each(a: Convex, b: Convex) -> tuple[Vector, Vector]:
        return lax.map(lambda pair: _best.fun(*pair), (a, b)) if a.center.x.ndim else _best.fun(a, b)

    flags = tuple(batched)
    last = jax.tree.map(lambda x, mapped: jnp.moveaxis(x, 0, -1) if mapped else x, (a, b), flags)
    found = vmap_last(each, flags, size)(*last)
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found), jax.tree.map(lambda _: True, found)


def _start(offset: Vector, size: jax.Array, ahead: Vector, of_a: Vector, of_b: Vector) -> State:
    """At points of the two shapes, from their centres: of others, what is between would count as part of them."""
    zero, lowest = size * 0, jnp.full_like(size, -jnp.inf)
    none = offset.map(jnp.zeros_like)
    inside = none + of_a
    between = offset + of_b - inside
    return State(
        a=(inside, inside, inside),
        y=(between, between, between),
        origin=none,
        apart=between,
        near=inside,
        separation=lowest,
        normal=ahead,
        before=lowest,
        stage=zero,
        steps=zero,
        done=jnp.zeros_like(zero, bool),
    )


def _farthest(a: Convex, b: Convex, offset: Vector, size: jax.Array, ahead: Vector, s: State) -> Support:
    """The difference that is farthest towards the point that is looked from, or along the axis that is looked at."""
    axes, chosen = probes(a, b), ahead
    for i, axis in enumerate(axes, start=1):
        chosen = select(s.stage == i, axis, chosen)
    looking = (s.stage > 0) & (s.stage <= len(axes))
    _, along = length_and_direction(chosen, ahead)
    _, direction = length_and_direction(s.apart, s.normal, roundings(size.dtype) * size)
    direction = select(looking, select(dot(along, offset) < 0, -along, along), direction).map(materialize)
    of_a = a.reach(direction).map(materialize)
    difference = (offset + b.reach(-direction) - of_a).map(materialize)
    return Support(direction, of_a, difference, dot(direction, difference))


def _step(found: Support, size: jax.Array, last_axis: int, s: State) -> State:
    """One step: take the new difference into the simplex, and go on to the next stage where this one has ended."""
    # Masks are materialized: rounding may differ where XLA computes one again, and mix components of two vectors.
    better = materialize_mask(found.separation >= s.separation)
    best, normal = jnp.where(better, found.separation, s.separation), select(better, found.direction, s.normal)
    new, old = found.difference - s.origin, _map(lambda corner: corner - s.origin, s.y)
    nearest = nearest_to_origin(new, old)
    apart = nearest.point(new, old).map(materialize)
    length, _ = length_and_direction(s.apart, s.normal, roundings(size.dtype) * size)
    tolerance = TOLERANCE[size.dtype == jnp.float64] * (size + length)
    looking = (s.stage > 0) & (s.stage <= last_axis)
    closer = materialize_mask((dot(apart, apart) < length * length) & ~looking)
    reached = materialize_mask(length - dot(found.direction, new) <= tolerance)
    settled = reached | ~closer

    is_first, is_round, far = s.stage == 0, s.stage > last_axis, OFFSET * size
    late = s.steps >= jnp.where(is_first, STEPS - 1, STEPS_OF_ROUND - 1)
    first_over = is_first & (nearest.inside & (best <= 0) | settled | late)
    round_over = is_round & (settled | late)
    no_more = (best <= s.before + tolerance) | (s.stage >= last_axis + ROUNDS)
    done = s.done | (is_first & (best > far) & reached) | (round_over & no_more)
    # Shapes that nearly touch, and simplices that are too flat, go on to the rounds, what overlaps to its axes first.
    follows = jnp.where(first_over, jnp.where(best > 0, last_axis + 1, 1), s.stage + (looking | round_over))
    begins = (follows > last_axis) & (follows != s.stage)
    fresh, accepted = materialize_mask(begins & ~done), materialize_mask(closer & ~(begins & ~done))

    def kept(at_first: Vector, taken: Vector, before: Vector) -> Vector:
        return select(fresh, at_first, select(accepted, taken, before))

    of_a, y = (found.of_a, *nearest.corners(s.a)), (found.difference, *nearest.corners(s.y))
    return State(
        a=_map(lambda taken, before: kept(found.of_a, taken, before), of_a, s.a),
        y=_map(lambda taken, before: kept(found.difference, taken, before), y, s.y),
        origin=select(fresh, normal * jnp.minimum(best - far, 0), s.origin),
        apart=kept(normal * (8 * size), apart, s.apart),
        near=select(accepted, nearest.point(found.of_a, s.a), s.near),
        separation=best,
        normal=normal,
        before=jnp.where(fresh, best, s.before),
        stage=jnp.where(done, s.stage, follows),
        steps=jnp.where(first_over | round_over, 0, s.steps + 1),
        done=done,
    )


def _map(function: Callable[..., Vector], *corners: Corners) -> Corners:
    first, second, third = (function(*each) for each in zip(*corners, strict=True))
    return first, second, third
