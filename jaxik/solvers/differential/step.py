"""`step` and `linearize`: one step of differential inverse kinematics, for any number of robots."""

import functools
from typing import Any

import jax

from jaxik.batching.any_size import at_any_size
from jaxik.batching.implicit_diff import run_differentiable
from jaxik.batching.linear_map import of_each
from jaxik.batching.method import Method, lanes_that_fit, single_pass
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, core_ranks
from jaxik.kinematics.motion import Motion
from jaxik.problem.arguments import cast_problem, check_problem, configuration
from jaxik.problem.problem import Problem, check_closures
from jaxik.qp_solver import ActiveSet, QPOptions
from jaxik.results.step_result import StepResult
from jaxik.solvers.differential.derivatives import STEP
from jaxik.solvers.differential.linearization import Linearization, linearized
from jaxik.solvers.differential.one_step import take

# Small against J'J of metres and radians, and above its rounding in float32.
DAMPING = 1e-6


def step(
    problem: Problem,
    q: Any,
    dt: Any,
    *,
    damping: Any = DAMPING,
    previous_velocity: Any = None,
    previous_acceleration: Any = None,
    warm_start: ActiveSet | None = None,
    options: QPOptions | None = None,
    continuous: bool = False,
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
      previous_acceleration: of it (*batch, nv) [rad/s^2, m/s^2], for jerk limits; None: zero.
      warm_start: `qp.active` of an earlier result, which saves time and changes nothing else.
      options: `QPOptions` of the quadratic program. Where limits demand more than there is, how much of it is possible
        is looked for with the defaults, and the program is solved again: up to three programs.
      continuous: whether a `CollisionLimit` keeps shapes from overlapping on the way from `q` to where the step leads
        as well, to 1e-6 m, and not only there; its margin is not looked at on the way. Static: a program of its own.
        The step is shortened where that is not certain. Without a `CollisionLimit` it changes nothing.

    Returns:
      A `StepResult`. Failure is a status, never an exception, and `q` and `velocity` are never NaN.

    Raises:
      JaxikError: for wrong shapes and values; on the host, before tracing.
    """
    problem, q, motion, damping = _checked(problem, q, dt, damping, previous_velocity, previous_acceleration)
    if options is not None and not isinstance(options, QPOptions):
        raise JaxikError(f"options is a jaxik.QPOptions, not {type(options).__name__}")
    if warm_start is not None and not isinstance(warm_start, ActiveSet):
        raise JaxikError(f"warm_start is `qp.active` of an earlier result, not {type(warm_start).__name__}")
    given = (problem, q, motion, damping, warm_start, options)
    if not isinstance(continuous, bool):
        raise JaxikError(f"continuous is True or False, known before jit, not {continuous!r}")
    program = functools.partial(stepped, lanes_that_fit(problem.robot.nv**2), continuous)
    return at_any_size(program, _named(given), _named(_ranks(given)))


def linearize(
    problem: Problem,
    q: Any,
    dt: Any,
    *,
    damping: Any = DAMPING,
    previous_velocity: Any = None,
    previous_acceleration: Any = None,
) -> Linearization:
    """The quadratic program that `step` solves, with the residuals and Jacobians that it is made of.

    Args, raises: as of `step`.
    """
    problem, q, motion, damping = _checked(problem, q, dt, damping, previous_velocity, previous_acceleration)
    given = (problem, q, motion, damping, None, None)
    return at_any_size(_linearized, _named(given), _named(_ranks(given)))


def _checked(
    problem: Any, q: Any, dt: Any, damping: Any, velocity: Any, acceleration: Any
) -> tuple[Problem, jax.Array, Motion, Any]:
    check_problem(problem)
    check_closures("step", problem)
    if not problem.robot.nv:
        raise JaxikError(f"{problem.robot.topology.name} has no degrees of freedom: there is nothing to move")
    q = configuration("q", q, problem.robot)
    motion, nv = Motion(dt, velocity, acceleration), problem.robot.nv
    for name in ("previous_velocity", "previous_acceleration"):
        before = getattr(motion, name)
        if before is not None and before.shape[-1:] != (nv,):
            raise JaxikError(f"{name} has shape (*batch, nv) with nv = {nv}, not {before.shape}")
    damping = validation.number("damping", damping)
    return problem, q, motion, damping


def _ranks(given: tuple[Any, ...]) -> tuple[Any, ...]:
    problem, _, motion, _, warm_start, options = given
    return core_ranks(problem), 1, core_ranks(motion), 0, core_ranks(warm_start), core_ranks(options)


def _named(given: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("problem", "q", "motion", "damping", "warm_start", "options"), given, strict=True))


@functools.partial(jax.jit, static_argnums=(0, 1))
def stepped(width: int, continuous: bool, *given: Any, present: jax.Array | None = None) -> StepResult:
    given = _cast(*given)
    return run_differentiable(_step_method(width, continuous), given, _ranks(given), STEP, present).result


@jax.jit
def _linearized(*given: Any, present: jax.Array | None = None) -> Linearization:
    problem, q, motion, damping, *_ = _cast(*given)
    given = problem, q, motion, damping
    return of_each(linearized, given, _ranks((*given, None, None))[:4], present=present)


def _cast(problem: Problem, q: jax.Array, *rest: Any) -> tuple[Any, ...]:
    motion, damping, warm_start, options = rest
    casted = cast_problem(problem, q.dtype), q, cast(motion, q.dtype), cast(damping, q.dtype)
    return *casted, warm_start, cast(options, q.dtype)


@functools.cache
def _step_method(width: int, continuous: bool) -> Method:
    return single_pass(functools.partial(take, continuous=continuous), width)
