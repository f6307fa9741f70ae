"""Sine and cosine together, and the angle that has them, in forms that run along the lanes.

XLA's float32 functions on a CPU go one value at a time: 10 ns each, which made sines and cosines a fifth of a solver
step, and a single arctangent a tenth of what was left.
"""

import functools

import jax
import jax.numpy as jnp

from jaxik.numerics.custom_rules import pure_rule

# pi/2 in three parts, the first two short enough that their products with a quadrant's number are exact (Cody, Waite).
HALF_PI = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
# Minimax polynomials on [-pi/4, pi/4] (Cephes, sinf.c): x + x^3 S(x^2), 1 - x^2/2 + x^4 C(x^2).
SINE = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
COSINE = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
# Minimax polynomial of atan(t)/t in t^2 on [0, 1], highest power first: to 2.4e-9, to 7e-8 as float32 computes it.
ARCTANGENT = (
    -0.0017539301327367375, 0.01072694402946942, -0.030804597215801265, 0.057552102300875464, -0.08377315479130698,
    0.10942030679467467, -0.1426193310907639, 0.19998266041845464, -0.33333283641706557, 0.9999999976306286,
)  # fmt: skip


@jax.custom_jvp
def sine_cosine(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sine and cosine; in float32 to 1e-7 for |x| up to 1e4."""
    if x.dtype != jnp.float32:
        return jnp.sin(x), jnp.cos(x)
    quadrant = jnp.round(x * (2 / jnp.pi))
    r = x
    for part in HALF_PI:
        r = r - quadrant * part
    square = r * r
    sine = r + r * square * (SINE[0] + square * (SINE[1] + square * SINE[2]))
    cosine = 1 - square / 2 + square * square * (COSINE[0] + square * (COSINE[1] + square * COSINE[2]))
    number = quadrant.astype(jnp.int32)
    odd = (number & 1) == 1
    return (
        jnp.where(odd, cosine, sine) * jnp.where((number & 2) == 2, -1, 1).astype(x.dtype),
        jnp.where(odd, sine, cosine) * jnp.where(((number + 1) & 2) == 2, -1, 1).astype(x.dtype),
    )


@sine_cosine.defjvp
@pure_rule
def _derivative(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    sine, cosine = sine_cosine(primals[0])
    return (sine, cosine), (cosine * tangents[0], -sine * tangents[0])


def angle_by_sine(square: jax.Array, cosine: jax.Array) -> jax.Array:
    """x / sin(x) of an angle x in [0, pi/2] with this sin(x)^2 and cos(x); in float32 to 2.5e-7 of itself.

    Derivatives in float32 are those of the polynomial, to 1e-5.
    """
    if square.dtype != jnp.float32:
        # asin(s)/s = 1 + s^2/6 has a relative error of 3 s^4/40: below 1e-17 up to s^2 = 1e-8.
        small = square < 1e-8
        sine = jnp.sqrt(jnp.where(small, 1.0, square))
        return jnp.where(small, 1 + square / 6, jnp.arctan2(sine, cosine) / sine)
    # Of half the angle, whose tangent is sin(x) / (1 + cos(x)), at most 1: without a root, and without a choice.
    inverse = 1 / (1 + cosine)
    tangent = square * inverse * inverse
    return 2 * inverse * functools.reduce(lambda total, c: total * tangent + c, ARCTANGENT)
