"""Linearise a problem at one configuration: the quadratic program of one differential-IK step.

Costs enter squared and gains once, as mink and pink have them: with W the costs on a diagonal, a task with residual e
and Jacobian J adds |W (J x + gain e)|^2 / 2 to the objective over the displacement x, and lm_damping |W gain e|^2 to
the damping.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.motion import Motion
from jaxik.kinematics.reduced import movable
from jaxik.limits.base import ROUNDINGS, noise, without_noise
from jaxik.limits.combine import Choices, merged_bounds, merged_rows
from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.linalg import dependent_rows, product
from jaxik.problem.problem import (
    Level,
    Problem,
    constants_of,
    constraints_of,
    elastic_constraints_of,
    elastic_limits_of,
    levels,
    limits_of,
)
from jaxik.qp_solver import Program
from jaxik.solvers.differential.elastic_rows import rows_that_hold, soft_rows, with_elastic_limits
from jaxik.solvers.differential.limit_recovery import Demands, at_scale, largest_demand, minimise_at_largest_scale
from jaxik.tasks.base import Task
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.grouping import map_tasks
from jaxik.tasks.objective import Objective
from jaxik.tasks.velocity import VelocityTask
from jaxik.tasks.weights import row_weights, weighted_rows

# The gap of a loop, a difference of positions, in roundings: in float32 up to 4, of a robot of 1 m.
CLOSED = 8


class WeightedRows(NamedTuple):
    """The rows of a level for a displacement x, `matrix @ x = right`, weighted with the costs.

    Attributes:
      matrix (m, nv), right (m,).
    """

    matrix: jax.Array
    right: jax.Array


class FactoredObjective(NamedTuple):
    """An objective as |matrix x - right|^2 / 2 of weighted rows, and the rest, damping first of all.

    What its H rounds is as large as what weighs little in it, a millionth, in float32; its gradient in this form is
    rounded by what weighs little alone, near the minimum.
    """

    rows: WeightedRows
    rest: Objective

    def gradient(self, x: jax.Array) -> jax.Array:
        """The gradient (nv,) at a displacement (nv,)."""
        missing = product(self.rows.matrix, x) - self.rows.right
        return product(self.rows.matrix.T, missing) + product(self.rest.H, x) + self.rest.c


@pytree
class Linearization:
    """The quadratic program of one step: over the displacement x = velocity * dt (nv,), with batch axes in front.

    Minimise x'Hx/2 + c'x subject to lower <= x <= upper, G x <= h and A x = b.

    Attributes:
      objectives: H (*batch, nv, nv) and c (*batch, nv) of each priority, the highest first, with damping.
      weighted_rows: the weighted rows of the tasks of each priority.
      factored: the objective of the highest priority as these rows and the rest.
      lower, upper (*batch, nv): bounds of each degree of freedom, from limits and `dof_mask`.
      G (*batch, k, nv), h (*batch, k): rows of limits; None without.
      A (*batch, p, nv), b (*batch, p): constraints; None without.
      row_penalties (*batch, k), equality_penalties (*batch, p): of rows that may yield; infinite for others; None where
        no limit, no constraint is `Elastic`.
      unmet (*batch, p): of what elastic constraints demand, what singularities keep from b: zero away from them; None
        without such.
      elastic_damping (*batch, nv): what is added to the diagonal of each H there; None without such.
      recovery_scale (*batch,): factor on the demands in lower, upper, h and, of the model's own loops and couplings, b:
        below 1 where a start is outside limits, or off these, and cannot return all at once; else 1.
      residuals: by task its residual, and by constraint its rows, without cost and gain; A x - b at x = 0 of velocity
        tasks.
      jacobians: by the same names the Jacobians, with one more axis nv.
      errors: by task or constraint its reported error, as in a `Solution`.
      choices: of each limit which of its rows are in G, `Limit.choice`; empty without rows.
      elastic_rows: of limits that may yield, whose rows are the last of G: name, whether there are bounds, upper ones
        (nv,) first, and the number of rows after these; static.
    """

    objectives: tuple[Objective, ...] = leaf()
    weighted_rows: tuple[WeightedRows, ...] = leaf()
    factored: FactoredObjective = leaf()
    lower: jax.Array = leaf(1)
    upper: jax.Array = leaf(1)
    G: jax.Array | None = leaf(2)
    h: jax.Array | None = leaf(1)
    A: jax.Array | None = leaf(2)
    b: jax.Array | None = leaf(1)
    row_penalties: jax.Array | None = leaf(1)
    equality_penalties: jax.Array | None = leaf(1)
    unmet: jax.Array | None = leaf(1)
    elastic_damping: jax.Array | None = leaf(1)
    recovery_scale: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    jacobians: dict[str, Any] = leaf()
    errors: dict[str, Any] = leaf()
    choices: Choices = leaf(default=())
    elastic_rows: tuple[tuple[str, bool, int], ...] = static(default=())

    @property
    def H(self) -> jax.Array:  # noqa: N802
        """Of the highest priority (*batch, nv, nv)."""
        return self.objectives[0].H

    @property
    def c(self) -> jax.Array:
        """Of the highest priority (*batch, nv)."""
        return self.objectives[0].c

    @property
    def rows_are_elastic_bounds(self) -> bool:
        """Whether all rows of limits are bounds that may yield."""
        count = sum(2 * self.lower.shape[-1] for _, boxed, rows in self.elastic_rows if boxed and not rows)
        return self.h is not None and self.h.shape[-1] == count > 0

    def inequalities(self) -> tuple[jax.Array, jax.Array]:
        """All limits as rows G (*batch, 2 nv + k, nv) and h: upper bounds, lower bounds, rows; h is inf for none."""
        eye = jnp.broadcast_to(unit_matrix(self.lower.shape[-1], dtype=self.c.dtype), self.H.shape)
        matrix, right = [eye, -eye], [self.upper, -self.lower]
        if self.G is not None and self.h is not None:
            matrix, right = [*matrix, self.G], [*right, self.h]
        return jnp.concatenate(matrix, axis=-2), jnp.concatenate(right, axis=-1)


class _Evaluated(NamedTuple):
    """A task at one configuration."""

    residual: Any
    jacobian: Any
    error: Any


def evaluated(problem: Problem, q: jax.Array) -> Kinematics:
    """The kinematics at one configuration (nq,) that tasks, constraints and limits read."""
    readers = (*problem.tasks.values(), *constraints_of(problem, couplings=True).values(), *limits_of(problem))
    readers = (*readers, *elastic_limits_of(problem).values())
    return forward(constants_of(problem.robot, readers), q)


def linearized(
    problem: Problem,
    q: jax.Array,
    motion: Motion,
    damping: jax.Array,
    scale: jax.Array | None = None,
    choices: Choices | None = None,
) -> Linearization:
    """Linearise a problem at one configuration (nq,), at a scale () of all demands; None for the one of `step`.

    Args:
      choices: of each limit which rows it has; None to let it choose.
    """
    model, demands = linearized_with_demands(problem, q, motion, damping, choices)
    if demands is None:
        return model
    if scale is not None:
        return scaled(model, demands, scale)
    program, asked = _without_derivatives(program_of(model), demands)
    largest = lax.cond(
        largest_demand(asked) > 0,
        lambda: minimise_at_largest_scale(program, asked, None, None)[0],
        lambda: jnp.ones((), q.dtype),
    )
    return scaled(model, demands, largest)


def scaled(model: Linearization, demands: Demands, scale: jax.Array) -> Linearization:
    """A linearization with its demands at a scale ()."""
    program = at_scale(program_of(model), demands, scale)
    bounds = {"lower": program.lower, "upper": program.upper, "h": program.h, "b": program.b}
    return dataclasses.replace(model, **bounds, recovery_scale=scale)


def _without_derivatives(program: Program, demands: Demands) -> tuple[Program, Demands]:
    """The same numbers, which derivatives do not look at."""
    (lower, upper), rows, constraints, closing = demands
    if rows is not None:
        rows = jax.lax.stop_gradient(rows._replace(by_depth=None))._replace(by_depth=rows.by_depth)
    program, box, constraints = jax.lax.stop_gradient((program, (lower, upper), constraints))
    return program, Demands(box, rows, constraints, closing)


def linearized_with_demands(
    problem: Problem, q: jax.Array, motion: Motion, damping: jax.Array, choices: Choices | None = None
) -> tuple[Linearization, Demands | None]:
    """Linearise a problem at one configuration (nq,), with one forward kinematics; its demands as they are.

    Returns:
      The linearization, and what in it is demanded and can be scaled; None where all demands are feasible together.
    """
    robot, constraints, limits = problem.robot, constraints_of(problem, couplings=True), limits_of(problem)
    kin = evaluated(problem, q)
    task_values, rows = _evaluate_tasks(problem, kin, motion)
    constraint_values = _evaluate(problem, constraints, kin, as_constraints=True)
    lower, upper = merged_bounds(limits, robot, kin, motion)
    if problem.dof_mask is not None:
        moves = movable(robot.topology, problem.dof_mask)
        lower, upper = jnp.where(moves, lower, 0), jnp.where(moves, upper, 0)
    merged = merged_rows(limits, robot, kin, motion, (lower, upper), choices)
    closing = _closing_rows(problem, constraints, constraint_values)
    constraint_rows = _constraint_rows(problem, constraints, constraint_values, closing) if constraints else None
    factored = [_factored_objective(problem, level, rows, kin, motion, damping) for level in levels(problem)]
    objectives = tuple(map(_multiplied, factored))
    soft = None
    if constraint_rows is not None and elastic_constraints_of(problem):
        residuals = {name: value.residual for name, value in constraint_values.items()}
        soft = soft_rows(problem, constraint_rows, residuals, kin, (lower == 0) & (upper == 0), objectives[0])
        objectives = tuple(Objective(each.H + jnp.diag(soft.damping), each.c) for each in objectives)
        rest = factored[0].rest
        factored[0] = factored[0]._replace(rest=rest._replace(H=rest.H + jnp.diag(soft.damping)))
    limit_rows = None if merged is None else (merged.matrix, merged.right)
    limit_rows, row_penalties, elastic_rows = with_elastic_limits(problem, limit_rows, kin, motion)
    matrix, right = (None, None) if constraint_rows is None else constraint_rows
    if soft is not None and right is not None:
        right = right - soft.unmet
    demands = None
    if merged is not None or len(constraints) > len(elastic_constraints_of(problem)):
        demands = Demands((lower, upper), merged, rows_that_hold(constraint_rows, soft), closing)
    everything = constraint_values | task_values
    model = Linearization(
        objectives=objectives,
        weighted_rows=tuple(_stacked([rows[name] for name in level]) for level in levels(problem)),
        factored=factored[0],
        lower=lower,
        upper=upper,
        G=None if limit_rows is None else limit_rows[0],
        h=None if limit_rows is None else limit_rows[1],
        A=matrix,
        b=right,
        row_penalties=row_penalties,
        equality_penalties=None if soft is None else soft.penalties,
        unmet=None if soft is None else soft.unmet,
        elastic_damping=None if soft is None else soft.damping,
        recovery_scale=jnp.ones((), kin.q.dtype),
        residuals={name: value.residual for name, value in everything.items()},
        jacobians={name: value.jacobian for name, value in everything.items()},
        errors={name: value.error for name, value in everything.items() if value.error is not None},
        choices=() if merged is None else merged.choices,
        elastic_rows=elastic_rows,
    )
    return model, demands


def program_of(model: Linearization) -> Program:
    """The program of the highest level."""
    return Program(
        model.H,
        model.c,
        model.lower,
        model.upper,
        model.G,
        model.h,
        model.A,
        model.b,
        model.row_penalties,
        model.equality_penalties,
    )


def _evaluate_tasks(
    problem: Problem, kin: Kinematics, motion: Motion
) -> tuple[dict[str, _Evaluated], dict[str, WeightedRows]]:
    """All tasks, also of velocities, with their weighted rows."""
    tasks = {name: task for name, task in problem.tasks.items() if isinstance(task, Task)}
    values = _evaluate(problem, tasks, kin)
    rows = {name: _weighted_rows(task, values[name]) for name, task in tasks.items()}
    for name, task in problem.tasks.items():
        if isinstance(task, VelocityTask):
            matrix, right = task.rows(problem.robot, kin, motion)
            values[name] = _Evaluated(-right, matrix, None)
            weights = row_weights(task, right)
            rows[name] = WeightedRows(weights[:, None] * matrix, weights * right)
    return values, rows


def _evaluate(
    problem: Problem, tasks: dict[str, Task], kin: Kinematics, as_constraints: bool = False
) -> dict[str, _Evaluated]:
    robot = problem.robot

    def evaluate(task: Task, kin: Kinematics) -> _Evaluated:
        if as_constraints:
            rows = task.constraint_rows(robot, kin)
        else:
            rows = task.residual(robot, kin), task.step_jacobian(robot, kin)
        return _Evaluated(*rows, task.report(robot, kin))

    return map_tasks(evaluate, tasks, kin)


def _weighted_rows(task: Task, evaluated: _Evaluated) -> WeightedRows:
    """W J x = -gain W e."""
    residual, matrix = weighted_rows(task, evaluated.residual, evaluated.jacobian)
    return WeightedRows(matrix, -task.gain * residual)


def _stacked(rows: list[WeightedRows]) -> WeightedRows:
    return WeightedRows(*(jnp.concatenate(x) for x in zip(*rows, strict=True)))


def _factored_objective(
    problem: Problem, level: Level, rows: dict[str, WeightedRows], kin: Kinematics, motion: Motion, damping: jax.Array
) -> FactoredObjective:
    """The objective of a level: the rows of all its tasks, and beside them damping and what tasks override."""
    overridden, stacked = [], []
    for name in level:
        task = problem.tasks[name]
        if isinstance(task, Task):
            if type(task).objective is not Task.objective:
                overridden.append(task.objective(problem.robot, kin))
                continue
            damping = damping + task.lm_damping * jnp.sum(rows[name].right ** 2)
        elif type(task).objective is not VelocityTask.objective:
            overridden.append(task.objective(problem.robot, kin, motion))
            continue
        stacked.append(rows[name])
    damping = damping[:, None] if damping.ndim else damping
    rest = Objective(damping * unit_matrix(kin.nv, dtype=kin.q.dtype), jnp.zeros(kin.nv, kin.q.dtype))
    for objective in overridden:
        rest = Objective(rest.H + objective.H, rest.c + objective.c)
    none = WeightedRows(jnp.zeros((0, kin.nv), kin.q.dtype), jnp.zeros(0, kin.q.dtype))
    return FactoredObjective(_stacked(stacked) if stacked else none, rest)


def _multiplied(objective: FactoredObjective) -> Objective:
    """One product of all rows, plus the rest."""
    (matrix, right), rest = objective
    if not right.size:
        return rest
    # Of matrix and right in one product: to compile and to run, it costs what one of them does.
    products = jnp.tensordot(jnp.concatenate([matrix, right[:, None]], axis=1), matrix, (0, 0))
    return Objective(rest.H + products[:-1], rest.c - products[-1])


def _closing_rows(problem: Problem, constraints: dict[str, Task], values: dict[str, _Evaluated]) -> jax.Array | None:
    """Which rows (p,) of the constraints are of the model's own loops and couplings, and hold; None for none."""
    elastic, closing = elastic_constraints_of(problem), []
    for name, task in constraints.items():
        own = isinstance(task, EqualityConstraintTask) and name not in elastic
        closing += [own] * sum(np.size(r) for r in jax.tree.leaves(values[name].residual))
    return jnp.asarray(closing) if any(closing) else None


def _constraint_rows(
    problem: Problem, constraints: dict[str, Task], values: dict[str, _Evaluated], closing: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """A and b of the constraints: J x = -gain e; rows with a cost of zero, and those that follow from others, are zero.

    Of the three rows of a planar loop one follows from the others. Rounding makes it another row, whose b, divided by
    that rounding, is anything.
    """
    matrices, rights, holds = [], [], []
    elastic = elastic_constraints_of(problem)
    for name, task in constraints.items():
        value = values[name]
        weights = row_weights(task, value.residual)
        for w, r, j in zip(*map(jax.tree.leaves, (weights, value.residual, value.jacobian)), strict=True):
            weighted = w != 0
            matrices.append(jnp.where(weighted[..., None], j, 0).reshape(-1, j.shape[-1]))
            rights.append(jnp.ravel(jnp.where(weighted, -task.gain * r, 0)))
            holds += [name not in elastic] * rights[-1].size
    rows, right = jnp.concatenate(matrices), jnp.concatenate(rights)
    matrix, smallest = without_noise(rows), noise(rows)
    # A row of zeros with the rounding of zero on its right-hand side would be infeasible.
    zero = jnp.all(matrix == 0, axis=-1) & (jnp.abs(right) <= smallest)
    # What may yield does so row by row.
    holding = np.array(holds)
    given = jax.lax.stop_gradient((jnp.where(holding[:, None], matrix, 0), right, smallest))
    follows = holding & dependent_rows(*given)
    if closing is not None:
        # No step closes a loop any further, and joints that nothing but damping holds would move by rounding alone.
        # Derivatives see the loop open.
        closed = closing & (jnp.abs(right) <= CLOSED / ROUNDINGS * smallest)
        right = right - jax.lax.stop_gradient(jnp.where(closed, right, 0))
    return jnp.where(follows[:, None], 0, matrix), jnp.where(zero | follows, 0, right)
