"""Move with little kinetic energy: heavy parts less than light ones."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.pytree import cast, leaf, pytree, set_fields, static
from jaxik.kinematics.dynamics import mass_matrix
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.objective import Objective
from jaxik.tasks.velocity import VelocityTask


@pytree
class KineticEnergyTask(VelocityTask):
    """Keep the kinetic energy of a step small: its objective is `cost` times 1/2 v' M(q) v [J] with v = dq / dt.

    The cost enters once, as mink has it, not squared as other costs do. Free joints count: they carry the robot.

    Args:
      cost: (*batch,) [1/J].
      priority: 0 is highest; static.

    Raises:
      JaxikError: for a wrong type or a negative cost.
    """

    cost: Any = leaf(0, default=1.0)
    priority: int = static(default=0)

    def __post_init__(self) -> None:
        arguments.priority(self.priority)
        set_fields(self, cost=validation.number("cost", self.cost))

    @property
    def subtrees(self) -> tuple[int | str, ...]:
        return (0,)  # every body, and so every joint

    def weights(self) -> jax.Array:
        return jnp.sqrt(self.cost)

    def rows(self, robot: Robot, kin: Kinematics, motion: Motion) -> tuple[jax.Array, jax.Array]:
        """A with A' A = M / dt^2, and zeros; not finite for joints that move no mass."""
        factor = jnp.linalg.cholesky(mass_matrix(robot, kin))
        return factor.T / motion.dt, jnp.zeros(robot.nv, kin.q.dtype)

    def objective(self, robot: Robot, kin: Kinematics, motion: Motion) -> Objective:
        """H = cost M / dt^2 and c = 0, without the factor of M."""
        dtype = kin.q.dtype
        with jax.default_matmul_precision("highest"):
            mass = mass_matrix(robot.astype(dtype), kin)
        scale = cast(self.cost / motion.dt**2, dtype)
        return Objective(scale * mass, jnp.zeros(robot.nv, dtype))
