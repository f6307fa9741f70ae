"""Independent chains of a problem: tasks, closures and joints that hang together, found by what they read."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.status import Status
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.schedule import plan
from jaxik.limits.collision import KeptClear
from jaxik.numerics.constants import unit_matrix
from jaxik.results.chains import Chain, Part
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import Formulation, within_tolerance
from jaxik.solvers.nonlinear.hard_constraint import HardConstraint, given_task
from jaxik.tasks.base import Task
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.posture import PostureTask
from jaxik.tasks.relative_frame import RelativeFrameTask
from jaxik.tasks.weights import pairs, row_weights

Group = frozenset[int]


class Item(NamedTuple):
    """What cannot be split: a task, or one constraint or joint of those that hold many.

    Attributes:
      part: of the residuals.
      label: its name; `closure`: whether it is one, or another constraint.
      dofs: degrees of freedom that it reads.
      joins: whether it joins them; of a posture each joint is on its own.
      switch: index of the constraint, if `Robot.with_active` may switch it.
    """

    part: Part
    label: str
    closure: bool
    dofs: Group
    joins: bool
    switch: int | None


class Slots(NamedTuple):
    """Chains with all that may be switched off, and what joins them where it is on.

    Attributes:
      chains: by their first joint.
      groups: degrees of freedom of each.
      switches: indices of constraints, and the places of the chains that each of them joins.
    """

    chains: tuple[Chain, ...]
    groups: tuple[Group, ...]
    switches: tuple[tuple[int, tuple[int, ...]], ...]


class Ends(NamedTuple):
    """How the steps of each chain (n,) of its own have ended, and how many they were."""

    stationary: jax.Array
    iterations: jax.Array


def items_of(prepared: Formulation) -> list[Item]:
    """All tasks and constraints of a problem."""
    tasks, robot = prepared.problem.tasks.items(), prepared.problem.robot
    return [
        item
        for (name, task), read in zip(tasks, prepared.reads, strict=True)
        for item in _items(robot, name, task, read.dofs)
    ]


def joined(prepared: Formulation, items: Sequence[Item]) -> list[Group]:
    """The connected components of these over the joints that they read, by their first joint."""
    groups: list[set[int]] = []
    for item in items:
        if item.joins:
            _join(groups, item.dofs)
    topology = prepared.problem.robot.topology
    for i in prepared.moving.couplings:
        coupling = topology.couplings[i]
        ends = [topology.joints[e].v_index for e in (coupling.follower, coupling.leader) if e is not None]
        if any(end in group for end in ends for group in groups):
            _join(groups, ends)
    return sorted(map(frozenset, groups), key=lambda group: min(group))


def branches(prepared: Formulation) -> list[Group]:
    """Degrees of freedom that hang together but for those that all tasks read: the arms above a torso."""
    items = [item for item in items_of(prepared) if item.joins and item.dofs]
    common = frozenset.intersection(*(item.dofs for item in items)) if items else frozenset[int]()
    return joined(prepared, [item._replace(dofs=item.dofs - common) for item in items])


def slots_of(prepared: Formulation) -> Slots:
    """The chains of a problem, with every closure that may be switched off."""
    items, joints = items_of(prepared), prepared.problem.robot.topology.joints
    groups = joined(prepared, [item for item in items if item.switch is None])
    switched = [item for item in items if item.switch is not None]
    # Joints that closures alone read are chains by which of them do.
    by_readers: dict[tuple[int, ...], set[int]] = {}
    for dof in frozenset().union(*(item.dofs for item in switched)).difference(*groups):
        readers = tuple(i for i, item in enumerate(switched) if dof in item.dofs)
        by_readers.setdefault(readers, set()).add(dof)
    groups += map(frozenset, by_readers.values())
    # Joints that nothing but a posture asks for are one chain together, where it can be met.
    left = [item for item in items if not item.joins and not any(item.dofs & group for group in groups)]
    if rest := {dof for item in left if _tolerated(prepared, item) or not groups for dof in item.dofs}:
        groups.append(frozenset(rest))
    groups = sorted(groups, key=lambda group: min(group, default=-1)) or [frozenset[int]()]
    found, switches = [], []
    for place, group in enumerate(groups):
        # What no joint moves is of no chain, where there are several.
        mine = [item for item in items if item.dofs & group or not (item.dofs or len(groups) > 1)]
        # What joins several is counted in the first of them.
        own = [item for item in mine if item.switch is None or not any(item.dofs & g for g in groups[:place])]
        found.append(
            Chain(
                goals=tuple(dict.fromkeys(item.label for item in mine if not item.closure)),
                joints=tuple(joint.name for joint in joints if group.intersection(joint.v_indices)),
                closures=tuple(dict.fromkeys(item.label for item in mine if item.closure)),
                parts=tuple(item.part for item in own),
            )
        )
    for item in switched:
        places = tuple(i for i, group in enumerate(groups) if item.dofs & group)
        if item.switch is not None and len(places) > 1:
            switches.append((item.switch, places))
    return Slots(tuple(found), tuple(groups), tuple(switches))


def connected(prepared: Formulation, slots: Slots) -> jax.Array:
    """Whether two of the chains are one (n, n), by the closures that are on."""
    count = len(slots.chains)
    touched = np.zeros((len(slots.switches), count))
    for row, (_, places) in enumerate(slots.switches):
        touched[row, list(places)] = 1
    flags = prepared.problem.robot.equality_active
    assert flags is not None
    active = jnp.stack([flags[index] for index, _ in slots.switches])
    reach = unit_matrix(count, dtype=flags.dtype) + (touched.T * active) @ touched
    for _ in range((count - 1).bit_length()):
        reach = jnp.where(reach @ reach > 0, 1, 0).astype(flags.dtype)
    return reach > 0


def chain_status(
    prepared: Formulation, slots: Slots, residuals: dict[str, Any], ends: Ends
) -> tuple[jax.Array, jax.Array | None]:
    """The status (n,) of each chain, as of a problem of its own; and the first of those (n,) that are one with it."""
    each = [_of_chain(prepared, chain, residuals) for chain in slots.chains]
    settled, met, held, finite = (jnp.stack(x) for x in zip(*each, strict=True))
    stationary, label = ends.stationary, None
    if slots.switches:
        one = connected(prepared, slots)
        settled, met, held, finite, stationary = (
            jnp.all(~one | x, axis=1) for x in (settled, met, held, finite, stationary)
        )
        label = jnp.argmax(one, axis=1).astype(jnp.int32)
    status = jnp.where(
        met & (settled | stationary), Status.CONVERGED, jnp.where(stationary, Status.STALLED, Status.TIMEOUT)
    )
    status = jnp.where(held, status, jnp.where(stationary, Status.INFEASIBLE, Status.TIMEOUT))
    status = jnp.where(finite, status, Status.NONFINITE)
    return status.astype(jnp.int32), label


def _of_chain(prepared: Formulation, chain: Chain, residuals: dict[str, Any]) -> tuple[jax.Array, ...]:
    """Whether a chain ends at its tolerances (), its goals are met (), its closures (), and all of it is finite ()."""
    yes, settled, tasks = jnp.ones((), bool), True, prepared.problem.tasks
    met, held, finite = yes, yes, yes
    for part in chain.parts:
        task = tasks[part.task]
        weights, error = _rows_of_part(task, part, residuals[part.task])
        finite = finite & jnp.all(jnp.array([jnp.all(jnp.isfinite(w * e)) for w, e in pairs(weights, error)]))
        if isinstance(task, HardConstraint) and task.penalty is not None:
            settled = False
            continue
        within = part_met(task, part, residuals[part.task])
        met, held = (met, held & within) if isinstance(task, HardConstraint) else (met & within, held)
        settled = settled and task.tolerances() is not None
    return jnp.full((), settled), met, held, finite


def part_met(task: Task, part: Part, error: Any) -> jax.Array:
    """Whether a part of what a task reports is within its tolerance ()."""
    return within_tolerance(task, *_rows_of_part(task, part, error))


def _rows_of_part(task: Task, part: Part, error: Any) -> tuple[Any, Any]:
    """Costs of the rows of a part, and what the task reports of them."""
    weights = row_weights(task, error)
    return (weights, error) if part.rows is None else (weights[slice(*part.rows)], error[slice(*part.rows)])


def _join(groups: list[set[int]], dofs: Iterable[int]) -> None:
    """Join what shares a degree of freedom with these."""
    joined = set(dofs)
    for group in [group for group in groups if group & joined]:
        joined |= group
        groups.remove(group)
    if joined:
        groups.append(joined)


def _items(robot: Robot, name: str, task: Task, read: Group) -> list[Item]:
    """Those of a task; none of limits, which are no goals."""
    hard = isinstance(task, HardConstraint)
    if isinstance(task, KeptClear) or (isinstance(task, HardConstraint) and task.one_sided):
        return []
    inner = given_task(task)
    if isinstance(inner, EqualityConstraintTask):
        ends, items = 0, []
        for equality in inner.equalities:
            start, ends = ends, ends + equality.num_rows
            one = EqualityConstraintTask((equality,))
            dofs = _dofs(robot, one, frozenset(one.reads_dofs(robot)))
            switch = None if robot.equality_active is None else equality.index
            items.append(Item(Part(name, (start, ends)), equality.label, True, dofs, True, switch))
        return items
    if isinstance(inner, PostureTask):
        own = [joint.v_indices for joint in robot.topology.joints if read.issuperset(joint.v_indices)]
        return [Item(Part(name, (v[0], v[-1] + 1)), name, hard, frozenset(v), False, None) for v in own]
    return [Item(Part(name, None), name, hard, _dofs(robot, inner, read), True, None)]


def _dofs(robot: Robot, task: Task, read: Group) -> Group:
    """Degrees of freedom that a residual depends on, with those that it reads itself."""
    by_frame = [_moves(robot, frame) for frame in task.frames_of(robot)]
    relative = isinstance(task, RelativeFrameTask) or (
        isinstance(task, EqualityConstraintTask) and task.equalities[0].kind != "tendon"
    )
    # What carries both frames does not move one against the other.
    moved = by_frame[0] ^ by_frame[1] if relative and len(by_frame) == 2 else frozenset().union(*by_frame)
    roots = [robot.topology.body_index(root) if isinstance(root, str) else root for root in task.subtrees]
    joints = plan(robot.topology, (), tuple(roots)).joints if roots else ()
    return moved | read | {dof for joint in joints for dof in robot.topology.joints[joint].v_indices}


def _moves(robot: Robot, frame: Frame) -> Group:
    joints = plan(robot.topology, (frame,)).joints
    return frozenset(dof for joint in joints for dof in robot.topology.joints[joint].v_indices)


def _tolerated(prepared: Formulation, item: Item) -> bool:
    return prepared.problem.tasks[item.part.task].tolerances() is not None
