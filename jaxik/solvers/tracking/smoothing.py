"""Make a motion along a path smooth, within limits: Newton steps over the whole horizon, linear in its length.

Minimises the squared displacements of the steps, and their first and second differences, while every waypoint keeps its
tasks. Limits on joints, speed, acceleration and jerk are met by a primal-dual interior point (Nocedal and Wright,
"Numerical Optimization", 19.3), which needs no motion within them to start from: `barrier` has its rows.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import core_ranks
from jaxik.kinematics import manifold
from jaxik.problem.problem import Problem, effective_joint_limits
from jaxik.solvers.tracking import barrier
from jaxik.solvers.tracking.banded import ORDERS, adjoint, bands_of, blocks_of, solved
from jaxik.solvers.tracking.barrier import Interior
from jaxik.solvers.tracking.horizon import (
    SPARE,
    Horizon,
    Rows,
    changes_of,
    coordinates,
    differences,
    evaluated,
    links_of,
    row_count,
)
from jaxik.solvers.tracking.path_pairs import ChosenPairs, pairs_near, updated, with_others
from jaxik.solvers.tracking.path_rows import (
    APART,
    TOUCHED,
    as_kinds,
    as_rows,
    behind_limits,
    centring_of,
    rounded,
    with_rows,
    yields,
)

# Steps over which motion is smoothed: squared differences of order k weigh HORIZON^(2k) as much as displacements.
HORIZON = 8.0
WEIGHTS = tuple(HORIZON ** (2 * k) for k in range(ORDERS))
# Squared residuals of the path weigh as much more than all of that. What is left of them moves a third difference by
# 1e-9 rad when waypoints are put back at the end; 1e5 left 1e-7, a hundredth of a limit on jerk.
TIGHT = 1e7 * WEIGHTS[-1]
# Added to the diagonal, as a share of its largest entry: while the motion is made smooth, and on its return.
RIDGE, RETURNING_RIDGE = 1e-17, 1e-9
# The longest change of a joint in one Gauss-Newton step [rad or m], as tasks are not linear.
REACH = 0.2
# Damping, beside the weight 1 of displacements: at first, least and most. It is more where a step was longer than the
# shortest so far, as Gauss-Newton leaves out how tasks curve, and less where it was not. By the one before it, steps
# went round in threes.
DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e-8, 1e4
MORE, LESS = 2.0, 0.3
# Beside shapes, whose distances curve more: of 48 motions of a planar arm around balls and 64 of a Panda around a wall
# all settle within 80 steps, by the former 46 and 62. More than one in product, a damping may grow by its own effect.
MORE_BESIDE, LESS_BESIDE = 4.0, 0.2
# Steps are Newton's where the one before was shorter [rad or m], and Gauss-Newton's elsewhere.
NEAR = 0.1
# Waypoints that are nearer to the path, as |cost * residual|, have multipliers.
REACHED = 1e-3
# Steps before limits are looked at: an interior point begins better from a motion that is smooth.
FREE = 5
# Steps that only put waypoints back on the path, at the end; and then so many that only meet constraints. Where the
# path is out of reach the former weigh both alike: a loop was 11 mm open.
RETURNS, CLOSING = 4, 3


class Smooth(NamedTuple):
    """What smoothing comes to.

    Attributes:
      q (N, *batch, nq): the motion.
      pull (N, *batch, m): multipliers of the path's weighted residuals.
      inside: slacks and multipliers of its limits.
      passed (*batch,): by how much a limit is passed at most, in half widths.
      settled (*batch,): whether it is a minimum.
      pairs: of shapes that are kept apart.
    """

    q: jax.Array
    pull: jax.Array
    inside: Interior
    passed: jax.Array
    settled: jax.Array
    pairs: ChosenPairs


class _State(NamedTuple):
    now: Smooth
    best: Smooth  # of all motions so far the last that passes its limits least
    damping: jax.Array  # (*batch,) on the diagonal
    change: jax.Array  # (*batch,) of a joint, the largest of the last step
    shortest: jax.Array  # (*batch,) step so far, before it was cut
    taken: jax.Array  # () steps so far
    returned: jax.Array  # () steps so far that only put waypoints back


def smoothed(horizon: Horizon, q: jax.Array, steps: jax.Array, wanted: jax.Array) -> Smooth:
    """Smooth a motion (N, *batch, nq) in at most so many steps, and put each waypoint back on its path.

    Those that are not `wanted` (*batch,) stay as they are, and are not waited for.
    """
    none, start = jnp.zeros((), jnp.int32), begun(horizon, q)._replace(settled=~wanted)
    batch, far = q.shape[1:-1], start.passed
    grows, shrinks = (MORE_BESIDE, LESS_BESIDE) if horizon.pairs else (MORE, LESS)

    def step(state: _State) -> _State:
        smooths = jnp.any(~state.now.settled) & (state.taken < steps)
        # Where smoothing ends without a minimum, the return is from the best.
        ends = ~smooths & (state.returned == 0) & ~state.now.settled
        before = chosen(ends, state.best, state.now)
        found, change, reach = _step(horizon, before, state, smooths)
        more = reach > state.shortest
        damping = jnp.clip(jnp.where(more, grows, shrinks) * state.damping, LEAST_DAMPING, MOST_DAMPING)
        # What limits push aside, when they are looked at, is longer at first.
        shortest = jnp.where(more & (state.taken > FREE), state.shortest, reach)
        best = chosen(smooths & (found.passed <= state.best.passed), before._replace(passed=found.passed), state.best)
        # Each element of a batch on its own: it stops where it is settled.
        now = chosen(smooths & before.settled, before, found)
        return _State(now, best, damping, change, shortest, state.taken + smooths, state.returned + ~smooths)

    begin = _State(start, start, jnp.full(batch, DAMPING, q.dtype), far, far, none, none)
    returns = RETURNS + CLOSING * bool(horizon.firm)
    return lax.while_loop(lambda s: s.returned < returns, step, begin).now


def begun(horizon: Horizon, q: jax.Array) -> Smooth:
    """A motion (N, *batch, nq) before it is made smooth."""
    count, nv, batch = row_count(horizon), horizon.problem.robot.nv, q.shape[1:-1]
    kinds = jnp.zeros((2, horizon.kinds + -(-count // nv), *q.shape[:-1], nv), q.dtype)
    inside = Interior(kinds + 1, kinds, kinds, jnp.ones(batch, q.dtype))
    far, never = jnp.full(batch, jnp.inf, q.dtype), jnp.zeros(batch, bool)
    return Smooth(q, jnp.zeros((*q.shape[:-1], count), q.dtype), inside, far, never, horizon.pairs)


def kept(horizon: Horizon, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether a motion keeps its limits on displacements and their differences (*batch,), and all that may yield.

    Of constraints that yield that is not known.
    """
    topology = horizon.problem.robot.topology
    found = *differences(topology, q), coordinates(topology, q)
    links = *links_of(horizon.linked), horizon.stage[..., None]

    def keeps(limits: Iterable[tuple[int, jax.Array]]) -> jax.Array:
        given = ((k, x if k == ORDERS else x / SPARE) for k, x in limits)
        outside = [((found[k] < x[0]) | (found[k] > x[1])) & links[k] for k, x in given]
        return ~jnp.any(jnp.stack(outside), axis=(0, 1, -1)) if outside else jnp.ones(q.shape[1:-1], bool)

    yields_nowhere = keeps((each.order, each.bounds) for each in horizon.elastic)
    return keeps(enumerate(horizon.bounds)), yields_nowhere & (not horizon.yielding)


def paid(horizon: Horizon, q: jax.Array) -> jax.Array:
    """What a motion (N, *batch, nq) costs (*batch,): movement, preferences, and penalties of what yields."""
    rows = evaluated(horizon, q, None)
    movement = _weights(horizon, q.dtype) * jnp.stack(differences(horizon.problem.robot.topology, q)) ** 2
    distances = with_rows(distances_of(horizon, q, rows), horizon, rows)
    elastic = distances.counts & jnp.isfinite(distances.price)
    yielded = jnp.where(elastic, distances.price * jnp.maximum(-distances.room, 0), 0)
    return jnp.sum(movement, axis=(0, 1, -1)) / 2 + rows.preferred_cost.sum(axis=0) + yielded.sum(axis=(0, 1, 2, -1))


def chosen(mask: jax.Array, yes: Any, no: Any) -> Any:
    """Arrays (..., *batch, n), or (*batch,), by a mask (*batch,)."""

    def choose(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(mask[..., None] if a.ndim > mask.ndim else mask, a, b)

    return jax.tree.map(choose, yes, no)


def _step(horizon: Horizon, before: Smooth, state: _State, smooths: jax.Array) -> tuple[Smooth, jax.Array, jax.Array]:
    """One step of Newton's method, or, where it does not smooth, one of Gauss-Newton towards the path alone.

    Returns:
      What it comes to, where `passed` is that of the motion before; and the largest change of a joint (*batch,), as it
      is and before it was cut.
    """
    q, taken = before.q, state.taken
    free_steps = 0 if horizon.pairs else FREE
    limited, curved = smooths & (taken >= free_steps), smooths & (state.change < NEAR)
    horizon = _looking_again(horizon, before, smooths)
    rows = evaluated(horizon, q, before.pull)
    distances = with_rows(distances_of(horizon, q, rows), horizon, rows)
    inside = jax.tree.map(lambda a, b: jnp.where(taken == free_steps, a, b), barrier.begun(distances), before.inside)
    if horizon.pairs:
        inside = barrier.entered(inside, distances, behind_limits(rows.fresh, horizon))
    mu, kinds = barrier.aimed(inside, distances), horizon.kinds
    # Multipliers keep the path exactly; where it is out of reach they would grow for ever.
    free = yields(rows) | rows.apart
    reached = jnp.max(jnp.where(free, 0, jnp.abs(rows.residual)), axis=-1, initial=0) < REACHED
    pull = jnp.where((curved & reached)[..., None] & ~free, before.pull, 0)
    count = rows.residual.shape[-1]
    slope, stiffness = (limited * x for x in barrier.slopes(inside, distances, mu))
    # Rows of the path are stiff, or drawn to the middle of their boxes by these and by nothing else.
    boxed, centring = limited & as_rows(jnp.any(distances.counts[:, kinds:], axis=0), count), centring_of(rows)
    tight = jnp.where(free, jnp.where(smooths & ~rows.apart, rounded(rows), 0), TIGHT)
    tight = jnp.where((state.returned < RETURNS) | rows.firm, tight, 0)
    firm = jnp.where(boxed, centring + as_rows(stiffness[kinds:], count), tight)
    push = jnp.where(boxed, centring * rows.residual + as_rows(slope[kinds:], count), tight * rows.residual + pull)
    found = differences(horizon.problem.robot.topology, q)
    system = system_of(horizon, rows, found, smooths, curved, firm, push)
    gradient, bands = system.add(horizon.by_order(slope[:kinds]), horizon.by_order(stiffness[:kinds]))
    bands[0] = bands[0] + smooths * state.damping[..., None]
    lower, upper = rows.room_below, rows.room_above
    held = (lower >= 0) & (gradient > 0) | (upper <= 0) & (gradient < 0)
    ridge = jnp.where(smooths, RIDGE, RETURNING_RIDGE).astype(q.dtype)
    stays = ~rows.moves | held & ~smooths
    change = -solved(blocks_of(system.hessian, bands, stays, ridge), jnp.where(stays, 0, gradient))
    solves = jnp.all(jnp.isfinite(change), axis=(0, -1))
    change = jnp.where(solves[..., None], change, 0)
    along = (rows.jacobian @ change[..., None])[..., 0]
    reach = jnp.max(jnp.abs(change), axis=(0, -1))
    most = jnp.where(smooths, jnp.minimum(1, REACH / jnp.maximum(reach, REACH / 100)), 1)
    changes = jnp.concatenate([changes_of(horizon, change), as_kinds(along, change.shape[-1])])
    moved, share = barrier.moved(inside, distances, mu, changes, most)
    press = as_rows(((moved.multiplier[1] - moved.multiplier[0]) / distances.width)[kinds:], count)
    pull = jnp.where(boxed, centring * (rows.residual + along) + press, pull + tight * (rows.residual + along))
    change = change * jnp.where(limited, share, most)[..., None]
    change = jnp.where(smooths, change, jnp.where(horizon.loose, 0, jnp.clip(change, lower, upper)))
    furthest = jnp.max(jnp.abs(change), axis=(0, -1))
    # What is passed by rounding alone is kept; of motions before limits are looked at nothing is known.
    spare = behind_limits(rows.apart * (TOUCHED / APART), horizon)
    beyond = jnp.maximum(barrier.passed(distances, spare), barrier.KEPT)
    passed = jnp.where(limited & (taken > free_steps), beyond, jnp.where(smooths, jnp.inf, before.passed))
    settles = limited & (reach <= horizon.settled) & barrier.ended(inside, distances)
    inside = jax.tree.map(lambda new, old: jnp.where(limited, new, old), moved, before.inside)
    q = _moved(horizon.problem, q, change, smooths.astype(q.dtype))
    pull = jnp.where((smooths & solves)[..., None], pull, before.pull)
    found = Smooth(q, pull, inside, passed, before.settled | (settles & solves), horizon.pairs)
    # Where curvature was not positive, the next step goes without.
    return found, jnp.where(solves, furthest, jnp.inf), jnp.where(solves, reach, jnp.inf)


def _looking_again(horizon: Horizon, before: Smooth, smooths: jax.Array) -> Horizon:
    """The horizon with the pairs that are nearest now, while the motion is made smooth."""
    near = pairs_near(horizon.problem, before.q)
    pairs = {name: jnp.where(smooths, updated(old, near[name]), old) for name, old in before.pairs.items()}
    return horizon._replace(problem=with_others(horizon.problem, pairs, before.pairs), pairs=pairs)


class System(NamedTuple):
    """Without limits: blocks and gradient of stages (N, *batch, nv), and by order slopes and weights of differences."""

    hessian: jax.Array
    gradient: jax.Array
    slope: jax.Array
    weight: jax.Array

    def add(self, slope: jax.Array, stiffness: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        """The gradient and the bands, with those of limits (ORDERS + 1, N, *batch, nv), the last of joints."""
        all_slopes = self.slope + slope[:ORDERS]
        gradient = self.gradient + sum(adjoint(k, all_slopes[k]) for k in range(ORDERS)) + slope[ORDERS]
        bands = bands_of(self.weight + stiffness[:ORDERS])
        bands[0] = bands[0] + stiffness[ORDERS]
        return gradient, bands


def system_of(
    horizon: Horizon,
    rows: Rows,
    found: tuple[jax.Array, ...],
    smooths: Any,
    curved: jax.Array,
    firm: jax.Array,
    push: jax.Array,
) -> System:
    """The system of a motion whose residuals of the path are `firm` and pushed by `push` (N, *batch, m)."""
    dtype = rows.residual.dtype
    transposed, smooth = jnp.swapaxes(rows.jacobian, -1, -2), jnp.asarray(smooths, dtype)
    weight = smooth * _weights(horizon, dtype)
    curvature = jnp.where(curved[..., None, None], rows.curvature, 0)
    return System(
        transposed @ (firm[..., None] * rows.jacobian) + smooth * (rows.preferred_square + curvature),
        (transposed @ push[..., None])[..., 0] + smooth * rows.preferred_gradient,
        weight * jnp.stack(found),
        weight * jnp.ones_like(found[0]),
    )


def _weights(horizon: Horizon, dtype: Any) -> jax.Array:
    """Of squared differences, by order (ORDERS, N, *batch, 1)."""
    of_orders = jnp.asarray(WEIGHTS, dtype).reshape(-1, *(1,) * (horizon.linked.ndim + 1))
    return (of_orders * links_of(horizon.linked)).at[0].add(TIGHT * horizon.rests[..., None])


def distances_of(horizon: Horizon, q: jax.Array, rows: "Rows") -> barrier.Distances:
    """How far the motion is from its limits: of displacements, their differences, joints, and from what is elastic."""
    found = jnp.stack([*differences(horizon.problem.robot.topology, q), jnp.zeros_like(rows.room_below)])
    linked = jnp.concatenate([links_of(horizon.linked), jnp.ones_like(rows.moves)[None, ..., :1]])
    begins = (jnp.arange(ORDERS + 1) % ORDERS == 0) | (horizon.limited > 0)
    begins = jnp.concatenate([begins, *(horizon.limited[None] > 0 for _ in horizon.elastic)])
    counts = horizon.with_elastic(linked) & begins.reshape(-1, *(1,) * q.ndim) & rows.moves
    one = jnp.ones_like(found[0])

    def bounds(i: int, room: jax.Array) -> jax.Array:
        yielding = (each.bounds[i] - (rows.at if each.order == ORDERS else 0) for each in horizon.elastic)
        return jnp.stack([*(x[i] * one for x in horizon.bounds), room, *(x * one for x in yielding)])

    weight = horizon.with_elastic(jnp.asarray((*WEIGHTS, 1.0), q.dtype)).reshape(-1, *(1,) * q.ndim)
    penalties = [jnp.full_like(one[:1, ..., :1], jnp.inf)] * (ORDERS + 1)
    penalties += [each.penalty[..., None] * one[:1, ..., :1] for each in horizon.elastic]
    lower, upper = bounds(0, rows.room_below), bounds(1, rows.room_above)
    return barrier.distances(horizon.with_elastic(found), lower, upper, counts, weight, jnp.stack(penalties))


def _moved(problem: Problem, q: jax.Array, change: jax.Array, smooth: jax.Array) -> jax.Array:
    """Within the joint limits, but while the motion is made smooth."""

    def of_stage(problem: Problem, q: jax.Array, change: jax.Array, smooth: jax.Array) -> jax.Array:
        robot = effective_joint_limits(problem)
        there = manifold.integrate(robot.topology, q, change)
        return jnp.where(smooth > 0, there, manifold.snap_to_limits(robot, q, there))

    ranks = {"problem": core_ranks(problem), "q": 1, "change": 1, "smooth": 0}
    return over_batch(of_stage, {"problem": problem, "q": q, "change": change, "smooth": smooth}, ranks)
