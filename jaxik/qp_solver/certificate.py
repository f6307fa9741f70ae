"""Proofs that there is no minimum, tested on the program as it was given."""

import jax
import jax.numpy as jnp

from jaxik.qp_solver.program import Certificate, Program

# Nobody asks for more than this of a variable without bounds.
FAR = 1e3


def blank(program: Program) -> Certificate:
    size, dtype = program.c.shape[0], program.c.dtype
    rows = 0 if program.G is None else program.G.shape[0]
    equalities = 0 if program.A is None else program.A.shape[0]
    free = jnp.zeros(size, dtype)
    return Certificate(free, free, jnp.zeros(rows, dtype), jnp.zeros(equalities, dtype), free)


def crossed(program: Program) -> Certificate:
    """The ray of bounds of which a lower one is above its upper one; zeros where none is."""
    cross = jnp.where(program.lower > program.upper, 1, 0).astype(program.c.dtype)
    empty = blank(program)
    return Certificate(cross, cross, empty.rows, empty.equalities, empty.direction)


def farkas(program: Program, weights: jax.Array) -> tuple[Certificate, jax.Array]:
    """The ray of weights (m + p,) on rows and equalities, those of bounds following; and whether it proves anything.

    What the weighted rows add up to must be zero, to rounding, for variables that are not bounded on that side, and
    cancel beyond rounding what bounds and right-hand sides add up to. Variables and right-hand sides of less than 1 are
    rounded as 1 is, as in `kkt_residual`: what is left of a gap between two directions, or between the ends of a
    closed loop, is a difference of such numbers, and rows of which one follows from others contradict it by that.
    """
    eps = jnp.finfo(weights.dtype).eps
    largest = jnp.max(jnp.abs(weights), initial=0)
    weights = weights / jnp.where(largest > 0, largest, 1)
    empty = blank(program)
    count = empty.rows.shape[0]
    rows, equalities = jnp.maximum(weights[:count], 0), weights[count:]
    total, size = empty.direction, empty.direction
    bound, scale = jnp.zeros((), weights.dtype), jnp.zeros((), weights.dtype)
    for matrix, offset, weight in ((program.G, program.h, rows), (program.A, program.b, equalities)):
        if matrix is not None and offset is not None:
            total, size = total + weight @ matrix, size + jnp.abs(weight) @ jnp.abs(matrix)
            term = jnp.where(weight == 0, 0, weight * jnp.where(weight == 0, 0, offset))
            bound, scale = bound + jnp.sum(term), scale + jnp.sum(jnp.maximum(jnp.abs(weight), jnp.abs(term)))
    upper, lower = jnp.maximum(-total, 0), jnp.maximum(total, 0)
    unbounded = ((upper > 0) & (program.upper == jnp.inf)) | ((lower > 0) & (program.lower == -jnp.inf))
    closed = jnp.all(~unbounded | (jnp.abs(total) <= 64 * eps * jnp.max(size)))
    # What is left over of an unbounded variable is rounding unless that variable were very large.
    left = FAR * jnp.sum(jnp.where(unbounded, jnp.abs(total), 0))
    upper, lower = jnp.where(unbounded, 0, upper), jnp.where(unbounded, 0, lower)
    tops = jnp.where(upper > 0, upper * jnp.where(upper > 0, program.upper, 0), 0)
    bottoms = jnp.where(lower > 0, lower * jnp.where(lower > 0, program.lower, 0), 0)
    bound = bound + jnp.sum(tops) - jnp.sum(bottoms)
    # What the rows cancel to is uncertain by the rounding of what they are.
    reach = jnp.maximum(
        jnp.where(upper > 0, jnp.abs(tops / upper), 1), jnp.where(lower > 0, jnp.abs(bottoms / lower), 1)
    )
    scale = scale + jnp.sum(size * reach)
    proven = closed & (bound + left < -64 * eps * scale)
    return Certificate(lower, upper, rows, equalities, empty.direction), proven


def endless(program: Program, motion: jax.Array, threshold: float) -> tuple[jax.Array, jax.Array]:
    """The direction (n,) of a motion, and whether it leads down without end."""
    largest = jnp.max(jnp.abs(motion))
    direction = motion / jnp.where(largest > 0, largest, 1)
    bounded = ((direction > 0) & (program.upper < jnp.inf)) | ((direction < 0) & (program.lower > -jnp.inf))
    stopped = jnp.any(bounded & (jnp.abs(direction) > threshold))
    direction = jnp.where(bounded, 0, direction)
    felt = jnp.abs(program.H @ direction) > threshold * jnp.max(jnp.abs(program.H))
    stopped = stopped | jnp.any(felt)
    if program.G is not None and program.h is not None:
        rates = program.G @ direction
        stopped = stopped | jnp.any((rates > threshold * jnp.max(jnp.abs(program.G), axis=1)) & (program.h < jnp.inf))
    if program.A is not None:
        stopped = stopped | jnp.any(jnp.abs(program.A @ direction) > threshold * jnp.max(jnp.abs(program.A), axis=1))
    falls = program.c @ direction < -threshold * jnp.max(jnp.abs(program.c))
    return direction, falls & ~stopped & (largest > 0)
