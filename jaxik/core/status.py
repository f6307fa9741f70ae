"""Statuses of elements and of derivatives, and the remedy for each."""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import jax
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError


class _Kind(enum.IntEnum):
    """Kinds that are entries of arrays: `Status(solution.status[3])` is one."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        # Arrays have no hash, and from Python 3.13 on members are found by nothing else.
        return cls(value.item()) if isinstance(value, jax.Array | np.ndarray) and value.size == 1 else None


class Status(_Kind):
    """How a solve, a step or a quadratic program ended. Arrays of statuses are int32.

    CONVERGED: of a solve: every tolerance is met; without tolerances, the solution is stationary. Of a step: its
      quadratic program is solved, however far the tasks are from their targets. What is `Elastic` may yield: see
      `yielded`.
    STALLED: stationary, tolerances not met: the target is out of reach from here, within the limits. Of a solve with a
      step rule that takes every step: its last 20 have not helped.
    DIVERGED: a quadratic program that is unbounded below. Of a solve with a step rule that takes every step: it ended
      far from its best iterate, which is returned.
    TIMEOUT: the steps were used up; the best configuration found is returned.
    INFEASIBLE: constraints contradict each other or the limits.
    COLLIDES: of a solve: the best that a `CollisionLimit` leaves, and shapes are nearer than its margin. Of a step:
      shapes overlap, and it does not make the deepest less deep, as of an arm pierced by a plate.
    NONFINITE: a target, cost or start is NaN or infinite; the returned configuration is finite.
    """

    CONVERGED = 0
    STALLED = 1
    DIVERGED = 2
    TIMEOUT = 3
    INFEASIBLE = 4
    NONFINITE = 5
    COLLIDES = 6


class DerivativeStatus(_Kind):
    """How far the derivative of an element can be trusted; of several the last one listed applies. Arrays are int32.

    NOT_COMPUTED: nothing was differentiated.
    EXACT: the derivative of the solution.
    NON_UNIQUE: the tasks leave degrees of freedom undetermined: of all tangents that keep them fulfilled, the
      smallest, and zero in what they leave free. Of a whole path: a motion that ends elsewhere is as good.
    WEAKLY_ACTIVE: a joint is at its bound and hardly pressed against it: the derivative of those that are free to leave
      it. Or a pair of shapes is as far apart as asked, and nothing presses on it; or right beside, other faces, edges
      or ends of a pair that presses are nearest. Of a step also: a joint is at its limit and held there, as how far it
      may go is another inside and outside.
    APPROXIMATE: of levels above the last, two are out of reach, or one that presses a ball against its limit, or
      beside shapes that press on something: how their curvature changes is left out in part. Or a pair of shapes
      presses of which one is a cylinder, an ellipsoid or a grid: how its direction turns is left out. Of a step: its
      start is outside limits that contradict each other on the way back: how much of it is demanded counts as given.
      Or an elastic constraint is near a singularity: which directions are weak counts as given. Of `track` with a
      `growth_limit`: shortened there or in a step before. Of a whole path: where it jumps, or misses a waypoint,
      counts as given; or shapes are nearer than asked: the curvature of their distance is left out; or a ball or a
      floating base moves, whose displacements are taken for vectors; or its linear system is too near to singular to
      be solved to 1e-6, in single precision 1e-2.
    NOT_STATIONARY: not a minimum, as after TIMEOUT: the derivative of one Newton step, its Hessian held, or of one of
      Gauss-Newton where there is no such, and for a solve that is INFEASIBLE. Of a whole path: it is not smooth yet.
    UNAVAILABLE: something is not finite, or a step INFEASIBLE, which stands still: zero. Of a whole path also: it is
      left as it was found, or uses the path's tolerances.
    """

    NOT_COMPUTED = -1
    EXACT = 0
    NON_UNIQUE = 1
    WEAKLY_ACTIVE = 2
    APPROXIMATE = 3
    NOT_STATIONARY = 4
    UNAVAILABLE = 5


REMEDIES = {
    Status.STALLED: "no small motion within the limits improves it: try other starts q0, or ask for less",
    Status.DIVERGED: "of a program: bound what its objective lets go on for ever, or make H positive definite; of a "
    "step rule: a smaller learning_rate or error clamps, more damping, or step_rule='lm'",
    Status.TIMEOUT: "raise SolveOptions(max_steps=...) or QPOptions(max_iterations=...), or start nearer",
    Status.INFEASIBLE: "drop or relax a constraint or limit",
    Status.COLLIDES: "the target is in an obstacle or out of reach, a posture of the same priority pulls there, or "
    "this start leads there: see Solution.clearance, lower the posture's cost, and try search where it was solve; of a "
    "step: start from a free q, as solve or search finds one",
    Status.NONFINITE: "look for NaN, infinity and values whose squares overflow in targets, costs and q0",
}


def check(
    statuses: Any,
    remedies: Mapping[Status, str] = REMEDIES,
    notes: Mapping[Status, Callable[[tuple[int, ...]], str]] = MappingProxyType({}),
) -> None:
    """Raise a JaxikError that names the elements which did not converge, the reason and the remedy; on the host.

    Args:
      statuses (*batch,): of `Status`.
      remedies: what helps, by status.
      notes: what else there is to say of an element with that status, by its index.
    """
    if isinstance(statuses, Tracer):
        raise JaxikError("check() works on the host: return the result from jit first")
    status = np.asarray(statuses)
    lines = []
    for kind in Status:
        where = np.argwhere(status == kind)
        if kind is not Status.CONVERGED and where.size + (status.ndim == 0 and status == kind):
            shown = ", ".join(_named(tuple(map(int, i)), notes.get(kind)) for i in where[:8])
            count = f"{len(where)} of {status.size} elements are {kind.name}"
            names = f" ({shown}{', ...' if len(where) > 8 else ''})" if shown else ""
            lines.append(f"{count}{names}: {remedies[kind]}")
    if lines:
        raise JaxikError("\n".join(lines))


def _named(index: tuple[int, ...], note: Callable[[tuple[int, ...]], str] | None) -> str:
    """The index of an element, nothing where there is but one, and what is said of it."""
    name = str(index[0] if len(index) == 1 else index) if index else ""
    return ": ".join(x for x in (name, note(index) if note else "") if x)


class Outcome:
    """A result with a `status` (*batch,)."""

    status: jax.Array

    @property
    def converged(self) -> jax.Array:
        """(*batch,) of bool."""
        return self.status == Status.CONVERGED

    def check(self) -> Self:
        """Return this if every element converged.

        Raises:
          JaxikError: otherwise, on the host; names the elements, the reason and the remedy.
        """
        check(self.status)
        return self
