"""Point an axis of a frame in a direction: up, along a surface normal."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task


@pytree
class AxisAlignTask(Task):
    """Point `axis` of `frame` in the direction `target`, whatever the roll about the axis.

    The residual is `a - R' t` (3,), with a the unit axis and t the unit direction, in the frame's axes: two rows' worth
    of directions, of length 2 sin(angle / 2). Its gradient vanishes where the axis points the opposite way.

    Args:
      frame: the frame, from `robot.frame(name)`.
      target: direction in the world (*batch, 3), of any length.
      axis: in the frame's axes (*batch, 3), of any length.
      cost: (*batch,), the weight of all rows.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,) on the length of the residual, which is the angle [rad] where it is small.
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or shape, a zero direction or a negative cost.
    """

    frames_batchable = True
    frame: Frame = static()
    target: Any = leaf(1)
    axis: Any = leaf(1, default=(0.0, 0.0, 1.0))
    cost: Any = leaf(0, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=1e-3)
    priority: int = static(default=0)
    unit = "1"
    target_field = ("target", "direction", "1")

    def __post_init__(self) -> None:
        arguments.frame("frame", self.frame)
        arguments.set_common(self)
        set_fields(
            self,
            target=arguments.direction("target", self.target),
            axis=arguments.direction("axis", self.axis),
            cost=validation.number("cost", self.cost),
        )

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, frame: Frame | str, axis: Any = (0.0, 0.0, 1.0), **options: Any
    ) -> "AxisAlignTask":
        """The task that keeps the axis as the configuration `q` (*batch, nq) has it; `options` as above."""
        frame = robot.frame(frame)
        axis = arguments.direction("axis", axis)
        return cls(frame, robot.frame_pose(q, frame).rotation() @ axis, axis, **options)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return lie.normalized(self.axis) - self._direction(kin)

    def constraint_rows(self, robot: Robot, kin: Kinematics) -> tuple[jax.Array, jax.Array]:
        """Two rows, across the target, along which the target does not change."""
        plane = lie.plane_across(lie.normalized(self.axis), self._direction(kin))
        return plane @ self.residual(robot, kin), plane @ self.jacobian(robot, kin)

    def _direction(self, kin: Kinematics) -> jax.Array:
        """The target in the frame's axes."""
        return kin.transform(self.frame).rotation.T @ lie.normalized(self.target)

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, jax.Array]:
        turned = -kin.transform(self.frame).rotation.T @ lie.skew(lie.normalized(self.target))
        return {self.frame: jnp.concatenate([jnp.zeros_like(turned), turned], axis=1)}
