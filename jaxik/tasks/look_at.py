"""Point an axis of a frame at a point."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task

# Nearer than this [m] the point has no direction: what is taken for it shrinks to zero with the distance.
MINIMUM_DISTANCE = 1e-6


@pytree
class LookAtTask(Task):
    """Point `axis` of `frame` at the point `target`, whatever the roll about the axis.

    The residual is `a - d` (3,), with a the unit axis and d the unit vector to the target, in the frame's axes: two
    rows' worth of directions, of length 2 sin(angle / 2). Its derivative vanishes where the target is right behind.
    Within 1e-6 m of the frame's origin d shrinks to zero, so that all stays finite.

    Args:
      frame: the frame, from `robot.frame(name)`.
      target: point in the world (*batch, 3) [m].
      axis: in the frame's axes (*batch, 3), of any length.
      cost: (*batch,), the weight of all rows.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,) on the length of the residual, which is the angle [rad] where it is small.
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or shape, a zero axis or a negative cost.
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
    target_field = ("target", "position", "m")

    def __post_init__(self) -> None:
        arguments.frame("frame", self.frame)
        arguments.set_common(self)
        set_fields(
            self,
            target=validation.vector("target", self.target, 3),
            axis=arguments.direction("axis", self.axis),
            cost=validation.number("cost", self.cost),
        )

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, frame: Frame | str, axis: Any = (0.0, 0.0, 1.0), **options: Any
    ) -> "LookAtTask":
        """The task that keeps looking where the frame looks at `q` (*batch, nq): at a point 1 m along the axis."""
        frame = robot.frame(frame)
        pose = robot.frame_pose(q, frame)
        return cls(frame, pose @ _unit(arguments.direction("axis", axis)), axis, **options)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        direction, _ = self._direction(kin)
        return lie.normalized(self.axis) - direction

    def constraint_rows(self, robot: Robot, kin: Kinematics) -> tuple[jax.Array, jax.Array]:
        """Two rows, across the line of sight, along which the direction does not change."""
        plane = lie.plane_across(lie.normalized(self.axis), self._direction(kin)[0])
        return plane @ self.residual(robot, kin), plane @ self.jacobian(robot, kin)

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, jax.Array]:
        pose = kin.transform(self.frame)
        _, derivative = self._direction(kin)
        along = derivative @ pose.rotation.T
        return {self.frame: jnp.concatenate([along, -along @ lie.skew(self.target - pose.position)], axis=1)}

    def _direction(self, kin: Kinematics) -> tuple[jax.Array, jax.Array]:
        """The unit vector d to the target in the frame's axes, and its derivative (3, 3) by the vector to it."""
        pose = kin.transform(self.frame)
        sight = pose.rotation.T @ (self.target - pose.position)
        square = jnp.sum(sight * sight)
        far = square > MINIMUM_DISTANCE**2
        distance = jnp.sqrt(jnp.where(far, square, MINIMUM_DISTANCE**2))
        d = sight / distance
        return d, (unit_matrix(3, dtype=d.dtype) - jnp.where(far, d[:, None] * d, 0)) / distance


def _unit(axis: jax.Array) -> jax.Array:
    return axis / jnp.linalg.norm(axis, axis=-1, keepdims=True)
