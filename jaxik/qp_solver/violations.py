"""Violations of constraints and wrong signs of multipliers, beyond rounding."""

import jax
import jax.numpy as jnp

from jaxik.qp_solver.scaling import ScaledQP
from jaxik.qp_solver.sweep_tableau import Point, rounding

# Violations and wrong signs below this many roundings count as zero.
NOISE = 32


def value_noise(scaled: ScaledQP, point: Point) -> jax.Array:
    """Violations (N,) up to which a value is within its limits, to rounding."""
    largest = jnp.max(jnp.where(scaled.is_bound, jnp.abs(point.value), 0))
    return NOISE * rounding(largest.dtype).eps * (largest + jnp.where(scaled.is_bound, 0, jnp.abs(scaled.vector)))


def violation(scaled: ScaledQP, point: Point, active: jax.Array) -> jax.Array:
    """Violation (N,) of inactive constraints beyond rounding: positive above the upper limit, negative below."""
    value, noise = point.value, value_noise(scaled, point)
    above, below = value > scaled.upper + noise, value < scaled.lower - noise
    # An infinite limit is never subtracted from an infinite one: that would be NaN.
    excess = jnp.where(above, value - jnp.where(above, scaled.upper, 0), 0)
    excess = jnp.where(below, value - jnp.where(below, scaled.lower, 0), excess)
    return jnp.where(active, 0, excess)


def signs(scaled: ScaledQP, point: Point) -> jax.Array:
    """Signs (N,) that multipliers of active constraints have: 1 at the upper limit, -1 at the lower one, 0 for any."""
    upper, lower = point.value == scaled.upper, point.value == scaled.lower
    return jnp.where(upper & lower, 0, jnp.where(upper, 1, -1)).astype(point.value.dtype)


def multiplier_noise(scaled: ScaledQP, point: Point) -> jax.Array:
    """Size () up to which a multiplier of the wrong sign is zero, to rounding."""
    eps = rounding(point.value.dtype).eps
    slopes = jnp.max(jnp.where(scaled.is_bound, jnp.abs(scaled.vector), 0))
    return NOISE * eps * jnp.maximum(slopes, jnp.max(jnp.abs(point.multiplier)))


def violated_constraints(scaled: ScaledQP, point: Point, active: jax.Array, ignored: jax.Array) -> jax.Array:
    """Mask (N,) of inactive constraints that are violated and active ones with multipliers of the wrong sign.

    Args:
      ignored (N,): violated constraints that do not count.
    """
    value, multiplier = point
    primal, dual = value_noise(scaled, point), multiplier_noise(scaled, point)
    violated = ~ignored & ((value > scaled.upper + primal) | (value < scaled.lower - primal))
    wrong_sign = ((multiplier < -dual) & (value != scaled.lower)) | ((multiplier > dual) & (value != scaled.upper))
    return jnp.where(active, wrong_sign, violated)
