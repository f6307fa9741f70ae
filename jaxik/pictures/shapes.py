"""What a robot looks like: shapes on its bodies."""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import mujoco
import numpy as np

from jaxik.core.pytree import core_ranks
from jaxik.kinematics.geometry import Geometry
from jaxik.kinematics.topology import JointType, Topology
from jaxik.pictures.arm_meshes import Surface, arm_surfaces
from jaxik.pictures.surfaces import hull_surface
from jaxik.robot.loading.catalog import bundled_robots, find_by_name
from jaxik.robot.robot import Robot

T = TypeVar("T")

# Shapes by the numbers that MuJoCo gives them (mjtGeom).
SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = 2, 3, 4, 5, 6, 7

# Colours of what is not painted.
LINK, JOINT = (0.82, 0.84, 0.86, 1.0), (0.0, 0.447, 0.698, 1.0)

# Radius of a link, as a share of the median length; of a joint's ball, as a share of that radius.
LINK_RADIUS, BALL_RADIUS = 0.2, 1.35
# The median says little where a robot has many short links and few long ones: at most and at least this share of the
# longest.
THICKEST, THINNEST = 0.12, 0.03
# The radius where nothing is long [m], and what counts as nothing.
ALONE = 0.05
# Colours below this are dark.
DARK = 0.6
SHORTEST = 1e-6


class Shapes(NamedTuple):
    """Shapes on bodies.

    Attributes:
      body (n,): index of the body that carries each.
      kind (n,): `SPHERE`, `CAPSULE`, `ELLIPSOID`, `CYLINDER`, `BOX` or `MESH`.
      size (n, 3) [m]: MuJoCo's: radius; radius and half length along z; half axes; half edges, of a mesh of its box.
      position (n, 3) [m], rotation (n, 3, 3): in the body's axes.
      is_joint (n,): whether it stands for a joint, and not for a link.
      color (n, 4): RGBA in [0, 1].
      mesh (n,): the `Mesh` of each, or None.
    """

    body: np.ndarray
    kind: np.ndarray
    size: np.ndarray
    position: np.ndarray
    rotation: np.ndarray
    is_joint: np.ndarray
    color: np.ndarray
    mesh: np.ndarray


def unpainted(
    body: np.ndarray, kind: np.ndarray, size: np.ndarray, position: np.ndarray, rotation: np.ndarray, is_joint: Any
) -> Shapes:
    """Primitive shapes in the colours of links and joints."""
    is_joint = np.asarray(is_joint, bool)
    color = np.where(is_joint[:, None], JOINT, LINK)
    return Shapes(body, kind, size, position, rotation, is_joint, color, np.full(len(body), None))


def one_robot(robot: Robot) -> Robot:
    """The first of a batch of robots, on the host."""
    return first_of_batch(robot)


def first_of_batch(tree: T) -> T:
    """The first element of a pytree of which each leaf may have batch axes, on the host."""
    return jax.tree.map(
        lambda x, rank: np.asarray(x).reshape(-1, *x.shape[x.ndim - rank :])[0] if x.ndim > rank else np.asarray(x),
        tree,
        core_ranks(tree),
    )


def shapes_of(robot: Robot) -> Shapes:
    """What a robot looks like: what its model shows, or the bundled robot that it is, or what it collides with.

    The first of these that there is; else automatic shapes.
    """
    robot = one_robot(robot)
    if robot.visual.body.size:
        return _seen_shapes(robot)
    own = _bundled_shapes(robot.topology)
    if own is None and robot.geometry is not None:
        own = _kept_shapes(robot.geometry)
    return automatic_shapes(robot) if own is None or not own.body.size else own


def _seen_shapes(robot: Robot) -> Shapes:
    """What the model shows, and automatic shapes for bodies whose files could not be read."""
    visual, automatic = robot.visual, automatic_shapes(robot)
    mesh = np.full(len(visual.body), None)
    mesh[:] = visual.meshes
    seen = Shapes(
        visual.body,
        visual.kind,
        visual.size,
        visual.position,
        matrices(visual.quaternion),
        np.zeros(len(visual.body), bool),
        visual.color,
        mesh,
    )
    bare = np.isin(automatic.body, visual.bare)
    return Shapes(*(np.concatenate([x, y[bare]]) for x, y in zip(seen, automatic, strict=True)))


def _kept_shapes(geometry: Geometry) -> Shapes:
    numbers = {"sphere": SPHERE, "capsule": CAPSULE, "box": BOX, "cylinder": CYLINDER, "ellipsoid": ELLIPSOID}
    hulls = iter(np.asarray(geometry.corners, float))
    surfaces = [hull_surface(next(hulls)) if kind == "hull" else None for kind in geometry.kinds]
    rows = [i for i, kind in enumerate(geometry.kinds) if kind in numbers or surfaces[i] is not None]
    # The corners of a hull are about the middle of its box already.
    meshes = np.full(len(rows), None)
    meshes[:] = [None if (surface := surfaces[i]) is None else surface[1] for i in rows]
    return unpainted(
        np.array([geometry.bodies[i] for i in rows], int),
        np.array([numbers.get(geometry.kinds[i], MESH) for i in rows], int),
        np.asarray(geometry.size)[rows],
        np.asarray(geometry.position)[rows],
        matrices(np.asarray(geometry.quaternion, float)[rows]),
        np.zeros(len(rows), bool),
    )._replace(mesh=meshes)


def _bundled_shapes(topology: Topology) -> Shapes | None:
    """The shapes of the bundled robot of that name, if its bodies are the same."""
    if topology.name not in bundled_robots():
        return None
    bodies, shapes = _bundled(topology.name)
    return shapes if bodies == topology.body_names else None


@functools.cache
def _bundled(name: str) -> tuple[tuple[str, ...], Shapes]:
    """Names of the bodies of a bundled robot, and its shapes: meshes, on other bodies primitives.

    Dark primitives stand for joints.
    """
    model = mujoco.MjModel.from_xml_path(str(find_by_name(name)))
    bodies = tuple(model.body(i).name for i in range(model.nbody))
    primitives = unpainted(
        model.geom_bodyid.astype(int),
        model.geom_type.astype(int),
        model.geom_size.copy(),
        model.geom_pos.copy(),
        matrices(model.geom_quat),
        model.geom_rgba[:, :3].mean(axis=1) < DARK,
    )
    surfaces = arm_surfaces(name)
    if not surfaces:
        return bodies, primitives
    meshes = _mesh_shapes(surfaces, bodies)
    bare = ~np.isin(primitives.body, meshes.body)
    primitives = primitives._replace(color=model.geom_rgba.astype(float))
    return bodies, Shapes(*(np.concatenate([x[bare], y]) for x, y in zip(primitives, meshes, strict=True)))


def _mesh_shapes(surfaces: tuple[Surface, ...], bodies: tuple[str, ...]) -> Shapes:
    mesh = np.full(len(surfaces), None)
    mesh[:] = [surface.mesh for surface in surfaces]
    return Shapes(
        np.array([bodies.index(surface.body) for surface in surfaces]),
        np.full(len(surfaces), MESH),
        np.array([np.abs(surface.mesh.vertices).max(axis=0) for surface in surfaces]),
        np.array([surface.position for surface in surfaces], float),
        np.tile(np.eye(3), (len(surfaces), 1, 1)),
        np.zeros(len(surfaces), bool),
        np.array([surface.color for surface in surfaces], float),
        mesh,
    )


def moved_shapes(shapes: Shapes, topology: Topology) -> Shapes:
    """Those that some joint moves, as a ghost on the robot's own base hides it; all where nothing moves."""
    moved = np.zeros(len(topology.body_parents), bool)
    moved[[joint.body for joint in topology.joints]] = True
    for body, parent in enumerate(topology.body_parents):
        moved[body] |= moved[parent]
    kept = moved[shapes.body]
    return Shapes(*(column[kept] for column in shapes)) if kept.any() else shapes


def matrices(quaternions: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) of quaternions (n, 4) wxyz."""
    matrices = np.empty((len(quaternions), 9))
    for matrix, quaternion in zip(matrices, quaternions, strict=True):
        mujoco.mju_quat2Mat(matrix, quaternion)
    return matrices.reshape(-1, 3, 3)


def automatic_shapes(robot: Robot) -> Shapes:
    """Shapes for any robot: a ball at each joint, a capsule from there to the joints and tool points behind it."""
    robot = one_robot(robot)
    links = [(body, start, end) for body, start, end in _links(robot) if np.linalg.norm(end - start) > SHORTEST]
    radius = _radius(np.array([np.linalg.norm(end - start) for _, start, end in links]))
    rows = [
        (body, CAPSULE, (radius, np.linalg.norm(end - start) / 2, 0), (start + end) / 2, z_towards(end - start), False)
        for body, start, end in links
    ]
    ball = BALL_RADIUS * radius, 0, 0
    rows += [(body, SPHERE, ball, anchor, np.eye(3), True) for body, anchor in _anchors(robot).items()]
    if not rows:
        bodies = range(1, len(robot.topology.body_parents)) or (0,)
        rows = [(body, SPHERE, (ALONE, 0, 0), np.zeros(3), np.eye(3), False) for body in bodies]
    return unpainted(*(np.array(column) for column in zip(*rows, strict=True)))


def _radius(lengths: np.ndarray) -> float:
    """How thick links of these lengths (n,) are drawn [m]."""
    if not lengths.size:
        return ALONE
    longest = lengths.max()
    return float(np.clip(LINK_RADIUS * np.median(lengths), THINNEST * longest, THICKEST * longest))


def _anchors(robot: Robot) -> dict[int, np.ndarray]:
    """Where the first joint of each body turns it (3,), in the body's axes."""
    first = {joint.body: j for j, joint in reversed([*enumerate(robot.topology.joints)])}
    return {body: np.asarray(robot.joint_anchor[j], float) for body, j in first.items()}


def _links(robot: Robot) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Bodies with two points (3,) in their axes: from their joint to that of a child, or to a tool point.

    A body at the end of a chain that has no tool point reaches to its centre of mass.
    """
    topology, anchors, zero = robot.topology, _anchors(robot), np.zeros(3)
    floating = {joint.body for joint in topology.joints if joint.type is JointType.FREE}
    ends: dict[int, list[np.ndarray]] = {body: [] for body in range(1, len(topology.body_parents))}
    for body, parent in enumerate(topology.body_parents):
        if body and parent and body not in floating:
            turned = np.empty(3)
            mujoco.mju_rotVecQuat(turned, anchors.get(body, zero), np.asarray(robot.body_quaternion[body], float))
            ends[parent].append(np.asarray(robot.body_position[body], float) + turned)
    tools: dict[int, list[np.ndarray]] = {}
    for index, (_, body) in enumerate(topology.carriers["site"]):
        tools.setdefault(body, []).append(np.asarray(robot.site_position[index], float))
    for body, points in ends.items():
        if not points:
            points += tools.get(body, [np.asarray(robot.body_center[body], float)])
    return [(body, anchors.get(body, zero), point) for body, points in ends.items() for point in points]


def z_towards(direction: np.ndarray) -> np.ndarray:
    """Rotations (*batch, 3, 3) whose z axis points along a direction (*batch, 3)."""
    length = np.linalg.norm(direction, axis=-1, keepdims=True)
    z = np.where(length > 0, direction / np.where(length > 0, length, 1), np.array([0.0, 0.0, 1.0]))
    helper = np.where(np.abs(z[..., :1]) < 0.9, np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    x = np.cross(helper, z)
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=-1)
