"""What `solve` did on its way: cost, step, damping and phase after every step, for those who ask why it is stuck."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree


@pytree
class Trace:
    """The way of every element, row i after i steps; row 0 is the first evaluation.

    An element has `iterations + 1` rows, as far as `SolveOptions.record_trace` reaches: T is one more than that.
    Polishing steps are no iterations, and part of the last row. Where nothing is recorded stands NaN, and phase -1.

    Attributes:
      cost (*batch, T): 1/2 |cost * residual|^2 of the level that is worked on, at the best configuration so far; a
        rejected step repeats it. On the highest level it never rises by more than rounding.
      size (*batch, T): largest entry of the last step that was proposed [rad or m]; of phases from 1 on the last
        undamped one, as in `Solution.stationarity`; infinite before the first.
      damping (*batch, T): of the next step, relative to the largest diagonal entry of the model.
      phase (*batch, T): 0 Gauss-Newton, 1 Newton, 2 the second level, 3 the third, ...; int32.
    """

    cost: jax.Array = leaf(1)
    size: jax.Array = leaf(1)
    damping: jax.Array = leaf(1)
    phase: jax.Array = leaf(1)


def empty_record(steps: int, dtype: Any) -> jax.Array:
    """(T, 4): one array, so that a step is one write."""
    return jnp.full((steps + 1, 4), jnp.nan, dtype)


def row_of(phase: int, state: Any, cost: jax.Array, told: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What a step that led to `state` leaves in the record (4,), and where; below 0 where it is not told."""
    row = jnp.stack([cost, state.size, state.damping, jnp.asarray(phase, cost.dtype)])
    return row, jnp.where(told, state.iterations, -1)


def trace_of(record: jax.Array) -> Trace:
    """The record (T, 4) by its columns."""
    cost, size, damping, phase = record.T
    return Trace(cost, size, damping, jnp.where(jnp.isnan(phase), -1, phase).astype(jnp.int32))
