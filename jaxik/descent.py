"""How an element gets from its start to its solution: the highest level first, then each in what those leave free."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.coordinates import carried
from jaxik.evaluation import Prepared, errors, evaluate, has_tolerances, held_by, met, placed, prepare, rows, wanted_of
from jaxik.problem import Level, Problem
from jaxik.solution import Solution
from jaxik.solvers import levels, levenberg_marquardt, restarts
from jaxik.solvers.loop import Method, Phase
from jaxik.solvers.options import SolveOptions
from jaxik.solvers.preference import merit, turned
from jaxik.solvers.starts import Spread, Starts, starts_of
from jaxik.status import Derivative, Status
from jaxik.tasks.parts import part_units
from jaxik.trace import empty_record, row_of, trace_of

# How far constraints may be off [m or rad], in float32 and float64.
FEASIBLE = (1e-5, 1e-9)
# Steps that approaching tasks and constraints together leaves for meeting the constraints.
SPARE = 10


class Context(NamedTuple):
    """One element's problem, where it starts, whether that start was finite, and, of a search, its other starts."""

    prepared: Prepared
    q: jax.Array
    finite: jax.Array
    options: SolveOptions
    starts: Starts | None


class Spent(NamedTuple):
    """What a search spent: steps (), and starts (), that it tried; none where there is no search."""

    steps: jax.Array
    starts: jax.Array


class Result(NamedTuple):
    """What is known of an element between and after the phases; `spent` is not part of `iterations`."""

    q: jax.Array
    cost: jax.Array
    errors: Any
    size: jax.Array
    met: jax.Array
    crawling: jax.Array
    stationary: jax.Array
    iterations: jax.Array
    spent: Spent


class Found(NamedTuple):
    """A solution, the cost () of its highest level, and what a search wants to be small ()."""

    solution: Solution
    first_cost: jax.Array
    merit: jax.Array


def _prepare(problem: Problem, q0: jax.Array, options: SolveOptions, spread: Spread | None = None) -> Context:
    prepared = prepare(problem)
    finite = jnp.isfinite(q0)
    q = placed(prepared, jnp.where(finite, q0, problem.robot.q_home))
    starts = None if spread is None else starts_of(prepared, spread)
    return Context(prepared, q, jnp.all(finite), options, starts)


def _start(context: Context) -> Result:
    no, none = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    infinite = jnp.full((), jnp.inf, context.q.dtype)
    shapes = jax.eval_shape(lambda: errors(context.prepared, evaluate(context.prepared, context.q)))
    unknown = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
    return Result(context.q, infinite, unknown, infinite, no, no, no, none, Spent(none, none))


def _result(state: levenberg_marquardt.State) -> Result:
    return Result(
        q=state.q,
        cost=state.cost,
        errors=state.errors,
        size=state.size,
        met=state.met,
        crawling=levenberg_marquardt.unfinished(state),
        stationary=state.stationary,
        iterations=state.iterations,
        spent=state.spent,
    )


def _judge_attempt(
    context: Context, starts: Starts, level: Level, so_far: Result, state: levenberg_marquardt.State
) -> tuple[Result, jax.Array]:
    """What comes after has steps of its own; Newton's tell whether the best failure could be no better."""
    tried = so_far.spent.starts
    best = restarts.Best(so_far.q, so_far.cost, so_far.errors, so_far.met)
    verdict = restarts.judge(context.prepared, starts, level, best, state, tried)
    result = _result(state)._replace(
        q=verdict.best.q,
        cost=verdict.best.cost,
        errors=verdict.best.errors,
        met=verdict.best.met,
        crawling=verdict.unfinished,
        iterations=jnp.zeros_like(tried),
        spent=Spent(so_far.spent.steps + state.iterations, tried + 1),
    )
    return result, verdict.again


def _level_result(state: levels.State) -> Result:
    best = state.best
    return Result(
        q=best.q,
        cost=best.cost,
        errors=best.errors,
        size=state.size,
        met=state.required,
        crawling=jnp.zeros((), bool),
        stationary=state.stationary,
        iterations=state.iterations,
        spent=state.spent,
    )


def _only(result: Callable[[Any], Result]) -> Callable[..., tuple[Result, jax.Array]]:
    """The judge of a phase with one attempt."""
    return lambda context, so_far, state: (result(state), jnp.zeros((), bool))


def _watch(phase: int, before: levenberg_marquardt.State, after: levenberg_marquardt.State) -> Any:
    # What Newton evaluates first has its row already.
    told = (after.iterations > before.iterations) | before.met | (after.iterations == 0)
    return row_of(phase, after, after.cost, told)


def _watch_level(phase: int, before: levels.State, after: levels.State) -> Any:
    return row_of(phase, after, after.best.cost, after.iterations > before.iterations)


def _answer(prefer: str | None, context: Context, result: Result, record: jax.Array | None) -> Found:
    prepared, residuals = context.prepared, result.errors
    problem, held = prepared.problem, held_by(prepared.problem)
    every = wanted_of(problem)
    cost, first_cost, settled = result.cost, result.cost, result.stationary
    if has_tolerances(problem, every):
        settled = settled | result.met
    if len(prepared.levels) > 1:
        kin = evaluate(prepared, result.q)
        cost, first_cost = (
            jnp.where(jnp.isfinite(cost), 0.5 * jnp.sum(rows(prepared, kin, names).residual ** 2), cost)
            for names in (every, prepared.levels[0])
        )
    status = jnp.where(result.stationary, Status.STALLED, Status.TIMEOUT)
    status = jnp.where(settled & met(prepared, residuals, every), Status.CONVERGED, status)
    if held:
        lost = jnp.where(result.stationary, Status.INFEASIBLE, Status.TIMEOUT)
        status = jnp.where(met(prepared, residuals, held), status, lost)
    if prepared.moving.couplings:
        # No place of the leaders leaves all followers inside their limits.
        off = jnp.max(jnp.abs(carried(prepared.robot, prepared.moving, result.q) - result.q))
        status = jnp.where(off > FEASIBLE[off.dtype == jnp.float64], Status.INFEASIBLE, status)
    status = jnp.where(context.finite & jnp.isfinite(cost), status, Status.NONFINITE)
    residuals = {name: value for name, value in residuals.items() if name not in prepared.slack}
    q, wanted = result.q[: problem.robot.nq], cost
    # A joint limit that is NaN is nowhere to move a start to.
    q = jnp.where(jnp.isfinite(q), q, problem.robot.q_home)
    if prefer is not None and context.starts is not None:
        reference = context.starts.spread.reference
        q = turned(prepared, q, reference)
        wanted = merit(prefer, prepared, q, cost, reference)
    solution = Solution(
        q=q,
        status=status.astype(jnp.int32),
        residuals=residuals,
        iterations=result.iterations + result.spent.steps,
        starts=jnp.maximum(result.spent.starts, 1),
        cost=cost,
        stationarity=result.size,
        derivative=jnp.full((), Derivative.UNASKED, jnp.int32),
        trace=None if record is None else trace_of(record),
        topology=problem.robot.topology,
        residual_units=part_units(problem.tasks, residuals),
    )
    return Found(solution, first_cost, wanted)


def _phases(level_count: int, constrained: bool, searching: bool) -> tuple[Phase, ...]:
    """The highest level first, and then each in what those above leave free."""

    def gauss_newton(place: int, wants: Any, names: Any, spare: int = 0) -> Phase:
        return Phase(
            wants=wants,
            init=lambda context, result, _: levenberg_marquardt.start_gauss_newton(
                context.prepared,
                result.q,
                result.errors,
                result.iterations,
                context.options.initial_damping,
                names(context.prepared.levels),
                result.spent,
            ),
            step=lambda context, state: levenberg_marquardt.gauss_newton(
                context.prepared, state, _sparing(context.options, spare), names(context.prepared.levels)
            ),
            ended=lambda state: state.ended | state.crawling,
            judge=_only(_result),
            watch=functools.partial(_watch, place),
        )

    # Newton steps come after Gauss-Newton, for the few elements that need them: side by side, each would cost both.
    newton = Phase(
        wants=lambda result: result.crawling,
        init=lambda context, result, _: levenberg_marquardt.start_newton(
            context.prepared, result.q, result.errors, result.iterations, result.spent
        ),
        step=lambda context, state: levenberg_marquardt.newton(
            context.prepared, state, context.options, context.prepared.levels[0]
        ),
        ended=lambda state: state.ended,
        judge=_only(_result),
        watch=functools.partial(_watch, 1),
        width=64,
    )

    # Constraints alone would be met wherever is nearest, from where the tasks may be out of reach.
    def aimed(levels: tuple[Level, ...]) -> Level:
        return (*levels[0], *levels[1]) if constrained else levels[0]

    search = Phase(
        wants=_unseen,
        init=lambda context, result, number: restarts.start(
            context.prepared,
            context.starts,
            context.q,
            result.errors,
            context.options,
            aimed(context.prepared.levels),
            number,
        ),
        step=lambda context, state: restarts.step(
            context.prepared, state, context.starts, context.options, aimed(context.prepared.levels)
        ),
        ended=lambda state: state.ended,
        judge=lambda context, result, state: _judge_attempt(
            context, context.starts, aimed(context.prepared.levels), result, state
        ),
        attempts=True,
    )
    aim = search if searching else gauss_newton(0, _unseen, aimed, spare=SPARE if constrained else 0)
    meet = gauss_newton(0, lambda result: jnp.isfinite(result.cost), lambda levels: levels[0])
    first = (aim, meet, newton) if constrained else (aim, newton)

    def lower(level: int) -> Phase:
        return Phase(
            wants=lambda result: (
                result.stationary if level > 1 else result.met if constrained else result.met | result.stationary
            ),
            init=lambda context, result, _: levels.start(
                context.prepared, result.q, result.errors, result.iterations, result.spent, level
            ),
            step=lambda context, state: levels.step(context.prepared, state, context.options, level),
            ended=lambda state: state.ended,
            judge=_only(_level_result),
            watch=functools.partial(_watch_level, 1 + level),
            width=64,
        )

    return (*first, *(lower(level) for level in range(1, level_count)))


def _sparing(options: SolveOptions, steps: int) -> SolveOptions:
    """The options with some of the steps, at most half of them, left for later."""
    most = options.max_steps
    return dataclasses.replace(options, max_steps=most - jnp.minimum(steps, most // 2)) if steps else options


def _unseen(result: Result) -> jax.Array:
    return (result.iterations == 0) & jnp.isinf(result.cost)


@functools.cache
def descent(level_count: int, constrained: bool, *, prefer: str | None = None, traced_steps: int = 0) -> Method:
    """From a problem, a configuration (nq,), options, and of a search its `Spread`, to what is `Found`.

    Args:
      prefer: what a search prefers among its solutions; None: it is no search.
    """
    record = (lambda context: empty_record(traced_steps, context.q.dtype)) if traced_steps else None
    phases = _phases(level_count, constrained, prefer is not None)
    return Method(_prepare, _start, phases, functools.partial(_answer, prefer), record)
