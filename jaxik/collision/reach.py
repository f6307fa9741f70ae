"""How far the shapes of a pair may move against each other in a displacement."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.collision.distances import moved_by
from jaxik.collision.enclosing import enclosing_capsules
from jaxik.collision.pairs import ENDLESS, PairTable
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import Geometry
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.vectors import Vector, dot


class Seen(NamedTuple):
    """From which of its two shapes each pair (p,) is looked at; static.

    Attributes:
      bodies: of the shapes from which the others are seen.
      moving: the others, which are of the robot.
      between (p, nv): bool, the degrees of freedom that move one against the other.
    """

    bodies: list[int]
    moving: list[int]
    between: np.ndarray


def seen_pairs(geometry: Geometry, table: PairTable, kin: Kinematics) -> Seen:
    """A pair is seen from the shape that fewer joints move, and from an endless one in any case."""
    place, moved = {name: i for i, name in enumerate(geometry.names)}, moved_by(kin)
    bodies, moving = [], []
    for (first, second), (of_first, of_second) in zip(table.names, table.bodies, strict=True):
        mine = second in place and geometry.kinds[place[second]] != ENDLESS
        endless = geometry.kinds[place[first]] == ENDLESS
        turned = mine and (endless or moved[of_second].sum() > moved[of_first].sum())
        bodies.append(of_first if turned else of_second)
        moving.append(place[second if turned else first])
    return Seen(bodies, moving, table.signs(moved) != 0)


def largest_motion(geometry: Geometry, kin: Kinematics, seen: Seen, size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """By how much (p,) [m] points of the moving shapes move at most, to first order, and all joints turn (p,) [rad].

    Args:
      size (nv,): of a displacement, without sign.
    """
    carriers = [kin.plan.frames.index(Frame("body", body)) for body in geometry.bodies]
    rotation, position = static_gather(kin.frame_rotations, carriers), static_gather(kin.frame_positions, carriers)
    segment, radius = enclosing_capsules(geometry, rotation, position)
    anchors, linear, angular = (Vector(*(x[i] for i in range(3))) for x in (kin.anchors, kin.linear, kin.angular))
    turns = jnp.sqrt(dot(angular, angular))

    def speed(end: float) -> jax.Array:
        """Of one end of each segment, for a unit rate of each joint (n, nv)."""
        arm = segment.at(jnp.full_like(radius, end)).map(lambda c, a: c[:, None] - a, anchors)
        across = Vector(
            angular.y * arm.z - angular.z * arm.y,
            angular.z * arm.x - angular.x * arm.z,
            angular.x * arm.y - angular.y * arm.x,
        )
        swing = across + linear
        return jnp.sqrt(dot(swing, swing))

    reach = jnp.maximum(speed(-1.0), speed(1.0)) + radius[:, None] * turns
    # Most pairs of one shape with obstacles have the same joints between them.
    cases = np.concatenate([np.array(seen.moving)[:, None], seen.between], axis=1)
    different, which = np.unique(cases, axis=0, return_inverse=True)
    size = size * jnp.asarray(different[:, 1:], size.dtype)
    turned = jnp.sum(size * turns, axis=1)
    moved = jnp.sum(size * static_gather(reach, different[:, 0].tolist()), axis=1)
    return moved[which.ravel()], turned[which.ravel()]
