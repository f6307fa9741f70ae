"""Poses of points: the best turn, as SciPy finds it, with derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxik
from jaxik.retargeting import rigid_pose

SQUARE = jnp.array([[1.0, 1, 0], [1, -1, 0], [-1, -1, 0], [-1, 1, 0]])
# A wrist and the knuckles of a flat hand [m].
PALM = jnp.array([[0.0, 0, 0], [0.095, -0.028, 0.005], [0.097, -0.004, 0.007], [0.09, 0.018, 0.004], [0.08, 0.038, 0]])
CLUSTER = jax.random.normal(jax.random.key(0), (6, 3))
SETS = {"square": SQUARE, "palm": PALM, "cluster": CLUSTER, "triangle": PALM[:3]}


def moved(reference: jax.Array, noise: float, *batch: int) -> tuple[jaxlie.SE3, jax.Array]:
    keys = jax.random.split(jax.random.key(len(reference)), 3)
    turn = jaxlie.SO3(jax.random.normal(keys[0], (*batch, 4))).normalize()
    there = jaxlie.SE3.from_rotation_and_translation(turn, jax.random.normal(keys[1], (*batch, 3)))
    wide = noise * jnp.max(jnp.abs(reference))
    shape = (*batch, *reference.shape)
    return there, jaxlie.SE3(there.wxyz_xyz[..., None, :]) @ reference + wide * jax.random.normal(keys[2], shape)


@pytest.mark.parametrize("name", SETS)
def test_a_body_is_found_where_its_points_are(name: str) -> None:
    there, points = moved(SETS[name], 0.0, 50, 2)
    found = rigid_pose(points, SETS[name])
    np.testing.assert_allclose((there.inverse() @ found).log(), 0, atol=1e-9)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_points_that_fit_badly_are_turned_as_well_as_they_can_be(name: str, mirrored: bool) -> None:
    reference = SETS[name]
    _, points = moved(reference * jnp.array([1.0, 1.0, -1.0 if mirrored else 1.0]), 0.2, 50)
    found = rigid_pose(points, reference)
    for k, given in enumerate(np.asarray(points)):
        a, b = (np.asarray(x) - np.mean(x, axis=0) for x in (reference, given))
        best, _ = Rotation.align_vectors(b, a)
        own = np.linalg.norm(np.asarray(found.rotation().as_matrix()[k]) @ a.T - b.T)
        assert own <= np.linalg.norm(best.as_matrix() @ a.T - b.T) * (1 + 1e-9)
        center = jaxlie.SE3(found.wxyz_xyz[k]) @ jnp.mean(reference, axis=0)
        np.testing.assert_allclose(center, given.mean(axis=0), atol=1e-9)
    assert (found.wxyz_xyz[:, 0] >= 0).all()


@pytest.mark.parametrize("name", SETS)
def test_the_pose_has_derivatives_where_points_are_alike_and_where_some_are_hidden(name: str) -> None:
    reference = SETS[name]
    _, points = moved(reference, 0.0, 3)
    points = points.at[1, 0, 2].set(jnp.nan)

    def end(reference: jax.Array, points: jax.Array) -> jax.Array:
        return jnp.nansum(jnp.sin(rigid_pose(points, reference).as_matrix() * jnp.arange(1.0, 17).reshape(4, 4)))

    ways = [jax.random.normal(jax.random.key(seed), x.shape) for seed, x in enumerate((reference, points))]
    ways[1] = ways[1].at[1, 0, 2].set(0.0)
    h = 1e-6 * float(jnp.max(jnp.abs(reference)))
    slopes = jax.grad(end, argnums=(0, 1))(reference, points)
    assert all(np.isfinite(x).all() for x in slopes) and not slopes[1][1].any()
    slope = sum(jnp.sum(x * way) for x, way in zip(slopes, ways, strict=True))
    up, down = (end(reference + s * h * ways[0], points + s * h * ways[1]) for s in (1, -1))
    np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-5, atol=1e-6)


def test_a_moment_with_a_hidden_point_has_no_pose_and_spoils_no_other() -> None:
    there, points = moved(PALM, 0.0, 4)
    found = rigid_pose(points.at[2, 1].set(jnp.nan), PALM)
    assert np.isnan(found.wxyz_xyz[2]).all()
    np.testing.assert_allclose((there.inverse() @ found).log()[jnp.array([0, 1, 3])], 0, atol=1e-9)


@pytest.mark.parametrize(("points", "reference", "says"), [
    (SQUARE, SQUARE[:3], r"points has shape \(\*batch, 3, 3\)"),
    (SQUARE[:2], SQUARE[:2], "three points or more"),
    (SQUARE[:3], jnp.outer(jnp.arange(3.0), jnp.ones(3)), "on one line"),
    (SQUARE, SQUARE.at[0, 0].set(jnp.nan), "all of its points are seen"),
])  # fmt: skip
def test_points_that_determine_no_pose_are_refused(points: Any, reference: Any, says: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=says):
        rigid_pose(points, reference)
