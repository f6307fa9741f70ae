"""Certificates of infeasible and unbounded programs, tested on the original program."""

import jax
import jax.numpy as jnp

from jaxik.numerics.linalg import product
from jaxik.qp_solver.program import Certificate, Program

# The largest value that an unbounded variable is assumed to take.
FAR = 1e3


def no_certificate(program: Program) -> Certificate:
    size, dtype = program.c.shape[0], program.c.dtype
    rows = 0 if program.G is None else program.G.shape[0]
    equalities = 0 if program.A is None else program.A.shape[0]
    free = jnp.zeros(size, dtype)
    return Certificate(free, free, jnp.zeros(rows, dtype), jnp.zeros(equalities, dtype), free)


def crossed_bounds(program: Program) -> Certificate:
    """The Farkas ray of bounds that cross, lower above upper; zeros where none do."""
    cross = jnp.where(program.lower > program.upper, 1, 0).astype(program.c.dtype)
    empty = no_certificate(program)
    return Certificate(cross, cross, empty.rows, empty.equalities, empty.direction)


def farkas(program: Program, weights: jax.Array) -> tuple[Certificate, jax.Array]:
    """The Farkas ray of weights (m + p,) on rows and equalities, and whether () it proves that nothing is feasible.

    Weights of bounds follow. The weighted sum of rows must be zero, to rounding, for variables without a bound on that
    side; the weighted sum of bounds and right-hand sides must be negative beyond rounding. Variables and right-hand
    sides below 1 count as 1, as in `kkt_residual`: the gap between two directions, or between the ends of a closed
    loop, is a difference of such numbers, and redundant rows contradict each other by its rounding.
    """
    eps = jnp.finfo(weights.dtype).eps
    largest = jnp.max(jnp.abs(weights), initial=0)
    weights = weights / jnp.where(largest > 0, largest, 1)
    empty = no_certificate(program)
    count = empty.rows.shape[0]
    rows, equalities = jnp.maximum(weights[:count], 0), weights[count:]
    total, size = empty.direction, empty.direction
    bound, scale = jnp.zeros((), weights.dtype), jnp.zeros((), weights.dtype)
    for matrix, offset, weight in ((program.G, program.h, rows), (program.A, program.b, equalities)):
        if matrix is not None and offset is not None:
            total, size = total + product(matrix.T, weight), size + product(jnp.abs(matrix.T), jnp.abs(weight))
            term = jnp.where(weight == 0, 0, weight * jnp.where(weight == 0, 0, offset))
            bound, scale = bound + jnp.sum(term), scale + jnp.sum(jnp.maximum(jnp.abs(weight), jnp.abs(term)))
    upper, lower = jnp.maximum(-total, 0), jnp.maximum(total, 0)
    unbounded = ((upper > 0) & (program.upper == jnp.inf)) | ((lower > 0) & (program.lower == -jnp.inf))
    closed = jnp.all(~unbounded | (jnp.abs(total) <= 64 * eps * jnp.max(size)))
    # The rest of an unbounded variable is rounding, unless that variable were very large.
    leftover = FAR * jnp.sum(jnp.where(unbounded, jnp.abs(total), 0))
    upper, lower = jnp.where(unbounded, 0, upper), jnp.where(unbounded, 0, lower)
    upper_terms = jnp.where(upper > 0, upper * jnp.where(upper > 0, program.upper, 0), 0)
    lower_terms = jnp.where(lower > 0, lower * jnp.where(lower > 0, program.lower, 0), 0)
    bound = bound + jnp.sum(upper_terms) - jnp.sum(lower_terms)
    # The sum of the rows is uncertain by the rounding of its terms.
    reach = jnp.maximum(
        jnp.where(upper > 0, jnp.abs(upper_terms / upper), 1), jnp.where(lower > 0, jnp.abs(lower_terms / lower), 1)
    )
    scale = scale + jnp.sum(size * reach)
    proven = closed & (bound + leftover < -64 * eps * scale)
    return Certificate(lower, upper, rows, equalities, empty.direction), proven


def unbounded_direction(program: Program, motion: jax.Array, threshold: float) -> tuple[jax.Array, jax.Array]:
    """The direction (n,) of a motion, and whether the objective is unbounded below along it."""
    largest = jnp.max(jnp.abs(motion))
    direction = motion / jnp.where(largest > 0, largest, 1)
    bounded = ((direction > 0) & (program.upper < jnp.inf)) | ((direction < 0) & (program.lower > -jnp.inf))
    stopped = jnp.any(bounded & (jnp.abs(direction) > threshold))
    direction = jnp.where(bounded, 0, direction)
    curved = jnp.abs(product(program.H, direction)) > threshold * jnp.max(jnp.abs(program.H))
    stopped = stopped | jnp.any(curved)
    slope = program.c @ direction
    if program.G is not None and program.h is not None:
        rates = product(program.G, direction)
        holds = program.h < jnp.inf
        if program.row_penalties is not None:
            yields = jnp.isfinite(program.row_penalties)
            slope = slope + jnp.sum(jnp.where(holds & yields, program.row_penalties, 0) * jnp.maximum(rates, 0))
            holds = holds & ~yields
        stopped = stopped | jnp.any((rates > threshold * jnp.max(jnp.abs(program.G), axis=1)) & holds)
    if program.A is not None:
        rates = jnp.abs(product(program.A, direction))
        leaves = rates > threshold * jnp.max(jnp.abs(program.A), axis=1)
        if program.equality_penalties is not None:
            yields = jnp.isfinite(program.equality_penalties)
            slope = slope + jnp.sum(jnp.where(yields, program.equality_penalties, 0) * rates)
            leaves = leaves & ~yields
        stopped = stopped | jnp.any(leaves)
    falls = slope < -threshold * jnp.max(jnp.abs(program.c))
    return direction, falls & ~stopped & (largest > 0)
