"""Quadratic programs, their solutions, active sets and certificates."""

from typing import NamedTuple

import jax

from jaxik.core.pytree import leaf, pytree
from jaxik.core.status import Outcome


class Program(NamedTuple):
    """min 1/2 x'Hx + c'x subject to lower <= x <= upper, G x <= h and A x = b.

    Rows and equalities with a penalty are elastic: they add penalty * max(G x - h, 0) or penalty * |A x - b| to the
    objective, each its own, and hold wherever their multiplier need not be larger than that.

    Attributes:
      H (n, n): symmetric, positive semidefinite.
      c (n,).
      lower, upper (n,): infinite where there is no bound; equal where x is given.
      G (m, n), h (m,): rows, None for none. An infinite h is no row.
      A (p, n), b (p,): equalities, None for none. Repeated ones are normal, contradictory ones infeasible.
      row_penalties (m,), equality_penalties (p,): above zero, infinite for those that hold; None: all hold.
    """

    H: jax.Array
    c: jax.Array
    lower: jax.Array
    upper: jax.Array
    G: jax.Array | None = None
    h: jax.Array | None = None
    A: jax.Array | None = None
    b: jax.Array | None = None
    row_penalties: jax.Array | None = None
    equality_penalties: jax.Array | None = None

    @property
    def elastic(self) -> bool:
        """Whether any constraint may yield; static."""
        return self.row_penalties is not None or self.equality_penalties is not None


@pytree
class ActiveSet:
    """The constraints that hold with equality; equalities do, unless they yield.

    Attributes:
      bounds (*batch, n): -1 at the lower bound, 1 at the upper one, 0 between them; int32.
      rows (*batch, m): whether a row is active; bool.
      yielding (*batch, m + p): of rows, then equalities: 1 or -1 where one yields upwards or downwards, 0 where it
        holds; int32. None in a program without penalties.
    """

    bounds: jax.Array = leaf(1)
    rows: jax.Array = leaf(1)
    yielding: jax.Array | None = leaf(1, default=None)


@pytree
class Certificate:
    """The proof that there is no minimum. All zeros where there is one.

    A Farkas ray of an infeasible program: `A'equalities + G'rows + upper - lower = 0`, to rounding, with `rows`,
    `lower` and `upper` >= 0, while `b'equalities + h'rows + upper'u - lower'l < 0` for the bounds u and l: no x within
    the bounds and rows satisfies both. An infinite bound has weight zero.

    A direction of an unbounded program: it keeps every bound, row and equality, H direction = 0, and c'direction < 0.

    Attributes:
      lower, upper (*batch, n), rows (*batch, m), equalities (*batch, p): the ray.
      direction (*batch, n): the direction; its largest entry is 1.
    """

    lower: jax.Array = leaf(1)
    upper: jax.Array = leaf(1)
    rows: jax.Array = leaf(1)
    equalities: jax.Array = leaf(1)
    direction: jax.Array = leaf(1)


@pytree
class QPSolution(Outcome):
    """The minimum of a quadratic program, with the batch axes of its arguments in front.

    Stationarity reads `H x + c + bound_multipliers + G'row_multipliers + A'equality_multipliers = 0`.

    Attributes:
      x (*batch, n): finite and within the bounds, always (where lower > upper, at one of them); a bound that is active
        is met bitwise.
      status (*batch,): of `Status`, int32. CONVERGED: `kkt_residual` is within the tolerance. INFEASIBLE: nothing
        satisfies the constraints, as `certificate` shows. DIVERGED: unbounded below, as `certificate.direction` shows,
        or H is not positive semidefinite, and then it is zero. TIMEOUT: the iterations were used up, or rounding
        exceeds the tolerance. NONFINITE: an argument is NaN or infinite where it must not be.
      objective (*batch,): 1/2 x'Hx + c'x.
      bound_multipliers (*batch, n): positive at the upper bound, negative at the lower one.
      row_multipliers (*batch, m): >= 0, and at most the penalty of the row, which one that yields has.
      equality_multipliers (*batch, p): at most their penalties in size.
      active: the constraints that hold with equality, for a warm start.
      kkt_residual (*batch,): the largest of three errors. Stationarity, relative to 1 or the largest sum of its
        absolute terms, and once more with variables in units in which the diagonal of H is 1. Violations of rows and
        equalities, relative to 1 or the sum of their absolute terms. Complementarity: the smaller one of a row's
        multiplier and slack, relative alike. Bounds and signs of multipliers hold exactly.
      iterations (*batch,): eliminations where there are bounds alone, steps where there are only equalities that may
        yield besides, else constraints that entered or left the active set after the start, int32.
      certificate: of INFEASIBLE and DIVERGED.
      derivative_status (*batch,): of `DerivativeStatus`, int32: how far the derivative of x, multipliers and
        objective can be trusted, where the call was differentiated; else NOT_COMPUTED.
    """

    x: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    objective: jax.Array = leaf(0)
    bound_multipliers: jax.Array = leaf(1)
    row_multipliers: jax.Array = leaf(1)
    equality_multipliers: jax.Array = leaf(1)
    active: ActiveSet = leaf()
    kkt_residual: jax.Array = leaf(0)
    iterations: jax.Array = leaf(0)
    certificate: Certificate = leaf()
    derivative_status: jax.Array = leaf(0)
