"""How near a point is to a minimum, on the program as it was given."""

import jax
import jax.numpy as jnp

from jaxik.qp_solver.form import units
from jaxik.qp_solver.program import Program


def objective(program: Program, x: jax.Array) -> jax.Array:
    """1/2 x'Hx + c'x."""
    return jnp.sum(x * (0.5 * (program.H @ x) + program.c))


def kkt_residual(
    program: Program, x: jax.Array, bounds: jax.Array, rows: jax.Array, equalities: jax.Array
) -> jax.Array:
    """The largest entry of what `QPSolution.kkt_residual` describes; signs of multipliers and bounds are kept."""
    left, size = program.H @ x + program.c + bounds, jnp.abs(program.H) @ jnp.abs(x) + jnp.abs(program.c)
    violations = []
    for matrix, weights in ((program.G, rows), (program.A, equalities)):
        if matrix is not None:
            left, size = left + weights @ matrix, size + jnp.abs(weights) @ jnp.abs(matrix)
    sums, size = size, jnp.maximum(jnp.max(size), 1)
    stationarity = jnp.maximum(jnp.max(jnp.abs(left)) / size, _by_units(program.H, left, sums))
    if program.G is not None and program.h is not None:
        exists = program.h < jnp.inf
        slack, scale = _slack(program.G, jnp.where(exists, program.h, 0), x)
        slack = jnp.where(exists, slack / scale, -jnp.inf)
        violations += [slack, jnp.minimum(rows / size, -slack)]
    if program.A is not None and program.b is not None:
        slack, scale = _slack(program.A, program.b, x)
        violations.append(jnp.abs(slack) / scale)
    return jnp.maximum(stationarity, jnp.max(jnp.concatenate(violations), initial=0)) if violations else stationarity


def _by_units(hessian: jax.Array, left: jax.Array, sums: jax.Array) -> jax.Array:
    """What is left in units in which curvatures are 1, so that a small curvature counts as much as a large one."""
    unit = units(hessian)
    most = jnp.max(unit * sums)
    return jnp.max(unit * jnp.abs(left)) / jnp.where(most > 0, most, 1)


def _slack(matrix: jax.Array, offset: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows times x less what they should be, and the sum of all terms as if positive, at least 1."""
    return matrix @ x - offset, jnp.maximum(jnp.abs(matrix) @ jnp.abs(x) + jnp.abs(offset), 1)
