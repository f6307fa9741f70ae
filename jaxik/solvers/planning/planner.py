"""How a path is planned, of one element: one look at one configuration a step, so that no element waits for another.

In the first round trees grow until they join, and if they do not, again from other samples: a batch makes such attempts
side by side. In the second round the path through them is shortened, and its corners are rounded. Whatever is looked at
is a straight way, marched along as far as it is known to be free.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.method import Method, Phase
from jaxik.collision.sweep import March, not_begun, stride
from jaxik.core.status import Status
from jaxik.solvers.planning.corners import Rounding, chord_of, rounded, unrounded
from jaxik.solvers.planning.projection import LONGEST_STRIDE
from jaxik.solvers.planning.setting import Setting, nothing_seen, seen_at, setting_of
from jaxik.solvers.planning.shortcuts import Cut, Path, proposed, shortened
from jaxik.solvers.planning.trees import WAYPOINTS, Trees, grown, is_full, length_of, path_through, planted

# Looks at one way at most, and the shortest stride [rad or m], as the root of the sum of squares over joints.
LOOKS, SHORTEST = 64, 0.02
# With constraints: so many times as many shortcuts, of so much of the path at most [rad or m], as long ones leave them.
MORE, LONGEST = 20, 2.0
# What is looked at: ways between trees, shortcuts, chords of corners; and nothing more.
GROWING, SHORTENING, ROUNDING, DONE = range(4)


class Planned(NamedTuple):
    """What is known after a round.

    Attributes:
      stage (): int32.
      path: the waypoints.
      sizes (K,): of corners.
      status (): int32, of `Status`.
      attempts, looks (): int32, so far.
    """

    stage: jax.Array
    path: Path
    sizes: jax.Array
    status: jax.Array
    attempts: jax.Array
    looks: jax.Array


class State(NamedTuple):
    """A way from `begin` (nq,) to `end` (nq,), how far it is known to be free, and what it is looked at for.

    Attributes:
      aside (nq,): how far the path that is meant may be from the way.
      blocked (): whether an end of the motion is not free.
      looks (): int32, of this attempt.
    """

    stage: jax.Array
    begin: jax.Array
    end: jax.Array
    aside: jax.Array
    march: March
    trees: Trees
    path: Path
    cut: Cut
    rounding: Rounding
    blocked: jax.Array
    looks: jax.Array


@functools.cache
def planning_method(width: int) -> Method:
    """From a problem, both ends (nq,), a shift and options to what is `Planned`."""
    phase = Phase(
        active=lambda result: result.stage < DONE,
        init=_begun,
        step=_looked,
        ended=lambda state: state.stage == DONE,
        conclude=_concluded,
        attempts=True,
        repeated=True,
    )
    return Method(setting_of, _start, (phase,), lambda setting, result, record: result, width=width)


def _start(setting: Setting) -> Planned:
    points = jnp.broadcast_to(setting.first, (WAYPOINTS, *setting.first.shape))
    path = Path(points, jnp.ones((), jnp.int32))
    stage = jnp.where(setting.status == Status.CONVERGED, GROWING, DONE).astype(jnp.int32)
    zero = jnp.zeros((), jnp.int32)
    return Planned(stage, path, jnp.zeros(WAYPOINTS, points.dtype), setting.status, zero, zero)


def _begun(setting: Setting, result: Planned, number: jax.Array) -> State:
    trees, begin, end = planted(setting, number)
    cut = _proposed(setting, result.path, jnp.zeros((), jnp.int32))
    grows = result.stage == GROWING
    return State(
        stage=result.stage,
        begin=jnp.where(grows, begin, cut.begin),
        end=jnp.where(grows, end, cut.end),
        aside=jnp.zeros_like(begin),
        march=not_begun(nothing_seen(setting), begin.dtype),
        trees=trees,
        path=result.path,
        cut=cut,
        rounding=unrounded(result.path),
        blocked=jnp.zeros((), bool),
        looks=jnp.zeros((), jnp.int32),
    )


def _looked(setting: Setting, state: State) -> State:
    """One look further along the way; where that ends, what follows from it and the next way."""
    way, before = state.end - state.begin, state.march
    share = before.share + before.ahead
    seen = seen_at(setting, state.begin + share * way, before.ahead * way, state.aside, before.seen)
    length = length_of(way)
    shortest = SHORTEST * setting.unit / jnp.where(length > 0, length, 1)
    march = stride(before, seen.known, seen.free, seen.way_is_free, shortest)
    if setting.manifold is not None:
        longest = LONGEST_STRIDE * setting.unit / jnp.where(length > 0, length, 1)
        march = march._replace(ahead=jnp.minimum(march.ahead, longest))
    looks = state.looks + 1
    grows = state.stage == GROWING
    blocked = grows & (before.looks == 0) & (state.trees.near == 0) & ~seen.free
    # To look for where exactly it ends costs more looks than other ways do.
    over = (march.ahead == 0) | (march.looks == LOOKS) | ~seen.free
    after, still = _next(setting, state, march), state._replace(march=march)
    after = jax.tree.map(lambda new, old: jnp.where(over, new, old), after, still)
    ends = blocked | (after.stage == DONE) | grows & (looks >= setting.options.max_looks)
    stage = jnp.where(ends, DONE, after.stage).astype(jnp.int32)
    return after._replace(stage=stage, blocked=blocked, looks=looks)


def _next(setting: Setting, state: State, march: March) -> State:
    """What follows from a way that was free as far as it was marched along."""
    arrived = march.share == 1
    grows, shortens, rounds = (state.stage == stage for stage in (GROWING, SHORTENING, ROUNDING))
    trees, begin, end = grown(setting, state.trees, state.begin, march.share, state.end)
    path = shortened(state.path, state.cut, arrived & shortens)
    tried = state.cut.tried + shortens
    ready = (tried >= _shortcuts(setting)) | (path.number <= 2)
    cut = _proposed(setting, path, tried)
    rounding = rounded(path, state.rounding, arrived)
    rounding = jax.tree.map(lambda new, old: jnp.where(rounds, new, old), rounding, state.rounding)
    stage = jnp.where(shortens & ready, ROUNDING, state.stage)
    stage = jnp.where((stage == ROUNDING) & (rounding.corner >= path.number - 1), DONE, stage)
    stage = jnp.where(grows & (trees.joined | is_full(trees)), DONE, stage).astype(jnp.int32)
    chord = chord_of(path, rounding)
    along = stage == ROUNDING
    return State(
        stage=stage,
        begin=jnp.where(grows, begin, jnp.where(along, chord[0], cut.begin)),
        end=jnp.where(grows, end, jnp.where(along, chord[1], cut.end)),
        aside=jnp.where(along, chord[2], 0),
        march=not_begun(march.seen, march.share.dtype),
        trees=trees,
        path=path,
        cut=cut,
        rounding=rounding,
        blocked=state.blocked,
        looks=state.looks,
    )


def _proposed(setting: Setting, path: Path, tried: jax.Array) -> Cut:
    if setting.manifold is None:
        return proposed(path, setting.shift, tried)
    return proposed(path, setting.shift, tried, LONGEST * setting.unit)


def _shortcuts(setting: Setting) -> jax.Array:
    """How many shortcuts are tried ()."""
    return setting.options.shortcuts if setting.manifold is None else MORE * setting.options.shortcuts


def _concluded(setting: Setting, before: Planned, state: State) -> tuple[Planned, jax.Array]:
    """After an attempt of the first round the path through both trees; after the second, that as it is then."""
    grew, attempts = before.stage == GROWING, before.attempts + (before.stage == GROWING)
    points, number = path_through(state.trees)
    found = state.trees.joined & (number > 0)
    again = grew & ~found & ~state.blocked & (attempts < setting.options.max_attempts)
    stage = jnp.where(again, GROWING, jnp.where(grew & found & (number > 2), SHORTENING, DONE))
    failed = jnp.where(state.blocked, Status.COLLIDES, Status.TIMEOUT)
    status = jnp.where(grew & ~found, failed, Status.CONVERGED)
    joined = jax.tree.map(lambda new, old: jnp.where(found, new, old), Path(points, number), before.path)
    path = jax.tree.map(lambda new, old: jnp.where(grew, new, old), joined, state.path)
    stage, status = stage.astype(jnp.int32), status.astype(jnp.int32)
    return Planned(stage, path, state.rounding.sizes, status, attempts, before.looks + state.looks), again
