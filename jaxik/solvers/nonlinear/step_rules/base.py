"""What step rules without an acceptance test share: they go where their steps lead, and the best iterate is kept.

Tasks and constraints are rows of one residual, and an error larger than its clamp is shortened to it before a step aims
at it (Buss, Kim: Selectively Damped Least Squares for Inverse Kinematics, 2005).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.formulation import Formulation, Rows, errors, evaluate
from jaxik.solvers.nonlinear.gauss_newton import boxed_rows
from jaxik.solvers.nonlinear.levenberg_marquardt import Rule, State, Step, Trial, solve_in_box
from jaxik.solvers.nonlinear.scaling import not_held
from jaxik.solvers.nonlinear.step_rules.effectors import clamped, every_row, row_costs
from jaxik.solvers.options import SolveOptions, step_tolerance

# An element ends where its best iterate has not improved enough in so many steps.
PATIENCE = 20


class Best(NamedTuple):
    """The best iterate: configuration (nq,), cost (), what tasks report, whether every tolerance is met ()."""

    q: jax.Array
    cost: jax.Array
    errors: Any
    met: jax.Array


class Model(NamedTuple):
    """What the next step is made of, and what is known of those before.

    Attributes:
      aim: weighted residual (m,), clamped, that the step is to remove, and its Jacobian (m, n), times the factors.
      memory: of the rule.
      best: the best iterate.
      standing (): the cost that is to be improved on; stale (): steps since.
      diverged (): whether the element has ended far from its best iterate.
    """

    aim: Rows
    memory: Any
    best: Best
    standing: jax.Array
    stale: jax.Array
    diverged: jax.Array


class Memory(NamedTuple):
    """What a rule remembers from step to step.

    Attributes:
      empty: formulation -> before the first step.
      update: formulation, memory, limits where the step began, the step, where it led, the aim there -> memory.
    """

    empty: Callable[[Formulation], Any]
    update: Callable[[Formulation, Any, Box, Step, Trial, Rows], Any]


class _Linear(NamedTuple):
    """Rows at a configuration, and their costs (m,)."""

    rows: Rows
    costs: jax.Array


FORGETFUL = Memory(lambda prepared: (), lambda prepared, memory, limits, proposed, trial, aim: ())
# Formulation, model, limits, options -> displacement (n,) in the box.
Displacement = Callable[[Formulation, Model, Box, SolveOptions], jax.Array]


def bounded(aim: Rows, limits: Box, displacement: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """A rule's displacement (n,) with an active set: of the Jacobian with free columns alone, and a residual (m,)."""

    def within(free: jax.Array, fixed: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        residual = aim.residual if fixed is None else aim.residual + aim.jacobian @ fixed
        return displacement(jnp.where(free, aim.jacobian, 0), residual), jnp.ones((), residual.dtype)

    return solve_in_box(limits, not_held(limits, aim.residual @ aim.jacobian), within)[0]


def without_acceptance(displacement: Displacement, memory: Memory = FORGETFUL) -> Rule:
    """The rule that takes every step it proposes."""

    def empty(prepared: Formulation, q: jax.Array, level: Level) -> Model:
        kin = evaluate(prepared, q)
        shapes = jax.eval_shape(lambda: (row_costs(prepared, kin, level), errors(prepared, kin)))
        count, (infinite, no) = shapes[0].size, (jnp.full((), jnp.inf, q.dtype), jnp.zeros((), bool))
        unknown = jax.tree.map(lambda x: jnp.full(x.shape, jnp.inf, x.dtype), shapes[1])
        aim = Rows(jnp.zeros(count, q.dtype), jnp.zeros((count, len(prepared.moving.own)), q.dtype))
        best = Best(q, infinite, unknown, no)
        return Model(aim, memory.empty(prepared), best, infinite, jnp.zeros((), jnp.int32), no)

    def propose(prepared: Formulation, state: State, scale: jax.Array, limits: Box, options: SolveOptions) -> Step:
        moved = displacement(prepared, state.model, limits, options)
        return Step(moved, jnp.zeros((), moved.dtype), jnp.ones((), bool), state.damping)

    def conclude(
        prepared: Formulation,
        state: State,
        scale: jax.Array,
        limits: Box,
        proposed: Step,
        trial: Trial,
        options: SolveOptions,
    ) -> State:
        aim = clamped(prepared, trial.model.rows, trial.model.costs, options, every_row(prepared))
        first = jnp.isinf(state.cost)
        proposed = proposed._replace(displacement=jnp.where(first, 0, proposed.displacement))
        remembered = memory.update(prepared, state.model.memory, limits, proposed, trial, aim)
        return _advance(state, proposed, trial, state.model._replace(aim=aim, memory=remembered), options)

    return Rule(empty, propose, _expand, conclude)


def _expand(prepared: Formulation, kin: Kinematics, found: Rows, level: Level) -> _Linear:
    return _Linear(boxed_rows(prepared, kin, found, level), row_costs(prepared, kin, level))


def _advance(state: State, proposed: Step, trial: Trial, model: Model, options: SolveOptions) -> State:
    """The next state, at the trial point; it has ended where tasks are met, and where no progress is made."""
    first, finite = jnp.isinf(state.cost), jnp.isfinite(trial.cost)
    met = trial.met
    better = finite & ((met & ~model.best.met) | (trial.cost < model.best.cost))
    best = jax.tree.map(
        lambda new, old: jnp.where(better, new, old), Best(trial.q, trial.cost, trial.errors, met), model.best
    )
    improved = trial.cost < (1 - options.stall_threshold) * model.standing
    stale = jnp.where(improved, 0, model.stale + 1)
    size = jnp.max(jnp.abs(proposed.displacement))
    over = ~first & ((stale >= PATIENCE) | (size <= step_tolerance(options, size.dtype)))
    # Steps that are too long end in a corner of the limits as well, where none is left.
    far = trial.cost > jnp.square(options.divergence_threshold) * best.cost
    diverged = ~met & ((~finite & ~first) | (over & far))
    stationary = over & ~diverged
    iterations = state.iterations + jnp.where(first, 0, 1).astype(jnp.int32)
    return State(
        q=trial.q,
        model=model._replace(
            best=best, standing=jnp.where(improved, trial.cost, model.standing), stale=stale, diverged=diverged
        ),
        cost=trial.cost,
        errors=trial.errors,
        damping=state.damping,
        size=jnp.where(first, jnp.inf, size),
        met=met,
        crawling=state.crawling,
        stationary=stationary,
        ended=met | diverged | stationary | ~finite | (iterations >= options.max_steps),
        iterations=iterations,
        before=state.before,
        spent=state.spent,
    )
