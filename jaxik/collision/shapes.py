"""Where the shapes of a robot and of its world are, by kind."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.boxes import Box
from jaxik.collision.planes import HalfSpace
from jaxik.collision.segments import Segment
from jaxik.collision.world import World
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import KINDS, Geometry
from jaxik.numerics import lie
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.vectors import Vector, dot, from_array

Core = Vector | Segment | Box | HalfSpace


class Swept(NamedTuple):
    """Shapes (n,) of one kind: all points nearer to a core than a radius.

    Attributes:
      core: points of spheres, segments of capsules, boxes, half spaces.
      radius (n,) [m]: zero of boxes and half spaces.
      exists (n,): False of obstacles that are masked.
    """

    core: Core
    radius: jax.Array
    exists: jax.Array

    def as_capsules(self) -> Swept:
        """Spheres as capsules without length."""
        assert isinstance(self.core, Vector)
        return self._replace(core=Segment(self.core, self.core.map(jnp.zeros_like)))


def shape_frames(geometry: Geometry) -> tuple[Frame, ...]:
    """The bodies that carry shapes, as frames that kinematics evaluate."""
    return tuple(Frame("body", body) for body in dict.fromkeys(geometry.bodies))


def all_shapes(geometry: Geometry, world: World | None, kin: Kinematics) -> dict[str, Swept]:
    """The shapes in the world, by kind: the robot's, and then the obstacles; spheres after all capsules as well."""
    places = [kin.plan.frames.index(Frame("body", body)) for body in geometry.bodies]
    return _by_kind(
        geometry, world, static_gather(kin.frame_rotations, places), static_gather(kin.frame_positions, places)
    )


# A program asks for them in many places: traced once, it is traced in half of the time.
@jax.jit
def _by_kind(geometry: Geometry, world: World | None, rotation: jax.Array, position: jax.Array) -> dict[str, Swept]:
    ours = of_robot(geometry, rotation, position)
    theirs = {} if world is None else of_world(world, position.dtype)
    found = {kind: [x[kind] for x in (ours, theirs) if kind in x] for kind in KINDS}
    found["capsule"] = found["capsule"] + [spheres.as_capsules() for spheres in found["sphere"]]
    # Small arrays: what each pair takes from them is then part of the loop over pairs.
    return {kind: jax.tree.map(lambda *x: jnp.concatenate(x), *parts) for kind, parts in found.items() if parts}


def of_robot(geometry: Geometry, rotation: jax.Array, position: jax.Array) -> dict[str, Swept]:
    """The robot's shapes in the world, by kind, in the order in which the geometry has them.

    Args:
      rotation (n, 3, 3), position (n, 3): of the bodies that carry the shapes.
    """
    dtype = position.dtype
    own = jax.vmap(lie.quaternion_to_matrix)(geometry.quaternion.astype(dtype))
    offset = jnp.concatenate([own, geometry.position.astype(dtype)[:, :, None]], axis=2)
    # One product, which XLA does not compute again for each distance.
    moved = jnp.einsum("nij,njk->nik", rotation, offset)
    axes, center = moved[:, :, :3], moved[:, :, 3] + position
    size = geometry.size.astype(dtype)
    found = {}
    for kind in KINDS:
        rows = rows_of_kind(geometry, kind)
        if rows:
            found[kind] = _swept(kind, *(static_gather(x, rows) for x in (axes, center, size)))
    return found


def rows_of_kind(geometry: Geometry, kind: str) -> list[int]:
    return [i for i, k in enumerate(geometry.kinds) if k == kind]


def _swept(kind: str, axes: jax.Array, center: jax.Array, size: jax.Array) -> Swept:
    """Shapes of one kind from axes (n, 3, 3), centres (n, 3) and MuJoCo's sizes (n, 3)."""
    middle, zero = from_array(center), jnp.zeros_like(size[:, 0])
    z = from_array(axes[:, :, 2])
    exists = jnp.ones(size.shape[0], bool)
    match kind:
        case "sphere":
            return Swept(middle, size[:, 0], exists)
        case "capsule":
            return Swept(Segment(middle, z * size[:, 1]), size[:, 0], exists)
        case "box":
            x, y = from_array(axes[:, :, 0]), from_array(axes[:, :, 1])
            return Swept(Box(middle, (x, y, z), from_array(size)), zero, exists)
        case _:
            return Swept(HalfSpace(z, dot(z, middle)), zero, exists)


def of_world(world: World, dtype: jnp.dtype) -> dict[str, Swept]:
    """The obstacles of one element, by kind."""
    found = {}
    if world.spheres is not None:
        x = world.spheres
        found["sphere"] = Swept(from_array(x.center), x.radius, x.mask)
    if world.capsules is not None:
        x = world.capsules
        start, end = from_array(x.start), from_array(x.end)
        found["capsule"] = Swept(Segment((start + end) * 0.5, (end - start) * 0.5), x.radius, x.mask)
    if world.boxes is not None:
        x = world.boxes
        axes = jax.vmap(lie.quaternion_to_matrix)(x.pose[:, :4])
        columns = [from_array(axes[:, :, i]) for i in range(3)]
        box = Box(from_array(x.pose[:, 4:]), (columns[0], columns[1], columns[2]), from_array(x.half_size))
        found["box"] = Swept(box, jnp.zeros_like(x.half_size[:, 0]), x.mask)
    if world.planes is not None:
        x = world.planes
        found["plane"] = Swept(HalfSpace(from_array(x.normal), x.offset), jnp.zeros_like(x.offset), x.mask)
    return jax.tree.map(lambda x: x if x.dtype == bool else x.astype(dtype), found)
