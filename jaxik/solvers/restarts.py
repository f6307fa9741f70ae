"""Gauss-Newton from one start after the other, until one of them gets there and settles.

Restarting what is unsolved beats beams: an attempt that will get there does so in a dozen steps, and one that will not
shows it as early.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.evaluation import Prepared, has_tolerances, met
from jaxik.linalg import computed_once
from jaxik.problem import Level
from jaxik.solvers import levenberg_marquardt
from jaxik.solvers.levenberg_marquardt import gauss_newton, restarted, start_gauss_newton, unfinished
from jaxik.solvers.options import SolveOptions
from jaxik.solvers.starts import Starts, start_of

# Steps of all attempts together are bounded by their number, and those of each.
UNBOUNDED = 2**31 - 1
# A solution that polishing leaves rough, as a stretched elbow does, is kept while other attempts, up to this many in
# all, look for one that is not: within 1e-5 m and rad are then 99.96 % of Gen3 targets not 99.4, for 0.2 steps each.
SECOND_LOOKS = 8


class Best(NamedTuple):
    """The best configuration of all attempts that were not good enough.

    Attributes:
      q (nq,), cost (), errors: the configuration, its cost, infinite before there is any, and what tasks report there.
      met (): whether it meets every tolerance, but stands where polishing it gets nowhere.
    """

    q: jax.Array
    cost: jax.Array
    errors: Any
    met: jax.Array


class State(NamedTuple):
    """One element between two steps.

    Attributes:
      attempt: the one that is under way.
      best: of those before it.
      turn (): how many were before it, int32.
      found, ended (): it got there; nothing is left to do.
    """

    attempt: levenberg_marquardt.State
    best: Best
    turn: jax.Array
    found: jax.Array
    ended: jax.Array


def start(
    prepared: Prepared, starts: Starts, base: jax.Array, errors: Any, options: SolveOptions, level: Level, spent: Any
) -> State:
    """Before the first step of the first attempt.

    Args:
      base (nq,): where the degrees of freedom stand that do not take part.
      options: of each attempt.
    """
    none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    q = start_of(prepared, starts, base, none)
    attempt = start_gauss_newton(prepared, q, errors, none, options.initial_damping, level, spent)
    return State(attempt, Best(q, attempt.cost, errors, no), none, no, no)


def step(
    prepared: Prepared, state: State, starts: Starts, base: jax.Array, options: SolveOptions, level: Level
) -> State:
    """One step of the attempt that is under way; where it fails, the next one begins."""
    moved = gauss_newton(prepared, state.attempt, dataclasses.replace(options, max_steps=UNBOUNDED), level)
    over = moved.crawling | (moved.iterations - moved.before >= starts.spread.steps)
    # Without tolerances, what tells that it is there is that it settles, and that the tasks that have one meet it.
    there = moved.crawling & (not has_tolerances(prepared.problem, level)) & met(prepared, moved.errors, level)
    failed = over & ~moved.met & ~moved.ended & ~there
    rough = moved.ended & moved.met & unfinished(moved)
    left = computed_once(failed | rough)
    this = _of(moved)
    better = (this.met & ~state.best.met) | ((this.met == state.best.met) & (this.cost < state.best.cost))
    best = _where(left & better, this, state.best)
    following = state.turn + 1
    exhausted = following >= jnp.where(best.met, jnp.minimum(SECOND_LOOKS, starts.spread.count), starts.spread.count)
    again = computed_once(left & ~exhausted)
    fresh = restarted(moved, start_of(prepared, starts, base, following), options.initial_damping)
    return State(
        attempt=_where(again, fresh, moved),
        best=best,
        turn=jnp.where(again, following, state.turn),
        found=~left & (moved.met | there),
        ended=~again & (moved.ended | there | left),
    )


def outcome(state: State) -> tuple[Best, jax.Array]:
    """The best configuration of all attempts, and whether Newton is to go on there."""
    best = _where(state.found, _of(state.attempt), state.best)
    return best, jnp.isfinite(best.cost) & ~(state.found & best.met)


def _of(attempt: levenberg_marquardt.State) -> Best:
    return Best(attempt.q, attempt.cost, attempt.errors, attempt.met)


def _where(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)
