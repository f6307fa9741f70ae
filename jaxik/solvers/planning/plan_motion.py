"""`plan_motion`: from one configuration to another, around obstacles, within limits, for any number of robots."""

import functools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.any_size import at_any_size
from jaxik.batching.broadcast import batch_shape
from jaxik.batching.double_precision import in_double
from jaxik.batching.method import single_pass
from jaxik.batching.run import run_batch
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, core_ranks
from jaxik.core.status import DerivativeStatus, Status
from jaxik.kinematics.manifold import scalar_coordinates
from jaxik.kinematics.sampling import dimensions
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.collision import CollisionLimit
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.shares import shares_of
from jaxik.limits.velocity import VelocityLimit
from jaxik.numerics.kronecker import offsets
from jaxik.problem.arguments import cast_problem, check_problem, configuration, keys_of_places, random_key
from jaxik.problem.problem import Problem, elastic_constraints_of, limits_of, with_tasks
from jaxik.results.track import Track
from jaxik.solvers.nonlinear.formulation import errors, evaluate, met
from jaxik.solvers.planning.options import PlanningOptions
from jaxik.solvers.planning.planner import Planned, planning_method
from jaxik.solvers.planning.projection import manifold_of, project
from jaxik.solvers.planning.setting import Rates, moving_dofs, rates_of
from jaxik.solvers.planning.shortcuts import Path
from jaxik.solvers.planning.timing import Image, Timed, timed

HELD_LIMITS = (ConfigurationLimit, VelocityLimit, AccelerationLimit, CollisionLimit)
# Lanes side by side: a look at all pairs is what an element does in a step.
WIDTH = 32
# How often the rates of a motion with constraints are compared with the limits, and by how much more than was seen it
# is slowed down where it would be too fast. Which share of a limit is held, and how slow a motion becomes by a jump.
PASSES, SLOWER, HELD, SLOWEST = 3, 1.002, 1.001, 0.2


def plan_motion(
    problem: Problem,
    q0: Any,
    q1: Any,
    key: jax.Array,
    *,
    dt: Any,
    num_steps: int,
    options: PlanningOptions | None = None,
) -> Track:
    """Plan a motion from one configuration to another.

    Two trees of configurations grow from both ends until a straight way joins them (RRT-Connect); the path through them
    is shortened, its corners become parabolas, and it is followed as fast as limits on speeds and accelerations allow,
    from rest to rest. Every part of the path is known to keep the margins of the `CollisionLimit`s, and not only the
    configurations that are returned.

    Constraints hold all the way: each configuration of the path is projected onto them (as ways of CBiRRT are, Berenson
    et al. 2009), and what is looked at is the projection. Between looks, half a radian apart at most, it is taken to
    bend 1.5 times as much as half way.

    Args:
      problem: its robot and its limits count: `ConfigurationLimit`, `CollisionLimit`, and `VelocityLimit` or
        `AccelerationLimit` or both; and its constraints, that both ends keep to 1e-4 rad or m. Tasks do not: they say
        where to go, for `search`, whose solution is a `q1`. The model's joint couplings hold, if they are linear, and
        its closed loops, unless `constraints={}`.
      q0, q1 (*batch, nq): the configurations. The same in both is what is no hinge or slide, what `dof_mask` holds, and
        what has no limit of speed or acceleration.
      key: a key of `jax.random`, from which each element draws by its place in the batch; or a batch of keys, as
        a `vmap` around the call needs: else all of its elements draw alike.
      dt: duration of a step [s] (*batch,).
      num_steps: how many steps are returned; after its end the motion rests.
      options: `PlanningOptions`.

    Returns:
      A `Track` of `num_steps` steps, with statuses (T, *batch): CONVERGED; COLLIDES: an end is nearer to something than
      the margin; TIMEOUT: no path was found in all attempts, or its projection onto constraints jumps, and the robot
      stays at `q0`; at the last step alone: the motion takes longer than `num_steps`; INFEASIBLE: an end
      is outside the joint limits, off a coupling or a constraint, both differ in what does not move, or a coupling is
      not linear; NONFINITE. `residuals` are the errors of constraints. It has no derivatives.

    Raises:
      JaxikError: for wrong shapes, for limits that it does not hold, for what is `Elastic`, and under differentiation.
    """
    check_problem(problem)
    _check_held(problem)
    problem = with_tasks(problem, {})  # nor do their batch axes count
    if options is not None and not isinstance(options, PlanningOptions):
        raise JaxikError(f"options is a jaxik.PlanningOptions, not {type(options).__name__}")
    options = PlanningOptions() if options is None else options
    num_steps = _count(num_steps)
    q0, q1 = (configuration(name, q, problem.robot) for name, q in (("q0", q0), ("q1", q1)))
    dt = validation.positive("dt", dt)
    key = random_key(key)
    given = {"problem": problem, "q0": q0, "q1": q1, "key": key, "options": options, "dt": dt}
    ranks = {"problem": core_ranks(problem), "q0": 1, "q1": 1, "key": 0, "options": core_ranks(options), "dt": 0}
    shape = batch_shape(given, ranks)
    # The grid of a path is that of all of its motions: other numbers of steps, and other dt, plan nothing anew.
    given |= {"place": None if key.ndim else jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)}
    ranks |= {"place": core_ranks(given["place"])}
    del given["dt"], ranks["dt"]
    planned = at_any_size(_planned, given, ranks)
    follow = {"problem": problem, "planned": planned, "dt": dt}
    ranks = {"problem": ranks["problem"], "planned": PLANNED_RANKS, "dt": 0}
    found = at_any_size(functools.partial(_followed, num_steps), follow, ranks)
    of_time = jax.tree.map(lambda x: jnp.moveaxis(x, len(shape), 0), found)
    none = jnp.zeros(of_time["status"].shape, jnp.int32)
    return Track(
        q=of_time["q"],
        velocity=of_time["velocity"],
        acceleration=of_time["acceleration"],
        status=of_time["status"],
        residuals=of_time["residuals"],
        speed_share=of_time["speed_share"],
        acceleration_share=of_time["acceleration_share"],
        jerk_share=jnp.zeros_like(of_time["speed_share"]),
        dt=dt,
        derivative_status=none + DerivativeStatus.NOT_COMPUTED,
        jumped=none > 0,
        topology=problem.robot.topology,
    )


def _count(num_steps: Any) -> int:
    """A number of steps."""
    try:
        count = operator.index(num_steps)
    except TypeError:
        count = 0
    if count < 1 or isinstance(num_steps, bool):
        raise JaxikError(f"num_steps is a number of steps from 1 on, known before jit, not {num_steps!r}")
    return count


def _check_held(problem: Problem) -> None:
    """Raise an error for what a motion would not hold."""
    for limit in problem.limits or ():
        if not isinstance(limit, HELD_LIMITS):
            held = ", ".join(kind.__name__ for kind in HELD_LIMITS)
            raise JaxikError(f"plan_motion holds {held}, and no {type(limit).__name__}: leave it out of the limits")
    if not any(isinstance(limit, VelocityLimit | AccelerationLimit) for limit in limits_of(problem)):
        raise JaxikError(
            "plan_motion is as fast as limits allow: add a VelocityLimit(...) or an AccelerationLimit(...), or both"
        )
    if yielding := elastic_constraints_of(problem):
        raise JaxikError(
            f"plan_motion holds constraints all the way or not at all, and has no Elastic one ({', '.join(yielding)}): "
            "take the task out of Elastic(...), or leave it out"
        )


@jax.jit
def _planned(
    problem: Problem,
    q0: jax.Array,
    q1: jax.Array,
    key: jax.Array,
    options: PlanningOptions,
    place: jax.Array | None,
    present: jax.Array | None = None,
) -> Planned:
    """The paths of all elements."""
    dtype = jnp.result_type(q0, q1)
    given = {"problem": problem, "q0": q0, "q1": q1, "key": key, "options": options, "place": place}
    ranks = {"problem": core_ranks(problem), "q0": 1, "q1": 1, "key": 0, "options": core_ranks(options)}
    shape = batch_shape(given, ranks | {"place": core_ranks(place)})
    problem, (q0, q1, options) = cast_problem(problem, dtype), cast((q0, q1, options), dtype)
    keys = jnp.broadcast_to(key if place is None else keys_of_places(key, place), shape)
    count = dimensions(problem.robot.topology) + 2  # two for shortcuts
    shift = offsets(keys.reshape(-1), count).reshape(*shape, count)
    arguments = _without_derivatives((problem, q0, q1, shift, options))
    ranks = core_ranks(problem), 1, 1, 1, core_ranks(options)
    return run_batch(planning_method(WIDTH), arguments, ranks, present)


PLANNED_RANKS = Planned(stage=0, path=Path(points=2, number=0), sizes=1, status=0, attempts=0, looks=0)  # type: ignore[arg-type]


@functools.partial(jax.jit, static_argnums=0)
def _followed(
    num_steps: int, problem: Problem, planned: Planned, dt: jax.Array, present: jax.Array | None = None
) -> dict[str, jax.Array]:
    """The motions (*batch, T, ...) along planned paths, in double precision: differences of steps are small."""

    def of_all(problem: Problem, planned: Planned, dt: jax.Array, present: jax.Array | None) -> dict[str, jax.Array]:
        method = single_pass(functools.partial(_followed_one, num_steps))
        return run_batch(method, (problem, planned, dt), (core_ranks(problem), PLANNED_RANKS, 0), present)

    found = in_double(of_all, *_without_derivatives((problem, planned, dt)), present)
    return cast(found, planned.path.points.dtype)


def _followed_one(num_steps: int, problem: Problem, planned: Planned, dt: jax.Array) -> dict[str, Any]:
    """The motion (T, ...) of one element."""
    manifold, rates = manifold_of(problem, moving_dofs(problem)), rates_of(problem)
    if manifold is None:
        return _at_rates(num_steps, problem, planned, dt, rates, None) | {"residuals": {}}

    def slower(factor: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, dict[str, Any]]]:
        less = Rates(factor * rates.lower, factor * rates.upper, factor**2 * rates.acceleration)
        found = _at_rates(num_steps, problem, planned, dt, less, lambda q: project(manifold, q).q)
        # Between grid points the image turns faster than they tell. Where a projection meets a joint limit it turns at
        # once, by as much less as it is slower.
        excess = jnp.maximum(jnp.max(found["speed_share"]), jnp.max(found["acceleration_share"]))
        return factor / jnp.maximum(SLOWER * excess, 1), (factor, found)

    _, (factors, all_of) = lax.scan(slower, jnp.ones((), dt.dtype), None, length=PASSES)
    found = jax.tree.map(lambda x: x[-1], all_of)
    within = jnp.all((found["speed_share"] <= HELD) & (found["acceleration_share"] <= HELD))
    reported = lambda q: errors(manifold, evaluate(manifold, q))  # noqa: E731
    residuals, start = jax.vmap(reported)(found["q"]), planned.path.points[0]
    kept = jnp.all(jax.vmap(lambda each: met(manifold, each, tuple(each)))(residuals))
    jumps = (planned.status == Status.CONVERGED) & ~(within & kept & (factors[-1] >= SLOWEST))
    found = jax.tree.map(lambda x: jnp.where(jumps, jnp.zeros_like(x), x), found) | {
        "q": jnp.where(jumps, start, found["q"]),
        "status": jnp.where(jumps, Status.TIMEOUT, found["status"]).astype(jnp.int32),
    }
    return found | {"residuals": jax.tree.map(lambda x, there: jnp.where(jumps, there, x), residuals, reported(start))}


def _at_rates(
    num_steps: int, problem: Problem, planned: Planned, dt: jax.Array, rates: Rates, image: Image | None
) -> dict[str, Any]:
    """The motion (T, ...) of one element, within bounds of rates."""
    robot, limits, topology = problem.robot, limits_of(problem), problem.robot.topology
    q0, found = planned.path.points[0], planned.status == Status.CONVERGED
    # An end that is a little off the constraints counts as its projection: else the first step would be a jump.
    start = q0 if image is None else jnp.where(found, image(q0), q0)
    motion = timed(planned.path, planned.sizes, rates, dt, num_steps, image)
    q = jnp.where(found & jnp.isfinite(motion.duration), motion.q, start)
    steps = jnp.diff(jnp.concatenate([start[None], q]), axis=0)
    velocity = jax.vmap(lambda change: scalar_coordinates(topology, change))(steps) / dt
    acceleration = jnp.diff(velocity, axis=0, prepend=jnp.zeros_like(velocity[:1])) / dt
    speed, push, _ = jax.vmap(lambda v, a: shares_of(limits, robot, v, a, jnp.zeros_like(a)))(velocity, acceleration)
    status = jnp.where(found, _late(motion, dt, num_steps), planned.status)
    return {
        "q": q,
        "velocity": velocity,
        "acceleration": acceleration,
        "speed_share": speed,
        "acceleration_share": push,
        "status": status.astype(jnp.int32),
    }


def _late(motion: Timed, dt: jax.Array, num_steps: int) -> jax.Array:
    """Statuses (T,) of a motion that was found: whether it ends within its steps, and at all."""
    last = jnp.arange(num_steps) == num_steps - 1
    late = last & (motion.duration > num_steps * dt)
    status = jnp.where(late, Status.TIMEOUT, Status.CONVERGED)
    return jnp.where(jnp.isfinite(motion.duration), status, Status.INFEASIBLE)


@jax.custom_jvp
def _without_derivatives(x: Any) -> Any:
    return x


@_without_derivatives.defjvp
def _(primals: Any, tangents: Any) -> Any:
    raise JaxikError(
        "plan_motion has no derivatives: which way a motion takes jumps. Plan first, outside of jax.grad, and follow "
        "the motion by jaxik.track"
    )
