"""Where the shapes of a robot and of its world are, by kind."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.boxes import Box
from jaxik.collision.convex import CYLINDER, ELLIPSOID, Hull, Primitive, of_box, of_point, of_segment
from jaxik.collision.pairs import PIECE, PRIMITIVE, PRIMITIVES
from jaxik.collision.pieces import Cloud, Grid, cloud, pieces
from jaxik.collision.planes import HalfSpace
from jaxik.collision.segments import Segment
from jaxik.collision.world import World
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import KINDS, Geometry
from jaxik.numerics import lie
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.vectors import Vector, dot, from_array

Field = Grid | Cloud
Core = Vector | Segment | Box | Primitive | Hull | HalfSpace | Field


class Swept(NamedTuple):
    """Shapes (n,) of one kind: all points nearer to a core than a radius.

    Attributes:
      core: points of spheres, segments of capsules, and else the shapes themselves.
      radius (n,) [m]: of spheres and capsules; else zero.
      exists (n,): False of obstacles that are masked.
    """

    core: Core
    radius: jax.Array
    exists: jax.Array

    def as_capsules(self) -> Swept:
        """Spheres as capsules without length."""
        assert isinstance(self.core, Vector)
        return self._replace(core=Segment(self.core, self.core.map(jnp.zeros_like)))

    def as_primitives(self) -> Swept:
        """Shapes of any kind but hulls and planes."""
        match self.core:
            case Vector():
                return self._replace(core=of_point(self.core))
            case Segment():
                return self._replace(core=of_segment(self.core))
            case Box():
                return self._replace(core=of_box(self.core))
            case _:
                return self


def shape_frames(geometry: Geometry) -> tuple[Frame, ...]:
    """The bodies that carry shapes, as frames that kinematics evaluate."""
    return tuple(Frame("body", body) for body in dict.fromkeys(geometry.bodies))


def all_shapes(geometry: Geometry, world: World | None, kin: Kinematics) -> dict[str, Swept]:
    """The shapes in the world, by kind: the robot's, and then the obstacles.

    Spheres come after all capsules as well, and what is no hull and no plane is among primitives, kind after kind.
    """
    places = [kin.plan.frames.index(Frame("body", body)) for body in geometry.bodies]
    # In one array: to take bodies several times is a kernel for each of them.
    poses = jnp.concatenate([kin.frame_rotations, kin.frame_positions[:, :, None]], axis=2)
    poses = static_gather(poses, places)
    return by_kind(geometry, world, poses[:, :, :3], poses[:, :, 3])


# A program asks for them in many places: traced once, it is traced in half of the time.
@jax.jit
def by_kind(geometry: Geometry, world: World | None, rotation: jax.Array, position: jax.Array) -> dict[str, Swept]:
    """The same, of bodies at rotations (n, 3, 3) and positions (n, 3), by shape."""
    ours = of_robot(geometry, rotation, position)
    theirs = {} if world is None else of_world(world, position.dtype)
    found = {kind: [x[kind] for x in (ours, theirs) if kind in x] for kind in KINDS}
    found[PRIMITIVE] = [x.as_primitives() for kind in PRIMITIVES for x in found[kind]]
    found["capsule"] = found["capsule"] + [spheres.as_capsules() for spheres in found["sphere"]]
    fields = {} if world is None else of_fields(world, position.dtype)
    if fields:
        segments, radius = pieces(geometry, rotation, position)
        fields[PIECE] = Swept(segments, radius, jnp.ones_like(radius, bool))
    # Small arrays: what each pair takes from them is then part of the loop over pairs.
    return {kind: _joined(parts) for kind, parts in found.items() if parts} | fields


def _joined(parts: list[Swept]) -> Swept:
    """The shapes of one part after the other."""
    if len(parts) == 1:
        return parts[0]
    by_part, structure = [jax.tree.leaves(part) for part in parts], jax.tree.structure(parts[0])
    places = [i for i, x in enumerate(by_part[0]) if x.ndim == 1 and x.dtype != bool]
    # At once: as one array after the other, 24 kernels of a search among boxes were these.
    numbers = jnp.concatenate([jnp.stack([leaves[i] for i in places]) for leaves in by_part], axis=1)
    known = dict(zip(places, numbers, strict=True))
    leaves = [known[i] if i in known else _padded(x) for i, x in enumerate(zip(*by_part, strict=True))]
    return jax.tree.unflatten(structure, leaves)


def _padded(parts: tuple[jax.Array, ...]) -> jax.Array:
    """One after the other; of hulls with fewer corners (n, k), the last is repeated."""
    most = max((x.shape[1] for x in parts if x.ndim > 1), default=0)
    return jnp.concatenate(
        [jnp.pad(x, ((0, 0), (0, most - x.shape[1])), mode="edge") if x.ndim > 1 else x for x in parts]
    )


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
            own = (static_gather(x, rows) for x in (axes, center, size))
            found[kind] = _swept(kind, *own, corners=geometry.corners)
    return found


def rows_of_kind(geometry: Geometry, kind: str) -> list[int]:
    return [i for i, k in enumerate(geometry.kinds) if k == kind]


def _swept(kind: str, axes: jax.Array, center: jax.Array, size: jax.Array, corners: jax.Array) -> Swept:
    """Shapes of one kind from axes (n, 3, 3), centres (n, 3), MuJoCo's sizes (n, 3) and hulls' corners (n, k, 3)."""
    middle, zero = from_array(center), jnp.zeros_like(size[:, 0])
    x, y, z = (from_array(axes[:, :, i]) for i in range(3))
    exists = jnp.ones(size.shape[0], bool)
    match kind:
        case "sphere":
            return Swept(middle, size[:, 0], exists)
        case "capsule":
            return Swept(Segment(middle, z * size[:, 1]), size[:, 0], exists)
        case "box":
            return Swept(Box(middle, (x, y, z), from_array(size)), zero, exists)
        case "cylinder":
            half = Vector(size[:, 0], size[:, 0], size[:, 1])
            return Swept(Primitive(Box(middle, (x, y, z), half), zero + CYLINDER), zero, exists)
        case "ellipsoid":
            return Swept(Primitive(Box(middle, (x, y, z), from_array(size)), zero + ELLIPSOID), zero, exists)
        case "hull":
            box = Box(middle, (x, y, z), from_array(size))
            return Swept(Hull(box, from_array(corners.astype(size.dtype))), zero, exists)
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
        found["box"] = Swept(_box(x.pose, x.half_size), jnp.zeros_like(x.half_size[:, 0]), x.mask)
    if world.cylinders is not None:
        x = world.cylinders
        half = jnp.stack([x.radius, x.radius, x.half_length], axis=1)
        zero = jnp.zeros_like(x.radius)
        found["cylinder"] = Swept(Primitive(_box(x.pose, half), zero + CYLINDER), zero, x.mask)
    if world.ellipsoids is not None:
        x = world.ellipsoids
        zero = jnp.zeros_like(x.half_size[:, 0])
        found["ellipsoid"] = Swept(Primitive(_box(x.pose, x.half_size), zero + ELLIPSOID), zero, x.mask)
    if world.hulls is not None:
        x = world.hulls
        half = jnp.max(jnp.abs(x.corners), axis=1)
        found["hull"] = Swept(Hull(_box(x.pose, half), from_array(x.corners)), jnp.zeros_like(half[:, 0]), x.mask)
    if world.planes is not None:
        x = world.planes
        found["plane"] = Swept(HalfSpace(from_array(x.normal), x.offset), jnp.zeros_like(x.offset), x.mask)
    return jax.tree.map(lambda x: x if x.dtype == bool else x.astype(dtype), found)


def of_fields(world: World, dtype: jnp.dtype) -> dict[str, Swept]:
    """The obstacles of one element that are no shapes, by kind."""
    found = {}
    if world.field is not None:
        box = _box(world.field.pose[None].astype(dtype), jnp.zeros((1, 3), dtype))
        corner, axes = jax.tree.map(lambda x: x[0], (box.center, box.axes))
        grid = Grid(corner, axes, world.field.cell.astype(dtype), world.field.distance.astype(dtype))
        found["field"] = Swept(grid, jnp.zeros(1, dtype), jnp.ones(1, bool))
    if world.points is not None:
        x = world.points
        points = cloud(x.position.astype(dtype), x.radius.astype(dtype), x.mask)
        found["points"] = Swept(points, jnp.zeros(1, dtype), jnp.ones(1, bool))
    return found


def _box(pose: jax.Array, half: jax.Array) -> Box:
    """Boxes of poses (n, 7) and half sizes (n, 3)."""
    axes = jax.vmap(lie.quaternion_to_matrix)(pose[:, :4])
    x, y, z = (from_array(axes[:, :, i]) for i in range(3))
    return Box(from_array(pose[:, 4:]), (x, y, z), from_array(half))
