"""How a step moves with what it depends on: the KKT conditions of its quadratic programs."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.implicit_diff import Jvp, Sensitivity
from jaxik.core.status import DerivativeStatus
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.problem.problem import effective_joint_limits, limits_of
from jaxik.qp_solver.derivatives import Minimum, Motion, assess, motion_of, moved
from jaxik.qp_solver.program import Program
from jaxik.solvers.differential.hierarchy import program_below
from jaxik.solvers.differential.linearization import Linearization, linearized
from jaxik.solvers.differential.one_step import Stepped, outcome, stands_still


def _model(arguments: tuple[Any, ...]) -> Linearization:
    problem, q, motion, damping, *_ = arguments
    return linearized(problem, jnp.where(jnp.isfinite(q), q, problem.robot.q_home), motion, damping)


def _assess(arguments: tuple[Any, ...], answer: Stepped) -> tuple[list[Minimum], jax.Array]:
    """The programs of all levels at their minima, and what the derivative is worth."""
    model, x = _model(arguments), [minimum.x for minimum in answer.minima]
    found: list[Minimum] = []
    for j, minimum in enumerate(answer.minima):
        found.append(assess(program_below(model, j, x[:j]), minimum, found[-1] if found else None))
    worst = jnp.max(jnp.stack([minimum.derivative_status for minimum in found]))
    worst = jnp.where(_stopped_by_a_limit(arguments, found), jnp.maximum(worst, DerivativeStatus.WEAKLY_ACTIVE), worst)
    worst = jnp.where(model.recovery_scale < 1, jnp.maximum(worst, DerivativeStatus.APPROXIMATE), worst)
    return found, jnp.where(stands_still(answer.result.status), DerivativeStatus.UNAVAILABLE, worst).astype(jnp.int32)


def _stopped_by_a_limit(arguments: tuple[Any, ...], minima: list[Minimum]) -> jax.Array:
    """Whether a joint is at its limit and held there: inside, how far it may go changes with q, and outside as well."""
    problem, q, *_ = arguments
    robots = [effective_joint_limits(problem)]
    if any(isinstance(limit, AccelerationLimit) for limit in limits_of(problem)):
        robots.append(problem.robot)  # it lets joints stop ahead of the robot's own limits
    found = []
    for robot in robots:
        lower, upper = tangent_bounds(robot)
        at = scalar_coordinates(robot.topology, q)
        held = ((at == lower) & minima[-1].lower) | ((at == upper) & minima[-1].upper)
        found.append(jnp.any(held & (lower < upper)))
    return jnp.any(jnp.stack(found))


def _moves(arguments: tuple[Any, ...], answer: Stepped, condition: Any, along: Jvp) -> Any:
    """The tangents of velocity, q, slack and residuals."""
    minima, _ = condition
    above: list[tuple[jax.Array, jax.Array]] = []
    motions: list[Motion] = []
    for level, minimum in enumerate(minima):

        def program(arguments: tuple[Any, ...], *above: jax.Array, level: int = level) -> Program:
            return program_below(_model(arguments), level, above)

        own = answer.minima[level]
        motions.append(moved(own, minimum, along, program, *above))
        above.append((own.x, motions[-1].x))

    still = stands_still(answer.result.status)

    def ahead(arguments: tuple[Any, ...], x: jax.Array) -> dict[str, Any]:
        problem, q, motion, *_ = arguments
        return outcome(problem, q, motion, _model(arguments), x, still)

    return along(ahead, above[-1]), motions[0], [(m.x, m.rows, m.equalities) for m in motions]


def _smooth(answer: Stepped) -> Any:
    result = answer.result
    own = {
        "velocity": result.velocity,
        "q": result.q,
        "limit_margins": result.limit_margins,
        "residuals": result.residuals,
    }
    # The minima are what further derivatives are taken at.
    return own, motion_of(result.qp), [(minimum.x, minimum.rows, minimum.equalities) for minimum in answer.minima]


def _judged(answer: Stepped, condition: Any) -> list[tuple[Any, jax.Array]]:
    minima, derivative = condition
    return [
        (answer.result.derivative_status, derivative),
        (answer.result.qp.derivative_status, minima[0].derivative_status),
    ]


STEP = Sensitivity(_assess, _moves, _smooth, _judged)
"""Of what `take` returns: problem, q, motion and damping are its first arguments."""
