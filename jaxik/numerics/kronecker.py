"""Points that fill the unit cube evenly, one after the other: a Kronecker sequence."""

import math

import jax
import jax.numpy as jnp
import numpy as np

# Of the 32 bits of a share so many are used: as many as a float32 holds, so that both precisions start alike.
BITS = 24
# 2^32 divided by the golden ratio: multiples of it are far apart.
GOLDEN = 0x9E3779B9


def unit_samples(shift: jax.Array, index: jax.Array) -> jax.Array:
    """Point `index` of a Kronecker sequence in the unit cube (d,).

    Args:
      shift (d,): uint32, where the sequence sets out, in units of 2^-32; from `offsets`.
      index (): of the point.
    """
    place = shift + index.astype(jnp.uint32) * jnp.asarray(_rates(shift.shape[0]))
    return (place >> (32 - BITS)).astype(jnp.float32) * 2.0**-BITS


def _rates(count: int) -> np.ndarray:
    """Fractional parts of the square roots of the first primes, which fill the cube evenly (Richtmyer, 1951)."""
    primes = [n for n in range(2, 20 * count + 20) if all(n % p for p in range(2, math.isqrt(n) + 1))]
    roots = [math.isqrt(prime << 64) & 0xFFFFFFFF for prime in primes[:count]]
    return np.asarray(roots, np.uint32)


def offsets(keys: jax.Array, dimensions: int) -> jax.Array:
    """A shift (n, d), uint32, for each of n keys: their words, hashed with the number of the dimension.

    To draw d numbers from each key by `jax.random` was a tenth of the time in which a search compiles.
    """
    numbers = jnp.arange(1, dimensions + 1, dtype=jnp.uint32) * np.uint32(GOLDEN)
    words = jax.random.key_data(keys).astype(jnp.uint32)
    shift = jnp.broadcast_to(numbers, (words.shape[0], numbers.shape[0]))
    for i in range(words.shape[1]):
        shift = _hashed(shift ^ words[:, i : i + 1])
    return shift


def _hashed(x: jax.Array) -> jax.Array:
    """A number of 32 bits for each one, all bits of which hang on all of its bits (Wellons, "lowbias32", 2018)."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)
