"""Bring a frame to a target pose, position or orientation."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

from jaxik.core import validation
from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.fusion import materialize
from jaxik.numerics.lie import Transform, skew
from jaxik.numerics.rotation_log import RotationLog, left_jacobian, log_between, log_pose, log_pose_derivative
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import TargetPart, Task
from jaxik.tasks.pose import POSE_UNITS, goal_of, pose_parts, pose_tolerances, pose_weights, seen, set_pose_fields
from jaxik.tasks.pose_curvature import pose_curvature

AXES = ("frame", "target", "world")


@pytree
class FrameTask(Task):
    """Bring `frame` to `target`.

    In the frame's axes the residual is `log(T_frame^-1 T_target)`, the twist from frame to target, linear part first
    [m, rad]. Without orientation rows it is `R'(p* - p)`, without position rows the rotation vector of `R' R*`. In the
    axes of the target or the world, position and orientation are separate: `p* - p` and the rotation vector from frame
    to target, in those axes; choose these to mask single directions.

    Args:
      frame: the frame, from `robot.frame(name)`.
      target: pose in the world, `jaxlie.SE3` with batch axes (*batch,); a position (*batch, 3) [m] where
        `orientation_cost` is None, or a rotation, `jaxlie.SO3`, where `position_cost` is.
      position_cost: weight of the position rows, (*batch, 3) or a number; (B, 1) for a batch of isotropic costs. None:
        the rows do not exist; 0.0 keeps them with no weight.
      orientation_cost: likewise, of the orientation rows.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      position_tolerance, orientation_tolerance: (*batch,) [m], [rad]: the task is met when the Euclidean distance and
        the rotation angle, over rows with cost and mask, are below.
      priority: 0 is highest; static.
      mask: (*batch, 6) of bool or weights in [0, 1] on the rows, linear first; traced.
      axes: "frame", "target" or "world": the axes of residuals, costs and mask; static.

    Raises:
      JaxikError: for a wrong type, shape, axes or a negative cost.
    """

    frames_batchable = True
    frame: Frame = static()
    target: jaxlie.SE3 = leaf(1)
    position_cost: Any = leaf(1, default=1.0)
    orientation_cost: Any = leaf(1, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    position_tolerance: Any = leaf(0, default=1e-4)
    orientation_tolerance: Any = leaf(0, default=1e-3)
    priority: int = static(default=0)
    mask: Any = leaf(1, default=None)
    axes: str = static(default="frame")
    unit = POSE_UNITS

    def __post_init__(self) -> None:
        arguments.frame("frame", self.frame)
        validation.one_of("axes", self.axes, AXES)
        arguments.set_common(self)
        set_pose_fields(self)

    @classmethod
    def from_configuration(cls, robot: Robot, q: Any, frame: Frame | str, **options: Any) -> "FrameTask":
        """The task that holds `frame` where the configuration `q` (*batch, nq) has it; `options` as above."""
        frame = robot.frame(frame)
        return cls(frame, robot.frame_pose(q, frame), **options)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def target_parts(self) -> tuple[TargetPart, ...]:
        return pose_parts(self.target)

    @property
    def _is_twist(self) -> bool:
        return self.axes == "frame" and self.position_cost is not None and self.orientation_cost is not None

    def _seen(self, pose: Transform) -> tuple[RotationLog, jax.Array, jax.Array]:
        """The rotation to the target and its position (3,), in the axes of the frame, and that in the world's."""
        quaternion, way = self.target.wxyz_xyz[:4], self.target.wxyz_xyz[4:] - pose.position
        return log_between(pose.rotation, quaternion), materialize(seen(pose, way)), way

    def residual(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        if self._is_twist:
            log, d, _ = self._seen(kin.transform(self.frame))
            twist = log_pose(log, d)
            return {"position": twist[:3], "orientation": twist[3:]}
        return self.report(robot, kin)

    def report(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        """Position (3,) [m], a Euclidean difference, and orientation (3,) [rad], a rotation vector, in the axes."""
        pose = kin.transform(self.frame)
        log, d, way = self._seen(pose)
        out = {}
        if self.position_cost is not None:
            to_target = goal_of(self).rotation.T
            out["position"] = {"frame": d, "target": to_target @ way, "world": way}[self.axes]
        if self.orientation_cost is not None:
            # A rotation leaves its own axis where it is: the vector is the same in the frame and in the target.
            out["orientation"] = pose.rotation @ log.vector if self.axes == "world" else log.vector
        return out

    def jacobian(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        """The analytic derivative; that of the twist is derived in `log_pose_derivative`."""
        linear, angular = kin.jacobian_world_aligned(self.frame)
        return {
            name: on_angular @ angular if on_linear is None else on_linear @ linear + on_angular @ angular
            for name, (on_linear, on_angular) in self._slopes(kin).items()
        }

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, dict[str, jax.Array]]:
        blocks = self._slopes(kin).items()
        return {
            self.frame: {
                name: jnp.concatenate([jnp.zeros_like(angular) if linear is None else linear, angular], axis=1)
                for name, (linear, angular) in blocks
            }
        }

    def _slopes(self, kin: Kinematics) -> dict[str, tuple[jax.Array | None, jax.Array]]:
        """Derivatives (3, 3) of the rows along the frame's linear velocity, None where zero, and angular velocity."""
        pose = kin.transform(self.frame)
        log, d, way = self._seen(pose)
        back = pose.rotation.T
        if self._is_twist:
            a, b = log_pose_derivative(log, d, back, way)
            return {"position": (-a, b), "orientation": (None, -a)}
        out: dict[str, tuple[jax.Array | None, jax.Array]] = {}
        if self.position_cost is not None:
            if self.axes == "frame":
                out["position"] = (-back, skew(d) @ back)
            else:
                eye = unit_matrix(3, dtype=back.dtype)
                out["position"] = (-goal_of(self).rotation.T if self.axes == "target" else -eye, 0 * back)
        if self.orientation_cost is not None:
            a = left_jacobian(log)
            if self.axes == "world":
                out["orientation"] = (None, -(pose.rotation @ (skew(log.vector) + a) @ back))
            else:
                out["orientation"] = (None, -(a @ back))
        return out

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: dict[str, jax.Array]
    ) -> tuple[dict[Frame, jax.Array], jax.Array | None]:
        if self.axes != "frame":
            return super().weighted_hessian(robot, kin, multipliers)
        pose = kin.transform(self.frame)
        log, _, way = self._seen(pose)
        none = jnp.zeros(3, kin.q.dtype)
        # In world axes, as the motion is: vectors turn at less cost than the stiffness.
        pulls = pose.rotation @ multipliers.get("position", none), pose.rotation @ multipliers.get("orientation", none)
        turned = log._replace(vector=pose.rotation @ log.vector)
        force, stiffness = pose_curvature(way, turned, pulls, twist=len(multipliers) == 2)
        return {self.frame: force}, stiffness

    def weights(self) -> dict[str, jax.Array]:
        return pose_weights(self)

    def tolerances(self) -> dict[str, jax.Array]:
        return pose_tolerances(self)
