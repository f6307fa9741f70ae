"""Scale a quadratic program: one list of constraints, bounds first, then rows, then equalities.

Every constraint k has a value s_k, which is x_k for a bound and `C x - d` for a row or equality; limits between which
it stays; and a multiplier mu_k, positive at the upper limit, negative at the lower one. Stationarity and the definition
of the rows are

    H x + c + C'mu_rows = -mu_bounds,    C x - d = s_rows.

Variables are scaled to a unit diagonal of H, rows to a sum of about one, all by powers of two, which are exact: a
scaled bound that is met is met bitwise.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.fusion import materialize
from jaxik.qp_solver.program import Program


class ScaledQP(NamedTuple):
    """A scaled program with N = n + m + p constraints.

    Attributes:
      matrix (N, N): [[H, C'], [C, 0]].
      vector (N,): (c, -d).
      lower, upper (N,): limits of the values; -inf and 0 for rows, 0 and 0 for equalities.
      variable_scale (n,): x over its scaled value.
      multiplier_scale (N,): multipliers over their scaled values.
      max_curvature (): the largest scaled curvature, about 1, or 0.
      penalty (N,): the largest multipliers, infinite for constraints that do not yield; None: none does. Only rows and
        equalities yield.
    """

    matrix: jax.Array
    vector: jax.Array
    lower: jax.Array
    upper: jax.Array
    variable_scale: jax.Array
    multiplier_scale: jax.Array
    max_curvature: jax.Array
    penalty: jax.Array | None = None

    @property
    def variables(self) -> int:
        """Number of variables, n."""
        return self.variable_scale.shape[0]

    @property
    def is_bound(self) -> jax.Array:
        """Mask (N,) of the constraints that are bounds."""
        return jnp.arange(self.vector.shape[0]) < self.variables


def with_symmetric_hessian(program: Program) -> Program:
    """The program with the symmetric part of its H, computed once: else each product with it would compute it again."""
    return program._replace(H=materialize(0.5 * (program.H + program.H.T)))


def curved_along_equalities(program: Program) -> Program:
    """The program with r |A x - b|^2 / 2 added, of equalities that hold: the same minimum and multipliers.

    A base that only its feet hold is flat in H but for damping: in float32 an elimination that takes H first, and then
    the equalities, loses all digits (the augmented Lagrangian: Nocedal and Wright, "Numerical Optimization", 17.3).
    """
    if program.A is None or program.b is None:
        return program
    matrix, right = program.A, program.b
    if program.equality_penalties is not None:
        holds = jnp.isinf(program.equality_penalties)
        matrix, right = jnp.where(holds[:, None], matrix, 0), jnp.where(holds, right, 0)
    gram = matrix.T @ matrix
    largest, most = jnp.max(_diagonal(program.H)), jnp.max(_diagonal(gram))
    factor = jnp.where((largest > 0) & (most > 0), largest / jnp.where(most > 0, most, 1), 0)
    return program._replace(H=materialize(program.H + factor * gram), c=program.c - factor * (matrix.T @ right))


def scaled_qp(program: Program) -> ScaledQP:
    """Scale a program; all its entries are finite, except bounds."""
    dtype = program.c.dtype
    rows, offsets = [], []
    count = 0
    if program.G is not None and program.h is not None:
        # An infinite right-hand side means no row: a row of zeros, which always holds.
        exists = program.h < jnp.inf
        rows.append(jnp.where(exists[:, None], program.G, 0))
        offsets.append(jnp.where(exists, program.h, 1))
        count = program.G.shape[0]
    equalities = 0
    if program.A is not None and program.b is not None:
        rows.append(program.A)
        offsets.append(program.b)
        equalities = program.A.shape[0]
    flat = jnp.max(_diagonal(program.H)) <= 0
    # Without curvature the objective is scaled by its gradient.
    gradient = jnp.max(jnp.abs(program.c))
    objective = jnp.where(flat & (gradient > 0), power_of_two(gradient), 1)
    scale = units(program.H)
    hessian = scale[:, None] * program.H * scale / objective
    vector = [scale * program.c / objective]
    lower, upper = [program.lower / scale], [program.upper / scale]
    multiplier = [objective / scale]
    matrix = hessian
    if rows:
        constraints, offset = jnp.concatenate(rows) * scale, jnp.concatenate(offsets)
        length = jnp.sum(jnp.abs(constraints), axis=1)
        unit = power_of_two(1 / jnp.where(length > 0, length, 1))
        constraints = unit[:, None] * constraints
        vector.append(-unit * offset)
        lower += [jnp.full(count, -jnp.inf, dtype), jnp.zeros(equalities, dtype)]
        upper.append(jnp.zeros(count + equalities, dtype))
        multiplier.append(objective * unit)
        corner = jnp.zeros((count + equalities, count + equalities), dtype)
        matrix = jnp.concatenate(
            [jnp.concatenate([hessian, constraints.T], axis=1), jnp.concatenate([constraints, corner], axis=1)]
        )
    multiplier_scale = jnp.concatenate(multiplier)
    return ScaledQP(
        matrix,
        jnp.concatenate(vector),
        jnp.concatenate(lower),
        jnp.concatenate(upper),
        scale,
        multiplier_scale,
        jnp.where(flat, 0, 1).astype(dtype),
        penalties(program) / multiplier_scale if program.elastic else None,
    )


def penalties(program: Program) -> jax.Array:
    """The penalties (N,) of all constraints of an elastic program."""
    size, dtype = program.c.shape[0], program.c.dtype
    parts = [jnp.full(size, jnp.inf, dtype)]
    for right, given in ((program.h, program.row_penalties), (program.b, program.equality_penalties)):
        if right is not None:
            parts.append(jnp.full(right.shape, jnp.inf, dtype) if given is None else given)
    return jnp.concatenate(parts)


def units(hessian: jax.Array) -> jax.Array:
    """Units (n,) of variables in which the diagonal of H is about 1: powers of two."""
    diagonal = _diagonal(hessian)
    largest = jnp.max(diagonal)
    # Zero or rounding on the diagonal says nothing about the unit of a variable. The floor is low, as the diagonal is a
    # sum of squares, exact to rounding however small it is, as in diag(1e8, 1e-8).
    floor = (64 * jnp.finfo(hessian.dtype).eps) ** 2 * largest
    curvatures = jnp.where(diagonal > floor, diagonal, jnp.where(largest > 0, largest, 1))
    return power_of_two(lax.rsqrt(curvatures))


def _diagonal(matrix: jax.Array) -> jax.Array:
    size = matrix.shape[0]
    return matrix.reshape(size * size)[:: size + 1]


def power_of_two(x: jax.Array) -> jax.Array:
    """Round positive numbers to the nearest power of two."""
    return lax.reduce_precision(x, jnp.finfo(x.dtype).nexp, 0)
