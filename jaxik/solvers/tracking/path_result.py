"""What a whole path's motion is worth: velocities, statuses, shares of limits."""

import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.batching.linear_map import of_each
from jaxik.batching.method import lanes_that_fit
from jaxik.collision.sweep import apart_on_the_way
from jaxik.core.pytree import cast, core_ranks
from jaxik.core.status import Status
from jaxik.core.trees import part_units
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import forward
from jaxik.kinematics.geometry import geometry_of
from jaxik.limits.elastic import Elastic
from jaxik.limits.shares import shares_of
from jaxik.problem.problem import (
    Problem,
    constants_of,
    constraints_of,
    elastic_constraints_of,
    limits_of,
    with_tasks,
)
from jaxik.results.track import Track
from jaxik.solvers.nonlinear.finalize import FEASIBLE
from jaxik.solvers.nonlinear.formulation import within_tolerance
from jaxik.solvers.nonlinear.hard_constraint import HardConstraint, clearances, with_clearance
from jaxik.solvers.tracking.banded import ORDERS, later
from jaxik.solvers.tracking.horizon import coordinates, ways
from jaxik.solvers.tracking.loop import described_of
from jaxik.solvers.tracking.path_setting import RESTING, Given, bounds_of, elastic_bounds_of, tasks_to_keep
from jaxik.solvers.tracking.targets import placed
from jaxik.tasks.weights import row_weights, unmet

# Joints are at rest that move by less in a step [rad or m].
STILL = 1e-5
# A limit is passed from here on, as a share of it; by whether the precision is double.
PASSED = {False: 1e-4, True: 1e-9}
# Looks at most on the way from a waypoint to the next, and the shortest part of it between two. Ways of 96 waypoints
# around a wall are looked at 2.2 times; of 56 free ones of a radian beside a thin wall 45 are known to be free, by 24
# looks none.
LOOKS, SHORTEST = 128, 2.0**-8


def described(
    shape: tuple[int, ...],
    given: Given,
    q: jax.Array,
    status: jax.Array,
    jumped: jax.Array,
    derivative_status: jax.Array,
) -> Track:
    """What a motion (T, *batch, nq) is worth, of arguments as prepared."""
    problem, q0, velocity, dt = given.problem, given.q0, given.velocity, given.dt
    bounds, yielding = bounds_of(problem, dt, given.options.longest_step)[0], elastic_bounds_of(problem, dt)
    topology, spread = problem.robot.topology, dt[..., None]
    before = q[:1] if q0 is None else jnp.broadcast_to(q0, q[:1].shape)
    speed = ways(topology, jnp.concatenate([before, q[:-1]]), q) / spread
    if q0 is None:
        # A free start is in motion already: at the acceleration of the first steps, where these are no jumps.
        second, third = (speed[jnp.minimum(k, given.steps - 1)] for k in (1, 2))
        speeds = [bounds / spread, *(x / spread for order, x in yielding.values() if order == 0)]
        steady = 2 * second - third
        for lower, upper in speeds:
            steady = jnp.clip(steady, jnp.minimum(lower, second), jnp.maximum(upper, second))
        smooth = [~jumped[jnp.minimum(k, given.steps - 1)][..., None] for k in (1, 2)]
        entering = jnp.where(smooth[0], jnp.where(smooth[1], steady, second), 0)
        speed, came = speed.at[0].set(entering), entering
    else:
        came = jnp.zeros_like(speed[0]) if velocity is None else jnp.broadcast_to(velocity, speed[0].shape)
    acceleration = jnp.diff(speed, axis=0, prepend=came[None]) / spread
    entering = jnp.zeros_like(speed[:1])
    if q0 is None:
        free = (given.steps > 1) & ~jumped[1][..., None]
        acceleration = acceleration.at[0].set(jnp.where(free, acceleration[1], 0))
        entering = acceleration[:1]
    jerk = jnp.diff(acceleration, axis=0, prepend=entering) / spread
    at = placed(problem, given.values)
    moves = {"q": q, "velocity": speed, "acceleration": acceleration, "jerk": jerk}
    nothing = {"status": jnp.zeros(q.shape[:-1], jnp.int32), "dt": jnp.broadcast_to(dt, shape)}
    ranks = dict.fromkeys(moves, 1) | dict.fromkeys(nothing, 0)
    kept = over_batch(described_of, {"problem": at} | moves | nothing, {"problem": core_ranks(problem)} | ranks)
    status = _with_limits(status, jumped, _hard_shares(at, moves))
    return Track(
        q=q,
        velocity=speed,
        acceleration=acceleration,
        status=status,
        residuals=kept.residuals,
        yielded=_yielded(problem, yielding, q, speed * spread, acceleration * spread**2, jumped)
        | _missed(problem, kept.residuals),
        speed_share=kept.speed_share,
        acceleration_share=kept.acceleration_share,
        jerk_share=kept.jerk_share,
        dt=dt,
        derivative_status=derivative_status,
        jumped=jumped,
        topology=topology,
        residual_units=part_units(problem.tasks | constraints_of(problem, couplings=True), kept.residuals),
    )


def _hard_shares(problem: Problem, moves: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
    """The largest speed, acceleration and jerk (T, *batch), relative to the limits that do not yield."""

    def of_one(problem: Problem, velocity: jax.Array, acceleration: jax.Array, jerk: jax.Array) -> tuple:
        return shares_of(limits_of(problem), problem.robot, velocity, acceleration, jerk)

    rates = {name: x for name, x in moves.items() if name != "q"}
    ranks = {"problem": core_ranks(problem)} | dict.fromkeys(rates, 1)
    return over_batch(of_one, {"problem": problem} | rates, ranks)


def _yielded(
    problem: Problem,
    yielding: dict[str, tuple[int, jax.Array]],
    q: jax.Array,
    displacement: jax.Array,
    change: jax.Array,
    jumped: jax.Array,
) -> dict[str, jax.Array]:
    """By how much elastic limits are passed (T, *batch, nv), as displacements of a step; across a jump by nothing.

    Args:
      yielding: as of `elastic_bounds_of`.
      displacement, change (T, *batch, nv): of steps, and their differences.
    """
    given = {0: displacement, 1: change, ORDERS: coordinates(problem.robot.topology, q)}
    across = {0: jumped, 1: jumped | later(jumped, 1)}
    # What does not move counts for nothing.
    still = jnp.zeros((), bool) if problem.dof_mask is None else ~problem.dof_mask

    def beyond(order: int, bounds: jax.Array) -> jax.Array:
        x = given[order]
        passed = jnp.maximum(x - bounds[1], 0) + jnp.minimum(x - bounds[0], 0)
        # What is met to the last digits, of displacements or of joints, holds.
        rounding = jnp.maximum(PASSED[x.dtype == jnp.float64] * jnp.abs(x), 16 * jnp.finfo(x.dtype).eps)
        holds = jnp.abs(passed) <= rounding
        return jnp.where(holds | across.get(order, jnp.zeros_like(jumped))[..., None] | still, 0, passed)

    return {name: beyond(*found) for name, found in yielding.items()}


def _missed(problem: Problem, residuals: dict[str, Any]) -> dict[str, Any]:
    """By how much constraints that yield are off (T, *batch, ...), where that is more than what holds may be."""
    constraints = elastic_constraints_of(problem)

    def of_one(constraints: dict[str, Elastic], residuals: dict[str, Any]) -> dict[str, Any]:
        double = next(iter(jax.tree.leaves(residuals))).dtype == jnp.float64
        return {name: unmet(each.of, residuals[name], FEASIBLE[double]) for name, each in constraints.items()}

    found = {name: residuals[name] for name in constraints}
    ranks = {"constraints": core_ranks(constraints), "residuals": core_ranks(found, 1)}
    return over_batch(of_one, {"constraints": constraints, "residuals": found}, ranks) if found else {}


def _with_limits(status: jax.Array, jumped: jax.Array, shares: tuple[jax.Array, ...]) -> jax.Array:
    """Statuses (T, *batch) that say as well where limits are passed, but for differences across a jump."""
    speed, acceleration, jerk = shares
    after = jumped | later(jumped, 1)
    most = 1 + PASSED[speed.dtype == jnp.float64]
    passed = (speed > most) & ~jumped | (acceleration > most) & ~after | (jerk > most) & ~(after | later(jumped, 2))
    return jnp.where(passed & (status == Status.CONVERGED), Status.INFEASIBLE, status)


def status_of(problem: Problem, q: jax.Array, jumped: jax.Array) -> jax.Array:
    """Of `Status` (k, T, *batch), at the configurations of k motions with another axis behind."""
    tasks, path = tasks_to_keep(problem)
    # Of constraints as of `solve`: by what is feasible, whatever their own tolerances.
    tolerance = jnp.asarray(FEASIBLE[q.dtype == jnp.float64], q.dtype)
    judged = tasks | {n: HardConstraint(tasks[n], tolerance) for n in constraints_of(problem, couplings=True)}
    problem = with_tasks(problem, {name: judged[name] for name in path})

    def of_one(problem: Problem, q: jax.Array, jumped: jax.Array) -> jax.Array:
        robot, tasks = problem.robot, problem.tasks
        kin = forward(constants_of(robot, tasks.values()), q)
        # Where nothing is asked a target may be NaN.
        reports = {name: task.report(robot, kin) for name, task in tasks.items()}
        found = {name: unmet(tasks[name], r, 0) for name, r in reports.items() if r is not None}
        finite = _every([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(found)])
        met = {n: within_tolerance(tasks[n], row_weights(tasks[n], r), r) for n, r in found.items()}
        status = jnp.where(_every(met.values()), Status.CONVERGED, Status.STALLED)
        for name in clearances(problem):
            status = jnp.where(met[name], status, Status.COLLIDES)
        status = jnp.where(jumped, Status.INFEASIBLE, status)
        return jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)

    ranks = {"problem": core_ranks(problem), "q": 1, "jumped": 0}
    return over_batch(of_one, {"problem": problem, "q": q, "jumped": jumped}, ranks)


def meetings(problem: Problem, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether shapes that limits keep apart may meet on the way to each configuration but the first (T, *batch).

    False where they are known to be apart all along it. And which pair is near there, of the pairs of all limits. In
    single precision, which says as much to a micrometre.

    Args:
      q (T + 1, *batch, nq): a motion.
    """
    problem, q = cast((with_clearance(with_tasks(problem, {})), q), jnp.float32)

    def of_one(problem: Problem, q: jax.Array, to: jax.Array) -> tuple[jax.Array, jax.Array]:
        robot, tasks = problem.robot, problem.tasks.values()
        constants, way = constants_of(robot, tasks), manifold.difference(robot.topology, q, to)
        free, pair, first = jnp.ones((), bool), jnp.zeros((), jnp.int32), 0
        for task in tasks:
            table = task.table(robot)  # type: ignore[attr-defined]
            geometry = geometry_of(robot.name, robot.geometry)
            at = lambda share: forward(constants, manifold.integrate(robot.topology, q, share * way))  # noqa: E731
            apart, near = apart_on_the_way(geometry, task.world, table, at, way, LOOKS, SHORTEST)  # type: ignore[attr-defined]
            pair, free, first = jnp.where(apart, pair, first + near), free & apart, first + len(table.names)
        return ~free, pair

    given, ranks = (problem, q[:-1], q[1:]), (core_ranks(problem), 1, 1)
    return of_each(of_one, given, ranks, lanes_that_fit(problem.robot.nv**2))


def _every(flags: Iterable[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.logical_and, flags, jnp.ones((), bool))


def moves_at_rest(topology: Any, q: jax.Array, ends_at_rest: jax.Array, steps: jax.Array) -> jax.Array:
    """Whether motions (T + 1, k, *batch, nq) move in a step in which they are to be at rest (T, k, *batch)."""
    moves = jnp.any(jnp.abs(ways(topology, q[:-1], q[1:])) > STILL, axis=-1)
    time = jnp.arange(moves.shape[0]).reshape(-1, *(1,) * (moves.ndim - 1))
    return moves & ends_at_rest & (time >= steps - RESTING) & (time < steps)


def events_of(status: jax.Array, jumped: jax.Array, jump_cost: jax.Array, counts: jax.Array) -> jax.Array:
    """Waypoints missed and jumps of motions (k, T, *batch), as candidates are compared by, of those that count (T,)."""
    missed = (status == Status.STALLED) | (status == Status.COLLIDES) | (status == Status.NONFINITE)
    counts = counts.reshape(-1, *(1,) * (missed.ndim - 2))
    return jnp.sum(counts * (missed + jump_cost * jumped), axis=1)
