"""How an element gets from its start to its solution: the highest level first, then each in what those leave free."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.method import Phase
from jaxik.problem.problem import Level, Problem
from jaxik.results.trace import row_of
from jaxik.solvers.nonlinear import levenberg_marquardt, nullspace_newton
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    errors,
    evaluate,
    formulation,
    project_start,
)
from jaxik.solvers.nonlinear.gauss_newton import GAUSS_NEWTON
from jaxik.solvers.nonlinear.newton import NEWTON
from jaxik.solvers.nonlinear.scaling import least_damping
from jaxik.solvers.options import SolveOptions

# Steps that approaching tasks and constraints together leaves for meeting the constraints.
RESERVED_STEPS = 10


class Context(NamedTuple):
    """One element's problem, where it starts, and whether that start was finite.

    Of a search, its other starts, and its problem without what keeps shapes apart, where something does.
    """

    prepared: Formulation
    q: jax.Array
    finite: jax.Array
    options: SolveOptions
    starts: Any = None
    blind: Formulation | None = None


class SearchCounters(NamedTuple):
    """What a search spent: steps (), and starts (), that it tried; none where there is no search."""

    steps: jax.Array
    starts: jax.Array


class Result(NamedTuple):
    """What is known of an element between and after the phases; `spent` is not part of `iterations`.

    `solved`: of a problem with constraints, the first phase met them and the tasks of the highest level, all within
    their tolerances and polished, so that nothing is left to do on these. `diverged`: of rules without an acceptance
    test.
    """

    q: jax.Array
    cost: jax.Array
    errors: Any
    size: jax.Array
    met: jax.Array
    crawling: jax.Array
    stationary: jax.Array
    solved: jax.Array
    iterations: jax.Array
    spent: SearchCounters
    diverged: jax.Array | None = None


def formulate(problem: Problem, q0: jax.Array, options: SolveOptions) -> Context:
    """What stays the same while an element is worked on."""
    prepared = formulation(problem)
    finite = jnp.isfinite(q0)
    q = project_start(prepared, jnp.where(finite, q0, problem.robot.q_home))
    return Context(prepared, q, jnp.all(finite), options)


def start(context: Context) -> Result:
    """Before the first phase, when nothing has been evaluated."""
    no, none = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    infinite = jnp.full((), jnp.inf, context.q.dtype)
    shapes = jax.eval_shape(lambda: errors(context.prepared, evaluate(context.prepared, context.q)))
    unknown = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
    diverged = None if context.options.step_rule == "lm" else no
    return Result(context.q, infinite, unknown, infinite, no, no, no, no, none, SearchCounters(none, none), diverged)


def of_state(state: levenberg_marquardt.State) -> Result:
    """The result of a phase of Levenberg-Marquardt."""
    return Result(
        q=state.q,
        cost=state.cost,
        errors=state.errors,
        size=state.size,
        met=state.met,
        crawling=levenberg_marquardt.unfinished(state),
        stationary=state.stationary,
        solved=jnp.zeros((), bool),
        iterations=state.iterations,
        spent=state.spent,
    )


def of_first_phase(state: levenberg_marquardt.State) -> Result:
    """The result of the first phase, after which an element may be solved."""
    result = of_state(state)
    return result._replace(solved=result.met & ~result.crawling)


def _of_level(state: nullspace_newton.State) -> Result:
    best = state.best
    return Result(
        q=best.q,
        cost=best.cost,
        errors=best.errors,
        size=state.size,
        met=state.required,
        crawling=jnp.zeros((), bool),
        stationary=state.stationary,
        solved=jnp.zeros((), bool),
        iterations=state.iterations,
        spent=state.spent,
    )


def only(result: Callable[[Any], Result]) -> Callable[..., tuple[Result, jax.Array]]:
    """The judge of a phase with one attempt."""
    return lambda context, so_far, state: (result(state), jnp.zeros((), bool))


def record_row(phase: int, before: levenberg_marquardt.State, after: levenberg_marquardt.State) -> Any:
    # What Newton evaluates first has its row already.
    told = (after.iterations > before.iterations) | before.met | (after.iterations == 0)
    return row_of(phase, after, after.cost, told)


def _record_level_row(phase: int, before: nullspace_newton.State, after: nullspace_newton.State) -> Any:
    return row_of(phase, after, after.best.cost, after.iterations > before.iterations)


def aimed(constrained: bool, levels: tuple[Level, ...]) -> Level:
    """The rows of the first phase: constraints with the tasks of the highest level.

    Constraints alone would be met wherever is nearest, from where the tasks may be out of reach.
    """
    return (*levels[0], *levels[1]) if constrained else levels[0]


def _gauss_newton(
    active: Callable[[Result], jax.Array] | None,
    names: Callable[..., Level],
    spare: int = 0,
    result: Callable[[levenberg_marquardt.State], Result] = of_state,
) -> Phase:
    """Gauss-Newton steps on the rows of `names`; `spare` of the element's steps are left for later phases."""

    def init(context: Context, so_far: Result, _: jax.Array) -> levenberg_marquardt.State:
        return levenberg_marquardt.start(
            context.prepared,
            so_far.q,
            so_far.errors,
            so_far.iterations,
            context.options.initial_damping,
            names(context.prepared.levels),
            so_far.spent,
            GAUSS_NEWTON,
        )

    def step(context: Context, state: levenberg_marquardt.State) -> levenberg_marquardt.State:
        options = _sparing(context.options, spare)
        return levenberg_marquardt.step(context.prepared, state, options, names(context.prepared.levels), GAUSS_NEWTON)

    return Phase(
        active=active,
        init=init,
        step=step,
        ended=lambda state: state.ended | state.crawling,
        conclude=only(result),
        record_row=functools.partial(record_row, 0),
    )


def _newton() -> Phase:
    """Newton steps, for the few elements that need them: side by side with Gauss-Newton each would cost both."""

    def init(context: Context, result: Result, _: jax.Array) -> levenberg_marquardt.State:
        prepared, dtype = context.prepared, result.q.dtype
        damping = jnp.asarray(least_damping(dtype), dtype)
        return levenberg_marquardt.start(
            prepared, result.q, result.errors, result.iterations, damping, prepared.levels[0], result.spent, NEWTON
        )

    def step(context: Context, state: levenberg_marquardt.State) -> levenberg_marquardt.State:
        return levenberg_marquardt.step(context.prepared, state, context.options, context.prepared.levels[0], NEWTON)

    return Phase(
        active=lambda result: result.crawling,
        init=init,
        step=step,
        ended=lambda state: state.ended,
        conclude=only(of_state),
        record_row=functools.partial(record_row, 1),
        width=64,
    )


def _lower(level: int, constrained: bool) -> Phase:
    """Null-space Newton steps on a level below the highest."""

    def active(result: Result) -> jax.Array:
        if level > 1:
            return result.stationary | result.solved
        # Constraints that cannot be met are kept as near as they get: tasks that they do not touch are still solved.
        reached = result.met | result.stationary
        return reached & ~result.solved if constrained else reached

    def init(context: Context, result: Result, _: jax.Array) -> nullspace_newton.State:
        return nullspace_newton.start(context.prepared, result.q, result.errors, result.iterations, result.spent, level)

    return Phase(
        active=active,
        init=init,
        step=lambda context, state: nullspace_newton.step(context.prepared, state, context.options, level),
        ended=lambda state: state.ended,
        conclude=only(_of_level),
        record_row=functools.partial(_record_level_row, 1 + level),
        width=64,
    )


def phases(level_count: int, constrained: bool, first: tuple[Phase, ...] = ()) -> tuple[Phase, ...]:
    """The highest level, and then each in what those above leave free; `first` in place of the first phase."""
    spare = RESERVED_STEPS if constrained else 0
    aim = (_gauss_newton(None, functools.partial(aimed, constrained), spare, of_first_phase),)
    meet = _gauss_newton(lambda result: jnp.isfinite(result.cost) & ~result.solved, lambda levels: levels[0])
    highest = (*(first or aim), meet, _newton()) if constrained else (*(first or aim), _newton())
    return (*highest, *(_lower(level, constrained) for level in range(1, level_count)))


def _sparing(options: SolveOptions, steps: int) -> SolveOptions:
    """The options with some of the steps, at most half of them, left for later."""
    most = options.max_steps
    return dataclasses.replace(options, max_steps=most - jnp.minimum(steps, most // 2)) if steps else options
