"""Differences of a motion over time, and the banded systems that they make: linear in the number of stages."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.numerics.block_tridiagonal import (
    BlockFactor,
    factorize_block_tridiagonal,
    solve_block_tridiagonal,
    solve_factorized,
)
from jaxik.numerics.constants import unit_matrix

ORDERS = 3  # displacements, and their first and second differences: speed, acceleration, jerk
STENCILS = ((1.0, -1.0, 0.0, 0.0), (1.0, -2.0, 1.0, 0.0), (1.0, -3.0, 3.0, -1.0))


def later(x: jax.Array, k: int) -> jax.Array:
    """x[t - k] at t, zero before the first."""
    return jnp.concatenate([jnp.zeros_like(x[:k]), x[: x.shape[0] - k]]) if k else x


def earlier(x: jax.Array, k: int) -> jax.Array:
    """x[t + k] at t, zero behind the last."""
    return jnp.concatenate([x[k:], jnp.zeros_like(x[:k])]) if k else x


def adjoint(order: int, x: jax.Array) -> jax.Array:
    """What slopes (N, ...) of the differences of an order are by stages."""
    return sum((c * earlier(x, k) for k, c in enumerate(STENCILS[order]) if c), start=jnp.zeros_like(x))


def bands_of(stiffness: jax.Array) -> list[jax.Array]:
    """Bands (N, ...) of the sum over orders of D' diag(stiffness) D: the band k is that of stages t and t - k.

    Args:
      stiffness (ORDERS, N, ...).
    """
    bands = [jnp.zeros_like(stiffness[0]) for _ in range(ORDERS + 1)]
    for order, stencil in enumerate(STENCILS):
        for k in range(order + 2):
            for j in range(order + 2 - k):
                # Stage t - j and stage t - j - k, of the difference at t.
                bands[k] = bands[k] + stencil[j] * stencil[j + k] * earlier(stiffness[order], j)
    return bands


class Blocks(NamedTuple):
    """A banded system of stages, of which three make one block: diagonal and upper (batch, N / 3, 3 nv, 3 nv)."""

    diagonal: jax.Array
    upper: jax.Array


def blocks_of(hessian: jax.Array, bands: list[jax.Array], held: jax.Array, ridge: jax.Array) -> Blocks:
    """Put a banded system together.

    Args:
      hessian (N, *batch, nv, nv): of each stage.
      bands (N, *batch, nv): as of `bands_of`.
      held (N, *batch, nv): what stays.
      ridge (): added to the diagonal, as a share of the largest entry there.
    """
    stages, nv = held.shape[0], held.shape[-1]

    def split(x: jax.Array, rank: int) -> jax.Array:
        """(N, *batch, ...) as (*batch in one axis, N / 3, 3, ...)."""
        return jnp.moveaxis(x.reshape(stages // ORDERS, ORDERS, -1, *x.shape[x.ndim - rank :]), 2, 0)

    free = ~held
    own = hessian * (free[..., :, None] & free[..., None, :])
    largest = jnp.max(jnp.diagonal(own, axis1=-2, axis2=-1), axis=(0, -1))[..., None]
    diagonal = jnp.where(held, 1, bands[0] + ridge * largest)
    own = split(own + diagonal[..., None] * unit_matrix(nv, dtype=own.dtype), 2)
    # The band k between stage t and t - k.
    near = [split(bands[k] * free * later(free, k), 1) for k in range(1, ORDERS + 1)]
    eye = unit_matrix(nv, dtype=own.dtype)
    shape = (*own.shape[:3], nv, ORDERS, nv)
    diagonal, upper = jnp.zeros(shape, own.dtype), jnp.zeros(shape, own.dtype)
    for a in range(ORDERS):
        diagonal = diagonal.at[:, :, a, :, a].set(own[:, :, a])
        for b in range(a):
            link = near[a - b - 1][:, :, a, :, None] * eye
            diagonal = diagonal.at[:, :, a, :, b].set(link).at[:, :, b, :, a].set(link)
        for b in range(a + 1):
            # Stage a of a block and stage b of the next, three stages on less a - b.
            link = near[ORDERS - (a - b) - 1][:, 1:, b, :, None] * eye
            upper = upper.at[:, :-1, a, :, b].set(link)
    size = ORDERS * nv
    flat = lambda x: x.reshape(-1, stages // ORDERS, size, size)  # noqa: E731
    return Blocks(flat(diagonal), flat(upper))


def solved(blocks: Blocks, right: jax.Array) -> jax.Array:
    """Solve for all stages (N, *batch, nv); NaN of elements whose system is not positive."""
    return _by_stages(jax.vmap(solve_block_tridiagonal)(*blocks, _by_blocks(right)), right.shape)


def factorized(blocks: Blocks) -> BlockFactor:
    """The system in factors, for several right-hand sides."""
    return jax.vmap(factorize_block_tridiagonal)(*blocks)


def solved_again(factor: BlockFactor, right: jax.Array) -> jax.Array:
    """Solve for all stages (N, *batch, nv), of a system in factors."""
    return _by_stages(jax.vmap(solve_factorized)(factor, _by_blocks(right)), right.shape)


def _by_blocks(x: jax.Array) -> jax.Array:
    """(N, *batch, nv) as (*batch in one axis, N / 3, 3 nv)."""
    x = x.reshape(x.shape[0] // ORDERS, ORDERS, -1, x.shape[-1])
    return jnp.moveaxis(x, 2, 0).reshape(x.shape[2], x.shape[0], -1)


def _by_stages(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.moveaxis(x.reshape(*x.shape[:2], ORDERS, shape[-1]), 0, 2).reshape(shape)
