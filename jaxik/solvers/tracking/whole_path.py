"""`track(..., mode="whole")`: the best motion along a path that is known before it sets out."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import over_batch
from jaxik.batching.double_precision import in_double
from jaxik.batching.linear_map import moving
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, core_ranks
from jaxik.core.status import DerivativeStatus, Status
from jaxik.kinematics import manifold
from jaxik.kinematics.topology import dofs_of_entries
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.collision import CollisionLimit
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.jerk import JerkLimit
from jaxik.limits.velocity import VelocityLimit
from jaxik.numerics.linalg import static_gather
from jaxik.problem.problem import (
    Problem,
    effective_joint_limits,
    elastic_constraints_of,
    elastic_limits_of,
    limits_of,
)
from jaxik.results.track import Track
from jaxik.solvers.tracking.banded import ORDERS
from jaxik.solvers.tracking.barrier import KEPT
from jaxik.solvers.tracking.cheapest import cheapest
from jaxik.solvers.tracking.path_derivatives import Sensitivity, motion_tangent, sensitivity
from jaxik.solvers.tracking.path_pairs import Farther, farther_beside, none_farther
from jaxik.solvers.tracking.path_result import described, events_of, meetings, moves_at_rest, status_of
from jaxik.solvers.tracking.path_setting import OF_MOTION, Given, bounds_of, horizon_of, jumps_of, prepared
from jaxik.solvers.tracking.shortest_path import SPREAD
from jaxik.solvers.tracking.smoothing import Smooth, begun, chosen, kept, paid, smoothed
from jaxik.solvers.tracking.targets import placed

HELD_LIMITS = (ConfigurationLimit, VelocityLimit, AccelerationLimit, JerkLimit, CollisionLimit)
# So many longest steps no displacement has: none is a jump.
ANY_LENGTH = 1e6
# A motion that costs more by so much is as good.
TIED = 1.01
# So many more rounds beside obstacles, as pairs that meet on a way are kept farther apart: of 64 motions around a wall
# 58 cut a corner at first, then 18, then one.
ROUNDS = 2
# Of three motions the one that is returned, what it was before limits on displacements' differences, and at first.
SMOOTH, FREE, BEGUN = range(3)


def check_held(problem: Problem) -> None:
    """Say on the host which constraints and limits a whole path does not keep.

    Raises:
      JaxikError: for other limits than `HELD_LIMITS`, and limits that are `Elastic` but those of motion and of joints.
    """
    may_yield = *OF_MOTION, ConfigurationLimit
    for name, each in elastic_limits_of(problem).items():
        if not isinstance(each.of, may_yield):
            raise JaxikError(
                'in mode="whole" constraints, ConfigurationLimit, VelocityLimit and AccelerationLimit may be Elastic; '
                f"a {type(each.of).__name__} is not held: take {name!r} out of Elastic"
            )
    for limit in limits_of(problem):
        if not isinstance(limit, HELD_LIMITS):
            held = ", ".join(kind.__name__ for kind in HELD_LIMITS)
            raise JaxikError(
                f'mode="whole" does not hold {type(limit).__name__}, only {held}: follow the path with mode="online"'
            )


class Plan(NamedTuple):
    """A motion (T, *batch, nq), as long as the program; statuses (T, *batch), int32, and whether steps jump.

    And whether smoothing settled (*batch,).
    """

    q: jax.Array
    status: jax.Array
    jumped: jax.Array
    derivative_status: jax.Array
    settled: jax.Array


class Found(NamedTuple):
    """What derivatives need besides.

    Attributes:
      smooth: what smoothing came to.
      parted (T, *batch): whether the step to a waypoint was none that was to be smooth.
      rough (*batch,): whether the motion is left as it was before, or uses the path's tolerances: without derivatives.
      tied (*batch,): whether another motion that ends elsewhere is as good.
      farther: pairs that smoothing kept farther apart than asked.
    """

    smooth: Smooth
    parted: jax.Array
    rough: jax.Array
    tied: jax.Array
    farther: Farther


def padded(values: Any, steps: int) -> Any:
    """Values over time with the last repeated up to the length of a program, so that paths share programs.

    Lengths are 4 an octave, in threes, as stages are smoothed in blocks of three: 192, 240, 288, 336, 384, 480.
    """
    blocks = -(-steps // ORDERS)
    unit = 1 << max(blocks.bit_length() - 3, 0)
    missing = ORDERS * unit * -(-blocks // unit) - steps
    return jax.tree.map(lambda x: jnp.concatenate([x, *[x[-1:]] * missing]), values), steps + missing


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def whole_path(shape: tuple[int, ...], lanes: int, length: int, given: Given) -> Track:
    """Plan a motion, made smooth in double precision: of its slowest changes single precision leaves nothing.

    In float32 all of 16 paths of a Panda were unsettled, up to 0.5 rad from where they settle, without derivatives.

    Args:
      shape: the batch axes.
      lanes: how many candidates there are of each waypoint.
      length: of the program, which at most so many waypoints fit.
    """

    def plan(given: Given) -> tuple[Plan, Found]:
        # Where a derivative is taken, JAX states that there is no mesh, elsewhere nothing, and has left the precision
        # of products: with these stated it is traced once.
        mesh = jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh())
        with mesh, jax.default_matmul_precision("highest"):
            return _planned(shape, lanes, length, given)

    @jax.custom_jvp
    def run(given: Given) -> Plan:
        return plan(given)[0]

    def rule(primals: tuple[Given], tangents: tuple[Any]) -> tuple[Plan, Plan]:
        found, about = plan(*primals)
        leaves = jax.tree.leaves(tangents)
        active = moving(leaves)
        known, status = in_double(functools.partial(sensitivity, shape), *primals, found, about)

        def along(given: Given, about: Found, known: Sensitivity, *values: jax.Array) -> jax.Array:
            return cast(motion_tangent(shape, given, about, known, active, values), found.q.dtype)

        moved = in_double(along, *primals, about, known, linear=tuple(leaves[i] for i in active))
        none = jax.tree.map(lambda x: jnp.zeros(x.shape, jax.dtypes.float0), found)
        return found._replace(derivative_status=status), none._replace(q=moved)

    run.defjvp(rule, symbolic_zeros=True)
    given, finite = _with_finite_start(given)
    found = run(given)
    status = jnp.where(finite, found.status, Status.NONFINITE).astype(jnp.int32)
    known = found.derivative_status != DerivativeStatus.NOT_COMPUTED
    worth = jnp.where(known & ~finite, DerivativeStatus.UNAVAILABLE, found.derivative_status).astype(jnp.int32)
    q = jnp.where(finite[..., None], found.q, lax.stop_gradient(found.q))
    with jax.default_matmul_precision("highest"):
        motion = described(shape, prepared(len(shape), given), q, status, found.jumped, worth)
        return dataclasses.replace(motion, settled=found.settled & finite)


def _with_finite_start(given: Given) -> tuple[Given, jax.Array]:
    """The same from `q_home` and from rest where the start, or a motion to begin with, is not finite.

    And where both are (*batch,).
    """
    finite, home = jnp.ones((), bool), given.problem.robot.q_home
    for name, otherwise in (("q0", home), ("velocity", jnp.zeros(()))):
        x = getattr(given, name)
        if x is not None:
            own = jnp.isfinite(x)
            every = jnp.all(own, axis=-1)
            x = jnp.where(own, x, otherwise.astype(x.dtype))
            # Nothing is learned about the other entries either.
            given = given._replace(**{name: jnp.where(every[..., None], x, lax.stop_gradient(x))})
            finite = finite & every
    if given.initial is not None:
        x = given.initial
        x = x.reshape(x.shape[0], *(1,) * max(home.ndim + 1 - x.ndim, 0), *x.shape[1:])  # as many batch axes as home
        every = jnp.all(jnp.isfinite(x), axis=(0, -1))
        initial = jnp.where(every[..., None], x, home.astype(x.dtype))
        given, finite = given._replace(initial=lax.stop_gradient(initial)), finite & every
    return given, finite


def _begun(given: Given, shape: tuple[int, ...]) -> jax.Array:
    """The motion to begin with (T, *batch, nq), inside the limits of joints, and still where joints are held."""
    problem, start = given.problem, given.initial[0] if given.q0 is None else given.q0  # type: ignore[index]

    def of_one(problem: Problem, q: jax.Array, start: jax.Array) -> jax.Array:
        inside = manifold.clamp(effective_joint_limits(problem), q)
        if problem.dof_mask is None:
            return inside
        moves = static_gather(problem.dof_mask, dofs_of_entries(problem.robot.topology), -1)
        return jnp.where(moves, inside, start)

    arguments = {"problem": problem, "q": given.initial, "start": start}
    found = over_batch(of_one, arguments, {"problem": core_ranks(problem), "q": 1, "start": 1})
    return jnp.broadcast_to(found, (*shape, found.shape[-1]))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _planned(shape: tuple[int, ...], lanes: int, length: int, given: Given) -> tuple[Plan, Found]:
    given = prepared(len(shape), _first_derivatives_alone(given))
    problem, options, topology = given.problem, given.options, given.problem.robot.topology
    bounds = bounds_of(problem, given.dt, options.longest_step)[0]
    counts = jnp.arange(length) < given.steps
    if given.initial is None:
        q, tied = cheapest(shape, lanes, length, given, bounds)
    else:
        q, tied = _begun(given, (length, *shape)), jnp.zeros(shape, bool)
    found, parted, loose, free, farther, meets = in_double(functools.partial(_smooth, shape), given, q, bounds)
    smooth, free = cast((found.q[ORDERS:], free), q.dtype)
    # A motion that its limits made worse is left as it was without them, or as it was found.
    every = jnp.stack([smooth, free, q])  # as SMOOTH, FREE, BEGUN
    over_time = _from_start(given, jnp.moveaxis(every, 1, 0))
    jumped = jnp.moveaxis(jumps_of(topology, over_time, bounds)[1:], 0, 1)
    status = status_of(placed(problem, given.values), every, jumped)
    status = jnp.where(meets & (status == Status.CONVERGED), Status.COLLIDES, status)
    moves_on = jnp.moveaxis(moves_at_rest(topology, over_time, options.end_at_rest, given.steps), 0, 1)
    status = jnp.where(moves_on & (status == Status.CONVERGED), Status.INFEASIBLE, status).astype(jnp.int32)
    best = _best(shape, given, every, jumped, events_of(status, jumped | moves_on, options.jump_cost, counts))
    q, status, jumped = (_picked(best, x) for x in (every, status, jumped))
    none = jnp.full_like(status, DerivativeStatus.NOT_COMPUTED)
    settled = found.settled & (best == 0)
    return Plan(q, status, jumped, none, settled), Found(found, parted, (best > 0) | loose, tied, farther)


def _from_start(given: Given, q: jax.Array) -> jax.Array:
    """A motion (T, ..., *batch, nq) with where it starts ahead: where that is free, at the first waypoint."""
    start = q[:1] if given.q0 is None else jnp.broadcast_to(given.q0, q[:1].shape)
    return jnp.concatenate([start, q])


def _best(shape: tuple[int, ...], given: Given, every: jax.Array, jumped: jax.Array, events: jax.Array) -> jax.Array:
    """The index (*batch,) of the motion (k, T, *batch, nq) of fewest events (k, *batch).

    Of those with as many, where something may yield, of one within its limits; of these of the one that costs least, as
    smoothing may not have settled. The first one, which has derivatives, unless another is better by a hundredth.
    """
    fewest = events == jnp.min(events, axis=0)
    if not (elastic_limits_of(given.problem) or elastic_constraints_of(given.problem)):
        return jnp.argmax(fewest, axis=0)

    def judged(motion: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        horizon, q = horizon_of(shape, given, *motion, jnp.ones((), every.dtype))
        return kept(horizon, q)[0], paid(horizon, q)

    keeps, cost = lax.map(judged, (every, jumped))
    within = fewest & (keeps | ~jnp.any(fewest & keeps, axis=0))
    cost = jnp.where(within, cost, jnp.inf)
    return jnp.where(cost[0] <= TIED * jnp.min(cost, axis=0), 0, jnp.argmin(cost, axis=0))


@jax.custom_jvp
def _first_derivatives_alone(x: Any) -> Any:
    return x


@_first_derivatives_alone.defjvp
def _(primals: Any, tangents: Any) -> Any:
    raise JaxikError('track(..., mode="whole") has first derivatives alone: mode="online" has all')


def _picked(which: jax.Array, x: jax.Array) -> jax.Array:
    """Of each element of (k, T, *batch, ...) the one of k that an index (*batch,) says."""
    at = which.reshape(1, 1, *which.shape, *(1,) * (x.ndim - 2 - which.ndim))
    return jnp.take_along_axis(x, at, axis=0)[0]


class _Smoothed(NamedTuple):
    """A motion made smooth.

    Attributes:
      smooth, parted (T, *batch): the motion, and the steps that were to be none.
      loose (*batch,): whether it uses tolerances.
      free (T, *batch, nq): the motion before limits on displacements' differences.
      farther: pairs that are kept farther apart than asked.
      meets (3, T, *batch): whether shapes may meet on the way to a waypoint, of the three motions.
    """

    smooth: Smooth
    parted: jax.Array
    loose: jax.Array
    free: jax.Array
    farther: Farther
    meets: jax.Array


def _smooth(shape: tuple[int, ...], given: Given, q: jax.Array, bounds: jax.Array) -> _Smoothed:
    """The motion made smooth between its jumps, some of which that takes away.

    First exactly on the path, where jumps may be spread over several steps. Where one is left, or limits are passed,
    again, on both sides of it and within all limits. Where that does not do either, within the path's tolerances.
    Beside obstacles all limits count from the first on: each looks for the same way around them. What then meets on the
    way from one waypoint to the next, as where a corner is cut, is kept farther apart there.
    """
    topology, steps = given.problem.robot.topology, given.options.smoothing_steps
    # A motion that is given to begin with says nothing of where the path has to be left.
    spread = SPREAD if given.initial is None else ANY_LENGTH
    counts = (jnp.arange(q.shape[0]) < given.steps).reshape(-1, *(1,) * len(shape))

    def parted_of(q: jax.Array, longest: jax.Array | float) -> jax.Array:
        return jumps_of(topology, _from_start(given, q), longest * bounds)[1:] & counts

    def smooth(phase: jax.Array, before: _Smoothed) -> _Smoothed:
        loose, now, farther, meets = phase == last, before.smooth.q[ORDERS:], before.farther, before.meets
        parted = jnp.where(loose, whole, parted_of(now, jnp.where(phase == 0, spread, 1.0)))
        crosses = jnp.zeros(shape, bool)
        if beside:
            own, pair = meetings(given.problem, _from_start(given, now))
            meets = meets.at[jnp.where(phase == 0, BEGUN, jnp.where(phase == 1, FREE, SMOOTH))].set(own)
            own = own & ~parted & counts
            crosses = jnp.any(own, axis=0)
            # Not for what it begins with, and for so many rounds.
            farther = farther_beside(farther, own & (phase > 0) & (phase < last), pair)
        limited = ((phase > 0) | beside).astype(q.dtype)
        horizon, found = horizon_of(shape, given, now, parted, limited)
        holds, yields_nowhere = kept(horizon, found)
        # Beside obstacles what does not settle in so many steps does not in as many again.
        good = before.smooth.settled | (before.smooth.passed <= KEPT) & beside
        done = jnp.all(parted == before.parted, axis=0) & good & holds & (phase > 0) & ~crosses
        done = done & (yields_nowhere | loose) | (phase > last)

        def again() -> _Smoothed:
            begin = jnp.where(loose, q, now)
            horizon, begin = horizon_of(shape, given, begin, parted, limited, loose=loose, farther=farther)
            better = smoothed(horizon, begin, steps, ~done)
            # Within its tolerances a motion is good that keeps all limits, if not the smoothest of these. One that does
            # so on the path stays there.
            exact = ~jnp.any(parted_of(now, 1.0) & ~whole, axis=0) & holds & ~crosses
            stays = done | loose & (exact | (better.passed > KEPT))
            return _Smoothed(
                smooth=chosen(stays, before.smooth, better),
                parted=jnp.where(stays, before.parted, parted),
                loose=loose & ~stays,
                free=jnp.where(phase == 0, better.q[ORDERS:], before.free),
                farther=chosen(stays, before.farther, farther),
                meets=meets,
            )

        return lax.cond(jnp.all(done), lambda: before._replace(meets=meets), again)

    whole = parted_of(q, spread)
    begin = begun(*horizon_of(shape, given, q, whole, jnp.zeros((), q.dtype)))
    beside = bool(begin.pairs)
    last = 2 + beside * ROUNDS
    known = _Smoothed(
        begin,
        whole,
        jnp.zeros(shape, bool),
        q,
        none_farther(begin.q.shape[:-1], q.dtype),
        jnp.zeros((3, *q.shape[:-1]), bool),
    )
    # Beside obstacles once more, to look at the last one.
    return lax.fori_loop(0, last + 1 + beside, smooth, known)
