"""First and second derivative of 1/2 |W log(T_frame^-1 T_target)|^2 along a twist of the frame, in closed form.

With X = T_frame^-1 T_target = (d, R), w = log R and A(w) = I - [w]/2 + k [w]^2, the residual is (A(w) d, w). A body
twist (v, u) of the frame moves d by d x u - v and w by -A(w) u. So the derivative is M' g, with g the gradient by
(d, w) and M that motion, and the second one the symmetric part of M' (g's derivative) M + (M's derivative)' g.
Differentiating it automatically costs three times the code and time.
"""

import jax
import jax.numpy as jnp

from jaxik.lie import Transform, cross, log_with_coefficients, skew


def pose_curvature(seen: Transform, position_weight: jax.Array, orientation_weight: jax.Array, *, twist: bool):  # noqa: ANN201
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
    eye, turn = jnp.eye(3, dtype=d.dtype), skew(w)
    left = eye - turn / 2 + k * (turn @ turn)
    wp, wo = position_weight * position_weight, orientation_weight * orientation_weight

    def slope(x: jax.Array, sign: float) -> jax.Array:
        """Derivative by w of x - sign (w x x)/2 + k w x (w x x)."""
        bent = k * (jnp.sum(w * x) * eye + w[:, None] * x - 2 * x[:, None] * w)
        return sign * skew(x) / 2 + bent + 2 * k1 * cross(w, cross(w, x))[:, None] * w

    if twist:
        change = slope(d, 1.0)
        h = wp * (left @ d)
        by_d, by_w = left.T @ h, change.T @ h + wo * w
        dd = left.T @ (wp[:, None] * left)
        dw = left.T @ (wp[:, None] * change) + slope(h, -1.0)
        alpha, beta, gamma, s = jnp.sum(w * d), jnp.sum(w * h), jnp.sum(d * h), jnp.sum(w * w)
        inner = beta * d + alpha * h - 2 * gamma * w
        lag = alpha * beta - s * gamma
        ww = change.T @ (wp[:, None] * change) + k * (d[:, None] * h + h[:, None] * d - 2 * gamma * eye)
        ww = ww + 2 * k1 * (inner[:, None] * w + w[:, None] * inner + lag * eye) + 4 * k2 * lag * w[:, None] * w
        ww = ww + wo * eye
    else:
        by_d, by_w = wp * d, wo * w
        dd, dw, ww = wp * eye, jnp.zeros_like(eye), wo * eye
    motion = jnp.concatenate(
        [jnp.concatenate([-eye, skew(d)], axis=1), jnp.concatenate([jnp.zeros_like(eye), -left], axis=1)]
    )
    second = jnp.concatenate([jnp.concatenate([dd, dw], axis=1), jnp.concatenate([dw.T, ww], axis=1)])
    # The position moves in axes that do not turn with u: d changes by u x v, to second order, and not by half of it.
    across = -skew(by_d)
    bent = jnp.concatenate(
        [
            jnp.concatenate([jnp.zeros_like(eye), across.T], axis=1),
            jnp.concatenate([across, skew(by_d) @ skew(d) + slope(by_w, -1.0) @ left], axis=1),
        ]
    )
    force = motion.T @ jnp.concatenate([by_d, by_w])
    return force, motion.T @ second @ motion + (bent + bent.T) / 2
