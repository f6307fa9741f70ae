"""First and second derivative of 1/2 |W log(T_frame^-1 T_target)|^2 along a twist of the frame, in closed form.

With X = T_frame^-1 T_target = (d, R), w = log R and A(w) = I - [w]/2 + k [w]^2, the residual is (A(w) d, w). A body
twist (v, u) of the frame moves d by d x u - v and w by -A(w) u. So the derivative is M' g, with g the gradient by
(d, w) and M that motion, and the second one the symmetric part of M' (g's derivative) M + (M's derivative)' g.
Differentiating it automatically costs three times the code and time.
"""

import jax
import jax.numpy as jnp

from jaxik.lie import Transform, log_jacobian_slope, log_with_coefficients, skew


def pose_curvature(
    seen: Transform, position_weight: jax.Array, orientation_weight: jax.Array, *, twist: bool
) -> tuple[jax.Array, jax.Array]:
    """The derivatives of 1/2 |(position_weight * A(w) d, orientation_weight * w)|^2.

    Args:
      seen: the target in the frame's axes.
      position_weight, orientation_weight (3,): in the frame's axes.
      twist: whether the position is that of the twist, A(w) d; else it is d itself.

    Returns:
      force (6,) and stiffness (6, 6), symmetric, along a twist of the frame in its own axes, linear first.
    """
    d = seen.position
    w, k, k1, k2 = log_with_coefficients(seen.rotation)
    eye, turn, zero = jnp.eye(3, dtype=d.dtype), skew(w), jnp.zeros((3, 3), d.dtype)
    left = eye - turn / 2 + k * (turn @ turn)

    def slope(x: jax.Array, sign: float) -> jax.Array:
        return log_jacobian_slope(x, w, k, k1, sign)

    motion = _blocks(-eye, skew(d), zero, -left)
    weight = jnp.concatenate([position_weight, orientation_weight]) ** 2
    if twist:
        # By (d, w): the residual's derivative, and what its own curvature adds under the weighted residual h.
        derivative = _blocks(left, slope(d, 1.0), zero, eye)
        residual = jnp.concatenate([left @ d, w])
        h = position_weight**2 * residual[:3]
        alpha, beta, gamma, s = jnp.sum(w * d), jnp.sum(w * h), jnp.sum(d * h), jnp.sum(w * w)
        inner = beta * d + alpha * h - 2 * gamma * w
        lag = alpha * beta - s * gamma
        ww = k * (d[:, None] * h + h[:, None] * d - 2 * gamma * eye) + 2 * k1 * lag * eye
        ww = ww + 2 * k1 * (inner[:, None] * w + w[:, None] * inner) + 4 * k2 * lag * w[:, None] * w
        dw = slope(h, -1.0)
        second = derivative.T @ (weight[:, None] * derivative) + _blocks(zero, dw, dw.T, ww)
        gradient = derivative.T @ (weight * residual)
    else:
        second = jnp.diag(weight)
        gradient = weight * jnp.concatenate([d, w])
    by_d, by_w = gradient[:3], gradient[3:]
    # The position moves in axes that do not turn with u: d changes by u x v, to second order, and not by half of it.
    across = -skew(by_d)
    bent = _blocks(zero, across.T, across, skew(by_d) @ skew(d) + slope(by_w, -1.0) @ left)
    return motion.T @ gradient, motion.T @ second @ motion + (bent + bent.T) / 2


def _blocks(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    return jnp.concatenate([jnp.concatenate([a, b], axis=1), jnp.concatenate([c, d], axis=1)])
