"""What is returned of a program: in its own units, and how far to be trusted."""

import jax
import jax.numpy as jnp

from jaxik.core.status import DerivativeStatus, Status
from jaxik.qp_solver import goldfarb_idnani
from jaxik.qp_solver.certificate import crossed, farkas
from jaxik.qp_solver.form import ScaledQP
from jaxik.qp_solver.optimality import kkt_residual, objective
from jaxik.qp_solver.options import QPOptions, tolerance
from jaxik.qp_solver.program import ActiveSet, Certificate, Program, QPSolution


def finalize(
    given: Program,
    program: Program,
    scaled: ScaledQP,
    found: goldfarb_idnani.State,
    direction: jax.Array,
    unbounded: jax.Array,
    options: QPOptions,
) -> QPSolution:
    """The solution.

    Args:
      given: the program as it was given.
      program: the one that was minimised: without anything where `given` has numbers that are not finite, or bounds
        that cross.
      scaled: its scaled form.
      found: where the iteration ended.
      direction (n,), unbounded (): which way it goes down without end, and whether there is one.
      options: `QPOptions`.
    """
    n = scaled.variables
    rows = 0 if program.G is None else program.G.shape[0]
    point, active = found.point, found.tableau.active
    finite, crosses = all_finite(given), jnp.any(given.lower > given.upper)
    low = jnp.where(jnp.isnan(given.lower) | (given.lower == jnp.inf), -jnp.inf, given.lower)
    high = jnp.where(jnp.isnan(given.upper) | (given.upper == -jnp.inf), jnp.inf, given.upper)
    x = scaled.variable_scale * point.value[:n]
    x = jnp.minimum(jnp.maximum(jnp.where(jnp.isfinite(x), x, 0), low), high)
    multipliers = jnp.where(active, scaled.multiplier_scale * point.multiplier, 0)
    bounds, equal = multipliers[:n], program.lower == program.upper
    # Signs that rounding has turned are put right; that of a variable that is given may be any.
    side = jnp.where(goldfarb_idnani.signs(scaled, point)[:n] < 0, -1, 1)
    side = jnp.where(equal & (bounds < 0), -1, side)
    bounds = side * jnp.maximum(side * bounds, 0)
    inequalities, equalities = jnp.maximum(multipliers[n : n + rows], 0), multipliers[n + rows :]
    residual = kkt_residual(program, x, bounds, inequalities, equalities)
    status = jnp.where(residual <= tolerance(options, x.dtype), Status.CONVERGED, Status.TIMEOUT)
    status = jnp.where(unbounded | ~found.tableau.convex, Status.DIVERGED, status)
    status = jnp.where(found.infeasible | crosses, Status.INFEASIBLE, status)
    status = jnp.where(finite, status, Status.NONFINITE)
    ray, _ = farkas(program, goldfarb_idnani.given_weights(scaled, found.ray))
    proof = jax.tree.map(lambda a, b: jnp.where(crosses, a, jnp.where(found.infeasible, b, 0)), crossed(given), ray)
    proof = jax.tree.map(lambda x: jnp.where(finite, x, 0), proof)
    return QPSolution(
        x=x,
        status=status.astype(jnp.int32),
        objective=objective(given, x),
        bound_multipliers=bounds,
        row_multipliers=inequalities,
        equality_multipliers=equalities,
        active=ActiveSet(jnp.where(active[:n], side, 0).astype(jnp.int32), active[n : n + rows]),
        kkt_residual=jnp.where(finite & ~crosses, residual, jnp.inf),
        iterations=found.iterations,
        certificate=Certificate(
            proof.lower, proof.upper, proof.rows, proof.equalities, jnp.where(unbounded & finite, direction, 0)
        ),
        derivative_status=jnp.full((), DerivativeStatus.NOT_COMPUTED, jnp.int32),
    )


def all_finite(program: Program) -> jax.Array:
    """Whether every number is finite that has to be."""
    fine = jnp.all(program.lower < jnp.inf) & jnp.all(program.upper > -jnp.inf)
    if program.h is not None:
        fine = fine & jnp.all(program.h > -jnp.inf)
    for x in (program.H, program.c, program.G, program.A, program.b):
        if x is not None:
            fine = fine & jnp.all(jnp.isfinite(x))
    return fine
