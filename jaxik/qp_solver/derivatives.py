"""How the minimum of a quadratic program moves with the program: its KKT conditions, with the active set held."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.status import DerivativeStatus, Status
from jaxik.numerics.linalg import largest, pinv_psd
from jaxik.qp_solver.program import Program, QPSolution

# In float32 and float64: the square of a row that counts as zero relative to the largest, and curvature: in float32,
# four roundings, which damping of 1e-6 is above.
DEPENDENT, FLAT = (1e-5, 1e-11), (5e-7, 1e-11)
# The same of a multiplier, in roundings of the gradient that it balances: what is active by less than the second is
# hardly held, and what by less than the first is not held at all. float32 has no room for more: damping of 1e-6 presses
# a redundant arm against its limits by some ten roundings.
WEAK, FIRM = (1.0, 1e5), (4.0, 1e7)
# How near to a constraint, relative to 1 or its size, is at it.
NEAR = (1e-5, 1e-9)


class Active(NamedTuple):
    """A minimum, and what held it there.

    Attributes:
      x (n,), rows (m,), equalities (p,): the minimum, and multipliers.
      lower, upper (n,), held (m,): which bounds and rows hold it.
      bound_multipliers (n,).
      solved (): whether it is a minimum.
    """

    x: jax.Array
    rows: jax.Array
    equalities: jax.Array
    lower: jax.Array
    upper: jax.Array
    held: jax.Array
    bound_multipliers: jax.Array
    solved: jax.Array


def active(found: QPSolution) -> Active:
    return Active(
        x=found.x,
        rows=found.row_multipliers,
        equalities=found.equality_multipliers,
        lower=found.active.bounds < 0,
        upper=found.active.bounds > 0,
        held=found.active.rows,
        bound_multipliers=found.bound_multipliers,
        solved=found.status == Status.CONVERGED,
    )


class Minimum(NamedTuple):
    """What the derivative of a minimum is made of.

    Attributes:
      lower, upper (n,), rows (m,): which bounds and rows hold it.
      inverse (n, n): of H, along what bounds, rows and equalities leave free.
      onto (n, k): from a change of what rows and equalities are off, rows first, to the smallest step that makes up
        for it.
      curvature (n, n): H.
      matrix (k, n): rows and equalities; zero where a row does not hold.
      slope (n,): of the objective.
      derivative (): of `DerivativeStatus`, int32.
    """

    lower: jax.Array
    upper: jax.Array
    rows: jax.Array
    inverse: jax.Array
    onto: jax.Array
    curvature: jax.Array
    matrix: jax.Array
    slope: jax.Array
    derivative_status: jax.Array


def assess(program: Program, found: Active, above: Minimum | None = None) -> Minimum:
    """What the derivative of one minimum needs to know.

    Args:
      above: of the level above, whose objective this one keeps: what is pressed against a constraint there stays at it,
        as no way that keeps the objective leads away from it, whether or not this level presses as well.
    """
    dtype = program.c.dtype
    double = dtype == jnp.float64
    curvature = (program.H + program.H.T) / 2
    unit = largest(jnp.diagonal(curvature))
    equal = program.lower == program.upper
    size = jnp.maximum(jnp.abs(found.x), 1)
    at_bound = (found.x - program.lower <= NEAR[double] * size) | (program.upper - found.x <= NEAR[double] * size)
    rounding = jnp.finfo(dtype).eps * (jnp.abs(curvature) @ jnp.abs(found.x) + jnp.abs(program.c))
    weak, firm = WEAK[double] * rounding, FIRM[double] * rounding
    push = jnp.abs(found.bound_multipliers)
    kept = equal if above is None else equal | ((above.lower | above.upper) & at_bound)
    fixed = kept | ((found.lower | found.upper) & (push > weak))
    kink = jnp.any(at_bound & ~kept & (push <= firm))
    free = ~fixed
    matrix, held = jnp.zeros((0, free.shape[0]), dtype), jnp.zeros(0, bool)
    if program.G is not None and program.h is not None:
        length = jnp.sqrt(jnp.sum(program.G**2, axis=1))
        push = found.rows * length
        near = program.h - program.G @ found.x <= NEAR[double] * jnp.maximum(jnp.abs(program.h), 1)
        kept_rows = jnp.zeros_like(near) if above is None else above.rows & near
        held = kept_rows | (found.held & (push > jnp.max(weak)))
        kink = kink | jnp.any(near & ~kept_rows & (length > 0) & (push <= jnp.max(firm)))
        matrix = jnp.where(held[:, None], program.G, 0)
    if program.A is not None:
        matrix = jnp.concatenate([matrix, program.A])
    left, rank, onto = jnp.diag(free.astype(dtype)), jnp.zeros((), dtype), jnp.zeros((free.shape[0], 0), dtype)
    if matrix.shape[0]:
        own = jnp.where(free, matrix, 0)
        square = own.T @ own
        inverse, space, _ = pinv_psd(square, largest(jnp.diagonal(square)), DEPENDENT[double])
        onto, left, rank = inverse @ own.T, left - space, jnp.trace(space)
    inverse, space, _ = pinv_psd(left @ curvature @ left, unit, FLAT[double])
    rank = rank + jnp.trace(space)
    kind = jnp.where(rank < jnp.sum(free) - 0.5, DerivativeStatus.NON_UNIQUE, DerivativeStatus.EXACT)
    kind = jnp.where(kink, DerivativeStatus.WEAKLY_ACTIVE, kind)
    kind = jnp.where(found.solved, kind, DerivativeStatus.NOT_STATIONARY)
    slope = curvature @ found.x + program.c
    finite = jnp.isfinite(jnp.sum(inverse)) & jnp.isfinite(jnp.sum(onto)) & jnp.isfinite(jnp.sum(slope))
    kind = jnp.where(finite, kind, DerivativeStatus.UNAVAILABLE).astype(jnp.int32)
    upper = fixed & (program.upper - found.x < found.x - program.lower)
    return Minimum(fixed & ~upper, upper, held, inverse, onto, curvature, matrix, slope, kind)


class Motion(NamedTuple):
    """How x (n,), the multipliers of bounds (n,), rows (m,) and equalities (p,), and the objective () move."""

    x: jax.Array
    bounds: jax.Array
    rows: jax.Array
    equalities: jax.Array
    objective: jax.Array


def motion_of(found: QPSolution) -> Motion:
    """What of a minimum moves."""
    return Motion(
        found.x, found.bound_multipliers, found.row_multipliers, found.equality_multipliers, found.objective
    )  # fmt: skip


def moved(
    found: Active, minimum: Minimum, along: Callable[..., Any], program: Callable[..., Program], *pairs: Any
) -> Motion:
    """How a minimum moves.

    Args:
      along: of a function of the arguments that the program depends on, and of pairs of further values and tangents:
        its derivative along them.
      program: that function, for the program.
      pairs: those further values and tangents.
    """

    def conditions(*arguments: Any) -> tuple[jax.Array, ...]:
        p = program(*arguments)
        bent, off = (p.H + p.H.T) @ found.x / 2, []
        slope, objective = bent + p.c, found.x @ (bent / 2 + p.c)
        if p.G is not None and p.h is not None:
            slope = slope + jnp.where(minimum.rows, found.rows, 0) @ p.G
            off.append(jnp.where(minimum.rows, p.G @ found.x - p.h, 0))
        if p.A is not None and p.b is not None:
            slope = slope + found.equalities @ p.A
            off.append(p.A @ found.x - p.b)
        return slope, p.lower, p.upper, jnp.concatenate([slope[:0], *off]), objective

    slope, lower, upper, off, objective = along(conditions, *pairs)
    x = jnp.where(minimum.lower, lower, jnp.where(minimum.upper, upper, 0))
    x = x - minimum.onto @ (off + minimum.matrix @ x)
    x = x - minimum.inverse @ (slope + minimum.curvature @ x)
    left = slope + minimum.curvature @ x
    multipliers = -(left @ minimum.onto)
    rows = found.rows.shape[0]
    bounds = jnp.where(minimum.lower | minimum.upper, -(left + multipliers @ minimum.matrix), 0)
    objective = objective + minimum.slope @ x
    return Motion(x, bounds, multipliers[:rows], multipliers[rows:], objective)
