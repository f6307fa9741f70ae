"""What constraints and joint limits that yield cost, by how much they do, and with what force they pull."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.forward import Kinematics
from jaxik.problem.problem import Problem, elastic_joint_limit, with_tasks
from jaxik.solvers.nonlinear.formulation import Formulation, hard_constraints, row_spans, rows, without_slack
from jaxik.solvers.nonlinear.hard_constraint import WEIGHT, HardConstraint, yielding
from jaxik.tasks.weights import pairs, row_weights, unmet


def row_penalties(prepared: Formulation, kin: Kinematics) -> jax.Array:
    """The penalty (p,) of each weighted row of the constraints, infinite for those that have to hold."""
    problem, own, found = prepared.problem, without_slack(prepared, kin), [jnp.zeros(0, kin.q.dtype)]
    for name in hard_constraints(problem):
        task = problem.tasks[name]
        assert isinstance(task, HardConstraint)
        residual = task.residual(problem.robot, own)
        for w, r in pairs(row_weights(task.task, residual), residual):
            penalty = jnp.inf if task.penalty is None else task.penalty * jnp.where(w != 0, jnp.abs(w), 1) / WEIGHT
            found.append(jnp.ravel(jnp.broadcast_to(jnp.asarray(penalty, r.dtype), r.shape)))
    return jnp.concatenate(found)


def penalties_are_valid(problem: Problem) -> jax.Array:
    """Whether what may yield has penalties above zero ()."""
    given = [task.penalty for name in yielding(problem) if isinstance(task := problem.tasks[name], HardConstraint)]
    if (limit := elastic_joint_limit(problem)) is not None:
        given.append(limit.row_penalty)
    return jnp.all(jnp.stack([jnp.all(jnp.asarray(p) > 0) for p in given]))


def pull_of(prepared: Formulation, kin: Kinematics, violation: jax.Array) -> jax.Array:
    """The constant force (p,) of each weighted row of the constraints that yields, as `yielded_of` has it."""
    tasks, found = prepared.problem.tasks, []
    for name, span in row_spans(prepared, hard_constraints(prepared.problem)).items():
        task = tasks[name]
        assert isinstance(task, HardConstraint)
        off = violation[span.start : span.stop]
        limit = jnp.inf if task.penalty is None else WEIGHT * task.tolerance
        found.append(jnp.where(jnp.abs(off) > limit, jnp.sign(off), 0))
    return jnp.concatenate(found) * jnp.where(jnp.isinf(p := row_penalties(prepared, kin)), 0, p)


def price(prepared: Formulation, kin: Kinematics) -> jax.Array:
    """What violations () of constraints and joint limits that may yield cost."""
    penalties = row_penalties(prepared, kin)
    missed = jnp.abs(rows(prepared, kin, hard_constraints(prepared.problem)).residual)
    missed = jnp.sum(jnp.where(jnp.isinf(penalties), 0, penalties) * missed)
    return missed if prepared.elastic is None else missed + prepared.elastic.cost(kin.q)


class Violations(NamedTuple):
    """By how much what may yield is off: constraints by name, like their residuals, and joints (n,) beyond limits."""

    constraints: dict[str, Any]
    joints: jax.Array | None


def violations(prepared: Formulation, q: jax.Array, errors: dict[str, Any]) -> Violations:
    """Of a configuration (nq,), and what tasks report there."""
    tasks, found = prepared.problem.tasks, dict[str, Any]()
    for name in yielding(prepared.problem):
        task = tasks[name]
        assert isinstance(task, HardConstraint)
        found[name] = unmet(task, errors[name], task.tolerance)
    return Violations(found, None if prepared.elastic is None else prepared.elastic.excess(q))


def yielded_of(prepared: Formulation, q: jax.Array, errors: dict[str, Any]) -> dict[str, Any]:
    """By how much what may yield is off, where that is more than constraints that hold may be; by name, or by limit."""
    found: dict[str, Any] = {}
    problem = prepared.problem
    if prepared.elastic is not None and (limit := elastic_joint_limit(problem)) is not None:
        found[limit.key] = prepared.elastic.yielded(q, problem.robot.nv)
    for name, off in violations(prepared, q, errors).constraints.items():
        task = problem.tasks[name]
        assert isinstance(task, HardConstraint)
        if task.limit is None:
            found[name] = off
        else:
            before = found.get(task.limit, jnp.zeros(0, off.dtype))
            found[task.limit] = jnp.concatenate([before, jnp.reshape(0 - off, 1)])
    return found


def as_yielded(prepared: Formulation, at: Violations) -> Formulation:
    """The formulation in which all that yields holds, by as much as it is off: lower priorities leave that as it is."""
    problem, robot, elastic = prepared.problem, prepared.robot, prepared.elastic
    tasks = {name: dataclasses.replace(problem.tasks[name], offset=off) for name, off in at.constraints.items()}
    if elastic is not None and at.joints is not None:
        ends = elastic.lower + jnp.minimum(at.joints, 0), elastic.upper + jnp.maximum(at.joints, 0)
        robot = elastic.limiting(robot, ends)
    return dataclasses.replace(prepared, problem=with_tasks(problem, {**problem.tasks, **tasks}), robot=robot)
