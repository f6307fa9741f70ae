"""Derivatives of the minimum of a quadratic program: its KKT conditions, with the active set held."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.status import DerivativeStatus, Status
from jaxik.numerics.linalg import largest, pinv_psd
from jaxik.qp_solver.program import Program, QPSolution
from jaxik.qp_solver.scaling import penalties

# In float32 and float64: the square of a row that counts as zero relative to the largest, and curvature: in float32,
# four roundings, which damping of 1e-6 is above.
DEPENDENT, FLAT = (1e-5, 1e-11), (5e-7, 1e-11)
# How many times as much counts as flat where rows are active.
COARSE = 20.0, 1.0
# Multipliers in roundings of the gradient that they balance: up to the first a constraint is not active, up to the
# second weakly active. float32 has no room for more: damping of 1e-6 presses a redundant arm against its limits by some
# ten roundings.
WEAK, FIRM = (1.0, 1e5), (4.0, 1e7)
# Distances up to which x is at a constraint, relative to 1 or its size.
NEAR = (1e-5, 1e-9)


class Optimum(NamedTuple):
    """A minimum with its active set and multipliers.

    Attributes:
      x (n,), rows (m,), equalities (p,): the minimum, and multipliers of rows and equalities.
      lower, upper (n,), active_rows (m,): masks of active bounds and rows.
      bound_multipliers (n,).
      solved (): whether it is a minimum.
      yielding (m + p,): as of `ActiveSet`.
    """

    x: jax.Array
    rows: jax.Array
    equalities: jax.Array
    lower: jax.Array
    upper: jax.Array
    active_rows: jax.Array
    bound_multipliers: jax.Array
    solved: jax.Array
    yielding: jax.Array | None = None

    def yields(self) -> tuple[jax.Array, jax.Array]:
        """Masks of rows (m,) and equalities (p,) that yield."""
        if self.yielding is None:
            return jnp.zeros(self.rows.shape, bool), jnp.zeros(self.equalities.shape, bool)
        count = self.rows.shape[0]
        return self.yielding[:count] != 0, self.yielding[count:] != 0


def optimum_of(solution: QPSolution) -> Optimum:
    return Optimum(
        x=solution.x,
        rows=solution.row_multipliers,
        equalities=solution.equality_multipliers,
        lower=solution.active.bounds < 0,
        upper=solution.active.bounds > 0,
        active_rows=solution.active.rows,
        bound_multipliers=solution.bound_multipliers,
        solved=solution.status == Status.CONVERGED,
        yielding=solution.active.yielding,
    )


class KKTInverse(NamedTuple):
    """The inverse of the KKT conditions at a minimum.

    Attributes:
      lower, upper (n,), rows (m,): masks of bounds and rows that are held active.
      pressed (m,): mask of rows with a multiplier: those, and rows that yield.
      inverse (n, n): of H, in the null space of active bounds, rows and equalities.
      restoration (n, k): from changes of rows and equalities, rows first, to the smallest step that makes up for them.
      curvature (n, n): H.
      matrix (k, n): rows and equalities; zero where a row is not active.
      gradient (n,): of the objective.
      derivative_status (): of `DerivativeStatus`, int32.
    """

    lower: jax.Array
    upper: jax.Array
    rows: jax.Array
    pressed: jax.Array
    inverse: jax.Array
    restoration: jax.Array
    curvature: jax.Array
    matrix: jax.Array
    gradient: jax.Array
    derivative_status: jax.Array


def invert_kkt(program: Program, optimum: Optimum, above: KKTInverse | None = None) -> KKTInverse:
    """Invert the KKT conditions of a program at its minimum.

    Args:
      above: of the level above, whose objective this one keeps. A constraint with a multiplier there stays active: no
        motion that keeps that objective leaves it, whether or not it has a multiplier here as well.
    """
    dtype = program.c.dtype
    double = dtype == jnp.float64
    curvature = (program.H + program.H.T) / 2
    unit = largest(jnp.diagonal(curvature))
    equal = program.lower == program.upper
    size = jnp.maximum(jnp.abs(optimum.x), 1)
    at_bound = (optimum.x - program.lower <= NEAR[double] * size) | (program.upper - optimum.x <= NEAR[double] * size)
    rounding = jnp.finfo(dtype).eps * (jnp.abs(curvature) @ jnp.abs(optimum.x) + jnp.abs(program.c))
    weak, firm = WEAK[double] * rounding, FIRM[double] * rounding
    force = jnp.abs(optimum.bound_multipliers)
    kept = equal if above is None else equal | ((above.lower | above.upper) & at_bound)
    fixed = kept | ((optimum.lower | optimum.upper) & (force > weak))
    weakly_active = jnp.any(at_bound & ~kept & (force <= firm))
    free = ~fixed
    matrix, active_rows, weakly_active = _active_rows(program, optimum, above, (weak, firm), weakly_active)
    nullspace, rank, restoration = (
        jnp.diag(free.astype(dtype)),
        jnp.zeros((), dtype),
        jnp.zeros((free.shape[0], 0), dtype),
    )
    if matrix.shape[0]:
        free_matrix = jnp.where(free, matrix, 0)
        square = free_matrix.T @ free_matrix
        inverse, space, _ = pinv_psd(square, largest(jnp.diagonal(square)), DEPENDENT[double])
        restoration, nullspace, rank = inverse @ free_matrix.T, nullspace - space, jnp.trace(space)
    # In float32 the forces of rows, and their changes, have rounding along directions that damping alone curves.
    coarse = jnp.where(jnp.any(active_rows), COARSE[double], 1)
    inverse, space, _ = pinv_psd(nullspace @ curvature @ nullspace, coarse * unit, FLAT[double])
    rank = rank + jnp.trace(space)
    status = jnp.where(rank < jnp.sum(free) - 0.5, DerivativeStatus.NON_UNIQUE, DerivativeStatus.EXACT)
    status = jnp.where(weakly_active, DerivativeStatus.WEAKLY_ACTIVE, status)
    status = jnp.where(optimum.solved, status, DerivativeStatus.NOT_STATIONARY)
    gradient = curvature @ optimum.x + program.c
    finite = jnp.isfinite(jnp.sum(inverse)) & jnp.isfinite(jnp.sum(restoration)) & jnp.isfinite(jnp.sum(gradient))
    status = jnp.where(finite, status, DerivativeStatus.UNAVAILABLE).astype(jnp.int32)
    upper = fixed & (program.upper - optimum.x < optimum.x - program.lower)
    pressed = active_rows | optimum.yields()[0] if program.elastic else active_rows
    return KKTInverse(
        fixed & ~upper, upper, active_rows, pressed, inverse, restoration, curvature, matrix, gradient, status
    )


def _active_rows(
    program: Program,
    optimum: Optimum,
    above: KKTInverse | None,
    thresholds: tuple[jax.Array, jax.Array],
    weakly_active: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rows and equalities (k, n) with inactive rows zero, the mask (m,) of active rows, and whether any is weak ()."""
    dtype, (weak, firm) = program.c.dtype, thresholds
    double = dtype == jnp.float64
    matrix, active_rows = jnp.zeros((0, program.c.shape[0]), dtype), jnp.zeros(0, bool)
    if program.G is not None and program.h is not None:
        length = jnp.sqrt(jnp.sum(program.G**2, axis=1))
        force = optimum.rows * length
        near = program.h - program.G @ optimum.x <= NEAR[double] * jnp.maximum(jnp.abs(program.h), 1)
        if program.row_penalties is not None:
            near = near & (program.G @ optimum.x - program.h <= NEAR[double] * jnp.maximum(jnp.abs(program.h), 1))
            slope = program.row_penalties * length
            force = jnp.where(jnp.isfinite(slope), jnp.minimum(force, slope - force), force)
        kept = jnp.zeros_like(near) if above is None else above.pressed & near
        active_rows = kept | (optimum.active_rows & (force > jnp.max(weak)))
        weakly_active = weakly_active | jnp.any(near & ~kept & (length > 0) & (force <= jnp.max(firm)))
        matrix = jnp.where(active_rows[:, None], program.G, 0)
    if program.A is not None and program.b is not None:
        equalities = program.A
        if program.equality_penalties is not None:
            _, yields = optimum.yields()
            off = jnp.abs(program.A @ optimum.x - program.b)
            length = jnp.sqrt(jnp.sum(program.A**2, axis=1))
            spare = jnp.where(length > 0, (program.equality_penalties - jnp.abs(optimum.equalities)) * length, jnp.inf)
            returns = off <= NEAR[double] * jnp.maximum(jnp.abs(program.b), 1)
            weakly_active = weakly_active | jnp.any(jnp.where(yields, returns, spare <= jnp.max(firm)))
            equalities = jnp.where(yields[:, None], 0, program.A)
        matrix = jnp.concatenate([matrix, equalities])
    return matrix, active_rows, weakly_active


def _constant_forces(program: Program, optimum: Optimum) -> jax.Array:
    """Multipliers (m + p,) of constraints that yield, which are their penalties; zero of others; none if all hold."""
    if optimum.yielding is None:
        return program.c[:0]
    limits = penalties(program)[program.c.shape[0] :]
    return jnp.where(optimum.yielding != 0, optimum.yielding * limits, 0)


class SolutionTangent(NamedTuple):
    """Tangents of x (n,), the multipliers of bounds (n,), rows (m,) and equalities (p,), and the objective ()."""

    x: jax.Array
    bounds: jax.Array
    rows: jax.Array
    equalities: jax.Array
    objective: jax.Array


def differentiable_part(solution: QPSolution) -> SolutionTangent:
    """Select the leaves of a solution that have tangents."""
    return SolutionTangent(
        solution.x,
        solution.bound_multipliers,
        solution.row_multipliers,
        solution.equality_multipliers,
        solution.objective,
    )


def solution_tangent(
    optimum: Optimum, kkt: KKTInverse, jvp_of: Callable[..., Any], program: Callable[..., Program], *pairs: Any
) -> SolutionTangent:
    """The tangent of a minimum, by the implicit function theorem on its KKT conditions.

    Args:
      jvp_of: takes a function of the arguments that the program depends on, and pairs of further values and tangents;
        returns its derivative along them.
      program: that function, for the program.
      pairs: those further values and tangents.
    """

    def conditions(*arguments: Any) -> tuple[jax.Array, ...]:
        p = program(*arguments)
        Hx, off = (p.H + p.H.T) @ optimum.x / 2, []  # noqa: N806
        gradient, objective = Hx + p.c, optimum.x @ (Hx / 2 + p.c)
        if p.G is not None and p.h is not None:
            gradient = gradient + jnp.where(kkt.rows, optimum.rows, 0) @ p.G
            off.append(jnp.where(kkt.rows, p.G @ optimum.x - p.h, 0))
        if p.A is not None and p.b is not None:
            held = ~optimum.yields()[1] if p.elastic else True
            gradient = gradient + jnp.where(held, optimum.equalities, 0) @ p.A
            off.append(jnp.where(held, p.A @ optimum.x - p.b, 0))
        pulls = _constant_forces(p, optimum)
        if p.elastic:
            gradient = gradient + pulls @ jnp.concatenate([x for x in (p.G, p.A) if x is not None])
        return gradient, p.lower, p.upper, jnp.concatenate([gradient[:0], *off]), pulls, objective

    gradient, lower, upper, off, pulls, objective = jvp_of(conditions, *pairs)
    x = jnp.where(kkt.lower, lower, jnp.where(kkt.upper, upper, 0))
    x = x - kkt.restoration @ (off + kkt.matrix @ x)
    x = x - kkt.inverse @ (gradient + kkt.curvature @ x)
    balance = gradient + kkt.curvature @ x
    multipliers = -(balance @ kkt.restoration)
    rows = optimum.rows.shape[0]
    bounds = jnp.where(kkt.lower | kkt.upper, -(balance + multipliers @ kkt.matrix), 0)
    if optimum.yielding is not None:
        multipliers = multipliers + pulls
    objective = objective + kkt.gradient @ x
    return SolutionTangent(x, bounds, multipliers[:rows], multipliers[rows:], objective)
