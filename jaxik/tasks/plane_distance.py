"""The signed distance of a frame from a plane."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task


@pytree
class SignedDistance(Task):
    """How far a frame is from a plane: the residual () [m] is `offset - n . p`, negative behind the plane.

    Args:
      frame: the frame.
      normal: of the plane (*batch, 3), in world axes, of any length.
      offset: of the plane along the normal (*batch,) [m].
    """

    frame: Frame = static()
    normal: Any = leaf(1)
    offset: Any = leaf(0)
    unit = "m"

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        reached = lie.normalized(self.normal) @ kin.transform(self.frame).position
        none = self.offset == jnp.inf
        # Where there is no plane it is a metre away, wherever the frame is.
        return jnp.where(none, 1, jnp.where(none, 0, self.offset) - reached)

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, jax.Array]:
        slope = jnp.pad(-lie.normalized(self.normal), (0, 3))
        return {self.frame: jnp.where(self.offset == jnp.inf, 0, slope)}

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: jax.Array
    ) -> tuple[dict[Frame, jax.Array], jax.Array | None]:
        return {self.frame: multipliers * self.partials(robot, kin)[self.frame]}, None
