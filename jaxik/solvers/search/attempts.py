"""The first phases of a search: Gauss-Newton from one start after the other.

Where limits keep shapes apart, the first attempts do not look at these: that takes a thirtieth of the time, and most of
the solutions they find are free. Those that overlap are moved out, and where that fails blind solutions from other
starts are.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.method import Phase
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.element import Context, Result, SearchCounters, of_state
from jaxik.solvers.nonlinear.formulation import Formulation
from jaxik.solvers.nonlinear.levenberg_marquardt import ROUGH, State
from jaxik.solvers.search import multistart

Names = functools.partial[Level]

# A step that looks at the distances of an arm among 20 obstacles takes 22 us, one that does not 0.7 us: attempts take
# these first, up to so many. Of 10,000 goals in five scenes, half of them missed by blind searches, a Panda's then take
# 0.5 to 0.7 of the time; with up to 30 blind steps up to 1.07 times as long as with 16, as lanes wait for each other.
BLIND_STEPS = 16
# Every so many attempts look at distances from their start on: there may be no blind solution near a free one.
STEERED = 8


def first_phases(names: Names, apart: bool) -> tuple[Phase, ...]:
    """The attempts of a search on the rows of `names`; `apart`: limits keep shapes apart."""
    return (_blind(names), _apart(names)) if apart else (_attempts(names),)


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


def _blind(names: Names) -> Phase:
    """The same, of the problem without distances."""

    def init(context: Context, result: Result, number: jax.Array) -> State:
        prepared = _without_distances(context)
        return _start(context, prepared, names, _reported(prepared, result), number)

    def conclude(context: Context, so_far: Result, state: State) -> tuple[Result, jax.Array]:
        prepared = _without_distances(context)
        known = so_far._replace(errors=_reported(prepared, so_far))
        result, again = _judged(context, prepared, names, _best(known), known, state)
        return result._replace(errors=so_far.errors | result.errors, solved=jnp.zeros((), bool)), again

    return Phase(
        active=None,
        init=init,
        step=lambda context, state: _step(context, _without_distances(context), names, state),
        ended=lambda state: state.ended,
        conclude=conclude,
        attempts=True,
    )


def _apart(names: Names) -> Phase:
    """From the blind solution, and from that of one start after the other where it stays too near.

    Where there is no blind solution, the first attempt is the only one: it moves the best of them out.
    """

    def init(context: Context, result: Result, number: jax.Array) -> State:
        first, steered = number == 0, number % STEERED == 0
        # Blind attempts have had the starts before.
        number = jnp.where(first, 0, number + result.spent.starts - 1)
        blind = _blind_solution(context, names, result, number, steered)
        q, size = jnp.where(first, result.q, blind.q), jnp.where(first, result.size, blind.size)
        met, crawling = jnp.where(first, result.met, blind.met), jnp.where(first, result.crawling, blind.crawling)
        state = _start(context, context.prepared, names, result.errors, number)
        # No steps are left to an attempt without a blind solution: few of them get anywhere.
        lost = ~steered & ~blind.met
        return state._replace(
            q=q,
            # Of what is polished already: `step` then has nothing left to do where it is free as well.
            size=jnp.where(met & ~crawling, size, state.size),
            iterations=blind.iterations,
            before=blind.iterations - jnp.where(lost, context.starts.spread.steps, 0),
        )

    def step(context: Context, state: State) -> State:
        moved = _step(context, context.prepared, names, state)
        free = jnp.isinf(state.cost) & moved.met & (state.size <= ROUGH)
        return moved._replace(size=jnp.where(free, state.size, moved.size), ended=moved.ended | free)

    def conclude(context: Context, so_far: Result, state: State) -> tuple[Result, jax.Array]:
        first = state.spent == 0
        # Costs and errors of blind solutions are without distances.
        none = _best(so_far)._replace(cost=jnp.full_like(so_far.cost, jnp.inf), met=jnp.zeros_like(so_far.met))
        best = jax.tree.map(lambda new, old: jnp.where(first, new, old), none, _best(so_far))
        result, again = _judged(context, context.prepared, names, best, so_far, state)
        spent = result.spent._replace(starts=result.spent.starts - first)
        return result._replace(spent=spent), again & (so_far.met | ~first)

    return Phase(
        active=lambda result: jnp.isfinite(result.cost),
        init=init,
        step=step,
        ended=lambda state: state.ended,
        conclude=conclude,
        attempts=True,
    )


def _blind_solution(context: Context, names: Names, result: Result, number: jax.Array, steered: jax.Array) -> State:
    """What the steps of an attempt without distances lead to; its start where it is `steered` ()."""
    prepared = _without_distances(context)
    begun = _start(context, prepared, names, _reported(prepared, result), number)
    return lax.while_loop(
        lambda state: ~state.ended & (state.iterations - state.before < BLIND_STEPS),
        lambda state: _step(context, prepared, names, state),
        begun._replace(ended=steered),
    )


def _without_distances(context: Context) -> Formulation:
    assert context.blind is not None
    return context.blind


def _reported(prepared: Formulation, result: Result) -> dict[str, jax.Array]:
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
