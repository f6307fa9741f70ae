"""Keep two frames a distance apart."""

from typing import Any

import jax

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Limit, Rows, share, share_of_step
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task
from jaxik.tasks.frame_distance import FrameDistance


@pytree
class DistanceLimit(Limit):
    """Keep the origins of two frames a distance apart, as if each were in a sphere: `|p - p'| >= distance`.

    One step of differential IK has the row `-n' (J_p' - J_p) dq <= gain * (|p - p'| - distance)`, n the direction from
    p to p'. Shapes instead of points are what `CollisionLimit` is for.

    Args:
      first, second: the frames, from `robot.frame(name)`; one may be the world's.
      distance: (*batch,) [m].
      gain: the share of what is left that one step may use (*batch,).
      rate: [1/s] (*batch,) instead of `gain`: the share is then 1 - exp(-rate dt), and motion the same at any dt.

    Raises:
      JaxikError: for a wrong type, a negative distance, a gain outside (0, 1], a rate that is not above zero, and one
        frame twice; in `Problem`, for a frame of another robot.
    """

    first: Frame = static()
    second: Frame = static()
    distance: Any = leaf(0)
    gain: Any = leaf(0, default=0.95)
    rate: Any = leaf(0, default=None)

    def __post_init__(self) -> None:
        arguments.frame("first", self.first)
        arguments.frame("second", self.second)
        if self.first == self.second:
            raise JaxikError(f"first and second are both {self.first.name or self.first!r}: nothing is between them")
        set_fields(
            self,
            distance=validation.number("distance", self.distance),
            gain=share(self.gain),
            rate=None if self.rate is None else validation.positive("rate", self.rate),
        )

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.first, self.second

    @property
    def task(self) -> FrameDistance:
        """What is left of the distance, with its Jacobian and curvature."""
        return FrameDistance(self.first, self.second, self.distance)

    def inequality_tasks(self) -> tuple[Task, ...]:
        return (self.task,)

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion) -> Rows:
        left: jax.Array = share_of_step(self.gain, self.rate, motion) * self.task.residual(robot, kin)
        return -self.task.jacobian(robot, kin)[None], left[None]
