"""Forward kinematics, Jacobians and centres of mass of one configuration, for the joints that a plan needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax import lax

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.link_constants import Rows, Segments, rows_of
from jaxik.kinematics.schedule import Plan
from jaxik.kinematics.topology import WORLD, JointType
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.fusion import materialize
from jaxik.numerics.lie import Transform
from jaxik.numerics.linalg import PAD, set_rows, static_gather
from jaxik.numerics.trigonometry import sine_cosine


class FramesAt(NamedTuple):
    """Frames in world axes: rotation (n, 3, 3), position (n, 3), and their Jacobians, linear and angular (n, 3, nv)."""

    rotation: jax.Array
    position: jax.Array
    linear: jax.Array
    angular: jax.Array


@pytree
class Kinematics:
    """One evaluated configuration: what tasks and limits look at.

    Attributes:
      q (nq,): the configuration.
      rotations (S, 3, 3), positions (S, 3): world pose of each segment.
      angular, linear, anchors (3, nv): a unit rate of a degree of freedom moves a point x of the bodies behind it with
        velocity `linear + angular x (x - anchor)`, in world axes; zero for degrees of freedom outside the plan.
      frame_rotations (F, 3, 3), frame_positions (F, 3): world pose of each frame.
    """

    segments: Segments = leaf()
    q: jax.Array = leaf(1)
    rotations: jax.Array = leaf(3)
    positions: jax.Array = leaf(2)
    angular: jax.Array = leaf(2)
    linear: jax.Array = leaf(2)
    anchors: jax.Array = leaf(2)
    frame_rotations: jax.Array = leaf(3)
    frame_positions: jax.Array = leaf(2)

    @property
    def plan(self) -> Plan:
        return self.segments.plan

    @property
    def nv(self) -> int:
        return self.plan.topology.nv

    def _place(self, frame: Frame) -> int:
        if frame not in self.plan.frames:
            raise JaxikError(f"{frame} was not announced: list it in the task's `frames`")
        return self.plan.frames.index(frame)

    def transform(self, frame: Frame) -> Transform:
        """World pose of `frame` as a rotation matrix and a position."""
        place = self._place(frame)
        return Transform(self.frame_rotations[place], self.frame_positions[place])

    def transforms(self, frames: Sequence[Frame]) -> Transform:
        """World poses of several frames, which need not differ, with a leading axis."""
        places = [self._place(frame) for frame in frames]
        return Transform(static_gather(self.frame_rotations, places), static_gather(self.frame_positions, places))

    def pose(self, frame: Frame) -> jaxlie.SE3:
        """World pose of `frame`."""
        return self.transform(frame).to_se3()

    def jacobian_world_aligned(self, frame: Frame) -> tuple[jax.Array, jax.Array]:
        """Linear velocity of the frame's origin and angular velocity, each (3, nv), in world axes."""
        place, moved = self._place(frame), self.moves(frame)
        arm = self.frame_positions[place][:, None] - self.anchors
        linear = materialize(self.linear + lie.cross(self.angular, arm))
        if moved.all():
            return linear, self.angular
        mask = jnp.asarray(moved, self.q.dtype)
        return linear * mask, self.angular * mask

    def moves(self, frame: Frame) -> np.ndarray:
        """Which degrees of freedom (nv,) move a frame."""
        return self.moved_by(self.plan.frame_segments[self._place(frame)])

    def frames_at(self, frames: Sequence[Frame]) -> FramesAt:
        """Poses and Jacobians of several frames, which need not differ."""
        places = [self._place(frame) for frame in frames]
        position = static_gather(self.frame_positions, places)
        moved = np.stack([self.moves(frame) for frame in frames])
        mask = jnp.asarray(moved[:, None], self.q.dtype)
        arm = jnp.moveaxis(position, 0, 1)[:, :, None] - self.anchors[:, None]
        swing = lie.cross(jnp.broadcast_to(self.angular[:, None], arm.shape), arm)
        return FramesAt(
            static_gather(self.frame_rotations, places),
            position,
            (self.linear + jnp.moveaxis(swing, 0, 1)) * mask,
            self.angular * mask,
        )

    def attached(self, body: jax.Array, offset: Transform) -> tuple[Transform, jax.Array, jax.Array]:
        """Pose of a frame at `offset` on the body of this number, and its Jacobian as in `jacobian_world_aligned`.

        Body and offset are data, so that one program serves all frames; the plan's frames are all bodies, in order.
        """
        moved = np.stack([self.moved_by(segment) for segment in self.plan.frame_segments])
        mask = jnp.asarray(moved, self.q.dtype)[body]
        pose = Transform(self.frame_rotations[body], self.frame_positions[body]) @ offset
        swing = lie.cross(self.angular, pose.position[:, None] - self.anchors)
        return pose, (self.linear + swing) * mask, self.angular * mask

    def jacobian(self, frame: Frame) -> jax.Array:
        """Body Jacobian (6, nv) of `frame`, linear first, in the frame's axes."""
        back = self.transform(frame).rotation.T
        linear, angular = self.jacobian_world_aligned(frame)
        return jnp.concatenate([back @ linear, back @ angular])

    def bending(self, motion: jax.Array, force: jax.Array) -> jax.Array:
        """`force` times the second derivative of a point, or of a frame, along `integrate`: (nv, nv), symmetric.

        With joint j nearer to the base than joint k, v_k turns with j: d v_k/dq_j = w_j x v_k = d v_j/dq_k, and the
        rotation vector to second order has w_j x w_k / 2.

        Args:
          motion (*n, 3, nv) or (*n, 6, nv): velocity for a unit rate of each degree of freedom, in world axes, linear
            first; of several points or frames the sum is returned.
          force (*n, 3) or (*n, 6): on position and rotation.
        """
        swung = materialize(_swung(motion[..., :3, :], force[..., :3]).reshape(-1, 3, self.nv).sum(axis=0))
        pairs = self.angular.T @ swung
        upper = pairs
        if motion.shape[-2] == 6:
            own = motion[..., 3:, :]
            moment = materialize(_swung(own, 0.5 * force[..., 3:]))
            upper = upper + own.reshape(-1, self.nv).T @ moment.reshape(-1, self.nv)
        nearer, same = self.joint_order()
        half = materialize(jnp.where(nearer, upper, jnp.where(same, 0.5 * pairs, 0)))
        return half + half.T

    def joint_order(self) -> tuple[np.ndarray, np.ndarray]:
        """For each pair of degrees of freedom: whether the first's joint is nearer to the base, or they turn as one.

        Both (nv, nv) of bool, static; a free joint's position and rotation are neither.
        """
        topology, plan = self.plan.topology, self.plan
        nearer, same = np.zeros((self.nv, self.nv), bool), np.zeros((self.nv, self.nv), bool)
        for s, joint in enumerate(plan.joints):
            columns = list(topology.joints[joint].v_indices)
            # A free joint's position is in world axes, and does not turn with its rotation.
            turning = columns[3:] if topology.joints[joint].type is JointType.FREE else columns
            same[np.ix_(turning, turning)] = True
            for a in plan.ancestors[s] - {s}:
                nearer[np.ix_(topology.joints[plan.joints[a]].v_indices, columns)] = True
        return nearer, same

    def moved_by(self, segment: int) -> np.ndarray:
        """Which degrees of freedom move `segment`: (nv,) of bool."""
        moved = np.zeros(self.nv, bool)
        if segment != WORLD:
            for s in self.plan.ancestors[segment]:
                moved[list(self.plan.topology.joints[self.plan.joints[s]].v_indices)] = True
        return moved

    def center_of_mass(self, root: int) -> jax.Array:
        """Centre of mass (3,) [m] of the subtree that starts at body `root`, in the world."""
        mass, moment = self._moments(root)
        return jnp.sum(moment, 0) / jnp.sum(mass)

    def center_of_mass_jacobian(self, root: int) -> jax.Array:
        """Jacobian (3, nv) of the centre of mass of the subtree that starts at body `root`."""
        mass, moment = self._moments(root)
        moves = np.stack([*(self.moved_by(s) for s in range(len(self.plan.joints))), self.moved_by(WORLD)], axis=1)
        carries = jnp.asarray(moves, self.q.dtype)
        moved_mass, moved_moment = carries @ mass, (carries @ moment).T
        arm = moved_moment - moved_mass * self.anchors
        return (moved_mass * self.linear + lie.cross(self.angular, arm)) / jnp.sum(mass)

    def _moments(self, root: int) -> tuple[jax.Array, jax.Array]:
        """Mass (S + 1,) and mass times centre (S + 1, 3) in the world, by segment, the world's own last."""
        place = self.plan.subtrees.index(root)
        mass, local = self.segments.mass[place], self.segments.moment[place]
        world = mass[:-1, None] * self.positions + jnp.einsum("sij,sj->si", self.rotations, local[:-1])
        return mass, jnp.concatenate([world, local[-1:]])


def _swung(motion: jax.Array, force: jax.Array) -> jax.Array:
    """The cross product of each column of motion (*n, 3, nv) with force (*n, 3)."""
    columns = jnp.moveaxis(motion, -2, 0)
    # Once, and not for each column. A kernel that repeats it hoists what fits into LLVM's limits: the rest, in some of
    # the lanes only, then rounds otherwise (vectors of 512 bits).
    force = materialize(jnp.moveaxis(force, -1, 0))[..., None]
    # Once around and on, not as in `lie.cross`: what is computed for either turn would be a kernel for each.
    columns, force = (jnp.concatenate([x, x[:2]]) for x in (columns, force))
    return jnp.moveaxis(columns[1:4] * force[2:] - columns[2:] * force[1:4], 0, -2)


def forward(constants: Segments, q: jax.Array) -> Kinematics:
    """Evaluate one configuration (nq,)."""
    plan = constants.plan
    poses = _compose(plan, _local_transforms(constants, q))
    rotations, positions = poses[:, :, :3], poses[:, :, 3]
    angular, linear, anchors = _motions(constants, rotations, positions)
    frame_rotations, frame_positions = _frames(constants, poses)
    return Kinematics(
        segments=constants,
        q=q,
        rotations=rotations,
        positions=positions,
        angular=angular,
        linear=linear,
        anchors=anchors,
        frame_rotations=frame_rotations,
        frame_positions=frame_positions,
    )


def _frames(constants: Segments, poses: jax.Array) -> tuple[jax.Array, jax.Array]:
    """World poses of the plan's frames, rotations (F, 3, 3) and positions (F, 3), from those of segments (S, 3, 4)."""
    carriers, dtype = constants.plan.frame_segments, poses.dtype
    if WORLD in carriers:
        carriers = [len(constants.plan.joints) if s == WORLD else s for s in carriers]
        poses = jnp.concatenate([poses, unit_matrix(3, 4, dtype=dtype)[None]])
    offset = jnp.concatenate([constants.frame_rotation, constants.frame_position[:, :, None]], axis=2)
    carrier, last = static_gather(poses, carriers), jnp.asarray([0, 0, 0, 1], dtype)
    frames = jnp.einsum("fij,fjk->fik", carrier[:, :, :3], offset) + carrier[:, :, 3:] * last
    # What asks for a frame would compute it again.
    frames = materialize(frames)
    return frames[:, :, :3], frames[:, :, 3]


class _Local(NamedTuple):
    """From each segment's parent to the segment, one row a segment.

    The pose, by its rows (S, 4), is `fixed + cosine * cosines + sine * sines`. It is put together in the scan over the
    joints: before it, XLA would compute sine and cosine again for each of its entries.
    """

    fixed: Rows
    cosine: Rows
    sine: Rows
    cosines: jax.Array
    sines: jax.Array


def _local_transforms(constants: Segments, q: jax.Array) -> _Local:
    plan = constants.plan
    joints = [plan.topology.joints[j] for j in plan.joints]
    scalar = [j.q_index if j.type in (JointType.HINGE, JointType.SLIDE) else PAD for j in joints]
    coordinate = static_gather(q, scalar) - constants.reference
    sines, cosines = sine_cosine(coordinate)
    slides, balls, free = (plan.of_type(kind) for kind in (JointType.SLIDE, JointType.BALL, JointType.FREE))
    if not (slides or balls or free):
        return _Local(constants.fixed, constants.cosine, constants.sine, cosines, sines)
    fixed = jnp.stack(constants.fixed, axis=1)
    rotation, position = fixed[:, :, :3], fixed[:, :, 3]
    if slides:
        position = position + coordinate[:, None] * constants.slide
    if balls:
        turned = jax.vmap(lie.quaternion_to_matrix)(_blocks(q, [joints[s].q_index for s in balls], 4))
        rotation = set_rows(rotation, balls, jnp.einsum("sij,sjk->sik", static_gather(rotation, balls), turned))
    if free:
        turned = jax.vmap(lie.quaternion_to_matrix)(_blocks(q, [joints[s].q_index + 3 for s in free], 4))
        rotation = set_rows(rotation, free, turned)
        position = set_rows(position, free, _blocks(q, [joints[s].q_index for s in free], 3))
    return _Local(rows_of(rotation, position), constants.cosine, constants.sine, cosines, sines)


def _blocks(q: jax.Array, starts: list[int], width: int) -> jax.Array:
    """Equally long pieces of `q`, one a row."""
    return static_gather(q, [start + i for start in starts for i in range(width)]).reshape(len(starts), width)


def _compose(plan: Plan, local: _Local) -> jax.Array:
    """World poses of all segments (S, 3, 4), rotations and positions, from their local transforms.

    A product of poses is written row by row: XLA makes vector instructions of a loop over lanes only where each array
    that is taken from by a running index is looked at once. The matrix product took three times as long.
    """
    dtype = local.cosines.dtype
    last = jnp.asarray([0, 0, 0, 1], dtype)
    rows = list(zip(local.fixed, local.cosine, local.sine, strict=True))

    def step(parent: jax.Array, local: Any) -> tuple[jax.Array, jax.Array]:
        (c, s), rows = local if parent.shape[0] > 1 else jax.tree.map(lambda x: x[None], local)
        pose = parent * last
        for j, (fixed, cosine, sine) in enumerate(rows):
            pose = pose + parent[:, :, j, None] * (fixed + c[:, None] * cosine + s[:, None] * sine)[:, None]
        return pose, pose

    poses = jnp.zeros((0, 3, 4), dtype)
    for group in plan.groups:
        count = len(group.parents)
        end = group.start + group.length * count

        def of_group(x: jax.Array, start: int = group.start, end: int = end, count: int = count) -> jax.Array:
            # An axis of one would be a copy of sines and cosines in every evaluation.
            return x[start:end] if count == 1 else x[start:end].reshape(-1, count, *x.shape[1:])

        # A group hangs either on the world or on earlier chains, never on both: chains of one round do.
        if group.parents[0] == WORLD:
            base = jnp.broadcast_to(unit_matrix(3, 4, dtype=dtype), (count, 3, 4))
        else:
            base = static_gather(poses, group.parents)
        _, chain = lax.scan(step, base, jax.tree.map(of_group, ((local.cosines, local.sines), rows)))
        poses = jnp.concatenate([poses, chain.reshape(-1, 3, 4)])
    return poses


def _motions(constants: Segments, rotations: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What a unit rate of each degree of freedom does: angular, linear, anchors, each (3, nv) in the world."""
    plan = constants.plan
    topology, dtype = plan.topology, positions.dtype
    angular, linear, anchors, dofs = [], [], [], []
    for joint_type in (JointType.HINGE, JointType.SLIDE):
        members = plan.of_type(joint_type)
        if members:
            # Each Jacobian, and each product with it, would compute it again: a Panda's solve took 1.05 times as long.
            axis = materialize(
                jnp.einsum("sij,sj->is", static_gather(rotations, members), static_gather(constants.axis, members))
            )
            zero = jnp.zeros((3, len(members)), dtype)
            turns = joint_type is JointType.HINGE
            angular.append(axis if turns else zero)
            linear.append(zero if turns else axis)
            anchors.append(static_gather(positions, members).T)
            dofs += [topology.joints[plan.joints[s]].v_index for s in members]
    for s in plan.of_type(JointType.BALL, JointType.FREE):
        joint = topology.joints[plan.joints[s]]
        zero, eye = jnp.zeros((3, 3), dtype), unit_matrix(3, dtype=dtype)
        free = joint.type is JointType.FREE
        # A free joint's linear rates are in world axes, its angular ones, like a ball's, in body axes.
        angular += [zero, rotations[s]] if free else [rotations[s]]
        linear += [eye, zero] if free else [zero]
        anchors += [jnp.broadcast_to(positions[s][:, None], (3, joint.type.nv))]
        dofs += joint.v_indices
    place = dict(zip(dofs, range(len(dofs)), strict=True))
    order = [place.get(dof, PAD) for dof in range(topology.nv)]
    if not dofs:
        nothing = jnp.zeros((3, topology.nv), dtype)
        return nothing, nothing, nothing
    turning, moving, centers = (jnp.concatenate(part, axis=1) for part in (angular, linear, anchors))
    if order != list(range(topology.nv)):
        # Together, as each slice of an order with many runs is a kernel.
        turning, moving, centers = static_gather(jnp.stack([turning, moving, centers]), order, axis=2)
    return turning, moving, centers
