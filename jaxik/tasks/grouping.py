"""Evaluate tasks of one type with one vmapped program.

A humanoid's feet, hands and head are frame tasks that differ in their frames and numbers alone. One by one each is a
program to compile; stacked, with the poses and Jacobians of their frames as data, they share one.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import FramesAt, Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.numerics.lie import Transform
from jaxik.tasks.base import Task


class Group(NamedTuple):
    """Tasks that differ in their frames and leaves alone, with their names."""

    names: tuple[str, ...]
    tasks: tuple[Task, ...]


def groups(tasks: dict[str, Task]) -> list[Group]:
    """Group tasks of one structure, in the order of the first of each group."""
    grouped: dict[Any, list[str]] = {}
    for name, task in tasks.items():
        generic = _generic(task)
        if generic is None:
            key: Any = name
        else:
            leaves, structure = jax.tree.flatten(generic)
            key = structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)
        grouped.setdefault(key, []).append(name)
    return [Group(tuple(names), tuple(tasks[name] for name in names)) for names in grouped.values()]


def vmap_group(function: Callable[..., Any], group: Group, kin: Kinematics, *others: Any) -> Any:
    """Apply a function of a task and an evaluated configuration to all tasks of a group, by `vmap`.

    Args:
      function: task, kin, *others -> pytree of arrays.
      others: pytrees of arrays with one leading axis, of the tasks.

    Returns:
      The pytree with that leading axis.
    """
    if len(group.tasks) == 1:
        one = function(group.tasks[0], kin, *jax.tree.map(lambda x: x[0], others))
        return jax.tree.map(lambda x: jnp.asarray(x)[None], one)
    fields = _frame_fields(group.tasks[0])
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *map(_generic, group.tasks))
    slots = [kin.frames_at([getattr(task, name) for task in group.tasks]) for name in fields]

    def of_one(task: Task, slots: Sequence[FramesAt], others: Any) -> Any:
        return function(task, _SlotKinematics(kin, slots), *others)

    return jax.vmap(of_one)(stacked, slots, others)


def map_tasks(function: Callable[..., Any], tasks: dict[str, Task], kin: Kinematics) -> dict[str, Any]:
    """Apply a function of a task and an evaluated configuration to each task, group by group."""
    grouped: dict[str, Any] = {}
    for group in groups(tasks):
        stacked = vmap_group(function, group, kin)
        grouped |= {name: jax.tree.map(lambda x, i=i: x[i], stacked) for i, name in enumerate(group.names)}
    return grouped


def _frame_fields(task: Task) -> tuple[str, ...]:
    """Names of the static fields of a task that hold a frame."""
    return tuple(name for name, value in vars(task).items() if isinstance(value, Frame))


def _generic(task: Task) -> Task | None:
    """The task with numbered slots in the place of its frames; None if its type is not `frames_batchable`."""
    # An attribute of the type itself: a derived type may do more with a frame.
    if not vars(type(task)).get("frames_batchable", False):
        return None
    fields = _frame_fields(task)
    generic = copy.copy(task)
    for i, name in enumerate(fields):
        object.__setattr__(generic, name, Frame("slot", i))
    return generic


class _SlotKinematics:
    """An evaluated configuration in which numbered slots stand for the frames of one task."""

    def __init__(self, kin: Kinematics, slots: Sequence[FramesAt]) -> None:
        self._kin = kin
        self._slots = slots

    def transform(self, frame: Frame) -> Transform:
        slot = self._slots[frame.index]
        return Transform(slot.rotation, slot.position)

    def pose(self, frame: Frame) -> Any:
        return self.transform(frame).to_se3()

    def jacobian_world_aligned(self, frame: Frame) -> tuple[jax.Array, jax.Array]:
        slot = self._slots[frame.index]
        return slot.linear, slot.angular

    def jacobian(self, frame: Frame) -> jax.Array:
        slot = self._slots[frame.index]
        back = slot.rotation.T
        return jnp.concatenate([back @ slot.linear, back @ slot.angular])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kin, name)
