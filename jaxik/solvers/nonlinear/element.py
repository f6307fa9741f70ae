"""One element between the phases: its problem and where it starts, and what is known of it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.problem.problem import Problem
from jaxik.solvers.nonlinear import chain_blocks, chain_steps, exact_penalty, levenberg_marquardt, nullspace_newton
from jaxik.solvers.nonlinear.chain_blocks import Split
from jaxik.solvers.nonlinear.chain_steps import Outcome
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    errors,
    evaluate,
    formulation,
    project_start,
)
from jaxik.solvers.nonlinear.hard_constraint import may_yield
from jaxik.solvers.options import SolveOptions


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
    """What a search spent: steps (), and starts (), that it tried; none where there is no search.

    `progress`: how far its first phase is, where limits keep shapes apart.
    """

    steps: jax.Array
    starts: jax.Array
    progress: Any = None


class Result(NamedTuple):
    """What is known of an element between and after the phases; `spent` is not part of `iterations`.

    `solved`: of a problem with constraints, the first phase met them and the tasks of the highest level, all within
    their tolerances and polished, so that nothing is left to do on these. `diverged`: of rules without an acceptance
    test. `chains`: each of several, of `solve`.
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
    chains: Outcome | None = None


def split_of(context: Context) -> Split | None:
    """The chains that steps keep apart: none in a search, with what yields, or by rules without an acceptance test."""
    alone = context.starts is None and context.options.step_rule == "lm" and not may_yield(context.prepared.problem)
    return chain_blocks.split_of(context.prepared) if alone else None


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
    # Not NaN, which `jax_debug_nans` would find in what pads a batch.
    unknown = jax.tree.map(lambda x: jnp.full(x.shape, jnp.inf, x.dtype), shapes)
    diverged, split = None if context.options.step_rule == "lm" else no, split_of(context)
    return Result(
        q=context.q,
        cost=infinite,
        errors=unknown,
        size=infinite,
        met=no,
        crawling=no,
        stationary=no,
        solved=no,
        iterations=none,
        spent=SearchCounters(none, none),
        diverged=diverged,
        chains=None if split is None else chain_steps.nothing(split, context.q.dtype),
    )


def of_state(state: levenberg_marquardt.State | exact_penalty.State) -> Result:
    """The result of a phase of Levenberg-Marquardt, or with an exact penalty, whose steps do not crawl."""
    no = jnp.zeros((), bool)
    return Result(
        q=state.q,
        cost=state.cost,
        errors=state.errors,
        size=state.size,
        met=state.met,
        crawling=no if isinstance(state, exact_penalty.State) else levenberg_marquardt.unfinished(state),
        stationary=state.stationary,
        solved=no,
        iterations=state.iterations,
        spent=state.spent,
    )


def of_chains(state: levenberg_marquardt.State, chains: Outcome) -> Result:
    """The result of a phase of Levenberg-Marquardt on several chains."""
    done = chains.met & ~chains.crawling
    return Result(
        q=state.q[0],
        cost=jnp.sum(chains.cost),
        errors=chain_steps.first_of(state.errors),
        size=jnp.max(chains.size),
        met=jnp.all(chains.met),
        crawling=jnp.any(chains.crawling),
        stationary=jnp.all(chains.stationary | done),
        solved=jnp.all(chains.solved),
        iterations=jnp.max(chains.iterations),
        spent=chain_steps.first_of(state.spent),
        chains=chains,
    )


def of_level(so_far: Result, alone: jax.Array | None, state: nullspace_newton.State) -> Result:
    """The result of a lower level; `alone` (nv,): what moved there, where chains that were solved did not."""
    best, chains = state.best, so_far.chains
    if chains is not None:
        frozen = chains.solved if alone is not None else jnp.zeros_like(chains.solved)
        steps = state.iterations - so_far.iterations
        chains = chain_steps.after_level(chains, frozen, state.size, state.stationary, steps)
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
        chains=chains,
    )
