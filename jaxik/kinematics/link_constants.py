"""What a plan needs of a robot: transforms between joints, frames, masses; once for many configurations."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.schedule import Plan
from jaxik.kinematics.topology import WORLD, JointType, subtree
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.lie import Transform
from jaxik.numerics.linalg import static_gather

Rows = tuple[jax.Array, jax.Array, jax.Array]


@pytree
class Segments:
    """What a plan needs of a robot's leaves, computed once for many configurations.

    With S segments, F frames and C subtrees:

    Attributes:
      axis (S, 3): joint axis in the segment.
      reference (S,): joint coordinate at which the joint's motion is zero; hinges and slides.
      fixed, cosine, sine (S, 4): three each, the rows of matrices (S, 3, 4) whose sum, weighted by 1, cos, sin of a
        hinge's angle, leads from the parent segment to the segment: rotation and position of the anchor side by side.
      slide (S, 3): by which a slide's coordinate moves the segment, from its parent; zero for other joints.
      frame_rotation (F, 3, 3), frame_position (F, 3): from the carrying segment to the frame.
      mass (C, S + 1), moment (C, S + 1, 3): mass carried by each segment and mass times centre in its axes; the
        last entry is what is fixed to the world.
    """

    plan: Plan = static()
    axis: jax.Array = leaf(2)
    reference: jax.Array = leaf(1)
    fixed: Rows = leaf(2)
    cosine: Rows = leaf(2)
    sine: Rows = leaf(2)
    slide: jax.Array = leaf(2)
    frame_rotation: jax.Array = leaf(3)
    frame_position: jax.Array = leaf(2)
    mass: jax.Array = leaf(2)
    moment: jax.Array = leaf(3)


def segments(robot: RobotModel, plan: Plan) -> Segments:
    """The constants of `plan` for one robot."""
    topology = plan.topology
    dtype = robot.body_position.dtype
    joints = [topology.joints[j] for j in plan.joints]
    base_joint = [WORLD if s == WORLD else plan.joints[s] for s in plan.parents]
    paths = [_bodies_between(plan, joint.body, base) for joint, base in zip(joints, base_joint, strict=True)]
    fixed = _fixed_transforms(robot, paths, base_joint)
    anchors, axis = (static_gather(x, plan.joints) for x in (robot.joint_anchor, robot.joint_axis))
    if axis.shape[0]:
        axis = axis / jnp.linalg.norm(axis, axis=1, keepdims=True)
    rotation = fixed.rotation
    position = fixed.position + jnp.einsum("sij,sj->si", rotation, anchors)

    def of_type(kind: JointType) -> jax.Array:
        return jnp.asarray([[[joint.type is kind]] for joint in joints], dtype).reshape(-1, 1, 1)

    # A hinge turns by I + (1 - cos) K^2 + sin K (Rodrigues), other joints have no K.
    turn = of_type(JointType.HINGE) * (jax.vmap(lie.skew)(axis) if joints else jnp.zeros((0, 3, 3), dtype))
    square, eye = turn @ turn, unit_matrix(3, dtype=dtype)

    carriers = [WORLD if s == WORLD else plan.joints[s] for s in plan.frame_segments]
    frame_paths = [_bodies_between(plan, topology.frame_body(f), c) for f, c in zip(plan.frames, carriers, strict=True)]
    frames = _fixed_transforms(robot, frame_paths, carriers)
    offset_rotation, offset_position = _frame_offsets(robot, plan.frames)
    mass, moment = _masses(robot, plan)

    still = jnp.zeros_like(position)
    return Segments(
        plan=plan,
        axis=axis,
        reference=static_gather(robot.qpos0, [j.q_index for j in joints]),
        fixed=rows_of(rotation @ (eye + square), position),
        cosine=rows_of(rotation @ -square, still),
        sine=rows_of(rotation @ turn, still),
        slide=of_type(JointType.SLIDE)[:, 0] * jnp.einsum("sij,sj->si", rotation, axis),
        frame_rotation=jnp.einsum("fij,fjk->fik", frames.rotation, offset_rotation),
        frame_position=frames.position + jnp.einsum("fij,fj->fi", frames.rotation, offset_position),
        mass=mass,
        moment=moment,
    )


def rows_of(rotation: jax.Array, position: jax.Array) -> Rows:
    """The rows (n, 4) of rotations (n, 3, 3) with positions (n, 3) as a fourth column."""
    matrix = jnp.concatenate([rotation, position[:, :, None]], axis=2)
    return matrix[:, 0], matrix[:, 1], matrix[:, 2]


def _bodies_between(plan: Plan, body: int, base: int) -> list[int]:
    """Bodies passed on the way from joint `base` (or the world) to `body`, outermost first; `body` included."""
    stop = 0 if base == WORLD else plan.topology.joints[base].body
    path: list[int] = []
    while body != stop:
        path.insert(0, body)
        body = plan.topology.body_parents[body]
    return path


def _fixed_transforms(robot: RobotModel, paths: list[list[int]], bases: list[int]) -> Transform:
    """From each base joint's anchor through the bodies of each path: rotations (n, 3, 3), positions (n, 3)."""
    dtype = robot.body_position.dtype
    if not paths:
        return Transform(jnp.zeros((0, 3, 3), dtype), jnp.zeros((0, 3), dtype))
    # The identity fills the shorter paths. It stands where the world's own row is, which says nothing: what is learned
    # about a robot must not move it.
    eye, zero = unit_matrix(3, dtype=dtype)[None], jnp.zeros((1, 3), dtype)
    rotations = jnp.concatenate([eye, jax.vmap(lie.quaternion_to_matrix)(robot.body_quaternion[1:])])
    positions = jnp.concatenate([zero, robot.body_position[1:]])
    # As large as what it chooses from: else XLA makes no constant of it.
    moved = np.repeat([[base != WORLD] for base in bases], 3, axis=1)
    anchors = jnp.where(moved, robot.joint_anchor[np.maximum(bases, 0)], 0) if np.any(moved) else 0

    def passed(k: int) -> np.ndarray:
        """The body at place k of each path."""
        return np.array([path[k] if k < len(path) else 0 for path in paths])

    rotation, position = rotations[passed(0)], positions[passed(0)] - anchors
    for k in range(1, max(map(len, paths))):
        position = position + jnp.einsum("sij,sj->si", rotation, positions[passed(k)])
        rotation = rotation @ rotations[passed(k)]
    return Transform(rotation, position)


def _frame_offsets(robot: RobotModel, frames: tuple[Frame, ...]) -> tuple[jax.Array, jax.Array]:
    """Poses of frames on their bodies: rotations (F, 3, 3), positions (F, 3)."""
    # After all sites and geoms stands the identity, which is a body's own frame.
    sites = robot.site_position.shape[0]
    own = sites + robot.geom_position.shape[0]
    start = {"site": 0, "geom": sites}
    rows = np.array([start[f.kind] + f.index if f.kind in start else own for f in frames], int)
    dtype = robot.body_position.dtype
    identity = unit_matrix(1, 4, dtype=dtype)
    quaternions = jnp.concatenate([robot.site_quaternion, robot.geom_quaternion, identity])[rows]
    positions = jnp.concatenate([robot.site_position, robot.geom_position, jnp.zeros((1, 3), dtype)])[rows]
    return jax.vmap(lie.quaternion_to_matrix)(quaternions), positions


def on_segments(robot: RobotModel, plan: Plan, bodies: Sequence[int]) -> tuple[list[int], Transform]:
    """For each body the segment that carries it, or WORLD, and its pose on it: (n, 3, 3), (n, 3)."""
    carriers = [plan.segment_of_body(body) for body in bodies]
    joints = [WORLD if s == WORLD else plan.joints[s] for s in carriers]
    paths = [_bodies_between(plan, body, joint) for body, joint in zip(bodies, joints, strict=True)]
    return carriers, _fixed_transforms(robot, paths, joints)


def _masses(robot: RobotModel, plan: Plan) -> tuple[jax.Array, jax.Array]:
    count, dtype = len(plan.joints), robot.body_position.dtype
    if not plan.subtrees:
        return jnp.zeros((0, count + 1), dtype), jnp.zeros((0, count + 1, 3), dtype)
    bodies = sorted({body for root in plan.subtrees for body in subtree(plan.topology, root)})
    carriers, fixed = on_segments(robot, plan, bodies)
    rows = np.array(bodies, int)
    mass = robot.body_mass[rows]
    center = fixed.position + jnp.einsum("sij,sj->si", fixed.rotation, robot.body_center[rows])
    # belongs[c, s, b]: body b lies in subtree c and is carried by segment s.
    belongs = np.zeros((len(plan.subtrees), count + 1, len(bodies)))
    for c, root in enumerate(plan.subtrees):
        inside = subtree(plan.topology, root)
        for b, (body, segment) in enumerate(zip(bodies, carriers, strict=True)):
            belongs[c, count if segment == WORLD else segment, b] = body in inside
    member = jnp.asarray(belongs, dtype)
    return member @ mass, member @ (mass[:, None] * center)
