"""`track(..., mode="whole")`: the best motion along a path that is known before it sets out."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import over_batch
from jaxik.batching.linear_map import of_each
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, core_ranks
from jaxik.core.status import DerivativeStatus, Status
from jaxik.core.trees import part_units
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import forward
from jaxik.kinematics.motion import Motion
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.collision import CollisionLimit
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.jerk import JerkLimit
from jaxik.limits.per_joint import on_rates
from jaxik.limits.velocity import VelocityLimit
from jaxik.problem.arguments import cast_problem
from jaxik.problem.problem import (
    Problem,
    constants_of,
    constraints_of,
    elastic_constraints_of,
    elastic_limits_of,
    limits_of,
    with_tasks,
    without_velocity_tasks,
)
from jaxik.results.track import Track
from jaxik.solvers.nonlinear.finalize import FEASIBLE
from jaxik.solvers.nonlinear.formulation import within_tolerance
from jaxik.solvers.nonlinear.hard_constraint import HardConstraint, with_clearance
from jaxik.solvers.tracking.candidates import candidates
from jaxik.solvers.tracking.loop import described_at
from jaxik.solvers.tracking.options import WholePathOptions
from jaxik.solvers.tracking.shortest_path import shortest_path
from jaxik.solvers.tracking.smoothing import ORDERS, Horizon, smoothed
from jaxik.solvers.tracking.targets import Values, placed, ranks_of
from jaxik.tasks.weights import row_weights

HELD_LIMITS = (ConfigurationLimit, VelocityLimit, AccelerationLimit, JerkLimit, CollisionLimit)
# Limits are aimed at with this to spare, as an augmented Lagrangian meets them to a tolerance.
SPARE = 0.995
# A displacement of a joint without a speed limit that is no jump [rad or m]: 7 degrees, as CppFlow has it.
LONGEST_STEP = 0.12
# Jumps up to so many times that long may be spread over several steps by smoothing.
SPREAD = 6.0
MISS = 1e3  # of |cost * residual| of a waypoint that is missed, against the movement of a step


def path_tasks(problem: Problem) -> tuple[str, ...]:
    """Names of the tasks that make the path: those of the highest priority that have a tolerance.

    Raises:
      JaxikError: where there is none.
    """
    asked = without_velocity_tasks(problem).tasks
    first = min((task.priority for task in asked.values()), default=0)
    found = tuple(n for n, task in asked.items() if task.priority == first and task.tolerances() is not None)
    if not found:
        raise JaxikError(
            'mode="whole" keeps a path within tolerances, and no task of the highest priority has one: '
            'give it a tolerance, or follow it with mode="online"'
        )
    return found


def check_held(problem: Problem) -> None:
    """Say on the host which constraints and limits a whole path does not keep.

    Raises:
      JaxikError: for other limits than `HELD_LIMITS`, and for what is `Elastic`.
    """
    if yields := [*elastic_constraints_of(problem), *elastic_limits_of(problem)]:
        raise JaxikError(
            f'mode="whole" holds every constraint and limit, Elastic acts in step and in mode="online" alone: '
            f"{yields[0]!r} is to be a task with a cost where it may yield, or to stand without Elastic"
        )
    for limit in limits_of(problem):
        if not isinstance(limit, HELD_LIMITS):
            held = ", ".join(kind.__name__ for kind in HELD_LIMITS)
            raise JaxikError(
                f'mode="whole" does not hold {type(limit).__name__}, only {held}: follow the path with mode="online"'
            )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def whole_path(shape: tuple[int, ...], lanes: int, steps: int, problem: Problem, *given: Any) -> Track:
    """Plan a motion of so many steps.

    Args:
      shape: the batch axes.
      lanes: how many candidates there are of each waypoint.
      given: q0 (*batch, nq) or None, a velocity (*batch, nv) or None, dt, targets over time and options.
    """
    problem, given = jax.tree.map(_without_derivative, (problem, given))
    q0, velocity, dt, values, options = given
    dtype = (problem.robot.q_home if q0 is None else q0).dtype
    q0, velocity, dt, values, options = cast((q0, velocity, dt, values, options), dtype)
    problem = without_velocity_tasks(cast_problem(problem, dtype))
    values = _aligned(problem, values, len(shape))
    limits = _bounds(problem, dt, options.longest_step)
    with jax.default_matmul_precision("highest"):
        q = _cheapest(shape, lanes, steps, problem, q0, values, limits[0], options)
        smooth = _smooth(shape, problem, q, q0, velocity, dt, values, limits, options)
        both = jnp.stack([smooth, q])
        before = both[:, :1] if q0 is None else jnp.broadcast_to(q0, both[:, :1].shape)
        jumped = jnp.moveaxis(_jumps(problem.robot.topology, _over_time(before, both), limits[0])[1:], 0, 1)
        status = _status(placed(problem, values), both, jumped)
        # A motion that smoothing made worse is left as it was found.
        worse = jnp.where(jnp.diff(_events(status, jumped, options.jump_cost), axis=0)[0] < 0, 1, 0)
        q, status, jumped = (jnp.where(_wide(worse, x[0]), x[1], x[0]) for x in (both, status, jumped))
        return _described(shape, problem, q0, velocity, dt, values, limits[0], q, status, jumped)


@jax.custom_jvp
def _without_derivative(x: Any) -> Any:
    return x


@_without_derivative.defjvp
def _(primals: Any, tangents: Any) -> Any:
    raise JaxikError('track(..., mode="whole") has no derivatives yet: mode="online" has them')


def _over_time(before: jax.Array, q: jax.Array) -> jax.Array:
    """Motions (2, 1, ...) and (2, T, ...) one after the other, with time in front (1 + T, 2, ...)."""
    return jnp.moveaxis(jnp.concatenate([before, q], axis=1), 1, 0)


def _wide(mask: jax.Array, x: jax.Array) -> jax.Array:
    """A mask (*batch,) for an array (T, *batch, ...)."""
    return (mask > 0).reshape(1, *mask.shape, *(1,) * (x.ndim - 1 - mask.ndim))


def _aligned(problem: Problem, values: Values, batch_rank: int) -> Values:
    """Values (T, *batch, ...) with every batch axis, of size one where they have none."""

    def align(x: jax.Array, rank: int) -> jax.Array:
        missing = 1 + batch_rank + rank - x.ndim
        return x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])

    return jax.tree.map(align, values, ranks_of(problem, values))


def _bounds(problem: Problem, dt: jax.Array, longest_step: Any) -> tuple[jax.Array, ...]:
    """Lower and upper (2, *batch, nv) of the displacement of a step, and of its first and second difference."""

    def of_one(problem: Problem, dt: jax.Array, longest_step: jax.Array | None) -> list[jax.Array]:
        robot, motion = problem.robot, Motion(dt)
        free = jnp.full(robot.nv, jnp.inf, dt.dtype)
        found = [(-free, free)] * ORDERS
        for limit in limits_of(problem):
            if isinstance(limit, VelocityLimit):
                order, (lower, upper) = 0, limit.bounds(robot, None, motion)  # type: ignore[arg-type]
            elif isinstance(limit, AccelerationLimit):
                order, upper = 1, on_rates(robot, limit.max_acceleration, jnp.inf) * dt**2
                lower = -upper
            elif isinstance(limit, JerkLimit):
                order, upper = 2, on_rates(robot, limit.max_jerk, jnp.inf) * dt**3
                lower = -upper
            else:
                continue
            found[order] = jnp.maximum(found[order][0], lower), jnp.minimum(found[order][1], upper)
        lower, upper = found[0]
        longest = jnp.broadcast_to(LONGEST_STEP if longest_step is None else longest_step, (robot.nv,))
        unlimited = jnp.isinf(upper) & jnp.isinf(lower) | (longest_step is not None)
        found[0] = (
            jnp.where(unlimited, jnp.maximum(lower, -longest), lower),
            jnp.where(unlimited, jnp.minimum(upper, longest), upper),
        )
        return [jnp.stack(pair) for pair in found]

    arguments = {"problem": problem, "dt": dt, "longest_step": longest_step}
    ranks = {"problem": core_ranks(problem), "dt": 0, "longest_step": None if longest_step is None else 1}
    return tuple(jnp.moveaxis(x, -2, 0) for x in over_batch(of_one, arguments, ranks))


def _cheapest(
    shape: tuple[int, ...],
    lanes: int,
    steps: int,
    problem: Problem,
    q0: jax.Array | None,
    values: Values,
    bounds: jax.Array,
    options: WholePathOptions,
) -> jax.Array:
    """The configurations (T, *batch, nq) of the best of all candidates."""
    topology = problem.robot.topology
    path = with_tasks(problem, {name: problem.tasks[name] for name in path_tasks(problem)})
    held = {name: fields for name, fields in values.items() if name in path.tasks or name in (path.constraints or {})}
    first = jnp.broadcast_to(problem.robot.q_home if q0 is None else q0, (*shape, topology.nq))
    found = candidates(path, held, steps, shape, first, lanes, jax.random.key(options.seed))
    longest = jnp.broadcast_to(jnp.max(jnp.abs(bounds), axis=0), (*shape, topology.nv))

    def flat(x: jax.Array, axes: int) -> jax.Array:
        """The batch axes behind the first `axes` as the first one."""
        return jnp.moveaxis(x.reshape(*x.shape[:axes], -1, *x.shape[axes + len(shape) :]), axes, 0)

    q, missed, miss = (flat(x, 2) for x in found)

    def choose(q: jax.Array, missed: jax.Array, miss: jax.Array, longest: jax.Array, start: Any) -> jax.Array:
        chosen = shortest_path(topology, q, missed, MISS * miss, longest, options.jump_cost, start)
        return jnp.take_along_axis(q, chosen[:, None, None], axis=1)[:, 0]

    start = None if q0 is None else flat(first, 0)
    best = jax.vmap(choose, in_axes=(0, 0, 0, 0, None if start is None else 0))(
        q, missed, miss, flat(longest, 0), start
    )
    return jnp.moveaxis(best, 0, 1).reshape(best.shape[1], *shape, topology.nq)


def _smooth(
    shape: tuple[int, ...],
    problem: Problem,
    q: jax.Array,
    q0: jax.Array | None,
    velocity: jax.Array | None,
    dt: jax.Array,
    values: Values,
    bounds: tuple[jax.Array, ...],
    options: WholePathOptions,
) -> jax.Array:
    """The motion (T, *batch, nq) made smooth between its jumps, some of which that takes away."""
    topology, steps = problem.robot.topology, q.shape[0]
    after = -steps % ORDERS

    def longer(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x[:1]] * ORDERS + [x] + [x[-1:]] * after)

    tasks, path = _tasks_to_keep(problem)
    known = with_tasks(problem, tasks)
    every = placed(known, jax.tree.map(longer, {name: values[name] for name in values}))
    horizon = Horizon(
        every,
        path,
        (jnp.arange(steps + ORDERS + after) >= ORDERS) & (jnp.arange(steps + ORDERS + after) < steps + ORDERS),
        tuple(SPARE * x for x in bounds),
    )
    q = longer(q)
    if q0 is not None:
        way = jnp.zeros(topology.nv, q.dtype) if velocity is None else velocity * dt[..., None]
        for k in range(ORDERS):
            back = jnp.vectorize(functools.partial(manifold.integrate, topology), signature="(q),(v)->(q)")
            q = q.at[ORDERS - 1 - k].set(jnp.broadcast_to(back(q0, -k * way), q.shape[1:]))
    inside = horizon.stage.at[ORDERS].set(q0 is not None)
    before = jnp.arange(q.shape[0]) < ORDERS
    inside = inside | (before & (jnp.arange(q.shape[0]) > 0) & (q0 is not None))
    inside = jnp.broadcast_to(inside.reshape(-1, *(1,) * len(shape)), q.shape[:-1])

    def smooth(q: jax.Array, phase: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        longest, limited = phase
        linked = inside & ~_jumps(topology, q, longest * bounds[0])
        return smoothed(horizon, q, linked, limited, options.smoothing_steps), None

    # Where a jump could not be spread, the motion is smoothed again on both sides of it.
    q, _ = lax.scan(smooth, q, (jnp.asarray([SPREAD, 1.0], q.dtype), jnp.asarray([0.0, 1.0], q.dtype)))
    return q[ORDERS : ORDERS + steps]


def _tasks_to_keep(problem: Problem) -> tuple[dict[str, Any], tuple[str, ...]]:
    """All tasks, constraints and what keeps shapes apart, and the names of what has to hold: all but preferences."""
    path = path_tasks(problem)
    cleared = with_clearance(with_tasks(problem, {name: problem.tasks[name] for name in path}))
    held = dict(cleared.tasks) | constraints_of(problem, couplings=True)
    rest = {name: task for name, task in problem.tasks.items() if name not in held}
    return held | rest, tuple(held)


def _jumps(topology: Any, q: jax.Array, bounds: jax.Array) -> jax.Array:
    """Whether the displacement to each configuration but the first is out of bounds (T, *batch)."""
    way = jnp.vectorize(functools.partial(manifold.difference, topology), signature="(q),(q)->(v)")(q[:-1], q[1:])
    outside = jnp.any((way < bounds[0]) | (way > bounds[1]), axis=-1)
    return jnp.concatenate([jnp.zeros_like(outside[:1], shape=(1, *outside.shape[1:])), outside])


def _described(
    shape: tuple[int, ...],
    problem: Problem,
    q0: jax.Array | None,
    velocity: jax.Array | None,
    dt: jax.Array,
    values: Values,
    bounds: jax.Array,
    q: jax.Array,
    status: jax.Array,
    jumped: jax.Array,
) -> Track:
    """What a motion (T, *batch, nq) is worth."""
    topology, spread = problem.robot.topology, dt[..., None]
    before = q[:1] if q0 is None else jnp.broadcast_to(q0, q[:1].shape)
    way = jnp.vectorize(functools.partial(manifold.difference, topology), signature="(q),(q)->(v)")
    speed = way(jnp.concatenate([before, q[:-1]]), q) / spread
    if q0 is None:
        # A free start is in motion already: at the acceleration of the first steps, where these are no jumps.
        second, third = (speed[min(k, len(q) - 1)] for k in (1, 2))
        steady = jnp.clip(2 * second - third, bounds[0] / spread, bounds[1] / spread)
        smooth = [~jumped[min(k, len(q) - 1)][..., None] for k in (1, 2)]
        entering = jnp.where(smooth[0], jnp.where(smooth[1], steady, second), 0)
        speed, came = speed.at[0].set(entering), entering
    else:
        came = jnp.zeros_like(speed[0]) if velocity is None else jnp.broadcast_to(velocity, speed[0].shape)
    acceleration = jnp.diff(speed, axis=0, prepend=came[None]) / spread
    entering = jnp.zeros_like(speed[:1])
    if q0 is None and len(q) > 1:
        acceleration = acceleration.at[0].set(jnp.where(jumped[1][..., None], 0, acceleration[1]))
        entering = acceleration[:1]
    jerk = jnp.diff(acceleration, axis=0, prepend=entering) / spread
    at = placed(problem, values)
    nothing = jnp.zeros(q.shape[:-1], jnp.int32)
    kept = described_at(at, q, speed, acceleration, jerk, nothing, jnp.broadcast_to(dt, shape))
    return Track(
        q=q,
        velocity=speed,
        acceleration=acceleration,
        status=status,
        residuals=kept.residuals,
        speed_share=kept.speed_share,
        acceleration_share=kept.acceleration_share,
        jerk_share=kept.jerk_share,
        dt=dt,
        derivative_status=nothing + DerivativeStatus.NOT_COMPUTED,
        jumped=jumped,
        topology=topology,
        residual_units=part_units(problem.tasks | constraints_of(problem, couplings=True), kept.residuals),
    )


def _status(problem: Problem, q: jax.Array, jumped: jax.Array) -> jax.Array:
    """Of `Status` (2, T, *batch), at configurations with another axis behind."""
    tasks, path = _tasks_to_keep(problem)
    # Of constraints as of `solve`: by what is feasible, whatever their own tolerances.
    tolerance = jnp.asarray(FEASIBLE[q.dtype == jnp.float64], q.dtype)
    judged = tasks | {n: HardConstraint(tasks[n], tolerance) for n in constraints_of(problem, couplings=True)}
    problem = with_tasks(problem, {name: judged[name] for name in path})

    def of_one(problem: Problem, q: jax.Array, jumped: jax.Array) -> jax.Array:
        robot, tasks = problem.robot, problem.tasks
        kin = forward(constants_of(robot, tasks.values()), q)
        found = {name: task.report(robot, kin) for name, task in tasks.items()}
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(found)]))
        met = [within_tolerance(tasks[n], row_weights(tasks[n], r), r) for n, r in found.items() if r is not None]
        status = jnp.where(jnp.all(jnp.stack(met)), Status.CONVERGED, Status.STALLED)
        status = jnp.where(jumped, Status.INFEASIBLE, status)
        return jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)

    return of_each(of_one, (problem, q, jumped), (core_ranks(problem), 1, 0))


def _events(status: jax.Array, jumped: jax.Array, jump_cost: jax.Array) -> jax.Array:
    """What motions (2, T, *batch) are compared by, as candidates are: waypoints missed, and jumps."""
    missed = (status == Status.STALLED) | (status == Status.NONFINITE)
    return jnp.sum(missed + jump_cost * jumped, axis=1)
