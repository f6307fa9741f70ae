"""By how much elastic constraints and limits yield in a step."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.numerics.linalg import product
from jaxik.problem.problem import Problem, constraints_of, elastic_constraints_of
from jaxik.solvers.differential.linearization import Linearization


def yielded_of(
    problem: Problem, model: Linearization, x: jax.Array, yields: jax.Array, shortened: jax.Array, none: jax.Array
) -> dict[str, Any]:
    """What rows miss at a displacement x (nv,): exactly zero where one holds, and where there is no step.

    Args:
      yields (k + p,): mask of rows of limits, and of constraints, at the minimum.
      shortened (): whether x is less than that, so that other rows are missed.
      none (): whether there is no step.

    Returns:
      By constraint `J x + gain residual`, in the structure of its residual; by limit, of bounds (nv,) and rows.
    """
    found: dict[str, Any] = {}
    count = 0 if model.h is None else model.h.shape[0]
    if model.G is not None and model.h is not None:
        nv, start = x.shape[0], count - sum(2 * x.shape[0] * boxed + rows for _, boxed, rows in model.elastic_rows)
        for name, boxed, rows in model.elastic_rows:
            end = start + 2 * nv * boxed + rows
            # Rows of bounds are those of the identity: they need no product.
            along = [x, -x] if boxed else []
            along.append(product(model.G[end - rows : end], x))
            beyond = jnp.concatenate(along) - model.h[start:end]
            beyond = jnp.where(jnp.where(shortened, beyond > 0, yields[start:end]), beyond, 0)
            bounds = beyond[: nv * boxed] - beyond[nv * boxed : 2 * nv * boxed]
            found[name] = jnp.concatenate([bounds, beyond[2 * nv * boxed :]])
            start = end
    if model.A is not None and model.b is not None:
        missed = jnp.where(yields[count:] | shortened, model.A @ x - model.b, 0)
        elastic, start = elastic_constraints_of(problem), 0
        if model.unmet is not None:
            missed = missed - model.unmet
        for name in constraints_of(problem, couplings=True):
            leaves, structure = jax.tree.flatten(model.residuals[name])
            parts = []
            for leaf in leaves:
                parts.append(missed[start : start + leaf.size].reshape(leaf.shape))
                start += leaf.size
            if name in elastic:
                found[name] = jax.tree.unflatten(structure, parts)
    return jax.tree.map(lambda missed: jnp.where(none, 0, missed), found)
