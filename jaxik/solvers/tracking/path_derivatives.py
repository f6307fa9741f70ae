"""Derivatives of a whole path's motion: the implicit function theorem where smoothing ended, linear in its length.

With g the gradient of what is minimised and of the multipliers y of the path's residuals r, Jacobian J, and Hessian H:
H dq + J' dy + A' dz = -dg and J dq = -dr, where dg and dr are changes at a fixed motion. A limit with slack s and
multiplier z, whose distance changes by A dq + db, has A dq - (s / z) dz = -db, by the derivative of s z = mu: rigid
where it is active, and next to nothing where it is not.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.batching.linear_map import replaced
from jaxik.core.pytree import core_ranks
from jaxik.core.status import DerivativeStatus, Status
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import forward
from jaxik.problem.problem import Problem, constants_of, with_tasks
from jaxik.solvers.tracking import barrier
from jaxik.solvers.tracking.banded import ORDERS, adjoint
from jaxik.solvers.tracking.horizon import Horizon, Rows, differences, evaluated
from jaxik.solvers.tracking.kkt_system import KKTSystem, Unknowns, kkt_system, solution
from jaxik.solvers.tracking.path_pairs import PairsApart
from jaxik.solvers.tracking.path_rows import TOUCHED, as_rows, with_rows, yields
from jaxik.solvers.tracking.path_setting import Given, horizon_of, prepared
from jaxik.solvers.tracking.smoothing import Smooth, distances_of, system_of
from jaxik.tasks.clearance import PairsTask

# A limit whose slack and multiplier are both below this, in units of sqrt(mu), is weakly active.
WEAK = 10.0


class Sensitivity(NamedTuple):
    """What tangents of a motion along any arguments share.

    Attributes:
      system: of its optimality conditions, without the horizon.
      firm, given_way: as of `_firmness`.
      valid (*batch,): whether there is a derivative.
    """

    system: KKTSystem
    firm: jax.Array
    given_way: jax.Array
    valid: jax.Array


def sensitivity(shape: tuple[int, ...], given: Given, plan: Any, about: Any) -> tuple[Sensitivity, jax.Array]:
    """How a motion depends on its arguments, and what derivatives are worth (T, *batch), of `DerivativeStatus`.

    Args:
      given: arguments as they came.
      plan, about: `Plan` and `Found` of `whole_path`.
    """
    horizon, q = _horizon(shape, given, about)
    rows = evaluated(horizon, q, about.smooth.pull, exact=True)
    firm, given_way = _firmness(horizon, q, rows, about.smooth)
    kinds, both = horizon.kinds, jnp.sum(firm, axis=0)
    # Of an interior point that never began nothing is stiff.
    some = jnp.maximum(as_rows(both[kinds:], rows.residual.shape[-1]), jnp.finfo(q.dtype).tiny)
    held = jnp.where(yields(rows) | rows.apart, some, jnp.inf)
    system, positive = kkt_system(horizon, q, rows, held, both[:kinds])
    status = _status(horizon, q, rows, plan, about, positive & ~about.rough, system.solves())
    # A horizon has names of tasks: it is no argument of a program.
    return Sensitivity(system._replace(horizon=None), firm, given_way, positive), status


def motion_tangent(
    shape: tuple[int, ...],
    given: Given,
    about: Any,
    known: Sensitivity,
    active: Sequence[int],
    along: Sequence[jax.Array],
) -> jax.Array:
    """The tangent (T, *batch, nq) of a motion along tangents of the leaves `active` of its arguments."""
    leaves, structure = jax.tree.flatten(given)
    horizon, _ = _horizon(shape, given, about)

    def optimality(values: list[Any]) -> Unknowns:
        changed = jax.tree.unflatten(structure, replaced(leaves, active, values))
        firm = known.firm[:, : horizon.kinds]
        return _optimality(*_horizon(shape, changed, about), about.smooth.pull, firm, known.given_way)

    right = jax.jvp(optimality, ([leaves[i] for i in active],), (list(along),))[1]
    free = known.system.rows.moves & known.valid[..., None]
    right = jax.tree.map(jnp.negative, right._replace(q=jnp.where(free, right.q, 0)))
    change = solution(known.system._replace(horizon=horizon), right).q
    change = jnp.where((known.valid & ~about.rough)[..., None], change[ORDERS:], 0)
    return _moved(given.problem.robot.topology, about.smooth.q[ORDERS:], change)


def _horizon(shape: tuple[int, ...], given: Given, about: Any) -> tuple[Horizon, jax.Array]:
    """The horizon of a motion with targets that can be differentiated."""
    given, q = prepared(len(shape), given), about.smooth.q[ORDERS:]
    known = _known(shape, given)
    given = given._replace(values=_finite(given.values))
    apart = {"pairs": about.smooth.pairs, "farther": about.farther}
    return horizon_of(shape, given, q, about.parted, jnp.ones((), q.dtype), known, **apart)


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
    weak = WEAK * math.sqrt(barrier.LAST_MU)
    # Of what yields multipliers count by their price, and distances so that products stay the same.
    unit = jnp.where(jnp.isfinite(distances.price), distances.price, distances.scale)
    near, light = weak * distances.scale / unit, weak * unit
    weakly = (slack < near) & (multiplier < light) | (beyond < near) & (distances.price - multiplier < light)
    weakly = weakly & distances.counts
    worst = marked(worst, about.tied, DerivativeStatus.NON_UNIQUE)
    # A waypoint that presses on a shape moves all others.
    kinks, inexact = (jnp.any(x[ORDERS:], axis=0) for x in _trust_in_distances(horizon, q))
    weakly = jnp.any(weakly, axis=(0, 1, -1))[ORDERS:] | kinks
    worst = marked(worst, weakly, DerivativeStatus.WEAKLY_ACTIVE)
    missed = (plan.status == Status.STALLED) | (plan.status == Status.COLLIDES) | plan.jumped
    missed = missed | inexact
    curved = jnp.asarray([len(j.v_indices) > 1 for j in horizon.problem.robot.topology.joints for _ in j.v_indices])
    turns = jnp.any(rows.moves & curved, axis=(0, -1))
    worst = marked(worst, missed | turns | ~solved, DerivativeStatus.APPROXIMATE)
    worst = marked(worst, ~about.smooth.settled, DerivativeStatus.NOT_STATIONARY)
    return marked(worst, ~valid | (plan.status == Status.NONFINITE), DerivativeStatus.UNAVAILABLE)


def _trust_in_distances(horizon: Horizon, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where distances have another derivative on each side, and where theirs leaves something out (N, *batch).

    Other faces, edges or ends of shapes that touch take over right beside; how a distance curves, of shapes that are
    nearer than a task asks; or how its normal turns.
    """
    kinds = PairsTask, PairsApart
    tasks = {n: task for n, task in horizon.problem.tasks.items() if isinstance(task, kinds)}
    if not tasks:
        return jnp.zeros(q.shape[:-1], bool), jnp.zeros(q.shape[:-1], bool)

    def of_stage(problem: Problem, q: jax.Array) -> tuple[jax.Array, jax.Array]:
        robot = problem.robot
        kin = forward(constants_of(robot, problem.tasks.values()), q)

        def of_task(task: Any) -> tuple[jax.Array, jax.Array]:
            if isinstance(task, PairsApart):
                found, touches = task.curvatures(robot, kin), task.residual(robot, kin) < TOUCHED
                return jnp.any(touches & found.switches), jnp.any(touches & found.held)
            inexact = jnp.any(task.residual(robot, kin) != 0) if task.one_sided else task.held(robot, kin)
            return jnp.zeros((), bool), inexact

        kinks, inexact = zip(*map(of_task, problem.tasks.values()), strict=True)
        return jnp.any(jnp.stack(kinks)), jnp.any(jnp.stack(inexact))

    problem = with_tasks(horizon.problem, tasks)
    return over_batch(of_stage, {"problem": problem, "q": q}, {"problem": core_ranks(problem), "q": 1})
