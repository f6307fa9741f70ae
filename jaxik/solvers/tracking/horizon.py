"""A motion over all its waypoints, and what its tasks and joints have to say at each."""

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import core_ranks, shapes_of_one
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.problem.problem import Problem, constants_of, effective_joint_limits
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import curvature_of
from jaxik.solvers.tracking.banded import ORDERS, later
from jaxik.solvers.tracking.path_pairs import ChosenPairs, PairsApart
from jaxik.tasks.base import Task
from jaxik.tasks.grouping import groups, vmap_group
from jaxik.tasks.weights import row_weights, weighted_rows

# Of a tolerance, as residuals are twists, and errors, which are judged, distances: of second order in the error.
USED = 0.95
# Limits of motion are aimed at with this to spare, as waypoints are put back on the path at the end.
SPARE = 0.995


class Elasticity(NamedTuple):
    """A limit that yields, at a penalty (*batch,).

    Attributes:
      order: of the displacements that it bounds; ORDERS where it bounds joints; static.
      bounds (2, *batch, nv): lower and upper ones, of displacements or of coordinates.
    """

    order: int
    bounds: jax.Array
    penalty: jax.Array


class Horizon(NamedTuple):
    """A motion over N stages, three of them before the first waypoint and some after the last.

    Attributes:
      problem: leaves of tasks over time (N, *batch, ...); its tasks are those of the path and preferences.
      path: names of the tasks of the path, and of constraints that hold; static.
      firm: names of the latter; static.
      stage (N, *batch), or of axes of size one: whether a stage is a waypoint.
      known: by name of a task (N, *batch), whether its target counts, which may not be finite; all do of others.
      bounds: by order, lower and upper (2, *batch, nv) of displacement, and of its first and second difference.
      linked (N, *batch): whether the step to a stage is to be smooth; one that is none leaves the path.
      rests (N, *batch): whether joints are to be still in the step to a stage.
      limited (): 1, or 0 for the limits of displacements alone, to begin with: most motions that are smooth keep the
        others.
      settled (): steps that are smooth enough change no joint by more [rad or m].
      within: names of the tasks of the path that have a tolerance to use; static.
      loose (): whether they use it.
      elastic: limits that yield.
      yielding: of constraints that yield, the penalties (*batch,).
      pairs: of shapes that are kept apart, by name of a task.
    """

    problem: Problem
    path: tuple[str, ...]
    firm: tuple[str, ...]
    stage: jax.Array
    known: dict[str, jax.Array]
    bounds: tuple[jax.Array, ...]
    linked: jax.Array
    rests: jax.Array
    limited: jax.Array
    settled: jax.Array
    within: tuple[str, ...]
    loose: jax.Array
    elastic: tuple[Elasticity, ...]
    yielding: dict[str, jax.Array]
    pairs: ChosenPairs

    @property
    def kinds(self) -> int:
        """Of limits: on differences, on joints, and those that yield."""
        return ORDERS + 1 + len(self.elastic)

    def with_elastic(self, x: jax.Array) -> jax.Array:
        """Of differences and joints (ORDERS + 1, ...) those of every kind of limits (kinds, ...)."""
        return jnp.concatenate([x, *(x[each.order][None] for each in self.elastic)])

    def by_order(self, x: jax.Array) -> jax.Array:
        """The transpose of that."""
        total = x[: ORDERS + 1]
        for each, own in zip(self.elastic, x[ORDERS + 1 :], strict=True):
            total = total.at[each.order].add(own)
        return total


def ways(topology: Any, before: jax.Array, after: jax.Array) -> jax.Array:
    """Displacements (..., nv) from configurations (..., nq) to others."""
    way = functools.partial(manifold.difference, topology)
    return jnp.vectorize(way, signature="(q),(q)->(v)")(before, after)


def integrated(topology: Any, q: jax.Array, way: jax.Array) -> jax.Array:
    """Configurations (..., nq) that displacements (..., nv) lead to."""
    go = functools.partial(manifold.integrate, topology)
    return jnp.vectorize(go, signature="(q),(v)->(q)")(q, way)


def differences(topology: Any, q: jax.Array) -> tuple[jax.Array, ...]:
    """Displacements to each stage (N, *batch, nv), and their first and second differences; zero where there is none."""
    way = ways(topology, q[:-1], q[1:])
    found = [jnp.concatenate([jnp.zeros_like(way[:1]), way])]
    for _ in range(ORDERS - 1):
        found.append(found[-1] - later(found[-1], 1))
    return tuple(found)


def coordinates(topology: Any, q: jax.Array) -> jax.Array:
    """Of joints (..., nv), at configurations (..., nq)."""
    return jnp.vectorize(functools.partial(manifold.scalar_coordinates, topology), signature="(q)->(v)")(q)


def links_of(linked: jax.Array) -> jax.Array:
    """By order (ORDERS, N, *batch, 1), whether all steps of a difference are linked."""
    links = [linked]
    for k in range(1, ORDERS):
        links.append(links[-1] & later(linked, k))
    return jnp.stack(links)[..., None]


def changes_of(horizon: Horizon, change: jax.Array) -> jax.Array:
    """How differences, joints and what is elastic change (kinds, N, *batch, nv) with a motion."""
    found = [change]
    for _ in range(ORDERS):
        found.append(found[-1] - later(found[-1], 1))
    return horizon.with_elastic(jnp.concatenate([jnp.stack(found[1:]) * links_of(horizon.linked), change[None]]))


class Rows(NamedTuple):
    """At each stage.

    Attributes:
      residual (m,), jacobian (m, nv): of the path and of constraints that yield, weighted.
      tolerance (m,): half of a box inside the tolerance of a row, weighted; 0 for rows that are to be exact.
      penalty (m,): of rows that yield, infinite for those of the path.
      firm (m,): which rows are of constraints that hold.
      apart, fresh (m,): which rows are of pairs of shapes, and are to be positive; and which of these are others
        than before.
      preferred_square (nv, nv), preferred_gradient (nv,), preferred_cost (): of preferences, J'J, J'r and r'r / 2.
      curvature (nv, nv): what the Hessian has beyond J'J.
      at (nv,): coordinates of joints.
      room_below, room_above (nv,): how far these may go.
      moves (nv,): which of them move.
    """

    residual: jax.Array
    jacobian: jax.Array
    tolerance: jax.Array
    penalty: jax.Array
    firm: jax.Array
    apart: jax.Array
    fresh: jax.Array
    preferred_square: jax.Array
    preferred_gradient: jax.Array
    preferred_cost: jax.Array
    curvature: jax.Array
    at: jax.Array
    room_below: jax.Array
    room_above: jax.Array
    moves: jax.Array


def row_count(horizon: Horizon) -> int:
    """How many rows the path and constraints that yield have at a stage."""

    def residuals(problem: Problem) -> list[Any]:
        robot, tasks = problem.robot, _kept(horizon, problem.tasks)
        kin = forward(constants_of(robot, tasks.values()), robot.q_home)
        return [task.residual(robot, kin) for task in tasks.values()]

    found = sum(math.prod(x.shape) for x in jax.tree.leaves(shapes_of_one(residuals, horizon.problem)))
    return max(found, 1)


def _kept(horizon: Horizon, tasks: Mapping[str, Task]) -> dict[str, Task]:
    """Those of the path, and constraints that yield."""
    return {n: t for n, t in tasks.items() if n in horizon.path or n in horizon.yielding}


def evaluated(horizon: Horizon, q: jax.Array, pull: jax.Array | None, exact: bool = False) -> Rows:
    """Rows (N, *batch, ...) of a motion, whose path curves as multipliers (N, *batch, m) press; None: not at all.

    Distances of shapes curve if it is to be `exact`.
    """
    problem, within = horizon.problem, horizon.within

    def of_stage(
        problem: Problem,
        q: jax.Array,
        stage: jax.Array,
        known: dict[str, jax.Array],
        yielding: dict[str, jax.Array],
        pull: jax.Array | None = None,
    ) -> Rows:
        robot, tasks = problem.robot, problem.tasks
        kin = forward(constants_of(robot, tasks.values()), q)
        kept = _kept(horizon, tasks)
        preferred = {n: t for n, t in tasks.items() if n not in kept}
        found = _rows(robot, kept, kin, stage, known, within, yielding, horizon.firm)
        of_preferences = _rows(robot, preferred, kin, stage, known)
        wanted, slopes = of_preferences["residual"], of_preferences["jacobian"]
        bent = jnp.zeros((robot.nv, robot.nv), q.dtype)
        if pull is not None:
            bent = curvature_of(robot, kept, kin, pull, exact) + curvature_of(robot, preferred, kin, wanted, exact)
            bent = jnp.where(stage & jnp.all(jnp.isfinite(bent)), bent, 0)
        lower, upper = manifold.tangent_bounds(effective_joint_limits(problem))
        at = manifold.scalar_coordinates(robot.topology, q)
        moves = jnp.broadcast_to(stage, (robot.nv,))
        if problem.dof_mask is not None:
            moves = moves & problem.dof_mask
        return Rows(
            **found,
            preferred_square=slopes.T @ slopes,
            preferred_gradient=wanted @ slopes,
            preferred_cost=wanted @ wanted / 2,
            curvature=bent,
            at=at,
            room_below=lower - at,
            room_above=upper - at,
            moves=moves,
        )

    ranks = {"problem": core_ranks(problem), "q": 1, "stage": 0, "pull": 1}
    ranks |= {"known": dict.fromkeys(horizon.known, 0), "yielding": dict.fromkeys(horizon.yielding, 0)}
    given = {"problem": problem, "q": q, "stage": horizon.stage, "known": horizon.known, "yielding": horizon.yielding}
    given |= {} if pull is None else {"pull": pull}
    return over_batch(of_stage, given, {name: ranks[name] for name in given})


def _rows(
    robot: Robot,
    tasks: dict[str, Task],
    kin: Kinematics,
    stage: jax.Array,
    known: Mapping[str, jax.Array],
    within: tuple[str, ...] = (),
    yielding: Mapping[str, jax.Array] = MappingProxyType({}),
    firm: tuple[str, ...] = (),
) -> dict[str, jax.Array]:
    """The rows of tasks by attributes of `Rows`, group after group.

    With tolerances of those `within`, and penalties of those `yielding`.
    """
    dtype = kin.q.dtype
    # Without tasks one row that asks for nothing: with none XLA, on one core, loses what LAPACK's calls are.
    count = 0 if tasks else 1
    none = jnp.zeros(count, dtype)
    no = jnp.zeros(count, bool)
    kept = [
        {
            "residual": none,
            "jacobian": jnp.zeros((count, robot.nv), dtype),
            "tolerance": none,
            "penalty": none + jnp.inf,
            **dict.fromkeys(("firm", "apart", "fresh"), no),
        }
    ]
    for group in groups(tasks):

        def of_task(task: Task, kin: Kinematics) -> tuple[jax.Array, ...]:
            residual = task.residual(robot, kin)
            return (*weighted_rows(task, residual, task.jacobian(robot, kin)), _boxes(task, residual))

        residual, jacobian, boxes = vmap_group(of_task, group, kin)
        # A waypoint that is not finite has no rows, and the motion goes on through it.
        fine = jnp.all(jnp.isfinite(residual), axis=-1) & jnp.all(jnp.isfinite(jacobian), axis=(-2, -1))
        fine = (fine & stage & jnp.stack([jnp.asarray(known.get(name, True)) for name in group.names]))[:, None]
        residual, jacobian = jnp.where(fine, residual, 0), jnp.where(fine[..., None], jacobian, 0)
        uses = jnp.asarray([name in within for name in group.names])[:, None]
        boxes = jnp.where(fine & uses, boxes, 0)
        penalty = jnp.stack([jnp.asarray(yielding.get(name, jnp.inf), dtype) for name in group.names])[:, None]
        penalty = jnp.where(fine, penalty, jnp.inf) * jnp.ones_like(residual)
        holds = jnp.broadcast_to(jnp.asarray([name in firm for name in group.names])[:, None], residual.shape)
        pairs = [task for task in group.tasks if isinstance(task, PairsApart)]
        apart = jnp.broadcast_to(fine & bool(pairs), residual.shape)
        fresh = jnp.stack([task.fresh for task in pairs]) if pairs else jnp.zeros_like(apart)
        rows = {
            "residual": residual,
            "tolerance": boxes,
            "penalty": penalty,
            "firm": holds,
            "apart": apart,
            "fresh": fresh,
        }
        kept.append(jax.tree.map(jnp.ravel, rows) | {"jacobian": jacobian.reshape(-1, robot.nv)})
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)


def _boxes(task: Task, residual: Any) -> jax.Array:
    """Half of the largest cube inside the tolerance of each part of a task's residual, weighted, by row (m,)."""
    tolerances, weights = task.tolerances(), row_weights(task, residual)
    if tolerances is None:
        return jnp.concatenate([jnp.zeros(w.size, w.dtype) for w in jax.tree.leaves(weights)])
    if jax.tree.structure(tolerances) != jax.tree.structure(residual):
        tolerances = jax.tree.map(lambda _: tolerances, residual)
    halves = []
    for tolerance, w in zip(jax.tree.leaves(tolerances), jax.tree.leaves(weights), strict=True):
        count = jnp.maximum(jnp.sum(w != 0), 1)
        halves.append(jnp.ravel(USED * tolerance * jnp.abs(w) / jnp.sqrt(count.astype(w.dtype))))
    return jnp.concatenate(halves)
