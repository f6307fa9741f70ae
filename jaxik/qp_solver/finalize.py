"""Turn the last iterate into a `QPSolution`: original units, status, residual and certificate."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxik.core.status import DerivativeStatus, Status
from jaxik.qp_solver import goldfarb_idnani
from jaxik.qp_solver.certificate import crossed_bounds, farkas, no_certificate
from jaxik.qp_solver.optimality import kkt_residual, objective
from jaxik.qp_solver.options import QPOptions, tolerance
from jaxik.qp_solver.program import ActiveSet, Certificate, Program, QPSolution
from jaxik.qp_solver.scaling import ScaledQP
from jaxik.qp_solver.violations import signs, yielding


def finalize(
    original: Program,
    program: Program,
    scaled: ScaledQP,
    state: goldfarb_idnani.State,
    direction: jax.Array,
    unbounded: jax.Array,
    options: QPOptions,
) -> QPSolution:
    """The solution of a program, from the last iterate.

    Args:
      original: the program as it was given.
      program: the one that was minimised: zeros where `original` has numbers that are not finite, or bounds that cross.
      scaled: `program`, scaled.
      state: the last iterate.
      direction (n,), unbounded (): a direction along which the objective is unbounded below, and whether it is.
      options: `QPOptions`.
    """
    n = scaled.variables
    rows = 0 if program.G is None else program.G.shape[0]
    point, active = state.point, state.tableau.active
    finite, crosses = all_finite(original), jnp.any(original.lower > original.upper)
    low = jnp.where(jnp.isnan(original.lower) | (original.lower == jnp.inf), -jnp.inf, original.lower)
    high = jnp.where(jnp.isnan(original.upper) | (original.upper == -jnp.inf), jnp.inf, original.upper)
    x = scaled.variable_scale * point.value[:n]
    x = jnp.minimum(jnp.maximum(jnp.where(jnp.isfinite(x), x, 0), low), high)
    side, held = None, active
    if scaled.penalty is not None:
        side = yielding(scaled, point, active)
        held = held | (side != 0)
    multipliers = jnp.where(held, scaled.multiplier_scale * point.multiplier, 0)
    bounds, equal = multipliers[:n], program.lower == program.upper
    # Correct signs that rounding has turned; a variable with equal bounds may have either.
    sign = jnp.where(signs(scaled, point)[:n] < 0, -1, 1)
    sign = jnp.where(equal & (bounds < 0), -1, sign)
    bounds = sign * jnp.maximum(sign * bounds, 0)
    inequalities, equalities = jnp.maximum(multipliers[n : n + rows], 0), multipliers[n + rows :]
    residual = kkt_residual(program, x, bounds, inequalities, equalities)
    status = jnp.where(residual <= tolerance(options, x.dtype), Status.CONVERGED, Status.TIMEOUT)
    status = jnp.where(unbounded | ~state.tableau.convex, Status.DIVERGED, status)
    status = jnp.where(state.infeasible | crosses, Status.INFEASIBLE, status)
    status = jnp.where(finite, status, Status.NONFINITE)
    ray, _ = farkas(program, goldfarb_idnani.row_multipliers(scaled, state.ray))
    proof = jax.tree.map(
        lambda a, b: jnp.where(crosses, a, jnp.where(state.infeasible, b, 0)), crossed_bounds(original), ray
    )
    proof = jax.tree.map(lambda x: jnp.where(finite, x, 0), proof)
    held = ActiveSet(jnp.where(active[:n], sign, 0), active[n : n + rows], None if side is None else side[n:])
    residual = jnp.where(finite & ~crosses, residual, jnp.inf)
    solution = solution_of(original, x, status, (bounds, inequalities, equalities), held, residual, state.iterations)
    direction = jnp.where(unbounded & finite, direction, 0)
    return dataclasses.replace(
        solution, certificate=Certificate(proof.lower, proof.upper, proof.rows, proof.equalities, direction)
    )


def solution_of(
    program: Program,
    x: jax.Array,
    status: jax.Array,
    multipliers: tuple[jax.Array, jax.Array, jax.Array],
    active: ActiveSet,
    residual: jax.Array,
    iterations: jax.Array,
    gradient: jax.Array | None = None,
) -> QPSolution:
    """The solution at x (n,) of a program that has a minimum: without a certificate.

    Args:
      program, x, status: as in `QPSolution`.
      multipliers: of bounds (n,), rows (m,) and equalities (p,).
      active, residual, iterations: as in `QPSolution`.
      gradient (n,): H x + c, where it is known: it saves the product in the objective.
    """
    yields = None if active.yielding is None else active.yielding.astype(jnp.int32)
    return QPSolution(
        x=x,
        status=status.astype(jnp.int32),
        objective=objective(program, x) if gradient is None else 0.5 * jnp.sum(x * (gradient + program.c)),
        bound_multipliers=multipliers[0],
        row_multipliers=multipliers[1],
        equality_multipliers=multipliers[2],
        active=ActiveSet(active.bounds.astype(jnp.int32), active.rows, yields),
        kkt_residual=residual,
        iterations=iterations,
        certificate=no_certificate(program),
        derivative_status=jnp.asarray(DerivativeStatus.NOT_COMPUTED, jnp.int32),
    )


def all_finite(program: Program) -> jax.Array:
    """Whether all numbers are finite, except bounds, right-hand sides and penalties on their open side."""
    fine = jnp.all(program.lower < jnp.inf) & jnp.all(program.upper > -jnp.inf)
    if program.h is not None:
        fine = fine & jnp.all(program.h > -jnp.inf)
    for x in (program.H, program.c, program.G, program.A, program.b):
        if x is not None:
            fine = fine & jnp.all(jnp.isfinite(x))
    for x in (program.row_penalties, program.equality_penalties):
        if x is not None:
            fine = fine & jnp.all(x > 0)
    return fine
