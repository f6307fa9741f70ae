"""A look at the distances of a blind solution: whether it is free, and which branches overlap something."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.collision.distances import moved_by, separations
from jaxik.kinematics.geometry import geometry_of
from jaxik.limits.collision import KeptClear
from jaxik.numerics.linalg import static_gather
from jaxik.solvers.nonlinear.chains import Group
from jaxik.solvers.nonlinear.formulation import Formulation, evaluate, without_slack
from jaxik.solvers.nonlinear.hard_constraint import clearances


class Seen(NamedTuple):
    """Whether a configuration is free (), and which branches are to be drawn anew, by one or the other rule (2, k)."""

    free: jax.Array
    failing: jax.Array


def nothing_seen(groups: list[Group]) -> Seen:
    return Seen(jnp.zeros((), bool), jnp.zeros((2, len(groups)), bool))


def look(prepared: Formulation, q: jax.Array, groups: list[Group]) -> Seen:
    """Look at all pairs: branches that are too near something else fail.

    Where they are too near each other alone, one of them does: the first, or the last.
    """
    problem = prepared.problem
    kin, free = without_slack(prepared, evaluate(prepared, q)), jnp.ones((), bool)
    own, shared = jnp.zeros(len(groups), bool), jnp.zeros((2, len(groups)), bool)
    for name in clearances(problem):
        task = problem.tasks[name]
        assert isinstance(task, KeptClear)
        table = task.table(problem.robot)
        found = separations(geometry_of(problem.robot.name, problem.robot.geometry), task.world, table, kin)
        short = jnp.minimum(found - task.distance, 0)
        free = free & (jnp.sum(short * short) <= task.tolerance * task.tolerance)
        alone, ends = _movers(table.signs(moved_by(kin)), groups)
        # By how much together: a product, which takes a tenth of the time of `any` over pairs, and each row once, of
        # two arms three of six.
        kinds, place = np.unique(np.concatenate([alone, *ends]), axis=0, return_inverse=True)
        near = static_gather(jnp.asarray(kinds, short.dtype) @ short < 0, place.tolist()).reshape(3, -1)
        own, shared = own | near[0], shared | near[1:]
    return Seen(free, jnp.where(jnp.any(own), own, shared))


def _movers(signs: np.ndarray, groups: list[Group]) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs a branch alone moves (k, p), and of those that several move the first and the last one (2, k, p)."""
    moves = np.stack([np.any(signs[:, sorted(group)] != 0, axis=1) for group in groups])
    count = moves.sum(axis=0)
    first = moves & (np.cumsum(moves, axis=0) == 1) & (count > 1)
    last = moves & (np.cumsum(moves, axis=0) == count) & (count > 1)
    return moves & (count == 1), np.stack([first, last])
