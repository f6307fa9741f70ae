"""Bring a frame to a target pose in another frame: two hands on one object, a foot beside the other."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.fusion import materialize
from jaxik.numerics.lie import Transform
from jaxik.numerics.rotation_log import left_jacobian, log_of_matrix, log_pose, log_pose_derivative
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import TargetPart, Task
from jaxik.tasks.pose import POSE_UNITS, goal_of, pose_parts, pose_tolerances, pose_weights, seen_from, set_pose_fields
from jaxik.tasks.pose_curvature import pose_curvature


@pytree
class RelativeFrameTask(Task):
    """Bring `frame` to `target`, a pose in the axes of `root`; both frames may move.

    The residual is `log(T_target^-1 T_frame)` with both poses in the root, the twist from target to frame, linear part
    first [m, rad]: the opposite sign of `FrameTask`, of which it is the negative where the root is the world. Without
    orientation rows it is `R'(p - p*)`, in the frame's axes, without position rows the rotation vector of `R*' R`.

    Args:
      frame: the frame, from `robot.frame(name)`.
      root: the frame that the target is fixed to; `robot.frame("world")` for the world.
      target: pose in the root, `jaxlie.SE3` with batch axes (*batch,); a position (*batch, 3) [m] where
        `orientation_cost` is None, or a rotation, `jaxlie.SO3`, where `position_cost` is.
      position_cost, orientation_cost, gain, lm_damping, position_tolerance, orientation_tolerance, priority, mask: as
        of `FrameTask`.

    Raises:
      JaxikError: for a wrong type or shape or a negative cost.
    """

    frames_batchable = True
    frame: Frame = static()
    root: Frame = static()
    target: jaxlie.SE3 = leaf(1)
    position_cost: Any = leaf(1, default=1.0)
    orientation_cost: Any = leaf(1, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    position_tolerance: Any = leaf(0, default=1e-4)
    orientation_tolerance: Any = leaf(0, default=1e-3)
    priority: int = static(default=0)
    mask: Any = leaf(1, default=None)
    unit = POSE_UNITS

    def __post_init__(self) -> None:
        arguments.frame("frame", self.frame)
        arguments.frame("root", self.root)
        if self.frame == self.root:
            raise JaxikError(f"frame and root are both {self.frame.name or self.frame!r}: nothing moves between them")
        arguments.set_common(self)
        set_pose_fields(self)

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, frame: Frame | str, root: Frame | str, **options: Any
    ) -> "RelativeFrameTask":
        """The task that holds `frame` in `root` as the configuration `q` (*batch, nq) has it; `options` as above."""
        frame, root = robot.frame(frame), robot.frame(root)
        return cls(frame, root, robot.frame_pose(q, root).inverse() @ robot.frame_pose(q, frame), **options)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame, self.root)

    @property
    def _is_twist(self) -> bool:
        return self.position_cost is not None and self.orientation_cost is not None

    def _goal(self, kin: Kinematics) -> Transform:
        """The target, seen from the frame."""
        goal = kin.transform(self.root) @ goal_of(self)
        return seen_from(kin.transform(self.frame), goal)

    def target_parts(self) -> tuple[TargetPart, ...]:
        return pose_parts(self.target)

    def residual(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        if self._is_twist:
            goal = self._goal(kin)
            twist = -log_pose(log_of_matrix(goal.rotation), materialize(goal.position))
            return {"position": twist[:3], "orientation": twist[3:]}
        return self.report(robot, kin)

    def report(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        """Position (3,) [m], a Euclidean difference, and orientation (3,) [rad], in the frame's axes."""
        goal = self._goal(kin)
        out = {}
        if self.position_cost is not None:
            out["position"] = -goal.position
        if self.orientation_cost is not None:
            out["orientation"] = -log_of_matrix(goal.rotation).vector
        return out

    def jacobian(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        """The analytic derivative; that of the twist is derived in `log_pose_derivative`."""
        linear, angular = kin.jacobian_world_aligned(self.frame)
        root_linear, root_angular = kin.jacobian_world_aligned(self.root)
        arm = kin.transform(self.frame).position - kin.transform(self.root).position
        carried = root_linear - lie.skew(arm) @ root_angular
        motion = jnp.concatenate([linear - carried, angular - root_angular])
        return {name: block @ motion for name, block in self._blocks(kin).items()}

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, dict[str, jax.Array]]:
        blocks = self._blocks(kin)
        # A motion of the root is the opposite one of the frame, taken as fixed to the root.
        arm = kin.transform(self.frame).position - kin.transform(self.root).position
        eye, zero = unit_matrix(3, dtype=arm.dtype), jnp.zeros((3, 3), arm.dtype)
        carried = jnp.block([[-eye, lie.skew(arm)], [zero, -eye]])
        return {self.frame: blocks, self.root: {name: block @ carried for name, block in blocks.items()}}

    def _blocks(self, kin: Kinematics) -> dict[str, jax.Array]:
        """Derivatives (3, 6) of the rows along a twist of the frame in the root, in world axes."""
        goal, back = self._goal(kin), kin.transform(self.frame).rotation.T
        zero, out = jnp.zeros_like(back), {}
        if self._is_twist:
            way = kin.transform(self.frame).rotation @ goal.position
            a, b = log_pose_derivative(log_of_matrix(goal.rotation), materialize(goal.position), back, way)
            out["position"] = jnp.concatenate([a, -b], axis=1)
            out["orientation"] = jnp.concatenate([zero, a], axis=1)
        elif self.position_cost is not None:
            out["position"] = jnp.concatenate([back, -lie.skew(goal.position) @ back], axis=1)
        else:
            a = left_jacobian(log_of_matrix(goal.rotation))
            out["orientation"] = jnp.concatenate([zero, a @ back], axis=1)
        return out

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: dict[str, jax.Array]
    ) -> tuple[dict[Frame, jax.Array], jax.Array | None]:
        pose, root, goal = kin.transform(self.frame), kin.transform(self.root), self._goal(kin)
        none = jnp.zeros(3, kin.q.dtype)
        # The residual is the opposite of the twist to the goal.
        against = -multipliers.get("position", none), -multipliers.get("orientation", none)
        force, stiffness = pose_curvature(goal.position, log_of_matrix(goal.rotation), against, twist=self._is_twist)
        c = pose.rotation.T @ (pose.position - root.position)
        eye, zero = unit_matrix(3, dtype=c.dtype), jnp.zeros((3, 3), c.dtype)
        # With the frame moved by (v, u) and the root by (V, U), in the frame's axes, the frame moves in the root by
        # (v - V - U x c, u - U), and to second order by (-U x (v - V) + U x (U x c)/2, -U x u/2) besides.
        motion = jnp.block([[eye, zero, -eye, lie.skew(c)], [zero, eye, zero, -eye]])
        push, twist = lie.skew(force[:3]), lie.skew(force[3:]) / 2
        across = force[:3, None] * c
        turned = (across + across.T) / 2 - jnp.trace(across) * eye
        bent = jnp.block(
            [
                [zero, zero, zero, push.T],
                [zero, zero, zero, twist.T],
                [zero, zero, zero, -push.T],
                [push, twist, -push, turned],
            ]
        )
        turn = jnp.kron(unit_matrix(4, dtype=c.dtype), pose.rotation)
        pulled = turn @ (motion.T @ force)
        whole = turn @ (motion.T @ stiffness @ motion + bent) @ turn.T
        return {self.frame: pulled[:6], self.root: pulled[6:]}, whole

    def weights(self) -> dict[str, jax.Array]:
        return pose_weights(self)

    def tolerances(self) -> dict[str, jax.Array]:
        return pose_tolerances(self)
