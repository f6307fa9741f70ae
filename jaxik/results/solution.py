"""What a solver found, for a person and for a program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.pytree import leaf, pytree, static
from jaxik.core.status import Status
from jaxik.kinematics.topology import Topology
from jaxik.results import text
from jaxik.results.chains import Chain, Chains, chains
from jaxik.results.nearest import NearestOutcome, nearest_pair, nearest_pairs
from jaxik.results.trace import Trace


@pytree
class Solution(NearestOutcome):
    """What `solve` found, with the batch axes of its arguments in front.

    Attributes:
      q (*batch, nq): inside the joint limits, always; the best configuration found.
      status (*batch,): of `Status`, int32.
      residuals: task name to what the task reports: for a `FrameTask` {"position": (*batch, 3) [m], "orientation":
        (*batch, 3) [rad]}.
      iterations (*batch,): steps taken, rejected ones included, int32; a search counts all its attempts, and the first
        evaluation of each but the first.
      num_starts (*batch,): attempts that were made, int32; of `solve`, one.
      cost (*batch,): 1/2 |cost * residual|^2 over all tasks.
      stationarity (*batch,): largest entry of the undamped projected step that is left at `q` [rad or m], as estimated
        from the last undamped one, and so no less than it is; derivatives of the solution are as good as it is small.
      derivative_status (*batch,): of `DerivativeStatus`, int32: what the derivative of q, residuals and cost is worth,
        where the call was differentiated; else NOT_COMPUTED. Other fields have no derivative.
      trace: the steps that led there, where `SolveOptions.record_trace` asks for them; else None.
      clearance (*batch,): the least distance [m] of the pairs of a `CollisionLimit` at q, of boxes that are apart a
        lower bound of it, along the best of 15 axes, and nearest (*batch,) which pair that is, in the order of
        `limit.table(robot).names`; None without one. Neither has a derivative: differentiate
        `robot.clearance(solution.q, world)`, which is exact.
      chain_status, chain_iterations, chain_label (*batch, n): of each of several `chains`, int32, as these have them;
        None where there is one, the last also where no closure is switched.
      yielded: of what is `Elastic`, by how much each row yields, exactly 0 where it holds: by constraint its residual,
        in its structure and unit; by limit how far each row is beyond it (*batch, k) [m]. Not finite where that is.
      topology: of the robot: names of joints; static.
      residual_units: pairs of a part of the residuals and its unit, ("tip/position", "m"); static.
      pair_names: the pairs that `nearest` counts, as ("link5", "boxes/3"); static.
      chain_parts: what hangs together, as `chains` has it; static.
    """

    q: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    iterations: jax.Array = leaf(0)
    num_starts: jax.Array = leaf(0)
    cost: jax.Array = leaf(0)
    stationarity: jax.Array = leaf(0)
    derivative_status: Any = leaf(0, default=None)
    trace: Trace | None = leaf(1, default=None)
    clearance: jax.Array | None = leaf(0, default=None)
    nearest: jax.Array | None = leaf(0, default=None)
    chain_status: jax.Array | None = leaf(1, default=None)
    chain_iterations: jax.Array | None = leaf(1, default=None)
    chain_label: jax.Array | None = leaf(1, default=None)
    yielded: dict[str, Any] = leaf(default_factory=dict)
    topology: Topology = static(kw_only=True)
    residual_units: tuple[tuple[str, str], ...] = static(default=(), kw_only=True)
    chain_parts: tuple[Chain, ...] = static(default=(), kw_only=True)
    pair_names: tuple[tuple[str, str], ...] = static(default=(), kw_only=True)

    @property
    def chains(self) -> Chains:
        """Goals, joints and closures that hang together, and how each chain ended: `chains.status` (*batch, n).

        Tasks and closures are of one chain if they depend on a common joint, directly or through others. Of a robot
        whose closures are switched (`with_active`) the chains are those with all of them off, and `chains.label` says
        which of them are one chain by those that are on.
        """
        if self.chain_status is None:
            status, iterations = (jnp.asarray(x)[..., None] for x in (self.status, self.iterations))
        else:
            status, iterations = self.chain_status, self.chain_iterations
        return chains(self.chain_parts, status, iterations, self.chain_label, self.residuals)

    def __repr__(self) -> str:
        """One element by its joints; many by how they ended. Residuals are norms over all rows, of no cost as well."""
        return _described(self)

    def show(self, problem: Any, **options: Any) -> Any:
        """A `Picture` of the solution; of a batch all, transparent, those that did not converge in another colour.

        Args:
          problem: the `Problem` that was solved, whose targets are drawn as well, or the `Robot`.
          options: those of `jaxik.render`.

        Raises:
          JaxikError: if it is of another robot.
        """
        from jaxik.pictures.show import show_solution

        return show_solution(self, problem, **options)


def _described(solution: Solution) -> str:
    name = solution.topology.name
    leaves = jax.tree.leaves(
        (
            solution.q,
            solution.status,
            solution.residuals,
            solution.iterations,
            solution.num_starts,
            solution.derivative_status,
            solution.yielded,
            solution.clearance,
        )
    )
    if not text.known(leaves):
        return f"Solution({name}, traced, batch {np.shape(solution.status)})"
    status = np.asarray(solution.status)
    if not status.ndim:
        return _of_one(solution, Status(int(status)))
    said = f"{name}, batch {status.shape}, {status.size} elements"
    if not status.size:
        return f"Solution({said})"
    steps, starts = np.asarray(solution.iterations), np.asarray(solution.num_starts)
    tried = f"starts {starts.mean():.1f} on average, {starts.max()} at most; " if starts.max() > 1 else ""
    residuals = "; ".join(
        f"{part} {', '.join(text.number(x) for x in text.quantiles(norm, text.SHARES.values()))} {unit}".rstrip()
        for part, norm, unit in _norms(solution)
    )
    ended = text.counted(status, Status) + nearest_pairs(solution, status == Status.COLLIDES)
    worth = text.differentiated(solution.derivative_status)
    return (
        f"Solution({said}: {ended}; iterations {steps.mean():.1f} on average, {steps.max()} at most; "
        f"{tried}residuals ({', '.join(text.SHARES)}): {residuals or 'none'}{_yields(solution)}{worth})"
    )


def _of_one(solution: Solution, status: Status) -> str:
    residuals = ", ".join(f"{part} {text.number(norm[0])} {unit}".rstrip() for part, norm, unit in _norms(solution))
    tried = f" from {int(solution.num_starts)} starts" if int(solution.num_starts) > 1 else ""
    pair = f": {nearest_pair(solution, ())}," if status == Status.COLLIDES else ""
    return (
        f"Solution({solution.topology.name}: {status.name}{pair} after {int(solution.iterations)} iterations{tried}; "
        f"q {text.by_joint(solution.topology, np.asarray(solution.q))}; "
        f"residuals: {residuals or 'none'}{_yields(solution)}{text.differentiated(solution.derivative_status)})"
    )


def _norms(solution: Solution) -> list[tuple[str, np.ndarray, str]]:
    return text.residual_norms(solution.residuals, solution.residual_units, np.asarray(solution.status).size)


def _yields(solution: Solution) -> str:
    # What is no residual is of a limit on positions or distances.
    return text.yielded(solution.yielded, solution.residual_units, np.shape(solution.status), other="m")
