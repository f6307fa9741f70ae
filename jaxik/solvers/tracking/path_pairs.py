"""Pairs of shapes beside a motion: at each waypoint those that smoothing keeps apart, by rows of its interior point."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.collision.nearest import Curvatures, Nearest
from jaxik.core.pytree import cast, core_ranks, leaf, pytree, static
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.kinematics.frames import Frame
from jaxik.problem.problem import Problem, constants_of, with_tasks
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.hard_constraint import clearances
from jaxik.tasks.base import Task
from jaxik.tasks.clearance import PairsTask

# What is farther apart by more [m] counts as so far: an obstacle that is masked is infinitely far away.
FAR = 10.0
# Pairs that meet on a way are kept farther apart by so much [m] at first, and then by twice as much; at its end, its
# start, and the stages beside these.
FIRST_FARTHER, BESIDE = 1e-2, (0, -1, 1, -2)

# By name of a task of distances, which pairs have a row (N, *batch, rows).
ChosenPairs = dict[str, jax.Array]


class Farther(NamedTuple):
    """A pair of each waypoint that is kept farther apart than asked, as it would meet on the way to the next.

    Attributes:
      pair (N, *batch, 1): its place among the pairs of all tasks of distances, one after the other.
      by (N, *batch, 1): how much farther [m]; 0 where none is.
    """

    pair: jax.Array
    by: jax.Array


@pytree
class PairsApart(Task):
    """How much farther apart than asked some pairs are (rows,) [m], whichever others are nearer.

    Attributes:
      task: which asks for a distance.
      which, fresh (rows,): places of the pairs in its table, and whether they are others than before.
      pair, farther (1,): a place for which it is so much more [m].
    """

    task: PairsTask = leaf()
    which: Any = leaf(1)
    fresh: Any = leaf(1)
    pair: Any = leaf(1)
    farther: Any = leaf(1)
    cost: Any = leaf(0, default=1.0)
    priority: int = static(default=0, kw_only=True)

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        return self.task.frames_of(robot)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        found = self.task.pairs_of(robot, kin, self.which)
        asked = self.task.distance + jnp.where(self.which == self.pair, self.farther, 0)
        return jnp.minimum(found.distance - asked, FAR)

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return self.task.pairs_of(robot, kin, self.which).jacobian

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: jax.Array
    ) -> tuple[dict[Any, jax.Array], jax.Array | None]:
        """Zero: Gauss-Newton, as of the task."""
        return {}, None

    def exact_second_derivative(self, robot: Robot, kin: Kinematics, multipliers: jax.Array) -> jax.Array:
        return jnp.tensordot(multipliers, self.curvatures(robot, kin).hessian, 1)

    def curvatures(self, robot: Robot, kin: Kinematics) -> Curvatures:
        """Second derivatives of the distances, and whether they are trusted."""
        return self.task.curvatures_at(robot, kin, Nearest(self.which, self.residual(robot, kin)))

    def tolerances(self) -> Any:
        return None


def pairs_near(problem: Problem, q: jax.Array) -> ChosenPairs:
    """The pairs that are nearest at each stage of a motion (N, *batch, nq)."""
    tasks = {name: task.task for name, task in problem.tasks.items() if isinstance(task, PairsApart)}
    if not tasks:
        return {}

    def of_stage(problem: Problem, q: jax.Array) -> ChosenPairs:
        robot, tasks = problem.robot, problem.tasks
        kin = forward(constants_of(robot, tasks.values()), q)
        return {name: task.nearest(robot, kin).which.astype(jnp.int32) for name, task in tasks.items()}

    # Which these are single precision says as well, in half of the time.
    near, q = cast((with_tasks(problem, tasks), q), jnp.float32)
    return over_batch(of_stage, {"problem": near, "q": q}, {"problem": core_ranks(near), "q": 1})


def any_pairs(problem: Problem, shape: tuple[int, ...]) -> ChosenPairs:
    """Some pairs at each of the stages (N, *batch), which the first step replaces by the nearest."""
    robot = problem.robot
    tasks: dict[str, Any] = {name: problem.tasks[name] for name in clearances(problem)}
    rows = {name: min(task.rows, len(task.table(robot).names)) for name, task in tasks.items()}
    return {name: jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), (*shape, count)) for name, count in rows.items()}


def updated(old: jax.Array, new: jax.Array) -> jax.Array:
    """Pairs (..., rows) of which those that are in both stay where they are in the old ones."""
    stays = jnp.any(old[..., :, None] == new[..., None, :], axis=-1)
    comes = ~jnp.any(new[..., :, None] == old[..., None, :], axis=-1)
    place, rank = jnp.cumsum(~stays, axis=-1), jnp.cumsum(comes, axis=-1)
    takes = (place[..., :, None] == rank[..., None, :]) & comes[..., None, :]
    return jnp.where(stays, old, jnp.sum(jnp.where(takes, new[..., None, :], 0), axis=-1, dtype=old.dtype))


def with_pairs(problem: Problem, pairs: ChosenPairs, farther: Farther) -> Problem:
    """The problem with these pairs in the place of its tasks of distances."""
    places, first = {}, 0
    for name in pairs:
        task: Any = problem.tasks[name]
        places[name] = first
        first += len(task.table(problem.robot).names)

    def given(name: str, which: jax.Array) -> PairsApart:
        task: Any = problem.tasks[name]
        fresh, pair = jnp.zeros(which.shape, bool), farther.pair - places[name]
        return PairsApart(task, which, fresh, pair, farther.by, priority=task.priority)

    return with_tasks(problem, problem.tasks | {name: given(name, which) for name, which in pairs.items()})


def with_others(problem: Problem, pairs: ChosenPairs, before: ChosenPairs) -> Problem:
    """The problem with these pairs in the place of its own; in the step before there were others."""

    def given(name: str, which: jax.Array) -> PairsApart:
        task: Any = problem.tasks[name]
        return dataclasses.replace(task, which=which, fresh=which != before[name])

    return with_tasks(problem, problem.tasks | {name: given(name, which) for name, which in pairs.items()})


def none_farther(shape: tuple[int, ...], dtype: Any) -> Farther:
    """No pair is kept farther apart, at stages (N, *batch)."""
    return Farther(jnp.full((*shape, 1), -1, jnp.int32), jnp.zeros((*shape, 1), dtype))


def farther_beside(farther: Farther, meets: jax.Array, pair: jax.Array) -> Farther:
    """Keep pairs (T, *batch) that meet on the way to waypoints (T, *batch) farther apart there, and right beside."""
    stages = [(farther.by.shape[0] - meets.shape[0], 0), *[(0, 0)] * (meets.ndim - 1)]
    meets, pair = jnp.pad(meets, stages), jnp.pad(pair, stages)
    before, by = farther.pair[..., 0], farther.by[..., 0]
    which, marked = before, jnp.zeros_like(meets)
    for shift in BESIDE:
        # What goes round the end comes to stages before the first waypoint, or after the last, which have no rows.
        here, other = jnp.roll(meets, shift, axis=0), jnp.roll(pair, shift, axis=0)
        which = jnp.where(here & ~marked, other, which)
        marked = marked | here
    again = (by > 0) & (which == before)
    by = jnp.where(marked, jnp.where(again, 2 * FIRST_FARTHER, FIRST_FARTHER), by)
    return Farther(which[..., None], by[..., None])
