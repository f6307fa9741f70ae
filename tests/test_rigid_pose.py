"""Poses of points: the best turn, as SciPy finds it, with derivatives."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxik
from jaxik.retargeting import rigid_pose

SQUARE = np.array([[1.0, 1, 0], [1, -1, 0], [-1, -1, 0], [-1, 1, 0]])
# A wrist and the knuckles of a flat hand [m].
PALM = np.array([[0.0, 0, 0], [0.095, -0.028, 0.005], [0.097, -0.004, 0.007], [0.09, 0.018, 0.004], [0.08, 0.038, 0]])
CLUSTER = np.random.default_rng(0).normal(size=(6, 3))
SETS = {"square": SQUARE, "palm": PALM, "cluster": CLUSTER, "triangle": PALM[:3]}


def moved(reference: np.ndarray, noise: float, *batch: int) -> tuple[jaxlie.SE3, np.ndarray]:
    rng = np.random.default_rng(len(reference))
    quaternion, place = rng.normal(size=(*batch, 4)), rng.normal(size=(*batch, 3))
    quaternion /= np.linalg.norm(quaternion, axis=-1, keepdims=True)
    turned = Rotation.from_quat(quaternion.reshape(-1, 4)[:, [1, 2, 3, 0]]).as_matrix().reshape(*batch, 3, 3)
    points = reference @ turned.swapaxes(-1, -2) + place[..., None, :]
    wide = noise * np.max(np.abs(reference))
    there = jaxlie.SE3(jnp.asarray(np.concatenate([quaternion, place], axis=-1)))
    return there, points + wide * rng.normal(size=points.shape)


@jax.jit
def between(there: jaxlie.SE3, found: jaxlie.SE3) -> jax.Array:
    return (there.inverse() @ found).log()


@pytest.mark.parametrize("name", SETS)
def test_a_body_is_found_where_its_points_are(name: str) -> None:
    there, points = moved(SETS[name], 0.0, 50, 2)
    found = rigid_pose(points, SETS[name])
    np.testing.assert_allclose(between(there, found), 0, atol=1e-9)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_points_that_fit_badly_are_turned_as_well_as_they_can_be(name: str, mirrored: bool) -> None:
    reference = SETS[name]
    _, points = moved(reference * [1.0, 1.0, -1.0 if mirrored else 1.0], 0.2, 50)
    found = np.asarray(rigid_pose(points, reference).wxyz_xyz)
    for pose, given in zip(found, points, strict=True):
        a, b = (x - np.mean(x, axis=0) for x in (reference, given))
        best, _ = Rotation.align_vectors(b, a)
        turn = Rotation.from_quat(pose[[1, 2, 3, 0]])
        assert np.linalg.norm(turn.apply(a) - b) <= np.linalg.norm(best.apply(a) - b) * (1 + 1e-9)
        center = turn.apply(np.mean(reference, axis=0)) + pose[4:]
        np.testing.assert_allclose(center, given.mean(axis=0), atol=1e-9)
    assert (found[:, 0] >= 0).all()


@pytest.mark.parametrize("name", SETS)
def test_the_pose_has_derivatives_where_points_are_alike_and_where_some_are_hidden(name: str) -> None:
    reference = SETS[name]
    _, points = moved(reference, 0.0, 3)
    points[1, 0, 2] = np.nan

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def end(reference: jax.Array, points: jax.Array) -> jax.Array:
        return jnp.nansum(jnp.sin(rigid_pose(points, reference).as_matrix() * jnp.arange(1.0, 17).reshape(4, 4)))

    rng = np.random.default_rng(1)
    ways = [rng.normal(size=x.shape) for x in (reference, points)]
    ways[1][1, 0, 2] = 0.0
    h = 1e-6 * np.max(np.abs(reference))
    _, slopes = end(reference, points)
    assert all(np.isfinite(x).all() for x in slopes) and not slopes[1][1].any()
    slope = sum(np.sum(x * way) for x, way in zip(slopes, ways, strict=True))
    up, down = (end(reference + s * h * ways[0], points + s * h * ways[1])[0] for s in (1, -1))
    np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-5, atol=1e-6)


def test_a_moment_with_a_hidden_point_has_no_pose_and_spoils_no_other() -> None:
    there, points = moved(PALM, 0.0, 4)
    points[2, 1] = np.nan
    found = rigid_pose(points, PALM)
    assert np.isnan(found.wxyz_xyz[2]).all()
    np.testing.assert_allclose(np.asarray(between(there, found))[[0, 1, 3]], 0, atol=1e-9)


@pytest.mark.parametrize(("points", "reference", "says"), [
    (SQUARE, SQUARE[:3], r"points has shape \(\*batch, 3, 3\)"),
    (SQUARE[:2], SQUARE[:2], "three points or more"),
    (SQUARE[:3], np.outer(np.arange(3.0), np.ones(3)), "on one line"),
    (SQUARE, np.where(np.eye(4, 3) > 0, np.nan, SQUARE), "all of its points are seen"),
])  # fmt: skip
def test_points_that_determine_no_pose_are_refused(points: Any, reference: Any, says: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=says):
        rigid_pose(points, reference)
