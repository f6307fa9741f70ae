"""Rows of a pose: three of position, three of orientation, of which either may not exist. Shared by pose tasks."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import jaxlie

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import set_fields
from jaxik.numerics.lie import MINIMUM_NORM, Transform, quaternion_to_matrix
from jaxik.tasks import arguments
from jaxik.tasks.base import TargetPart

POSE_UNITS = {"position": "m", "orientation": "rad"}


class PoseTask(Protocol):
    """The fields of a pose task."""

    @property
    def target(self) -> jaxlie.SE3: ...
    @property
    def position_cost(self) -> Any: ...
    @property
    def orientation_cost(self) -> Any: ...
    @property
    def position_tolerance(self) -> Any: ...
    @property
    def orientation_tolerance(self) -> Any: ...
    @property
    def mask(self) -> Any: ...


def set_pose_fields(task: PoseTask) -> None:
    """Check and set the fields of a pose task."""
    if task.position_cost is None and task.orientation_cost is None:
        raise JaxikError("position_cost and orientation_cost are both None: the task has no rows")
    costs = {"position_cost": task.position_cost, "orientation_cost": task.orientation_cost}
    set_fields(
        task,
        target=arguments.pose(task.target, task.orientation_cost is None, task.position_cost is None),
        **{name: None if cost is None else arguments.cost(name, cost, 3) for name, cost in costs.items()},
        position_tolerance=validation.number("position_tolerance", task.position_tolerance),
        orientation_tolerance=validation.number("orientation_tolerance", task.orientation_tolerance),
        mask=arguments.mask(task.mask),
    )


def pose_parts(target: jaxlie.SE3) -> tuple[TargetPart, ...]:
    """A target pose as position (*batch, 3) and quaternion (*batch, 4) wxyz."""
    pose = target.wxyz_xyz
    return TargetPart("position", pose[..., 4:], "m", 1), TargetPart("quaternion", pose[..., :4], "1", 1)


def goal_of(task: PoseTask) -> Transform:
    """The target; a zero quaternion, such as a padded row of data has, is no rotation and becomes NaN."""
    quaternion, position = task.target.wxyz_xyz[:4], task.target.wxyz_xyz[4:]
    nowhere = jnp.sum(quaternion * quaternion) < MINIMUM_NORM * MINIMUM_NORM
    return Transform(jnp.where(nowhere, jnp.nan, quaternion_to_matrix(quaternion)), position)


def pose_weights(task: PoseTask) -> dict[str, jax.Array]:
    costs = {"position": task.position_cost, "orientation": task.orientation_cost}
    rows = {"position": slice(0, 3), "orientation": slice(3, 6)}
    return {
        name: jnp.broadcast_to(cost, (3,)) * (1.0 if task.mask is None else task.mask[rows[name]])
        for name, cost in costs.items()
        if cost is not None
    }


def pose_tolerances(task: PoseTask) -> dict[str, jax.Array]:
    tolerances = {"position": task.position_tolerance, "orientation": task.orientation_tolerance}
    costs = {"position": task.position_cost, "orientation": task.orientation_cost}
    return {name: value for name, value in tolerances.items() if costs[name] is not None}


def seen_from(pose: Transform, goal: Transform) -> Transform:
    """The goal in the axes of `pose`."""
    return Transform(*(seen(pose, x) for x in (goal.rotation, goal.position - pose.position)))


def seen(pose: Transform, x: jax.Array) -> jax.Array:
    """What is in world axes (3, ...) in those of `pose`."""
    # Without a transpose, which would be an array of its own.
    return jnp.tensordot(pose.rotation, x, (0, 0))
