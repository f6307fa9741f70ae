"""Sine, cosine and the angle that has them, in the forms that run along the lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxik.numerics.trigonometry import angle_by_sine, sine_cosine

ANGLES = np.concatenate(
    [np.linspace(-20, 20, 40001), np.linspace(-1e4, 1e4, 20001), np.arange(-64, 65) * np.pi / 4, [0.0, 1e-30, -1e-7]]
)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1.2e-7), (jnp.float64, 1e-15)])
def test_sine_and_cosine_are_those_of_numpy(dtype: type, tolerance: float) -> None:
    x = np.asarray(ANGLES, dtype)
    sine, cosine = sine_cosine(jnp.asarray(x))
    assert sine.dtype == cosine.dtype == dtype
    assert np.abs(np.asarray(sine, float) - np.sin(x.astype(float))).max() <= tolerance
    assert np.abs(np.asarray(cosine, float) - np.cos(x.astype(float))).max() <= tolerance


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_derivatives_are_cosine_and_minus_sine(dtype: type) -> None:
    x = jnp.linspace(-7, 7, 101, dtype=dtype)
    sine, cosine = map(np.asarray, jax.jit(sine_cosine)(x))
    forward = jax.jit(lambda x: jax.jvp(lambda x: sine_cosine(x)[0], (x,), (jnp.ones_like(x),))[1])
    np.testing.assert_array_equal(forward(x), cosine)
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: sine_cosine(x)[1].sum()))(x), -sine)
    second = jax.jit(jax.vmap(jax.grad(jax.grad(lambda x: sine_cosine(x)[0]))))(x)
    assert np.abs(second + sine).max() <= 1e-6


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2.5e-7), (jnp.float64, 1e-15)])
def test_an_angle_of_the_first_quadrant_is_that_of_numpy(dtype: type, tolerance: float) -> None:
    angles = np.concatenate(
        [np.linspace(1e-9, np.pi / 2, 10001), np.geomspace(1e-12, 1e-2, 101), [np.pi / 8, np.pi / 4]]
    )
    square, cosine = np.asarray(np.sin(angles) ** 2, dtype), np.asarray(np.maximum(np.cos(angles), 0), dtype)
    found = angle_by_sine(jnp.asarray(square), jnp.asarray(cosine))
    assert found.dtype == dtype
    sine = np.sqrt(square.astype(float))
    expected = np.arctan2(sine, cosine.astype(float)) / sine
    error = np.abs(np.asarray(found, float) - expected)
    assert (error <= tolerance * expected).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_derivatives_of_an_angle_are_those_of_the_arctangent(dtype: type) -> None:
    angles = jnp.linspace(0, np.pi / 2, 41, dtype=dtype)
    at = jnp.sin(angles), jnp.maximum(jnp.cos(angles), 0)
    ours, theirs = (
        jax.grad(angle, argnums=(0, 1))
        for angle in (lambda sine, cosine: sine * angle_by_sine(sine * sine, cosine), jnp.arctan2)
    )
    # Among sines and cosines of an angle: those of other lengths are not asked for.
    along = jnp.stack([jnp.cos(angles), -jnp.sin(angles)])
    found, expected = (np.sum(along * np.stack(jax.jit(jax.vmap(slopes))(*at)), axis=0) for slopes in (ours, theirs))
    assert np.abs(found - expected).max() <= (1e-5 if dtype == jnp.float32 else 1e-15)


def test_what_is_not_finite_stays_so() -> None:
    for x in (jnp.nan, jnp.inf):
        assert not jnp.isfinite(jnp.stack(sine_cosine(jnp.asarray(x, jnp.float32)))).any()
    one = jnp.float32(1)
    assert jnp.isnan(angle_by_sine(jnp.nan * one, one)) and jnp.isnan(angle_by_sine(one, jnp.nan * one))
