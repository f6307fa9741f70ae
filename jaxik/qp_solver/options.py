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
      max_iterations: the most changes of the active set (*batch,); None: 50, plus ten for every bound, row and
        equality. Usual are about as many as there are active constraints at the minimum.
      tolerance: the largest `kkt_residual` of a solution (*batch,); None: 1e-10 in float64, 1e-4 in float32. Every
        program is solved as far as rounding allows, whatever the tolerance.

    Raises:
      JaxikError: if an option is negative or not a number.
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
