"""What `solve` and `search` return of an element: its configuration, its status and what its tasks report."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.distances import least_distance
from jaxik.core.status import DerivativeStatus, Status
from jaxik.core.trees import part_units
from jaxik.kinematics.reduced import apply_couplings
from jaxik.limits.combine import looking_at_distances, merged_distances, merged_pair_names
from jaxik.numerics.linalg import first_true
from jaxik.problem.problem import limits_of
from jaxik.results.solution import Solution
from jaxik.results.trace import trace_of
from jaxik.solvers.nonlinear.chains import Ends, Slots, chain_status, slots_of
from jaxik.solvers.nonlinear.element import Context, Result, split_of
from jaxik.solvers.nonlinear.formulation import (
    Formulation,
    evaluate,
    hard_constraints,
    has_tolerances,
    met,
    rows,
    soft_tasks,
    without_slack,
)
from jaxik.solvers.nonlinear.hard_constraint import clearances, holding, may_yield
from jaxik.solvers.nonlinear.penalties import penalties_are_valid, price, yielded_of
from jaxik.solvers.options import step_tolerance

# How far constraints may be off [m or rad], in float32 and float64.
FEASIBLE = (1e-5, 1e-9)


class Found(NamedTuple):
    """A solution, the cost () of its highest level, and what a search wants to be small ().

    Where something may yield, both are those of tasks, with what yields.
    """

    solution: Solution
    first_cost: jax.Array
    merit: jax.Array


def finalize(context: Context, result: Result, record: jax.Array | None) -> Found:
    """The solution after the last phase, with its status."""
    prepared, problem = context.prepared, context.prepared.problem
    cost, first_cost = _costs(context, result)
    status = _status(context, result, cost)
    nearest = _nearest(prepared, result.q)
    if nearest:
        status = jnp.where(jnp.isnan(nearest["clearance"]), Status.NONFINITE, status)
    slots = slots_of(prepared)
    chain_fields = _chain_fields(context, result, slots, status) if len(slots.chains) > 1 else {}
    hidden = (*prepared.slack, *clearances(problem))
    residuals = {name: value for name, value in result.errors.items() if name not in hidden}
    q = result.q[: problem.robot.nq]
    # A joint limit that is NaN is nowhere to move a start to.
    q = jnp.where(jnp.isfinite(q), q, problem.robot.q_home)
    solution = Solution(
        q=q,
        status=status.astype(jnp.int32),
        residuals=residuals,
        iterations=result.iterations + result.spent.steps,
        num_starts=jnp.maximum(result.spent.starts, 1),
        cost=cost,
        stationarity=result.size,
        derivative_status=jnp.asarray(DerivativeStatus.NOT_COMPUTED, jnp.int32),
        trace=None if record is None else trace_of(record),
        **nearest,
        yielded=yielded_of(prepared, result.q, result.errors),
        **chain_fields,
        chain_parts=slots.chains,
        topology=problem.robot.topology,
        residual_units=part_units(problem.tasks, residuals),
    )
    if not may_yield(problem):
        return Found(solution, first_cost, cost)
    yielded = price(prepared, evaluate(prepared, result.q))
    return Found(solution, first_cost + yielded, cost + yielded)


def _costs(context: Context, result: Result) -> tuple[jax.Array, jax.Array]:
    """The cost () of all tasks, and that of the highest level."""
    prepared, cost = context.prepared, result.cost
    if len(prepared.levels) == 1:
        return cost, cost
    kin, first = evaluate(prepared, result.q), prepared.task_level if may_yield(prepared.problem) else 0
    cost, first_cost = (
        jnp.where(jnp.isfinite(cost), 0.5 * jnp.sum(rows(prepared, kin, names).residual ** 2), cost)
        for names in (soft_tasks(prepared.problem), prepared.levels[first])
    )
    return cost, first_cost


def _status(context: Context, result: Result, cost: jax.Array) -> jax.Array:
    """How the element ended (), of `Status`: what is worse overrides what is said before."""
    prepared, problem = context.prepared, context.prepared.problem
    tasks, clear = soft_tasks(problem), clearances(problem)
    held = holding(problem)
    settled, failed = result.stationary, jnp.where(result.stationary, Status.STALLED, Status.TIMEOUT)
    if result.diverged is not None:
        # Steps without an acceptance test also end where they lead nowhere, which says nothing of the point.
        settled = settled & (result.size <= step_tolerance(context.options, cost.dtype))
        failed = jnp.where(result.diverged, Status.DIVERGED, failed)
    if has_tolerances(problem, tasks):
        settled = settled | result.met
    status = jnp.where(settled & met(prepared, result.errors, tasks), Status.CONVERGED, failed)
    if clear:
        # Hinges come and go, so that the best that overlaps is seldom quite stationary.
        overlaps = (status != Status.CONVERGED) & ~met(prepared, result.errors, clear)
        status = jnp.where(overlaps, Status.COLLIDES, status)
    if held:
        lost = jnp.where(result.stationary, Status.INFEASIBLE, Status.TIMEOUT)
        if result.diverged is not None:
            # Constraints are rows like others, which a target out of reach bends: they may well be feasible.
            lost = failed
        status = jnp.where(met(prepared, result.errors, held), status, lost)
    if prepared.moving.couplings:
        # No place of the leaders leaves all followers inside their limits.
        off = coupling_error(prepared, result.q)
        status = jnp.where(off > FEASIBLE[off.dtype == jnp.float64], Status.INFEASIBLE, status)
    finite = context.finite & jnp.isfinite(cost)
    if may_yield(problem):
        finite = finite & penalties_are_valid(problem)
    return jnp.where(finite, status, Status.NONFINITE)


def _chain_fields(context: Context, result: Result, slots: Slots, status: jax.Array) -> dict[str, Any]:
    """Status, steps and label of each chain, given the status () of the whole."""
    prepared, ends = context.prepared, _ends(context, result, slots)
    statuses, label = chain_status(prepared, slots, result.errors, ends)
    # What is not finite stops all chains that are worked on together, on lower priorities as well.
    together = result.chains is None or len(prepared.levels) > (2 if hard_constraints(prepared.problem) else 1)
    stops = status == Status.NONFINITE if together else ~context.finite
    statuses = jnp.where(stops, Status.NONFINITE, statuses).astype(jnp.int32)
    return {"chain_status": statuses, "chain_iterations": ends.iterations, "chain_label": label}


def coupling_error(prepared: Formulation, q: jax.Array) -> jax.Array:
    """How far () followers of couplings are from where their leaders have them, as where limits keep them."""
    return jnp.max(jnp.abs(apply_couplings(prepared.robot, prepared.moving, q) - q))


def _ends(context: Context, result: Result, slots: Slots) -> Ends:
    """How the steps of each chain ended: those that were taken together, together."""
    count, split, chains = len(slots.chains), split_of(context), result.chains
    if split is None or chains is None:
        steps = result.iterations + result.spent.steps
        return Ends(jnp.broadcast_to(result.stationary, (count,)), jnp.broadcast_to(steps, (count,)))
    of = [next((i for i, group in enumerate(split.groups) if group & own), 0) for own in slots.groups]
    return Ends(jnp.stack([chains.stationary[i] for i in of]), jnp.stack([chains.iterations[i] for i in of]))


def _nearest(prepared: Formulation, q: jax.Array) -> dict[str, Any]:
    """Clearance and nearest pair of a problem with limits that look at distances."""
    looking, robot = looking_at_distances(limits_of(prepared.problem)), prepared.problem.robot
    if not looking:
        return {}
    # By the kinematics of steps: in kernels that these have already.
    found = merged_distances(looking, robot, without_slack(prepared, evaluate(prepared, q)))
    names = merged_pair_names(looking, robot)
    least = least_distance(found)
    nearest = first_true((found == least) | jnp.isnan(found))
    return {"clearance": least, "nearest": nearest, "pair_names": names}
