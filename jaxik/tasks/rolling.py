"""Let a wheel stand on a floor and roll on it without slipping."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics import lie
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task, add_joint_rows

WORLD_FRAME = Frame("body", 0, "world")


@pytree
class RollingTask(Task):
    """Keep a wheel's hub at its radius above the floor, and the point of contact from slipping.

    The residual (3,) is `[0, 0, z_hub - radius]` [m] in the axes of the floor, whose normal is z. The rows of
    `step_jacobian` are the velocity of the wheel's lowest point, `hub - radius * normal`, against the floor. The first
    two are no derivative of a residual, as where a wheel has rolled to depends on its way: differential IK holds them,
    and `solve` does not know them. The wheel's plane is taken as perpendicular to the floor.

    Args:
      hub: frame at the centre of the wheel that turns with it, from `robot.frame(name)`.
      radius: of the wheel (*batch,) [m].
      floor: frame on the floor's surface, z up; it may move; the world's ground plane by default.
      cost: weight of the rows, (*batch, 3) or a number; (*batch, 1) for a batch of isotropic costs.
      gain, lm_damping: (*batch,), of differential IK; `solve` ignores them.
      tolerance: (*batch,) [m] on the height.
      priority: 0 is highest; static.

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
    unit = "m"
    target_field = ("radius", "radius", "m")

    def __post_init__(self) -> None:
        set_wheel_fields(self, 3)

    @classmethod
    def from_configuration(
        cls, robot: Robot, q: Any, hub: Frame | str, floor: Frame | str = WORLD_FRAME, **options: Any
    ) -> "RollingTask":
        """The task of a wheel that touches the floor at `q` (*batch, nq), which gives its radius."""
        return cls(robot.frame(hub), height(robot, q, hub, floor), robot.frame(floor), **options)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.hub, self.floor)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        gap = wheel_gap(kin, self.hub, self.floor, self.radius)
        return jnp.concatenate([jnp.zeros(2, gap.dtype), gap[None]])

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Frame, jax.Array]:
        return held_height(contact_slopes(kin, self.hub, self.floor, self.radius))

    def step_jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        nothing = jnp.zeros((3, kin.nv), kin.q.dtype)
        return add_joint_rows(kin, contact_slopes(kin, self.hub, self.floor, self.radius), nothing)


def set_wheel_fields(task: Any, rows: int) -> None:
    """Check and set the fields of a task that has a hub, a floor, a radius and the given number of rows."""
    arguments.frame("hub", task.hub)
    arguments.frame("floor", task.floor)
    if task.hub == task.floor:
        raise JaxikError(f"hub and floor are both {task.hub.name or task.hub!r}")
    arguments.set_common(task)
    set_fields(task, radius=validation.positive("radius", task.radius), cost=arguments.cost("cost", task.cost, rows))


def height(robot: Robot, q: Any, hub: Frame | str, floor: Frame | str) -> jax.Array:
    """Height (*batch,) [m] of the hub above the floor at configurations `q`."""
    seen = robot.frame_pose(q, floor).inverse() @ robot.frame_pose(q, hub)
    return seen.translation()[..., 2]


def wheel_gap(kin: Kinematics, hub: Frame, floor: Frame, radius: jax.Array) -> jax.Array:
    """Distance () [m] between the wheel's lowest point and the floor."""
    ground = kin.transform(floor)
    return ground.rotation[:, 2] @ (kin.transform(hub).position - ground.position) - radius


def contact_slopes(kin: Kinematics, hub: Frame, floor: Frame, radius: jax.Array) -> dict[Frame, jax.Array]:
    """Velocity (3, 6) of the wheel against the floor, in the floor's axes, at its lowest point, by each one's twist."""
    ground = kin.transform(floor)
    down = -radius * ground.rotation[:, 2]
    arm = kin.transform(hub).position + down - ground.position
    back = ground.rotation.T
    return {
        hub: jnp.concatenate([back, -back @ lie.skew(down)], axis=1),
        floor: jnp.concatenate([-back, back @ lie.skew(arm)], axis=1),
    }


def held_height(slopes: dict[Frame, jax.Array]) -> dict[Frame, jax.Array]:
    """Of the wheel's velocity rows the last, the change of its height, alone."""
    return {frame: jnp.concatenate([jnp.zeros_like(slope[:-1]), slope[-1:]]) for frame, slope in slopes.items()}
