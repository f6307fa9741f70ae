"""What a whole path is given: its tasks, the bounds of its steps, and the horizon that is smoothed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import cast, core_ranks
from jaxik.kinematics import manifold
from jaxik.kinematics.motion import Motion
from jaxik.kinematics.reduced import movable
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.combine import tightened
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.jerk import JerkLimit
from jaxik.limits.per_joint import on_rates
from jaxik.limits.velocity import VelocityLimit
from jaxik.problem.arguments import cast_problem
from jaxik.problem.problem import (
    Problem,
    constraints_of,
    elastic_constraints_of,
    elastic_limits_of,
    limits_of,
    with_dof_mask,
    with_tasks,
    without_velocity_tasks,
)
from jaxik.solvers.nonlinear.hard_constraint import with_clearance
from jaxik.solvers.tracking.banded import ORDERS
from jaxik.solvers.tracking.horizon import SPARE, Elasticity, Horizon, integrated, ways
from jaxik.solvers.tracking.options import WholePathOptions
from jaxik.solvers.tracking.path_pairs import ChosenPairs, Farther, any_pairs, none_farther, with_pairs
from jaxik.solvers.tracking.shortest_path import LONGEST_STEP
from jaxik.solvers.tracking.targets import Values, placed, ranks_of

# Of the step that a speed limit allows, where it yields: what is longer is a jump.
YIELDING_STEP = 3.0
# Last steps of a motion that ends at rest: in the last one it does not brake any more.
RESTING = 2
# By the order of what they bound: displacements and their differences.
OF_MOTION = VelocityLimit, AccelerationLimit, JerkLimit


class Given(NamedTuple):
    """Arguments of a whole path, whose values over time are as long as the program; `steps` () of them count.

    `initial` (T, *batch, nq) is the motion to begin with; None: of candidates.
    """

    problem: Problem
    q0: jax.Array | None
    velocity: jax.Array | None
    dt: jax.Array
    values: Values
    initial: jax.Array | None
    options: WholePathOptions
    steps: jax.Array


def prepared(batch_rank: int, given: Given) -> Given:
    """All in the dtype of the configuration, the problem without velocity tasks, and values with every batch axis."""
    dtype = (given.problem.robot.q_home if given.q0 is None else given.q0).dtype
    problem = without_velocity_tasks(cast_problem(given.problem, dtype))
    if problem.dof_mask is not None:
        problem = with_dof_mask(problem, movable(problem.robot.topology, problem.dof_mask))
    given = cast(given._replace(problem=None), dtype)  # type: ignore[arg-type]

    def align(x: jax.Array, rank: int) -> jax.Array:
        missing = 1 + batch_rank + rank - x.ndim
        return x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])

    values = jax.tree.map(align, given.values, ranks_of(problem, given.values))
    initial = None if given.initial is None else align(given.initial, 1)
    return given._replace(problem=problem, values=values, initial=initial)


def path_tasks(problem: Problem) -> tuple[str, ...]:
    """Names of the tasks that make the path: those of the highest priority that have a tolerance."""
    asked = without_velocity_tasks(problem).tasks
    first = min((task.priority for task in asked.values()), default=0)
    return tuple(n for n, task in asked.items() if task.priority == first and task.tolerances() is not None)


def tasks_to_keep(problem: Problem) -> tuple[dict[str, Any], tuple[str, ...]]:
    """All tasks, constraints and what keeps shapes apart, and the names of what has to hold.

    That is all but preferences, and constraints that yield.
    """
    path = path_tasks(problem)
    cleared = with_clearance(with_tasks(problem, {name: problem.tasks[name] for name in path}))
    constraints, may_yield = constraints_of(problem, couplings=True), elastic_constraints_of(problem)
    held = dict(cleared.tasks) | {name: task for name, task in constraints.items() if name not in may_yield}
    rest = {name: task for name, task in (problem.tasks | constraints).items() if name not in held}
    return held | rest, tuple(held)


def bounds_of(problem: Problem, dt: jax.Array, longest_step: Any) -> tuple[jax.Array, ...]:
    """Lower and upper (2, *batch, nv) of the displacement of a step, and of its first and second difference."""

    def of_one(problem: Problem, dt: jax.Array, longest_step: jax.Array | None) -> list[jax.Array]:
        robot = problem.robot
        free = jnp.full(robot.nv, jnp.inf, dt.dtype)
        found = [(-free, free)] * ORDERS
        for limit in limits_of(problem):
            if isinstance(limit, OF_MOTION):
                order, (lower, upper) = _order_of(limit), _bounds_of(limit, robot, dt)
                found[order] = jnp.maximum(found[order][0], lower), jnp.minimum(found[order][1], upper)
        lower, upper = found[0]
        longest = jnp.broadcast_to(LONGEST_STEP if longest_step is None else longest_step, (robot.nv,))
        if longest_step is None:
            for each in elastic_limits_of(problem).values():
                if isinstance(each.of, VelocityLimit):
                    upper_elastic = _bounds_of(each.of, robot, dt)[1]
                    faster = jnp.where(jnp.isfinite(upper_elastic), YIELDING_STEP * upper_elastic, 0)
                    longest = jnp.maximum(longest, faster)
        unlimited = jnp.isinf(upper) & jnp.isinf(lower) | (longest_step is not None)
        found[0] = (
            jnp.where(unlimited, jnp.maximum(lower, -longest), lower),
            jnp.where(unlimited, jnp.minimum(upper, longest), upper),
        )
        return [jnp.stack(pair) for pair in found]

    arguments = {"problem": problem, "dt": dt, "longest_step": longest_step}
    ranks = {"problem": core_ranks(problem), "dt": 0, "longest_step": None if longest_step is None else 1}
    return tuple(jnp.moveaxis(x, -2, 0) for x in over_batch(of_one, arguments, ranks))


def elastic_bounds_of(problem: Problem, dt: jax.Array) -> dict[str, tuple[int, jax.Array]]:
    """Of limits that yield the order and the bounds (2, *batch, nv), as of `Elasticity`."""

    def of_one(problem: Problem, dt: jax.Array) -> dict[str, jax.Array]:
        limits = elastic_limits_of(problem).items()
        return {name: jnp.stack(_elastic_bounds(each.of, problem, dt)) for name, each in limits}

    found = over_batch(of_one, {"problem": problem, "dt": dt}, {"problem": core_ranks(problem), "dt": 0})
    limits = elastic_limits_of(problem)
    return {name: (_order_of(limits[name].of), jnp.moveaxis(x, -2, 0)) for name, x in found.items()}


def _elastic_bounds(limit: Any, problem: Problem, dt: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Lower and upper bounds (nv,) of what a limit bounds that yields; those of joints beside the limits that hold."""
    if isinstance(limit, OF_MOTION):
        return _bounds_of(limit, problem.robot, dt)
    return elastic_joint_bounds(limit, problem)


def elastic_joint_bounds(limit: ConfigurationLimit, problem: Problem) -> tuple[jax.Array, jax.Array]:
    """Lower and upper bounds (nv,) of coordinates that yield, beside the limits that hold; infinite for balls."""
    return manifold.tangent_bounds(tightened((*limits_of(problem), limit), problem.robot))


def yielding_joints(problem: Problem) -> list[str]:
    """Keys of the limits of joints that may yield."""
    return [key for key, each in elastic_limits_of(problem).items() if isinstance(each.of, ConfigurationLimit)]


def _order_of(limit: Any) -> int:
    """Of a limit `OF_MOTION`, the order of the displacements that it bounds; else `ORDERS`, as it is one of joints."""
    return next((order for order, kind in enumerate(OF_MOTION) if isinstance(limit, kind)), ORDERS)


def _bounds_of(limit: Any, robot: Any, dt: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Lower and upper bounds (nv,) of those displacements."""
    if isinstance(limit, VelocityLimit):
        return limit.bounds(robot, None, Motion(dt))  # type: ignore[arg-type]
    if isinstance(limit, AccelerationLimit):
        most = on_rates(robot, limit.max_acceleration, jnp.inf) * dt**2
    else:
        most = on_rates(robot, limit.max_jerk, jnp.inf) * dt**3
    return -most, most


def horizon_of(
    shape: tuple[int, ...],
    given: Given,
    q: jax.Array,
    jumped: jax.Array,
    limited: jax.Array,
    known: Mapping[str, jax.Array] = MappingProxyType({}),
    loose: jax.Array | bool = False,
    pairs: ChosenPairs | None = None,
    farther: Farther | None = None,
) -> tuple[Horizon, jax.Array]:
    """The horizon of a motion, and the motion with the stages before it.

    Args:
      given: as prepared.
      q (T, *batch, nq): waypoints, those behind the last that counts as well.
      jumped (T, *batch): whether the step to a waypoint is none that is to be smooth.
      limited (): as of `Horizon`.
      known: by name of a task (T, *batch), whether its targets count.
      loose (): as of `Horizon`.
      pairs: that are kept apart; None: any, of which steps make the nearest.
      farther: those that are more so; None: none.
    """
    topology, q0, dt = given.problem.robot.topology, given.q0, given.dt

    def longer(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x[:1]] * ORDERS + [x])

    tasks, path = tasks_to_keep(given.problem)
    every = placed(with_tasks(given.problem, tasks), jax.tree.map(longer, given.values))
    q = longer(q)
    if q0 is not None:
        way = jnp.zeros(topology.nv, q.dtype) if given.velocity is None else given.velocity * dt[..., None]
        before = [jnp.broadcast_to(integrated(topology, q0, -k * way), q.shape[1:]) for k in reversed(range(ORDERS))]
        q = jnp.concatenate([jnp.stack(before), q[ORDERS:]])
    at = jnp.arange(q.shape[0]).reshape(-1, *(1,) * len(shape))
    stage = (at >= ORDERS) & (at < given.steps + ORDERS)
    # A free start is in motion already.
    first = ORDERS if q0 is None else 0
    linked = (at > first) & (at < given.steps + ORDERS) & jnp.concatenate([jnp.ones_like(jumped[:ORDERS]), ~jumped])
    rests = linked & given.options.end_at_rest & (at >= given.steps + ORDERS - RESTING)
    every_known = {name: longer(jnp.broadcast_to(x, jumped.shape)) for name, x in known.items()}
    bounds = bounds_of(given.problem, dt, given.options.longest_step)

    def spread(x: jax.Array, share: float = SPARE) -> jax.Array:
        aligned = x.reshape(2, *(1,) * (len(shape) + 2 - x.ndim), *x.shape[1:])
        return jnp.broadcast_to(share * aligned, (2, *shape, topology.nv))

    bounds = tuple(map(spread, bounds))
    yielding = elastic_limits_of(given.problem)
    elastic = tuple(
        Elasticity(
            order, spread(x, SPARE if order < ORDERS else 1.0), jnp.broadcast_to(yielding[name].row_penalty, shape)
        )
        for name, (order, x) in elastic_bounds_of(given.problem, dt).items()
    )
    constraints = elastic_constraints_of(given.problem)
    pairs = any_pairs(every, q.shape[:-1]) if pairs is None else pairs
    farther = none_farther(q.shape[:-1], q.dtype) if farther is None else farther
    horizon = Horizon(
        problem=with_pairs(every, pairs, farther),
        path=path,
        firm=tuple(name for name in constraints_of(given.problem, couplings=True) if name in path),
        stage=stage,
        known=every_known,
        bounds=bounds,
        linked=linked,
        rests=rests,
        limited=limited,
        settled=given.options.smoothing_tolerance,
        within=path_tasks(given.problem),
        loose=jnp.asarray(loose),
        elastic=elastic,
        yielding={name: jnp.broadcast_to(each.row_penalty, shape) for name, each in constraints.items()},
        pairs=pairs,
    )
    return horizon, q


def jumps_of(topology: Any, q: jax.Array, bounds: jax.Array) -> jax.Array:
    """Whether the displacement to each configuration but the first is out of bounds (T, *batch)."""
    way = ways(topology, q[:-1], q[1:])
    outside = jnp.any((way < bounds[0]) | (way > bounds[1]), axis=-1)
    return jnp.concatenate([jnp.zeros_like(outside[:1], shape=(1, *outside.shape[1:])), outside])
