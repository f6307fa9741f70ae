"""Options of the quadratic program."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, set_fields
from jaxik.core.validation import option


@pytree
class QPOptions:
    """Options of `qp`, all traced by JAX, so changing them never recompiles.

    Args:
      max_iterations: at most so many constraints enter or leave the active set (*batch,); None: 50 and ten for every
        bound, row and equality. About as many iterations as constraints are active at the minimum is usual.
      tolerance: a larger `kkt_residual` is no solution (*batch,); None: 1e-10 in float64, 1e-4 in float32. Every
        program is solved as far as rounding allows, whatever the tolerance.

    Raises:
      JaxikError: for what is not a number, or is negative.
    """

    max_iterations: Any = leaf(0, default=None)
    tolerance: Any = leaf(0, default=None)

    def __post_init__(self) -> None:
        most, left = self.max_iterations, self.tolerance
        set_fields(
            self,
            max_iterations=None if most is None else option("max_iterations", most, jnp.int32),
            tolerance=None if left is None else option("tolerance", left, float),
        )


def max_iterations(options: QPOptions, constraints: int) -> jax.Array | int:
    return 50 + 10 * constraints if options.max_iterations is None else options.max_iterations


def tolerance(options: QPOptions, dtype: Any) -> jax.Array | float:
    if options.tolerance is not None:
        return options.tolerance
    return 1e-10 if dtype == jnp.float64 else 1e-4
