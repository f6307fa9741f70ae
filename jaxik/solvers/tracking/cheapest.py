"""The best way through the candidates of a path's waypoints, and straight on where the path is free."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.problem.problem import with_tasks, without_elastic
from jaxik.solvers.tracking.candidates import Candidates, candidates
from jaxik.solvers.tracking.free_waypoints import Asked, asked, at_waypoint, between, looked_ahead, may_be_free
from jaxik.solvers.tracking.path_penalty import drawing_tasks, penalties
from jaxik.solvers.tracking.path_setting import Given, path_tasks
from jaxik.solvers.tracking.shortest_path import shortest_path
from jaxik.solvers.tracking.targets import placed

MISS = 1e3  # of |cost * residual| of a waypoint that is missed, against the movement of a step


class _Layers(NamedTuple):
    """Candidates of each waypoint, over how many steps the motion comes to them (T, *batch), and which waypoints ask.

    None of these where all do.
    """

    found: Candidates
    steps: jax.Array
    waypoints: Asked | None


def _layers(shape: tuple[int, ...], lanes: int, length: int, given: Given) -> _Layers:
    problem, q0, key = given.problem, given.q0, jax.random.key(given.options.seed)
    followed_tasks = {name: problem.tasks[name] for name in path_tasks(problem)}
    path = without_elastic(with_tasks(problem, followed_tasks | drawing_tasks(problem, lanes, len(shape))))
    followed = {
        name: fields for name, fields in given.values.items() if name in path.tasks or name in (path.constraints or {})
    }
    first = jnp.broadcast_to(problem.robot.q_home if q0 is None else q0, (*shape, problem.robot.nq))
    waypoints = asked(problem, given.values, shape, given.steps) if may_be_free(problem, given.values) else None
    if waypoints is not None:
        followed = looked_ahead(problem, followed, waypoints)
    found = candidates(path, followed, length, given.steps, shape, first, q0 is not None, lanes, key)
    if waypoints is None:
        return _Layers(found, jnp.ones((length, *shape), jnp.int32), None)
    ahead, here = Candidates(*(_of_lanes(x, waypoints.after) for x in found)), waypoints.here[:, None]
    return _Layers(ahead._replace(missed=ahead.missed & here, miss=ahead.miss * here), waypoints.steps, waypoints)


def _of_lanes(x: jax.Array, waypoint: jax.Array) -> jax.Array:
    """Of lanes over time (T, L, *batch, ...) those of other times (T, *batch)."""
    return jax.vmap(at_waypoint, (1, None), 1)(x, waypoint)


def cheapest(
    shape: tuple[int, ...], lanes: int, length: int, given: Given, bounds: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The configurations (T, *batch, nq) of the best of all candidates, and whether others are as good (*batch,)."""
    problem, q0, options = given.problem, given.q0, given.options
    topology = problem.robot.topology
    found, steps, waypoints = _layers(shape, lanes, length, given)
    longest = jnp.broadcast_to(jnp.max(jnp.abs(bounds), axis=0), (*shape, topology.nv))

    def flat(x: jax.Array, axes: int) -> jax.Array:
        """The batch axes behind the first `axes` as the first one."""
        return jnp.moveaxis(x.reshape(*x.shape[:axes], -1, *x.shape[axes + len(shape) :]), axes, 0)

    penalty = penalties(placed(problem, jax.tree.map(lambda x: x[:, None], given.values)), found.q)
    penalty = penalty if waypoints is None else penalty * waypoints.here[:, None]
    q, missed, miss, penalty = (flat(x, 2) for x in (*found, penalty))

    def choose(
        q: jax.Array,
        missed: jax.Array,
        miss: jax.Array,
        penalty: jax.Array,
        longest: jax.Array,
        steps: jax.Array,
        start: Any,
    ) -> tuple[jax.Array, jax.Array]:
        # Smoothing counts half of the squared displacement.
        furthest = jnp.max(longest)
        penalty = 2 * penalty / jnp.where(furthest > 0, furthest, 1) ** 2
        chosen, tied = shortest_path(
            topology, q, missed, MISS * miss, penalty, longest, options.jump_cost, start, steps
        )
        return jnp.take_along_axis(q, chosen[:, None, None], axis=1)[:, 0], tied

    start = None if q0 is None else flat(jnp.broadcast_to(q0, (*shape, topology.nq)), 0)
    best, tied = jax.vmap(choose, in_axes=(0, 0, 0, 0, 0, 0, None if start is None else 0))(
        q, missed, miss, penalty, flat(longest, 0), flat(steps, 1), start
    )
    best = jnp.moveaxis(best, 0, 1).reshape(length, *shape, topology.nq)
    best = best if waypoints is None else between(topology, best, q0, waypoints)
    return best, tied.reshape(shape)
