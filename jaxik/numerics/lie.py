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
from jaxik.numerics.trigonometry import angle_by_sine, sine_cosine

# MuJoCo's mjMINVAL: what is shorter is not normalised.
MINIMUM_NORM = 1e-15


# d/dw_i of skew(w). Sums with constants run along the lanes; stacking nine scalars makes every entry of the result ask
# which of them it is.
GENERATORS = np.cross(np.eye(3)[:, None, :], np.eye(3)[None, :, :]).transpose(0, 2, 1)

# Of the products of i, j and k with what each entry of a product is made of.
PRODUCT_SIGNS = ((-1, 1, -1, 1), (-1, 1, 1, -1), (-1, -1, 1, 1))

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


@traced_once
def poses_at(position: jax.Array) -> jax.Array:
    """Poses (*batch, 7), wxyz before xyz, at positions (*batch, 3), not turned."""
    # Sharded as the positions are, which an explicit mesh asks for.
    identity = jnp.ones_like(position[..., :1]), jnp.zeros_like(position)
    return jnp.concatenate([*identity, position], axis=-1)


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
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


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
    matrix = quaternion_to_matrix(*primals)
    with exactly():
        return matrix, skew(turning(*primals, *tangents)) @ matrix


def turning(q: jax.Array, change: jax.Array) -> jax.Array:
    """The velocity (3,) in world axes at which a quaternion (4,) of any length turns, of its rate of change (4,)."""
    square, eye = jnp.sum(q * q), unit_matrix(3, dtype=q.dtype)
    tiny = square < MINIMUM_NORM * MINIMUM_NORM
    across = jnp.concatenate([-q[1:, None], q[0] * eye + skew(q[1:])], axis=1)
    return across @ change * jnp.where(tiny, 0, 2 / jnp.where(tiny, 1, square))


@jax.custom_jvp
@traced_once
def matrix_to_quaternion(r: jax.Array) -> jax.Array:
    """Quaternion (4,) wxyz with w >= 0 of a rotation matrix (3, 3)."""
    q = quaternion_along(r)
    q = q / jnp.sqrt(jnp.sum(q * q))
    return jnp.where(q[0] < 0, -q, q)


def quaternion_along(r: jax.Array) -> jax.Array:
    """A quaternion (4,) wxyz of a rotation matrix (3, 3), of a length from 2 to 4 and either sign.

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
    return column


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
    # The entries of b in the orders 1032, 2301 and 3210, without an array of its own for any.
    pairs = b.reshape(2, 2)
    turned = [jnp.flip(pairs, axes).reshape(4) for axes in (1, 0, (0, 1))]
    signs = jnp.asarray(PRODUCT_SIGNS, b.dtype)
    return a[0] * b + sum((a[i + 1] * signs[i]) * turned[i] for i in range(3))


def conjugate(q: jax.Array) -> jax.Array:
    return q * jnp.asarray([1, -1, -1, -1], q.dtype)


def quaternion_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """Rotation vector (3,) w with `a * exp(w) = b`, |w| <= pi, for quaternions that need not be normalised."""
    return log_of_either_sign(quaternion_product(conjugate(normalized(a)), normalized(b)))
