"""Independent chains of a problem: tasks, closures and joints that hang together, found by what they read."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.status import Status
from jaxik.kinematics.forward import forward
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.schedule import plan
from jaxik.limits.collision import KeptClear
from jaxik.results.chains import Chain, Part
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import Formulation, within_tolerance
from jaxik.solvers.nonlinear.hard_constraint import HardConstraint
from jaxik.tasks.base import Task
from jaxik.tasks.dependencies import dofs_read
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.posture import PostureTask
from jaxik.tasks.relative_frame import RelativeFrameTask
from jaxik.tasks.weights import row_weights


class _Item(NamedTuple):
    """What cannot be split: a task, or one constraint or joint of those that hold many.

    Attributes:
      part: of the residuals.
      label: its name; `closure`: whether it is one, or another constraint.
      dofs: degrees of freedom that it reads.
      joins: whether it joins them; of a posture each joint is on its own.
    """

    part: Part
    label: str
    closure: bool
    dofs: frozenset[int]
    joins: bool


def chains_of(prepared: Formulation) -> tuple[Chain, ...]:
    """The connected components of tasks and closures over the joints that they read, by their first joint."""
    robot, moving = prepared.problem.robot, prepared.moving
    read = _read(prepared)
    items = [item for name, task in prepared.problem.tasks.items() for item in _items(robot, name, task, read[name])]
    groups: list[set[int]] = []
    for item in items:
        if item.joins:
            _join(groups, item.dofs)
    joints = robot.topology.joints
    for i in moving.couplings:
        coupling = robot.topology.couplings[i]
        ends = [e for e in (coupling.follower, coupling.leader) if e is not None]
        if any(joints[e].v_index in group for e in ends for group in groups):
            _join(groups, (joints[e].v_index for e in ends))
    # Joints that nothing but a posture asks for are one chain together, where it can be met.
    left = [item for item in items if not item.joins and not any(item.dofs & group for group in groups)]
    if rest := {dof for item in left if _tolerated(prepared, item) or not groups for dof in item.dofs}:
        groups.append(rest)
    found = []
    for group in sorted(groups, key=lambda group: min(group, default=-1)):
        mine = [item for item in items if item.dofs & group or not (item.dofs or group)]
        found.append(
            Chain(
                goals=tuple(dict.fromkeys(item.label for item in mine if not item.closure)),
                joints=tuple(joint.name for joint in joints if group.intersection(joint.v_indices)),
                closures=tuple(dict.fromkeys(item.label for item in mine if item.closure)),
                parts=tuple(item.part for item in mine),
            )
        )
    return tuple(found)


def chain_status(
    prepared: Formulation, chains: Iterable[Chain], residuals: dict[str, Any], stationary: jax.Array
) -> jax.Array:
    """The status (n,) of each chain, as of a problem of its own, but for the stationarity of the whole."""
    tasks, statuses = prepared.problem.tasks, []
    for chain in chains:
        met, held, settled = jnp.ones((), bool), jnp.ones((), bool), jnp.ones((), bool)
        for part in chain.parts:
            task, error = tasks[part.task], residuals[part.task]
            weights = row_weights(task, error)
            if part.rows is not None:
                weights, error = weights[slice(*part.rows)], error[slice(*part.rows)]
            within = within_tolerance(task, weights, error)
            met, held = (met, held & within) if isinstance(task, HardConstraint) else (met & within, held)
            settled = settled if task.tolerances() is not None else stationary
        status = jnp.where(met & settled, Status.CONVERGED, jnp.where(stationary, Status.STALLED, Status.TIMEOUT))
        statuses.append(jnp.where(held, status, jnp.where(stationary, Status.INFEASIBLE, Status.TIMEOUT)))
    return jnp.stack(statuses).astype(jnp.int32)


def _join(groups: list[set[int]], dofs: Iterable[int]) -> None:
    """Join what shares a degree of freedom with these."""
    joined = set(dofs)
    for group in [group for group in groups if group & joined]:
        joined |= group
        groups.remove(group)
    if joined:
        groups.append(joined)


def _read(prepared: Formulation) -> dict[str, set[int]]:
    """The degrees of freedom that each task reads itself, traced once."""
    robot, read = prepared.problem.robot, dict[str, set[int]]()

    def look() -> None:
        kin = forward(prepared.constants, robot.q_home)
        read.update({name: dofs_read(task, robot, kin) for name, task in prepared.problem.tasks.items()})

    jax.eval_shape(look)
    return read


def _items(robot: Robot, name: str, task: Task, read: set[int]) -> list[_Item]:
    """Those of a task; none of limits, which are no goals."""
    hard = isinstance(task, HardConstraint)
    if isinstance(task, KeptClear) or (isinstance(task, HardConstraint) and task.one_sided):
        return []
    inner = task.task if isinstance(task, HardConstraint) else task
    if isinstance(inner, EqualityConstraintTask):
        ends, items = 0, []
        for equality in inner.equalities:
            start, ends = ends, ends + equality.num_rows
            one = EqualityConstraintTask((equality,))
            dofs = _dofs(robot, one, set(one.reads_dofs(robot)))
            items.append(_Item(Part(name, (start, ends)), equality.label, True, dofs, True))
        return items
    if isinstance(inner, PostureTask):
        own = [joint.v_indices for joint in robot.topology.joints if set(joint.v_indices) <= set(read)]
        return [_Item(Part(name, (v[0], v[-1] + 1)), name, hard, frozenset(v), False) for v in own]
    return [_Item(Part(name, None), name, hard, _dofs(robot, inner, read), True)]


def _dofs(robot: Robot, task: Task, read: set[int]) -> frozenset[int]:
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


def _moves(robot: Robot, frame: Frame) -> frozenset[int]:
    joints = plan(robot.topology, (frame,)).joints
    return frozenset(dof for joint in joints for dof in robot.topology.joints[joint].v_indices)


def _tolerated(prepared: Formulation, item: _Item) -> bool:
    return prepared.problem.tasks[item.part.task].tolerances() is not None
