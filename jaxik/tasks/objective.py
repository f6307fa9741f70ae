"""The quadratic that a task adds to one differential-IK step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Objective(NamedTuple):
    """1/2 x' H x + c' x over the displacement x (nv,) of one step, up to a constant.

    Attributes:
      H (nv, nv): symmetric, positive semidefinite.
      c (nv,).
    """

    H: jax.Array
    c: jax.Array

    def value(self, x: Any) -> jax.Array:
        """1/2 x' H x + c' x at a displacement (nv,)."""
        x = jnp.asarray(x, self.c.dtype)
        return x @ self.H @ x / 2 + self.c @ x
