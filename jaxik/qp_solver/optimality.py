"""Residual of the KKT conditions, on the original program."""

import jax
import jax.numpy as jnp

from jaxik.qp_solver.program import Program
from jaxik.qp_solver.scaling import units


def objective(program: Program, x: jax.Array) -> jax.Array:
    """1/2 x'Hx + c'x."""
    return jnp.sum(x * (0.5 * (program.H @ x) + program.c))


def kkt_residual(
    program: Program, x: jax.Array, bounds: jax.Array, rows: jax.Array, equalities: jax.Array
) -> jax.Array:
    """The largest error of the KKT conditions, as `QPSolution.kkt_residual` describes; x keeps bounds and signs."""
    error, size = program.H @ x + program.c + bounds, jnp.abs(program.H) @ jnp.abs(x) + jnp.abs(program.c)
    violations = []
    for matrix, weights in ((program.G, rows), (program.A, equalities)):
        if matrix is not None:
            error, size = error + weights @ matrix, size + jnp.abs(weights) @ jnp.abs(matrix)
    worst, size = stationarity(error, size, units(program.H)), jnp.maximum(jnp.max(size), 1)
    if program.G is not None and program.h is not None:
        exists = program.h < jnp.inf
        slack, scale = _slack(program.G, jnp.where(exists, program.h, 0), x)
        slack = jnp.where(exists, slack / scale, -jnp.inf)
        excess = slack
        if program.row_penalties is not None:
            excess = jnp.minimum(excess, (program.row_penalties - rows) / size)
        violations += [excess, jnp.minimum(rows / size, -slack)]
    if program.A is not None and program.b is not None:
        slack, scale = _slack(program.A, program.b, x)
        excess = jnp.abs(slack) / scale
        if program.equality_penalties is not None:
            excess = jnp.minimum(excess, (program.equality_penalties - jnp.sign(slack) * equalities) / size)
        violations.append(excess)
    return jnp.maximum(worst, jnp.max(jnp.concatenate(violations), initial=0)) if violations else worst


def stationarity(error: jax.Array, sizes: jax.Array, unit: jax.Array) -> jax.Array:
    """The largest error of stationarity, relative to the largest sum of its absolute terms.

    Args:
      error, sizes (n,): by variable, and the sums of the absolute terms.
      unit (n,): units in which H has a diagonal of 1. In these the error counts once more, so that flat variables
        count alike; otherwise it is relative to 1 at least.
    """
    most = jnp.max(unit * sizes)
    scaled = jnp.max(unit * jnp.abs(error)) / jnp.where(most > 0, most, 1)
    return jnp.maximum(jnp.max(jnp.abs(error)) / jnp.maximum(jnp.max(sizes), 1), scaled)


def _slack(matrix: jax.Array, offset: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows minus right-hand sides, and the scale of their rounding: the sum of all absolute terms, at least 1."""
    return matrix @ x - offset, jnp.maximum(jnp.abs(matrix) @ jnp.abs(x) + jnp.abs(offset), 1)
