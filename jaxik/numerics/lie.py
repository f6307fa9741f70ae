"""Rotations and rigid transforms as matrices, for one element; quaternions (wxyz) at the edges.

Every function is finite, with finite first derivatives, at zero rotation and at 180 degrees, in float32 and float64.
"""

import functools
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxik.numerics.constants import unit_matrix
from jaxik.numerics.custom_rules import pure_rule
from jaxik.numerics.fusion import divide_by_one, materialize
from jaxik.numerics.trigonometry import angle_by_sine, sine_cosine

# Below this squared angle the series is used; at 0.25 its first neglected term is 2e-17 of the leading one.
SERIES_ANGLE_SQUARED = 0.25
# MuJoCo's mjMINVAL: what is shorter is not normalised.
MINIMUM_NORM = 1e-15
# |B_2n| / (2n)!: Taylor coefficients of (1 - (x/2) cot(x/2)) / x^2 in x^2, highest first; then those of its first two
# derivatives by x^2.
INVERSE_JACOBIAN_SERIES = [
    (1 / 74724249600, 691 / 1307674368000, 1 / 47900160, 1 / 1209600, 1 / 30240, 1 / 720, 1 / 12)
]  # fmt: skip
for _ in range(2):
    INVERSE_JACOBIAN_SERIES.append(tuple(np.polyder(INVERSE_JACOBIAN_SERIES[-1]).tolist()))


# d/dw_i of skew(w). Sums with constants run along the lanes; stacking nine scalars makes every entry of the result ask
# which of them it is.
GENERATORS = np.cross(np.eye(3)[:, None, :], np.eye(3)[None, :, :]).transpose(0, 2, 1)

# Traced once for each shape, and then inlined: tasks ask for the log of a pose ten times in a solve. Not for what asks
# `is_alone`, of which JAX's cache knows nothing.
traced_once = functools.partial(jax.jit, inline=True)


class Transform(NamedTuple):
    """A rigid transform: `x_parent = rotation @ x + position`, rotation (3, 3), position (3,) [m]."""

    rotation: jax.Array
    position: jax.Array

    def __matmul__(self, other: "Transform") -> "Transform":
        return Transform(self.rotation @ other.rotation, self.position + self.rotation @ other.position)

    def inverse(self) -> "Transform":
        return Transform(self.rotation.T, -(self.rotation.T @ self.position))

    def to_se3(self) -> jaxlie.SE3:
        return jaxlie.SE3(jnp.concatenate([matrix_to_quaternion(self.rotation), self.position]))

    @staticmethod
    def from_se3(pose: jaxlie.SE3) -> "Transform":
        return Transform(quaternion_to_matrix(pose.wxyz_xyz[..., :4]), pose.wxyz_xyz[..., 4:])


def exactly() -> AbstractContextManager[None]:
    """For rules of derivatives, which are traced outside of what sets the precision of the functions that have them."""
    return jax.default_matmul_precision("highest")


def skew(w: jax.Array) -> jax.Array:
    """The matrix (3, 3) with `skew(w) @ x = cross(w, x)`."""
    return jnp.tensordot(w, jnp.asarray(GENERATORS, w.dtype), 1)


def angular_velocity(r: jax.Array, change: jax.Array) -> jax.Array:
    """The velocity (3,) in world axes at which a rotation matrix turns, of its rate of change (3, 3)."""
    return jnp.sum(jnp.asarray(GENERATORS, r.dtype) * (change @ r.T), axis=(1, 2)) / 2


@jax.custom_jvp
def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """Cross product along axis 0: (3, ...) and (3, ...)."""
    # Once around and on: both turns of a vector are slices of one array.
    a, b = jnp.concatenate([a, a[:2]]), jnp.concatenate([b, b[:2]])
    return a[1:4] * b[2:] - a[2:] * b[1:4]


@functools.partial(cross.defjvp, symbolic_zeros=True)
def _crossed(primals: tuple[jax.Array, jax.Array], tangents: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
    """As a product of matrices: backwards, slices would become pads, which are not vector instructions."""
    (a, b), (da, db) = primals, tangents
    total = jnp.zeros_like(a)
    with exactly():
        for fixed, moved, sign in ((a, db, 1), (b, da, -1)):
            if not isinstance(moved, SymbolicZero):
                matrix = jnp.einsum("jik,j...->ik...", jnp.asarray(GENERATORS, a.dtype), fixed)
                total = total + sign * jnp.einsum("ik...,k...->i...", matrix, moved)
    return cross(a, b), total


def plane_across(unit: jax.Array, other: jax.Array) -> jax.Array:
    """Two unit vectors (2, 3), perpendicular to each other and to the unit vector `other`.

    They are chosen across `unit` alone (Duff et al., "Building an Orthonormal Basis, Revisited", 2017), and turned with
    it to `other` by the shortest way: what they have in common with the normal of the plane of both stays as it is, so
    that in a motion in that plane none of them becomes nearly, but not quite, the normal.
    """
    x, y, z = unit
    sign = jnp.where(z < 0, -1, 1).astype(unit.dtype)
    a = -1 / (sign + z)
    chosen = jnp.stack([1 + sign * x * x * a, sign * x * y * a, -sign * x, x * y * a, sign + y * y * a, -y])
    chosen = chosen.reshape(2, 3)
    middle = unit + other
    size = jnp.sum(middle * middle) / 2
    share = (chosen @ other) / jnp.where(size > jnp.finfo(unit.dtype).eps, size, 1)
    return chosen - share[:, None] * middle


def normalized(q: jax.Array) -> jax.Array:
    """Unit vector along `q` (n,); a quaternion shorter than 1e-15 becomes the identity, as MuJoCo has it."""
    square = jnp.sum(q * q)
    tiny = square < MINIMUM_NORM * MINIMUM_NORM
    identity = unit_matrix(1, q.shape[0], dtype=q.dtype)[0]
    return jnp.where(tiny, identity, q / jnp.sqrt(jnp.where(tiny, 1.0, square)))


@jax.custom_jvp
def quaternion_to_matrix(q: jax.Array) -> jax.Array:
    """Rotation matrix (3, 3) of a quaternion (4,) wxyz of any length; one shorter than 1e-15 is the identity.

    With I + 2 (w [v] + [v]^2) / |q|^2, XLA makes a constant of what follows from constants: it leaves products alone of
    which both factors are broadcast.
    """
    square, across = jnp.sum(q * q), skew(q[1:])
    tiny = square < MINIMUM_NORM * MINIMUM_NORM
    scale = jnp.where(tiny, 0, 2 / jnp.where(tiny, 1, square))
    return unit_matrix(3, dtype=q.dtype) + scale * (q[0] * across + across @ across)


@quaternion_to_matrix.defjvp
@pure_rule
def _turned_matrix(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """A rotation turns by an angular velocity. Term by term, the rule was a third of the gradient of a solution."""
    (q,), (change,) = primals, tangents
    square, eye = jnp.sum(q * q), unit_matrix(3, dtype=q.dtype)
    tiny = square < MINIMUM_NORM * MINIMUM_NORM
    with exactly():
        matrix = quaternion_to_matrix(q)
        turning = jnp.concatenate([-q[1:, None], q[0] * eye + skew(q[1:])], axis=1)
        turn = turning @ change * jnp.where(tiny, 0, 2 / jnp.where(tiny, 1, square))
        return matrix, skew(turn) @ matrix


@jax.custom_jvp
@traced_once
def matrix_to_quaternion(r: jax.Array) -> jax.Array:
    """Quaternion (4,) wxyz with w >= 0 of a rotation matrix (3, 3).

    4 q q' is linear in the matrix; its column with the largest diagonal entry (at least 1) is the quaternion up to
    scale, so no cancellation occurs at any angle (Shepperd 1978).
    """
    square = jnp.stack(
        [
            1 + r[0, 0] + r[1, 1] + r[2, 2],
            1 + r[0, 0] - r[1, 1] - r[2, 2],
            1 - r[0, 0] + r[1, 1] - r[2, 2],
            1 - r[0, 0] - r[1, 1] + r[2, 2],
        ]
    )
    wx, wy, wz = r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]
    xy, xz, yz = r[1, 0] + r[0, 1], r[0, 2] + r[2, 0], r[2, 1] + r[1, 2]
    columns = (
        jnp.stack([square[0], wx, wy, wz]),
        jnp.stack([wx, square[1], xy, xz]),
        jnp.stack([wy, xy, square[2], yz]),
        jnp.stack([wz, xz, yz, square[3]]),
    )
    best, column = square[0], columns[0]
    for i in (1, 2, 3):
        column = jnp.where(square[i] > best, columns[i], column)
        best = jnp.maximum(best, square[i])
    q = column / jnp.sqrt(jnp.sum(column * column))
    return jnp.where(q[0] < 0, -q, q)


@matrix_to_quaternion.defjvp
@pure_rule
def _turned_quaternion(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Among rotations: the matrix changes by an angular velocity."""
    (r,), (change,) = primals, tangents
    q, eye = matrix_to_quaternion(r), unit_matrix(3, dtype=r.dtype)
    with exactly():
        turning = jnp.concatenate([-q[None, 1:], q[0] * eye - skew(q[1:])])
        return q, turning @ (angular_velocity(r, change) / 2)


def log_quaternion(q: jax.Array) -> jax.Array:
    """Rotation vector (3,) [rad] of a unit quaternion (4,) wxyz with w >= 0."""
    return 2 * angle_by_sine(jnp.sum(q[1:] * q[1:]), q[0]) * q[1:]


def log_of_either_sign(q: jax.Array) -> jax.Array:
    """Rotation vector (3,) [rad], |.| <= pi, of a unit quaternion (4,) wxyz, of which both signs are one rotation."""
    return log_quaternion(jnp.where(q[0] < 0, -q, q))


def log_rotation(r: jax.Array) -> jax.Array:
    """Rotation vector (3,) [rad], |.| <= pi, of a rotation matrix (3, 3)."""
    return log_quaternion(matrix_to_quaternion(r))


def exp_quaternion(w: jax.Array) -> jax.Array:
    """Unit quaternion (4,) wxyz of a rotation vector (3,) [rad]."""
    square = jnp.sum(w * w)
    small = square < 1e-8
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    # The series' relative errors, x^6/46080 and x^4/1920, are below 1e-19 here.
    sine, cosine = sine_cosine(angle / 2)
    cosine = jnp.where(small, 1 - square / 8 + square * square / 384, cosine)
    scale = jnp.where(small, 0.5 - square / 48, sine / angle)
    return jnp.concatenate([cosine[None], scale * w])


def quaternion_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Hamilton product of quaternions (4,) wxyz."""
    w = a[0] * b[0] - jnp.sum(a[1:] * b[1:])
    return jnp.concatenate([w[None], a[0] * b[1:] + b[0] * a[1:] + cross(a[1:], b[1:])])


def conjugate(q: jax.Array) -> jax.Array:
    return jnp.concatenate([q[:1], -q[1:]])


def quaternion_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """Rotation vector (3,) w with `a * exp(w) = b`, |w| <= pi, for quaternions that need not be normalised."""
    return log_of_either_sign(quaternion_product(conjugate(normalized(a)), normalized(b)))


@jax.custom_jvp
def log_with_coefficients(r: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Rotation vector w of a matrix, and k(s) = (1 - (x/2) cot(x/2)) / x^2 with its first two derivatives by s = x^2.

    k makes the left Jacobian of the log, I - [w]/2 + k [w]^2, for x = |w| <= pi. The quaternion on the way has sine
    and cosine of x/2, so no further one is taken.
    """
    return quaternion_log_with_coefficients(matrix_to_quaternion(r))


@log_with_coefficients.defjvp
@pure_rule
def _turned_log(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[Any, Any]:
    """Where a rotation turns by u, w moves by A u, s by 2 w.u, and each coefficient by the next one times that."""
    (r,), (change,) = primals, tangents
    w, k, k1, k2 = log_with_coefficients(r)
    _, last = jax.jvp(lambda r: quaternion_log_with_coefficients(matrix_to_quaternion(r))[3], (r,), (change,))
    with exactly():
        turn = divide_by_one(angular_velocity(r, change), w)
        longer = 2 * jnp.sum(w * turn)
        # Backwards, all that pulls at w comes together here.
        moved = divide_by_one(_left_jacobian(w, k) @ turn, w)
        return (w, k, k1, k2), (moved, k1 * longer, k2 * longer, last)


@traced_once
def quaternion_log_with_coefficients(q: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """`log_with_coefficients` of a unit quaternion (4,) wxyz with w >= 0."""
    cosine, sine2 = q[0], jnp.sum(q[1:] * q[1:])
    # x / sin(x/2), for x = |w|.
    ratio = materialize(2 * angle_by_sine(sine2, cosine))
    square = sine2 * ratio * ratio
    small = square < SERIES_ANGLE_SQUARED
    near = [functools.reduce(lambda total, c: total * square + c, terms) for terms in INVERSE_JACOBIAN_SERIES]
    s, sine2 = jnp.where(small, 1.0, square), jnp.where(small, 1.0, sine2)
    # With a = (x/2) cot(x/2): a' = a/(2 s) - 1/(8 sin^2), a'' = a'/(2 s) - a/(2 s^2) + cos/(16 x sin^3), by s.
    a = ratio * cosine / 2
    a1 = a / (2 * s) - 1 / (8 * sine2)
    a2 = a1 / (2 * s) - a / (2 * s * s) + cosine / (16 * ratio * sine2 * sine2)
    k = (1 - a) / s
    k1 = -(a1 + k) / s
    k2 = -(a2 + 2 * k1) / s
    k, k1, k2 = (jnp.where(small, series, far) for series, far in zip(near, (k, k1, k2), strict=True))
    return materialize(ratio * q[1:]), materialize(k), materialize(k1), k2


def log_jacobian_slope(x: jax.Array, w: jax.Array, k: jax.Array, k1: jax.Array, sign: float) -> jax.Array:
    """Derivative (3, 3) by w of x - sign (w x x)/2 + k w x (w x x); k1 is the derivative of k by w.w."""
    along, square = jnp.sum(w * x), jnp.sum(w * w)
    # The factors of w' summed up as a vector first: as matrices each would be nine products.
    by_w = 2 * k1 * (along * w - square * x) - 2 * k * x
    return skew(sign / 2 * x) + k * along * unit_matrix(3, dtype=w.dtype) + w[:, None] * (k * x) + by_w[:, None] * w


def log_pose(error: Transform) -> jax.Array:
    """Twist (6,), linear first, whose exponential is `report`: (V^-1 p, w)."""
    w, k, _, _ = log_with_coefficients(error.rotation)
    return _twist(w, k, materialize(error.position))


def _twist(w: jax.Array, k: jax.Array, d: jax.Array) -> jax.Array:
    """(V^-1 d, w)."""
    return jnp.concatenate([d - cross(w, d) / 2 + k * _crossed_twice(w, d), w])


def _crossed_twice(w: jax.Array, d: jax.Array) -> jax.Array:
    """w x (w x d)."""
    return jnp.sum(w * d) * w - jnp.sum(w * w) * d


def log_rotation_derivative(r: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The rotation vector w (3,) of `r`, and the left Jacobian of the log, A = I - [w]/2 + k [w]^2 (3, 3).

    Where `r` moves to exp(u) r, w moves by A u.
    """
    w, k, _, _ = log_with_coefficients(r)
    return w, _left_jacobian(w, k)


def _left_jacobian(w: jax.Array, k: jax.Array) -> jax.Array:
    """I - [w]/2 + k [w]^2, in which [w]^2 = w w' - w'w I."""
    eye = unit_matrix(3, dtype=w.dtype)
    return (1 - k * jnp.sum(w * w)) * eye - skew(w) / 2 + k * (w[:, None] * w)


def log_pose_derivative(error: Transform) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The twist of `report` and its derivative along a body twist (v, u) of the frame that `report` is seen from.

    With error = T_frame^-1 T_target and T_frame moving by exp((v, u)), error moves to exp(-(v, u)) error and
    d(linear) = -A v + B u, d(angular) = -A u, where A = V^-1(w) and B = A [d] - d(V^-1 d)/dw A.

    Returns:
      twist (6,), A (3, 3), B (3, 3).
    """
    w, k, slope, _ = log_with_coefficients(error.rotation)
    d = materialize(error.position)
    eye = unit_matrix(3, dtype=w.dtype)
    a = materialize(_left_jacobian(w, k))
    # d/dw of -(w x d)/2 + k (w (w.d) - d (w.w))
    change = (
        skew(d) / 2
        + k * (jnp.sum(w * d) * eye + w[:, None] * d[None, :] - 2 * d[:, None] * w[None, :])
        + (2 * slope) * _crossed_twice(w, d)[:, None] * w[None, :]
    )
    change = materialize(change)
    # In one kernel with all of it, XLA would cut the products in two, for two threads.
    return _twist(w, k, d), a, materialize(a @ materialize(skew(d)) - change @ a)
