"""What a configuration on a path costs where joint limits and constraints yield, and what draws candidates to it."""

import copy
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import over_batch
from jaxik.core.pytree import core_ranks, set_fields
from jaxik.kinematics import manifold
from jaxik.kinematics.forward import forward
from jaxik.problem.problem import Problem, constants_of, elastic_constraints_of, elastic_limits_of
from jaxik.solvers.tracking.path_setting import elastic_joint_bounds, path_tasks, yielding_joints
from jaxik.tasks.weights import pairs, row_weights


def penalties(problem: Problem, q: jax.Array) -> jax.Array:
    """The penalties (*batch,) of configurations (*batch, nq)."""

    def of_one(problem: Problem, q: jax.Array) -> jax.Array:
        joints = [_of_joints(problem, key, q) for key in yielding_joints(problem)]
        return sum([*joints, *_of_constraints(problem, q)], start=jnp.zeros((), q.dtype))

    return over_batch(of_one, {"problem": problem, "q": q}, {"problem": core_ranks(problem), "q": 1})


def _of_joints(problem: Problem, key: str, q: jax.Array) -> jax.Array:
    limit, at = elastic_limits_of(problem)[key], manifold.scalar_coordinates(problem.robot.topology, q)
    lower, upper = elastic_joint_bounds(limit.of, problem)
    beyond = jnp.maximum(at - upper, 0) + jnp.maximum(lower - at, 0)
    if problem.dof_mask is not None:
        beyond = jnp.where(problem.dof_mask, beyond, 0)
    return limit.row_penalty * jnp.sum(beyond)


def _of_constraints(problem: Problem, q: jax.Array) -> list[jax.Array]:
    robot, constraints = problem.robot, elastic_constraints_of(problem)
    kin, found = forward(constants_of(robot, [each.of for each in constraints.values()]), q), []
    for each in constraints.values():
        residual = each.of.residual(robot, kin)
        missed = sum(jnp.sum(jnp.abs(w * r)) for w, r in pairs(row_weights(each.of, residual), residual))
        # A waypoint that is not finite does not count.
        found.append(jnp.where(jnp.isfinite(missed), each.row_penalty * missed, 0))
    return found


def drawing_tasks(problem: Problem, lanes: int, batch_rank: int) -> dict[str, Any]:
    """What yields as tasks beside the path, of every second of the lanes, that do not decide whether it is reached.

    A hand that is free to turn is at random otherwise, and smoothing from there ended 1.4 rad from upright. A task
    without a cost of its own is left out.
    """
    first = min(problem.tasks[name].priority for name in path_tasks(problem))
    share = jnp.arange(lanes) % 2
    found = {}
    for name, each in elastic_constraints_of(problem).items():
        names = {f.name: f.metadata["rank"] for f in dataclasses.fields(each.of) if "rank" in f.metadata}
        fields = {n: getattr(each.of, n) for n in names if getattr(each.of, n) is not None}
        costs = {
            n: cost * share.reshape(lanes, *(1,) * (batch_rank + names[n]))
            for n, cost in fields.items()
            if n == "cost" or n.endswith("_cost")
        }
        if not costs:
            continue
        ends = (n for n in fields if n == "tolerance" or n.endswith("_tolerance"))
        wide = {n: jnp.full_like(fields[n], jnp.inf) for n in ends}
        found[name] = task = copy.copy(each.of)
        set_fields(task, priority=first, **costs, **wide)
    return found
