"""Steps of Levenberg-Marquardt on several independent chains: one evaluation, and each chain on its own otherwise.

No residual depends on joints of two chains, so that the Jacobian has a block for each. Blocks are filled up with zeros
to one size, and a step rule works on all of them side by side, each with its own damping, acceptance and end; a trial
point takes from each chain what that chain accepts.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear import levenberg_marquardt
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.chain_blocks import (
    Split,
    blocks,
    box_of,
    by_columns,
    matrices,
    merged_configuration,
    merged_errors,
    rows_of,
    spread,
    together,
)
from jaxik.solvers.nonlinear.chains import Item, part_met
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    Rows,
    errors,
    evaluate,
    hard_constraints,
    retract,
    rows,
    rows_that_count,
)
from jaxik.solvers.nonlinear.levenberg_marquardt import Rule, State, Step, Trial, unfinished
from jaxik.solvers.nonlinear.scaling import limits_at, step_scale
from jaxik.solvers.options import SolveOptions


class Outcome(NamedTuple):
    """How each chain (k,) stands between and after the phases, as `element.Result` has it of the whole."""

    cost: jax.Array
    size: jax.Array
    met: jax.Array
    crawling: jax.Array
    stationary: jax.Array
    solved: jax.Array
    iterations: jax.Array


def nothing(split: Split, dtype: Any) -> Outcome:
    """Before the first phase."""
    no, infinite = jnp.zeros(split.size, bool), jnp.full(split.size, jnp.inf, dtype)
    return Outcome(infinite, infinite, no, no, no, no, jnp.zeros(split.size, jnp.int32))


def start(
    prepared: Formulation,
    split: Split,
    q: jax.Array,
    errors: Any,
    outcome: Outcome,
    frozen: jax.Array,
    damping: jax.Array,
    level: Level,
    spent: Any,
    rule: Rule,
) -> State:
    """As `levenberg_marquardt.start`, with an axis of chains in front; those that are frozen (k,) stay as they are."""
    found = jax.eval_shape(lambda: _evaluated(prepared, split, q, level, rule)[0])
    first = outcome.iterations
    whole = levenberg_marquardt.start(prepared, q, errors, first[0], damping, level, spent, rule)
    model = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), found.model)
    if (dog := whole.watchdog) is not None:
        dog = spread(split, dog._replace(model=(), aim=()))._replace(model=model, aim=model[0])
    return spread(split, whole._replace(model=(), watchdog=None))._replace(
        model=model,
        watchdog=dog,
        ended=frozen,
        iterations=first,
        before=first,
    )


def step(
    prepared: Formulation,
    split: Split,
    state: State,
    options: SolveOptions,
    level: Level,
    rule: Rule,
    meeting: jax.Array | None = None,
) -> State:
    """As `levenberg_marquardt.step`, each chain for itself; those that have ended stay.

    `meeting` (k,), and `options.max_steps`, which may be one number, or (k,), are of each chain.
    """
    here = levenberg_marquardt.current(state)
    q = here.q[0]
    limits, scale = limits_at(prepared, q), by_columns(split, step_scale(prepared))
    box = box_of(split, limits)
    proposed = jax.vmap(lambda state, scale, box: rule.propose(prepared, state, scale, box, options))(here, scale, box)
    over = state.ended | state.crawling
    still = over | jnp.isinf(state.cost)
    displacement = together(split, prepared, jnp.where(still[:, None], 0, proposed.displacement))
    there = retract(prepared, q, limits, displacement)
    trial, reported = _evaluated(prepared, split, there, level, rule, meeting)
    trial = trial._replace(errors=spread(split, reported))

    def conclude(state: State, scale: jax.Array, box: Box, proposed: Step, trial: Trial, most: jax.Array) -> State:
        own = dataclasses.replace(options, max_steps=most)
        return rule.conclude(prepared, state, scale, box, proposed, trial, own)

    most = jnp.broadcast_to(options.max_steps, split.size)
    moved = jax.vmap(conclude)(state, scale, box, proposed, trial, most)
    moved = jax.tree.map(lambda new, old: jnp.where(over.reshape(-1, *(1,) * (new.ndim - 1)), old, new), moved, state)
    if (dog := moved.watchdog) is not None:
        moved = moved._replace(watchdog=dog._replace(q=spread(split, merged_configuration(prepared, split, dog.q))))
    return moved._replace(
        q=spread(split, merged_configuration(prepared, split, moved.q)),
        errors=spread(split, merged_errors(split, moved.errors)),
    )


def ended(state: State) -> jax.Array:
    """Whether every chain has ended or crawls."""
    return jnp.all(state.ended | state.crawling)


def outcome_of(state: State, before: Outcome, frozen: jax.Array, solved: jax.Array) -> Outcome:
    """How chains stand after a phase, which has left those that are frozen (k,)."""
    crawling = unfinished(state)
    found = Outcome(state.cost, state.size, state.met, crawling, state.stationary, solved, state.iterations)
    return jax.tree.map(lambda old, new: jnp.where(frozen, old, new), before, found)


def after_level(
    before: Outcome, frozen: jax.Array, size: jax.Array, stationary: jax.Array, steps: jax.Array
) -> Outcome:
    """How chains stand after so many steps on a lower level, which they take together."""
    return before._replace(
        size=jnp.where(frozen, before.size, size),
        stationary=jnp.where(frozen, before.stationary, stationary),
        solved=frozen,
        iterations=before.iterations + jnp.where(frozen, 0, steps),
    )


def overview(state: State) -> State:
    """One element's numbers, of all its chains."""
    return state._replace(
        q=state.q[0],
        cost=jnp.sum(state.cost),
        damping=jnp.max(state.damping),
        size=jnp.max(state.size),
        met=jnp.all(state.met),
        iterations=jnp.max(state.iterations),
    )


def first_of(tree: Any) -> Any:
    """What is the same for all chains."""
    return jax.tree.map(lambda x: x[0], tree)


def moving_alone(prepared: Formulation, split: Split, frozen: jax.Array) -> jax.Array:
    """Mask (nv,) of degrees of freedom without those of chains that are frozen (k,)."""
    own = np.zeros((split.size, prepared.problem.robot.nv), bool)
    for chain, group in enumerate(split.groups):
        own[chain, sorted(group)] = True
    mask = ~jnp.any(frozen[:, None] & own, axis=0)
    given = prepared.problem.dof_mask
    return mask if given is None else mask & given


def _evaluated(
    prepared: Formulation, split: Split, q: jax.Array, level: Level, rule: Rule, meeting: jax.Array | None = None
) -> tuple[Trial, Any]:
    """A configuration (nq,) by chains, and what tasks report there."""
    kin = evaluate(prepared, q)
    found, reported = rows(prepared, kin, level), errors(prepared, kin)
    places = rows_of(prepared, split, level)
    residual = blocks(found.residual, places)
    model, columns = rule.expand(prepared, kin, found, level), split.columns
    if isinstance(model, Rows):
        model = Rows(residual, matrices(blocks(model.jacobian, places), columns))
    else:
        model = type(model)(by_columns(split, model.gradient), matrices(blocks(model.hessian, columns), columns))
    met = jnp.stack([_met(prepared, items, reported, level) for items in split.items])
    if meeting is not None:
        held = hard_constraints(prepared.problem)
        counts = blocks(rows_that_count(prepared, kin, level, held, jnp.ones((), bool)), places)
        counts = jnp.where(meeting[:, None], counts, 1)
        residual = residual * counts
        model = Rows(residual, model.jacobian * counts[..., None])
        alone = jnp.stack([_met(prepared, items, reported, held) for items in split.items])
        met = jnp.where(meeting, alone, met)
    cost = 0.5 * jnp.sum(residual * residual, axis=1)
    box = box_of(split, limits_at(prepared, q))
    return Trial(spread(split, q), model, cost, (), met, box), reported


def _met(prepared: Formulation, items: tuple[Item, ...], reported: dict[str, Any], level: Level) -> jax.Array:
    """Whether all of a chain's tasks of a level have tolerances, and meet them ()."""
    tasks, fulfilled = prepared.problem.tasks, jnp.ones((), bool)
    for item in (item for item in items if item.part.task in level):
        task = tasks[item.part.task]
        fulfilled = fulfilled & (task.tolerances() is not None)
        fulfilled = fulfilled & part_met(task, item.part, reported[item.part.task])
    return fulfilled
