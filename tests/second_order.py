"""The objective of one task to second order, put together from its parts."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import Formulation, evaluate, quadratic_model, rows
from jaxik.tasks.base import Task


def second_order(task: Task, robot: Robot, kin: Kinematics, weights: Any) -> tuple[jax.Array, jax.Array]:
    """Gradient (nv,) and Hessian (nv, nv) of 1/2 |weights * residual|^2 along `integrate`."""
    residual = task.residual(robot, kin)
    pull = jax.tree.map(lambda w, r: w * w * r, weights, residual)
    parts = zip(*map(jax.tree.leaves, (weights, residual, task.jacobian(robot, kin))), strict=True)
    blocks = [(jnp.ravel(w * r), (w[..., None] * j).reshape(-1, robot.nv)) for w, r, j in parts]
    rows = jnp.concatenate([j for _, j in blocks])
    gradient = jnp.concatenate([r for r, _ in blocks]) @ rows
    return gradient, rows.T @ rows + task.second_derivative(robot, kin, pull)


def level_hessian(prepared: Formulation, q: jax.Array) -> jax.Array:
    """The Hessian (nv, nv) of the highest level of a problem at a configuration (nq,)."""
    kin, level = evaluate(prepared, q), prepared.levels[0]
    return quadratic_model(prepared, kin, rows(prepared, kin, level), level).hessian
