"""Logs of rotations and poses, with what their derivatives are made of, for one element.

Every function is finite, with finite derivatives, at zero rotation and at 180 degrees, in float32 and float64.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.custom_rules import pure_rule
from jaxik.numerics.fusion import materialize
from jaxik.numerics.lie import (
    angular_velocity,
    conjugate,
    cross,
    exactly,
    quaternion_along,
    quaternion_product,
    skew,
    traced_once,
    turning,
)
from jaxik.numerics.trigonometry import angle_by_sine

# Below this squared angle the series is used; at 0.25 its first neglected term is 2e-17 of the leading one.
SERIES_ANGLE_SQUARED = 0.25
# |B_2n| / (2n)!: Taylor coefficients of (1 - (x/2) cot(x/2)) / x^2 in x^2, highest first; then those of its first two
# derivatives by x^2.
INVERSE_JACOBIAN_SERIES = [
    (1 / 74724249600, 691 / 1307674368000, 1 / 47900160, 1 / 1209600, 1 / 30240, 1 / 720, 1 / 12)
]  # fmt: skip
for _ in range(2):
    INVERSE_JACOBIAN_SERIES.append(tuple(np.polyder(INVERSE_JACOBIAN_SERIES[-1]).tolist()))


class RotationLog(NamedTuple):
    """Rotation vector w, and what makes the left Jacobian of the log, A = I - [w]/2 + k [w]^2.

    Attributes:
      vector (3,): w [rad], x = |w| <= pi.
      k, k1, k2 (): (1 - (x/2) cot(x/2)) / x^2, and its first two derivatives by x^2.
    """

    vector: jax.Array
    k: jax.Array
    k1: jax.Array
    k2: jax.Array


@traced_once
def log_of_quaternion(q: jax.Array) -> RotationLog:
    """Of a quaternion (4,) wxyz of any length and either sign; that of length zero has none, NaN.

    The quaternion has sine and cosine of x/2, so no further one is taken.
    """
    sine2 = jnp.sum(q[1:] * q[1:])
    length2 = q[0] * q[0] + sine2
    inverse = 1 / jnp.sqrt(length2)
    # x / sin(x/2), with the sign and for the length of q.
    ratio = 2 * angle_by_sine(sine2 * inverse * inverse, jnp.abs(q[0]) * inverse) * inverse
    ratio = materialize(jnp.where(q[0] < 0, -ratio, ratio))
    # With s = x^2, a = (x/2) cot(x/2) and b = (x / sin(x/2))^2 = 4 a^2 + s: a' = (4 a - b) / (8 s), b' = b (1 - a) / s.
    s, a = sine2 * ratio * ratio, ratio * q[0] / 2
    b = 4 * a * a + s
    small = s < SERIES_ANGLE_SQUARED
    far = [1 - a, b / 8 + a / 2 - 1, 2 - 0.75 * a - 0.1875 * b - a * b / 8]
    near = [functools.reduce(lambda total, c: total * s + c, terms) for terms in INVERSE_JACOBIAN_SERIES]
    k, k1, k2 = (
        jnp.where(small, x, y / jnp.where(small, 1, s) ** (i + 1))
        for i, (x, y) in enumerate(zip(near, far, strict=True))
    )
    return RotationLog(materialize(ratio * q[1:]), materialize(k), materialize(k1), k2)


@jax.custom_jvp
def log_of_matrix(r: jax.Array) -> RotationLog:
    """Of a rotation matrix (3, 3)."""
    return log_of_quaternion(quaternion_along(r))


@log_of_matrix.defjvp
@pure_rule
def _turned_log(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[RotationLog, RotationLog]:
    (r,), (change,) = primals, tangents
    log = log_of_matrix(r)
    _, last = jax.jvp(lambda r: log_of_quaternion(quaternion_along(r)).k2, (r,), (change,))
    with exactly():
        return log, _moved(log, angular_velocity(r, change), last)


@jax.custom_jvp
def log_between(r: jax.Array, q: jax.Array) -> RotationLog:
    """Of the rotation that a quaternion (4,) of any length is, seen from a rotation matrix (3, 3)."""
    return log_of_quaternion(_seen_from(r, q))


def _seen_from(r: jax.Array, q: jax.Array) -> jax.Array:
    return materialize(quaternion_product(conjugate(materialize(quaternion_along(r))), q))


@log_between.defjvp
@pure_rule
def _log_between_turned(primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]) -> Any:
    (r, q), (dr, dq) = primals, tangents
    log = log_between(r, q)
    _, last = jax.jvp(lambda r, q: log_of_quaternion(_seen_from(r, q)).k2, primals, tangents)
    with exactly():
        return log, _moved(log, r.T @ (turning(q, dq) - angular_velocity(r, dr)), last)


def _moved(log: RotationLog, turn: jax.Array, last: jax.Array) -> RotationLog:
    """Where a rotation turns by u, w moves by A u, s by 2 w.u, and each coefficient by the next one times that."""
    w = log.vector
    turn = materialize(turn)
    longer = 2 * jnp.sum(w * turn)
    # Backwards, all that pulls at w comes together here.
    moved = materialize(left_jacobian(log) @ turn)
    return RotationLog(moved, log.k1 * longer, log.k2 * longer, last)


def left_jacobian(log: RotationLog) -> jax.Array:
    """A (3, 3), with [w]^2 = w w' - w'w I: where the rotation R moves to exp(u) R, w moves by A u."""
    w, k, eye = log.vector, log.k, unit_matrix(3, dtype=log.vector.dtype)
    return (1 - k * jnp.sum(w * w)) * eye - skew(w) / 2 + k * (w[:, None] * w)


def log_jacobian_slope(x: jax.Array, w: jax.Array, k: jax.Array, k1: jax.Array, sign: float) -> jax.Array:
    """Derivative (3, 3) by w of x - sign (w x x)/2 + k w x (w x x); k1 is the derivative of k by w.w."""
    # Else each entry would compute it, and XLA split that between two threads.
    x = materialize(x)
    along, square = jnp.sum(w * x), jnp.sum(w * w)
    # The factors of w' summed up as a vector first: as matrices each would be nine products.
    by_w = 2 * k1 * (along * w - square * x) - 2 * k * x
    return skew(sign / 2 * x) + k * along * unit_matrix(3, dtype=w.dtype) + w[:, None] * (k * x) + by_w[:, None] * w


def log_pose(log: RotationLog, d: jax.Array) -> jax.Array:
    """Twist (6,), linear first, whose exponential has this rotation and the position d (3,): (V^-1 d, w)."""
    w = log.vector
    # Else the slope of a turn would compute it for each of its entries, and XLA split that between two threads.
    linear = materialize(d - cross(w, d) / 2 + log.k * _crossed_twice(w, d))
    return jnp.concatenate([linear, w])


def _crossed_twice(w: jax.Array, d: jax.Array) -> jax.Array:
    """w x (w x d)."""
    return jnp.sum(w * d) * w - jnp.sum(w * w) * d


def log_pose_derivative(log: RotationLog, d: jax.Array, back: jax.Array, way: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Derivative of `log_pose` of the pose (d, exp w) that a frame sees, along a twist (v, u) of the frame.

    With T_frame moving by exp((v, u)) in its own axes, the pose moves to exp(-(v, u)) of it and d(linear) = -A v + B u,
    d(angular) = -A u, where A = V^-1(w) and B = A [d] - C A, C = d(V^-1 d)/dw = [d]/2 + k (w'd I + w d' - 2 d w') +
    2 k1 w x (w x d) w'. Both are applied to `back`: as w'A = w', no product of matrices is left.

    Args:
      back (3, 3): from the axes of (v, u) to those of the frame.
      way (3,): d in the axes of (v, u).

    Returns:
      A @ back (3, 3), B @ back (3, 3).
    """
    w, k = log.vector, log.k
    turned = materialize(w @ back)
    a = materialize((1 - k * jnp.sum(w * w)) * back - skew(w) @ back / 2 + k * w[:, None] * turned)
    # C A = [d] A / 2 + k w'd A + w (k A'd + 2 k1 w'd A'w)' - 2 (k + k1 w'w) d (A'w)'
    along = jnp.sum(w * d)
    by_w = materialize(k * (d @ a) + 2 * log.k1 * along * turned)
    by_d = 2 * (k + log.k1 * jnp.sum(w * w)) * turned
    # In one kernel with all of it, XLA would split that between two threads.
    across = materialize(skew(d))
    bent = across @ a / 2 + k * along * a + w[:, None] * by_w - d[:, None] * by_d
    return a, materialize(a @ skew(way) - bent)
