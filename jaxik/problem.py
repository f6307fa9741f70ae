"""The problem: a robot, tasks, limits and constraints; stacked and weighted once."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik import kinematics
from jaxik.coordinates import Coordinates, coordinates, narrowed
from jaxik.errors import JaxikError, JaxikWarning
from jaxik.kinematics import Kinematics
from jaxik.limits.configuration import ConfigurationLimit, unlimited
from jaxik.pytree import leaf, pytree, set_fields, static
from jaxik.robot.model import Robot
from jaxik.robot.plan import plan
from jaxik.segments import Segments, segments
from jaxik.tasks.base import Task, reads_configuration, second_derivative
from jaxik.tasks.rows import pairs, row_weights, weighted_rows
from jaxik.tasks.velocity import VelocityTask


@pytree
class Problem:
    """What is asked of a robot.

    Args:
      robot: the robot; its leaves may have batch axes.
      tasks: name to task, or to velocity task, which differential IK alone looks at. Rows stack in sorted order of the
        names.
      limits: None for the robot's configuration limits, () for none; a tuple of limits replaces the default.
      constraints: None for the model's active equality constraints, {} for none.
      dof_mask: (*batch, nv) of bool, False where a degree of freedom stays as it is; None: all move. Of the three
        rotations of a ball or free joint all are held, or none: a single one is a rate, which does not add up to an
        angle. A joint that a coupling drives moves if its leader and all that follow it may.

    Raises:
      JaxikError: for a wrong type, an empty problem, or a name that is no string.
    """

    robot: Robot = leaf()
    tasks: dict[str, Any] = leaf()  # of Task and VelocityTask
    limits: tuple[Any, ...] | None = leaf(default=None)
    constraints: dict[str, Task] | None = leaf(default=None)
    dof_mask: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.robot, Robot):
            raise JaxikError(f"robot is a Robot, from jaxik.load_robot(...); not {type(self.robot).__name__}")
        tasks = _named("tasks", self.tasks, (Task, VelocityTask))
        if not tasks:
            raise JaxikError('a problem needs at least one task: Problem(robot, {"tip": FrameTask(...)})')
        for name, task in tasks.items():
            _check("task", name, task, self.robot)
        if self.limits is not None:
            if not isinstance(self.limits, tuple | list):
                raise JaxikError(f"limits is a tuple such as (ConfigurationLimit(),), not {self.limits!r}")
            for limit in self.limits:
                if not isinstance(limit, ConfigurationLimit):
                    raise JaxikError(f"limits is a tuple of limits such as ConfigurationLimit(), not of {limit!r}")
        mask = self.dof_mask
        if mask is not None:
            mask = jnp.asarray(mask, bool)
            if mask.shape[-1:] != (self.robot.nv,):
                raise JaxikError(f"dof_mask has shape (*batch, nv) with nv = {self.robot.nv}, not {mask.shape}")
        constraints = None if self.constraints is None else _named("constraints", self.constraints, (Task,))
        for name, task in (constraints or {}).items():
            _check("constraint", name, task, self.robot)
        limits = None if self.limits is None else tuple(self.limits)
        set_fields(self, tasks=tasks, limits=limits, dof_mask=mask, constraints=constraints)


def _check(kind: str, name: str, task: Task | VelocityTask, robot: Robot) -> None:
    try:
        task.check(robot)
    except JaxikError as error:
        raise type(error)(f"{kind} {name!r}: {error}") from None


def _named(field: str, tasks: Any, allowed: tuple[type, ...]) -> dict[str, Any]:
    if not isinstance(tasks, Mapping):
        raise JaxikError(f"{field} is a dict from name to task, not {type(tasks).__name__}")
    for name, task in tasks.items():
        if not isinstance(name, str):
            raise JaxikError(f"names of {field} are strings, not {name!r}")
        if not isinstance(task, allowed):
            raise JaxikError(f"{field}[{name!r}] is a Task such as FrameTask, not {type(task).__name__}")
        if jax.tree_util.all_leaves([task]):
            raise JaxikError(f"{field}[{name!r}]: decorate the class {type(task).__name__} with @jaxik.pytree")
    return {name: tasks[name] for name in sorted(tasks)}


@pytree
class Prepared:
    """A problem of one element with what does not change while it is solved.

    Attributes:
      robot: with the problem's limits, of leaders drawn in so that their followers keep theirs.
      constants: of the kinematics that the tasks look at.
      moving: the degrees of freedom that they depend on, static.
    """

    problem: Problem = leaf()
    robot: Robot = leaf()
    constants: Segments = leaf()
    moving: Coordinates = static()


def prepare(problem: Problem) -> Prepared:
    """Apply the limits and compute the constants of the kinematics."""
    robot = problem.robot
    limits = (ConfigurationLimit(),) if problem.limits is None else problem.limits
    limited = robot if limits else unlimited(robot)
    for limit in limits:
        limited = limit.narrowed(limited)
    tasks = problem.tasks.values()
    frames = tuple(dict.fromkeys(frame for task in tasks for frame in task.frames))
    roots = (root for task in tasks for root in task.subtrees)
    subtrees = tuple(dict.fromkeys(robot.topology.body_index(r) if isinstance(r, str) else r for r in roots))
    constants = segments(robot, plan(robot.topology, frames, subtrees))
    moving = coordinates(robot.topology, _used(problem, constants), hold_couplings=problem.constraints is None)
    return Prepared(problem, narrowed(limited, moving), constants, moving)


def _used(problem: Problem, constants: Segments) -> set[int]:
    """The degrees of freedom that some task depends on."""
    robot = problem.robot
    read: list[bool] = []

    def look() -> None:
        kin = kinematics.forward(constants, robot.q_home)
        read.extend(reads_configuration(task, robot, kin) for task in problem.tasks.values())

    jax.eval_shape(look)
    if any(read):
        return set(range(robot.nv))
    return {dof for joint in constants.plan.joints for dof in robot.topology.joints[joint].v_indices}


class Rows(NamedTuple):
    """The tasks at one configuration, stacked and weighted: 1/2 |residual|^2 is the objective.

    Attributes:
      residual (m,), jacobian (m, nv): weighted with the costs.
    """

    residual: jax.Array
    jacobian: jax.Array


def evaluate(prepared: Prepared, q: jax.Array) -> Kinematics:
    """One forward kinematics for all tasks and limits."""
    return kinematics.forward(prepared.constants, q)


def rows(prepared: Prepared, kin: Kinematics) -> Rows:
    """Stack and weight all tasks at one evaluated configuration."""
    robot = prepared.problem.robot
    residuals, jacobians = [], []
    for task in prepared.problem.tasks.values():
        residual, jacobian = weighted_rows(task, task.residual(robot, kin), task.jacobian(robot, kin))
        residuals.append(residual)
        jacobians.append(jacobian)
    return Rows(jnp.concatenate(residuals), jnp.concatenate(jacobians))


class Bowl(NamedTuple):
    """The objective at one configuration to second order.

    Attributes:
      cost (), gradient (nv,), hessian (nv, nv): of 1/2 |residual|^2 along `integrate`.
    """

    cost: jax.Array
    gradient: jax.Array
    hessian: jax.Array


def bowl(prepared: Prepared, kin: Kinematics) -> Bowl:
    """Expand the objective to second order at one evaluated configuration."""
    robot, model = prepared.problem.robot, rows(prepared, kin)
    hessian = model.jacobian.T @ model.jacobian
    for task in prepared.problem.tasks.values():
        residual = task.residual(robot, kin)
        pull = jax.tree.map(lambda w, r: w * w * r, row_weights(task, residual), residual)
        hessian = hessian + second_derivative(task, robot, kin, pull)
    cost = 0.5 * jnp.sum(model.residual * model.residual)
    return Bowl(cost, model.residual @ model.jacobian, hessian)


def met(prepared: Prepared, errors: dict[str, Any]) -> jax.Array:
    """Whether every task that has a tolerance meets it, given what each reports."""
    each = [_met(task, row_weights(task, errors[name]), errors[name]) for name, task in prepared.problem.tasks.items()]
    return jnp.all(jnp.stack(each))


def _met(task: Task, weights: Any, error: Any) -> jax.Array:
    """Whether the norm of each part of the error, over rows that have a weight, is within its tolerance."""
    tolerances = task.tolerances()
    met = jnp.asarray(True)
    if tolerances is None:
        return met
    if jax.tree.structure(tolerances) != jax.tree.structure(error):
        tolerances = jax.tree.map(lambda _: tolerances, error)
    for tolerance, (w, e) in zip(jax.tree.leaves(tolerances), pairs(weights, error), strict=True):
        square = jnp.sum(jnp.where(w != 0, e * e, 0))
        met = met & (square <= tolerance * tolerance)
    return met


def errors(prepared: Prepared, kin: Kinematics) -> dict[str, Any]:
    """What each task reports at one evaluated configuration."""
    return {name: task.error(prepared.problem.robot, kin) for name, task in prepared.problem.tasks.items()}


def has_tolerances(problem: Problem) -> bool:
    """Whether every task has a tolerance, so that the problem ends when they are met."""
    return all(task.tolerances() is not None for task in problem.tasks.values())


def without_velocity_tasks(problem: Problem) -> Problem:
    """The problem of its configuration tasks alone."""
    kept = {name: task for name, task in problem.tasks.items() if not isinstance(task, VelocityTask)}
    return problem if len(kept) == len(problem.tasks) else dataclasses.replace(problem, tasks=kept)


def check_solvable(problem: Problem) -> None:
    """Say on the host what `solve` cannot hold.

    Raises:
      JaxikError: for constraints given as tasks, for tasks at several priorities, and for velocity tasks alone.
    """
    of_velocity = [name for name, task in problem.tasks.items() if isinstance(task, VelocityTask)]
    if len(of_velocity) == len(problem.tasks):
        raise JaxikError(
            f"the problem has velocity tasks alone ({', '.join(of_velocity)}): they say how to move and not where to; "
            "solve needs a task such as FrameTask"
        )
    if of_velocity:
        warnings.warn(
            f"solve leaves out {', '.join(of_velocity)}: a configuration to be solved for has no velocity, so velocity "
            "tasks act in differential IK only",
            JaxikWarning,
            stacklevel=3,
        )
    tasks = without_velocity_tasks(problem).tasks
    topology = problem.robot.topology
    if not topology.nv:
        raise JaxikError(f"{topology.name} has no degrees of freedom: there is nothing to solve for")
    if problem.constraints:
        raise JaxikError("solve does not take constraints yet: make them tasks with a high cost")
    if len({task.priority for task in tasks.values()}) > 1:
        raise JaxikError("solve does not take tasks at several priorities yet: give them one priority, and costs")
    held = [e.label for e in topology.closures if not set(e.bodies) & set(topology.mocap_bodies)]
    if problem.constraints is None and held:
        warnings.warn(
            f"solve does not hold the equality constraints of {topology.name} yet ({', '.join(held)}): "
            "pass constraints={} to say that this is meant",
            JaxikWarning,
            stacklevel=3,
        )
