"""Whether shapes stay apart all the way between two configurations, and not only at both ends.

Every joint turns or slides at a constant rate. Seen from one shape of a pair, a point of the other moves by no more
than M = exp(W) sum |dq_j| r_j, with r_j how far the shape reaches from the axis of joint j and W the angles by which
the joints between the two turn, all together; and its acceleration is no more than 2 W M, each joint turning what those
behind it do. A direction that separates two convex shapes by s at one end and by s' at the other then separates them by
(1 - t) s + t s' - W M t (1 - t) at least on the way, which is nowhere negative if (sqrt s + sqrt s')^2 >= W M. What is
no convex shape, a grid or a cloud of points, has no such direction: there d + d' >= M is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.collision.boxes import Box
from jaxik.collision.convex import Hull, Primitive
from jaxik.collision.distances import SEPARATIONS, Operands, contact_of, gathered, operands, separations
from jaxik.collision.pairs import FIELDS, PairTable
from jaxik.collision.planes import HalfSpace
from jaxik.collision.reach import largest_motion, seen_pairs
from jaxik.collision.segments import Segment
from jaxik.collision.shapes import Core
from jaxik.collision.world import World
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.geometry import Geometry
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.vectors import Vector, dot, from_array

# Overlaps [m] that are not looked for on the way: what slides along another shape would else have to stop.
SLACK = 1e-6


class Look(NamedTuple):
    """Pairs (p,) of a table at one configuration, in its order.

    Attributes:
      distance [m]: as of `separations`.
      normal: of the contact, in the axes of the body that carries the shape from which the other is seen.
    """

    distance: jax.Array
    normal: Vector


def look(
    geometry: Geometry,
    world: World | None,
    table: PairTable,
    kin: Kinematics,
    displacement: jax.Array | None = None,
    before: Look | None = None,
    margin: Any = 0.0,
) -> tuple[Look, jax.Array]:
    """Look at all pairs of a table, and whether each that was apart stayed so (p,) since the look before.

    Args:
      displacement (nv,): what led here from there; None, as for `before`: this is the first look.
      margin () [m]: what counts as apart.
    """
    given, seen = operands(geometry, world, table, kin), seen_pairs(geometry, table, kin)
    contacts = [contact_of(pairs._replace(turned=None), SEPARATIONS) for pairs in given]
    contact = jax.tree.map(lambda *parts: jnp.concatenate(parts), *contacts)
    axes = _axes(kin, seen.bodies)
    found = Look(contact.distance, Vector(*(dot(axis, contact.normal) for axis in axes)))
    if before is None or displacement is None:
        return found, jnp.ones(len(table.names), bool)
    x, y, z = axes
    normal = x * before.normal.x + y * before.normal.y + z * before.normal.z
    cuts = np.cumsum([0, *(pairs.rows[0].size for pairs in given)])
    after = [
        contact.distance[a:b] if pairs.kinds[1] in FIELDS else _along(pairs, normal[a:b])
        for pairs, a, b in zip(given, cuts[:-1], cuts[1:], strict=True)
    ]
    moved, turned = largest_motion(geometry, kin, seen, jnp.abs(displacement))
    moved = jnp.exp(turned) * moved
    first, last = (jnp.maximum(s - margin + SLACK, 0) for s in (before.distance, jnp.concatenate(after)))
    convex = np.repeat([pairs.kinds[1] not in FIELDS for pairs in given], np.diff(cuts))
    enough = jnp.where(convex, (jnp.sqrt(first) + jnp.sqrt(last)) ** 2 >= turned * moved, first + last >= moved)
    free = (last > 0) & enough
    return found, free | (before.distance - margin < -SLACK)


def _axes(kin: Kinematics, bodies: list[int]) -> tuple[Vector, Vector, Vector]:
    """The axes (p,) of bodies in the world; 0 is the world, whether or not it carries a shape."""
    frames = [frame for frame in kin.plan.frames if frame.kind == "body"]
    known = {frame.index: 1 + i for i, frame in enumerate(frames)}
    rotations = static_gather(kin.frame_rotations, [kin.plan.frames.index(frame) for frame in frames])
    rotations = jnp.concatenate([unit_matrix(3, dtype=rotations.dtype)[None], rotations])
    rotations = static_gather(rotations, [known[body] if body else 0 for body in bodies])
    x, y, z = (from_array(rotations[:, :, i]) for i in range(3))
    return x, y, z


def _along(given: Operands, normal: Vector) -> jax.Array:
    """By how much directions (p,) separate the pairs of a class."""
    a, b = gathered(given.first, given.rows[0]), gathered(given.second, given.rows[1])
    apart = dot(normal, _farthest(b.core, -normal) - _farthest(a.core, normal)) - a.radius - b.radius
    return jnp.where(a.exists & b.exists, apart, jnp.inf)


def _farthest(core: Core, direction: Vector) -> Vector:
    """The point of a core that is farthest in a direction; of a half space, its normal."""
    match core:
        case Vector():
            return core
        case Segment():
            return core.at(jnp.where(dot(core.half, direction) < 0, -1.0, 1.0))
        case Box():
            return core.support(direction)
        case HalfSpace():
            return core.normal * core.offset
        case Primitive() | Hull():
            return core.center + core.reach(direction)
        case _:
            raise TypeError(f"of {type(core).__name__} nothing is farthest")


class March(NamedTuple):
    """How far a way is known to be free.

    Attributes:
      share (): of the way, from 0 to 1.
      ahead (): how much farther the next look is; 0: it is the end.
      looks (): how many there were.
      seen: at `share`.
    """

    share: jax.Array
    ahead: jax.Array
    looks: jax.Array
    seen: Any


def stride(before: March, found: Any, free: jax.Array, way_is_free: jax.Array, shortest: Any) -> March:
    """The march after a look at `share + ahead`: twice as far ahead where the way is free, else half as far.

    Args:
      before: where it was.
      found: what is seen there.
      free (): whether all is free there.
      way_is_free (): whether it is on the way there; of the first look, at the start, it is not asked.
      shortest: stride, as a share of the way; where less would be needed the march ends.
    """
    first = before.looks == 0
    free = free & (way_is_free | first)
    share, half = jnp.where(free, before.share + before.ahead, before.share), before.ahead / 2
    longer = jnp.where(first, 1, jnp.minimum(2 * before.ahead, 1 - share))
    ahead = jnp.where(free, longer, jnp.where(half < shortest, 0, half))
    seen = jax.tree.map(lambda new, old: jnp.where(free | first, new, old), found, before.seen)
    return March(share, ahead, before.looks + 1, seen)


def not_begun(nothing: Any, dtype: Any) -> March:
    """A march before its first look; `nothing` are zeros like what is seen."""
    zero = jnp.zeros((), dtype)
    return March(zero, zero, jnp.zeros((), jnp.int32), nothing)


def march(
    look_at: Callable[[jax.Array, jax.Array, Any], tuple[Any, jax.Array, jax.Array]],
    nothing: Any,
    dtype: Any,
    looks: int,
    shortest: float,
) -> March:
    """Go along a way as far as it is known to be free, by long strides where they are, and by halves of them.

    Args:
      look_at: share of the way, how much of it is new, what was seen before -> what is seen there, whether all is free
        there () of bool, and whether it is on the new part.
      nothing: zeros like what is seen.
      looks: at most, the first, at the start, included.
      shortest: stride, as a share of the way.
    """

    def goes_on(m: March) -> jax.Array:
        return (m.looks == 0) | ((m.ahead > 0) & (m.looks < looks))

    def onward(m: March) -> March:
        return stride(m, *look_at(m.share + m.ahead, m.ahead, m.seen), shortest)

    return lax.while_loop(goes_on, onward, not_begun(nothing, dtype))


def apart_on_the_way(
    geometry: Geometry,
    world: World | None,
    table: PairTable,
    at: Callable[[jax.Array], Kinematics],
    way: jax.Array,
    looks: int,
    shortest: float,
) -> tuple[jax.Array, jax.Array]:
    """Whether all pairs of a table are known to be apart all along a way, and which one is nearest if not.

    By distances alone, d + d' >= M, without normals: near shapes that takes more looks, each of a fifth of the time.

    Args:
      at: share of the way -> kinematics there.
      way (nv,): the displacement.
      looks, shortest: as of `march`.
    """

    def look_at(share: jax.Array, ahead: jax.Array, before: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        kin = at(share)
        distance = separations(geometry, world, table, kin) + SLACK
        moved, turned = largest_motion(geometry, kin, seen_pairs(geometry, table, kin), jnp.abs(ahead * way))
        return distance, jnp.all(distance >= 0), jnp.all(before + distance >= jnp.exp(turned) * moved)

    end = march(look_at, jnp.zeros(len(table.names), way.dtype), way.dtype, looks, shortest)
    return end.share == 1, jnp.argmin(end.seen).astype(jnp.int32)
