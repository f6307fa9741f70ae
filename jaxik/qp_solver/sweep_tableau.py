"""The sweep tableau of a scaled program: how values and multipliers answer to each other at an active set.

Of each constraint one of value and multiplier is given and the other follows: an inactive one has its multiplier given
(zero), an active one its value (a limit). For the symmetric tableau T,

    d(what follows)_i = T_ik d(multiplier_k)    for an inactive constraint k,
    d(what follows)_i = -T_ik d(value_k)        for an active one.

With all variables fixed and no row active, T = [[H, -C'], [-C, 0]]. That a constraint enters or leaves the active set
is one symmetric sweep (Beaton 1964; a principal pivot of the complementarity problem, Cottle, Pang and Stone 1992,
section 2.3): one rank-one update, whatever kind of constraint it is. T_kk is the curvature of the objective in
the direction that freeing k opens, and minus the inverse of the one that activating k closes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.qp_solver.form import ScaledQP


class Tableau(NamedTuple):
    """Which constraints are active, and how everything answers.

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
    """Numbers that depend on the precision."""

    eps: float
    flat: float  # curvature below this, of a diagonal of one, is none
    added: float  # and gets this much
    dependent: float  # a constraint that leaves less room than this, of about one, nearly follows from active ones


def rounding(dtype: jax.typing.DTypeLike) -> Rounding:
    if dtype == jnp.float64:
        return Rounding(2.0**-52, 1e-11, 1e-6, 1e-6)
    return Rounding(2.0**-23, 5e-6, 3e-3, 1e-4)


def at(k: jax.Array, size: int) -> jax.Array:
    """Where the constraint k is (N,)."""
    return jnp.arange(size) == k


def column(entries: jax.Array, k: jax.Array) -> jax.Array:
    """Column k, gathered: a sum over all columns but one masked takes 180 times as long at 67 constraints on lanes."""
    return lax.dynamic_index_in_dim(entries, k, 0, keepdims=False)


def diagonal(matrix: jax.Array) -> jax.Array:
    size = matrix.shape[0]
    return matrix.reshape(size * size)[:: size + 1]


def factors(
    here: jax.Array, column: jax.Array, pivot: jax.Array, activating: jax.Array, wanted: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What `sweep_pivot` takes for the constraint `here` to change sides, or for none where it is not wanted."""
    edge = jnp.where(wanted, jnp.where(here, jnp.where(activating, 1, -1), column), 0).astype(column.dtype)
    return jnp.where(wanted & here, 0, 1).astype(column.dtype), edge, edge / jnp.where(wanted, pivot, 1)


def sweep_pivot(entries: jax.Array, stays: jax.Array, edge: jax.Array, ratio: jax.Array) -> jax.Array:
    """The entries after a constraint has changed sides: one pass over them."""
    return stays[:, None] * stays * entries - edge[:, None] * ratio


def curvature(pivot: jax.Array, is_bound: jax.Array, numbers: Rounding) -> jax.Array:
    """The pivot of a constraint that leaves the active set: a flat variable is given some curvature."""
    flat = is_bound & (pivot < numbers.flat)
    return jnp.where(flat, jnp.maximum(pivot, 0) + numbers.added, pivot)


def untouched(form: ScaledQP, added: jax.Array) -> Tableau:
    """The tableau with all variables fixed and no row active.

    Args:
      form: the program.
      added (N,): curvature to add to the variables.
    """
    is_bound, size = form.is_bound, form.vector.shape[0]
    entries = jnp.where(is_bound[:, None] == is_bound, form.matrix, -form.matrix)
    return Tableau(entries + jnp.where(jnp.eye(size, dtype=bool), added, 0), is_bound, added, jnp.ones((), bool))


def exchanged(form: ScaledQP, table: Tableau, changing: jax.Array) -> Tableau:
    """The tableau after many constraints have changed sides, one after the other.

    Constraints that nearly follow from active ones do not become active. All elements of a batch sweep the same
    constraint at the same time, which is several times cheaper than a pivot that each of them chooses.
    """
    n, size = form.variables, form.vector.shape[0]
    numbers, every = rounding(form.matrix.dtype), jnp.arange(size)
    activating = ~table.active

    def prepared(entries: jax.Array, k: jax.Array) -> tuple[jax.Array, ...]:
        """How constraint k is swept, and its pivot."""
        own = lax.dynamic_index_in_dim(entries, k, 0, keepdims=False)
        raw = lax.dynamic_index_in_dim(own, k, 0, keepdims=False)
        on = lax.dynamic_index_in_dim(activating, k, 0, keepdims=False)
        wanted = lax.dynamic_index_in_dim(changing, k, 0, keepdims=False)
        wanted = wanted & (~on | (raw < -numbers.dependent))
        pivot = jnp.where(on, raw, curvature(raw, k < n, numbers))
        return *factors(every == k, own, pivot, on, wanted), raw

    def sweep(carry: tuple[jax.Array, ...], k: jax.Array) -> tuple[tuple[jax.Array, ...], jax.Array]:
        # Applied in the next turn: what is prepared in the same one would be computed again for each entry.
        entries = sweep_pivot(*carry)
        *how, raw = prepared(entries, k)
        return (entries, *how), raw

    def through(first: int, last: int, entries: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Scanned, not counted: a count would be carried by every element, and what it selects gathered.
        def run() -> tuple[jax.Array, jax.Array]:
            blank = jnp.zeros(size, entries.dtype)
            last_one, pivots = lax.scan(sweep, (entries, blank + 1, blank, blank), every[first:last])
            return sweep_pivot(*last_one), pivots

        return lax.cond(jnp.any(changing[first:last]), run, lambda: (entries, jnp.zeros(last - first, entries.dtype)))

    entries, pivots = through(0, n, table.entries)
    if size > n:
        entries, others = through(n, size, entries)
        pivots = jnp.concatenate([pivots, others])
    changed = changing & (~activating | (pivots < -numbers.dependent))
    freed = changed & ~activating & form.is_bound
    # A negative curvature may be rounding that nearly flat variables have magnified, but not where all have some added.
    rounded = jnp.all((table.added > 0) | ~form.is_bound)
    return Tableau(
        entries,
        table.active ^ changed,
        table.added + jnp.where(freed, curvature(pivots, form.is_bound, numbers) - pivots, 0),
        table.convex & ~(rounded & jnp.any(freed & (pivots < -numbers.added))),
    )


class Point(NamedTuple):
    """Values and multipliers of all constraints (N,)."""

    value: jax.Array
    multiplier: jax.Array


def balance(
    form: ScaledQP, active: jax.Array, point: Point, vector: jax.Array, added: jax.Array | float = 0.0
) -> tuple[Point, jax.Array]:
    """Values of rows and multipliers of bounds as the program has them, and how far what is given is off (N,).

    Args:
      form: the program.
      active (N,): bool.
      point: values and multipliers; of rows the multipliers, and of bounds the values are looked at.
      vector (N,): of the program, or zero for differences of points.
      added (N,): curvature of variables, on top of H.
    """
    unknowns = jnp.where(form.is_bound, point.value, point.multiplier)
    left = form.matrix @ unknowns + added * unknowns + vector
    fresh = Point(jnp.where(form.is_bound, point.value, left), jnp.where(form.is_bound, -left, point.multiplier))
    return fresh, jnp.where(active, fresh.value - point.value, fresh.multiplier - point.multiplier)


def corrected(tableau: Tableau, point: Point, fresh: Point, error: jax.Array) -> Point:
    """A point that satisfies the program, given its `balance`: one step of iterative refinement.

    Where curvature was added to the tableau but not to the balance, a step of the proximal-point method.
    """
    active = tableau.active
    moved = tableau.entries @ jnp.where(active, error, -error)
    return Point(
        jnp.where(active, point.value, fresh.value + moved),
        jnp.where(active, fresh.multiplier + moved, point.multiplier),
    )
