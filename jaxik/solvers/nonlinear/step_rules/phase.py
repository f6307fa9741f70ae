"""The one phase of `solve` with a step rule that takes every step."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.method import Phase
from jaxik.solvers.nonlinear import levenberg_marquardt
from jaxik.solvers.nonlinear.element import Context, Result, of_state
from jaxik.solvers.nonlinear.phases import only, record_row
from jaxik.solvers.nonlinear.step_rules.by_name import rule_of
from jaxik.solvers.nonlinear.step_rules.effectors import every_row


def every_step(step_rule: Any) -> Phase:
    """Steps by a rule on tasks and constraints together."""
    rule = rule_of(step_rule)

    def init(context: Context, so_far: Result, _: jax.Array) -> levenberg_marquardt.State:
        prepared, options = context.prepared, context.options
        return levenberg_marquardt.start(
            prepared,
            so_far.q,
            so_far.errors,
            so_far.iterations,
            jnp.zeros_like(so_far.cost) if options.damping is None else options.damping,
            every_row(prepared),
            so_far.spent,
            rule,
        )

    def step(context: Context, state: levenberg_marquardt.State) -> levenberg_marquardt.State:
        prepared = context.prepared
        return levenberg_marquardt.step(prepared, state, context.options, every_row(prepared), rule)

    return Phase(
        active=None,
        init=init,
        step=step,
        ended=lambda state: state.ended,
        conclude=only(_best),
        record_row=functools.partial(record_row, 0),
    )


def _best(state: levenberg_marquardt.State) -> Result:
    best = state.model.best
    found = of_state(state)._replace(q=best.q, cost=best.cost, errors=best.errors, met=best.met)
    return found._replace(crawling=state.crawling, diverged=state.model.diverged)
