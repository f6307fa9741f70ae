"""Which of the solutions that a search found of one element are returned."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.core.status import Status
from jaxik.kinematics.manifold import difference
from jaxik.kinematics.topology import JointType, Topology
from jaxik.results.solution import Solution
from jaxik.solvers.nonlinear.finalize import Found
from jaxik.solvers.options import SearchOptions


def chosen(found: Found, options: SearchOptions) -> Solution:
    """Of candidates (*batch, n), the one that is preferred, or as many distinct ones as are asked for, best first.

    Those that met all tolerances come before all others, which are judged by the cost of their highest level. Steps
    and starts are those of all candidates together. Where too few are distinct, others follow, as STALLED.
    """
    solution, axis = found.solution, found.first_cost.ndim - 1
    lost = ~solution.converged
    merit = jnp.where(lost, found.first_cost, found.merit)
    order = jnp.lexsort((jnp.where(jnp.isnan(merit), jnp.inf, merit), lost), axis=-1)
    solution = _taken(solution, order, axis)
    if options.solutions == 1:
        best = _taken(solution, jnp.zeros_like(order[..., :1]), axis)
        return _with_effort(jax.tree.map(lambda x: jnp.squeeze(x, axis), best), found, ())
    kept = _distinct(solution, options.min_separation)
    status = jnp.where(kept | ~solution.converged, solution.status, Status.STALLED)
    solution = dataclasses.replace(solution, status=status)
    first = jnp.argsort(~kept, axis=-1, stable=True)[..., : options.solutions]
    return _with_effort(_taken(solution, first, axis), found, (options.solutions,))


def _taken(tree: Any, order: jax.Array, axis: int) -> Any:
    def take(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - order.ndim)), axis)

    return jax.tree.map(take, tree)


def _with_effort(solution: Solution, found: Found, slots: tuple[int, ...]) -> Solution:
    """Steps and starts of all candidates."""

    def total(x: jax.Array) -> jax.Array:
        whole = jnp.sum(x, axis=-1, dtype=x.dtype)
        return jnp.broadcast_to(whole[..., None], (*whole.shape, *slots)) if slots else whole

    of = found.solution
    return dataclasses.replace(solution, iterations=total(of.iterations), num_starts=total(of.num_starts))


def _distinct(solution: Solution, min_separation: jax.Array) -> jax.Array:
    """Which of the solutions (*batch, n) that converged differ from all before them that do."""
    q, solved = solution.q, solution.converged
    min_separation = jnp.expand_dims(min_separation, -1) if jnp.ndim(min_separation) else min_separation

    def judge(kept: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        close = _apart(solution.topology, jnp.take(q, i, axis=-2)[..., None, :], q) <= min_separation
        new = jnp.take(solved, i, axis=-1) & ~jnp.any(kept & close, axis=-1)
        return kept | (new[..., None] & (jnp.arange(q.shape[-2]) == i)), None

    return lax.scan(judge, jnp.zeros(solved.shape, bool), jnp.arange(q.shape[-2]))[0]


def _apart(topology: Topology, a: jax.Array, b: jax.Array) -> jax.Array:
    """Largest difference (*batch,) between configurations (*batch, nq) in any joint, without whole turns of hinges."""
    step = jnp.vectorize(lambda a, b: difference(topology, a, b), signature="(q),(q)->(v)")(a, b)
    hinges = [joint.v_index for joint in topology.joints if joint.type is JointType.HINGE]
    turn = jnp.asarray([2 * jnp.pi if dof in hinges else jnp.inf for dof in range(topology.nv)], step.dtype)
    whole = jnp.where(jnp.isfinite(turn), turn * jnp.round(step / turn), 0)
    return jnp.max(jnp.abs(step - whole), axis=-1)
