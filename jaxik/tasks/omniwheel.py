"""Let an omniwheel stand on a floor and roll on it; along its axle it may slide."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.numerics.constants import unit_matrix
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task, add_joint_rows
from jaxik.tasks.rolling import WORLD_FRAME, contact_slopes, height, held_height, set_wheel_fields, wheel_gap


@pytree
class OmniwheelTask(Task):
    """Keep a wheel's hub at its radius above the floor, and the point of contact from slipping in one direction.

    As `RollingTask`, with two rows: `[0, z_hub - radius]`. The direction is the floor's x, or, with an `axle`, the one
    in which the wheel rolls, square to axle and normal, which turns with the robot.

    Args:
      hub, radius, floor, gain, lm_damping, tolerance, priority: as of `RollingTask`.
      cost: weight of the rows, (*batch, 2) or a number; (*batch, 1) for a batch of isotropic costs.
      axle: direction of the axle in the hub's axes (*batch, 3), of any length; None: the wheel rolls along the floor's
        x at all times.

    Raises:
      JaxikError: for a wrong type or shape, a radius that is not positive or a negative cost.
    """

    hub: Frame = static()
    radius: Any = leaf(0)
    floor: Frame = static(default=WORLD_FRAME)
    cost: Any = leaf(1, default=1.0)
    gain: Any = leaf(0, default=1.0)
    lm_damping: Any = leaf(0, default=0.0)
    tolerance: Any = leaf(0, default=1e-4)
    priority: int = static(default=0)
    axle: Any = leaf(1, default=None)
    unit = "m"
    target_field = ("radius", "radius", "m")

    def __post_init__(self) -> None:
        set_wheel_fields(self, 2)
        if self.axle is not None:
            set_fields(self, axle=arguments.direction("axle", self.axle))

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, hub: Frame | str, floor: Frame | str = WORLD_FRAME, **options: Any
    ) -> "OmniwheelTask":
        """The task of a wheel that touches the floor at `q` (*batch, nq), which gives its radius."""
        return cls(robot.frame(hub), height(robot, q, hub, floor), robot.frame(floor), **options)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.hub, self.floor)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        gap = wheel_gap(kin, self.hub, self.floor, self.radius)
        return jnp.stack([jnp.zeros_like(gap), gap])

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, jax.Array]:
        return held_height(self._rolling_slopes(kin))

    def step_jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return add_joint_rows(kin, self._rolling_slopes(kin), jnp.zeros((2, kin.nv), kin.q.dtype))

    def _rolling_slopes(self, kin: Kinematics) -> dict[Frame, jax.Array]:
        slopes, up = contact_slopes(kin, self.hub, self.floor, self.radius), jnp.asarray([0, 0, 1], kin.q.dtype)
        rows = jnp.stack([self._rolls_along(kin), up])
        return {frame: rows @ slope for frame, slope in slopes.items()}

    def _rolls_along(self, kin: Kinematics) -> jax.Array:
        """The direction (3,) of rolling in the floor's axes; a wheel that lies flat is taken to roll along x."""
        if self.axle is None:
            return jnp.asarray([1, 0, 0], kin.q.dtype)
        axle = kin.transform(self.floor).rotation.T @ (kin.transform(self.hub).rotation @ lie.normalized(self.axle))
        return lie.normalized(jnp.stack([axle[1], -axle[0]])) @ unit_matrix(2, 3, dtype=axle.dtype)
