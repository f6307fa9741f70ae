"""`solve`: from a start to a stationary point of the tasks within the limits, for any number of elements."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.batching import batch_shape
from jaxik.coordinates import follow
from jaxik.errors import JaxikError
from jaxik.manifold import clamp
from jaxik.problem import (
    Prepared,
    Problem,
    check_solvable,
    errors,
    evaluate,
    has_tolerances,
    met,
    prepare,
    rows,
    without_velocity_tasks,
)
from jaxik.problem import levels as levels_of
from jaxik.pytree import core_ranks, leaf, pytree, static
from jaxik.report import describe
from jaxik.robot.topology import Topology
from jaxik.solvers import levels, levenberg_marquardt
from jaxik.solvers.batch import run_batch
from jaxik.solvers.loop import Method, Phase
from jaxik.solvers.options import SolveOptions
from jaxik.status import REMEDIES, Status
from jaxik.tasks.objective import cast
from jaxik.tasks.parts import part_units
from jaxik.trace import Trace, empty_record, row_of, trace_of


@pytree
class Solution:
    """What `solve` found, with the batch axes of its arguments in front.

    Attributes:
      q (*batch, nq): inside the joint limits, always; the best configuration found.
      status (*batch,): of `Status`, int32.
      residuals: task name to what the task reports: for a `FrameTask` {"position": (*batch, 3) [m], "orientation":
        (*batch, 3) [rad]}.
      iterations (*batch,): steps taken, rejected ones included, int32.
      cost (*batch,): 1/2 |cost * residual|^2 over all tasks.
      stationarity (*batch,): largest entry of the undamped projected step that is left at `q` [rad or m], as estimated
        from the last one; derivatives of the solution are as good as this is small.
      trace: the steps that led there, where `SolveOptions.trace` asks for them; else None.
      topology: of the robot: names of joints; static.
      residual_units: pairs of a part of the residuals and its unit, ("tip/position", "m"); static.
    """

    q: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    iterations: jax.Array = leaf(0)
    cost: jax.Array = leaf(0)
    stationarity: jax.Array = leaf(0)
    trace: Trace | None = leaf(1, default=None)
    topology: Topology = static(kw_only=True)
    residual_units: tuple[tuple[str, str], ...] = static(default=(), kw_only=True)

    @property
    def converged(self) -> jax.Array:
        """(*batch,) of bool."""
        return self.status == Status.CONVERGED

    def check(self) -> "Solution":
        """Return the solution if every element converged.

        Raises:
          JaxikError: otherwise, on the host; names the elements, the reason and the remedy.
        """
        if isinstance(self.status, Tracer):
            raise JaxikError("check() works on the host: return the solution from jit first")
        status = np.asarray(self.status)
        lines = []
        for kind in Status:
            where = np.argwhere(status == kind)
            if kind is not Status.CONVERGED and where.size + (status.ndim == 0 and status == kind):
                shown = ", ".join(str(tuple(map(int, i)) if i.size != 1 else int(i[0])) for i in where[:8])
                count = f"{len(where)} of {status.size} elements are {kind.name}"
                names = f" ({shown}{', ...' if len(where) > 8 else ''})" if status.ndim else ""
                lines.append(f"{count}{names}: {REMEDIES[kind]}")
        if lines:
            raise JaxikError("\n".join(lines))
        return self

    def __repr__(self) -> str:
        return describe(self)


def solve(problem: Problem, q0: Any = None, *, options: SolveOptions | None = None) -> Solution:
    """Solve inverse kinematics locally: bounded Levenberg-Marquardt from `q0` to a stationary point.

    It ends when every task meets its tolerance, after one undamped polishing step; where a task has no tolerance, or
    none can be met, at stationarity. Of tasks at several priorities the highest level is solved so; each lower one then
    to stationarity, in what the levels above leave free, whose residuals it does not change. Gains, LM damping of
    tasks, velocity tasks and velocity limits belong to differential IK, and are ignored here.

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
    if not isinstance(problem, Problem):
        raise JaxikError(f"problem is a jaxik.Problem, not {type(problem).__name__}")
    check_solvable(problem)
    problem = without_velocity_tasks(problem)
    if options is not None and not isinstance(options, SolveOptions):
        raise JaxikError(f"options is a jaxik.SolveOptions, not {type(options).__name__}")
    try:
        q0 = jnp.asarray(problem.robot.q_home if q0 is None else q0)
    except (TypeError, ValueError):
        raise JaxikError(f"q0 is an array (*batch, nq), not {q0!r}") from None
    if jnp.issubdtype(q0.dtype, jnp.complexfloating):
        raise JaxikError(f"q0 is real, not {q0.dtype}")
    if not jnp.issubdtype(q0.dtype, jnp.floating):
        q0 = q0.astype(problem.robot.q_home.dtype)
    if q0.shape[-1:] != (problem.robot.nq,):
        raise JaxikError(f"q0 has shape (*batch, nq) with nq = {problem.robot.nq}, not {q0.shape}")
    options = SolveOptions() if options is None else options
    arguments = {"problem": problem, "q0": q0, "options": options}
    # Errors are raised out here: `jit` adds lines of its own to what is raised inside.
    batch_shape(arguments, {"problem": core_ranks(problem), "q0": 1, "options": core_ranks(options)})
    return _solve(problem, q0, options)


@jax.jit
def _solve(problem: Problem, q0: jax.Array, options: SolveOptions) -> Solution:
    ranks = {"problem": core_ranks(problem), "q0": 1, "options": core_ranks(options)}
    batch_shape({"problem": problem, "q0": q0, "options": options}, ranks)  # raises an error that names the leaves
    arguments = _without_derivatives((_cast(problem, q0.dtype), q0, _cast(options, q0.dtype)))
    method = _method(len(levels_of(problem)), options.trace)
    return run_batch(method, arguments, (ranks["problem"], 1, ranks["options"]))


@jax.custom_jvp
def _without_derivatives(arguments: Any) -> Any:
    return arguments


@_without_derivatives.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    # Differentiating the iteration itself would give the derivative of its last step, which is not that of the answer.
    raise JaxikError(
        "derivatives through solve are not available yet: put jax.lax.stop_gradient around its arguments, or "
        "differentiate robot.frame_pose at the solution"
    )


def _cast(tree: Any, dtype: Any) -> Any:
    """Every floating leaf in the dtype of the configuration; limits rounded inward."""
    if isinstance(tree, Problem):
        robot = tree.robot.astype(dtype)
        rest = _cast((tree.tasks, tree.limits, tree.constraints), dtype)
        return jax.tree.unflatten(jax.tree.structure(tree), jax.tree.leaves((robot, *rest, tree.dof_mask)))
    return cast(tree, dtype)


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
    q = clamp(prepared.robot, jnp.where(finite, q0, problem.robot.q_home))
    q = follow(prepared.robot, prepared.moving, q)
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
    problem, every = prepared.problem, tuple(prepared.problem.tasks)
    cost, settled = result.cost, result.stationary
    if has_tolerances(problem, every):
        settled = settled | result.met
    if len(prepared.levels) > 1:
        residual = rows(prepared, evaluate(prepared, result.q), every).residual
        cost = jnp.where(jnp.isfinite(cost), 0.5 * jnp.sum(residual * residual), cost)
    status = jnp.where(result.stationary, Status.STALLED, Status.TIMEOUT)
    status = jnp.where(settled & met(prepared, residuals, every), Status.CONVERGED, status)
    status = jnp.where(context.finite & jnp.isfinite(cost), status, Status.NONFINITE)
    return Solution(
        q=result.q,
        status=status.astype(jnp.int32),
        residuals=residuals,
        iterations=result.iterations,
        cost=cost,
        stationarity=result.size,
        trace=None if record is None else trace_of(record),
        topology=problem.robot.topology,
        residual_units=part_units(problem.tasks, residuals),
    )


def _phases(level_count: int) -> tuple[Phase, ...]:
    """The highest level first, and then each in what those above leave free."""
    # Newton steps come after Gauss-Newton, for the few elements that need them: side by side, each would cost both.
    gauss_newton = Phase(
        wants=lambda result: result.iterations == 0,
        init=lambda context, result: levenberg_marquardt.start_gauss_newton(
            context.prepared, result.q, result.errors, context.options.initial_damping
        ),
        step=lambda context, state: levenberg_marquardt.gauss_newton(context.prepared, state, context.options),
        ended=lambda state: state.ended | state.crawling,
        result=_result,
        watch=functools.partial(_watch, 0),
    )
    newton = Phase(
        wants=lambda result: result.crawling,
        init=lambda context, result: levenberg_marquardt.start_newton(
            context.prepared, result.q, result.errors, result.iterations
        ),
        step=lambda context, state: levenberg_marquardt.newton(context.prepared, state, context.options),
        ended=lambda state: state.ended,
        result=_result,
        watch=functools.partial(_watch, 1),
        width=64,
    )

    def lower(level: int) -> Phase:
        return Phase(
            wants=lambda result: result.met | result.stationary if level == 1 else result.stationary,
            init=lambda context, result: levels.start(
                context.prepared, result.q, result.errors, result.iterations, level
            ),
            step=lambda context, state: levels.step(context.prepared, state, context.options, level),
            ended=lambda state: state.ended,
            result=_level_result,
            watch=functools.partial(_watch_level, 1 + level),
            width=64,
        )

    return (gauss_newton, newton, *(lower(level) for level in range(1, level_count)))


@functools.cache
def _method(level_count: int, traced_steps: int) -> Method:
    record = (lambda context: empty_record(traced_steps, context.q.dtype)) if traced_steps else None
    return Method(_prepare, _start, _phases(level_count), _answer, record)
