"""What a solver found, for a person and for a program."""

from typing import Any

import jax

from jaxik.pytree import leaf, pytree, static
from jaxik.report import describe
from jaxik.robot.topology import Topology
from jaxik.status import Outcome
from jaxik.trace import Trace


@pytree
class Solution(Outcome):
    """What `solve` found, with the batch axes of its arguments in front.

    Attributes:
      q (*batch, nq): inside the joint limits, always; the best configuration found.
      status (*batch,): of `Status`, int32.
      residuals: task name to what the task reports: for a `FrameTask` {"position": (*batch, 3) [m], "orientation":
        (*batch, 3) [rad]}.
      iterations (*batch,): steps taken, rejected ones included, int32; a search counts all its attempts, and the first
        evaluation of each but the first.
      starts (*batch,): attempts that were made, int32; of `solve`, one.
      cost (*batch,): 1/2 |cost * residual|^2 over all tasks.
      stationarity (*batch,): largest entry of the undamped projected step that is left at `q` [rad or m], as estimated
        from the last undamped one, and so no less than it is; derivatives of the solution are as good as it is small.
      derivative (*batch,): of `Derivative`, int32: what the derivative of q, residuals and cost is worth, where the
        call was differentiated; else UNASKED. Other fields have no derivative.
      trace: the steps that led there, where `SolveOptions.trace` asks for them; else None.
      topology: of the robot: names of joints; static.
      residual_units: pairs of a part of the residuals and its unit, ("tip/position", "m"); static.
    """

    q: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    iterations: jax.Array = leaf(0)
    starts: jax.Array = leaf(0)
    cost: jax.Array = leaf(0)
    stationarity: jax.Array = leaf(0)
    derivative: Any = leaf(0, default=None)
    trace: Trace | None = leaf(1, default=None)
    topology: Topology = static(kw_only=True)
    residual_units: tuple[tuple[str, str], ...] = static(default=(), kw_only=True)

    def __repr__(self) -> str:
        return describe(self)
