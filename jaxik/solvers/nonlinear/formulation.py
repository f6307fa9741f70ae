"""Formulate a problem for one element, and stack and weight its tasks at a configuration."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.link_constants import Segments
from jaxik.kinematics.manifold import clamp, integrate, snap_to_limits
from jaxik.kinematics.reduced import Coordinates, apply_couplings_clipped, coordinates, tighten_leader_limits
from jaxik.numerics.constants import unit_matrix
from jaxik.problem.problem import Level, Problem, constants_of, effective_joint_limits, levels
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.box import Box, from_box
from jaxik.solvers.nonlinear.elastic_joints import ElasticJoints, with_elastic_joints
from jaxik.solvers.nonlinear.hard_constraint import HardConstraint
from jaxik.solvers.nonlinear.slack_variables import with_slack
from jaxik.tasks.base import SecondOrder, Task, second_derivative_of, second_order
from jaxik.tasks.dependencies import Reading, reading
from jaxik.tasks.grouping import Group, groups, map_tasks, vmap_group
from jaxik.tasks.weights import pairs, row_weights, weighted_rows


@pytree
class Formulation:
    """A problem of one element with the constants of its solution.

    Attributes:
      robot: with the problem's limits, those of leaders tightened so that their followers keep theirs. Where joint
        limits yield, inside these; `in_cells` and `in_whole_range` have others. Steps keep them.
      constants: of the kinematics that the tasks read.
      moving: the reduced coordinates: degrees of freedom that the tasks depend on; static.
      reads: of each task the degrees of freedom that it reads itself, and how many rows it has; static.
      elastic, cells (n,): joint limits that yield, and where coordinates are between them; None where limits hold.

    The slacks come after the robot's own coordinates; tasks do not see them.
    """

    problem: Problem = leaf()
    robot: Robot = leaf()
    constants: Segments = leaf()
    moving: Coordinates = static()
    reads: tuple[Reading, ...] = static()
    elastic: ElasticJoints | None = leaf(default=None)
    cells: jax.Array | None = leaf(1, default=None)

    @property
    def slack(self) -> tuple[str, ...]:
        """Names of the tasks with a slack: their residuals are to equal it, not zero."""
        return one_sided(self.problem)

    @property
    def dof_mask(self) -> jax.Array | None:
        """The problem's mask (n,), True for slacks."""
        mask = self.problem.dof_mask
        return mask if mask is None else jnp.concatenate([mask, jnp.ones(len(self.slack), bool)])

    @property
    def levels(self) -> tuple[Level, ...]:
        """Names of the tasks of each priority, the highest first."""
        return levels(self.problem)

    @property
    def task_level(self) -> int:
        """Which of the levels is that of the tasks of the highest priority: constraints come before."""
        return 1 if hard_constraints(self.problem) else 0


def hard_constraints(problem: Problem) -> Level:
    """Names of the hard constraints, which come before all tasks."""
    return tuple(name for name, task in problem.tasks.items() if isinstance(task, HardConstraint))


def soft_tasks(problem: Problem) -> Level:
    """Names of the tasks of all priorities, without hard constraints."""
    return tuple(name for name, task in problem.tasks.items() if not isinstance(task, HardConstraint))


def one_sided(problem: Problem) -> tuple[str, ...]:
    return tuple(name for name, task in problem.tasks.items() if isinstance(task, HardConstraint) and task.one_sided)


def formulation(problem: Problem) -> Formulation:
    """Apply the limits and compute the constants of the kinematics."""
    robot = problem.robot
    constants = constants_of(robot, problem.tasks.values())
    slack = one_sided(problem)
    limits = with_slack(effective_joint_limits(problem), len(slack))
    reads = _reads(problem, constants)
    # And those that move the frames and subtrees of tasks.
    used = {dof for joint in constants.plan.joints for dof in robot.topology.joints[joint].v_indices}
    used = used.union(range(robot.nv, limits.nv), *(read.dofs for read in reads))
    moving = coordinates(limits.topology, used, hold_couplings=problem.constraints is None)
    holding = tighten_leader_limits(limits, moving)
    inside, elastic = with_elastic_joints(
        problem, holding, moving, lambda robot: tighten_leader_limits(with_slack(robot, len(slack)), moving)
    )
    cells = None if elastic is None else jnp.zeros(len(moving.own), jnp.int32)
    return Formulation(problem, inside, constants, moving, reads, elastic, cells)


def in_cells(prepared: Formulation, cells: jax.Array | None) -> Formulation:
    """The formulation with coordinates in their cells (n,); as it is where no joint limit yields."""
    if prepared.elastic is None or cells is None:
        return prepared
    elastic = prepared.elastic
    return dataclasses.replace(prepared, robot=elastic.limiting(prepared.robot, elastic.ends(cells)), cells=cells)


def in_whole_range(prepared: Formulation, whole: jax.Array) -> Formulation:
    """The formulation with coordinates up to the limits that hold, where `whole` (); else inside those that yield."""
    if (elastic := prepared.elastic) is None:
        return prepared
    ends = jnp.where(whole, elastic.least, elastic.lower), jnp.where(whole, elastic.most, elastic.upper)
    return dataclasses.replace(prepared, robot=elastic.limiting(prepared.robot, ends))


def inside_elastic_limits(prepared: Formulation, q: jax.Array) -> jax.Array:
    """Whether no joint is beyond a limit that yields ()."""
    return jnp.asarray(True) if prepared.elastic is None else jnp.all(prepared.elastic.excess(q) == 0)


def _reads(problem: Problem, constants: Segments) -> tuple[Reading, ...]:
    """What each task reads itself."""
    robot, reads = problem.robot, list[Reading]()

    def look() -> None:
        kin = forward(constants, robot.q_home)
        reads.extend(reading(task, robot, kin) for task in problem.tasks.values())

    jax.eval_shape(look)
    return tuple(reads)


def retract(prepared: Formulation, q: jax.Array, limits: Box, displacement: jax.Array) -> jax.Array:
    """Retract a displacement of the box coordinates: the configuration (nq,), inside the limits."""
    robot, moving = prepared.robot, prepared.moving
    tangent = from_box(moving, limits, displacement)
    return apply_couplings_clipped(robot, moving, snap_to_limits(robot, q, integrate(robot.topology, q, tangent)))


def project_start(prepared: Formulation, q: jax.Array) -> jax.Array:
    """Project a start (nq,) onto limits and couplings, and append its slacks."""
    slacks = jnp.zeros(len(prepared.slack), q.dtype)
    q = apply_couplings_clipped(prepared.robot, prepared.moving, clamp(prepared.robot, jnp.concatenate([q, slacks])))
    if not prepared.slack:
        return q
    seen = distances(prepared, evaluate(prepared, q))
    return jnp.concatenate([q[: -len(prepared.slack)], jnp.maximum(seen, 0)])


class Rows(NamedTuple):
    """The tasks of a level at one configuration, stacked and weighted: 1/2 |residual|^2 is the objective.

    Attributes:
      residual (m,), jacobian (m, nv): weighted with the costs.
    """

    residual: jax.Array
    jacobian: jax.Array


def evaluate(prepared: Formulation, q: jax.Array) -> Kinematics:
    """One forward kinematics for all tasks and limits."""
    return dataclasses.replace(forward(prepared.constants, q[: prepared.problem.robot.nq]), q=q)


def without_slack(prepared: Formulation, kin: Kinematics) -> Kinematics:
    """The kinematics that tasks see: the configuration without slacks."""
    return dataclasses.replace(kin, q=kin.q[: prepared.problem.robot.nq]) if prepared.slack else kin


def task_groups(prepared: Formulation, level: Level) -> list[Group]:
    """The tasks of a level in the order in which their rows stack."""
    return groups({name: prepared.problem.tasks[name] for name in level})


def rows(prepared: Formulation, kin: Kinematics, level: Level) -> Rows:
    """Stack and weight the tasks of a level at one evaluated configuration."""
    robot = prepared.problem.robot

    def of_task(task: Task, kin: Kinematics) -> tuple[jax.Array, jax.Array]:
        return weighted_rows(task, task.residual(robot, kin), task.jacobian(robot, kin))

    own = without_slack(prepared, kin)
    if not level:
        return Rows(jnp.zeros(0, kin.q.dtype), jnp.zeros((0, prepared.robot.nv), kin.q.dtype))
    parts = [vmap_group(of_task, group, own) for group in task_groups(prepared, level)]
    residual = jnp.concatenate([jnp.ravel(residual) for residual, _ in parts])
    jacobian = jnp.concatenate([jacobian.reshape(-1, robot.nv) for _, jacobian in parts])
    if prepared.slack:
        ends = {group.names: jnp.size(part[0]) for group, part in zip(task_groups(prepared, level), parts, strict=True)}
        minus = _minus_slack(prepared, ends, residual.dtype)
        residual = residual + minus @ kin.q[robot.nq :]
        jacobian = jnp.concatenate([jacobian, minus], axis=1)
    return Rows(residual, jacobian)


def row_spans(prepared: Formulation, level: Level) -> dict[str, range]:
    """Of each task of a level its rows among those of the level."""
    spans, end = dict[str, range](), 0
    sizes = {name: read.size for name, read in zip(prepared.problem.tasks, prepared.reads, strict=True)}
    for name in (name for group in task_groups(prepared, level) for name in group.names):
        start, end = end, end + sizes[name]
        spans[name] = range(start, end)
    return spans


def count_rows(prepared: Formulation, level: Level) -> int:
    return sum(map(len, row_spans(prepared, level).values()))


def rows_that_count(prepared: Formulation, kin: Kinematics, level: Level, held: Level, alone: jax.Array) -> jax.Array:
    """1 for the rows (m,) of a level that count, 0 for those of tasks other than `held` where these count alone ()."""
    spans = row_spans(prepared, level)
    other = np.ones(sum(map(len, spans.values())), bool)
    for name in held:
        other[list(spans[name])] = False
    return jnp.where(alone & other, 0, 1).astype(kin.q.dtype)


def _minus_slack(prepared: Formulation, sizes: dict[Level, int], dtype: Any) -> jax.Array:
    """Jacobian (m, k) of the weighted rows of groups by the slacks; `sizes` are their numbers of rows."""
    blocks = []
    for names, size in sizes.items():
        block = jnp.zeros((size, len(prepared.slack)), dtype)
        if names[0] in prepared.slack:
            task, place = prepared.problem.tasks[names[0]], prepared.slack.index(names[0])
            weight = jnp.reshape(jnp.asarray(task.weights(), dtype), ())
            block = -weight * unit_matrix(1, len(prepared.slack), place, dtype=dtype)
        blocks.append(block)
    return jnp.concatenate(blocks)


class QuadraticModel(NamedTuple):
    """A level's objective to second order: gradient (n,) and Hessian (n, n) of 1/2 |residual|^2 along `integrate`."""

    gradient: jax.Array
    hessian: jax.Array


def quadratic_model(prepared: Formulation, kin: Kinematics, found: Rows, level: Level) -> QuadraticModel:
    """Expand the objective of a level to second order at one evaluated configuration, given its rows there."""
    hessian = found.jacobian.T @ found.jacobian + curvature(prepared, kin, level, found.residual)
    return QuadraticModel(found.residual @ found.jacobian, hessian)


def curvature(
    prepared: Formulation, kin: Kinematics, level: Level, cotangent: jax.Array, exact: bool = False
) -> jax.Array:
    """Second derivative (nv, nv) of cotangent . residual along `integrate`, of a level's weighted residual (m,).

    By `exact` as derivatives of solutions need it: steps leave some of it out.
    """
    kin, slacks = without_slack(prepared, kin), len(prepared.slack)
    tasks = {name: prepared.problem.tasks[name] for name in level}
    total = curvature_of(prepared.problem.robot, tasks, kin, cotangent, exact)
    return jnp.pad(total, (0, slacks)) if slacks else total


def curvature_of(
    robot: Robot, tasks: dict[str, Task], kin: Kinematics, cotangent: jax.Array, exact: bool = False
) -> jax.Array:
    """Second derivative (nv, nv) of cotangent . residual along `integrate`, of weighted residuals (m,) by groups."""
    total, start = jnp.zeros((robot.nv, robot.nv), kin.q.dtype), 0

    def of_task(task: Task, kin: Kinematics, cotangent: jax.Array) -> SecondOrder:
        weights, structure = jax.tree.flatten(row_weights(task, task.residual(robot, kin)))
        ends = list(itertools.accumulate((w.size for w in weights), initial=0))
        parts = [
            w * cotangent[a:b].reshape(w.shape) for w, (a, b) in zip(weights, itertools.pairwise(ends), strict=True)
        ]
        return second_order(task, robot, kin, jax.tree.unflatten(structure, parts), exact)

    for group in groups(tasks):
        first, count = group.tasks[0], len(group.tasks)
        residual = jax.eval_shape(lambda first=first: first.residual(robot, kin))
        size = sum(x.size for x in jax.tree.leaves(residual))
        parts = cotangent[start : start + count * size].reshape(count, size)
        found = vmap_group(of_task, group, kin, parts)
        # Of several frames one cross product for each pair of joints, and not one for each frame.
        total = total + second_derivative_of(kin, found if count > 1 else jax.tree.map(lambda x: x[0], found))
        start += count * size
    return total


def met(prepared: Formulation, errors: dict[str, Any], level: Level) -> jax.Array:
    """Whether every task of a level that has a tolerance meets it, given the reported errors."""
    tasks = prepared.problem.tasks
    return jnp.all(jnp.stack([within_tolerance(tasks[n], row_weights(tasks[n], errors[n]), errors[n]) for n in level]))


def within_tolerance(task: Task, weights: Any, error: Any) -> jax.Array:
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


def errors(prepared: Formulation, kin: Kinematics) -> dict[str, Any]:
    """The error that each task reports at one evaluated configuration."""
    robot, tasks = prepared.problem.robot, prepared.problem.tasks
    kin = without_slack(prepared, kin)
    found = map_tasks(lambda task, kin: task.report(robot, kin), tasks, kin)
    return {name: jnp.minimum(found[name], 0) if name in prepared.slack else found[name] for name in tasks}


def distances(prepared: Formulation, kin: Kinematics) -> jax.Array:
    """The residuals (k,) of the tasks that have a slack."""
    robot, tasks, own = prepared.problem.robot, prepared.problem.tasks, without_slack(prepared, kin)
    return jnp.stack([jnp.ravel(tasks[name].residual(robot, own))[0] for name in prepared.slack])


def has_tolerances(problem: Problem, level: Level) -> bool:
    """Whether every task of a level has a tolerance, so that the level ends when all are met."""
    return all(problem.tasks[name].tolerances() is not None for name in level)
