"""A few steps of `solve` from near a solution, as where a path is followed: its first phase alone.

What Newton's steps would end is left as it is: here nothing waits for the few elements that need them.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.method import Method, iterate, single_pass
from jaxik.batching.run import run_batch
from jaxik.core.pytree import core_ranks
from jaxik.problem.problem import Problem, levels
from jaxik.solvers.nonlinear.element import Context, Result, formulate, start
from jaxik.solvers.nonlinear.finalize import FEASIBLE, coupling_error
from jaxik.solvers.nonlinear.formulation import evaluate, hard_constraints, met, rows, soft_tasks
from jaxik.solvers.nonlinear.hard_constraint import with_clearance, with_hard_constraints
from jaxik.solvers.nonlinear.phases import phases
from jaxik.solvers.options import SolveOptions


class Continued(NamedTuple):
    """Of each element.

    Attributes:
      q (*batch, nq): the best configuration, within the joint limits.
      reached (*batch,): whether all tasks are within their tolerances there, and constraints hold.
      cost (*batch,): of the tasks.
    """

    q: jax.Array
    reached: jax.Array
    cost: jax.Array


def continued(problem: Problem, q0: jax.Array, options: SolveOptions) -> Continued:
    """Follow tasks, all with tolerances and of one priority, from q0 (*batch, nq); all in its dtype."""
    tolerance = jnp.asarray(FEASIBLE[q0.dtype == jnp.float64], q0.dtype)
    problem = with_hard_constraints(with_clearance(problem), tolerance)
    first = phases(len(levels(problem)), bool(hard_constraints(problem)))[:1]
    method = Method(formulate, start, first, _continued)
    # In one go: a queue of elements, which hardly wait for each other here, would be 90 kernels more.
    steps = single_pass(functools.partial(iterate, method))
    return run_batch(steps, (problem, q0, options), (core_ranks(problem), 1, core_ranks(options)))


def _continued(context: Context, result: Result, record: None) -> Continued:
    prepared, q, cost = context.prepared, result.q, result.cost
    every, held = soft_tasks(prepared.problem), hard_constraints(prepared.problem)
    if held:
        of_tasks = rows(prepared, evaluate(prepared, q), every).residual
        cost = jnp.where(jnp.isfinite(cost), 0.5 * jnp.sum(of_tasks * of_tasks), cost)
    reached = met(prepared, result.errors, (*held, *every))
    if prepared.moving.couplings:
        off = coupling_error(prepared, q)
        reached = reached & (off <= FEASIBLE[off.dtype == jnp.float64])
    home = prepared.problem.robot.q_home
    own = q[: home.shape[-1]]
    return Continued(jnp.where(jnp.isfinite(own), own, home), reached & context.finite & jnp.isfinite(cost), cost)
