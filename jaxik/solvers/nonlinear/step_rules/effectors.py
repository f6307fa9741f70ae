"""The errors of end effectors among the rows of a residual: positions, rotations, and rows for themselves."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.trees import parts
from jaxik.kinematics.forward import Kinematics
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.formulation import Formulation, Rows, evaluate, task_groups
from jaxik.solvers.options import SolveOptions
from jaxik.tasks.base import Task
from jaxik.tasks.grouping import vmap_group
from jaxik.tasks.weights import row_weights

# The unit of a part of a residual whose rows have units of their own.
MIXED = "rad or m"


def every_row(prepared: Formulation) -> Level:
    """Names of all tasks and constraints: the rows of a step without an acceptance test."""
    return tuple(prepared.problem.tasks)


def effectors(prepared: Formulation, level: Level) -> tuple[np.ndarray, np.ndarray]:
    """Which rows belong to which error.

    Returns:
      One-hot matrix (e, m), and whether an error is in metres (e,). Rows of closures and postures are an error each.
    """
    robot, sizes, metres = prepared.problem.robot, list[int](), list[bool]()

    def look() -> None:
        kin = evaluate(prepared, robot.q_home)
        for task in (task for group in task_groups(prepared, level) for task in group.tasks):
            units = parts(task.unit)
            for name, rows in parts(task.residual(robot, kin)).items():
                unit = units.get(name, units.get("", ""))
                own = [1] * rows.size if unit == MIXED else [rows.size]
                sizes.extend(own)
                metres.extend([unit == "m"] * len(own))

    jax.eval_shape(look)
    return np.repeat(np.eye(len(sizes)), sizes, axis=1), np.array(metres)


def row_costs(prepared: Formulation, kin: Kinematics, level: Level) -> jax.Array:
    """The cost of each row (m,)."""
    robot = prepared.problem.robot

    def of_task(task: Task, kin: Kinematics) -> jax.Array:
        return jnp.concatenate([jnp.ravel(w) for w in jax.tree.leaves(row_weights(task, task.residual(robot, kin)))])

    return jnp.concatenate([jnp.ravel(vmap_group(of_task, group, kin)) for group in task_groups(prepared, level)])


def clamped(prepared: Formulation, rows: Rows, costs: jax.Array, options: SolveOptions, level: Level) -> Rows:
    """Rows with errors no longer than their clamps, times their factors."""
    member, metres = effectors(prepared, level)
    member = jnp.asarray(member, costs.dtype)
    error = jnp.where(costs != 0, rows.residual / jnp.where(costs != 0, costs, 1), 0)
    length = jnp.sqrt(member @ (error * error))
    most = jnp.where(metres, options.translation_error_clamp, options.rotation_error_clamp)
    shorter = jnp.where(length > most, most / jnp.where(length > 0, length, 1), 1)
    factor = jnp.where(metres, options.translation_factor, options.rotation_factor)
    return Rows((factor * shorter) @ member * rows.residual, (factor @ member)[:, None] * rows.jacobian)
