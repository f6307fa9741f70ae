"""`solve`: from a start to a stationary point of the tasks within the limits, for any number of elements."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.errors import JaxikError
from jaxik.manifold import clamp
from jaxik.problem import Problem, check_solvable, errors, has_tolerances, prepare, rows
from jaxik.pytree import core_ranks, leaf, pytree
from jaxik.solvers import levenberg_marquardt
from jaxik.solvers.levenberg_marquardt import SolveOptions
from jaxik.solvers.loop import iterate
from jaxik.status import REMEDIES, Status
from jaxik.tiles import in_tiles


@pytree
class Solution:
    """What `solve` found, with the batch axes of its arguments in front.

    Attributes:
      q (*batch, nq): inside the joint limits, always; the best configuration found.
      status (*batch,): of `Status`, int32.
      residuals: task name to what the task reports: for a `FrameTask` {"position": (*batch, 3) [m], "orientation":
        (*batch, 3) [rad]}.
      iterations (*batch,): steps taken, rejected ones included, int32.
      cost (*batch,): 1/2 |cost * residual|^2 over all tasks.
      stationarity (*batch,): largest entry of the projected Newton step at `q` [rad or m]; derivatives of the solution
        are as good as this is small.
    """

    q: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    residuals: dict[str, Any] = leaf()
    iterations: jax.Array = leaf(0)
    cost: jax.Array = leaf(0)
    stationarity: jax.Array = leaf(0)

    @property
    def converged(self) -> jax.Array:
        """(*batch,) of bool."""
        return self.status == Status.CONVERGED

    def check(self) -> "Solution":
        """Return the solution if every element converged.

        Raises:
          JaxikError: otherwise, on the host; names the elements, the reason and the remedy.
        """
        status = np.asarray(self.status)
        lines = []
        for kind in Status:
            where = np.argwhere(status == kind)
            if kind is not Status.CONVERGED and where.size + (status.ndim == 0 and status == kind):
                shown = ", ".join(str(tuple(map(int, i)) if i.size != 1 else int(i[0])) for i in where[:8])
                count = f"{len(where)} of {status.size} elements are {kind.name}"
                names = f" ({shown}{', ...' if len(where) > 8 else ''})" if status.ndim else ""
                lines.append(f"{count}{names}: {REMEDIES[kind]}")
        if lines:
            raise JaxikError("\n".join(lines))
        return self

    def __repr__(self) -> str:
        if isinstance(self.status, jax.core.Tracer):
            return f"Solution(traced, batch {np.shape(self.status)})"
        status = np.asarray(self.status)
        counts = ", ".join(f"{np.sum(status == kind)} {kind.name}" for kind in Status if np.any(status == kind))
        return f"Solution({status.size} elements, batch {status.shape}: {counts})"


def solve(problem: Problem, q0: Any = None, *, options: SolveOptions | None = None) -> Solution:
    """Solve inverse kinematics locally: bounded Levenberg-Marquardt from `q0` to a stationary point.

    It ends when every task meets its tolerance, after one undamped polishing step; where a task has no tolerance, or
    none can be met, at stationarity. Gains, LM damping of tasks and velocity limits belong to differential IK, and
    are ignored here.

    Args:
      problem: robot, tasks and limits; any leaf may have leading batch axes, which broadcast.
      q0: start (*batch, nq); the robot's `q_home` by default. Starts outside the limits are moved inside.
        Its dtype decides in which precision everything is computed.
      options: `SolveOptions`; all traced.

    Returns:
      A `Solution`. Failure is a status, never an exception and never NaN; `solution.check()` raises on the host.

    Raises:
      JaxikError: for wrong shapes and for what `solve` cannot hold; on the host, before tracing.
    """
    if not isinstance(problem, Problem):
        raise JaxikError(f"problem is a jaxik.Problem, not {type(problem).__name__}")
    check_solvable(problem)
    q0 = jnp.asarray(problem.robot.q_home if q0 is None else q0)
    if not jnp.issubdtype(q0.dtype, jnp.floating):
        q0 = q0.astype(problem.robot.q_home.dtype)
    if q0.shape[-1:] != (problem.robot.nq,):
        raise JaxikError(f"q0 has shape (*batch, nq) with nq = {problem.robot.nq}, not {q0.shape}")
    options = SolveOptions() if options is None else options
    return _solve(problem, q0, options)


@jax.jit
def _solve(problem: Problem, q0: jax.Array, options: SolveOptions) -> Solution:
    arguments = (_cast(problem, q0.dtype), q0, _cast(options, q0.dtype))
    return in_tiles(solve_element, arguments, core_ranks(arguments[0]), 1, core_ranks(options))


def _cast(tree: Any, dtype: Any) -> Any:
    """Every floating leaf in the dtype of the configuration; limits rounded inward."""
    if isinstance(tree, Problem):
        robot = tree.robot.astype(dtype)
        rest = _cast((tree.tasks, tree.limits, tree.constraints), dtype)
        return jax.tree.unflatten(jax.tree.structure(tree), jax.tree.leaves((robot, *rest, tree.dof_mask)))
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating) else x, tree)


def solve_element(problem: Problem, q0: jax.Array, options: SolveOptions) -> Solution:
    """Solve one element."""
    prepared = prepare(problem)
    finite = jnp.all(jnp.isfinite(q0))
    q = clamp(prepared.robot, jnp.where(jnp.isfinite(q0), q0, problem.robot.q_home))
    state = iterate(levenberg_marquardt, prepared, q, options)
    nonfinite = ~(finite & jnp.isfinite(state.cost))
    # Without a tolerance for every task, `met` is not followed during the iteration.
    met = state.met if has_tolerances(problem) else state.stationary & _met(prepared, state.q)
    status = jnp.where(met, Status.CONVERGED, jnp.where(state.stationary, Status.STALLED, Status.TIMEOUT))
    return Solution(
        q=state.q,
        status=jnp.where(nonfinite, Status.NONFINITE, status).astype(jnp.int32),
        residuals=errors(prepared, state.q),
        iterations=state.iterations,
        cost=state.cost,
        stationarity=levenberg_marquardt.stationarity(prepared, state),
    )


def _met(prepared: Any, q: jax.Array) -> jax.Array:
    return rows(prepared, q).met
