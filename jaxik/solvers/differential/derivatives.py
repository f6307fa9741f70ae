"""Derivatives of a step: the KKT conditions of its quadratic programs."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.implicit_diff import Jvp, Sensitivity
from jaxik.core.status import DerivativeStatus
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.combine import held_rows, tightened
from jaxik.limits.jerk import JerkLimit
from jaxik.problem.problem import constraints_of, effective_joint_limits, limits_of
from jaxik.qp_solver.derivatives import KKTInverse, SolutionTangent, differentiable_part, invert_kkt, solution_tangent
from jaxik.qp_solver.program import Program
from jaxik.solvers.differential.hierarchy import program_below
from jaxik.solvers.differential.linearization import Linearization, evaluated, linearized
from jaxik.solvers.differential.one_step import Stepped, has_no_solution, outcome
from jaxik.tasks.clearance import PairsTask


def _model(arguments: tuple[Any, ...], stepped: Stepped) -> Linearization:
    problem, q, motion, damping, *_ = arguments
    q = jnp.where(jnp.isfinite(q), q, problem.robot.q_home)
    return linearized(problem, q, motion, damping, stepped.recovery_scale, stepped.choices or None)


def _linearize_at(arguments: tuple[Any, ...], stepped: Stepped) -> tuple[list[KKTInverse], jax.Array]:
    """Invert the KKT conditions of all levels; the derivative status is the worst of theirs."""
    model, x = _model(arguments, stepped), [optimum.x for optimum in stepped.minima]
    inverses: list[KKTInverse] = []
    yielding = stepped.minima[0].yielding
    for j, optimum in enumerate(stepped.minima):
        program = program_below(model, j, x[:j], yielding)
        inverses.append(invert_kkt(program, optimum, inverses[-1] if inverses else None))
    worst = jnp.max(jnp.stack([kkt.derivative_status for kkt in inverses]))
    worst = jnp.where(_at_joint_limit(arguments, inverses), jnp.maximum(worst, DerivativeStatus.WEAKLY_ACTIVE), worst)
    worst = jnp.where(model.recovery_scale < 1, jnp.maximum(worst, DerivativeStatus.APPROXIMATE), worst)
    if model.unmet is not None and model.elastic_damping is not None:  # which directions are weak counts as given
        weak = jnp.any(model.unmet != 0) | jnp.any(model.elastic_damping != 0)
        worst = jnp.where(weak, jnp.maximum(worst, DerivativeStatus.APPROXIMATE), worst)
    if stepped.result.fraction is not None:
        worst = jnp.where(stepped.result.fraction < 1, jnp.maximum(worst, DerivativeStatus.APPROXIMATE), worst)
    given = _held(arguments, stepped, inverses)
    worst = jnp.where(given, jnp.maximum(worst, DerivativeStatus.APPROXIMATE), worst)
    none = has_no_solution(stepped.result.status, stepped.result.qp)
    return inverses, jnp.where(none, DerivativeStatus.UNAVAILABLE, worst).astype(jnp.int32)


def _held(arguments: tuple[Any, ...], stepped: Stepped, inverses: list[KKTInverse]) -> jax.Array:
    """Whether a row is active () that derivatives take for given in part."""
    problem, q, motion, *_ = arguments
    asked = [*problem.tasks.values(), *constraints_of(problem, couplings=True).values()]
    pairs = [task for task in asked if isinstance(task, PairsTask)]
    if not pairs and not stepped.choices:
        return jnp.zeros((), bool)
    robot, kin = problem.robot, evaluated(problem, q)
    active = [task.held(robot, kin)[None] for task in pairs]
    if stepped.choices:
        held = held_rows(limits_of(problem), robot, kin, motion, stepped.choices)
        active += [kkt.rows[: held.size] & held for kkt in inverses if kkt.rows.size]
    return jnp.any(jnp.concatenate([jnp.zeros(1, bool), *active]))


def _at_joint_limit(arguments: tuple[Any, ...], inverses: list[KKTInverse]) -> jax.Array:
    """Whether a joint is held at its limit (): the bound of its displacement has a kink there, as q moves in or out."""
    problem, q, *_ = arguments
    robots = [effective_joint_limits(problem)]
    if any(isinstance(limit, AccelerationLimit | JerkLimit) for limit in limits_of(problem)):
        robots.append(tightened(limits_of(problem), problem.robot))  # it stops joints there, whether or not these hold
    masks = []
    for robot in robots:
        lower, upper = tangent_bounds(robot)
        coordinate = scalar_coordinates(robot.topology, q)
        held = ((coordinate == lower) & inverses[-1].lower) | ((coordinate == upper) & inverses[-1].upper)
        masks.append(jnp.any(held & (lower < upper)))
    return jnp.any(jnp.stack(masks))


def _tangent(arguments: tuple[Any, ...], stepped: Stepped, condition: Any, jvp_of: Jvp) -> Any:
    """Tangents of the step's outcome, of the first program, and of the minima of all levels."""
    inverses, _ = condition
    yielding = stepped.minima[0].yielding
    above: list[tuple[jax.Array, jax.Array]] = []
    tangents: list[SolutionTangent] = []
    for level, kkt in enumerate(inverses):

        def program(arguments: tuple[Any, ...], *above: jax.Array, level: int = level) -> Program:
            return program_below(_model(arguments, stepped), level, above, yielding)

        optimum = stepped.minima[level]
        tangents.append(solution_tangent(optimum, kkt, jvp_of, program, *above))
        above.append((optimum.x, tangents[-1].x))

    none = has_no_solution(stepped.result.status, stepped.result.qp)

    def outcome_of(arguments: tuple[Any, ...], x: jax.Array) -> dict[str, Any]:
        problem, q, motion, *_ = arguments
        fraction = stepped.result.fraction
        x = x if fraction is None else fraction * x
        shortened = jnp.zeros((), bool) if fraction is None else fraction < 1
        return outcome(problem, q, motion, _model(arguments, stepped), x, yielding, none, shortened)

    return jvp_of(outcome_of, above[-1]), tangents[0], [(t.x, t.rows, t.equalities) for t in tangents]


def _differentiable(stepped: Stepped) -> Any:
    result = stepped.result
    fields = {
        "velocity": result.velocity,
        "q": result.q,
        "limit_margins": result.limit_margins,
        "residuals": result.residuals,
        "yielded": result.yielded,
    }
    # Second derivatives are taken at the minima, which therefore have tangents as well.
    return fields, differentiable_part(result.qp), [(opt.x, opt.rows, opt.equalities) for opt in stepped.minima]


def _status_fields(stepped: Stepped, condition: Any) -> list[tuple[Any, jax.Array]]:
    inverses, status = condition
    return [
        (stepped.result.derivative_status, status),
        (stepped.result.qp.derivative_status, inverses[0].derivative_status),
    ]


STEP = Sensitivity(_linearize_at, _tangent, _differentiable, _status_fields)
"""Of `take`, whose first arguments are problem, q, motion and damping."""
