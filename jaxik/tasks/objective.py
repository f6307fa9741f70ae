"""The quadratic that a task adds to one differential-IK step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.tasks.rows import row_weights, weighted_rows

if TYPE_CHECKING:
    from jaxik.kinematics import Kinematics
    from jaxik.robot.model import Robot
    from jaxik.tasks.base import Task
    from jaxik.tasks.velocity import Motion, VelocityTask


class Objective(NamedTuple):
    """1/2 x' H x + c' x over the displacement x (nv,) of one step, up to a constant.

    Attributes:
      H (nv, nv): symmetric, positive semidefinite.
      c (nv,).
    """

    H: jax.Array
    c: jax.Array

    def value(self, x: Any) -> jax.Array:
        """1/2 x' H x + c' x at a displacement (nv,)."""
        x = jnp.asarray(x, self.c.dtype)
        return x @ self.H @ x / 2 + self.c @ x


def task_objective(task: Task, robot: Robot, kin: Kinematics) -> Objective:
    """See `Task.objective`."""
    robot, task = robot.astype(kin.q.dtype), cast(task, kin.q.dtype)
    with jax.default_matmul_precision("highest"):
        residual, jacobian = weighted_rows(task, task.residual(robot, kin), task.step_jacobian(robot, kin))
        wanted = -task.gain * residual
        damping = task.lm_damping * (wanted @ wanted)
        return Objective(
            jacobian.T @ jacobian + damping * jnp.eye(kin.nv, dtype=kin.q.dtype),
            -(jacobian.T @ wanted),
        )


def velocity_objective(task: VelocityTask, robot: Robot, kin: Kinematics, motion: Motion) -> Objective:
    """See `VelocityTask.objective`."""
    robot, task, motion = robot.astype(kin.q.dtype), cast(task, kin.q.dtype), cast(motion, kin.q.dtype)
    with jax.default_matmul_precision("highest"):
        matrix, wanted = task.rows(robot, kin, motion)
        weights = row_weights(task, wanted)
        matrix, wanted = weights[:, None] * matrix, weights * wanted
        return Objective(matrix.T @ matrix, -(matrix.T @ wanted))


def cast(tree: Any, dtype: Any) -> Any:
    """Every floating leaf in one dtype."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x, tree)
