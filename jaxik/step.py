"""`step` and `linearize`: one step of differential inverse kinematics, for any number of robots."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching import batch_shape
from jaxik.entry import cast_problem, check_problem, configuration, without_derivatives
from jaxik.errors import JaxikError
from jaxik.landing import landed
from jaxik.linearization import Linearization, linearized
from jaxik.problem import Problem, check_closures, limited
from jaxik.pytree import core_ranks, leaf, pytree
from jaxik.quadratic import ActiveSet, QPOptions, QPSolution
from jaxik.solvers.batch import run_batch
from jaxik.solvers.hierarchy import descend
from jaxik.solvers.loop import Method, fitting, once
from jaxik.status import Outcome, Status
from jaxik.tasks import arguments as checked
from jaxik.tasks.objective import cast
from jaxik.tasks.velocity import Motion

# Small against J'J of metres and radians, and above its rounding in float32.
DAMPING = 1e-6


@pytree
class StepResult(Outcome):
    """One step, with the batch axes of its arguments in front.

    Attributes:
      velocity (*batch, nv): [rad/s, m/s], in MuJoCo's tangent: the displacement of the step by dt.
      q (*batch, nq): where it leads; inside the joint limits, and bitwise on one that stops it, if it began inside.
        Where the velocity is zero for want of an answer, where it began, with `q_home` for what is NaN.
      status (*batch,): of `Status`, int32, and of the quadratic program: CONVERGED, however far the tasks are from
        their targets; INFEASIBLE: limits and constraints contradict each other, and the velocity is zero; TIMEOUT;
        NONFINITE: something is NaN, or dt is not above zero, and the velocity is zero.
      residuals: task, and constraint, to what it reports at the configuration that the step was taken from.
      slack: how far the displacement is from "lower" and "upper" (*batch, nv), infinite without a bound, and from
        "rows" (*batch, k) of limits.
      qp: the quadratic program of the highest priority; `step(..., start=result.qp.active)` starts from it.
    """

    velocity: jax.Array = leaf(1)
    q: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    slack: dict[str, jax.Array] = leaf(1)
    qp: QPSolution = leaf()


def step(
    problem: Problem,
    q: Any,
    dt: Any,
    *,
    damping: Any = DAMPING,
    previous_velocity: Any = None,
    start: ActiveSet | None = None,
    options: QPOptions | None = None,
) -> StepResult:
    """Take one step of differential inverse kinematics: the best displacement that limits and constraints allow.

    It minimises, over the displacement x = velocity * dt, the sum of |cost (J x + gain residual)|^2 / 2 over the tasks
    and of damping |x|^2 / 2, by a quadratic program for each priority: a lower one acts in what those above it leave
    free, exactly. Constraints hold as J x = -gain residual. A joint that starts outside its limits comes back as fast
    as the other limits allow. The gain is a share of the way for each call: half the dt doubles the velocity.

    Args:
      problem: robot, tasks, limits and constraints; any leaf may have leading batch axes, which broadcast.
      q: configuration (*batch, nq); its dtype decides in which precision everything is computed.
      dt: duration (*batch,) [s].
      damping: (*batch,), on every degree of freedom.
      previous_velocity: of the step before (*batch, nv) [rad/s, m/s], for acceleration limits and tasks; None: at rest.
      start: `qp.active` of an earlier result, which saves time and changes nothing else.
      options: `QPOptions` of the quadratic program.

    Returns:
      A `StepResult`. Failure is a status, never an exception, and `q` and `velocity` are never NaN.

    Raises:
      JaxikError: for wrong shapes and values; on the host, before tracing.
    """
    problem, q, motion, damping = _checked(problem, q, dt, damping, previous_velocity)
    if options is not None and not isinstance(options, QPOptions):
        raise JaxikError(f"options is a jaxik.QPOptions, not {type(options).__name__}")
    if start is not None and not isinstance(start, ActiveSet):
        raise JaxikError(f"start is `qp.active` of an earlier result, not {type(start).__name__}")
    given = (problem, q, motion, damping, start, options)
    # Errors are raised out here: `jit` adds lines of its own to what is raised inside.
    batch_shape(_named(given), _named(_ranks(given)))
    return _run(_step_method(fitting(problem.robot.nv**2)), *given)


def linearize(
    problem: Problem, q: Any, dt: Any, *, damping: Any = DAMPING, previous_velocity: Any = None
) -> Linearization:
    """The quadratic program that `step` solves, with the residuals and Jacobians that it is made of.

    Args, raises: as of `step`.
    """
    problem, q, motion, damping = _checked(problem, q, dt, damping, previous_velocity)
    given = (problem, q, motion, damping, None, None)
    batch_shape(_named(given), _named(_ranks(given)))
    return _run(_linearize_method(), *given)


def _checked(problem: Any, q: Any, dt: Any, damping: Any, previous: Any) -> tuple[Problem, jax.Array, Motion, Any]:
    check_problem(problem)
    check_closures("step", problem)
    if not problem.robot.nv:
        raise JaxikError(f"{problem.robot.topology.name} has no degrees of freedom: there is nothing to move")
    q = configuration("q", q, problem.robot)
    motion = Motion(dt, previous)
    nv, before = problem.robot.nv, motion.previous_velocity
    if before is not None and before.shape[-1:] != (nv,):
        raise JaxikError(f"previous_velocity has shape (*batch, nv) with nv = {nv}, not {before.shape}")
    damping = checked.number("damping", damping)
    return problem, q, motion, damping


def _ranks(given: tuple[Any, ...]) -> tuple[Any, ...]:
    problem, _, motion, _, start, options = given
    return core_ranks(problem), 1, core_ranks(motion), 0, core_ranks(start), core_ranks(options)


def _named(given: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("problem", "q", "motion", "damping", "start", "options"), given, strict=True))


@functools.partial(jax.jit, static_argnums=0)
def _run(method: Method, problem: Problem, q: jax.Array, *rest: Any) -> Any:
    motion, damping, start, options = rest
    given = (
        cast_problem(problem, q.dtype), q, cast(motion, q.dtype), cast(damping, q.dtype), start, cast(options, q.dtype)
    )  # fmt: skip
    return run_batch(method, without_derivatives(given, "step"), _ranks(given))


@functools.cache
def _linearize_method() -> Method:
    return once(lambda problem, q, motion, damping, start, options: linearized(problem, q, motion, damping))


@functools.cache
def _step_method(width: int) -> Method:
    return once(_step, width)


def _step(
    problem: Problem,
    q: jax.Array,
    motion: Motion,
    damping: jax.Array,
    start: ActiveSet | None,
    options: QPOptions | None,
) -> StepResult:
    """One element."""
    # Under jit nothing could be said of a duration before.
    finite = jnp.all(jnp.isfinite(q)) & jnp.isfinite(motion.dt) & (motion.dt > 0)
    q = jnp.where(jnp.isfinite(q), q, problem.robot.q_home)
    model = linearized(problem, q, motion, damping)
    _check_start(start, model)
    found = descend(model, start, options)
    status = jnp.where(finite, found.status, Status.NONFINITE).astype(jnp.int32)
    still = (status == Status.NONFINITE) | (status == Status.INFEASIBLE)
    x = jnp.where(still, 0, found.displacement)
    slack = {"lower": x - model.lower, "upper": model.upper - x}
    if model.G is not None and model.h is not None:
        slack["rows"] = model.h - model.G @ x
    reached, x = landed(limited(problem), q, x)
    return StepResult(
        velocity=jnp.where(still, 0, x / motion.dt),
        q=jnp.where(still, q, reached),
        status=status,
        residuals=model.errors,
        slack=slack,
        qp=found.first,
    )


def _check_start(start: ActiveSet | None, model: Linearization) -> None:
    own = model.lower.shape, (0,) if model.h is None else model.h.shape
    if start is not None and (start.bounds.shape, start.rows.shape) != own:
        raise JaxikError(
            "start is `qp.active` of an earlier result of the same problem: bounds and rows have shapes (*batch, k) "
            f"with k = {own[0][0]} and {own[1][0]}, not {start.bounds.shape[-1]} and {start.rows.shape[-1]}"
        )
