"""Sine and cosine that run along the lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxik.trigonometry import sine_cosine

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
    sine, cosine = sine_cosine(x)
    one = jnp.ones_like(x)
    assert jnp.array_equal(jax.jvp(lambda x: sine_cosine(x)[0], (x,), (one,))[1], cosine)
    assert jnp.array_equal(jax.grad(lambda x: sine_cosine(x)[1].sum())(x), -sine)
    second = jax.vmap(jax.grad(jax.grad(lambda x: sine_cosine(x)[0])))(x)
    assert jnp.abs(second + sine).max() <= 1e-6


def test_what_is_not_finite_stays_so() -> None:
    for x in (jnp.nan, jnp.inf):
        assert not jnp.isfinite(jnp.stack(sine_cosine(jnp.asarray(x, jnp.float32)))).any()
