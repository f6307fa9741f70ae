"""A problem to first order at one configuration: the quadratic program of one differential-IK step, and what it is of.

Costs enter squared and gains once, as mink and pink have them: with W the costs on a diagonal, a task with residual e
and Jacobian J adds |W (J x + gain e)|^2 / 2 to the objective over the displacement x, and lm_damping |W gain e|^2 to
the damping.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.motion import Motion
from jaxik.kinematics.reduced import movable
from jaxik.limits.base import noise, without_noise
from jaxik.limits.combine import merged_bounds, merged_rows
from jaxik.problem.problem import Level, Problem, constants_of, constraints_of, levels, limits_of
from jaxik.solvers.differential.limit_recovery import recovery_scale_of
from jaxik.tasks.base import Task
from jaxik.tasks.grouping import map_tasks
from jaxik.tasks.objective import Objective
from jaxik.tasks.velocity import VelocityTask
from jaxik.tasks.weights import row_weights, weighted_rows


class WeightedRows(NamedTuple):
    """What the tasks of a level want of a displacement x: `matrix @ x = right`, weighted with the costs.

    Attributes:
      matrix (m, nv), right (m,).
    """

    matrix: jax.Array
    right: jax.Array


@pytree
class Linearization:
    """The quadratic program of one step: over the displacement x = velocity * dt (nv,), with batch axes in front.

    Minimise x'Hx/2 + c'x subject to lower <= x <= upper, G x <= h and A x = b.

    Attributes:
      objectives: H (*batch, nv, nv) and c (*batch, nv) of each priority, the highest first, with damping.
      wanted: the weighted rows that each priority is made of.
      lower, upper (*batch, nv): what limits and `dof_mask` leave to each degree of freedom.
      G (*batch, k, nv), h (*batch, k): rows of limits; None without.
      A (*batch, p, nv), b (*batch, p): constraints; None without.
      share (*batch,): how much of the way back lower, upper and h demand, where a start is outside limits that it
        cannot return into all at once; else 1.
      residuals: task to its residual, and constraint to what of it is held, without cost and gain; velocity tasks to
        A x - b at x = 0.
      jacobians: the same to its Jacobian, with one more axis nv.
      errors: task or constraint to what it reports, as in a `Solution`.
    """

    objectives: tuple[Objective, ...] = leaf()
    weighted_rows: tuple[WeightedRows, ...] = leaf()
    lower: jax.Array = leaf(1)
    upper: jax.Array = leaf(1)
    G: jax.Array | None = leaf(2)
    h: jax.Array | None = leaf(1)
    A: jax.Array | None = leaf(2)
    b: jax.Array | None = leaf(1)
    recovery_scale: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    jacobians: dict[str, Any] = leaf()
    errors: dict[str, Any] = leaf()

    @property
    def H(self) -> jax.Array:  # noqa: N802
        """Of the highest priority (*batch, nv, nv)."""
        return self.objectives[0].H

    @property
    def c(self) -> jax.Array:
        """Of the highest priority (*batch, nv)."""
        return self.objectives[0].c

    def inequalities(self) -> tuple[jax.Array, jax.Array]:
        """All limits as rows G (*batch, 2 nv + k, nv) and h: upper bounds, lower bounds, rows; h is inf for none."""
        eye = jnp.broadcast_to(jnp.eye(self.lower.shape[-1], dtype=self.c.dtype), self.H.shape)
        matrix, right = [eye, -eye], [self.upper, -self.lower]
        if self.G is not None and self.h is not None:
            matrix, right = [*matrix, self.G], [*right, self.h]
        return jnp.concatenate(matrix, axis=-2), jnp.concatenate(right, axis=-1)


class _Evaluated(NamedTuple):
    """A task at one configuration."""

    residual: Any
    jacobian: Any
    error: Any


def linearized(problem: Problem, q: jax.Array, motion: Motion, damping: jax.Array) -> Linearization:
    """Evaluate everything at one configuration (nq,), all of it from one forward kinematics."""
    robot, constraints, limits = problem.robot, constraints_of(problem, couplings=True), limits_of(problem)
    asking = (*problem.tasks.values(), *constraints.values(), *limits)
    kin = forward(constants_of(robot, asking), q)
    tasks = {name: task for name, task in problem.tasks.items() if isinstance(task, Task)}
    seen = _evaluate(problem, tasks, kin)
    held = _evaluate(problem, constraints, kin, held=True)
    rows = {name: _pull(task, seen[name]) for name, task in tasks.items()}
    for name, task in problem.tasks.items():
        if isinstance(task, VelocityTask):
            matrix, right = task.rows(robot, kin, motion)
            seen[name] = _Evaluated(-right, matrix, None)
            weights = row_weights(task, right)
            rows[name] = WeightedRows(weights[:, None] * matrix, weights * right)
    lower, upper = merged_bounds(limits, robot, kin, motion)
    if problem.dof_mask is not None:
        moves = movable(robot.topology, problem.dof_mask)
        lower, upper = jnp.where(moves, lower, 0), jnp.where(moves, upper, 0)
    limit_rows = merged_rows(limits, robot, kin, motion, (lower, upper))
    held_rows = _held(constraints, held) if constraints else None
    recovery_scale = recovery_scale_of((lower, upper), limit_rows, held_rows)
    lower, upper = (
        jnp.where(lower > 0, recovery_scale * lower, lower),
        jnp.where(upper < 0, recovery_scale * upper, upper),
    )
    if limit_rows is not None:
        limit_rows = limit_rows[0], jnp.where(limit_rows[1] < 0, recovery_scale * limit_rows[1], limit_rows[1])
    matrix, right = (None, None) if held_rows is None else held_rows
    together = held | seen
    return Linearization(
        objectives=tuple(_objective(problem, level, rows, kin, motion, damping) for level in levels(problem)),
        weighted_rows=tuple(_stacked([rows[name] for name in level]) for level in levels(problem)),
        lower=lower,
        upper=upper,
        G=None if limit_rows is None else limit_rows[0],
        h=None if limit_rows is None else limit_rows[1],
        A=matrix,
        b=right,
        recovery_scale=recovery_scale,
        residuals={name: value.residual for name, value in together.items()},
        jacobians={name: value.jacobian for name, value in together.items()},
        errors={name: value.error for name, value in together.items() if value.error is not None},
    )


def _evaluate(problem: Problem, tasks: dict[str, Task], kin: Kinematics, held: bool = False) -> dict[str, _Evaluated]:
    robot = problem.robot

    def look(task: Task, kin: Kinematics) -> _Evaluated:
        seen = task.constraint_rows(robot, kin) if held else (task.residual(robot, kin), task.step_jacobian(robot, kin))
        return _Evaluated(*seen, task.report(robot, kin))

    return map_tasks(look, tasks, kin)


def _pull(task: Task, seen: _Evaluated) -> WeightedRows:
    """W J x = -gain W e."""
    residual, matrix = weighted_rows(task, seen.residual, seen.jacobian)
    return WeightedRows(matrix, -task.gain * residual)


def _stacked(rows: list[WeightedRows]) -> WeightedRows:
    return WeightedRows(*(jnp.concatenate(x) for x in zip(*rows, strict=True)))


def _objective(
    problem: Problem, level: Level, rows: dict[str, WeightedRows], kin: Kinematics, motion: Motion, damping: jax.Array
) -> Objective:
    """Of all tasks of a level: one product of all their rows, and what tasks say of their own."""
    own, stacked = [], []
    for name in level:
        task = problem.tasks[name]
        if isinstance(task, Task):
            if type(task).objective is not Task.objective:
                own.append(task.objective(problem.robot, kin))
                continue
            damping = damping + task.lm_damping * jnp.sum(rows[name].right ** 2)
        elif type(task).objective is not VelocityTask.objective:
            own.append(task.objective(problem.robot, kin, motion))
            continue
        stacked.append(rows[name])
    total = Objective(damping * jnp.eye(kin.nv, dtype=kin.q.dtype), jnp.zeros(kin.nv, kin.q.dtype))
    if stacked:
        matrix, right = _stacked(stacked)
        total = Objective(total.H + matrix.T @ matrix, total.c - right @ matrix)
    for objective in own:
        total = Objective(total.H + objective.H, total.c + objective.c)
    return total


def _held(constraints: dict[str, Task], held: dict[str, _Evaluated]) -> tuple[jax.Array, jax.Array]:
    """A and b of the constraints: J x = -gain e, where their costs leave rows; rows without are zero."""
    matrices, rights = [], []
    for name, task in constraints.items():
        weights = row_weights(task, held[name].residual)
        for w, r, j in zip(*map(jax.tree.leaves, (weights, held[name].residual, held[name].jacobian)), strict=True):
            asked = w != 0
            matrices.append(jnp.where(asked[..., None], j, 0).reshape(-1, j.shape[-1]))
            rights.append(jnp.ravel(jnp.where(asked, -task.gain * r, 0)))
    rows, right = jnp.concatenate(matrices), jnp.concatenate(rights)
    matrix = without_noise(rows)
    # A row of zeros that asks for the rounding of zero would contradict itself.
    idle = jnp.all(matrix == 0, axis=-1) & (jnp.abs(right) <= noise(rows))
    return matrix, jnp.where(idle, 0, right)
