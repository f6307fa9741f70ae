"""`solve`: from a start to a stationary point of the tasks within the limits, for any number of elements."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.any_size import at_any_size
from jaxik.batching.broadcast import batch_shape
from jaxik.batching.implicit_diff import run_differentiable
from jaxik.batching.method import Method, lanes_that_fit
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, core_ranks
from jaxik.problem.arguments import cast_problem, check_problem, configuration
from jaxik.problem.problem import (
    Problem,
    check_solvable,
    levels,
    limits_of,
    without_velocity_tasks,
    yielding_configurations,
)
from jaxik.results.solution import Solution
from jaxik.results.trace import empty_record
from jaxik.solvers.nonlinear.derivatives import SOLUTION
from jaxik.solvers.nonlinear.element import formulate, start
from jaxik.solvers.nonlinear.finalize import FEASIBLE, finalize
from jaxik.solvers.nonlinear.formulation import hard_constraints
from jaxik.solvers.nonlinear.hard_constraint import may_yield, with_clearance, with_hard_constraints
from jaxik.solvers.nonlinear.phases import phases
from jaxik.solvers.nonlinear.side_by_side import Piece, solved_apart
from jaxik.solvers.nonlinear.step_rules.phase import every_step
from jaxik.solvers.options import SolveOptions, with_rule_defaults

# How far constraints may be off [m or rad] where they are rows of a rule that takes every step.
CLOSED = 1e-4


def solve(problem: Problem, q0: Any = None, *, options: SolveOptions | None = None) -> Solution:
    """Solve inverse kinematics locally: bounded Levenberg-Marquardt from `q0` to a stationary point.

    It ends when every task meets its tolerance, after undamped steps that polish it; where a task has no tolerance, or
    none can be met, at stationarity. Of tasks at several priorities the highest level is solved so; each lower one then
    to stationarity, in what the levels above leave free, whose residuals it does not change. Constraints, and limits
    that keep a distance, come before all tasks, and hold to 1e-9 [m or rad] (float64; 1e-5 in float32): tasks and
    constraints are approached together, then the constraints are met, and the tasks solved in what they leave free.
    What is `Elastic` is held like these where that costs the tasks no more than its penalty, and else yields: CONVERGED
    then says nothing of it, but that the tasks meet their tolerances, or without tolerances that the sum of their cost
    and of penalty times what yields is stationary; `solution.yielded` has by how much.
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
    options = with_rule_defaults(SolveOptions() if options is None else options)
    check_rule(options.step_rule, problem)
    arguments = {"problem": problem, "q0": q0, "options": options}
    return at_any_size(_solve, arguments, {"problem": core_ranks(problem), "q0": 1, "options": core_ranks(options)})


@jax.jit
def _solve(problem: Problem, q0: jax.Array, options: SolveOptions, present: jax.Array | None = None) -> Solution:
    shape = batch_shape((problem, q0, options), (core_ranks(problem), 1, core_ranks(options)))
    problem, options = cast_problem(problem, q0.dtype), cast(options, q0.dtype)
    exact = options.step_rule == "lm"
    tolerance = FEASIBLE[q0.dtype == jnp.float64] if exact else CLOSED
    problem = with_hard_constraints(with_clearance(problem), jnp.asarray(tolerance, q0.dtype))

    def solved(problem: Problem, q0: jax.Array, options: SolveOptions, present: jax.Array | None) -> Solution:
        method, ranks = _method(problem, options), (core_ranks(problem), 1, core_ranks(options))
        return run_differentiable(method, (problem, q0, options), ranks, SOLUTION, present).solution

    def of_piece(piece: Piece) -> Solution:
        return solved(piece.problem, piece.of(start, 1), piece.beside(options), piece.beside(present))

    start = jnp.broadcast_to(q0, (*shape, q0.shape[-1]))
    apart = None if options.record_trace else solved_apart(problem, start, of_piece)
    return solved(problem, q0, options, present) if apart is None else apart


def _method(problem: Problem, options: SolveOptions) -> Method:
    if options.step_rule != "lm":
        return method_of_rule(options.step_rule, options.record_trace)
    held, yields = bool(hard_constraints(problem)), may_yield(problem)
    method = solve_method(len(levels(problem)), held, options.record_trace, yields)
    return method._replace(width=lanes_that_fit(problem.robot.nv**2))


@functools.cache
def solve_method(level_count: int, constrained: bool, traced_steps: int, yields: bool = False) -> Method:
    """From a problem, a configuration (nq,) and options to what is `Found`."""
    worked = phases(level_count, constrained, yields=yields)
    return Method(formulate, start, worked, finalize, _record(traced_steps))


@functools.cache
def method_of_rule(step_rule: Any, traced_steps: int) -> Method:
    """The same, by a rule that takes every step."""
    return Method(formulate, start, (every_step(step_rule),), finalize, _record(traced_steps))


def _record(traced_steps: int) -> Callable[[Any], jax.Array] | None:
    return (lambda context: empty_record(traced_steps, context.q.dtype)) if traced_steps else None


def check_rule(step_rule: Any, problem: Problem) -> None:
    """Say on the host what a rule that takes every step cannot hold.

    Raises:
      JaxikError: for lower priorities, for limits that keep distances, and for what is `Elastic`.
    """
    if step_rule == "lm":
        return
    name = f"step_rule={step_rule!r}" if isinstance(step_rule, str) else "a step_rule of optax"
    if len({task.priority for task in problem.tasks.values()}) > 1:
        raise JaxikError(f"{name} knows one priority: give all tasks the same one, or take step_rule='lm'")
    if yields := yielding_configurations(problem):
        raise JaxikError(f"{name} holds all alike, {yields[0]!r} is Elastic: take step_rule='lm'")
    for limit in limits_of(problem):
        if limit.inequality_tasks() or limit.clearance_task(0) is not None:
            raise JaxikError(f"{name} does not hold a {type(limit).__name__}: leave it out, or take step_rule='lm'")
