"""Gauss-Newton from one start after the other, until one of them gets there and settles.

Restarting what is unsolved beats beams: an attempt that will get there does so in a dozen steps, and one that will not
shows it as early.

Where constraints hold and no task has a tolerance, as a posture beside the pose of a hand, what is there meets the
constraints: an attempt approaches both, with half of its steps at most, and then meets these alone.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.problem.problem import Level, Problem, levels
from jaxik.solvers.nonlinear import levenberg_marquardt
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    hard_constraints,
    has_tolerances,
    inside_elastic_limits,
    met,
)
from jaxik.solvers.nonlinear.gauss_newton import GAUSS_NEWTON, gauss_newton
from jaxik.solvers.nonlinear.hard_constraint import clearances
from jaxik.solvers.nonlinear.levenberg_marquardt import State, unfinished
from jaxik.solvers.options import SolveOptions
from jaxik.solvers.search.starts import StartSet, start_of

# An attempt ends with a step that promises less than this share of the cost: of a dual arm's from anywhere 28 % reach
# their targets, in 43 steps for each that does, where 0.002 ends them 29 %, in 49. With 0.1 they take 40, and of 4,096
# goals in a cage one more is missed.
HASTY = gauss_newton(0.03)
# Steps of all attempts together are bounded by their number, and those of each.
UNBOUNDED = 2**31 - 1
# A solution that polishing leaves rough, as a stretched elbow does, is kept while other attempts, up to this many in
# all, look for one that is not: within 1e-5 m and rad are then 99.96 % of Gen3 targets not 99.4, for 0.2 steps each.
EXTRA_STARTS = 8
# Where nothing at all can be evaluated at so many starts, something that was given is not finite.
BLIND_STARTS = 16


class Attempt(NamedTuple):
    """Which attempt it is (), from 0 on, and whether constraints and distances count alone (); None: they never do."""

    number: jax.Array
    meeting: jax.Array | None


class Best(NamedTuple):
    """The best configuration of the attempts so far.

    Attributes:
      q (nq,), cost (), errors: the configuration, its cost, infinite before there is any, and what tasks report there.
      met (): whether it meets every tolerance. Cost and tolerances are those of constraints where these suffice.
    """

    q: jax.Array
    cost: jax.Array
    errors: Any
    met: jax.Array


class Verdict(NamedTuple):
    """What an attempt leads to.

    Attributes:
      best: the configuration to go on with.
      again (): whether another attempt is to be made.
      unfinished (): if not, whether Newton's steps are to go on at the best.
    """

    best: Best
    again: jax.Array
    unfinished: jax.Array


def start(
    prepared: Formulation,
    starts: StartSet,
    base: jax.Array,
    errors: Any,
    options: SolveOptions,
    level: Level,
    number: jax.Array,
) -> State:
    """Before the first step of an attempt; that a later one evaluates its start counts as a step.

    Args:
      base (nq,): where the degrees of freedom stand that do not take part.
      number (): of the attempt, from 0 on.
    """
    none = jnp.zeros((), jnp.int32)
    q = start_of(prepared, starts, base, number)
    attempt = Attempt(number, jnp.zeros((), bool) if constraints_suffice(prepared.problem) else None)
    state = levenberg_marquardt.start(prepared, q, errors, none, options.initial_damping, level, attempt, GAUSS_NEWTON)
    return state._replace(iterations=jnp.minimum(number, 1))


def step(prepared: Formulation, state: State, starts: StartSet, options: SolveOptions, level: Level) -> State:
    """One step of an attempt, which ends where it crawls or takes too long."""
    options, meeting = dataclasses.replace(options, max_steps=UNBOUNDED), state.spent.meeting
    held = (*hard_constraints(prepared.problem), *clearances(prepared.problem))
    rule = HASTY if has_tolerances(prepared.problem, level) else GAUSS_NEWTON
    moved = levenberg_marquardt.step(prepared, state, options, level, rule, meeting, held)
    most = starts.spread.steps if meeting is None else jnp.where(meeting, starts.spread.steps, starts.spread.steps // 2)
    late = moved.iterations - moved.before >= most
    moved = moved._replace(ended=moved.ended | moved.crawling | (late & ~moved.met))
    if meeting is None:
        return moved
    turns = moved.ended & ~meeting & jnp.isfinite(moved.cost)
    moved = levenberg_marquardt.restarted(moved, turns, options.initial_damping)
    return moved._replace(before=state.before, spent=state.spent._replace(meeting=meeting | turns))


def constraints_suffice(problem: Problem) -> bool:
    """Whether what meets the constraints and is free is a solution: no task of the highest priority has a tolerance."""
    if not hard_constraints(problem):
        return False
    aims = (name for name in levels(problem)[1] if name not in clearances(problem))
    return all(problem.tasks[name].tolerances() is None for name in aims)


def judge(
    prepared: Formulation, starts: StartSet, level: Level, best: Best, state: State, number: jax.Array
) -> Verdict:
    """What an attempt that has ended leads to, after the best of those before it."""
    # Without tolerances, what tells that it is there is that it settles, and that the tasks that have one meet it.
    there = state.crawling & (not has_tolerances(prepared.problem, level)) & met(prepared, state.errors, level)
    settled = (state.met & ~unfinished(state)) | there
    found = settled & jnp.isfinite(state.cost)
    this = Best(state.q, state.cost, state.errors, state.met)
    better = found | (this.met & ~best.met) | ((this.met == best.met) & (this.cost < best.cost))
    if prepared.elastic is not None:
        # An attempt inside of limits that yield may be better than one that is met beyond them.
        here, there = (x.cost + prepared.elastic.cost(x.q) for x in (this, best))
        better = (found & inside_elastic_limits(prepared, this.q)) | (here < there)
        found = found & better
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), this, best)
    bound = jnp.where(best.met, EXTRA_STARTS, jnp.where(jnp.isfinite(best.cost), UNBOUNDED, BLIND_STARTS))
    again = ~found & (number + 1 < jnp.minimum(bound, starts.spread.count))
    return Verdict(best, again, jnp.isfinite(best.cost) & ~(found & best.met))
