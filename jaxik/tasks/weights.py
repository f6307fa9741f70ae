"""The cost of each row of a residual."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError


def pairs(a: Any, b: Any) -> list[tuple[jax.Array, jax.Array]]:
    """The leaves of two pytrees of one structure, side by side."""
    return list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def row_weights(task: Any, residual: Any) -> Any:
    """The task's cost of every row, in the structure of its residual."""
    weights = task.weights()
    if jax.tree.structure(weights) != jax.tree.structure(residual):
        weights = jax.tree.map(lambda _: weights, residual)

    def rowwise(w: Any, r: jax.Array) -> jax.Array:
        if np.broadcast_shapes(np.shape(w), (1,) * r.ndim)[-r.ndim :] != r.shape and np.size(w) != 1:
            raise JaxikError(
                f"{type(task).__name__}: a cost of shape {np.shape(w)} does not fit a residual of shape {r.shape}; "
                f"one number for each element has shape {(*np.shape(w), 1)}"
            )
        return jnp.broadcast_to(jnp.asarray(w, r.dtype), r.shape)

    return jax.tree.map(rowwise, weights, residual)


def weighted_rows(task: Any, residual: Any, jacobian: Any) -> tuple[jax.Array, jax.Array]:
    """A task's residual (m,) and Jacobian (m, nv), stacked and weighted with its costs."""
    weights = row_weights(task, residual)
    return (
        jnp.concatenate([jnp.ravel(w * r) for w, r in pairs(weights, residual)]),
        jnp.concatenate([(w[..., None] * j).reshape(-1, j.shape[-1]) for w, j in pairs(weights, jacobian)]),
    )


def unmet(task: Any, errors: Any, tolerance: jax.Array | float) -> Any:
    """What a task reports, 0 in rows within a tolerance and in rows of cost 0; what is not a number stays it."""
    return jax.tree.map(
        lambda w, e: jnp.where((w == 0) | (jnp.abs(e) <= tolerance), 0, e), row_weights(task, errors), errors
    )
