"""Keep a frame on one side of a plane."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Limit, Rows, share, share_of_step, times
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task
from jaxik.tasks.plane_distance import SignedDistance


@pytree
class PositionLimit(Limit):
    """Keep a frame's origin p in the half space `n . p <= offset`.

    One step of differential IK has the row `n' J_p dq <= gain * (offset - n . p)`.

    Args:
      frame: the frame, from `robot.frame(name)`.
      normal: n (*batch, 3), in world axes, pointing out of the half space; its length does not matter.
      offset: distance (*batch,) [m] of the plane from the world's origin along the normal; infinite for none.
      gain: the share of the distance to the plane that one step may use (*batch,).
      rate: [1/s] (*batch,) instead of `gain`: the share is then 1 - exp(-rate dt), and motion the same at any dt.

    Raises:
      JaxikError: for a wrong type or shape, a zero normal, an offset that is NaN, a gain outside (0, 1] or a rate
        that is not above zero; in `Problem`, for a frame of another robot.
    """

    frame: Frame = static()
    normal: Any = leaf(1)
    offset: Any = leaf(0)
    gain: Any = leaf(0, default=0.95)
    rate: Any = leaf(0, default=None)

    def __post_init__(self) -> None:
        arguments.frame("frame", self.frame)
        offset = validation.array("offset", self.offset)
        if not isinstance(offset, Tracer) and np.isnan(offset).any():
            raise JaxikError(f"offset is a distance [m] along the normal, not {self.offset}")
        set_fields(
            self,
            normal=arguments.direction("normal", self.normal),
            offset=offset,
            gain=share(self.gain),
            rate=None if self.rate is None else validation.positive("rate", self.rate),
        )

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    @property
    def task(self) -> SignedDistance:
        """The distance with its Jacobian and curvature."""
        return SignedDistance(self.frame, self.normal, self.offset)

    def inequality_tasks(self) -> tuple[Task, ...]:
        return (self.task,)

    def distance(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """Distance () [m] of the frame from the plane, negative outside the half space."""
        return jnp.where(self.offset == jnp.inf, jnp.inf, self.task.residual(robot, kin))

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion) -> Rows:
        distance = self.distance(robot, kin)
        part = share_of_step(self.gain, self.rate, motion)
        return -self.task.jacobian(robot, kin)[None], times(part, distance)[None]
