"""`track`, `track_start` and `track_step`: follow targets over time, all at once or one step at a time."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import jaxpr_as_fun

from jaxik.batching.broadcast import batch_shape
from jaxik.batching.method import lanes_that_fit
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, core_ranks
from jaxik.core.status import Status
from jaxik.core.trees import part_units
from jaxik.kinematics.motion import Motion
from jaxik.problem.arguments import cast_problem, check_problem, configuration
from jaxik.problem.problem import Problem, check_closures, constraints_of
from jaxik.results.track import Track
from jaxik.solvers.tracking.growth import Growth, no_growth
from jaxik.solvers.tracking.loop import Carried, TrackState, advanced, started, state_at_start
from jaxik.solvers.tracking.options import TrackOptions, WholePathOptions
from jaxik.solvers.tracking.path_setting import Given, path_tasks
from jaxik.solvers.tracking.targets import Values, duration_of, ranks_of, values_of
from jaxik.solvers.tracking.whole_path import check_held, padded, whole_path

Function = Callable[[jax.Array, jax.Array, jax.Array], Any]
# Steps up to which derivatives keep one state each.
UNBLOCKED = 1024
_KEPT = (
    "q",
    "velocity",
    "acceleration",
    "status",
    "residuals",
    "speed_share",
    "acceleration_share",
    "jerk_share",
    "yielded",
    "derivative_status",
)


def track(
    problem: Problem,
    q0: Any,
    dt: Any,
    targets: Any,
    *,
    velocity: Any = None,
    mode: str = "online",
    num_steps: int | None = None,
    initial: Any = None,
    options: TrackOptions | WholePathOptions | None = None,
) -> Track:
    """Follow targets over time.

    `mode="online"`: one `step` after the other, each knowing nothing of later targets.

    Step k goes towards the targets of its end, the time (k + 1) dt. Where limits leave room, a task with gain 1 is on
    its moving target after each step, but for what is of second order in the step; one with a lower gain shrinks its
    error by that share a step, and follows the target's own motion without lag (`TrackOptions.feed_forward`).

    Compiled once for each structure of the problem, batch and number of steps: new targets, starts, costs and limits
    recompile nothing.

    Derivatives are those of the loop, step after step, with respect to everything but a function's closure; each step
    is computed again on the way back, so that memory is one state a step, and of more than 1,024 steps whose number has
    divisors near its root a few states for each of that many blocks. Near a singularity each step's derivative is large
    where damping is small, and the product of many such may overflow: `TrackOptions.growth_limit` bounds it.
    `Track.derivative_status` says what the derivative of each step is worth: with that limit APPROXIMATE from where on
    it was shortened, without one no more than of the single step.

    `mode="whole"`: the path is known before it sets out, and the best joint motion along it is found. The path is that
    of the tasks of the highest priority that have a tolerance; where these have no cost the motion is free, as between
    a start and a goal. Many solutions are continued along it; of all ways from
    one to another that one is taken which jumps least, misses fewest waypoints and moves least; and it is smoothed
    over the whole horizon, within joint limits exactly, and within `VelocityLimit`, `AccelerationLimit` and `JerkLimit`
    where a motion along the path can be found that keeps them: steps that do not are INFEASIBLE. Waypoints are met
    exactly; where steps then jump or pass limits, they use their tolerances, if that helps, and such a motion has no
    derivatives (UNAVAILABLE). Other tasks are
    preferences: their squared cost * residual is weighed against squared displacements of joints. Velocity tasks, gains
    and damping are left out. Where `CollisionLimit` is among the limits, every waypoint is apart from obstacles.
    Constraints are judged as by `solve`, to 1e-9 (float64; 1e-5 in float32) whatever their cost and tolerance. A
    constraint, `ConfigurationLimit`, `VelocityLimit` or `AccelerationLimit` that is `Elastic` yields where a motion
    along the path cannot keep it, or only by a force larger than the penalty, and `yielded` says where; other limits
    are refused. A joint that is to stay is held by `dof_mask`, not by a speed of 0.
    Derivatives are first ones, of the smooth motion by the implicit function theorem, with respect to everything but
    the options; `Track.derivative_status` says what they are worth at each waypoint. What all of it costs is linear in
    the number of waypoints, and paths of up to a quarter more waypoints share a program.

    Args:
      problem: robot, tasks, limits and constraints; any leaf may have leading batch axes, which broadcast.
      q0: configuration at time 0 (*batch, nq); in `mode="whole"` None for one that is free, which is then in motion
        already when it passes the first waypoint. Its dtype decides in which precision everything is computed, but
        for the smoothing of a whole path, and derivatives of that, which are in double precision.
      dt: duration of a step (*batch,) [s].
      targets: task or constraint name to its target over time, with time as the first axis and batch axes behind,
        (T, *batch, ...), or to a dict of that task's fields, each so; tasks that are left out keep their target. Or a
        function of (t, q, v) that returns such a dict for one time, in jax.numpy: t () or (*batch,) is the time at the
        end of the step [s], q (*batch, nq) and v (*batch, nv) are configuration and velocity at its start. It is traced
        once, also for later calls with the same function object; at t = 0 it gives where targets start.
      velocity: at time 0 (*batch, nv) [rad/s, m/s]; None: at rest.
      mode: "online" or "whole"; static.
      num_steps: the number of steps T, for a function or where no targets change; else taken from the targets.
      initial: in `mode="whole"` configurations (T, *batch, nq) of a motion to begin with, or a `Track`, as the plan of
        a moment ago or one of `plan_motion`, which may be off the path: it is made smooth instead of the best of
        candidates, and is not differentiated. None: of candidates.
      options: `TrackOptions`, or in `mode="whole"` `WholePathOptions`.

    Returns:
      A `Track`; in `mode="whole"` its `jumped` says which steps leave the path. Failure is a status, never an
      exception, and no configuration is NaN.

    Raises:
      JaxikError: for wrong shapes and values, and an unknown task; on the host, before tracing. What a function
        returns is checked while it is traced.
    """
    validation.one_of("mode", mode, ("online", "whole"))
    if mode == "whole":
        return _whole(problem, q0, dt, targets, velocity, num_steps, initial, options)
    if initial is not None:
        raise JaxikError('initial is a motion that mode="whole" begins with: leave it out of mode="online"')
    q0, velocity, options = _checked(problem, q0, velocity, options)
    dt = Motion(dt).dt
    function = targets if callable(targets) else None
    values = values_of(problem, {} if function else targets)
    steps = _number_of_steps(duration_of(problem, values), num_steps, function)
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)), values)
    shape = _batch_of(problem, q0, velocity, first, dt=dt, options=options)
    width = lanes_that_fit(problem.robot.nv**2)
    return _tracked(width, function, steps, shape, problem, q0, velocity, dt, values, options)


def _whole(
    problem: Problem,
    q0: Any,
    dt: Any,
    targets: Any,
    velocity: Any,
    num_steps: int | None,
    initial: Any,
    options: Any,
) -> Track:
    check_problem(problem)
    check_closures("track", problem)
    if callable(targets):
        raise JaxikError('targets of mode="whole" are arrays over time: a function of (t, q, v) is for mode="online"')
    if options is not None and not isinstance(options, WholePathOptions):
        raise JaxikError(f'options of mode="whole" is a jaxik.WholePathOptions, not {type(options).__name__}')
    check_held(problem)
    if initial is None and not path_tasks(problem):
        raise JaxikError(
            'mode="whole" keeps a path within tolerances, and no task of the highest priority has one: '
            'give it a tolerance, an initial motion, or follow it with mode="online"'
        )
    options = WholePathOptions() if options is None else options
    if q0 is not None:
        q0 = configuration("q0", q0, problem.robot)
    elif velocity is not None:
        raise JaxikError('a velocity in mode="whole" is that of q0, which is free: give q0 as well')
    if velocity is not None:
        velocity = validation.vector("velocity", velocity, problem.robot.nv)
    dt, values = Motion(dt).dt, values_of(problem, targets)
    of_targets = duration_of(problem, values)
    if initial is not None:
        initial = configuration("initial", initial.q if isinstance(initial, Track) else initial, problem.robot)
        if initial.ndim == 1:
            raise JaxikError(f"initial has shape {initial.shape}: its first axis is to be time, one a step")
        if of_targets not in (None, initial.shape[0]):
            raise JaxikError(
                f"initial, whose first axis is time, has {initial.shape[0]} steps, the targets {of_targets}"
            )
        num_steps = initial.shape[0] if num_steps is None else num_steps
    steps = _number_of_steps(of_targets, num_steps, None)
    if not steps:
        raise JaxikError('mode="whole" needs at least one waypoint')
    if initial is not None and steps != initial.shape[0]:
        raise JaxikError(f"initial has {initial.shape[0]} steps, num_steps is {steps}: leave it out")
    given = {"problem": problem, "options": options, "dt": dt}
    given |= {name: x for name, x in (("q0", q0), ("velocity", velocity)) if x is not None}
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)), (values, initial))
    given |= {"targets": first[0]} | ({} if initial is None else {"initial": first[1]})
    ranks = {"problem": core_ranks(problem), "options": core_ranks(options), "dt": 0, "q0": 1, "velocity": 1}
    ranks |= {"targets": ranks_of(problem, first[0]), "initial": 1}
    shape = batch_shape(given, {name: ranks[name] for name in given})
    (values, initial), length = padded((values, initial), steps)
    lanes = options.candidates if initial is None else 0
    given = Given(problem, q0, velocity, dt, values, initial, options, jnp.asarray(steps, jnp.int32))
    return steps_of(whole_path(shape, lanes, length, given), 0, steps)


@functools.partial(jax.jit, static_argnums=(1, 2))
def steps_of(motion: Track, first: int, last: int | None) -> Track:
    """The steps of a motion from one to before another."""
    over_time = {
        f.name: jax.tree.map(lambda x: x[first:last], getattr(motion, f.name))
        for f in dataclasses.fields(Track)
        if f.name not in ("dt", "settled", "topology", "residual_units")
    }
    return dataclasses.replace(motion, **over_time)


def track_start(problem: Problem, q0: Any, targets: Any = None, *, velocity: Any = None) -> TrackState:
    """The state before the first `track_step`.

    Args:
      problem, q0, velocity: as of `track`.
      targets: of the first step: task name to a target (*batch, ...), or to a dict of fields; all steps have to give
        targets for the same tasks. None: tasks keep their targets.

    Raises:
      JaxikError: as `track`.
    """
    q0, velocity, _ = _checked(problem, q0, velocity, None)
    values = values_of(problem, {} if targets is None else targets)
    shape = _batch_of(problem, q0, velocity, values)
    return _started(shape, problem, q0, velocity, values)


def track_step(
    problem: Problem, state: TrackState, dt: Any, targets: Any = None, *, options: TrackOptions | None = None
) -> TrackState:
    """One step of the loop that `track` runs, for a controller or a simulation; to be called under `jit` like `step`.

    Args:
      problem, dt, options: as of `track`.
      state: from `track_start` or the step before; `dataclasses.replace(state, q=..., velocity=...)` puts in what a
        robot measured.
      targets: for the end of this step, for the same tasks as at the start.

    Returns:
      The state after it; `state.q` and `state.velocity` are what to command.

    Raises:
      JaxikError: as `track`, for targets of other tasks than at the start, and for a `growth_limit` where the state was
        made without `growth`.
    """
    if not isinstance(state, TrackState):
        raise JaxikError(f"state is what track_start or track_step returned, not {type(state).__name__}")
    q, velocity, options = _checked(problem, state.q, state.velocity, options, "state.")
    if options.growth_limit is not None and state.growth is None:
        raise JaxikError("growth_limit is of states with `growth`: begin with track_start, or leave the limit out")
    dt = Motion(dt).dt
    values = cast(values_of(problem, {} if targets is None else targets), q.dtype)
    if jax.tree.structure(values) != jax.tree.structure(state.targets):
        raise JaxikError(
            f"targets set at every step what they set at the start, {_listed(state.targets)}; not {_listed(values)}"
        )
    if (shape := _batch_of(problem, q, velocity, values, dt=dt, options=options)) != q.shape[:-1]:
        raise JaxikError(f"the state has batch axes {q.shape[:-1]}, with these arguments {shape}: start from those")
    return _advanced(lanes_that_fit(problem.robot.nv**2), problem, state, dt, values, options)


def _listed(values: Values) -> str:
    return ", ".join(f"{name}.{field}" for name, fields in values.items() for field in fields) or "nothing"


def _checked(
    problem: Any, q: Any, velocity: Any, options: Any, of_state: str = ""
) -> tuple[jax.Array, jax.Array, TrackOptions]:
    check_problem(problem)
    check_closures("track", problem)
    if not problem.robot.nv:
        raise JaxikError(f"{problem.robot.topology.name} has no degrees of freedom: there is nothing to move")
    q = configuration(f"{of_state}q" if of_state else "q0", q, problem.robot)
    nv = problem.robot.nv
    velocity = jnp.zeros(nv, q.dtype) if velocity is None else validation.vector(f"{of_state}velocity", velocity, nv)
    if options is not None and not isinstance(options, TrackOptions):
        raise JaxikError(f"options is a jaxik.TrackOptions, not {type(options).__name__}")
    return q, velocity, TrackOptions() if options is None else options


def _number_of_steps(of_targets: int | None, given: int | None, function: Function | None) -> int:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
        raise JaxikError(f"num_steps is a number of steps, known before jit, not {given!r}")
    if of_targets is None and given is None:
        what = "targets are a function" if function else "no target changes over time"
        raise JaxikError(f"{what}: say how long to go on with num_steps")
    if of_targets is not None and given not in (None, of_targets):
        raise JaxikError(f"the targets have {of_targets} steps, num_steps is {given}: leave it out")
    return of_targets if of_targets is not None else given  # type: ignore[return-value]


def _batch_of(problem: Problem, q: jax.Array, velocity: jax.Array, values: Any, **others: Any) -> tuple[int, ...]:
    """The batch axes that all arguments share; out here, as `jit` adds lines of its own to errors."""
    given = {"problem": problem, "q0": q, "velocity": velocity, "targets": values} | others
    ranks = {"problem": core_ranks(problem), "q0": 1, "velocity": 1, "targets": ranks_of(problem, values)}
    return batch_shape(given, ranks | {name: core_ranks(value) for name, value in others.items()})


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _tracked(
    width: int, function: Function | None, steps: int, shape: tuple[int, ...], problem: Problem, *given: Any
) -> Track:
    """The loop as one scan."""
    q, velocity, dt, values, options = cast(given, given[0].dtype)
    problem = cast_problem(problem, q.dtype)
    q, velocity = (jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (q, velocity))
    of_time = None if function is None else _traced(function, problem, shape, 0 * dt, q, velocity)

    def body(carry: tuple[Carried, Growth | None], at: Any) -> tuple[tuple[Carried, Growth | None], Any]:
        (before, growth), (k, now) = carry, at
        now = now if of_time is None else of_time((k + 1) * dt, before.q, before.velocity)
        state, growth = advanced(width, problem, before, dt, now, options, growth)
        return (state.carried(), growth), {name: getattr(state, name) for name in _KEPT}

    if of_time is not None:
        first = of_time(0 * dt, q, velocity)
    else:
        first = jax.tree.map(lambda x: x[0] if steps else jnp.zeros(x.shape[1:], x.dtype), values)
    with jax.default_matmul_precision("highest"):
        start = started(problem, q, velocity, first)
        growth = None if options.growth_limit is None else no_growth(start.q, start.velocity)
        kept = _scanned(body, (start, growth), (jnp.arange(steps, dtype=q.dtype), values), steps)
    # Steps go on from a finite configuration, which nobody gave.
    finite = jnp.all(jnp.isfinite(q), -1) & jnp.all(jnp.isfinite(velocity), -1)
    kept["status"] = jnp.where(finite, kept["status"], Status.NONFINITE).astype(jnp.int32)
    return Track(
        **kept,
        jumped=jnp.zeros(kept["status"].shape, bool),
        dt=dt,
        topology=problem.robot.topology,
        residual_units=part_units(problem.tasks | constraints_of(problem, couplings=True), kept["residuals"]),
    )


def _scanned(body: Callable[..., Any], start: Any, given: Any, steps: int) -> Any:
    """What a scan of so many steps gives, each computed again on the way back of derivatives.

    Of many steps one state of each block is kept, and those within a block are computed again as well: memory grows
    with the square root of their number, and each step is computed three times instead of twice.
    """
    once = functools.partial(jax.checkpoint, prevent_cse=False)
    block = _block(steps)
    if block == 1:
        return lax.scan(once(body), start, given)[1]
    given = jax.tree.map(lambda x: x.reshape(steps // block, block, *x.shape[1:]), given)
    kept = lax.scan(once(lambda carry, at: lax.scan(once(body), carry, at)), start, given)[1]
    return jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), kept)


def _block(steps: int) -> int:
    """Steps in a block: a divisor near the root of their number; 1 for a few, or where there is none."""
    if steps <= UNBLOCKED:
        return 1
    divisors = [n for n in range(2, steps) if steps % n == 0]
    block = min(divisors, key=lambda n: n + steps // n, default=1)
    return block if block + steps // block <= 8 * steps**0.5 else 1


def _traced(
    function: Function, problem: Problem, shape: tuple[int, ...], *arguments: jax.Array
) -> Callable[..., Values]:
    """The targets of a function of time, traced once for the start and all steps."""

    def of_time(t: jax.Array, q: jax.Array, v: jax.Array) -> Values:
        values = cast(values_of(problem, function(t, q, v)), q.dtype)
        found = batch_shape({"targets": values}, {"targets": ranks_of(problem, values)})
        if len(found) > len(shape) or any(n not in (1, m) for n, m in zip(found[::-1], shape[::-1], strict=False)):
            raise JaxikError(f"the function's targets have batch axes {found}, q0 and problem {shape}: broadcast q0")
        return values

    jaxpr, outputs = jax.make_jaxpr(of_time, return_shape=True)(*arguments)
    structure = jax.tree.structure(outputs)
    return lambda *arguments: jax.tree.unflatten(structure, jaxpr_as_fun(jaxpr)(*arguments))


@functools.partial(jax.jit, static_argnums=0)
def _started(shape: tuple[int, ...], problem: Problem, *given: Any) -> TrackState:
    q, velocity, values = cast(given, given[0].dtype)
    q, velocity = (jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (q, velocity))
    problem = cast_problem(problem, q.dtype)
    return state_at_start(problem, started(problem, q, velocity, values))


@functools.partial(jax.jit, static_argnums=0)
def _advanced(
    width: int, problem: Problem, state: TrackState, dt: Any, values: Values, options: TrackOptions
) -> TrackState:
    dt, options = cast((dt, options), state.q.dtype)
    with jax.default_matmul_precision("highest"):
        problem, growth = cast_problem(problem, state.q.dtype), None if options.growth_limit is None else state.growth
        after, growth = advanced(width, problem, state.carried(), dt, values, options, growth)
        return dataclasses.replace(after, growth=state.growth if growth is None else growth)
