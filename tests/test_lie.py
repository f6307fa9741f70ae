"""Rotation and pose logarithms: values against scipy and jaxlie, derivatives, at the angles where series take over."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation
from tables import exhaustive, mostly_exhaustive

from jaxik.numerics import lie
from jaxik.numerics.lie import Transform
from jaxik.numerics.rotation_log import log_between, log_of_matrix, log_pose, log_pose_derivative

# Both sides of each threshold: series in quaternions from 1e-4 of sine, in the inverse Jacobian from 0.5 of angle.
ANGLES = (0.0, 1e-12, 1e-7, 1e-4, 2e-4, 1e-3, 0.4999999, 0.5, 0.5000001, 1.0, 3.0, np.pi - 1e-7, np.pi)
AXES = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0], [0.6, -0.64, 0.48], [-2, 1, 2]]) / np.array(
    [[1], [1], [1], [1], [3]]
)
VECTORS = np.array([angle * axis for angle in ANGLES for axis in AXES])
KINDS = {"float64": np.float64, "float32": np.float32}
# Values against an oracle in float64 and derivatives at singularities in float32 always, the other before a release.
VALUES, SLOPES = (
    pytest.mark.parametrize(
        "dtype", [pytest.param(d, id=n, marks=() if n == always else exhaustive) for n, d in KINDS.items()]
    )
    for always in KINDS
)


def pose_log(error: Transform) -> jax.Array:
    return log_pose(log_of_matrix(error.rotation), error.position)


def pose_log_derivative(error: Transform) -> tuple[jax.Array, jax.Array]:
    """Along twists in the frame's own axes."""
    eye = jnp.eye(3, dtype=error.position.dtype)
    return log_pose_derivative(log_of_matrix(error.rotation), error.position, eye, error.position)


def up_to_half_turn(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distance of rotation vectors (n, 3), opposite ones of 180 degrees being the same rotation."""
    return np.minimum(np.abs(a - b).max(1), np.abs(a + b).max(1) + np.abs(np.linalg.norm(b, axis=1) - np.pi))


@VALUES
def test_rotation_log_inverts_scipys_exponential(dtype: Any) -> None:
    matrices = Rotation.from_rotvec(VECTORS).as_matrix()
    got = jax.jit(jax.vmap(lambda r: log_of_matrix(r).vector))(matrices.astype(dtype))
    assert got.dtype == dtype
    # A matrix rounded to eps has a rotation vector off by a few eps.
    assert up_to_half_turn(np.asarray(got, float), VECTORS).max() < 20 * np.finfo(dtype).eps


def test_small_rotations_keep_their_relative_precision() -> None:
    small = VECTORS[(np.linalg.norm(VECTORS, axis=1) > 0) & (np.linalg.norm(VECTORS, axis=1) < 0.1)]
    got = jax.jit(jax.vmap(lambda w: lie.log_quaternion(lie.exp_quaternion(w))))(small)
    np.testing.assert_allclose(got, small, rtol=1e-14, atol=1e-30)


@VALUES
def test_exponential_agrees_with_scipy(dtype: Any) -> None:
    quaternions = jax.jit(jax.vmap(lie.exp_quaternion))(VECTORS.astype(dtype))
    want = Rotation.from_rotvec(VECTORS.astype(dtype)).as_quat(scalar_first=True)
    np.testing.assert_allclose(quaternions, want, atol=4 * np.finfo(dtype).eps)
    matrices = jax.jit(jax.vmap(lie.quaternion_to_matrix))(quaternions)
    np.testing.assert_allclose(
        matrices, Rotation.from_quat(want, scalar_first=True).as_matrix(), atol=8 * np.finfo(dtype).eps
    )


@VALUES
def test_quaternion_of_a_matrix_is_exact_at_every_angle(dtype: Any) -> None:
    want = Rotation.from_rotvec(np.concatenate([VECTORS, Rotation.random(200, rng=0).as_rotvec()]))
    got = np.asarray(jax.jit(jax.vmap(lie.matrix_to_quaternion))(want.as_matrix().astype(dtype)), float)
    assert (got[:, 0] >= 0).all()
    expected = want.as_quat(scalar_first=True)
    error = np.minimum(np.abs(got - expected).max(1), np.abs(got + expected).max(1))
    assert error.max() < 4 * np.finfo(dtype).eps


@VALUES
def test_pose_log_inverts_the_matrix_exponential(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    twists = np.hstack([rng.uniform(-2, 2, (len(VECTORS), 3)), VECTORS])[np.linalg.norm(VECTORS, axis=1) < 3.1]
    matrices = np.zeros((len(twists), 4, 4))
    matrices[:, :3, :3] = np.cross(np.eye(3)[None], twists[:, None, 3:])
    matrices[:, :3, 3] = twists[:, :3]
    poses = expm(matrices).astype(dtype)
    got = jax.jit(jax.vmap(pose_log))(Transform(poses[:, :3, :3], poses[:, :3, 3]))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, twists, atol=40 * np.finfo(dtype).eps)


def test_pose_log_agrees_with_jaxlie() -> None:
    # Clear of zero and of pi, where jaxlie's log loses digits.
    keys = jax.random.split(jax.random.key(0), 100)
    poses = np.asarray(jax.jit(jax.vmap(lambda key: jaxlie.SE3.sample_uniform(key).wxyz_xyz))(keys))
    poses = poses[np.abs(poses[:, 0]) > 0.1]
    got = jax.jit(jax.vmap(lambda x: pose_log(Transform.from_se3(jaxlie.SE3(x)))))(poses)
    np.testing.assert_allclose(got, jax.jit(lambda x: jaxlie.SE3(x).log())(poses), atol=1e-12)


def test_pose_log_at_a_half_turn_has_the_pose_as_its_exponential() -> None:
    rotations = Rotation.from_rotvec(np.pi * AXES).as_matrix()
    positions = np.random.default_rng(1).uniform(-1, 1, (len(AXES), 3))
    back = jax.jit(jax.vmap(lambda x: jaxlie.SE3.exp(pose_log(x)).as_matrix()))(Transform(rotations, positions))
    np.testing.assert_allclose(back[:, :3, :3], rotations, atol=1e-14)
    np.testing.assert_allclose(back[:, :3, 3], positions, atol=1e-14)


def test_transforms_compose_invert_and_convert_like_jaxlie() -> None:

    @jax.jit
    def both() -> list[tuple[jax.Array, jax.Array]]:
        a, b = (jaxlie.SE3.sample_uniform(key) for key in jax.random.split(jax.random.key(0)))
        ta, tb = Transform.from_se3(a), Transform.from_se3(b)
        return [
            ((ta @ tb).to_se3().as_matrix(), (a @ b).as_matrix()),
            (ta.inverse().to_se3().as_matrix(), a.inverse().as_matrix()),
            (lie.skew(b.translation()) @ a.translation(), jnp.cross(b.translation(), a.translation())),
        ]

    for ours, theirs in both():
        np.testing.assert_allclose(ours, theirs, atol=1e-14)


def test_quaternions_are_normalised_as_c_mujoco_does() -> None:
    lengths = np.array([0.0, 1e-200, 1e-20, 1e-16, 1e-14, 0.5, 3.0, 1e10])
    given = lengths[:, None] * np.array([0.1, -0.7, 0.5, 0.5])
    for length, found, want in zip(lengths, jax.jit(jax.vmap(lie.normalized))(given), given.copy(), strict=True):
        mujoco.mju_normalize4(want)
        np.testing.assert_allclose(found, want, atol=1e-15, err_msg=str(length))


def test_quaternion_difference_is_the_shortest_rotation_between_quaternions_of_any_length_and_sign() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 50, 4))
    got = jax.jit(jax.vmap(lie.quaternion_difference))(a, b)
    first, second = (Rotation.from_quat(q, scalar_first=True) for q in (a, b))
    np.testing.assert_allclose(got, (first.inv() * second).as_rotvec(), atol=1e-13)


# --- derivatives ---------------------------------------------------------------------------------------------------


def pose(angle: float, axis: np.ndarray, position: np.ndarray, dtype: Any) -> Transform:
    rotation = Rotation.from_rotvec(angle * axis).as_matrix()
    return Transform(rotation.astype(dtype), position.astype(dtype))


@jax.jit
def moved_log(error: Transform, twist: jax.Array) -> jax.Array:
    """The log of the error after its frame has moved by a body twist."""
    motion = Transform(lie.quaternion_to_matrix(lie.exp_quaternion(twist[3:])), twist[:3])
    return pose_log(motion.inverse() @ error)


@SLOPES
@pytest.mark.parametrize("position", [np.zeros(3), np.array([0.3, -0.8, 0.5])], ids=["here", "away"])
def test_log_pose_derivative_is_that_of_the_log(dtype: Any, position: np.ndarray) -> None:
    errors = [pose(angle, axis, position, dtype) for angle in ANGLES for axis in AXES]
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *errors)
    a, b = jax.jit(jax.vmap(pose_log_derivative))(stacked)
    got = np.block([[-np.asarray(a), np.asarray(b)], [np.zeros(a.shape), -np.asarray(a)]])
    derivative = jax.jit(jax.vmap(lambda e: jax.jacfwd(lambda t: moved_log(e, t))(jnp.zeros(6, dtype))))(stacked)
    assert np.isfinite(np.asarray(derivative)).all()
    np.testing.assert_allclose(got, derivative, atol=100 * np.finfo(dtype).eps)


def test_derivative_of_the_log_agrees_with_finite_differences() -> None:
    angles = [angle for angle in ANGLES if angle < 3.1]
    errors = [pose(angle, axis, np.array([0.3, -0.8, 0.5]), np.float64) for angle in angles for axis in AXES]
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *errors)
    a, b = jax.jit(jax.vmap(pose_log_derivative))(stacked)
    h = 1e-6
    moved = jax.jit(jax.vmap(jax.vmap(moved_log, (None, 0)), (0, None)))
    ahead, behind = (np.asarray(moved(stacked, s * np.eye(6))) for s in (h, -h))
    columns = (ahead - behind) / (2 * h)
    got = np.block([[-np.asarray(a), np.asarray(b)], [np.zeros(a.shape), -np.asarray(a)]])
    np.testing.assert_allclose(got, columns.mT, atol=1e-8)


ROUND_TRIPS: dict[str, tuple[Callable[..., Any], int]] = {
    "log_rotation": (lambda w: log_of_matrix(lie.quaternion_to_matrix(lie.exp_quaternion(w))).vector, 3),
    "log_quaternion": (lambda w: lie.log_quaternion(lie.exp_quaternion(w)), 3),
    "difference": (
        lambda w: lie.quaternion_difference(jnp.array([0.5, 0.5, -0.5, 0.5], w.dtype), lie.exp_quaternion(w)),
        3,
    ),
    "log_pose": (
        lambda w: pose_log(Transform(lie.quaternion_to_matrix(lie.exp_quaternion(w)), w * 0.5 + 0.25)),
        6,
    ),
    "matrix_to_quaternion": (lambda w: lie.matrix_to_quaternion(lie.quaternion_to_matrix(lie.exp_quaternion(w))), 4),
    "normalized": (lambda w: lie.normalized(jnp.concatenate([jnp.zeros(1, w.dtype), w])), 4),
}


@cache
def slopes(dtype: Any) -> dict[str, tuple[Any, Any]]:
    """By name: derivatives in forward and in reverse mode."""

    def both(w: jax.Array) -> Any:
        return {name: (jax.jacfwd(function)(w), jax.jacrev(function)(w)) for name, (function, _) in ROUND_TRIPS.items()}

    return jax.device_get(jax.jit(jax.vmap(both))(VECTORS.astype(dtype)))


@SLOPES
@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_first_derivatives_are_finite_and_equal_in_both_modes(name: str, dtype: Any) -> None:
    size = ROUND_TRIPS[name][1]
    forward, reverse = slopes(dtype)[name]
    assert forward.shape == (len(VECTORS), size, 3)
    assert np.isfinite(forward).all() and np.isfinite(reverse).all()
    large = name == "normalized"  # 1 / length of the vector
    scale = np.maximum(1, np.abs(forward).max((1, 2), keepdims=True)) if large else 1.0
    assert (np.abs(forward - reverse) / scale).max() < 100 * np.finfo(dtype).eps


@pytest.mark.parametrize("order", mostly_exhaustive([1, 2], [1]))
def test_derivatives_of_the_derivative_of_the_log_agree_with_finite_differences(order: int) -> None:
    inside = VECTORS[np.linalg.norm(VECTORS, axis=1) < 3]

    def derivative(w: jax.Array) -> jax.Array:
        error = Transform(lie.quaternion_to_matrix(lie.exp_quaternion(w)), 0.5 * w + 0.25)
        coefficients = jnp.stack(log_of_matrix(error.rotation)[1:])
        return jnp.concatenate([pose_log(error), *(jnp.ravel(x) for x in pose_log_derivative(error)), coefficients])

    function = derivative if order == 1 else lambda w: jax.jacfwd(derivative)(w).ravel()
    moved = jax.jit(jax.vmap(jax.vmap(function, (0,)), (0,)))
    ahead, behind = (moved(inside[:, None] + sign * 1e-5 * jnp.eye(3)) for sign in (1, -1))
    forward = jax.jit(jax.vmap(jax.jacfwd(function)))(inside)
    backward = jax.jit(jax.vmap(jax.jacrev(function)))(inside)
    np.testing.assert_allclose(forward, ((ahead - behind) / 2e-5).mT, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(backward, forward, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_log_between_a_matrix_and_a_quaternion_of_any_length_is_that_of_the_product(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    quaternions = rng.standard_normal((len(VECTORS), 4))
    goals = Rotation.from_quat(quaternions, scalar_first=True)
    frames = goals * Rotation.from_rotvec(VECTORS).inv()
    scaled = quaternions * 10 ** rng.uniform(-3, 3, (len(VECTORS), 1))
    # The last is no rotation.
    given = np.append(frames.as_matrix(), [np.eye(3)], axis=0), np.append(scaled, np.zeros((1, 4)), axis=0)
    every = jax.tree.map(np.asarray, jax.jit(jax.vmap(log_between))(*(x.astype(dtype) for x in given)))
    got = jax.tree.map(lambda x: x[:-1], every)
    want = jax.jit(jax.vmap(log_of_matrix))((frames.inv() * goals).as_matrix())
    assert up_to_half_turn(got.vector.astype(float), VECTORS).max() < 20 * np.finfo(dtype).eps
    for name in ("k", "k1", "k2") if dtype == np.float64 else ("k",):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), atol=2e4 * np.finfo(dtype).eps)
    assert np.isnan(every.vector[-1]).all()


def test_derivatives_of_log_between_agree_with_finite_differences() -> None:
    rng = np.random.default_rng(5)
    frames, goals = rng.uniform(-1, 1, (2, 20, 3))

    def between(x: jax.Array) -> jax.Array:
        frame, goal = x[:3], x[3:]
        length = 2 + jnp.sin(goal[0])
        log = log_between(lie.quaternion_to_matrix(lie.exp_quaternion(frame)), length * lie.exp_quaternion(goal))
        return jnp.concatenate([log.vector, jnp.stack(log[1:])])

    x = np.hstack([frames, goals])
    moved = jax.jit(jax.vmap(jax.vmap(between)))
    ahead, behind = (moved(x[:, None] + sign * 1e-5 * np.eye(6)) for sign in (1, -1))
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(jax.vmap(mode(between)))(x), ((ahead - behind) / 2e-5).mT, atol=1e-8)


@VALUES
def test_log_of_the_exponential_has_the_identity_as_derivative(dtype: Any) -> None:
    inside = VECTORS[np.linalg.norm(VECTORS, axis=1) < 3.1].astype(dtype)
    for name in ("log_rotation", "log_quaternion"):
        jacobian = jax.jit(jax.vmap(jax.jacfwd(ROUND_TRIPS[name][0])))(inside)
        np.testing.assert_allclose(jacobian, np.broadcast_to(np.eye(3), jacobian.shape), atol=200 * np.finfo(dtype).eps)


def test_plane_across_is_orthonormal_and_turns_about_the_normal_of_its_arguments() -> None:
    ends = np.random.default_rng(0).standard_normal((50, 2, 3))
    ends[:, :, 2] *= np.arange(50)[:, None] % 2  # half of them in a plane
    ends /= np.linalg.norm(ends, axis=2, keepdims=True)
    ends[:3, 1] = ends[:3, 0]
    unit, other = np.moveaxis(ends, 1, 0)
    across = jax.jit(jax.vmap(lie.plane_across))
    plane = np.asarray(across(unit, other))
    np.testing.assert_allclose(plane @ np.swapaxes(plane, 1, 2), np.broadcast_to(np.eye(2), (50, 2, 2)), atol=1e-13)
    np.testing.assert_allclose(np.einsum("bij,bj->bi", plane, other), 0, atol=1e-13)
    chosen = np.asarray(across(unit, unit))
    np.testing.assert_allclose(plane[::2, :, 2], chosen[::2, :, 2], atol=1e-15)
    behind = np.asarray(across(unit, -unit))
    np.testing.assert_allclose(np.einsum("bij,bj->bi", behind, unit), 0, atol=1e-15)
