"""Waypoints where a path is free, as its tasks have no cost: which ask for something next, and a motion between those.

Candidates look ahead there for the next waypoint that asks, and one of them is chosen for the whole stretch before it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import core_ranks
from jaxik.kinematics.forward import forward
from jaxik.kinematics.topology import Topology
from jaxik.problem.problem import Problem, constants_of, with_tasks
from jaxik.solvers.tracking.horizon import integrated, ways
from jaxik.solvers.tracking.path_setting import path_tasks
from jaxik.solvers.tracking.targets import Values, placed
from jaxik.tasks.weights import row_weights


class Asked(NamedTuple):
    """Of T waypoints (T, *batch).

    Attributes:
      here: whether a waypoint asks for something.
      after: the next one that does, from itself on; behind the last one that one.
      before: the last one that does, up to itself; -1 before the first one.
    """

    here: jax.Array
    after: jax.Array
    before: jax.Array

    @property
    def steps(self) -> jax.Array:
        """Over how many steps the motion may come to the candidate that is chosen at a waypoint (T, *batch)."""
        return jnp.maximum(self.after - _times(self.here), 0) + 1


def may_be_free(problem: Problem, values: Values) -> bool:
    """Whether costs or masks of the path's tasks are given over time."""
    fields = [field for name in path_tasks(problem) for field in values.get(name, {})]
    return any(field in ("cost", "mask") or field.endswith("_cost") for field in fields)


def asked(problem: Problem, values: Values, shape: tuple[int, ...], steps: jax.Array) -> Asked:
    """Which of the waypoints ask, of which so many count, by the costs of the path's tasks."""

    def of_one(problem: Problem) -> jax.Array:
        robot, tasks = problem.robot, problem.tasks
        kin = forward(constants_of(robot, tasks.values()), robot.q_home)
        weights = [row_weights(task, task.residual(robot, kin)) for task in tasks.values()]
        return jnp.any(jnp.stack([jnp.any(w != 0) for w in jax.tree.leaves(weights)]))

    path = with_tasks(problem, {name: problem.tasks[name] for name in path_tasks(problem)})
    path = placed(path, {name: fields for name, fields in values.items() if name in path.tasks})
    here = over_batch(of_one, {"problem": path}, {"problem": core_ranks(path)})
    here = jnp.broadcast_to(here, (here.shape[0], *shape))
    times = _times(here)
    here = here & (times < steps)
    before = lax.cummax(jnp.where(here, times, -1))
    after = lax.cummin(jnp.where(here, times, here.shape[0]), reverse=True)
    return Asked(here, jnp.where(after < here.shape[0], after, jnp.maximum(before, 0)), before)


def looked_ahead(problem: Problem, values: Values, asked: Asked) -> Values:
    """The values that the path's tasks have at the next waypoint that asks."""
    rest = {name: fields for name, fields in values.items() if name not in path_tasks(problem)}
    path = {name: fields for name, fields in values.items() if name not in rest}
    return rest | jax.tree.map(lambda x: at_waypoint(x, asked.after), path)


def at_waypoint(x: jax.Array, waypoint: jax.Array) -> jax.Array:
    """Of values over time (T, *batch, ...) those of other times (T, *batch)."""
    rest = x.shape[waypoint.ndim :]
    x = jnp.broadcast_to(x, (x.shape[0], *waypoint.shape[1:], *rest))
    return jnp.take_along_axis(x, waypoint.reshape(*waypoint.shape, *(1,) * len(rest)), axis=0)


def between(topology: Topology, q: jax.Array, start: jax.Array | None, asked: Asked) -> jax.Array:
    """Configurations (T, *batch, nq) that go straight from each waypoint that asks to the next.

    Args:
      q: at every waypoint that asks what is chosen there.
      start (*batch, nq): the configuration before the first waypoint; None: free.
    """
    there, here = at_waypoint(q, asked.after), at_waypoint(q, jnp.maximum(asked.before, 0))
    first = (asked.before < 0)[..., None]
    here = jnp.where(first, there if start is None else start, here)
    length = jnp.maximum(asked.after - asked.before, 1)
    share = jnp.clip((_times(q[..., 0]) - asked.before) / length, 0, 1).astype(q.dtype)[..., None]
    return jnp.where(asked.here[..., None], q, integrated(topology, here, share * ways(topology, here, there)))


def _times(x: jax.Array) -> jax.Array:
    return jnp.arange(x.shape[0]).reshape(-1, *(1,) * (x.ndim - 1))
