"""Pairs of shapes that press on each other at a solution, or on what is kept free between them: rows as others are.

The cost of a clearance, a hinge, has a kink where a pair is as far apart as asked, and that is where a lower level that
presses on it ends. Derivatives take the pairs that are active there for given, and their distances for residuals.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.nearest import Nearest
from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.manifold import difference
from jaxik.numerics.linalg import largest
from jaxik.problem.problem import Level, Problem, with_tasks
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import Formulation, evaluate, formulation, in_cells, row_spans, without_slack
from jaxik.solvers.nonlinear.hard_constraint import given_task
from jaxik.solvers.nonlinear.lagrangian import FIRM, VISIBLE, Levels, LevelsAt, at
from jaxik.tasks.base import Task
from jaxik.tasks.clearance import PairsTask


class GivenPairs(NamedTuple):
    """The pairs of a task that have a row at a solution, and which of these (rows,) are active."""

    nearest: Nearest
    active: jax.Array


@pytree
class ActivePairs(Task):
    """A task whose active pairs are given: their residual (rows,) is by how much farther apart they are."""

    task: PairsTask = leaf()
    nearest: Nearest = leaf()
    active: jax.Array = leaf(1)
    priority: int = static(default=0, kw_only=True)

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        return self.task.frames_of(robot)

    def excess(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """How much farther apart than asked the given pairs are (rows,) [m]."""
        return self.task.pairs_at(robot, kin, self.nearest).distance - self.task.distance

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return jnp.where(self.active, self.excess(robot, kin), 0)

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return jnp.where(self.active[:, None], self.task.pairs_at(robot, kin, self.nearest).jacobian, 0)

    def exact_second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        curvatures = self.task.curvatures_at(robot, kin, self.nearest)
        return jnp.tensordot(jnp.where(self.active, multipliers, 0), curvatures.hessian, 1)

    def report(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self.task.report(robot, kin)

    def weights(self) -> Any:
        return self.task.weights()

    def tolerances(self) -> Any:
        return self.task.tolerances()


@pytree
class LinearPairs(Task):
    """Active pairs by their rows at one configuration (nq,), which do not turn as it moves."""

    pairs: ActivePairs = leaf()
    q: jax.Array = leaf(1)
    there: jax.Array = leaf(1)
    slopes: jax.Array = leaf(2)
    priority: int = static(default=0, kw_only=True)

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        return self.pairs.frames_of(robot)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self.there + self.slopes @ difference(robot.topology, self.q, kin.q)

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self.slopes

    def exact_second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        return jnp.zeros((robot.nv, robot.nv), multipliers.dtype)

    def weights(self) -> Any:
        return self.pairs.weights()


def with_linear_pairs(point: LevelsAt) -> LevelsAt:
    """The same levels, elsewhere with active pairs by their rows here."""
    prepared, problem = point.prepared, point.prepared.problem
    kin = without_slack(prepared, point.kin)

    def linear(pairs: ActivePairs) -> LinearPairs:
        rows = pairs.residual(problem.robot, kin), pairs.jacobian(problem.robot, kin)
        return LinearPairs(pairs, kin.q, *rows, priority=pairs.priority)

    tasks = {name: linear(task) for name, task in problem.tasks.items() if isinstance(task, ActivePairs)}
    return point._replace(prepared=_with(prepared, tasks)) if tasks else point


def _with(prepared: Formulation, tasks: dict[str, Any]) -> Formulation:
    """A formulation with tasks in the place of those of the same names."""
    return dataclasses.replace(prepared, problem=with_tasks(prepared.problem, {**prepared.problem.tasks, **tasks}))


def any_active(prepared: Formulation, level: Level) -> jax.Array:
    """Whether a pair of a level is active ()."""
    tasks = [task for name in level if isinstance(task := prepared.problem.tasks[name], ActivePairs)]
    return jnp.any(jnp.asarray([jnp.any(task.active) for task in tasks], bool))


def active_pairs(prepared: Formulation, q: jax.Array) -> dict[str, GivenPairs]:
    """Of each task of distances the pairs that are active at a configuration (nq,).

    Those that are just as far apart as asked are so where a lower level may press on them.
    """
    names = _clearances(prepared.problem)
    if not names:
        return {}
    robot, kin = prepared.problem.robot, without_slack(prepared, evaluate(prepared, q))
    visible = at(VISIBLE, q.dtype)

    def of(name: str) -> GivenPairs:
        task = prepared.problem.tasks[name]
        assert isinstance(task, PairsTask)
        nearest = task.nearest(robot, kin)
        excess = nearest.distance - task.distance
        return GivenPairs(nearest, task.active(excess, -visible if name in prepared.levels[-1] else visible))

    return {name: of(name) for name in names}


def formulation_with(problem: Problem, active: dict[str, GivenPairs], cells: jax.Array | None) -> Formulation:
    """The formulation of a problem whose active pairs, and the cells (n,) of joint limits that yield, are given."""
    prepared = in_cells(formulation(problem), cells)
    if not active:
        return prepared
    tasks = {name: ActivePairs(problem.tasks[name], *pairs) for name, pairs in active.items()}
    tasks = {name: dataclasses.replace(task, priority=task.task.priority) for name, task in tasks.items()}
    return _with(prepared, tasks)


class Trust(NamedTuple):
    """What pairs say of a derivative.

    Attributes:
      kink (): the derivative is another on each side: a pair is as far apart as asked and nothing presses on it, or
        other features of an active one take over.
      held (): the normal of an active pair counts as given.
    """

    kink: jax.Array
    held: jax.Array


def trust(point: LevelsAt, above: Levels, cotangents: tuple[jax.Array, ...], square: jax.Array) -> Trust:
    """Whether pairs make the derivative at a point inexact.

    Args:
      above, cotangents: of the levels above the last, in the Lagrangians of each other and in the last one.
      square (n, n): J'J of the last level.
    """
    prepared, no = point.prepared, jnp.zeros((), bool)
    robot, kin = prepared.problem.robot, without_slack(prepared, point.kin)
    kink = held = no
    forces = [(cotangents, square), *zip(above.cotangents, above.hessians, strict=True)]
    for name, task in prepared.problem.tasks.items():
        if isinstance(task, ActivePairs):
            level = next(j for j, names in enumerate(prepared.levels) if name in names)
            mine = list(row_spans(prepared, prepared.levels[level])[name])
            excess, found = task.excess(robot, kin), task.task.curvatures_at(robot, kin, task.nearest)
            touching = jnp.abs(excess) <= at(VISIBLE, excess.dtype)
            pressed = jnp.zeros_like(touching)
            for cotangent, curve in forces:
                if level < len(cotangent):
                    # Released, a degree of freedom would move on by so much.
                    reach = jnp.max(jnp.abs(point.boxed[level][jnp.asarray(mine)]), axis=1)
                    moved = -cotangent[level][jnp.asarray(mine)] * reach / largest(jnp.diagonal(curve))
                    pressed = pressed | (moved > at(FIRM, excess.dtype))
            kink = kink | jnp.any(touching & ~pressed & task.task.one_sided) | jnp.any(task.active & found.switches)
            kink = kink | task.task.tied(robot, kin, at(VISIBLE, excess.dtype))
            held = held | jnp.any(task.active & found.held)
        elif isinstance(pairs := given_task(task), PairsTask):
            # A constraint: what it is at the solution, both sides alike.
            switches = pairs.curvatures_at(robot, kin, pairs.nearest(robot, kin)).switches
            kink = kink | jnp.any(switches) | pairs.tied(robot, kin, at(VISIBLE, kin.q.dtype))
            held = held | pairs.held(robot, kin)
    return Trust(kink, held)


def _clearances(problem: Problem) -> tuple[str, ...]:
    return tuple(name for name, task in problem.tasks.items() if isinstance(task, PairsTask))
