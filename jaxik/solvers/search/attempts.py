"""The first phases of a search: Gauss-Newton from one start after the other.

Where limits keep shapes apart, attempts do not look at these before they have a solution: that takes a thirtieth of the
time, and many of the solutions are free. Where one overlaps, that of another start is looked at; where so do all of the
first ones, solutions of further starts are moved out.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.method import Phase
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.element import Context, Result, SearchCounters, of_state
from jaxik.solvers.nonlinear.formulation import Formulation
from jaxik.solvers.nonlinear.gauss_newton import GAUSS_NEWTON
from jaxik.solvers.nonlinear.levenberg_marquardt import ROUGH, State, restarted
from jaxik.solvers.search import multistart

Names = functools.partial[Level]

# A step that looks at the distances of an arm among 20 obstacles takes 22 us, one that does not 0.7 us: attempts take
# these first, up to so many. Of 10,000 goals in five scenes, half of them missed by blind searches, a Panda's then take
# 0.5 to 0.7 of the time; with up to 30 blind steps up to 1.07 times as long as with 16, as lanes wait for each other.
BLIND_STEPS = 16
# Without others after them, so many at a time, then lanes that have ended take other elements.
BLIND_TURN = 4
# Of so many starts a blind solution that overlaps is left at once: to move one out takes up to 30 steps with distances,
# another start one. A UR5e, without a null space left, never needs it: with 16 it takes 0.43 of the time, with 8 0.6.
# A Panda takes 0.5 to 0.6. Where there are fewer starts, as of candidates that share them, Newton's steps move the best
# of them out: of 4 solutions of 200 goals in the cage 799 of 800 were found; with half of their starts left at once it
# were 798, in 1.2 times the time.
CHECKED = 16
# Every so many attempts look at distances from their start on: there may be no blind solution near a free one.
STEERED = 32


class _Apart(NamedTuple):
    """One attempt where limits keep shapes apart.

    `blind` (): its next step is one without distances. `only_blind` (): so are all, and it leads to a blind solution.
    """

    state: State
    blind: jax.Array
    only_blind: jax.Array


def first_phases(names: Names, apart: bool) -> tuple[Phase, ...]:
    """The attempts of a search on the rows of `names`; `apart`: limits keep shapes apart."""
    return (_apart(names),) if apart else (_attempts(names),)


def _attempts(names: Names) -> Phase:
    """From one start after the other, until one gets there."""

    def init(context: Context, result: Result, number: jax.Array) -> State:
        return _start(context, context.prepared, names, result.errors, number)

    def conclude(context: Context, so_far: Result, state: State) -> tuple[Result, jax.Array]:
        return _judged(context, context.prepared, names, _best(so_far), so_far, state)

    return Phase(
        active=None,
        init=init,
        step=lambda context, state: _step(context, context.prepared, names, state),
        ended=lambda state: state.ended,
        conclude=conclude,
        attempts=True,
    )


def _apart(names: Names) -> Phase:
    """To a blind solution; then with distances from it, and where it is too near from one start after the other.

    Where there is no blind solution, the first attempt with distances is the only one: it moves the best of them out.
    Both are rounds of one phase: as two of them, with blind steps in each, a program takes a fifth longer to compile.
    """

    def init(context: Context, result: Result, number: jax.Array) -> _Apart:
        only_blind = _nothing_tried(result)
        first = ~only_blind & (number == 0)
        steered = ~only_blind & jnp.where(first, ~result.met, number % STEERED == 0)
        # Blind attempts have had the starts before.
        number = jnp.where(first, 0, number + jnp.where(only_blind, 0, result.spent.starts - 1))
        state = _start(context, context.prepared, names, result.errors, number)
        return _Apart(state._replace(q=jnp.where(first, result.q, state.q)), ~steered, only_blind)

    def step(context: Context, attempt: _Apart) -> _Apart:
        state = _with_distances(context, attempt, _blind_steps(context, names, attempt))
        # A loop of at most one turn: none where no lane beside this one looks at distances.
        _, state = lax.while_loop(
            lambda carry: ~carry[0],
            lambda carry: (jnp.ones((), bool), _step_apart(context, names, carry[1])),
            (attempt.only_blind, state),
        )
        return _Apart(state, attempt.only_blind, attempt.only_blind)

    def conclude(context: Context, so_far: Result, attempt: _Apart) -> tuple[Result, jax.Array]:
        blind = _judged_blind(context, names, so_far, attempt.state)
        apart = _judged_apart(context, names, so_far, attempt.state)
        return jax.tree.map(lambda x, y: jnp.where(attempt.only_blind, x, y), blind, apart)

    return Phase(
        active=lambda result: _nothing_tried(result) | jnp.isfinite(result.cost),
        init=init,
        step=step,
        ended=lambda attempt: attempt.state.ended,
        conclude=conclude,
        attempts=True,
        rounds=2,
    )


def _nothing_tried(result: Result) -> jax.Array:
    return result.spent.starts == 0


def _blind_steps(context: Context, names: Names, attempt: _Apart) -> State:
    """Some steps without distances, if any; where others follow, all of them at once."""
    prepared = _without_distances(context)

    def going(carry: tuple[jax.Array, State]) -> jax.Array:
        count, state = carry
        more = jnp.where(attempt.only_blind, count < BLIND_TURN, state.iterations - state.before < BLIND_STEPS)
        return attempt.blind & ~state.ended & more

    def advance(carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
        count, state = carry
        return count + 1, _step(context, prepared, names, state)

    state, none = _seen_blind(prepared, names, attempt.state), jnp.zeros((), jnp.int32)
    blind = lax.while_loop(going, advance, (none, state))[1]
    # Rows of distances mean nothing before the first step with these.
    model = jax.tree.map(lambda new, x: jnp.concatenate([new, x[new.shape[0] :]]), blind.model, attempt.state.model)
    return blind._replace(model=model, errors=attempt.state.errors | blind.errors)


def _seen_blind(prepared: Formulation, names: Names, state: State) -> State:
    """A state with as many rows, and reports, as the problem without distances has."""
    empty = GAUSS_NEWTON.empty(prepared, state.q, names(prepared.levels))
    model = jax.tree.map(lambda x, whole: whole[: x.shape[0]], empty, state.model)
    return state._replace(model=model, errors=_reported(prepared, state))


def _with_distances(context: Context, attempt: _Apart, blind: State) -> State:
    """The state before the first step with distances, where one without leads; otherwise as it is."""
    starts = attempt.blind & ~attempt.only_blind
    state = restarted(blind, starts, context.options.initial_damping)
    # No steps are left to an attempt without a blind solution: few of them get anywhere.
    looks_once = ~blind.met | (blind.spent < CHECKED)
    left = jnp.where(starts & looks_once, context.starts.spread.steps, 0)
    polished = starts & blind.met & ~blind.crawling
    return state._replace(size=jnp.where(polished, blind.size, state.size), before=state.before - left)


def _step_apart(context: Context, names: Names, state: State) -> State:
    """One step with distances, which is the last where it finds a polished solution free."""
    moved = _step(context, context.prepared, names, state)
    free = jnp.isinf(state.cost) & moved.met & (state.size <= ROUGH)
    return moved._replace(size=jnp.where(free, state.size, moved.size), ended=moved.ended | free)


def _judged_blind(context: Context, names: Names, so_far: Result, state: State) -> tuple[Result, jax.Array]:
    prepared = _without_distances(context)
    known = so_far._replace(errors=_reported(prepared, so_far))
    state = _seen_blind(prepared, names, state)
    result, again = _judged(context, prepared, names, _best(known), known, state)
    return result._replace(errors=so_far.errors | result.errors, solved=jnp.zeros((), bool)), again


def _judged_apart(context: Context, names: Names, so_far: Result, state: State) -> tuple[Result, jax.Array]:
    first = state.spent == 0
    # Costs and errors of blind solutions are without distances.
    none = _best(so_far)._replace(cost=jnp.full_like(so_far.cost, jnp.inf), met=jnp.zeros_like(so_far.met))
    best = jax.tree.map(lambda new, old: jnp.where(first, new, old), none, _best(so_far))
    result, again = _judged(context, context.prepared, names, best, so_far, state)
    spent = result.spent._replace(starts=result.spent.starts - first)
    return result._replace(spent=spent), again & (so_far.met | ~first)


def _without_distances(context: Context) -> Formulation:
    assert context.blind is not None
    return context.blind


def _reported(prepared: Formulation, result: Result | State) -> dict[str, jax.Array]:
    """What the tasks of a formulation report."""
    return {name: result.errors[name] for name in prepared.problem.tasks}


def _best(result: Result) -> multistart.Best:
    return multistart.Best(result.q, result.cost, result.errors, result.met)


def _start(
    context: Context, prepared: Formulation, names: Names, errors: dict[str, jax.Array], number: jax.Array
) -> State:
    level = names(prepared.levels)
    return multistart.start(prepared, context.starts, context.q, errors, context.options, level, number)


def _step(context: Context, prepared: Formulation, names: Names, state: State) -> State:
    return multistart.step(prepared, state, context.starts, context.options, names(prepared.levels))


def _judged(
    context: Context, prepared: Formulation, names: Names, best: multistart.Best, so_far: Result, state: State
) -> tuple[Result, jax.Array]:
    """What an attempt leads to after the best of those before it, and whether another one is wanted.

    What comes after has steps of its own; Newton's tell whether the best failure could be no better.
    """
    tried = so_far.spent.starts
    verdict = multistart.judge(prepared, context.starts, names(prepared.levels), best, state, tried)
    result = of_state(state)._replace(
        q=verdict.best.q,
        cost=verdict.best.cost,
        errors=verdict.best.errors,
        met=verdict.best.met,
        crawling=verdict.unfinished,
        solved=verdict.best.met & ~verdict.unfinished,
        iterations=jnp.zeros_like(tried),
        spent=SearchCounters(so_far.spent.steps + state.iterations, tried + 1),
    )
    return result, verdict.again
