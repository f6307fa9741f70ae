"""Candidates for every waypoint of a path: solutions continued along it, and found anew where they are lost."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import cast, core_ranks
from jaxik.kinematics.topology import dofs_of_entries
from jaxik.numerics.indexing import with_entry
from jaxik.numerics.linalg import static_gather
from jaxik.problem.problem import Problem
from jaxik.solvers.nonlinear.continuation import continued
from jaxik.solvers.nonlinear.formulation import formulation
from jaxik.solvers.nonlinear.whole_turns import unwrap_to_reference
from jaxik.solvers.options import SolveOptions
from jaxik.solvers.tracking.targets import Values, placed

# LM steps at each waypoint: a solution that is continued takes one or two. All lanes wait for the slowest: with 8 steps
# and a patience of 4, a path of 500 waypoints takes 0.41 s for 0.23, and 84 % of its candidates are on it for 81 %.
STEPS = 4
# A lane that is lost begins anew after so many waypoints, as many as it takes a random start to get there, if it does.
PATIENCE = 8
# One lane of so many goes on from where it lost the path: where no solution is, it stays near, and may come back.
PATIENT = 4


class Candidates(NamedTuple):
    """Of T waypoints and L lanes.

    Attributes:
      q (T, L, *batch, nq): configurations within the joint limits.
      missed (T, L, *batch): whether one is not within the tolerances of the path there.
      miss (T, L, *batch): how far off it is, |cost * residual|.
    """

    q: jax.Array
    missed: jax.Array
    miss: jax.Array


def candidates(
    problem: Problem,
    values: Values,
    length: int,
    steps: jax.Array,
    shape: tuple[int, ...],
    first: jax.Array,
    starts: bool,
    lanes: int,
    key: jax.Array,
) -> Candidates:
    """Follow the path along lanes, each from a waypoint of its own to the end, and from there back to the beginning.

    A lane begins at a random configuration; where it is not on the path for a while, as its branch of solutions ends
    there, or no solution was found, it goes on from another. A few go on as they are.

    Args:
      problem: of the path's tasks alone.
      values: over time (T, *batch, ...), with all batch axes or none of size one; {} where no target changes.
      length: of the values, T.
      steps: how many of them count (); those behind are as the last.
      shape: the batch axes.
      first (*batch, nq): where the first lane begins, at the first waypoint.
      starts: whether the motion begins there, so that joints of several turns have less far to go to what is near.
      lanes: how many, L.
      key: of `jax.random`.
    """
    origin = jnp.arange(lanes) * steps // lanes
    options = cast(SolveOptions(max_steps=STEPS), first.dtype)
    lane = jnp.arange(lanes).reshape(-1, *(1,) * len(shape))
    patient = lane % PATIENT == 0
    drawn = _drawn(problem, first, starts, key, 2 + length // PATIENCE, lanes)

    def waypoint(k: Any) -> jax.Array:
        """Where each lane is (L,) at step k."""
        return jnp.where(origin + k < steps, origin + k, steps - 1 - k)

    def go_on(k: jax.Array, before: tuple[Any, Candidates]) -> tuple[Any, Candidates]:
        (q, kept, q_origin, kept_origin), by_step = before
        turns = (origin + k == steps).reshape(-1, *(1,) * len(shape))
        q, kept = jnp.where(turns[..., None], q_origin, q), jnp.where(turns, kept_origin, kept)
        stays = kept | patient | ((k + lane) % PATIENCE != 0)
        start = jnp.where(stays[..., None] | (k == 0), q, drawn[1 + k // PATIENCE])
        now = jax.tree.map(lambda x: x[waypoint(k)], values)
        found = continued(placed(problem, now), start, options)
        kept = found.reached
        at_origin = jnp.where(k == 0, found.q, q_origin), jnp.where(k == 0, kept, kept_origin)
        miss = jnp.sqrt(2 * jnp.where(jnp.isfinite(found.cost), found.cost, 0))
        here = Candidates(found.q, ~kept, miss)
        by_step = jax.tree.map(lambda xs, x: with_entry(xs, k, x), by_step, here)
        return (found.q, kept, *at_origin), by_step

    none = jnp.zeros((lanes, *shape), bool)
    begin = drawn[0].at[0].set(first)
    nothing = Candidates(
        *(jnp.zeros((length, *x.shape), x.dtype) for x in (begin, none, jnp.zeros(none.shape, first.dtype)))
    )
    _, by_step = lax.fori_loop(0, steps, go_on, ((begin, none, begin, none), nothing))
    time = jnp.minimum(jnp.arange(length), steps - 1)[:, None]
    step = jnp.where(time >= origin, time - origin, steps - 1 - time)

    def by_waypoint(x: jax.Array) -> jax.Array:
        return x[step, jnp.arange(lanes)]

    found = Candidates(*map(by_waypoint, by_step))
    # Behind the last waypoint nothing is missed again.
    counts = (jnp.arange(length) < steps).reshape(-1, *(1,) * (none.ndim))
    return found._replace(missed=found.missed & counts, miss=found.miss * counts)


def _drawn(problem: Problem, first: jax.Array, starts: bool, key: jax.Array, count: int, lanes: int) -> jax.Array:
    """Configurations (count, L, *batch, nq) from which lanes begin; every second lane's without turns more than needed.

    All at once: what draws is 80 kernels, and would be as many again in the loop of the waypoints.
    """
    drawn = problem.robot.sample(key, (count, lanes, *first.shape[:-1])).astype(first.dtype)
    drawn = jnp.where(_chosen(problem), drawn, first)
    if not starts:
        return drawn

    def unwrapped(problem: Problem, q: jax.Array, first: jax.Array) -> jax.Array:
        return unwrap_to_reference(formulation(problem), q, first)

    arguments = {"problem": problem, "q": drawn, "first": first}
    near = over_batch(unwrapped, arguments, {"problem": core_ranks(problem), "q": 1, "first": 1})
    return jnp.where((jnp.arange(lanes) % 2 == 1).reshape(-1, *(1,) * first.ndim), near, drawn)


def _chosen(problem: Problem) -> jax.Array:
    """Which entries of a configuration (*batch, nq) the path's tasks depend on, and may move."""
    one = jax.tree.map(lambda x, rank: x[(0,) * (jnp.ndim(x) - rank)], problem, core_ranks(problem))
    moving = formulation(one).moving
    chosen = jnp.asarray([dof in moving.own for dof in range(problem.robot.nv)], bool)
    if problem.dof_mask is not None:
        chosen = chosen & problem.dof_mask
    return static_gather(chosen, dofs_of_entries(problem.robot.topology), -1)
