"""How far the origins of two frames are apart, beyond a distance."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics.vectors import from_array, length_and_direction, to_array, upright
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task


@pytree
class FrameDistance(Task):
    """The residual () [m] is `|p - p'| - distance`, p and p' the origins of two frames.

    Args:
      first, second: the frames.
      distance: (*batch,) [m].
    """

    first: Frame = static()
    second: Frame = static()
    distance: Any = leaf(0)
    unit = "m"

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.first, self.second

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        apart = from_array(kin.transform(self.second).position - kin.transform(self.first).position)
        length, _ = length_and_direction(apart, upright(apart.x))
        return length - self.distance

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, jax.Array]:
        """Where the origins coincide they part along the z axis."""
        apart = from_array(kin.transform(self.second).position - kin.transform(self.first).position)
        _, direction = length_and_direction(apart, upright(apart.x))
        slope = jnp.pad(to_array(direction), (0, 3))
        return {self.first: -slope, self.second: slope}
