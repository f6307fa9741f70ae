"""One step of differential inverse kinematics, of one element."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.errors import JaxikError
from jaxik.core.status import DerivativeStatus, Status
from jaxik.kinematics.motion import Motion
from jaxik.problem.problem import Problem, effective_joint_limits
from jaxik.qp_solver import ActiveSet, QPOptions
from jaxik.qp_solver.derivatives import Active
from jaxik.results.step_result import StepResult
from jaxik.solvers.differential.hierarchy import descend
from jaxik.solvers.differential.integrate import integrate_within_limits
from jaxik.solvers.differential.linearization import Linearization, linearized


class Stepped(NamedTuple):
    """One step, and the minima of all levels that it is made of."""

    result: StepResult
    minima: tuple[Active, ...]


def take(
    problem: Problem,
    q: jax.Array,
    motion: Motion,
    damping: jax.Array,
    warm_start: ActiveSet | None,
    options: QPOptions | None,
) -> Stepped:
    """Take one step, of one element."""
    # Under jit nothing could be said of a duration before.
    finite = jnp.all(jnp.isfinite(q)) & jnp.isfinite(motion.dt) & (motion.dt > 0)
    q = jnp.where(jnp.isfinite(q), q, problem.robot.q_home)
    model = linearized(problem, q, motion, damping)
    _check_start(warm_start, model)
    found = descend(model, warm_start, options)
    status = jnp.where(finite, found.status, Status.NONFINITE).astype(jnp.int32)
    still = stands_still(status)
    x = jnp.where(still, 0, found.displacement)
    moved = outcome(problem, q, motion, model, x, still)
    unasked = jnp.full((), DerivativeStatus.NOT_COMPUTED, jnp.int32)
    return Stepped(StepResult(status=status, qp=found.first, derivative_status=unasked, **moved), found.each)


def stands_still(status: jax.Array) -> jax.Array:
    """Whether there is no answer to go to."""
    return (status == Status.NONFINITE) | (status == Status.INFEASIBLE)


def outcome(
    problem: Problem, q: jax.Array, motion: Motion, model: Linearization, x: jax.Array, still: jax.Array
) -> dict[str, Any]:
    """Velocity, q, margins and residuals of a step with a displacement `x` (nv,)."""
    margins = {"lower": x - model.lower, "upper": model.upper - x}
    if model.G is not None and model.h is not None:
        margins["rows"] = model.h - model.G @ x
    reached, x = integrate_within_limits(effective_joint_limits(problem), q, x, model.lower, model.upper)
    return {
        "velocity": jnp.where(still, 0, x / motion.dt),
        "q": jnp.where(still, q, reached),
        "limit_margins": margins,
        "residuals": model.errors,
    }


def _check_start(warm_start: ActiveSet | None, model: Linearization) -> None:
    own = model.lower.shape, (0,) if model.h is None else model.h.shape
    if warm_start is not None and (warm_start.bounds.shape, warm_start.rows.shape) != own:
        raise JaxikError(
            "warm_start is `qp.active` of an earlier result of the same problem: bounds and rows have shapes "
            f"(*batch, k) with k = {own[0][0]} and {own[1][0]}, "
            f"not {warm_start.bounds.shape[-1]} and {warm_start.rows.shape[-1]}"
        )
