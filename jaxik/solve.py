"""`solve`: from a start to a stationary point of the tasks within the limits, for any number of elements."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching import batch_shape
from jaxik.coordinates import follow
from jaxik.entry import cast_problem, check_problem, configuration, without_derivatives
from jaxik.errors import JaxikError
from jaxik.evaluation import Prepared, distances, errors, evaluate, has_tolerances, held_by, met, prepare, rows
from jaxik.manifold import clamp
from jaxik.problem import Problem, check_solvable, holding, without_velocity_tasks
from jaxik.problem import levels as levels_of
from jaxik.pytree import core_ranks
from jaxik.solution import Solution
from jaxik.solvers import levels, levenberg_marquardt
from jaxik.solvers.batch import run_batch
from jaxik.solvers.loop import Method, Phase
from jaxik.solvers.options import SolveOptions
from jaxik.status import Status
from jaxik.tasks.objective import cast
from jaxik.tasks.parts import part_units
from jaxik.trace import empty_record, row_of, trace_of

# How far constraints may be off [m or rad], in float32 and float64.
FEASIBLE = (1e-5, 1e-9)
# Steps that approaching tasks and constraints together leaves for meeting the constraints.
SPARE = 10


def solve(problem: Problem, q0: Any = None, *, options: SolveOptions | None = None) -> Solution:
    """Solve inverse kinematics locally: bounded Levenberg-Marquardt from `q0` to a stationary point.

    It ends when every task meets its tolerance, after one undamped polishing step; where a task has no tolerance, or
    none can be met, at stationarity. Of tasks at several priorities the highest level is solved so; each lower one then
    to stationarity, in what the levels above leave free, whose residuals it does not change. Constraints, and limits
    that keep a distance, come before all tasks, and hold to 1e-9 [m or rad] (float64; 1e-5 in float32): tasks and
    constraints are approached together, then the constraints are met, and the tasks solved in what they leave free.
    Gains, LM damping of tasks, velocity tasks and velocity limits belong to differential IK, and are ignored here.

    Args:
      problem: robot, tasks and limits; any leaf may have leading batch axes, which broadcast.
      q0: start (*batch, nq); the robot's `q_home` by default. Starts outside the limits are moved inside, and joints
        that a coupling drives to where it has them. What no task depends on, or `dof_mask` holds, stays there.
        Its dtype decides in which precision everything is computed.
      options: `SolveOptions`; all traced.

    Returns:
      A `Solution`. Failure is a status, never an exception, and `q` is never NaN; the residuals and cost of an element
      that is NONFINITE are not finite. `solution.check()` raises on the host.

    Raises:
      JaxikError: for wrong shapes and for what `solve` cannot hold, derivatives among it; on the host, before tracing.
    """
    check_problem(problem)
    check_solvable(problem)
    problem = without_velocity_tasks(problem)
    if options is not None and not isinstance(options, SolveOptions):
        raise JaxikError(f"options is a jaxik.SolveOptions, not {type(options).__name__}")
    q0 = configuration("q0", problem.robot.q_home if q0 is None else q0, problem.robot)
    options = SolveOptions() if options is None else options
    arguments = {"problem": problem, "q0": q0, "options": options}
    # Errors are raised out here: `jit` adds lines of its own to what is raised inside.
    batch_shape(arguments, {"problem": core_ranks(problem), "q0": 1, "options": core_ranks(options)})
    return _solve(problem, q0, options)


@jax.jit
def _solve(problem: Problem, q0: jax.Array, options: SolveOptions) -> Solution:
    ranks = {"problem": core_ranks(problem), "q0": 1, "options": core_ranks(options)}
    batch_shape({"problem": problem, "q0": q0, "options": options}, ranks)  # raises an error that names the leaves
    arguments = without_derivatives((cast_problem(problem, q0.dtype), q0, cast(options, q0.dtype)), "solve")
    problem, q0, options = arguments
    problem = holding(problem, jnp.asarray(FEASIBLE[q0.dtype == jnp.float64], q0.dtype))
    method = _method(len(levels_of(problem)), bool(held_by(problem)), options.trace)
    return run_batch(method, (problem, q0, options), (core_ranks(problem), 1, ranks["options"]))


class _Context(NamedTuple):
    """One element's problem, where it starts, and whether that start was finite."""

    prepared: Prepared
    q: jax.Array
    finite: jax.Array
    options: SolveOptions


class _Result(NamedTuple):
    """What is known of an element between and after the phases."""

    q: jax.Array
    cost: jax.Array
    errors: Any
    size: jax.Array
    met: jax.Array
    crawling: jax.Array
    stationary: jax.Array
    iterations: jax.Array


def _prepare(problem: Problem, q0: jax.Array, options: SolveOptions) -> _Context:
    prepared = prepare(problem)
    finite = jnp.isfinite(q0)
    q = jnp.where(finite, q0, problem.robot.q_home)
    q = jnp.concatenate([q, jnp.zeros(len(prepared.slack), q.dtype)])
    q = follow(prepared.robot, prepared.moving, clamp(prepared.robot, q))
    if prepared.slack:
        seen = distances(prepared, evaluate(prepared, q))
        q = jnp.concatenate([q[: -len(prepared.slack)], jnp.maximum(seen, 0)])
    return _Context(prepared, q, jnp.all(finite), options)


def _start(context: _Context) -> _Result:
    no = jnp.zeros((), bool)
    infinite = jnp.full((), jnp.inf, context.q.dtype)
    shapes = jax.eval_shape(lambda: errors(context.prepared, evaluate(context.prepared, context.q)))
    unknown = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
    return _Result(context.q, infinite, unknown, infinite, no, no, no, jnp.zeros((), jnp.int32))


def _result(state: levenberg_marquardt.State) -> _Result:
    return _Result(
        state.q, state.cost, state.errors, state.size, state.met, state.crawling, state.stationary, state.iterations
    )


def _level_result(state: levels.State) -> _Result:
    best, no = state.best, jnp.zeros((), bool)
    return _Result(best.q, best.cost, best.errors, state.size, state.required, no, state.stationary, state.iterations)


def _watch(phase: int, before: levenberg_marquardt.State, after: levenberg_marquardt.State) -> Any:
    # What Newton evaluates first has its row already.
    told = (after.iterations > before.iterations) | before.met | (after.iterations == 0)
    return row_of(phase, after, after.cost, told)


def _watch_level(phase: int, before: levels.State, after: levels.State) -> Any:
    return row_of(phase, after, after.best.cost, after.iterations > before.iterations)


def _answer(context: _Context, result: _Result, record: jax.Array | None) -> Solution:
    prepared, residuals = context.prepared, result.errors
    problem, held = prepared.problem, held_by(prepared.problem)
    every = tuple(name for name in problem.tasks if name not in held)
    cost, settled = result.cost, result.stationary
    if has_tolerances(problem, every):
        settled = settled | result.met
    if len(prepared.levels) > 1:
        residual = rows(prepared, evaluate(prepared, result.q), every).residual
        cost = jnp.where(jnp.isfinite(cost), 0.5 * jnp.sum(residual * residual), cost)
    status = jnp.where(result.stationary, Status.STALLED, Status.TIMEOUT)
    status = jnp.where(settled & met(prepared, residuals, every), Status.CONVERGED, status)
    if held:
        lost = jnp.where(result.stationary, Status.INFEASIBLE, Status.TIMEOUT)
        status = jnp.where(met(prepared, residuals, held), status, lost)
    status = jnp.where(context.finite & jnp.isfinite(cost), status, Status.NONFINITE)
    residuals = {name: value for name, value in residuals.items() if name not in prepared.slack}
    return Solution(
        q=result.q[: problem.robot.nq],
        status=status.astype(jnp.int32),
        residuals=residuals,
        iterations=result.iterations,
        cost=cost,
        stationarity=result.size,
        trace=None if record is None else trace_of(record),
        topology=problem.robot.topology,
        residual_units=part_units(problem.tasks, residuals),
    )


def _phases(level_count: int, constrained: bool) -> tuple[Phase, ...]:
    """The highest level first, and then each in what those above leave free."""

    def gauss_newton(place: int, wants: Any, names: Any, spare: int = 0) -> Phase:
        return Phase(
            wants=wants,
            init=lambda context, result: levenberg_marquardt.start_gauss_newton(
                context.prepared,
                result.q,
                result.errors,
                result.iterations,
                context.options.initial_damping,
                names(context.prepared.levels),
            ),
            step=lambda context, state: levenberg_marquardt.gauss_newton(
                context.prepared, state, _sparing(context.options, spare), names(context.prepared.levels)
            ),
            ended=lambda state: state.ended | state.crawling,
            result=_result,
            watch=functools.partial(_watch, place),
        )

    # Newton steps come after Gauss-Newton, for the few elements that need them: side by side, each would cost both.
    newton = Phase(
        wants=lambda result: result.crawling,
        init=lambda context, result: levenberg_marquardt.start_newton(
            context.prepared, result.q, result.errors, result.iterations
        ),
        step=lambda context, state: levenberg_marquardt.newton(
            context.prepared, state, context.options, context.prepared.levels[0]
        ),
        ended=lambda state: state.ended,
        result=_result,
        watch=functools.partial(_watch, 1),
        width=64,
    )
    unseen = lambda result: result.iterations == 0  # noqa: E731
    # Constraints alone would be met wherever is nearest, from where the tasks may be out of reach.
    aim = gauss_newton(0, unseen, lambda levels: (*levels[0], *levels[1]), spare=SPARE)
    meet = gauss_newton(0, lambda result: jnp.isfinite(result.cost), lambda levels: levels[0])
    first = (aim, meet, newton) if constrained else (gauss_newton(0, unseen, lambda levels: levels[0]), newton)

    def lower(level: int) -> Phase:
        return Phase(
            wants=lambda result: (
                result.stationary if level > 1 else result.met if constrained else result.met | result.stationary
            ),
            init=lambda context, result: levels.start(
                context.prepared, result.q, result.errors, result.iterations, level
            ),
            step=lambda context, state: levels.step(context.prepared, state, context.options, level),
            ended=lambda state: state.ended,
            result=_level_result,
            watch=functools.partial(_watch_level, 1 + level),
            width=64,
        )

    return (*first, *(lower(level) for level in range(1, level_count)))


def _sparing(options: SolveOptions, steps: int) -> SolveOptions:
    """The options with some of the steps, at most half of them, left for later."""
    most = options.max_steps
    return dataclasses.replace(options, max_steps=most - jnp.minimum(steps, most // 2)) if steps else options


@functools.cache
def _method(level_count: int, constrained: bool, traced_steps: int) -> Method:
    record = (lambda context: empty_record(traced_steps, context.q.dtype)) if traced_steps else None
    return Method(_prepare, _start, _phases(level_count, constrained), _answer, record)
