"""Forward kinematics, Jacobians and centres of mass of one configuration, for the joints that a plan needs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax import lax

from jaxik import lie
from jaxik.errors import JaxikError
from jaxik.lie import Transform
from jaxik.linalg import NOTHING, arrange
from jaxik.pytree import leaf, pytree
from jaxik.robot.plan import WORLD, Plan
from jaxik.robot.topology import Frame, JointType
from jaxik.segments import Segments


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

    def pose(self, frame: Frame) -> jaxlie.SE3:
        """World pose of `frame`."""
        return self.transform(frame).to_se3()

    def jacobian_world_aligned(self, frame: Frame) -> tuple[jax.Array, jax.Array]:
        """Linear velocity of the frame's origin and angular velocity, each (3, nv), in world axes."""
        place = self._place(frame)
        moved = self._moved_by(self.plan.frame_segments[place])
        arm = self.frame_positions[place][:, None] - self.anchors
        linear = self.linear + lie.cross(self.angular, arm)
        if moved.all():
            return linear, self.angular
        mask = jnp.asarray(moved, self.q.dtype)
        return linear * mask, self.angular * mask

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
          motion (3, nv) or (6, nv): velocity for a unit rate of each degree of freedom, in world axes, linear first.
          force (3,) or (6,): on position and rotation.
        """
        turned = lie.cross(jnp.broadcast_to(force[:3, None], self.angular.shape), self.angular)
        pairs = turned.T @ motion[:3]
        upper = pairs
        if motion.shape[0] == 6:
            own = motion[3:]
            moment = lie.cross(jnp.broadcast_to(force[3:, None], own.shape), own)
            upper = upper + 0.5 * (moment.T @ own)
        nearer, same = self._joint_order()
        half = jnp.where(nearer, upper, 0) + jnp.where(same, 0.5 * pairs, 0)
        return half + half.T

    def _joint_order(self) -> tuple[np.ndarray, np.ndarray]:
        """For each pair of degrees of freedom: whether the first's joint is nearer to the base, or they share one."""
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

    def _moved_by(self, segment: int) -> np.ndarray:
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
        moves = np.stack([*(self._moved_by(s) for s in range(len(self.plan.joints))), self._moved_by(WORLD)], axis=1)
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


def forward(constants: Segments, q: jax.Array) -> Kinematics:
    """Evaluate one configuration (nq,)."""
    plan = constants.plan
    local_rotations, local_positions = _local_transforms(constants, q)
    rotations, positions = _compose(plan, local_rotations, local_positions)
    angular, linear, anchors = _motions(constants, rotations, positions)
    frame_rotations, frame_positions = _frames(constants, rotations, positions)
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


def _frames(constants: Segments, rotations: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """World poses of the plan's frames: rotations (F, 3, 3), positions (F, 3)."""
    carriers = constants.plan.frame_segments
    if WORLD in carriers:
        carriers = [len(constants.plan.joints) if s == WORLD else s for s in carriers]
        rotations = jnp.concatenate([rotations, jnp.eye(3, dtype=positions.dtype)[None]])
        positions = jnp.concatenate([positions, jnp.zeros((1, 3), positions.dtype)])
    base = arrange(rotations, carriers)
    return (
        jnp.einsum("fij,fjk->fik", base, constants.frame_rotation),
        arrange(positions, carriers) + jnp.einsum("fij,fj->fi", base, constants.frame_position),
    )


def _local_transforms(constants: Segments, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """From each segment's parent to the segment: rotations (S, 3, 3), positions (S, 3)."""
    plan = constants.plan
    joints = [plan.topology.joints[j] for j in plan.joints]
    hinges, slides = plan.of_type(JointType.HINGE), plan.of_type(JointType.SLIDE)
    rotations, positions = [], []
    if hinges:
        angle = arrange(q, [joints[s].q_index for s in hinges]) - arrange(constants.reference, hinges)
        cosine, sine = jnp.cos(angle)[:, None, None], jnp.sin(angle)[:, None, None]
        rotations.append(constants.hinge_fixed + cosine * constants.hinge_cosine + sine * constants.hinge_sine)
        positions.append(arrange(constants.position, hinges))
    if slides:
        shift = arrange(q, [joints[s].q_index for s in slides]) - arrange(constants.reference, slides)
        base = arrange(constants.rotation, slides)
        direction = jnp.einsum("sij,sj->si", base, arrange(constants.axis, slides))
        rotations.append(base)
        positions.append(arrange(constants.position, slides) + shift[:, None] * direction)
    balls, free = plan.of_type(JointType.BALL), plan.of_type(JointType.FREE)
    if balls:
        turned = jax.vmap(lie.quaternion_to_matrix)(_blocks(q, [joints[s].q_index for s in balls], 4))
        rotations.append(jnp.einsum("sij,sjk->sik", arrange(constants.rotation, balls), turned))
        positions.append(arrange(constants.position, balls))
    if free:
        rotations.append(jax.vmap(lie.quaternion_to_matrix)(_blocks(q, [joints[s].q_index + 3 for s in free], 4)))
        positions.append(_blocks(q, [joints[s].q_index for s in free], 3))
    stored = (*hinges, *slides, *balls, *free)
    if not stored:
        return jnp.zeros((0, 3, 3), q.dtype), jnp.zeros((0, 3), q.dtype)
    back = np.argsort(stored).tolist()
    return arrange(jnp.concatenate(rotations), back), arrange(jnp.concatenate(positions), back)


def _blocks(q: jax.Array, starts: list[int], width: int) -> jax.Array:
    """Equally long pieces of `q`, one a row."""
    return arrange(q, [start + i for start in starts for i in range(width)]).reshape(len(starts), width)


def _compose(plan: Plan, rotations: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """World poses of all segments from their local transforms."""

    def step(parent: tuple[jax.Array, jax.Array], local: tuple[jax.Array, jax.Array]):
        rotation = jnp.einsum("cij,cjk->cik", parent[0], local[0])
        position = parent[1] + jnp.einsum("cij,cj->ci", parent[0], local[1])
        return (rotation, position), (rotation, position)

    done_rotations, done_positions = rotations[:0], positions[:0]
    for group in plan.groups:
        count = len(group.parents)
        local = (
            rotations[group.start : group.start + group.length * count].reshape(group.length, count, 3, 3),
            positions[group.start : group.start + group.length * count].reshape(group.length, count, 3),
        )
        first = (local[0][0], local[1][0])
        if any(parent != WORLD for parent in group.parents):
            # A group hangs either on the world or on earlier chains, never on both: chains of one round do.
            base = arrange(done_rotations, group.parents), arrange(done_positions, group.parents)
            first, _ = step(base, first)
        done_rotations = jnp.concatenate([done_rotations, first[0]])
        done_positions = jnp.concatenate([done_positions, first[1]])
        if group.length > 1:
            _, (chain_rotations, chain_positions) = lax.scan(step, first, (local[0][1:], local[1][1:]))
            done_rotations = jnp.concatenate([done_rotations, chain_rotations.reshape(-1, 3, 3)])
            done_positions = jnp.concatenate([done_positions, chain_positions.reshape(-1, 3)])
    return done_rotations, done_positions


def _motions(constants: Segments, rotations: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What a unit rate of each degree of freedom does: angular, linear, anchors, each (3, nv) in the world."""
    plan = constants.plan
    topology, dtype = plan.topology, positions.dtype
    angular, linear, anchors, dofs = [], [], [], []
    for joint_type in (JointType.HINGE, JointType.SLIDE):
        members = plan.of_type(joint_type)
        if members:
            axis = jnp.einsum("sij,sj->is", arrange(rotations, members), arrange(constants.axis, members))
            zero = jnp.zeros((3, len(members)), dtype)
            turns = joint_type is JointType.HINGE
            angular.append(axis if turns else zero)
            linear.append(zero if turns else axis)
            anchors.append(arrange(positions, members).T)
            dofs += [topology.joints[plan.joints[s]].v_index for s in members]
    for s in plan.of_type(JointType.BALL, JointType.FREE):
        joint = topology.joints[plan.joints[s]]
        zero, eye = jnp.zeros((3, 3), dtype), jnp.eye(3, dtype=dtype)
        free = joint.type is JointType.FREE
        # A free joint's linear rates are in world axes, its angular ones, like a ball's, in body axes.
        angular += [zero, rotations[s]] if free else [rotations[s]]
        linear += [eye, zero] if free else [zero]
        anchors += [jnp.broadcast_to(positions[s][:, None], (3, joint.type.nv))]
        dofs += joint.v_indices
    place = dict(zip(dofs, range(len(dofs)), strict=True))
    order = [place.get(dof, NOTHING) for dof in range(topology.nv)]
    if not dofs:
        nothing = jnp.zeros((3, topology.nv), dtype)
        return nothing, nothing, nothing
    parts = (jnp.concatenate(part, axis=1) for part in (angular, linear, anchors))
    return tuple(arrange(part, order, axis=1) for part in parts)  # type: ignore[return-value]
