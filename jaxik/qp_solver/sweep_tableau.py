"""The sweep tableau of a scaled program: the linear response of values and multipliers at an active set.

Of each constraint one of value and multiplier is given and the other follows: an inactive one has its multiplier given
(zero), an active one its value (a limit). For the symmetric tableau T, with y the entries that follow,

    d y_i = T_ik d(multiplier_k)    for an inactive constraint k,
    d y_i = -T_ik d(value_k)        for an active one.

With all variables fixed and no row active, T = [[H, -C'], [-C, 0]]. A constraint enters or leaves the active set by one
symmetric sweep (Beaton 1964; a principal pivot of the complementarity problem, Cottle, Pang and Stone 1992,
section 2.3): one rank-one update, for every kind of constraint. T_kk is the curvature of the objective in the direction
that freeing k opens, and minus the inverse of the one that activating k closes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.indexing import entry
from jaxik.numerics.linalg import product
from jaxik.qp_solver.scaling import ScaledQP


class Tableau(NamedTuple):
    """The active set and the swept matrix.

    Attributes:
      entries (N, N): T.
      active (N,): bool.
      added (N,): curvature added to variables that H leaves flat.
      convex (): whether no pivot showed a negative curvature.
    """

    entries: jax.Array
    active: jax.Array
    added: jax.Array
    convex: jax.Array


class Rounding(NamedTuple):
    """Thresholds that depend on the precision."""

    eps: float
    flat: float  # a curvature below this, where the diagonal of H is one, counts as zero
    added: float  # and is raised by this much
    dependent: float  # a pivot below this, where about one is usual: the constraint nearly follows from active ones


def rounding(dtype: jax.typing.DTypeLike) -> Rounding:
    if dtype == jnp.float64:
        return Rounding(2.0**-52, 1e-11, 1e-6, 1e-6)
    return Rounding(2.0**-23, 5e-6, 3e-3, 1e-4)


def one_hot(k: jax.Array, size: int) -> jax.Array:
    """The mask (N,) of constraint k."""
    return jnp.arange(size) == k


def column(entries: jax.Array, k: jax.Array) -> jax.Array:
    """Column k (N,), gathered: a masked sum over all columns takes 180 times as long at 67 constraints on lanes."""
    return entry(entries, k)


def diagonal(matrix: jax.Array) -> jax.Array:
    size = matrix.shape[0]
    return matrix.reshape(size * size)[:: size + 1]


def sweep_factors(
    mask: jax.Array, column: jax.Array, pivot: jax.Array, activating: jax.Array, enabled: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Arguments (N,) of `sweep_pivot` for the constraint of `mask` to change sides; the identity where not enabled."""
    edge = jnp.where(enabled, jnp.where(mask, jnp.where(activating, 1, -1), column), 0).astype(column.dtype)
    return jnp.where(enabled & mask, 0, 1).astype(column.dtype), edge, edge / jnp.where(enabled, pivot, 1)


def sweep_pivot(entries: jax.Array, stays: jax.Array, edge: jax.Array, ratio: jax.Array) -> jax.Array:
    """Sweep the tableau (N, N) by one constraint: a rank-one update in one pass."""
    return stays[:, None] * stays * entries - edge[:, None] * ratio


def curvature(pivot: jax.Array, is_bound: jax.Array, numbers: Rounding) -> jax.Array:
    """The pivot of a constraint that leaves the active set, raised where the freed variable is flat."""
    flat = is_bound & (pivot < numbers.flat)
    return jnp.where(flat, jnp.maximum(pivot, 0) + numbers.added, pivot)


def initial_tableau(scaled: ScaledQP, added: jax.Array) -> Tableau:
    """The tableau with all variables fixed and no row active.

    Args:
      scaled: the program.
      added (N,): curvature to add to the variables.
    """
    is_bound, size = scaled.is_bound, scaled.vector.shape[0]
    entries = jnp.where(is_bound[:, None] == is_bound, scaled.matrix, -scaled.matrix)
    return Tableau(entries + jnp.where(unit_matrix(size, dtype=bool), added, 0), is_bound, added, jnp.ones((), bool))


def pivot_many(scaled: ScaledQP, table: Tableau, changing: jax.Array) -> Tableau:
    """Let all constraints of a mask (N,) change sides, one after the other.

    Constraints that nearly follow from active ones do not become active. All elements of a batch sweep the same
    constraint at the same time, which is several times cheaper than a pivot that each of them chooses.
    """
    n, size = scaled.variables, scaled.vector.shape[0]
    numbers, every = rounding(scaled.matrix.dtype), jnp.arange(size)
    activating = ~table.active

    def factors_of(entries: jax.Array, k: jax.Array) -> tuple[jax.Array, ...]:
        """The factors of the sweep by constraint k, and its pivot."""
        column_k = entry(entries, k)
        raw = entry(column_k, k)
        on = entry(activating, k)
        enabled = entry(changing, k)
        enabled = enabled & (~on | (raw < -numbers.dependent))
        pivot = jnp.where(on, raw, curvature(raw, k < n, numbers))
        return *sweep_factors(every == k, column_k, pivot, on, enabled), raw

    def sweep(carry: tuple[jax.Array, ...], k: jax.Array) -> tuple[tuple[jax.Array, ...], jax.Array]:
        # Factors are applied one step later: in the same step XLA would compute them again for each entry.
        entries = sweep_pivot(*carry)
        *factors, raw = factors_of(entries, k)
        return (entries, *factors), raw

    def sweep_range(start: int, stop: int, entries: jax.Array) -> tuple[jax.Array, jax.Array]:
        # A scan, not a loop with a counter: every element would carry the counter, and gather what it selects.
        def run() -> tuple[jax.Array, jax.Array]:
            zeros = jnp.zeros(size, entries.dtype)
            last, pivots = lax.scan(sweep, (entries, zeros + 1, zeros, zeros), every[start:stop])
            return sweep_pivot(*last), pivots

        return lax.cond(jnp.any(changing[start:stop]), run, lambda: (entries, jnp.zeros(stop - start, entries.dtype)))

    entries, pivots = sweep_range(0, n, table.entries)
    if size > n:
        entries, others = sweep_range(n, size, entries)
        pivots = jnp.concatenate([pivots, others])
    changed = changing & (~activating | (pivots < -numbers.dependent))
    freed = changed & ~activating & scaled.is_bound
    # A negative curvature may be rounding that nearly flat variables have magnified, but not where all have some added.
    regularized = jnp.all((table.added > 0) | ~scaled.is_bound)
    return Tableau(
        entries,
        table.active ^ changed,
        table.added + jnp.where(freed, curvature(pivots, scaled.is_bound, numbers) - pivots, 0),
        table.convex & ~(regularized & jnp.any(freed & (pivots < -numbers.added))),
    )


class Point(NamedTuple):
    """Values and multipliers of all constraints (N,)."""

    value: jax.Array
    multiplier: jax.Array


def kkt_errors(
    scaled: ScaledQP, active: jax.Array, point: Point, vector: jax.Array, added: jax.Array | float = 0.0
) -> tuple[Point, jax.Array]:
    """Recompute values of rows and multipliers of bounds from the program, and the error of what is given (N,).

    Args:
      scaled: the program.
      active (N,): bool.
      point: values and multipliers; multipliers of rows and values of bounds are read.
      vector (N,): that of the program, or zero for differences of points.
      added (N,): curvature of variables, on top of H.
    """
    unknowns = jnp.where(scaled.is_bound, point.value, point.multiplier)
    rest = product(scaled.matrix, unknowns) + added * unknowns + vector
    recomputed = Point(
        jnp.where(scaled.is_bound, point.value, rest), jnp.where(scaled.is_bound, -rest, point.multiplier)
    )
    return recomputed, jnp.where(active, recomputed.value - point.value, recomputed.multiplier - point.multiplier)


def refine(tableau: Tableau, point: Point, recomputed: Point, error: jax.Array) -> Point:
    """One step of iterative refinement, given the result of `kkt_errors`.

    Where curvature was added to the tableau but not to the errors, it is a step of the proximal-point method.
    """
    active = tableau.active
    moved = product(tableau.entries, jnp.where(active, error, -error))
    return Point(
        jnp.where(active, point.value, recomputed.value + moved),
        jnp.where(active, recomputed.multiplier + moved, point.multiplier),
    )
