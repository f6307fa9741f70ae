"""One step of a loop that follows targets: where it leads, and how it did there."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.linear_map import of_each
from jaxik.core.pytree import core_ranks, leaf, pytree, shapes_of_one
from jaxik.core.status import DerivativeStatus, Outcome, Status
from jaxik.kinematics.forward import forward
from jaxik.kinematics.motion import Motion
from jaxik.limits.combine import merged_bounds, merged_rows
from jaxik.limits.jerk import JerkLimit
from jaxik.limits.shares import shares_of
from jaxik.problem.problem import (
    Problem,
    constants_of,
    constraints_of,
    elastic_constraints_of,
    elastic_limits_of,
    limits_of,
)
from jaxik.qp_solver import ActiveSet
from jaxik.solvers.differential.linearization import linearized
from jaxik.solvers.differential.step import stepped
from jaxik.solvers.differential.yielded import yielded_of
from jaxik.solvers.nonlinear.formulation import within_tolerance
from jaxik.solvers.tracking.growth import Growth, grown, no_growth, shortened
from jaxik.solvers.tracking.options import TrackOptions
from jaxik.solvers.tracking.targets import Values, aimed_ahead, placed
from jaxik.tasks.base import Task
from jaxik.tasks.grouping import map_tasks
from jaxik.tasks.weights import row_weights

# A joint that moves less in one step [rad or m] is at rest: a gain of 0.01 still moves one that is 1e-4 away.
REST = 1e-6
# Share of a limit on acceleration or jerk from which a joint starts, or stops, as hard as it may.
STARTING = 0.99


class Carried(NamedTuple):
    """What one step hands on to the next: fields of `TrackState`."""

    q: jax.Array
    velocity: jax.Array
    acceleration: jax.Array
    active: ActiveSet
    targets: Values


class Described(NamedTuple):
    """How a step did, where it led: fields of `TrackState`."""

    residuals: dict[str, Any]
    status: jax.Array
    speed_share: jax.Array
    acceleration_share: jax.Array
    jerk_share: jax.Array


@pytree
class TrackState(Outcome):
    """Where a loop of `track_step` is; all arrays have the batch axes of its arguments in front.

    A controller may put in what it measured: `dataclasses.replace(state, q=q, velocity=velocity)`.

    Attributes:
      q (*batch, nq), velocity, acceleration (*batch, nv): at the end of the last step [rad, m and s].
      status, residuals, derivative_status: as of `Track`, of the last step.
      speed_share, acceleration_share, jerk_share (*batch,): the largest speed, acceleration and jerk of a joint in the
        last step, relative to its limit; 0 without such a limit.
      yielded: by how much what is `Elastic` yielded in the last step, as of `StepResult`.
      active: the active set of the last quadratic program, from which the next one starts.
      targets: by task and field the values that the last step followed.
      growth: of a perturbation, which `TrackOptions.growth_limit` bounds.
    """

    q: jax.Array = leaf(1)
    velocity: jax.Array = leaf(1)
    acceleration: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    derivative_status: jax.Array = leaf(0)
    speed_share: jax.Array = leaf(0)
    acceleration_share: jax.Array = leaf(0)
    jerk_share: jax.Array = leaf(0)
    yielded: dict[str, Any] = leaf()
    active: ActiveSet = leaf()
    targets: Values = leaf()
    growth: Growth | None = leaf(default=None)

    def carried(self) -> Carried:
        return Carried(self.q, self.velocity, self.acceleration, self.active, self.targets)


def started(problem: Problem, q: jax.Array, velocity: jax.Array, targets: Values) -> Carried:
    """What the first step goes on from: at a velocity (*batch, nv), with targets of the first step."""
    batch, counts = q.shape[:-1], _row_counts(problem)
    bounds, rows = jnp.zeros(velocity.shape, jnp.int32), jnp.zeros((*batch, counts[0]), bool)
    yielding = jnp.zeros((*batch, sum(counts)), jnp.int32) if _is_elastic(problem) else None
    return Carried(q, velocity, jnp.zeros_like(velocity), ActiveSet(bounds, rows, yielding), targets)


def state_at_start(problem: Problem, before: Carried) -> TrackState:
    """The state before the first step, as if a step had led there."""
    none, dt = jnp.zeros(before.q.shape[:-1], jnp.int32), jnp.ones((), before.q.dtype)
    motion = before.velocity, before.acceleration, jnp.zeros_like(before.velocity)
    described = described_at(placed(problem, before.targets), before.q, *motion, none, dt)
    return TrackState(
        q=before.q,
        velocity=before.velocity,
        acceleration=before.acceleration,
        derivative_status=none - 1,
        active=before.active,
        targets=before.targets,
        yielded=jax.tree.map(lambda x: jnp.zeros((*none.shape, *x.shape), x.dtype), _yielded_of_one(problem)),
        growth=no_growth(before.q, before.velocity),
        **described._replace(status=none)._asdict(),
    )


def advanced(
    width: int,
    problem: Problem,
    before: Carried,
    dt: jax.Array,
    targets: Values,
    options: TrackOptions,
    growth: Growth | None = None,
) -> tuple[TrackState, Growth | None]:
    """Take one step towards targets (*batch, ...), the values of its end.

    Args:
      width: how many elements are worked on side by side.
      problem, dt, options: cast to the dtype of the configuration.
      growth: of the steps before, where `TrackOptions.growth_limit` asks for it.
    """
    aims = aimed_ahead(problem, before.targets, targets, options.feed_forward)
    has_jerk = any(isinstance(limit, JerkLimit) for limit in limits_of(problem))
    motion = Motion(dt, before.velocity, before.acceleration if has_jerk else None)
    asked = placed(problem, aims), before.q, motion, options.damping, before.active, options.qp_options
    result = stepped(width, options.continuous, *asked)
    if growth is not None:
        growth, share = grown(growth, options.growth_limit, width, options.continuous, asked)
        worth = jnp.where(growth.cut > 0, jnp.maximum(result.derivative_status, DerivativeStatus.APPROXIMATE), -1)
        result = dataclasses.replace(
            result,
            q=shortened(result.q, share),
            velocity=shortened(result.velocity, share),
            derivative_status=jnp.maximum(result.derivative_status, worth).astype(jnp.int32),
        )
    acceleration = (result.velocity - before.velocity) / dt[..., None]
    motion = result.velocity, acceleration, (acceleration - before.acceleration) / dt[..., None]
    described = described_at(placed(problem, targets), result.q, *motion, result.status, dt)
    state = TrackState(
        q=result.q,
        velocity=result.velocity,
        acceleration=acceleration,
        derivative_status=result.derivative_status,
        active=result.qp.active,
        targets=targets,
        yielded=result.yielded,
        **described._asdict(),
    )
    return state, growth


def described_at(problem: Problem, *others: Any) -> Described:
    """How steps did; arguments are those of `described_of`, with batch axes in front."""
    return of_each(described_of, (problem, *others), (core_ranks(problem), 1, 1, 1, 1, 0, 0))


def described_of(
    problem: Problem,
    q: jax.Array,
    velocity: jax.Array,
    acceleration: jax.Array,
    jerk: jax.Array,
    status: jax.Array,
    dt: jax.Array,
) -> Described:
    """How a step did that led to a configuration (nq,), at a velocity, acceleration and jerk (nv,)."""
    robot = problem.robot
    asked = {name: task for name, task in problem.tasks.items() if isinstance(task, Task)}
    tasks = asked | constraints_of(problem, couplings=True)
    kin = forward(constants_of(robot, tasks.values()), q)
    residuals = map_tasks(lambda task, kin: task.report(robot, kin), tasks, kin)
    residuals = {name: residual for name, residual in residuals.items() if residual is not None}
    met = [within_tolerance(asked[n], row_weights(asked[n], r), r) for n, r in residuals.items() if n in asked]
    # A joint that turns round passes through rest.
    fastest = jnp.maximum(jnp.abs(velocity), jnp.abs(velocity - acceleration * dt))
    moved = jnp.max(fastest, initial=0) * dt
    limits = (*limits_of(problem), *(elastic.of for elastic in elastic_limits_of(problem).values()))
    shares = shares_of(limits, robot, velocity, acceleration, jerk)
    # In short steps one that starts as hard as it may is at rest by its speed: at 200 rad/s3 it moves 2e-7 rad in 1 ms.
    # Not by rounding, which passes low limits: a robot that is stuck in float32 shakes by 1e-7 rad.
    starting = (jnp.maximum(*shares[1:]) > STARTING) & (moved > jnp.finfo(moved.dtype).eps)
    stuck = (status == Status.CONVERGED) & (moved <= REST) & ~starting & ~jnp.all(jnp.asarray(met, bool))
    status = jnp.where(stuck, Status.STALLED, status).astype(jnp.int32)
    return Described(residuals, status, *shares)


def _is_elastic(problem: Problem) -> bool:
    return bool(elastic_limits_of(problem) or elastic_constraints_of(problem))


def _row_counts(problem: Problem) -> tuple[int, int]:
    """How many rows limits and constraints have in one step; of constraints only where something may yield."""

    def right_sides(problem: Problem) -> tuple[jax.Array, jax.Array]:
        robot, limits, q = problem.robot, limits_of(problem), problem.robot.q_home
        motion, none = Motion(jnp.ones((), q.dtype)), jnp.zeros(0)
        if _is_elastic(problem):
            model = linearized(problem, q, motion, jnp.zeros((), q.dtype))
            return none if model.h is None else model.h, none if model.b is None else model.b
        kin = forward(constants_of(robot, limits), q)
        rows = merged_rows(limits, robot, kin, motion, merged_bounds(limits, robot, kin, motion))
        return none if rows is None else rows[1], none

    rows, equalities = shapes_of_one(right_sides, problem)
    return rows.shape[0], equalities.shape[0]


def _yielded_of_one(problem: Problem) -> dict[str, Any]:
    """The shapes of what yields in one step of one element."""

    def yielded(problem: Problem) -> dict[str, Any]:
        q = problem.robot.q_home
        model = linearized(problem, q, Motion(jnp.ones((), q.dtype)), jnp.zeros((), q.dtype))
        count = sum(x.shape[0] for x in (model.h, model.b) if x is not None)
        x, no = jnp.zeros(problem.robot.nv, q.dtype), jnp.zeros((), bool)
        return yielded_of(problem, model, x, jnp.zeros(count, bool), no, no)

    return shapes_of_one(yielded, problem) if _is_elastic(problem) else {}
