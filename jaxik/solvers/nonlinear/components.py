"""Components of a problem that are independent for good, and what of the robot and of the tasks belongs to each.

Chains that a switched closure may join are one component. What moves a component's frames is its own, so that it is a
problem of its own, of a robot without all else; components that are alike differ in numbers alone.
"""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxik.core.pytree import core_ranks, shapes_of_one
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.topology import WORLD, Topology, joint_parent
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.problem.problem import Problem, limits_of
from jaxik.robot.trimming import Kept, frame_of, topology_of
from jaxik.solvers.nonlinear.chain_blocks import Split, split_of
from jaxik.solvers.nonlinear.chains import Group, Item, Slots, slots_of
from jaxik.solvers.nonlinear.formulation import formulation
from jaxik.solvers.nonlinear.hard_constraint import HardConstraint, given_task, may_yield
from jaxik.tasks.base import Task
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.posture import PostureTask


class Share(NamedTuple):
    """What a component has of a task.

    Attributes:
      name: of the task.
      rows: those of its residual, where components share it; None: all.
      equalities: their indices among the task's, where it has some.
    """

    name: str
    rows: tuple[int, ...] | None = None
    equalities: tuple[int, ...] = ()


class Component(NamedTuple):
    """A component: what it keeps of the robot, its shares of tasks, and the places of its chains among all."""

    kept: Kept
    shares: tuple[Share, ...]
    chains: tuple[int, ...]


class Components(NamedTuple):
    """The components of a problem, those that are alike together, and all its chains."""

    kinds: tuple[tuple[Component, ...], ...]
    slots: Slots


def components_of(problem: Problem) -> Components | None:
    """The components of a problem (leaves may have batch axes); None where none is like another, or they hang together.

    What yields, limits on frames or distances, tasks that no joint moves, that read joints or centres of mass, or whose
    class may do more with a frame than look at its pose, and frames that move with joints of another component keep a
    problem together.
    """
    topology = problem.robot.topology
    roots = [j for j in range(len(topology.joints)) if joint_parent(topology, j) == WORLD]
    apart = all(type(limit) is ConfigurationLimit or limit.velocity_level for limit in limits_of(problem))
    if len(roots) < 2 or not apart or may_yield(problem) or not all(map(_divisible, problem.tasks.values())):
        return None
    found: list[tuple[Split, Slots]] = []

    def look(problem: Problem) -> None:
        prepared = formulation(problem)
        split = split_of(prepared)
        if split is not None:
            found.append((split, slots_of(prepared)))

    shapes_of_one(look, problem)
    if not found:
        return None
    split, slots = found[0]
    parts = list(zip(split.groups, split.items, strict=True))
    if not all(_stands_alone(topology, problem, *part) for part in parts):
        return None
    kinds: dict[Any, list[tuple[Group, tuple[Item, ...]]]] = {}
    for group, items in parts:
        kinds.setdefault(_likeness(problem, _component(problem, slots, group, items)), []).append((group, items))
    repeated = [members for members in kinds.values() if len(members) > 1]
    if not repeated:
        return None
    each = [tuple(_component(problem, slots, *part) for part in members) for members in repeated]
    # What is like nothing else is one problem together.
    if left := [part for members in kinds.values() if len(members) == 1 for part in members]:
        items = tuple(dict.fromkeys(item for _, own in left for item in own))
        each.append((_component(problem, slots, frozenset().union(*(group for group, _ in left)), items),))
    return Components(tuple(each), slots)


def tasks_of(problem: Problem, component: Component) -> dict[str, Task]:
    """A component's shares as tasks on what it keeps of the robot, by numbers; their leaves are the problem's."""
    return {f"{i:03}": _on(problem, component.kept, share) for i, share in enumerate(component.shares)}


def _divisible(task: Task) -> bool:
    """Whether a task has shares, or may be moved to a part of its robot: it looks at its frames alone."""
    inner = given_task(task)
    return type(inner) in (PostureTask, EqualityConstraintTask) or vars(type(inner)).get("frames_batchable", False)


def _frames(problem: Problem, items: Sequence[Item]) -> list[Frame]:
    frames: list[Frame] = []
    for item in items:
        task = problem.tasks[item.part.task]
        inner = given_task(task)
        if isinstance(inner, EqualityConstraintTask):
            frames += _equality(inner, item).frames
        else:
            frames += inner.frames_of(problem.robot)
    return frames


def _equality(task: EqualityConstraintTask, item: Item) -> Equality:
    """The constraint that an item of the task is."""
    return task.equalities[_place(task, item)]


def _place(task: EqualityConstraintTask, item: Item) -> int:
    start = 0
    for place, equality in enumerate(task.equalities):
        if item.part.rows == (start, start + equality.num_rows):
            return place
        start += equality.num_rows
    raise AssertionError


def _stands_alone(topology: Topology, problem: Problem, group: Group, items: tuple[Item, ...]) -> bool:
    """Whether a component's own joints are all that moves its frames."""
    above = _with_parents(topology, (topology.frame_body(frame) for frame in _frames(problem, items)))
    return all(group.issuperset(joint.v_indices) for joint in topology.joints if joint.body in above)


def _with_parents(topology: Topology, bodies: Any) -> set[int]:
    found = {0}
    for body in bodies:
        while body not in found:
            found.add(body)
            body = topology.body_parents[body]
    return found


def _component(problem: Problem, slots: Slots, group: Group, items: tuple[Item, ...]) -> Component:
    topology = problem.robot.topology
    joints = [j for j, joint in enumerate(topology.joints) if group.issuperset(joint.v_indices)]
    frames = _frames(problem, items)
    shares = _shares(problem, joints, items)
    held = {e.index for share in shares for e in _equalities(problem, share)}
    coupled = {e.index for e in topology.equalities if e.active and e.kind == "joint" and set(e.members) <= set(joints)}
    equalities = sorted(held | coupled)
    tendons = {m for i in held if (e := topology.equalities[i]).kind == "tendon" for m in e.members}
    bodies = [topology.joints[j].body for j in joints] + [topology.frame_body(frame) for frame in frames]
    bodies += [body for i in equalities for body in topology.equalities[i].bodies]
    kept = Kept(
        bodies=sorted(_with_parents(topology, bodies)),
        joints=joints,
        sites=sorted({frame.index for frame in frames if frame.kind == "site"}),
        geoms=sorted({frame.index for frame in frames if frame.kind == "geom"}),
        tendons=sorted(tendons),
        equalities=equalities,
    )
    return Component(kept, shares, tuple(i for i, own in enumerate(slots.groups) if own & group))


def _shares(problem: Problem, joints: list[int], items: tuple[Item, ...]) -> tuple[Share, ...]:
    """By the names of tasks, in the order of their items."""
    by_name: dict[str, list[Item]] = {}
    for item in items:
        by_name.setdefault(item.part.task, []).append(item)
    shares = []
    for name, own in sorted(by_name.items()):
        task = problem.tasks[name]
        inner = given_task(task)
        rows = None if own[0].part.rows is None else tuple(i for item in own for i in range(*(item.part.rows or ())))
        if isinstance(inner, PostureTask):
            rows = tuple(i for j in joints for i in problem.robot.topology.joints[j].v_indices)
        of = tuple(_place(inner, item) for item in own) if isinstance(inner, EqualityConstraintTask) else ()
        shares.append(Share(name, rows, of))
    return tuple(shares)


def _equalities(problem: Problem, share: Share) -> tuple[Equality, ...]:
    task = problem.tasks[share.name]
    inner = given_task(task)
    return tuple(inner.equalities[i] for i in share.equalities) if share.equalities else ()  # type: ignore[attr-defined]


def _on(problem: Problem, kept: Kept, share: Share) -> Task:
    """A share on what is kept: its frames and constraints there; the leaves of a posture are not cut."""
    task = problem.tasks[share.name]
    if isinstance(task, HardConstraint):
        inner = _on_part(problem, kept, share, task.task)
        return dataclasses.replace(task, task=inner)
    return _on_part(problem, kept, share, task)


def _on_part(problem: Problem, kept: Kept, share: Share, task: Task) -> Task:
    own = topology_of(problem.robot.topology, kept)
    if isinstance(task, EqualityConstraintTask):
        held = tuple(own.equalities[kept.equalities.index(e.index)] for e in _equalities(problem, share))
        return _replaced(task, equalities=held)
    frames = {name: value for name, value in vars(task).items() if isinstance(value, Frame)}
    return _replaced(task, **{name: frame_of(kept, frame) for name, frame in frames.items()})


def _replaced(task: Task, **fields: Any) -> Task:
    """The task with other static fields, which is not checked again."""
    changed = copy.copy(task)
    for name, value in fields.items():
        object.__setattr__(changed, name, value)
    return changed


def _likeness(problem: Problem, component: Component) -> Any:
    """What components have in common that differ in numbers alone."""
    tasks, likeness = tasks_of(problem, component), list[Any]()
    for share, task in zip(component.shares, tasks.values(), strict=True):
        leaves = zip(jax.tree.leaves(task), jax.tree.leaves(core_ranks(task)), strict=True)
        cores = tuple((np.shape(x)[max(np.ndim(x) - rank, 0) :], jax.numpy.result_type(x)) for x, rank in leaves)
        # Rows of what components share are of one task.
        likeness.append((None if share.rows is None else share.name, jax.tree.structure(task), cores))
    return topology_of(problem.robot.topology, component.kept), tuple(likeness), len(component.chains)
