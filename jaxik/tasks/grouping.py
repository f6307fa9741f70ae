"""Tasks of one kind are evaluated side by side, by one program.

A humanoid's feet, hands and head are frame tasks that differ in their frames and numbers alone. Written out one by one
they are as many programs to compile; stacked, with the frames' poses and Jacobians as data, they are one.
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
    """Tasks that differ in their frames and leaves alone: their names, and the tasks."""

    names: tuple[str, ...]
    tasks: tuple[Task, ...]


def groups(tasks: dict[str, Task]) -> list[Group]:
    """Put tasks that are alike together, in the order of their first ones."""
    found: dict[Any, list[str]] = {}
    for name, task in tasks.items():
        seated = _seated(task)
        if seated is None:
            key: Any = name
        else:
            leaves, structure = jax.tree.flatten(seated)
            key = structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves)
        found.setdefault(key, []).append(name)
    return [Group(tuple(names), tuple(tasks[name] for name in names)) for names in found.values()]


def vmap_group(function: Callable[..., Any], group: Group, kin: Kinematics, *others: Any) -> Any:
    """Apply a function of a task, an evaluated configuration and more to all tasks of a group.

    Args:
      function: task, kin, *others -> pytree of arrays.
      others: pytrees of arrays with one leading axis, of the tasks.

    Returns:
      The pytree with that leading axis.
    """
    if len(group.tasks) == 1:
        one = function(group.tasks[0], kin, *jax.tree.map(lambda x: x[0], others))
        return jax.tree.map(lambda x: jnp.asarray(x)[None], one)
    seats = _seats(group.tasks[0])
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *map(_seated, group.tasks))
    slots = [kin.frames_at([getattr(task, name) for task in group.tasks]) for name in seats]

    def of_one(task: Task, slots: Sequence[FramesAt], others: Any) -> Any:
        return function(task, _Seated(kin, slots), *others)

    return jax.vmap(of_one)(stacked, slots, others)


def map_tasks(function: Callable[..., Any], tasks: dict[str, Task], kin: Kinematics) -> dict[str, Any]:
    """A function of a task and an evaluated configuration applied to each, those that are alike side by side."""
    found: dict[str, Any] = {}
    for group in groups(tasks):
        stacked = vmap_group(function, group, kin)
        found |= {name: jax.tree.map(lambda x, i=i: x[i], stacked) for i, name in enumerate(group.names)}
    return found


def _seats(task: Task) -> tuple[str, ...]:
    """Names of the static fields of a task that hold a frame."""
    return tuple(name for name, value in vars(task).items() if isinstance(value, Frame))


def _seated(task: Task) -> Task | None:
    """The task with numbered seats in the place of its frames; None where its type does not say that it allows that."""
    # Of the type itself: one derived from it may do more with a frame.
    if not vars(type(task)).get("frames_batchable", False):
        return None
    seats = _seats(task)
    seated = copy.copy(task)
    for i, name in enumerate(seats):
        object.__setattr__(seated, name, Frame("seat", i))
    return seated


class _Seated:
    """An evaluated configuration in which seats stand for one task's frames."""

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
