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
    lower, upper = limits(scaled, point, active)
    above, below = value > upper + noise, value < lower - noise
    # An infinite limit is never subtracted from an infinite one: that would be NaN.
    excess = jnp.where(above, value - jnp.where(above, upper, 0), 0)
    excess = jnp.where(below, value - jnp.where(below, lower, 0), excess)
    return jnp.where(active, 0, excess)


def limits(scaled: ScaledQP, point: Point, active: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Limits (N,) of values: of a constraint that yields, the side of its limit that it is on."""
    if scaled.penalty is None:
        return scaled.lower, scaled.upper
    side = yielding(scaled, point, active)
    lower = jnp.where(side > 0, scaled.upper, jnp.where(side < 0, -jnp.inf, scaled.lower))
    return lower, jnp.where(side < 0, scaled.lower, jnp.where(side > 0, jnp.inf, scaled.upper))


def yielding(scaled: ScaledQP, point: Point, active: jax.Array) -> jax.Array:
    """Of constraints (N,) of an elastic program, 1 or -1 where one yields upwards or downwards, else 0.

    One that yields is not active: its multiplier is given, at the penalty, and its value follows.
    """
    yields = ~active & (jnp.abs(point.multiplier) == scaled.penalty)
    return jnp.where(yields, jnp.sign(point.multiplier), 0)


def released_multiplier(scaled: ScaledQP, multiplier: jax.Array) -> jax.Array:
    """Multipliers (N,) that constraints have which leave the active set: zero, or the penalty if that is nearer."""
    if scaled.penalty is None:
        return jnp.zeros_like(multiplier)
    either = scaled.lower == scaled.upper
    at_penalty = jnp.isfinite(scaled.penalty) & (either | (multiplier > 0.5 * scaled.penalty))
    return jnp.where(at_penalty, jnp.where(multiplier < 0, -scaled.penalty, scaled.penalty), 0)


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
    """Mask (N,) of inactive constraints that are violated and active ones whose multiplier is out of its range.

    Args:
      ignored (N,): violated constraints that do not count.
    """
    value, multiplier = point
    primal, dual = value_noise(scaled, point), multiplier_noise(scaled, point)
    lower, upper = limits(scaled, point, active)
    violated = ~ignored & ((value > upper + primal) | (value < lower - primal))
    wrong_sign = ((multiplier < -dual) & (value != scaled.lower)) | ((multiplier > dual) & (value != scaled.upper))
    if scaled.penalty is not None:
        wrong_sign = wrong_sign | (jnp.abs(multiplier) > scaled.penalty + dual)
    return jnp.where(active, wrong_sign, violated)
