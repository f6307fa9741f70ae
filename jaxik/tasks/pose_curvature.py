"""Curvature of log(T_frame^-1 T_target) along a twist of the frame, in closed form.

With T_frame^-1 T_target = (d, R), w = log R and A(w) = I - [w]/2 + k [w]^2, the residual is (A(w) d, w). A twist (v, u)
of the frame moves d by d x u - v and w by -A(w) u. The second derivative of h . residual along it is M' S M, with S the
second derivative by (d, w) and M this motion, plus the symmetric part of the change of M times the first derivative.
d, w, h and the twist may be in any axes, the same for all. Automatic differentiation costs three times the code and
time.
"""

import jax
import jax.numpy as jnp

from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.fusion import materialize
from jaxik.numerics.lie import skew
from jaxik.numerics.rotation_log import RotationLog, left_jacobian, log_jacobian_slope


def pose_curvature(
    d: jax.Array,
    log: RotationLog,
    multipliers: tuple[jax.Array, jax.Array],
    *,
    twist: bool,
) -> tuple[jax.Array, jax.Array]:
    """First and second derivative of multipliers . (A(w) d, w) along a twist of the frame.

    Args:
      d (3,), log: the target's position and rotation, seen from the frame, in any axes.
      multipliers (3,), (3,): of position and orientation, in the same axes.
      twist: whether the position is that of the twist, A(w) d; else it is d itself.

    Returns:
      force (6,) and stiffness (6, 6), symmetric, along a twist of the frame in the same axes, linear first.
    """
    w, k, k1, k2 = log
    h, by_w = multipliers
    eye, zero = unit_matrix(3, dtype=d.dtype), jnp.zeros((3, 3), d.dtype)
    left = materialize(left_jacobian(log))

    def slope(x: jax.Array) -> jax.Array:
        return materialize(log_jacobian_slope(x, w, k, k1, -1.0))

    across, bent, by_d, lead, even = zero, zero, h, d / 2, 0.0
    if twist:
        by_d, by_w = h @ left, materialize(by_w + h @ log_jacobian_slope(d, w, k, k1, 1.0))
        # S has nothing by d alone; by d and w it is the slope of A' h; by w alone it is w c' + c w' + k (d h' + h d') +
        # 2 rest I. With A' w = w and A' A = I + bow [w]^2, A' S A is a sum of products of vectors: half of it here.
        across = materialize(slope(h) @ left)
        alpha, beta, gamma, s = jnp.sum(w * d), jnp.sum(w * h), jnp.sum(d * h), jnp.sum(w * w)
        lag = alpha * beta - s * gamma
        c = 2 * k1 * (beta * d + alpha * h - 2 * gamma * w) + 2 * k2 * lag * w
        rest, bow = k1 * lag - k * gamma, 2 * k - 0.25 - k * k * s
        bent = w[:, None] * (c @ left + rest * bow * w) + skew(d) @ across
        lead, even = lead + k * (d @ left), rest * (1 - bow * s)
    # The position moves in axes that do not turn with u: d changes by u x v, to second order, and not by half of it.
    across = across + skew(by_d)
    # Half of [by_d] [d] = d by_d' - by_d . d I is in the lead.
    bent = bent + lead[:, None] * by_d + (even - jnp.sum(d * by_d) / 2) * eye + slope(by_w / 2) @ left
    both = bent + bent.T
    force = jnp.concatenate([-by_d, by_d @ skew(d) - by_w @ left])
    return force, jnp.concatenate([jnp.concatenate([zero, across], axis=1), jnp.concatenate([across.T, both], axis=1)])
