"""Sine and cosine together, and the angle that has them, in forms that run along the lanes.

XLA's float32 functions on a CPU go one value at a time: 10 ns each, which made sines and cosines a fifth of a solver
step, and a single arctangent a tenth of what was left.
"""

import jax
import jax.numpy as jnp

from jaxik.numerics.custom_rules import pure_rule

# pi/2 in three parts, the first two short enough that their products with a quadrant's number are exact (Cody, Waite).
HALF_PI = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
# Minimax polynomials on [-pi/4, pi/4] (Cephes, sinf.c): x + x^3 S(x^2), 1 - x^2/2 + x^4 C(x^2).
SINE = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
COSINE = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
# Minimax polynomial on [-tan(pi/8), tan(pi/8)] (Cephes, atanf.c): x + x^3 P(x^2).
ARCTANGENT = (-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)
TAN_OF_EIGHTH = 0.41421356237309503


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


def first_quadrant(sine: jax.Array, cosine: jax.Array) -> jax.Array:
    """The angle in [0, pi/2] with this sine and cosine >= 0, or multiples of them; in float32 to 2.5e-7 of itself.

    Derivatives in float32 are those of the polynomial, to 1e-5.
    """
    if sine.dtype != jnp.float32:
        return jnp.arctan2(sine, cosine)
    steep = sine > cosine
    large, small = jnp.where(steep, sine, cosine), jnp.where(steep, cosine, sine)
    # Beyond pi/8, the angle to pi/4.
    wide = small > TAN_OF_EIGHTH * large
    below = jnp.where(wide, large + small, large)
    x = jnp.where(wide, small - large, small) / jnp.where(below == 0, 1, below)
    square = x * x
    a, b, c, d = ARCTANGENT
    angle = x + x * square * (a + square * (b + square * (c + square * d)))
    angle = jnp.where(wide, jnp.float32(jnp.pi / 4) + angle, angle)
    return jnp.where(steep, jnp.float32(jnp.pi / 2) - angle, angle)
