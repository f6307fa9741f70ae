"""One step of differential inverse kinematics, of one element."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.errors import JaxikError
from jaxik.core.status import DerivativeStatus, Status
from jaxik.kinematics.motion import Motion
from jaxik.limits.combine import Choices, looking_at_distances, merged_pair_names
from jaxik.problem.problem import Problem, effective_joint_limits, limits_of
from jaxik.qp_solver import ActiveSet, QPOptions, QPSolution
from jaxik.qp_solver.derivatives import Optimum
from jaxik.results.step_result import StepResult
from jaxik.solvers.differential.hierarchy import descend, highest_level
from jaxik.solvers.differential.integrate import integrate_within_limits
from jaxik.solvers.differential.linearization import Linearization, linearized_with_demands
from jaxik.solvers.differential.shorten import arrive, arrive_without_crossing
from jaxik.solvers.differential.yielded import yielded_of

# With a larger `kkt_residual`, relative to the terms of the conditions, an iterate that is no minimum is no step.
USABLE = 1e-2


class Stepped(NamedTuple):
    """The result of a step, the minima of all its levels, the scale () of its demands, and which rows limits chose."""

    result: StepResult
    minima: tuple[Optimum, ...]
    recovery_scale: jax.Array
    choices: Choices


def take(
    problem: Problem,
    q: jax.Array,
    motion: Motion,
    damping: jax.Array,
    warm_start: ActiveSet | None,
    options: QPOptions | None,
    *,
    continuous: bool = False,
) -> Stepped:
    """Take one step, of one element."""
    # Under jit the duration has not been checked before.
    finite = jnp.all(jnp.isfinite(q)) & jnp.isfinite(motion.dt) & (motion.dt > 0)
    q = jnp.where(jnp.isfinite(q), q, problem.robot.q_home)
    model, demands = linearized_with_demands(problem, q, motion, damping)
    _check_start(warm_start, model)
    model, first = highest_level(model, demands, warm_start, options)
    descent = descend(model, first, options)
    status = jnp.where(finite, descent.status, Status.NONFINITE).astype(jnp.int32)
    none = has_no_solution(status, descent.first)
    x = jnp.where(none, 0, descent.displacement)
    arrival = (arrive_without_crossing if continuous else arrive)(problem, q, x, model.lower, model.upper)
    if arrival is not None:
        status = jnp.where((status == Status.CONVERGED) & arrival.stands_still, Status.COLLIDES, status)
        status = jnp.where(jnp.isnan(arrival.clearance), Status.NONFINITE, status).astype(jnp.int32)
        none = has_no_solution(status, descent.first)
    x = x if arrival is None else arrival.fraction * x
    shortened = jnp.zeros((), bool) if arrival is None else arrival.fraction < 1
    fields = outcome(problem, q, motion, model, x, descent.each[0].yielding, none, shortened)
    if arrival is not None:
        looking = looking_at_distances(limits_of(problem))
        fields |= {"fraction": arrival.fraction, "clearance": arrival.clearance, "nearest": arrival.nearest}
        fields["pair_names"] = merged_pair_names(looking, problem.robot)
    not_computed = jnp.asarray(DerivativeStatus.NOT_COMPUTED, jnp.int32)
    result = StepResult(status=status, qp=descent.first, derivative_status=not_computed, **fields)
    return Stepped(result, descent.each, model.recovery_scale, model.choices)


def has_no_solution(status: jax.Array, first: QPSolution) -> jax.Array:
    """Whether a step has no solution, so that its velocity is zero.

    Args:
      first: the solution of the highest level.
    """
    none = (status == Status.NONFINITE) | (status == Status.INFEASIBLE)
    if not first.row_multipliers.shape[0] + first.equality_multipliers.shape[0]:
        return none
    # An iterate may be anywhere: a base that no bound holds went to 1e20 m.
    unfinished = (status == Status.TIMEOUT) | (status == Status.DIVERGED)
    return none | (unfinished & ~(first.kkt_residual <= USABLE))


def outcome(
    problem: Problem,
    q: jax.Array,
    motion: Motion,
    model: Linearization,
    x: jax.Array,
    yielding: jax.Array | None,
    none: jax.Array,
    shortened: jax.Array,
) -> dict[str, Any]:
    """Velocity, q, margins and residuals of a step with a displacement `x` (nv,); at rest where there is none."""
    margins = {"lower": x - model.lower, "upper": model.upper - x}
    yielded = {} if yielding is None else yielded_of(problem, model, x, yielding != 0, shortened, none)
    if model.G is not None and model.h is not None:
        margins["rows"] = model.h - _along_rows(model, x)
    reached, x = integrate_within_limits(effective_joint_limits(problem), q, x, model.lower, model.upper)
    return {
        "velocity": jnp.where(none, 0, x / motion.dt),
        "q": jnp.where(none, q, reached),
        "limit_margins": margins,
        "residuals": model.errors,
        "yielded": yielded,
    }


def _along_rows(model: Linearization, x: jax.Array) -> jax.Array:
    """G x (k,) of a displacement (nv,); of elastic bounds, whose rows are the identity's, without making G."""
    assert model.G is not None
    if model.rows_are_elastic_bounds:
        return jnp.tile(jnp.concatenate([x, -x]), model.G.shape[0] // (2 * x.shape[0]))
    return model.G @ x


def _check_start(warm_start: ActiveSet | None, model: Linearization) -> None:
    expected = model.lower.shape, (0,) if model.h is None else model.h.shape
    if warm_start is None:
        return
    count = sum(x.shape[0] for x in (model.h, model.b) if x is not None)
    fits = warm_start.yielding is None or warm_start.yielding.shape == (count,)
    if not fits or (warm_start.bounds.shape, warm_start.rows.shape) != expected:
        raise JaxikError(
            "warm_start is `qp.active` of an earlier result of the same problem: bounds and rows have shapes "
            f"(*batch, k) with k = {expected[0][0]} and {expected[1][0]}, "
            f"not {warm_start.bounds.shape[-1]} and {warm_start.rows.shape[-1]}"
        )
