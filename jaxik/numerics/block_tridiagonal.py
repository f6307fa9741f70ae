"""Symmetric block tridiagonal systems, factorised one block after the other: linear in their number."""

from typing import NamedTuple

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
        """Before: `upper` of the block before, and what is solved for there: (m, m) and (m,) one after the other."""
        link, solved = before
        own, above, b = block
        left = jnp.concatenate([own, b[:, None]], axis=1) - link.T @ solved
        factor = cho_factor(left[:, :-1], lower=True)
        solved = cho_solve(factor, jnp.concatenate([above, left[:, -1:]], axis=1))
        return (above, solved), (solved[:, :-1], solved[:, -1])

    size = right.shape[-1]
    nothing = jnp.zeros((size, size), right.dtype), jnp.zeros((size, size + 1), right.dtype)
    upper = upper.at[-1].set(0)
    _, solved = lax.scan(eliminate, nothing, (diagonal, upper, right))
    return _substituted(*solved)


def _substituted(ratio: jax.Array, own: jax.Array) -> jax.Array:
    """x[i] = own[i] - ratio[i] x[i + 1]."""

    def substitute(after: jax.Array, block: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ratio, own = block
        x = own - ratio @ after
        return x, x

    return lax.scan(substitute, jnp.zeros_like(own[0]), (ratio, own), reverse=True)[1]


class BlockFactor(NamedTuple):
    """H in factors: of each block left by elimination the Cholesky factor, the block above, and the first by it."""

    lower: jax.Array
    link: jax.Array
    ratio: jax.Array


def factorize_block_tridiagonal(diagonal: jax.Array, upper: jax.Array) -> BlockFactor:
    """Factorise H, of arguments as of `solve_block_tridiagonal`, for several right-hand sides."""

    def eliminate(before: tuple[jax.Array, jax.Array], block: tuple[jax.Array, jax.Array]) -> tuple[tuple, BlockFactor]:
        link, ratio = before
        own, above = block
        factor, _ = cho_factor(own - link.T @ ratio, lower=True)
        solved = cho_solve((factor, True), above)
        return (above, solved), BlockFactor(factor, link, solved)

    nothing = jnp.zeros_like(diagonal[0])
    return lax.scan(eliminate, (nothing, nothing), (diagonal, upper.at[-1].set(0)))[1]


def solve_factorized(factor: BlockFactor, right: jax.Array) -> jax.Array:
    """Solve H x = right (n, m)."""

    def eliminate(before: jax.Array, block: tuple[BlockFactor, jax.Array]) -> tuple[jax.Array, jax.Array]:
        (lower, link, _), b = block
        own = cho_solve((lower, True), b - link.T @ before)
        return own, own

    _, own = lax.scan(eliminate, jnp.zeros_like(right[0]), (factor, right))
    return _substituted(factor.ratio, own)
