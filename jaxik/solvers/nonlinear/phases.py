"""How an element gets from its start to its solution: the highest level first, then each in what those leave free."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.method import Phase
from jaxik.problem.problem import Level, with_dof_mask
from jaxik.results.trace import row_of
from jaxik.solvers.nonlinear import chain_steps, exact_penalty, levenberg_marquardt, nullspace_newton
from jaxik.solvers.nonlinear.chain_steps import Outcome
from jaxik.solvers.nonlinear.element import Context, Result, of_chains, of_level, of_state, split_of
from jaxik.solvers.nonlinear.formulation import Formulation, errors, evaluate, hard_constraints
from jaxik.solvers.nonlinear.gauss_newton import GAUSS_NEWTON
from jaxik.solvers.nonlinear.newton import NEWTON
from jaxik.solvers.nonlinear.penalties import Violations, as_yielded, violations
from jaxik.solvers.nonlinear.scaling import least_damping
from jaxik.solvers.options import SolveOptions

# Steps that approaching tasks and constraints together leaves for meeting the constraints.
RESERVED_STEPS = 10


def only(result: Callable[[Any], Result]) -> Callable[..., tuple[Result, jax.Array]]:
    """`conclude` of a phase with one attempt."""
    return lambda context, so_far, state: (result(state), jnp.zeros((), bool))


def record_row(phase: int, before: levenberg_marquardt.State, after: levenberg_marquardt.State) -> Any:
    before, after = (chain_steps.overview(state) if state.cost.ndim else state for state in (before, after))
    # What Newton evaluates first has its row already.
    told = (after.iterations > before.iterations) | before.met | (after.iterations == 0)
    return row_of(phase, after, after.cost, told)


def _record_level_row(phase: int, before: nullspace_newton.State, after: nullspace_newton.State) -> Any:
    return row_of(phase, after, after.best.cost, after.iterations > before.iterations)


def _record_penalty_row(before: exact_penalty.State, after: exact_penalty.State) -> Any:
    return row_of(1, after, after.cost, after.iterations > before.iterations)


def aimed(constrained: bool, levels: tuple[Level, ...]) -> Level:
    """The rows of the first phase: constraints with the tasks of the highest level.

    Constraints alone would be met wherever is nearest, from where the tasks may be out of reach.
    """
    return (*levels[0], *levels[1]) if constrained else levels[0]


def _gauss_newton(
    active: Callable[[Result], jax.Array] | None,
    names: Callable[..., Level],
) -> Phase:
    """Gauss-Newton steps on the rows of `names`."""
    return _steps(
        GAUSS_NEWTON,
        names,
        # Chains that are met already wait for the others.
        lambda chains: chains.solved,
        lambda context, so_far: context.options.initial_damping,
        active=active,
        ended=lambda state: chain_steps.ended(state) if state.cost.ndim else state.ended | state.crawling,
        record_row=functools.partial(record_row, 0),
    )


def _newton() -> Phase:
    """Newton steps, for the few elements that need them: side by side with Gauss-Newton each would cost both."""

    def damping(context: Context, so_far: Result) -> jax.Array:
        dtype = so_far.q.dtype
        return jnp.asarray(least_damping(dtype), dtype)

    return _steps(
        NEWTON,
        lambda levels: levels[0],
        lambda chains: ~chains.crawling,
        damping,
        active=lambda result: result.crawling,
        ended=lambda state: jnp.all(state.ended) if state.cost.ndim else state.ended,
        record_row=functools.partial(record_row, 1),
    )


def _steps(
    rule: levenberg_marquardt.Rule,
    names: Callable[..., Level],
    waits: Callable[[Outcome], jax.Array],
    damping: Callable[[Context, Result], jax.Array],
    **fields: Any,
) -> Phase:
    """A phase of steps by a rule on the rows of `names`; `waits`: which chains do not take part; `fields`: of it."""

    def init(context: Context, so_far: Result, _: jax.Array) -> levenberg_marquardt.State:
        return _started(context, so_far, rule, names(context.prepared.levels), waits, damping(context, so_far))

    def step(context: Context, state: levenberg_marquardt.State) -> levenberg_marquardt.State:
        prepared, options, level = context.prepared, context.options, names(context.prepared.levels)
        if (split := split_of(context)) is not None:
            return chain_steps.step(prepared, split, state, options, level, rule)
        return levenberg_marquardt.step(prepared, state, options, level, rule)

    def conclude(context: Context, so_far: Result, state: levenberg_marquardt.State) -> tuple[Result, jax.Array]:
        if (chains := so_far.chains) is not None:
            solved = jnp.zeros_like(state.met)
            return of_chains(state, chain_steps.outcome_of(state, chains, waits(chains), solved)), jnp.zeros((), bool)
        return of_state(state), jnp.zeros((), bool)

    return Phase(init=init, step=step, conclude=conclude, **fields)


def _started(
    context: Context,
    so_far: Result,
    rule: levenberg_marquardt.Rule,
    level: Level,
    waits: Callable[[Outcome], jax.Array],
    damping: Any,
) -> levenberg_marquardt.State:
    """Before the first step of a phase, of each chain where there are several."""
    prepared, q, errors, spent = context.prepared, so_far.q, so_far.errors, so_far.spent
    if (split := split_of(context)) is not None and (chains := so_far.chains) is not None:
        return chain_steps.start(prepared, split, q, errors, chains, waits(chains), damping, level, spent, rule)
    return levenberg_marquardt.start(prepared, q, errors, so_far.iterations, damping, level, spent, rule)


class _Approach(NamedTuple):
    """Steps of Gauss-Newton, and whether they meet the constraints alone (), of each chain where there are several."""

    state: levenberg_marquardt.State
    meeting: jax.Array


def _approach(meets: bool = True, constrained: bool = True) -> Phase:
    """Gauss-Newton steps on constraints and tasks together, then, where that has not solved them, on constraints alone.

    Of the element's steps some are left for those. One program does both: a second one would be another 400 kernels.
    Constraints of which some may yield are not met alone (`meets`), nor are joint limits, where there are no others
    (`constrained`).
    """

    def solved(approach: _Approach) -> jax.Array:
        state, meeting = approach
        return state.met & ~levenberg_marquardt.unfinished(state) & ~meeting

    def over(approach: _Approach) -> jax.Array:
        """Whether what is done now is done."""
        return approach.state.ended | approach.state.crawling

    def turns(approach: _Approach) -> jax.Array:
        unsolved = ~approach.meeting & ~solved(approach) & jnp.isfinite(approach.state.cost)
        return over(approach) & unsolved if meets else jnp.zeros_like(unsolved)

    def init(context: Context, so_far: Result, _: jax.Array) -> _Approach:
        level, damping = aimed(constrained, context.prepared.levels), context.options.initial_damping
        state = _started(context, so_far, GAUSS_NEWTON, level, lambda chains: chains.solved, damping)
        return _Approach(state, jnp.zeros_like(state.met))

    def step(context: Context, approach: _Approach) -> _Approach:
        prepared, level, again = context.prepared, aimed(constrained, context.prepared.levels), turns(approach)
        meeting = approach.meeting | again
        state = levenberg_marquardt.restarted(approach.state, again, context.options.initial_damping)
        options = _sparing(context.options, jnp.where(meeting, 0, RESERVED_STEPS))
        if (split := split_of(context)) is not None:
            moved = chain_steps.step(prepared, split, state, options, level, GAUSS_NEWTON, meeting)
        else:
            alone = meeting if constrained else None
            held = hard_constraints(prepared.problem)
            moved = levenberg_marquardt.step(prepared, state, options, level, GAUSS_NEWTON, alone, held)
        return _Approach(moved, meeting)

    def conclude(context: Context, so_far: Result, approach: _Approach) -> tuple[Result, jax.Array]:
        state, done = approach.state, solved(approach)
        if (chains := so_far.chains) is not None:
            return of_chains(state, chain_steps.outcome_of(state, chains, chains.solved, done)), jnp.zeros((), bool)
        return of_state(state)._replace(solved=done), jnp.zeros((), bool)

    def recorded(before: _Approach, after: _Approach) -> Any:
        # What is evaluated first on the constraints alone has its row already.
        turned = after.meeting & ~before.meeting
        return record_row(0, before.state._replace(met=before.state.met & ~turned), after.state)

    return Phase(
        active=None,
        init=init,
        step=step,
        ended=lambda approach: jnp.all(over(approach) & ~turns(approach)),
        conclude=conclude,
        record_row=recorded,
    )


class _Lower(NamedTuple):
    """One element on a lower level: what moves (nv,), if not all does, and what has yielded, if anything may."""

    moving: jax.Array | None
    yielded: Violations | None
    state: nullspace_newton.State


def _lower(level: int, constrained: bool, yields: bool) -> Phase:
    """Null-space Newton steps on a level below the highest."""
    task_level = 1 if constrained else 0

    def active(result: Result) -> jax.Array:
        if level > 1 or yields:
            return result.stationary | result.solved
        # Constraints that cannot be met are kept as near as they get: tasks that they do not touch are still solved.
        reached = result.met | result.stationary
        return reached & ~result.solved if constrained else reached

    def formulated(context: Context, moving: jax.Array | None, yielded: Violations | None) -> Formulation:
        prepared = context.prepared if yielded is None else as_yielded(context.prepared, yielded)
        if moving is None:
            return prepared
        return dataclasses.replace(prepared, problem=with_dof_mask(prepared.problem, moving))

    def init(context: Context, result: Result, _: jax.Array) -> _Lower:
        moving, split, prepared = None, split_of(context), context.prepared
        if level == task_level and split is not None and result.chains is not None:
            # Chains that the first phase has solved stay where they are.
            moving = chain_steps.moving_alone(prepared, split, result.chains.solved)
        yielded = violations(prepared, result.q, result.errors) if yields else None
        args = result.q, result.errors, result.iterations, result.spent
        return _Lower(moving, yielded, nullspace_newton.start(formulated(context, None, yielded), *args, level))

    def step(context: Context, lower: _Lower) -> _Lower:
        prepared = formulated(context, lower.moving, lower.yielded)
        return lower._replace(state=nullspace_newton.step(prepared, lower.state, context.options, level))

    def conclude(context: Context, so_far: Result, lower: _Lower) -> tuple[Result, jax.Array]:
        result = of_level(so_far, lower.moving, lower.state)
        if yields:
            result = result._replace(errors=errors(context.prepared, evaluate(context.prepared, result.q)))
        return result, jnp.zeros((), bool)

    return Phase(
        active=active,
        init=init,
        step=step,
        ended=lambda lower: lower.state.ended,
        conclude=conclude,
        record_row=lambda before, after: _record_level_row(1 + level, before.state, after.state),
    )


def _yielding() -> Phase:
    """Steps with an exact penalty, where not everything can be held and met."""

    def init(context: Context, so_far: Result, _: jax.Array) -> exact_penalty.State:
        return exact_penalty.start(context.prepared, so_far.q, so_far.errors, so_far.iterations, so_far.spent)

    return Phase(
        active=lambda result: jnp.isfinite(result.cost) & ~result.solved,
        init=init,
        step=lambda context, state: exact_penalty.step(context.prepared, state, context.options),
        ended=lambda state: state.ended,
        conclude=only(of_state),
        record_row=_record_penalty_row,
    )


def phases(
    level_count: int, constrained: bool, first: tuple[Phase, ...] = (), yields: bool = False
) -> tuple[Phase, ...]:
    """The highest level, and then each in what those above leave free; `first` in place of the first phase.

    Args:
      yields: whether a constraint or a joint limit may yield.
    """
    lower = functools.partial(_lower, constrained=constrained, yields=yields)
    if yields:
        first = (*(first or (_approach(meets=False, constrained=constrained),)), _yielding())
        return (*first, *map(lower, range(2 if constrained else 1, level_count)))
    if not first:
        first = (_approach() if constrained else _gauss_newton(None, lambda levels: levels[0]),)
    elif constrained:
        unsolved = _gauss_newton(lambda result: jnp.isfinite(result.cost) & ~result.solved, lambda levels: levels[0])
        first = (*first, unsolved)
    return (*first, _newton(), *map(lower, range(1, level_count)))


def _sparing(options: SolveOptions, steps: jax.Array) -> SolveOptions:
    """The options with some of the steps, at most half of them, left for later."""
    most = options.max_steps
    return dataclasses.replace(options, max_steps=most - jnp.minimum(steps, most // 2))
