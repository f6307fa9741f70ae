"""The problem: a robot, tasks, limits and constraints; stacked and weighted once."""

import copy
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from jaxik.core import validation
from jaxik.core.errors import JaxikError, JaxikWarning
from jaxik.core.pytree import cast, leaf, pytree, set_fields
from jaxik.kinematics.link_constants import Segments, segments
from jaxik.kinematics.schedule import plan
from jaxik.limits.base import Limit
from jaxik.limits.combine import tightened
from jaxik.limits.configuration import ConfigurationLimit, unlimited
from jaxik.limits.elastic import Elastic
from jaxik.problem.closures import traced_closure
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.velocity import VelocityTask

# Names of tasks of one priority.
Level = tuple[str, ...]
# Of the model's own equality constraints, where a problem names none.
MODEL_CONSTRAINTS = "model"


@pytree
class Problem:
    """What is asked of a robot.

    Args:
      robot: the robot; its leaves may have batch axes.
      tasks: name to task, or to velocity task, which differential IK alone looks at. Rows stack in sorted order of the
        names.
      limits: None for the robot's configuration limits, () for none; a tuple of limits replaces the default.
      constraints: None for the model's active equality constraints, {} for none. `Elastic` of a task or a limit yields
        where it cannot be held, in all verbs but `track` of whole paths.
      dof_mask: (*batch, nv) of bool, False where a degree of freedom stays as it is; None: all move. Of the three
        rotations of a ball or free joint all are held, or none: a single one is a rate, which does not add up to an
        angle. A joint that a coupling drives moves if its leader and all that follow it may.

    Raises:
      JaxikError: for a wrong type, an empty problem, or a name that is no string.
    """

    robot: Robot = leaf()
    tasks: dict[str, Any] = leaf()  # of Task and VelocityTask
    limits: tuple[Any, ...] | None = leaf(default=None)
    constraints: dict[str, Any] | None = leaf(default=None)  # of Task and Elastic
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
                raise JaxikError(
                    f"limits is a tuple such as (ConfigurationLimit(),), not of type {type(self.limits).__name__}"
                )
            for limit in self.limits:
                if isinstance(limit, Elastic) and not isinstance(limit.of, Limit):
                    raise JaxikError('an Elastic of a task is a constraint: constraints={"name": Elastic(...)}')
                if not isinstance(limit, Limit | Elastic):
                    raise JaxikError(f"limits is a tuple of limits such as ConfigurationLimit(), not of {limit!r}")
                if jax.tree_util.all_leaves([limit]):
                    raise JaxikError(f"limits: decorate the class {type(limit).__name__} with @jaxik.pytree")
                _check("limit", type(inside(limit)).__name__, inside(limit), self.robot)
        mask = self.dof_mask
        if mask is not None:
            # Indices, which it might be taken for, are told.
            says = "dof_mask (*batch, nv) says of each degree of freedom whether it moves, True or False"
            mask = validation.flags(says, mask)
            if mask.shape[-1:] != (self.robot.nv,):
                raise JaxikError(f"dof_mask has shape (*batch, nv) with nv = {self.robot.nv}, not {mask.shape}")
        constraints = None if self.constraints is None else _named("constraints", self.constraints, (Task, Elastic))
        for name, task in (constraints or {}).items():
            if not isinstance(inside(task), Task):
                raise JaxikError(f"constraints[{name!r}]: an Elastic of a limit belongs into limits")
            _check("constraint", name, inside(task), self.robot)
        limits = None if self.limits is None else tuple(self.limits)
        _check_keys(limits or (), constraints or {})
        set_fields(self, tasks=tasks, limits=limits, dof_mask=mask, constraints=constraints)

    def show(self, q: Any = None, **options: Any) -> Any:
        """A `Picture` of the robot at configurations (*batch, nq), `q_home` by default, and of its targets.

        Options are those of `jaxik.render`; `.save("problem.png")` writes it.
        """
        from jaxik.pictures.show import show_problem

        return show_problem(self, q, **options)

    def view(self, q: Any = None, **options: Any) -> Any:
        """Serve a page on which the robot follows the targets that are dragged; arguments are those of `jaxik.view`."""
        from jaxik.viewer.view import view

        return view(self, q, **options)


def _check(kind: str, name: str, task: Task | VelocityTask | Limit, robot: Robot) -> None:
    if not isinstance(task, Limit) and task.priority < 0:
        raise JaxikError(f"{kind} {name!r}: priority is 0, the highest, or more, not {task.priority}")
    closed = traced_closure(type(task))
    if closed is not None:
        raise JaxikError(
            f"{kind} {name!r}: {type(task).__name__} closes over the traced value {closed!r}, which would be neither "
            f"batched nor differentiated: make it a field, `{closed}: Any = jaxik.leaf(rank)`, and hand it over"
        )
    try:
        task.check(robot)
    except JaxikError as error:
        raise type(error)(f"{kind} {name!r}: {error}") from None


def _check_keys(limits: tuple[Any, ...], constraints: Mapping[str, Any]) -> None:
    """Raise for limits that yield under one name."""
    taken = set(constraints)
    for limit in limits:
        if isinstance(limit, Elastic):
            if limit.key in taken:
                raise JaxikError(f"two that yield are called {limit.key!r}: say Elastic(..., name=...)")
            taken.add(limit.key)


def inside(task: Any) -> Any:
    """A task or limit, taken out of an `Elastic`."""
    return task.of if isinstance(task, Elastic) else task


def _named(field: str, tasks: Any, allowed: tuple[type, ...]) -> dict[str, Any]:
    if not isinstance(tasks, Mapping):
        given = type(tasks).__name__
        raise JaxikError(f'{field} is a dict from name to task, not {given}; write {{"tip": FrameTask(...)}}')
    for name, task in tasks.items():
        if not isinstance(name, str):
            raise JaxikError(f"names of {field} are strings, not {name!r}")
        if not isinstance(task, allowed):
            hint = ": dof_mask freezes degrees of freedom" if isinstance(task, VelocityTask) else ""
            raise JaxikError(f"{field}[{name!r}] is a Task such as FrameTask, not {type(task).__name__}{hint}")
        if jax.tree_util.all_leaves([task]):
            raise JaxikError(f"{field}[{name!r}]: decorate the class {type(task).__name__} with @jaxik.pytree")
    return {name: tasks[name] for name in sorted(tasks)}


def levels(problem: Problem) -> tuple[Level, ...]:
    """Names of the tasks of each priority, the highest first."""
    priorities = sorted({task.priority for task in problem.tasks.values()})
    return tuple(tuple(n for n, task in problem.tasks.items() if task.priority == p) for p in priorities)


def limits_of(problem: Problem) -> tuple[Limit, ...]:
    """The limits that hold."""
    if problem.limits is None:
        return (ConfigurationLimit(),)
    return tuple(limit for limit in problem.limits if not isinstance(limit, Elastic))


def elastic_limits_of(problem: Problem) -> dict[str, Elastic]:
    """The limits that may yield, by their keys."""
    return {limit.key: limit for limit in problem.limits or () if isinstance(limit, Elastic)}


def elastic_joint_limit(problem: Problem) -> Elastic | None:
    """The limit of joints that may yield, of which `check_solvable` allows one; None where there is none."""
    return next((each for each in problem.limits or () if _of_joints(each)), None)


def _of_joints(limit: Any) -> bool:
    return isinstance(limit, Elastic) and isinstance(limit.of, ConfigurationLimit)


def effective_joint_limits(problem: Problem) -> Robot:
    """The robot with the joint limits that all of the problem's limits keep: none without a `ConfigurationLimit`."""
    limits = limits_of(problem)
    kept = any(isinstance(limit, ConfigurationLimit) for limit in limits)
    return tightened(limits, problem.robot if kept else unlimited(problem.robot))


def constants_of(robot: Robot, asking: Iterable[Any]) -> Segments:
    """The constants of the kinematics that tasks and limits look at."""
    asking = tuple(asking)
    frames = tuple(dict.fromkeys(frame for asks in asking for frame in asks.frames_of(robot)))
    roots = (root for asks in asking for root in getattr(asks, "subtrees", ()))
    subtrees = tuple(dict.fromkeys(robot.topology.body_index(r) if isinstance(r, str) else r for r in roots))
    return segments(robot, plan(robot.topology, frames, subtrees))


def constraints_of(problem: Problem, *, couplings: bool) -> dict[str, Task]:
    """The problem's constraints, and the model's own where it names none, by names that differ from those of tasks.

    Those that may yield are among them.

    Args:
      couplings: whether the model's joint couplings are among them, or hold otherwise.
    """
    constraints = None if problem.constraints is None else targeted(problem.constraints)
    if constraints is None:
        topology = problem.robot.topology
        apart = set(topology.mocap_bodies)
        held = tuple(
            e
            for e in topology.equalities
            if e.active and topology.can_evaluate(e) and not apart & set(e.bodies) and (couplings or e.kind != "joint")
        )
        # Made after the problem's own tasks were cast.
        dtype = problem.robot.q_home.dtype
        constraints = {MODEL_CONSTRAINTS: cast(EqualityConstraintTask(held), dtype)} if held else {}
    return unique_names("constraints", constraints, problem.tasks)


def elastic_constraints_of(problem: Problem) -> dict[str, Elastic]:
    """The constraints that may yield, by the names that `constraints_of` gives them."""
    named = unique_names("constraints", problem.constraints or {}, problem.tasks)
    return {name: task for name, task in named.items() if isinstance(task, Elastic)}


def yielding_configurations(problem: Problem) -> list[str]:
    """Names of what is elastic and says something of configurations: not those of limits on velocities."""
    limits = elastic_limits_of(problem).items()
    of_position = [key for key, limit in limits if limit.of.inequality_tasks() or _of_joints(limit)]
    return [*elastic_constraints_of(problem), *of_position]


def targeted(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Tasks by name, with those taken out of an `Elastic` that are in one."""
    return {name: inside(task) for name, task in tasks.items()}


def unique_names(kind: str, tasks: Mapping[str, Task], others: Mapping[str, Any]) -> dict[str, Task]:
    """The tasks by their names, with their kind in front as often as it takes to differ from all others."""
    found: dict[str, Task] = {}
    for name, task in tasks.items():
        own = name
        while own in others or own in found or (own != name and own in tasks):
            own = f"{kind}.{own}"
        found[own] = task
    return found


def with_tasks(problem: Problem, tasks: dict[str, Any]) -> Problem:
    """The problem with other tasks, which are not checked again."""
    changed = copy.copy(problem)
    set_fields(changed, tasks={name: tasks[name] for name in sorted(tasks)})
    return changed


def without_elastic(problem: Problem) -> Problem:
    """The problem of the constraints and limits that hold."""
    changed = copy.copy(problem)
    if problem.limits is not None:
        set_fields(changed, limits=limits_of(problem))
    if problem.constraints is not None:
        kept = {name: task for name, task in problem.constraints.items() if not isinstance(task, Elastic)}
        set_fields(changed, constraints=kept)
    return changed


def with_dof_mask(problem: Problem, dof_mask: Any) -> Problem:
    """The problem with another mask (nv,), which is not checked again."""
    changed = copy.copy(problem)
    set_fields(changed, dof_mask=dof_mask)
    return changed


def without_velocity_tasks(problem: Problem) -> Problem:
    """The problem of its configuration tasks alone."""
    kept = {name: task for name, task in problem.tasks.items() if not isinstance(task, VelocityTask)}
    return problem if len(kept) == len(problem.tasks) else with_tasks(problem, kept)


def check_solvable(problem: Problem) -> None:
    """Say on the host what `solve` cannot hold.

    Raises:
      JaxikError: for velocity tasks alone, for what may not yield, and for a robot that cannot move.
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
    _check_elastic(problem)
    topology = problem.robot.topology
    if not topology.nv:
        raise JaxikError(f"{topology.name} has no degrees of freedom: there is nothing to solve for")
    check_closures("solve", problem)
    for limit in limits_of(problem) if problem.limits is not None else ():
        keeps = type(limit).tightened is not Limit.tightened or limit.inequality_tasks() or limit.clearance_task(0)
        if not keeps and not limit.velocity_level:
            warnings.warn(
                f"solve does not hold {type(limit).__name__}, which defines neither tightened nor inequality_tasks: it "
                "acts in differential IK only",
                JaxikWarning,
                stacklevel=3,
            )


def _check_elastic(problem: Problem) -> None:
    """Say on the host what may not yield in `solve`."""
    for name, each in elastic_limits_of(problem).items():
        if not each.of.inequality_tasks() and not each.of.velocity_level and not _of_joints(each):
            raise JaxikError(
                f"{name!r}: in solve and search constraints, PositionLimit, DistanceLimit and ConfigurationLimit may "
                f"yield; a {type(each.of).__name__} holds: take it out of Elastic"
            )
    if len(several := [key for key, each in elastic_limits_of(problem).items() if _of_joints(each)]) > 1:
        raise JaxikError(
            f"{several[0]!r} and {several[1]!r}: in solve and search one ConfigurationLimit may yield, beside others "
            "that hold; take the other one out of Elastic"
        )


def check_closures(verb: str, problem: Problem) -> None:
    """Warn of equality constraints of the model that kinematics cannot evaluate, where they are asked for."""
    topology = problem.robot.topology
    lost = [e.label for e in topology.closures if not topology.can_evaluate(e)]
    if problem.constraints is None and lost:
        warnings.warn(
            f"{verb} does not hold the equality constraints of {topology.name} that kinematics cannot evaluate "
            f"({', '.join(lost)}): pass constraints={{}} to say that this is meant",
            JaxikWarning,
            stacklevel=4,
        )
