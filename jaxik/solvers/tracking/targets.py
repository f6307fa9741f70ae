"""Targets over time: which fields of which tasks they set, and how far ahead of them a gain has to aim."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.core.pytree import core_ranks, set_fields
from jaxik.limits.elastic import Elastic
from jaxik.numerics.lie import MINIMUM_NORM
from jaxik.problem.problem import Problem, targeted
from jaxik.robot.robot import Robot
from jaxik.tasks.posture import PostureTask

# By task and constraint, and by field of it, a value for each element; over time with one more axis in front.
Values = dict[str, dict[str, Any]]


def values_of(problem: Problem, targets: Any) -> Values:
    """Check targets on the host, as the tasks do that they are for.

    Args:
      targets: task name to a target, or to a dict of that task's fields; any leading axes.

    Raises:
      JaxikError: for an unknown task or field, and for what the task itself refuses.
    """
    if not isinstance(targets, Mapping):
        raise JaxikError(
            f"targets is a dict from task name to its target over time, or a function of (t, q, v) that returns one, "
            f"not {type(targets).__name__}"
        )
    known = _by_name(problem)
    found: Values = {}
    for name, target in targets.items():
        if name not in known:
            raise unknown_name("task", str(name), known)
        try:
            fields = _fields(known[name], target)
            changed = dataclasses.replace(known[name], **fields)
            changed.check(problem.robot)
        except JaxikError as error:
            raise type(error)(f"targets[{name!r}]: {error}") from None
        found[name] = {field: getattr(changed, field) for field in fields}
    return found


def _by_name(problem: Problem) -> dict[str, Any]:
    return targeted(problem.constraints or {}) | problem.tasks


def _fields(task: Any, target: Any) -> dict[str, Any]:
    """The fields that a target sets: the task's own target, unless they are named."""
    changeable = [f.name for f in dataclasses.fields(task) if "rank" in f.metadata]
    if isinstance(target, Mapping):
        for name in target:
            if name not in changeable:
                raise unknown_name(f"field of {type(task).__name__} that may change over time", str(name), changeable)
        ranks = {f.name: f.metadata["rank"] for f in dataclasses.fields(task) if f.name in changeable}
        return {name: _over_time(name, ranks[name], value) for name, value in target.items()}
    own = _target_field(task)
    if own not in changeable:
        raise JaxikError(
            f"{type(task).__name__} has no target: name what changes, one of {', '.join(changeable)}, in a dict"
        )
    return {own: target}


def _over_time(name: str, rank: Any, value: Any) -> Any:
    """A field as the task takes it: of the cost of rows, one number (T,) a step is that of all rows (T, 1)."""
    of_rows = rank == 1 and (name == "cost" or name.endswith("_cost"))
    return jnp.asarray(value)[:, None] if of_rows and np.ndim(value) == 1 else value


def _target_field(task: Any) -> str | None:
    """The field that holds a task's target; None of velocity tasks."""
    return task.target_field[0] if hasattr(task, "target_field") else None


def ranks_of(problem: Problem, values: Values) -> Any:
    """The core rank of each leaf of the values."""
    changed = _by_name(placed(problem, values))
    return {name: {f: getattr(core_ranks(changed[name]), f) for f in fields} for name, fields in values.items()}


def duration_of(problem: Problem, values: Values) -> int | None:
    """The number of steps T, the first axis of every leaf of the values; None where there is no value.

    Raises:
      JaxikError: where a leaf has no such axis, or they differ.
    """
    paths, _ = jax.tree_util.tree_flatten_with_path(values)
    lengths = {}
    for (path, leaf), rank in zip(paths, jax.tree.leaves(ranks_of(problem, values)), strict=True):
        where = jax.tree_util.keystr(path[:2], simple=True, separator=".")
        if np.ndim(leaf) <= rank:
            raise JaxikError(f"targets: {where} has shape {np.shape(leaf)}: its first axis is to be time, one a step")
        lengths[where] = np.shape(leaf)[0]
    if len(set(lengths.values())) > 1:
        raise JaxikError(f"targets: the first axis is time, of one length for all, not {lengths}")
    return next(iter(lengths.values()), None)


def placed(problem: Problem, values: Values) -> Problem:
    """The problem with these values in its tasks and constraints, which are not checked again."""

    def with_values(tasks: dict[str, Any], names: set[str]) -> dict[str, Any]:
        changed = dict(tasks)
        for name in names & tasks.keys():
            changed[name] = task = copy.copy(tasks[name])
            if isinstance(task, Elastic):
                set_fields(task, of=copy.copy(task.of))
                task = task.of
            set_fields(task, **values[name])
        return changed

    of_tasks = set(values) & problem.tasks.keys()
    placed = copy.copy(problem)
    set_fields(placed, tasks=with_values(problem.tasks, of_tasks))
    if problem.constraints is not None:
        set_fields(placed, constraints=with_values(problem.constraints, set(values) - of_tasks))
    return placed


def aimed_ahead(problem: Problem, before: Values, now: Values, feed_forward: jax.Array) -> Values:
    """Move each target on, so that a gain below 1 follows it without lag.

    A step closes the share `gain` of the way to what it aims at. Of a target that moves, it should close that share of
    what was left to where the target was, and all of the way that the target has gone since: that is the same share of
    the way to a point beyond the target, by (1 - gain) / gain of its last displacement.

    Args:
      before, now: where the targets were and are (*batch, ...).
      feed_forward (*batch,): the share of this that is done.
    """
    known, aims = _by_name(placed(problem, now)), {}
    for name, fields in now.items():
        task, own = known[name], _target_field(known[name])
        aims[name] = dict(fields)
        if own in fields:
            gain = jnp.asarray(task.gain)
            moves = gain > 0
            further = feed_forward * jnp.where(moves, (1 - gain) / jnp.where(moves, gain, 1), 0)
            rank = next(f.metadata["rank"] for f in dataclasses.fields(task) if f.name == own)
            aims[name][own] = _beyond(task, problem.robot, before[name][own], fields[own], further, rank)
    return aims


def _beyond(task: Any, robot: Robot, before: Any, now: Any, further: jax.Array, rank: int) -> Any:
    """A target moved on by the share `further` of its displacement; `now` itself where that is not finite."""

    def moved(before: Any, now: Any) -> Any:
        usable = _usable(before, rank) & _usable(now, rank)
        # What is no target has no derivative either: NaN times zero would be NaN in sums over a batch.
        before, here = (_where(usable, x, stand_in(x)) for x in (before, now))
        if isinstance(now, jaxlie.MatrixLieGroup):
            way = (before.normalize().inverse() @ here.normalize()).log()  # type: ignore[operator]
            aim = here @ type(now).exp(further[..., None] * way)  # type: ignore[operator]
        elif isinstance(task, PostureTask):
            aim = robot.integrate(here, further[..., None] * robot.difference(before, here))
        else:
            aim = here + further.reshape(*further.shape, *(1,) * rank) * (here - before)
        return _where(usable, aim, now)

    def stand_in(target: Any) -> Any:
        if isinstance(target, jaxlie.MatrixLieGroup):
            return type(target).identity(target.get_batch_axes())
        return jnp.broadcast_to(robot.q_home, target.shape) if isinstance(task, PostureTask) else jnp.zeros_like(target)

    is_group = lambda x: isinstance(x, jaxlie.MatrixLieGroup)  # noqa: E731
    return jax.tree.map(moved, before, now, is_leaf=is_group)


def _usable(target: Any, rank: int) -> jax.Array:
    """Whether a target (*batch,) is finite, and its rotation one."""
    if not isinstance(target, jaxlie.MatrixLieGroup):
        return jnp.all(jnp.isfinite(target), axis=tuple(range(-rank, 0)))
    numbers = target.parameters()
    rotation = numbers[..., : 4 if isinstance(target, jaxlie.SE3 | jaxlie.SO3) else 2]
    return jnp.all(jnp.isfinite(numbers), axis=-1) & (jnp.sum(rotation**2, axis=-1) > MINIMUM_NORM**2)


def _where(mask: jax.Array, yes: Any, no: Any) -> Any:
    """By a mask (*batch,), leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(*mask.shape, *(1,) * (a.ndim - mask.ndim)), a, b), yes, no)
