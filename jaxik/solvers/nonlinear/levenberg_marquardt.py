"""Bounded Levenberg-Marquardt with an active set: one loop, with the step rules of `gauss_newton` and `newton`.

Minimises 1/2 |residual|^2 of a level of tasks within the joint limits. One trial point a step, linearised once:
accepted, it is the next model; rejected, the old one is kept, or the step is a relaxed one (`watchdog`). Steps are
measured in fractions of the joint ranges, damping relative to the model, so that neither the scale of the costs nor the
units of the joints matter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.numerics.fusion import materialize_mask
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear import watchdog
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    Rows,
    errors,
    evaluate,
    has_tolerances,
    met,
    retract,
    rows,
    rows_that_count,
)
from jaxik.solvers.nonlinear.scaling import least_damping, limits_at, step_scale
from jaxik.solvers.nonlinear.watchdog import Watchdog
from jaxik.solvers.options import SolveOptions

# The damping shrinks by these, at most and at least, where the model holds, and grows where it does not.
SHRINK = (0.05, 0.5)
GROW = 3.0
GOOD_RATIO, POOR_RATIO = 0.5, 0.1
MAX_DAMPING = 1e6
# Where more than this is left to do [rad or m], Newton's steps do it: near singularities undamped ones overshoot. After
# a single polishing step 1.2 % of Panda targets are more than 1e-5 m or rad off, and so 0.1 %.
ROUGH = 1e-4


class State(NamedTuple):
    """One element between two steps.

    Attributes:
      q (nq,), model, cost (), errors: the best configuration so far, the expansion there, and what tasks report; the
        cost is infinite before the first evaluation, and the model then means nothing.
      damping (): of the next step, relative to the largest diagonal entry of the scaled model.
      size (): largest entry of the last step proposed, of Newton the last undamped one [rad or m].
      met, crawling, stationary, ended (): every tolerance of what counts is met; Gauss-Newton hardly improves the
        configuration; no small step does; nothing is left to do.
      iterations (): steps taken, without the first evaluation and the polishing step.
      before (): of these, those that came before this state's first.
      spent: what other phases note, and of a search the attempt; passed on.
      watchdog: where the next step starts, of rules with relaxed steps; None: at the best.
    """

    q: jax.Array
    model: Any
    cost: jax.Array
    errors: Any
    damping: jax.Array
    size: jax.Array
    met: jax.Array
    crawling: jax.Array
    stationary: jax.Array
    ended: jax.Array
    iterations: jax.Array
    before: jax.Array
    spent: Any
    watchdog: Watchdog | None = None


class Trial(NamedTuple):
    """A configuration (nq,) that was evaluated: model, cost, what tasks report.

    `met` (): every task has a tolerance, and meets it; `limits`: the box there.
    """

    q: jax.Array
    model: Any
    cost: jax.Array
    errors: Any
    met: jax.Array
    limits: Box


class Step(NamedTuple):
    """What a model proposes.

    Attributes:
      displacement (n,): of the box's coordinates.
      predicted (): decrease of the cost according to the model.
      convex (): whether the model is, on the free coordinates.
      damping (): the relative damping that was used.
      promised: residual or gradient after the step, according to the model; of rules that take relaxed steps.
    """

    displacement: jax.Array
    predicted: jax.Array
    convex: jax.Array
    damping: jax.Array
    promised: Any = None


class Rule(NamedTuple):
    """A step rule, by what it does before and after the evaluation that all rules share.

    Attributes:
      empty: formulation, configuration, level -> a model of zeros.
      propose: formulation, state, units of step (n,), limits at its configuration, options -> the next step.
      expand: formulation, evaluated kinematics, rows of the level there, level -> model.
      conclude: formulation, state, units of step (n,), limits, step, trial, options -> the next state.
      relaxes: whether it takes relaxed steps.
      corrects: whether the first of these correct (`watchdog`).

    What a rule proposes and concludes may be of one of several independent chains: state, units, limits and trial are.
    """

    empty: Callable[[Formulation, jax.Array, Level], Any]
    propose: Callable[[Formulation, State, jax.Array, Box, SolveOptions], Step]
    expand: Callable[[Formulation, Kinematics, Rows, Level], Any]
    conclude: Callable[[Formulation, State, jax.Array, Box, Step, Trial, SolveOptions], State]
    relaxes: bool = False
    corrects: bool = False


def start(
    prepared: Formulation,
    q: jax.Array,
    errors: Any,
    iterations: jax.Array,
    damping: jax.Array,
    level: Level,
    spent: Any,
    rule: Rule,
) -> State:
    """Before the first step on a level from `q` (nq,), after some iterations on others.

    Nothing is evaluated: the cost is infinite, so that the first trial point is `q` itself.
    """
    no, model = jnp.zeros((), bool), rule.empty(prepared, q, level)
    return State(
        q=q,
        model=model,
        cost=jnp.full((), jnp.inf, q.dtype),
        errors=errors,
        damping=damping,
        size=jnp.full((), jnp.inf, q.dtype),
        met=no,
        crawling=no,
        stationary=no,
        ended=no,
        iterations=iterations,
        before=iterations,
        spent=spent,
        watchdog=watchdog.start(prepared, q, model, level, rule.corrects) if rule.relaxes else None,
    )


def current(state: State) -> State:
    """The state with configuration and model where the next step starts."""
    dog = state.watchdog
    return state if dog is None else state._replace(q=dog.q, model=watchdog.aimed(dog))


def step(
    prepared: Formulation,
    state: State,
    options: SolveOptions,
    level: Level,
    rule: Rule,
    meeting: jax.Array | None = None,
    held: Level = (),
) -> State:
    """Propose a step, evaluate where it leads, and accept or reject that.

    `meeting` (): whether the tasks `held` of the level count alone; None: they never do.
    """
    here = current(state)
    limits, scale = limits_at(prepared, here.q), step_scale(prepared)
    proposed = rule.propose(prepared, here, scale, limits, options)
    displacement = jnp.where(jnp.isinf(state.cost), 0, proposed.displacement)
    q = retract(prepared, here.q, limits, displacement)
    kin = evaluate(prepared, q)
    found, reported = rows(prepared, kin, level), errors(prepared, kin)
    fulfilled = met(prepared, reported, level) & has_tolerances(prepared.problem, level)
    if meeting is not None:
        counts = rows_that_count(prepared, kin, level, held, meeting)
        found = Rows(found.residual * counts, found.jacobian * counts[:, None])
        fulfilled = jnp.where(meeting, met(prepared, reported, held), fulfilled)
    cost = 0.5 * jnp.sum(found.residual * found.residual)
    model, there = rule.expand(prepared, kin, found, level), limits_at(prepared, q)
    trial = Trial(q, model, cost, reported, fulfilled, there)
    return rule.conclude(prepared, state, scale, limits, proposed, trial, options)


def restarted(state: State, again: jax.Array, damping: Any) -> State:
    """The state, as before the first step where it is to start again (), on other rows, from where it is."""
    no, infinite = jnp.zeros_like(state.met), jnp.full_like(state.cost, jnp.inf)
    fresh = {
        "cost": infinite,
        "damping": jnp.broadcast_to(damping, infinite.shape).astype(infinite.dtype),
        "size": infinite,
        "met": no,
        "crawling": no,
        "stationary": no,
        "ended": no,
        "before": state.iterations,
    }
    return state._replace(**{name: jnp.where(again, x, getattr(state, name)) for name, x in fresh.items()})


def advance(
    state: State,
    options: SolveOptions,
    accepted: jax.Array,
    trial: Trial,
    proposed: Step,
    damping: jax.Array,
    relaxed: jax.Array | bool = False,
) -> State:
    """The next state: at the trial point where it is accepted, else where it was; `relaxed` (): steps go on there."""
    first = jnp.isinf(state.cost)
    accepted = materialize_mask(accepted & jnp.isfinite(trial.cost))
    iterations = state.iterations + jnp.where(first, 0, 1).astype(jnp.int32)
    fulfilled = jnp.where(accepted, trial.met, state.met)

    def better(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(accepted, n, o), new, old)

    dog, least = state.watchdog, least_damping(state.cost.dtype)
    if dog is not None:
        least = watchdog.least_damping(state.cost.dtype)
        there, best = (trial.q, trial.model), (state.q, state.model)
        dog = watchdog.advance(dog, accepted, relaxed, there, best, proposed.promised, proposed.displacement)
    return State(
        q=jnp.where(accepted, trial.q, state.q),
        model=better(trial.model, state.model),
        cost=jnp.where(accepted, trial.cost, state.cost),
        errors=better(trial.errors, state.errors),
        damping=jnp.where(first, state.damping, jnp.clip(damping, least, MAX_DAMPING)),
        size=jnp.where(first, jnp.inf, jnp.max(jnp.abs(proposed.displacement))),
        met=fulfilled,
        crawling=state.crawling,
        stationary=state.stationary,
        ended=((iterations >= options.max_steps) & ~fulfilled) | (first & ~accepted),
        iterations=iterations,
        before=state.before,
        spent=state.spent,
        watchdog=dog,
    )


def unfinished(state: State) -> jax.Array:
    """Whether Newton's steps are to end what Gauss-Newton has left: a crawl, or a rough solution."""
    return state.crawling | (state.met & (state.size > ROUGH))


def solve_in_box(limits: Box, free: jax.Array, minimise: Any) -> tuple[jax.Array, jax.Array]:
    """The displacement (n,) that minimises a model in the box, and the model's smallest pivot on the free coordinates.

    What would cross a bound is put on it, and the rest solved again: without that second pass 83 % of Panda targets
    are solved from one start, with it 90 %; a third changes nothing.

    Args:
      limits: the box.
      free (n,): coordinates that no bound holds.
      minimise: free, fixed (n,) -> minimum over the free coordinates with the others displaced by `fixed`, None where
        they are not, and pivot.
    """
    free = materialize_mask(free)
    first, pivot = minimise(free, None)
    inside = jnp.clip(first, limits.lower, limits.upper)
    crossing = free & (inside != first)
    fixed = jnp.where(crossing, inside, 0)
    again, _ = minimise(free & ~crossing, fixed)
    return jnp.clip(again + fixed, limits.lower, limits.upper), pivot
