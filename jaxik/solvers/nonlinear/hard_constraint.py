"""A task as a constraint of `solve`, which comes before all tasks."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics
from jaxik.limits.collision import KeptClear
from jaxik.problem.problem import (
    Level,
    Problem,
    constraints_of,
    elastic_constraints_of,
    elastic_joint_limit,
    elastic_limits_of,
    limits_of,
    unique_names,
    with_tasks,
)
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task
from jaxik.tasks.residual_bound import ReadsATask

# Weight of constraints while tasks, whose weights are about 1, and constraints are first approached together.
WEIGHT = 10.0


@pytree
class HardConstraint(ReadsATask, Task):
    """A task whose rows with a cost are constraints.

    Attributes:
      task: the task.
      tolerance: largest norm () of each part of the residual.
      one_sided: whether its residual () may be positive as well, as a distance may.
      penalty: of what is `Elastic` that () of a row's violation, by the cost of the row; None: it has to hold.
      offset: like its residual, what that is to be where it has yielded; None: zero.
      limit: of a limit that is `Elastic`, its key; static.
    """

    task: Task = leaf()
    tolerance: Any = leaf(0)
    one_sided: bool = static(default=False)
    penalty: Any = leaf(0, default=None)
    offset: Any = leaf(1, default=None)
    limit: str | None = static(default=None)
    priority = -1

    @property
    def unit(self) -> Any:  # type: ignore[override]
        return self.task.unit

    def reads_dofs(self, robot: Robot) -> tuple[int, ...] | None:
        return self.task.reads_dofs(robot)

    def residual(self, robot: Robot, kin: Kinematics) -> Any:
        residual = self.task.residual(robot, kin)
        return residual if self.offset is None else jax.tree.map(jnp.subtract, residual, self.offset)

    def jacobian(self, robot: Robot, kin: Kinematics) -> Any:
        return self.task.jacobian(robot, kin)

    def partials(self, robot: Robot, kin: Kinematics) -> dict[Any, Any]:
        return self.task.partials(robot, kin)

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: Any
    ) -> tuple[dict[Any, jax.Array], jax.Array | None]:
        return self.task.weighted_hessian(robot, kin, multipliers)

    def second_derivative(self, robot: Robot, kin: Kinematics, multipliers: Any) -> jax.Array:
        return self.task.second_derivative(robot, kin, multipliers)

    def exact_second_derivative(self, robot: Robot, kin: Kinematics, multipliers: Any) -> jax.Array:
        return self.task.exact_second_derivative(robot, kin, multipliers)

    def report(self, robot: Robot, kin: Kinematics) -> Any:
        """The residual itself, which is constrained, rather than the error that the task reports."""
        return self.residual(robot, kin)

    def weights(self) -> Any:
        return jax.tree.map(lambda w: jnp.where(jnp.asarray(w) != 0, WEIGHT, 0), self.task.weights())

    def tolerances(self) -> Any:
        return self.tolerance


def given_task(task: Task) -> Task:
    """The task that a constraint holds; another one is itself."""
    return task.task if isinstance(task, HardConstraint) else task


def with_hard_constraints(problem: Problem, tolerance: Any) -> Problem:
    """The problem with its constraints, and the distances of its limits, as tasks before all others."""
    elastic = {name: each.row_penalty for name, each in elastic_constraints_of(problem).items()}
    held = {
        name: HardConstraint(task, tolerance, penalty=elastic.get(name))
        for name, task in constraints_of(problem, couplings=False).items()
    }
    kept: list[tuple[Task, dict[str, Any]]] = [
        (task, {}) for limit in limits_of(problem) for task in limit.inequality_tasks()
    ]
    for key, each in elastic_limits_of(problem).items():
        kept += [(task, {"penalty": each.row_penalty, "limit": key}) for task in each.of.inequality_tasks()]
    away = unique_names("limits", {str(i): task for i, (task, _) in enumerate(kept)}, {**problem.tasks, **held})
    held |= {
        name: HardConstraint(task, tolerance, one_sided=True, **more)
        for (name, task), (_, more) in zip(away.items(), kept, strict=True)
    }
    return with_tasks(problem, {**problem.tasks, **held}) if held else problem


def yielding(problem: Problem) -> Level:
    """Names of the constraints that may yield."""
    tasks = problem.tasks.items()
    return tuple(name for name, task in tasks if isinstance(task, HardConstraint) and task.penalty is not None)


def holding(problem: Problem) -> Level:
    """Names of the constraints that have to hold."""
    tasks = problem.tasks.items()
    return tuple(name for name, task in tasks if isinstance(task, HardConstraint) and task.penalty is None)


def may_yield(problem: Problem) -> bool:
    """Whether a constraint or a limit of joints may yield."""
    return bool(yielding(problem)) or elastic_joint_limit(problem) is not None


def with_clearance(problem: Problem) -> Problem:
    """The problem with the tasks by which its limits keep shapes apart, at the highest priority."""
    first = min((task.priority for task in problem.tasks.values()), default=0)
    asked = [task for limit in limits_of(problem) if (task := limit.clearance_task(first)) is not None]
    named = unique_names("limits", {f"clearance {i}": task for i, task in enumerate(asked)}, problem.tasks)
    return with_tasks(problem, {**problem.tasks, **named}) if named else problem


def clearances(problem: Problem) -> tuple[str, ...]:
    """Names of the tasks that `with_clearance` adds."""
    return tuple(name for name, task in problem.tasks.items() if isinstance(task, KeptClear))


def without_clearance(problem: Problem) -> Problem:
    """The problem without them."""
    added = clearances(problem)
    return with_tasks(problem, {name: task for name, task in problem.tasks.items() if name not in added})
