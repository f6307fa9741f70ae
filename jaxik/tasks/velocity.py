"""Velocity tasks: what is wanted of the motion of one step, rather than of a configuration."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, set_fields
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.manifold_derivatives import free_rates
from jaxik.kinematics.motion import Motion
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.objective import Objective
from jaxik.tasks.weights import row_weights


class VelocityTask:
    """Something wanted of the displacement dq (nv,) of one step, written for one element: `A dq = b`.

    A velocity task is a frozen pytree like a `Task`, and acts in differential IK only: a configuration to be solved for
    has no velocity. A new one needs `rows`.

    Attributes:
      frames, subtrees: what `rows` looks at, static, as of `Task`.
      priority: static; 0 is highest.
      cost: weight of the rows; the objective is 1/2 |cost * (A dq - b)|^2.
    """

    priority: int = 0
    cost: Any = 1.0

    @property
    def frames(self) -> tuple[Frame, ...]:
        return ()

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        """The frames that it reads on a robot: `frames`, where these do not depend on the robot."""
        return self.frames

    @property
    def subtrees(self) -> tuple[int | str, ...]:
        return ()

    def check(self, robot: Robot) -> None:
        """Say on the host what of the task does not fit `robot`; extend it with `super().check`.

        Raises:
          JaxikError: for a frame of another robot, or a cost of a wrong shape.
        """
        for frame in self.frames:
            robot.frame(frame)

    def rows(self, robot: Robot, kin: Kinematics, motion: Motion) -> tuple[jax.Array, jax.Array]:
        """A (m, nv) and b (m,) without costs, at an evaluated configuration."""
        raise TypeError(f"{type(self).__name__} has to define rows(robot, kin, motion)")

    def weights(self) -> Any:
        """Cost of each row: a number, or (m,)."""
        return self.cost

    def objective(self, robot: Robot, kin: Kinematics, motion: Motion) -> Objective:
        """What the task adds to one step: H = A' W^2 A and c = -A' W^2 b, with W the costs on a diagonal."""
        robot, task, motion = robot.astype(kin.q.dtype), cast(self, kin.q.dtype), cast(motion, kin.q.dtype)
        with jax.default_matmul_precision("highest"):
            matrix, wanted = task.rows(robot, kin, motion)
            weights = row_weights(task, wanted)
            matrix, wanted = weights[:, None] * matrix, weights * wanted
            return Objective(matrix.T @ matrix, -(matrix.T @ wanted))


def set_velocity_fields(task: Any) -> None:
    """Check and set what the tasks on each degree of freedom have: cost, free_joints and priority."""
    arguments.priority(task.priority)
    if not isinstance(task.free_joints, bool):
        raise JaxikError(f"free_joints is True or False, not {task.free_joints!r}")
    set_fields(task, cost=validation.of_rows("cost", task.cost))


def check_degrees_of_freedom(name: str, value: Any, robot: Robot, isotropic: bool = False) -> None:
    """Raise a JaxikError if an array is not one over the robot's degrees of freedom."""
    shape = np.shape(value)
    if isotropic and (not shape or shape[-1] == 1):
        return
    if shape[-1:] != (robot.nv,):
        more = ", a number, or (*batch, 1)" if isotropic else ""
        raise JaxikError(f"{name} has shape (*batch, nv) with nv = {robot.nv}{more}; not {shape}")


def own_rates(robot: Robot, dtype: Any, free_joints: bool) -> jax.Array:
    """The identity (nv, nv), with zeros for free joints unless they count."""
    counts = np.ones(robot.nv)
    if not free_joints:
        counts[free_rates(robot.topology)] = 0
    return jnp.diag(jnp.asarray(counts, dtype))
