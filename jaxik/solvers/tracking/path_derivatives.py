"""Derivatives of a whole path's motion: the implicit function theorem where smoothing ended, linear in its length.

With g the gradient of what is minimised and of the multipliers y of the path's residuals r, Jacobian J, and Hessian H:
H dq + J' dy + A' dz = -dg and J dq = -dr, where dg and dr are changes at a fixed motion. A limit with slack s and
multiplier z, whose distance changes by A dq + db, has A dq - (s / z) dz = -db, by the derivative of s z = mu: rigid
where it is active, and next to nothing where it is not.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.batching.linear_map import moving, replaced
from jaxik.core.pytree import core_ranks
from jaxik.core.status import DerivativeStatus, Status
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import forward
from jaxik.problem.problem import Problem, constants_of, with_tasks
from jaxik.solvers.tracking import barrier
from jaxik.solvers.tracking.banded import ORDERS, adjoint
from jaxik.solvers.tracking.horizon import Horizon, Rows, differences, evaluated
from jaxik.solvers.tracking.kkt_system import Unknowns, kkt_system, solution
from jaxik.solvers.tracking.path_rows import as_rows, with_rows, yields
from jaxik.solvers.tracking.path_setting import Given, horizon_of, prepared
from jaxik.solvers.tracking.smoothing import Smooth, distances_of, system_of
from jaxik.tasks.clearance import ClearanceTask

# A limit whose slack and multiplier are both below this, in units of sqrt(mu), is weakly active.
WEAK = 10.0


def motion_tangent(
    shape: tuple[int, ...], given: Given, tangents: Given, plan: Any, about: Any
) -> tuple[jax.Array, jax.Array]:
    """The tangent (T, *batch, nq) of a motion, and what it is worth (T, *batch), of `DerivativeStatus`.

    Args:
      given, tangents: arguments as they came, and their tangents, of which some may be `SymbolicZero`.
      plan, about: `Plan` and `Found` of `whole_path`.
    """
    leaves, structure = jax.tree.flatten(given)
    along = jax.tree.leaves(tangents)
    active = moving(along)
    known = _known(shape, prepared(len(shape), given))

    def at(values: list[Any]) -> tuple[Horizon, jax.Array]:
        changed = prepared(len(shape), jax.tree.unflatten(structure, replaced(leaves, active, values)))
        changed = changed._replace(values=_finite(changed.values))
        return horizon_of(shape, changed, plan.q, about.parted, jnp.ones((), plan.q.dtype), known)

    values = [leaves[i] for i in active]
    horizon, q = at(values)
    rows = evaluated(horizon, q, about.smooth.pull)
    firm, given_way = _firmness(horizon, q, rows, about.smooth)
    kinds, both = horizon.kinds, jnp.sum(firm, axis=0)

    def optimality(values: list[Any]) -> Unknowns:
        return _optimality(*at(values), about.smooth.pull, firm[:, :kinds], given_way)

    # Of an interior point that never began nothing is stiff.
    some = jnp.maximum(as_rows(both[kinds:], rows.residual.shape[-1]), jnp.finfo(q.dtype).tiny)
    held = jnp.where(yields(rows), some, jnp.inf)
    system, positive = kkt_system(horizon, q, rows, held, both[:kinds])
    right = jax.jvp(optimality, (values,), ([along[i] for i in active],))[1]
    free = rows.moves & positive[..., None]
    right = jax.tree.map(jnp.negative, right._replace(q=jnp.where(free, right.q, 0)))
    change, valid = solution(system, right).q, positive & ~about.rough
    change = jnp.where(valid[..., None], change[ORDERS:], 0)
    moved = _moved(given.problem.robot.topology, plan.q, change)
    return moved, _status(horizon, q, rows, plan, about, valid, system.solves())


def _known(shape: tuple[int, ...], given: Given) -> dict[str, jax.Array]:
    """By name of a task, whether what changes of it over time is finite (T, *batch)."""

    def of_task(fields: dict[str, Any]) -> jax.Array:
        fine = [jnp.isfinite(x) for x in jax.tree.leaves(fields)]
        return functools.reduce(
            jnp.logical_and, (jnp.all(x.reshape(*x.shape[: 1 + len(shape)], -1), axis=-1) for x in fine)
        )

    return {name: of_task(fields) for name, fields in given.values.items()}


def _finite(values: Any) -> Any:
    """Targets that can be differentiated: ones, as of a quaternion, where they are not finite and do not count."""
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 1), values)


def _firmness(horizon: Horizon, q: jax.Array, rows: Rows, smooth: Smooth) -> tuple[jax.Array, jax.Array]:
    """How stiff limits and rows are (2, kinds, N, *batch, nv), z / s by what they bound and not widths; which yield."""
    distances, inside = with_rows(distances_of(horizon, q, rows), horizon, rows), smooth.inside
    firm = jnp.where(distances.counts, barrier.firmness(inside, distances) / distances.width**2, 0)
    return firm, distances.counts & (inside.yields > inside.slack)


def _optimality(horizon: Horizon, q: jax.Array, pull: jax.Array, firm: jax.Array, given_way: jax.Array) -> Unknowns:
    """The conditions that a motion meets, but for what is constant: gradient, residuals, and what limits leave."""
    rows, kinds = evaluated(horizon, q, None), horizon.kinds
    distances = with_rows(distances_of(horizon, q, rows), horizon, rows)
    found, none = differences(horizon.problem.robot.topology, q), jnp.zeros_like(rows.residual)
    system = system_of(horizon, rows, found, True, jnp.zeros((), bool), none, none)
    # What yields pulls with its price.
    force = jnp.where(given_way, distances.price, 0) / distances.width
    by_rows = as_rows((force[1] - force[0])[kinds:], pull.shape[-1])
    pull = pull + by_rows - jax.lax.stop_gradient(by_rows)
    gradient = rows.preferred_gradient + (jnp.swapaxes(rows.jacobian, -1, -2) @ pull[..., None])[..., 0]
    pressed = horizon.by_order((force[1] - force[0])[:kinds])
    slope = system.slope + pressed[:ORDERS]
    gradient = gradient + sum(adjoint(k, slope[k]) for k in range(ORDERS)) + pressed[ORDERS]
    # Both limits of a joint as one, by their stiffness: one of them is next to nothing, or they are the same.
    share = firm / jnp.where(jnp.any(firm > 0, axis=0), jnp.sum(firm, axis=0), 1)
    room = jnp.where(distances.counts, distances.room * distances.width, 0)[:, :kinds]
    return Unknowns(gradient, rows.residual, share[0] * room[0] - share[1] * room[1])


def _moved(topology: Any, q: jax.Array, change: jax.Array) -> jax.Array:
    """The tangent of configurations (..., nq) that change by (..., nv)."""
    along = lambda q, v: jax.jvp(lambda x: manifold.integrate(topology, q, x), (jnp.zeros_like(v),), (v,))[1]  # noqa: E731
    return jnp.vectorize(along, signature="(q),(v)->(q)")(q, change)


def _status(
    horizon: Horizon, q: jax.Array, rows: Rows, plan: Any, about: Any, valid: jax.Array, solved: jax.Array
) -> jax.Array:
    """What derivatives are worth (T, *batch); of several reasons the last."""
    worst = jnp.full(plan.q.shape[:-1], DerivativeStatus.EXACT, jnp.int32)

    def marked(worst: jax.Array, mask: jax.Array, status: DerivativeStatus) -> jax.Array:
        return jnp.where(mask, jnp.maximum(worst, status), worst)

    distances = with_rows(distances_of(horizon, q, rows), horizon, rows)
    slack, multiplier, beyond, _ = about.smooth.inside
    weak = WEAK * jnp.sqrt(barrier.LAST_MU[q.dtype == jnp.float64])
    # Of what yields multipliers count by their price, and distances so that products stay the same.
    unit = jnp.where(jnp.isfinite(distances.price), distances.price, distances.scale)
    near, light = weak * distances.scale / unit, weak * unit
    weakly = (slack < near) & (multiplier < light) | (beyond < near) & (distances.price - multiplier < light)
    weakly = weakly & distances.counts
    worst = marked(worst, about.tied, DerivativeStatus.NON_UNIQUE)
    worst = marked(worst, jnp.any(weakly, axis=(0, 1, -1))[ORDERS:], DerivativeStatus.WEAKLY_ACTIVE)
    missed = (plan.status == Status.STALLED) | plan.jumped | _nearer_than_asked(horizon, q)[ORDERS:]
    curved = jnp.asarray([len(j.v_indices) > 1 for j in horizon.problem.robot.topology.joints for _ in j.v_indices])
    turns = jnp.any(rows.moves & curved, axis=(0, -1))
    worst = marked(worst, missed | turns | ~solved, DerivativeStatus.APPROXIMATE)
    worst = marked(worst, ~about.smooth.settled, DerivativeStatus.NOT_STATIONARY)
    return marked(worst, ~valid | (plan.status == Status.NONFINITE), DerivativeStatus.UNAVAILABLE)


def _nearer_than_asked(horizon: Horizon, q: jax.Array) -> jax.Array:
    """Whether shapes are nearer than is aimed at (N, *batch), where the curvature of their distance is left out."""
    tasks = {n: task for n, task in horizon.problem.tasks.items() if isinstance(task, ClearanceTask)}
    if not tasks:
        return jnp.zeros(q.shape[:-1], bool)

    def of_stage(problem: Problem, q: jax.Array) -> jax.Array:
        robot = problem.robot
        kin = forward(constants_of(robot, problem.tasks.values()), q)
        nearer = [jnp.any(task.residual(robot, kin) != 0) for task in problem.tasks.values()]
        return jnp.any(jnp.stack(nearer))

    problem = with_tasks(horizon.problem, tasks)
    return over_batch(of_stage, {"problem": problem, "q": q}, {"problem": core_ranks(problem), "q": 1})
