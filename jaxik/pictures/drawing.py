"""What stands in a picture: shapes in the world, of robots in many poses, targets, frames and paths."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.collision.world import World
from jaxik.kinematics.visual import Mesh
from jaxik.pictures.shapes import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    MESH,
    SPHERE,
    Shapes,
    first_of_batch,
    matrices,
    z_towards,
)
from jaxik.pictures.surfaces import grid_surface, hull_surface
from jaxik.robot.robot import Robot

# Colours that people tell apart whatever their eyes (Okabe and Ito, 2008).
BLUE, ORANGE, VERMILION, GREEN, SKY = (
    (0.0, 0.447, 0.698),
    (0.902, 0.624, 0.0),
    (0.835, 0.369, 0.0),
    (0.0, 0.62, 0.451),
    (0.337, 0.706, 0.914),
)
OBSTACLE = (0.72, 0.6, 0.42, 0.4)
# x, y, z: red, green, blue.
AXES = (0.85, 0.15, 0.1), (0.1, 0.6, 0.15), (0.1, 0.3, 0.9)


class Drawing(NamedTuple):
    """Shapes in the world, as `Shapes` has them on bodies, each with its colour.

    Attributes:
      kind (n,), size (n, 3), position (n, 3) [m], rotation (n, 3, 3), color (n, 4): RGBA in [0, 1].
      mesh (n,): the `Mesh` of each, or None.
    """

    kind: np.ndarray
    size: np.ndarray
    position: np.ndarray
    rotation: np.ndarray
    color: np.ndarray
    mesh: np.ndarray


def primitives(kind: int, size: Any, position: Any, rotation: Any, color: Any) -> Drawing:
    """Shapes of one kind, with a size (n, 3) and a color (4,) each, or all the same."""
    count = len(position)
    return Drawing(
        np.full(count, kind),
        np.broadcast_to(np.asarray(size, float), (count, 3)),
        np.asarray(position, float),
        np.broadcast_to(np.asarray(rotation, float), (count, 3, 3)),
        np.broadcast_to(np.asarray(color, float), (count, 4)),
        np.full(count, None),
    )


def joined(drawings: Sequence[Drawing]) -> Drawing:
    """All of them in one."""
    return Drawing(*(np.concatenate(parts) for parts in zip(*drawings, strict=True)))


def evenly(count: int, most: int) -> np.ndarray:
    """Indices of at most so many of `count`, evenly taken, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).astype(int))


def draw_robot(
    robot: Robot,
    shapes: Shapes,
    q: Any,
    link: Sequence[float] | None = None,
    joint: Sequence[float] | None = None,
    alpha: float = 1.0,
) -> Drawing:
    """The robot at configurations (*batch, nq), all of them, in its own colours or in those of links and joints."""
    q = jnp.asarray(q)
    q = q.reshape(int(np.prod(q.shape[:-1])), robot.nq)
    rotation, origin = (x[:, shapes.body] for x in _matrices(robot.forward(q)))
    position = origin + np.einsum("bnij,nj->bni", rotation, shapes.position)
    count, color = len(rotation), shapes.color
    if link is not None and joint is not None:
        color = np.where(shapes.is_joint[:, None], (*joint, 1.0), (*link, 1.0))
    return Drawing(
        np.tile(shapes.kind, count),
        np.tile(shapes.size, (count, 1)),
        position.reshape(-1, 3),
        (rotation @ shapes.rotation).reshape(-1, 3, 3),
        np.tile(color * (1, 1, 1, alpha), (count, 1)),
        np.tile(shapes.mesh, count),
    )


def _matrices(poses: jaxlie.SE3) -> tuple[np.ndarray, np.ndarray]:
    """Rotation matrices (*batch, 3, 3) and positions (*batch, 3) of poses (*batch)."""
    rotation, position = _split(poses)
    return np.asarray(rotation, float), np.asarray(position, float)


@jax.jit
def _split(poses: jaxlie.SE3) -> tuple[jax.Array, jax.Array]:
    return poses.rotation().as_matrix(), poses.translation()


def draw_frames(poses: jaxlie.SE3, length: float) -> Drawing:
    """The axes of poses (*batch), x red, y green, z blue."""
    rotation, origin = (x.reshape(-1, *axes) for x, axes in zip(_matrices(poses), ((3, 3), (3,)), strict=True))
    parts = [
        _lines(origin, origin + length * rotation[:, :, axis], 0.06 * length, (*AXES[axis], 1.0)) for axis in range(3)
    ]
    return joined(parts)


def draw_points(points: Any, radius: float, color: Sequence[float], alpha: float = 1.0) -> Drawing:
    """Balls at points (*batch, 3)."""
    return primitives(SPHERE, (radius, 0, 0), np.asarray(points, float).reshape(-1, 3), np.eye(3), (*color, alpha))


def draw_world(world: World) -> Drawing:
    """Obstacles that are there, of a batch of worlds the first; half spaces, which have no end, are left out."""
    world = first_of_batch(world)
    parts = [primitives(SPHERE, np.zeros(3), np.zeros((0, 3)), np.eye(3), OBSTACLE)]
    if world.spheres is not None:
        spheres, there = world.spheres, np.asarray(world.spheres.mask)
        size = np.pad(np.asarray(spheres.radius, float)[there, None], ((0, 0), (0, 2)))
        parts.append(primitives(SPHERE, size, spheres.center[there], np.eye(3), OBSTACLE))
    if world.capsules is not None:
        capsules, there = world.capsules, np.asarray(world.capsules.mask)
        start, end = np.asarray(capsules.start, float)[there], np.asarray(capsules.end, float)[there]
        half = np.linalg.norm(end - start, axis=1) / 2
        size = np.stack([np.asarray(capsules.radius, float)[there], half, 0 * half], axis=1)
        parts.append(primitives(CAPSULE, size, (start + end) / 2, z_towards(end - start), OBSTACLE))
    if world.boxes is not None:
        boxes, there = world.boxes, np.asarray(world.boxes.mask)
        pose = np.asarray(boxes.pose, float)[there]
        parts.append(primitives(BOX, boxes.half_size[there], pose[:, 4:], matrices(pose[:, :4]), OBSTACLE))
    if world.cylinders is not None:
        cylinders, there = world.cylinders, np.asarray(world.cylinders.mask)
        pose = np.asarray(cylinders.pose, float)[there]
        size = np.stack([cylinders.radius[there], cylinders.half_length[there], 0 * pose[:, 0]], axis=1)
        parts.append(primitives(CYLINDER, size, pose[:, 4:], matrices(pose[:, :4]), OBSTACLE))
    if world.ellipsoids is not None:
        ellipsoids, there = world.ellipsoids, np.asarray(world.ellipsoids.mask)
        pose = np.asarray(ellipsoids.pose, float)[there]
        parts.append(primitives(ELLIPSOID, ellipsoids.half_size[there], pose[:, 4:], matrices(pose[:, :4]), OBSTACLE))
    if world.points is not None:
        points, there = world.points, np.asarray(world.points.mask)
        size = np.pad(np.asarray(points.radius, float)[there, None], ((0, 0), (0, 2)))
        parts.append(primitives(SPHERE, size, points.position[there], np.eye(3), OBSTACLE))
    return joined([*parts, *_surfaces(world)])


def _surfaces(world: World) -> list[Drawing]:
    """Hulls, and what is solid in a grid of distances, in cubes."""
    found = []
    if world.hulls is not None:
        pose, there = np.asarray(world.hulls.pose, float), np.asarray(world.hulls.mask)
        hulls = zip(pose[there], np.asarray(world.hulls.corners, float)[there], strict=True)
        found = [(at, hull_surface(corners)) for at, corners in hulls]
    if world.field is not None:
        surface = grid_surface(np.asarray(world.field.distance), float(world.field.cell))
        found.append((np.asarray(world.field.pose, float), surface))
    return [_surface(at, *surface) for at, surface in found if surface is not None]


def _surface(pose: np.ndarray, middle: np.ndarray, mesh: Mesh) -> Drawing:
    rotation = matrices(pose[None, :4])
    size = np.abs(mesh.vertices).max(axis=0)
    drawing = primitives(MESH, size, pose[None, 4:] + rotation[0] @ middle, rotation, OBSTACLE)
    drawing.mesh[0] = mesh
    return drawing


def draw_line(points: Any, radius: float, color: Sequence[float]) -> Drawing:
    """A line through points (T, 3)."""
    points = np.asarray(points, float).reshape(-1, 3)
    return _lines(points[:-1], points[1:], radius, (*color, 1.0))


def _lines(start: np.ndarray, end: np.ndarray, radius: float, color: Sequence[float]) -> Drawing:
    """Thin capsules between points (n, 3)."""
    along, count = end - start, len(start)
    size = np.stack([np.full(count, radius), np.linalg.norm(along, axis=1) / 2, np.zeros(count)], axis=1)
    return primitives(CAPSULE, size, (start + end) / 2, z_towards(along), color)


def bounding_balls(drawing: Drawing) -> tuple[np.ndarray, np.ndarray]:
    """Centres (k, 3) and radii (k,) [m] of balls that hold all that is drawn.

    Of a capsule one at each end, of a mesh the corners of its box.
    """
    is_capsule, is_mesh = drawing.kind == CAPSULE, drawing.kind == MESH
    is_round = is_capsule | (drawing.kind == SPHERE)
    radius = np.where(is_round, drawing.size[:, 0], np.linalg.norm(drawing.size, axis=1))
    along = np.where(is_capsule, drawing.size[:, 1], 0)[:, None] * drawing.rotation[:, :, 2]
    corners = np.stack(np.meshgrid(*[[-1, 1]] * 3), axis=-1).reshape(8, 3) * drawing.size[is_mesh][:, None]
    corners = drawing.position[is_mesh][:, None] + np.einsum("nij,nkj->nki", drawing.rotation[is_mesh], corners)
    other, across = drawing.position[~is_mesh], along[~is_mesh]
    centers = np.concatenate([other - across, other + across, corners.reshape(-1, 3)])
    return centers, np.concatenate([np.tile(radius[~is_mesh], 2), np.zeros(8 * is_mesh.sum())])
