"""What one step of differential inverse kinematics gives, for a person and for a program."""

from typing import Any

import jax
import numpy as np

from jaxik.core.pytree import leaf, pytree, static
from jaxik.core.status import Status
from jaxik.qp_solver import QPSolution
from jaxik.results import text
from jaxik.results.nearest import NearestOutcome, nearest_pair, nearest_pairs


@pytree
class StepResult(NearestOutcome):
    """One step, with the batch axes of its arguments in front.

    Attributes:
      velocity (*batch, nv): [rad/s, m/s], in MuJoCo's tangent: the displacement of the step by dt.
      q (*batch, nq): where it leads; inside the joint limits, and bitwise on one that stops it, if it began inside.
        Where the velocity is zero as there is no solution, where it began, with `q_home` for what is NaN.
      status (*batch,): of `Status`, int32, and of the quadratic program: CONVERGED, however far the tasks are from
        their targets; INFEASIBLE: limits and constraints contradict each other, and the velocity is zero; TIMEOUT: no
        minimum was found, and with rows or constraints the velocity is zero if `qp.kkt_residual` > 0.01; NONFINITE:
        something is NaN, or dt is not above zero, and the velocity is zero. COLLIDES, with a
        `CollisionLimit`: the program is solved, shapes overlap, and by less than 1e-6 m less than before the step.
      residuals: task, and constraint, to what it reports before the step, at the configuration it was taken from.
      yielded: of what is `Elastic`, by how much each row yields in this step, exactly 0 where it holds: by constraint
        what is left of `J dq + gain residual`, in the structure and unit of its residual, with its sign; by limit how
        far the displacement is beyond its bounds (*batch, nv), negative below lower ones, and then its rows, in their
        unit: rad and m of displacement. Of a displacement that was shortened (see `fraction`), all that it misses; 0
        where there is no step, INFEASIBLE or NONFINITE.
      limit_margins: how far the displacement is from "lower" and "upper" (*batch, nv), infinite without a bound, and
        from "rows" (*batch, k) of limits; those of limits that may yield come last, upper bounds,
        lower bounds, rows, and are negative where they do.
      fraction (*batch,): of the quadratic program's displacement that was taken: below 1 where a `CollisionLimit` finds
        shapes that would overlap; the displacement that velocity and margins belong to is the shorter one.
      clearance (*batch,): the least distance [m] of its pairs at q, of boxes that are apart a lower bound of it, along
        the best of 15 axes, and nearest (*batch,) which pair that is, in the order of `limit.table(robot).names`; of
        several limits one after the other. Neither has a derivative: differentiate `robot.clearance(result.q, world)`,
        which is exact. All three are None without a `CollisionLimit`.
      qp: the quadratic program of the highest priority; `step(..., warm_start=result.qp.active)` starts from it.
      derivative_status (*batch,): of `DerivativeStatus`, int32: what the derivative of velocity, q, residuals and
        margins is worth, where the call was differentiated; else NOT_COMPUTED.
      pair_names: the pairs that `nearest` counts, as ("link5", "boxes/3"); static.
    """

    velocity: jax.Array = leaf(1)
    q: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    limit_margins: dict[str, jax.Array] = leaf(1)
    qp: QPSolution = leaf()
    derivative_status: jax.Array = leaf(0)
    fraction: jax.Array | None = leaf(0, default=None)
    clearance: jax.Array | None = leaf(0, default=None)
    nearest: jax.Array | None = leaf(0, default=None)
    yielded: dict[str, Any] = leaf(default_factory=dict)
    pair_names: tuple[tuple[str, str], ...] = static(default=(), kw_only=True)

    def __repr__(self) -> str:
        """How steps ended, which shapes overlap, what yields, and what derivatives are worth."""
        status = self.status
        known = status, self.velocity, self.derivative_status, self.clearance, self.yielded
        if not text.known(jax.tree.leaves(known)):
            return f"StepResult(traced, batch {np.shape(status)})"
        worth = text.yielded(self.yielded, (), np.shape(status)) + text.differentiated(self.derivative_status)
        overlaps = np.zeros(np.shape(status), bool) if self.clearance is None else np.asarray(self.clearance) < 0
        if not np.ndim(status):
            pair = f": {nearest_pair(self, ())}" if overlaps else ""
            velocity = np.array2string(np.asarray(self.velocity), precision=4, separator=", ", threshold=32)
            return f"StepResult({Status(int(status)).name}{pair}; velocity {velocity}{worth})"
        ended = text.counted(np.asarray(status), Status)
        deep = f"; {np.sum(overlaps)} overlap{nearest_pairs(self, overlaps)}" if overlaps.any() else ""
        return f"StepResult(batch {np.shape(status)}, {np.size(status)} elements: {ended}{deep}{worth})"
