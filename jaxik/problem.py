"""The problem: a robot, tasks, limits and constraints; stacked and weighted once."""

import dataclasses
import itertools
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
from jaxik.tasks.alike import Group, groups, side_by_side
from jaxik.tasks.base import Task, reads_configuration, second_derivative
from jaxik.tasks.rows import pairs, row_weights, weighted_rows
from jaxik.tasks.velocity import VelocityTask

# Names of tasks of one priority.
Level = tuple[str, ...]


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

    @property
    def levels(self) -> tuple[Level, ...]:
        """Names of the tasks of each priority, the highest first."""
        return levels(self.problem)


def levels(problem: Problem) -> tuple[Level, ...]:
    """Names of the tasks of each priority, the highest first."""
    priorities = sorted({task.priority for task in problem.tasks.values()})
    return tuple(tuple(n for n, task in problem.tasks.items() if task.priority == p) for p in priorities)


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
    """The tasks of a level at one configuration, stacked and weighted: 1/2 |residual|^2 is the objective.

    Attributes:
      residual (m,), jacobian (m, nv): weighted with the costs.
    """

    residual: jax.Array
    jacobian: jax.Array


def evaluate(prepared: Prepared, q: jax.Array) -> Kinematics:
    """One forward kinematics for all tasks and limits."""
    return kinematics.forward(prepared.constants, q)


def _groups(prepared: Prepared, level: Level) -> list[Group]:
    return groups({name: prepared.problem.tasks[name] for name in level})


def rows(prepared: Prepared, kin: Kinematics, level: Level) -> Rows:
    """Stack and weight the tasks of a level at one evaluated configuration."""
    robot = prepared.problem.robot

    def of_task(task: Task, kin: Kinematics) -> tuple[jax.Array, jax.Array]:
        return weighted_rows(task, task.residual(robot, kin), task.jacobian(robot, kin))

    parts = [side_by_side(of_task, group, kin) for group in _groups(prepared, level)]
    return Rows(
        jnp.concatenate([jnp.ravel(residual) for residual, _ in parts]),
        jnp.concatenate([jacobian.reshape(-1, robot.nv) for _, jacobian in parts]),
    )


class Bowl(NamedTuple):
    """The objective of a level at one configuration to second order.

    Attributes:
      cost (), gradient (nv,), hessian (nv, nv): of 1/2 |residual|^2 along `integrate`.
    """

    cost: jax.Array
    gradient: jax.Array
    hessian: jax.Array


def bowl(prepared: Prepared, kin: Kinematics, level: Level) -> Bowl:
    """Expand the objective of a level to second order at one evaluated configuration."""
    model = rows(prepared, kin, level)
    hessian = model.jacobian.T @ model.jacobian + curvature(prepared, kin, level, model.residual)
    return Bowl(0.5 * jnp.sum(model.residual * model.residual), model.residual @ model.jacobian, hessian)


def curvature(prepared: Prepared, kin: Kinematics, level: Level, pull: jax.Array) -> jax.Array:
    """Second derivative (nv, nv) of pull . residual along `integrate`, of a level's weighted residual (m,)."""
    robot = prepared.problem.robot
    total, start = jnp.zeros((robot.nv, robot.nv), kin.q.dtype), 0

    def of_task(task: Task, kin: Kinematics, pull: jax.Array) -> jax.Array:
        weights, structure = jax.tree.flatten(row_weights(task, task.residual(robot, kin)))
        ends = list(itertools.accumulate((w.size for w in weights), initial=0))
        parts = [w * pull[a:b].reshape(w.shape) for w, (a, b) in zip(weights, itertools.pairwise(ends), strict=True)]
        return second_derivative(task, robot, kin, jax.tree.unflatten(structure, parts))

    for group in _groups(prepared, level):
        first, count = group.tasks[0], len(group.tasks)
        residual = jax.eval_shape(lambda first=first: first.residual(robot, kin))
        size = sum(x.size for x in jax.tree.leaves(residual))
        own = pull[start : start + count * size].reshape(count, size)
        total = total + jnp.sum(side_by_side(of_task, group, kin, own), axis=0)
        start += count * size
    return total


def met(prepared: Prepared, errors: dict[str, Any], level: Level) -> jax.Array:
    """Whether every task of a level that has a tolerance meets it, given what each reports."""
    tasks = prepared.problem.tasks
    return jnp.all(jnp.stack([_met(tasks[n], row_weights(tasks[n], errors[n]), errors[n]) for n in level]))


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
    robot, tasks = prepared.problem.robot, prepared.problem.tasks
    found: dict[str, Any] = {}
    for group in groups(tasks):
        stacked = side_by_side(lambda task, kin: task.error(robot, kin), group, kin)
        found |= {name: jax.tree.map(lambda x, i=i: x[i], stacked) for i, name in enumerate(group.names)}
    return {name: found[name] for name in tasks}


def has_tolerances(problem: Problem, level: Level) -> bool:
    """Whether every task of a level has a tolerance, so that it ends when they are met."""
    return all(problem.tasks[name].tolerances() is not None for name in level)


def without_velocity_tasks(problem: Problem) -> Problem:
    """The problem of its configuration tasks alone."""
    kept = {name: task for name, task in problem.tasks.items() if not isinstance(task, VelocityTask)}
    return problem if len(kept) == len(problem.tasks) else dataclasses.replace(problem, tasks=kept)


def check_solvable(problem: Problem) -> None:
    """Say on the host what `solve` cannot hold.

    Raises:
      JaxikError: for constraints given as tasks, and for velocity tasks alone.
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
    topology = problem.robot.topology
    if not topology.nv:
        raise JaxikError(f"{topology.name} has no degrees of freedom: there is nothing to solve for")
    if problem.constraints:
        raise JaxikError("solve does not take constraints yet: make them tasks with a high cost")
    held = [e.label for e in topology.closures if not set(e.bodies) & set(topology.mocap_bodies)]
    if problem.constraints is None and held:
        warnings.warn(
            f"solve does not hold the equality constraints of {topology.name} yet ({', '.join(held)}): "
            "pass constraints={} to say that this is meant",
            JaxikWarning,
            stacklevel=3,
        )
