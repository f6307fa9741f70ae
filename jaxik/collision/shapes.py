"""Where the shapes of a robot and of its world are, by kind."""

from __future__ import annotations

from typing import Any, NamedTuple

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
      placed (n, 4, 4): of boxes, what they are cut from, see `_placed`.
    """

    core: Core
    radius: jax.Array
    exists: jax.Array
    placed: jax.Array | None = None

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
    return _by_kind(geometry, world, *carriers(geometry, kin))


def carriers(geometry: Geometry, kin: Kinematics) -> tuple[jax.Array, jax.Array]:
    """Rotations (n, 3, 3) and positions (n, 3) of the bodies that carry the shapes."""
    places = [kin.plan.frames.index(Frame("body", body)) for body in geometry.bodies]
    # Kinematics cuts both out of one array, which XLA finds again here: one gather, not two, and no copy before it.
    poses = jnp.concatenate([kin.frame_rotations, kin.frame_positions[:, :, None]], axis=2)
    poses = static_gather(poses, places)
    return poses[:, :, :3], poses[:, :, 3]


# A program asks for them in many places: traced once, it is traced in half of the time.
@jax.jit
def _by_kind(geometry: Geometry, world: World | None, rotation: jax.Array, position: jax.Array) -> dict[str, Swept]:
    ours = of_robot(geometry, rotation, position)
    theirs = {} if world is None else of_world(world, position.dtype)
    found = {kind: [x[kind] for x in (ours, theirs) if kind in x] for kind in KINDS}
    # Joined before they are cut into components: by one kernel in place of twelve.
    boxes, found["box"] = found["box"], [swept_boxes(x)._replace(placed=None) for x in found["box"]]
    found[PRIMITIVE] = [x.as_primitives() for kind in PRIMITIVES for x in found[kind]]
    found["capsule"] = found["capsule"] + [spheres.as_capsules() for spheres in found["sphere"]]
    fields = {} if world is None else of_fields(world, position.dtype)
    if fields:
        segments, radius = pieces(geometry, rotation, position)
        fields[PIECE] = Swept(segments, radius, jnp.ones_like(radius, bool))
    # Small arrays: what each pair takes from them is then part of the loop over pairs.
    joined = {kind: jax.tree.map(_joined, *parts) for kind, parts in found.items() if parts}
    if boxes:
        joined["box"] = swept_boxes(jnp.concatenate(boxes))
    return joined | fields


def _joined(*parts: jax.Array) -> jax.Array:
    """One after the other; of hulls with fewer corners (n, k), the last is repeated."""
    most = max((x.shape[1] for x in parts if x.ndim > 1), default=0)
    return jnp.concatenate(
        [jnp.pad(x, ((0, 0), (0, most - x.shape[1])), mode="edge") if x.ndim > 1 else x for x in parts]
    )


def of_robot(geometry: Geometry, rotation: jax.Array, position: jax.Array) -> dict[str, Any]:
    """The robot's shapes in the world, by kind, in the order in which the geometry has them.

    Args:
      rotation (n, 3, 3), position (n, 3): of the bodies that carry the shapes.
    """
    dtype = position.dtype
    own = jax.vmap(lie.quaternion_to_matrix)(geometry.quaternion.astype(dtype))
    offset = jnp.concatenate([own, geometry.position.astype(dtype)[:, :, None]], axis=2)
    # One product, which XLA does not compute again for each distance.
    moved = jnp.einsum("nij,njk->nik", rotation, offset)
    pose = moved + jnp.pad(position[:, :, None], ((0, 0), (0, 0), (3, 0)))
    size = geometry.size.astype(dtype)
    found = {}
    for kind in KINDS:
        rows = rows_of_kind(geometry, kind)
        if rows:
            own = static_gather(pose, rows), static_gather(size, rows)
            found[kind] = _swept(kind, *own, corners=geometry.corners)
    return found


def rows_of_kind(geometry: Geometry, kind: str) -> list[int]:
    return [i for i, k in enumerate(geometry.kinds) if k == kind]


def _swept(kind: str, pose: jax.Array, size: jax.Array, corners: jax.Array) -> Swept | jax.Array:
    """Shapes of one kind from poses (n, 3, 4), MuJoCo's sizes (n, 3) and hulls' corners (n, k, 3)."""
    zero, exists = jnp.zeros_like(size[:, 0]), jnp.ones(size.shape[0], bool)
    x, y, z, middle = (from_array(pose[:, :, i]) for i in range(4))
    match kind:
        case "sphere":
            return Swept(middle, size[:, 0], exists)
        case "capsule":
            return Swept(Segment(middle, z * size[:, 1]), size[:, 0], exists)
        case "box":
            return _placed(pose, size, exists)
        case "cylinder":
            half = Vector(size[:, 0], size[:, 0], size[:, 1])
            return Swept(Primitive(Box(middle, (x, y, z), half), zero + CYLINDER), zero, exists)
        case "ellipsoid":
            return Swept(Primitive(_box(pose, size), zero + ELLIPSOID), zero, exists)
        case "hull":
            return Swept(Hull(_box(pose, size), from_array(corners.astype(size.dtype))), zero, exists)
        case _:
            return Swept(HalfSpace(z, dot(z, middle)), zero, exists)


def of_world(world: World, dtype: jnp.dtype) -> dict[str, Any]:
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
        found["box"] = _placed(_matrices(x.pose), x.half_size, x.mask)
    if world.cylinders is not None:
        x = world.cylinders
        half = jnp.stack([x.radius, x.radius, x.half_length], axis=1)
        zero = jnp.zeros_like(x.radius)
        found["cylinder"] = Swept(Primitive(_box(_matrices(x.pose), half), zero + CYLINDER), zero, x.mask)
    if world.ellipsoids is not None:
        x = world.ellipsoids
        zero = jnp.zeros_like(x.half_size[:, 0])
        found["ellipsoid"] = Swept(Primitive(_box(_matrices(x.pose), x.half_size), zero + ELLIPSOID), zero, x.mask)
    if world.hulls is not None:
        x = world.hulls
        half = jnp.max(jnp.abs(x.corners), axis=1)
        hull = Hull(_box(_matrices(x.pose), half), from_array(x.corners))
        found["hull"] = Swept(hull, jnp.zeros_like(half[:, 0]), x.mask)
    if world.planes is not None:
        x = world.planes
        found["plane"] = Swept(HalfSpace(from_array(x.normal), x.offset), jnp.zeros_like(x.offset), x.mask)
    return jax.tree.map(lambda x: x if x.dtype == bool else x.astype(dtype), found)


def of_fields(world: World, dtype: jnp.dtype) -> dict[str, Swept]:
    """The obstacles of one element that are no shapes, by kind."""
    found = {}
    if world.field is not None:
        box = _box(_matrices(world.field.pose[None].astype(dtype)), jnp.zeros((1, 3), dtype))
        corner, axes = jax.tree.map(lambda x: x[0], (box.center, box.axes))
        grid = Grid(corner, axes, world.field.cell.astype(dtype), world.field.distance.astype(dtype))
        found["field"] = Swept(grid, jnp.zeros(1, dtype), jnp.ones(1, bool))
    if world.points is not None:
        x = world.points
        points = cloud(x.position.astype(dtype), x.radius.astype(dtype), x.mask)
        found["points"] = Swept(points, jnp.zeros(1, dtype), jnp.ones(1, bool))
    return found


def _placed(pose: jax.Array, half: jax.Array, exists: jax.Array) -> jax.Array:
    """Boxes as one array (n, 4, 4): poses (n, 3, 4), then half sizes (n, 3) and 1 for those that exist (n,)."""
    sizes = jnp.concatenate([half, exists.astype(half.dtype)[:, None]], axis=1)
    return jnp.concatenate([pose, sizes[:, None]], axis=1)


def swept_boxes(placed: jax.Array) -> Swept:
    """The boxes of such an array."""
    box = _box(placed[:, :3], placed[:, 3, :3])
    return Swept(box, jnp.zeros_like(box.half.x), placed[:, 3, 3] > 0.5, placed)


def _matrices(pose: jax.Array) -> jax.Array:
    """Poses (n, 7) as matrices (n, 3, 4)."""
    return jnp.concatenate([jax.vmap(lie.quaternion_to_matrix)(pose[:, :4]), pose[:, 4:, None]], axis=2)


def _box(pose: jax.Array, half: jax.Array) -> Box:
    """Boxes of poses (n, 3, 4) and half sizes (n, 3)."""
    x, y, z, center = (from_array(pose[:, :, i]) for i in range(4))
    return Box(center, (x, y, z), from_array(half))
