"""Symmetric block tridiagonal systems, factorised one block after the other: linear in their number."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve


def solve_block_tridiagonal(diagonal: jax.Array, upper: jax.Array, right: jax.Array) -> jax.Array:
    """Solve H x = right for a positive definite H.

    Golub and Van Loan, "Matrix Computations", 4.5.1: block elimination, stable without pivots as H is positive.

    Args:
      diagonal (n, m, m): blocks on the diagonal.
      upper (n, m, m): blocks right of them, between i and i + 1; the last is not read.
      right (n, m).

    Returns:
      x (n, m); NaN where H is not positive definite.
    """

    def eliminate(before: tuple[jax.Array, jax.Array], block: tuple[jax.Array, ...]) -> tuple[tuple, tuple]:
        """Before: `upper` of the block before, and what is solved for there: (m, m) and (m,) behind one another."""
        link, solved = before
        own, above, b = block
        left = jnp.concatenate([own, b[:, None]], axis=1) - link.T @ solved
        factor = cho_factor(left[:, :-1], lower=True)
        solved = cho_solve(factor, jnp.concatenate([above, left[:, -1:]], axis=1))
        return (above, solved), (solved[:, :-1], solved[:, -1])

    def substitute(after: jax.Array, block: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ratio, own = block
        x = own - ratio @ after
        return x, x

    size = right.shape[-1]
    nothing = jnp.zeros((size, size), right.dtype), jnp.zeros((size, size + 1), right.dtype)
    upper = upper.at[-1].set(0)
    _, solved = lax.scan(eliminate, nothing, (diagonal, upper, right))
    return lax.scan(substitute, jnp.zeros(size, right.dtype), solved, reverse=True)[1]
