"""Bring a frame to a target pose, position or orientation."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik import lie
from jaxik.errors import JaxikError
from jaxik.kinematics import Kinematics
from jaxik.lie import Transform
from jaxik.pytree import leaf, pytree, set_fields, static
from jaxik.robot.model import Robot
from jaxik.robot.topology import Frame
from jaxik.tasks.base import Task
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
      target: pose in the world, `jaxlie.SE3` with batch axes (*batch,); or a position (*batch, 3) [m] where
        `orientation_cost` is None.
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

    def __post_init__(self) -> None:
        if not isinstance(self.frame, Frame):
            raise JaxikError(f"frame is a Frame, from robot.frame(name); not {self.frame!r}")
        if self.axes not in AXES:
            raise JaxikError(f"axes is one of {', '.join(AXES)}, not {self.axes!r}")
        if not isinstance(self.priority, int):
            raise JaxikError(f"priority is an int, 0 the highest, not {self.priority!r}")
        if self.position_cost is None and self.orientation_cost is None:
            raise JaxikError("position_cost and orientation_cost are both None: the task has no rows")
        set_fields(
            self,
            target=_pose(self.target, self.orientation_cost is None),
            position_cost=_cost("position_cost", self.position_cost),
            orientation_cost=_cost("orientation_cost", self.orientation_cost),
            gain=_number("gain", self.gain),
            lm_damping=_number("lm_damping", self.lm_damping),
            position_tolerance=_number("position_tolerance", self.position_tolerance),
            orientation_tolerance=_number("orientation_tolerance", self.orientation_tolerance),
            mask=_mask(self.mask),
        )

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def residual(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        if self.axes == "frame" and self.position_cost is not None and self.orientation_cost is not None:
            twist = lie.log_pose(_seen_from(kin.transform(self.frame), self.target))
            return {"position": twist[:3], "orientation": twist[3:]}
        return self.error(robot, kin)

    def error(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        """Position (3,) [m], a Euclidean difference, and orientation (3,) [rad], a rotation vector, in the axes."""
        pose = kin.transform(self.frame)
        seen = _seen_from(pose, self.target)
        out = {}
        if self.position_cost is not None:
            out["position"] = {
                "frame": seen.position,
                "target": seen.rotation.T @ seen.position,
                "world": self.target.wxyz_xyz[4:] - pose.position,
            }[self.axes]
        if self.orientation_cost is not None:
            # A rotation leaves its own axis where it is: the vector is the same in the frame and in the target.
            turn = lie.log_rotation(seen.rotation)
            out["orientation"] = pose.rotation @ turn if self.axes == "world" else turn
        return out

    def jacobian(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        """The analytic derivative; that of the twist is derived in `lie.log_pose_derivative`."""
        linear, angular = kin.jacobian_world_aligned(self.frame)
        return {
            name: on_angular @ angular if on_linear is None else on_linear @ linear + on_angular @ angular
            for name, (on_linear, on_angular) in self._slopes(kin).items()
        }

    def slopes(self, robot: Robot, kin: Kinematics) -> dict[Frame, dict[str, jax.Array]]:
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
        seen = _seen_from(pose, self.target)
        back = pose.rotation.T
        if self.axes == "frame" and self.position_cost is not None and self.orientation_cost is not None:
            _, a, b = lie.log_pose_derivative(seen)
            a_back = a @ back
            return {"position": (-a_back, b @ back), "orientation": (None, -a_back)}
        out: dict[str, tuple[jax.Array | None, jax.Array]] = {}
        if self.position_cost is not None:
            if self.axes == "frame":
                out["position"] = (-back, lie.skew(seen.position) @ back)
            else:
                goal_back = seen.rotation.T @ back
                out["position"] = (-goal_back if self.axes == "target" else -jnp.eye(3, dtype=back.dtype), 0 * back)
        if self.orientation_cost is not None:
            turn, a = lie.log_rotation_derivative(seen.rotation)
            if self.axes == "world":
                out["orientation"] = (None, -(pose.rotation @ (lie.skew(turn) + a) @ back))
            else:
                out["orientation"] = (None, -(a @ back))
        return out

    def curvature(
        self, robot: Robot, kin: Kinematics, weights: dict[str, jax.Array]
    ) -> tuple[dict[Frame, jax.Array], jax.Array]:
        if self.axes != "frame":
            return super().curvature(robot, kin, weights)
        pose = kin.transform(self.frame)
        none = jnp.zeros(3, kin.q.dtype)
        force, stiffness = pose_curvature(
            _seen_from(pose, self.target),
            weights.get("position", none),
            weights.get("orientation", none),
            twist=len(weights) == 2,
        )
        zero = jnp.zeros((3, 3), kin.q.dtype)
        turn = jnp.concatenate(
            [jnp.concatenate([pose.rotation, zero], axis=1), jnp.concatenate([zero, pose.rotation], axis=1)]
        )
        return {self.frame: turn @ force}, turn @ stiffness @ turn.T

    def weights(self) -> dict[str, jax.Array]:
        costs = {"position": self.position_cost, "orientation": self.orientation_cost}
        rows = {"position": slice(0, 3), "orientation": slice(3, 6)}
        return {
            name: jnp.broadcast_to(cost, (3,)) * (1.0 if self.mask is None else self.mask[rows[name]])
            for name, cost in costs.items()
            if cost is not None
        }

    def tolerances(self) -> dict[str, jax.Array]:
        tolerances = {"position": self.position_tolerance, "orientation": self.orientation_tolerance}
        costs = {"position": self.position_cost, "orientation": self.orientation_cost}
        return {name: value for name, value in tolerances.items() if costs[name] is not None}


def _seen_from(pose: Transform, target: jaxlie.SE3) -> Transform:
    """The target in the frame's axes."""
    goal = Transform.from_se3(target)
    back = pose.rotation.T
    return Transform(back @ goal.rotation, back @ (goal.position - pose.position))


def _pose(target: Any, position_only: bool) -> jaxlie.SE3:
    if isinstance(target, jaxlie.SE3):
        if np.shape(target.wxyz_xyz)[-1:] != (7,):
            raise JaxikError(f"target holds wxyz and xyz, (*batch, 7), not {np.shape(target.wxyz_xyz)}")
        return target
    if position_only and hasattr(target, "__len__") and np.shape(target)[-1:] == (3,):
        position = jnp.asarray(target, jnp.result_type(float, jnp.asarray(target).dtype))
        identity = jnp.broadcast_to(jnp.asarray([1, 0, 0, 0], position.dtype), (*position.shape[:-1], 4))
        return jaxlie.SE3(jnp.concatenate([identity, position], axis=-1))
    given = f"an array of shape {np.shape(target)}" if hasattr(target, "shape") else type(target).__name__
    raise JaxikError(
        f"target is a jaxlie.SE3, or a position (*batch, 3) where orientation_cost=None; not {given}. "
        "From arrays: jaxlie.SE3(jnp.concatenate([wxyz, xyz], axis=-1)), or jaxlie.SE3.from_rotation(...)"
    )


def _cost(name: str, cost: Any) -> Any:
    if cost is None:
        return None
    cost = _array(name, cost)
    if cost.ndim and cost.shape[-1] not in (1, 3):
        raise JaxikError(f"{name} is a number, (*batch, 3), or (*batch, 1) for isotropic costs; not {cost.shape}")
    _nonnegative(name, cost)
    return cost


def _number(name: str, value: Any) -> jax.Array:
    value = _array(name, value)
    _nonnegative(name, value)
    return value


def _mask(mask: Any) -> Any:
    if mask is None:
        return None
    mask = _number("mask", mask)
    if mask.shape[-1:] != (6,):
        raise JaxikError(f"mask has shape (*batch, 6), linear rows first; not {mask.shape}")
    if not isinstance(mask, Tracer) and (np.asarray(mask) > 1).any():
        raise JaxikError(f"mask is bool or weights in [0, 1], not {np.asarray(mask)!r}")
    return mask


def _array(name: str, value: Any) -> jax.Array:
    try:
        value = jnp.asarray(value)
    except (TypeError, ValueError):
        raise JaxikError(f"{name} is a number or an array of numbers, not {value!r}") from None
    # A number becomes an array of a type of its own: 1.0, 2 and an array in its place are one program.
    return jnp.asarray(value, value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else float)


def _nonnegative(name: str, value: jax.Array) -> None:
    if not isinstance(value, Tracer) and not (np.asarray(value) >= 0).all():
        raise JaxikError(f"{name} must not be negative or NaN: {np.asarray(value)!r}")
