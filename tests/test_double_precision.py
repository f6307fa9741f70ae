"""Functions computed in double precision where JAX is set to single, with derivatives, in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxik.batching.double_precision import in_double


def tiny_steps(scale: jax.Array, x: jax.Array) -> jax.Array:
    """(1 + scale) x by 1,000 additions, each below the rounding of float32; and JAX's rule of `argmin` is in it."""
    assert x.dtype == jnp.float64
    total = lax.fori_loop(0, 1000, lambda _, t: t + 1e-3 * scale * x, x)
    return (total * (1 + jnp.argmin(scale))).astype(jnp.float32)


def stepped(scale: jax.Array, x: jax.Array) -> jax.Array:
    return in_double(tiny_steps, scale, linear=(x,))


TRANSFORMATIONS = {
    "alone": lambda s, x: stepped(s, x),
    "jit": jax.jit(stepped),
    "vmap": lambda s, x: jax.vmap(stepped, (None, 0))(s, x[:, None])[:, 0],
    "jit of vmap of both": lambda s, x: jax.jit(jax.vmap(stepped))(s[None], x[None])[0],
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_values_are_those_of_double_precision(name: str) -> None:
    with jax.enable_x64(False):
        scale, x = jnp.asarray([2e-5], jnp.float32), jnp.asarray([1.0, 3.0, -2.0], jnp.float32)
        found = TRANSFORMATIONS[name](scale, x)
        assert found.dtype == jnp.float32
        # In single precision nothing is added.
        np.testing.assert_allclose(found / np.asarray(x, float) - 1, 2e-5, atol=2e-7)


DERIVATIVES = {
    "forward": lambda s, x: jax.jvp(lambda x: stepped(s, x), (x,), (jnp.ones_like(x),))[1],
    "reverse": lambda s, x: jax.grad(lambda x: jnp.sum(stepped(s, x)))(x),
    "jit of reverse": jax.jit(lambda s, x: jax.grad(lambda x: jnp.sum(stepped(s, x)))(x)),
    "batch of reverse": lambda s, x: jax.vmap(jax.grad(lambda x: jnp.sum(stepped(s, x))))(x[:, None])[:, 0],
    "reverse of batch": lambda s, x: jax.grad(lambda x: jnp.sum(jax.vmap(lambda y: stepped(s, y))(x[:, None])))(x),
    "half of the second": lambda s, x: jax.grad(
        lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(stepped(s, x) * x / 2))(x))
    )(x),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_by_linear_arguments_are_those_of_double_precision(name: str) -> None:
    def sloped(scale: jax.Array, x: jax.Array) -> jax.Array:
        return DERIVATIVES[name](scale, x)

    with jax.enable_x64(False):
        scale, x = jnp.asarray([2e-5], jnp.float32), jnp.asarray([1.0, 3.0, -2.0], jnp.float32)
        found = sloped(scale, x)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(np.asarray(found, float) - 1, 2e-5, atol=2e-7)


def test_there_is_no_derivative_by_other_arguments() -> None:
    with pytest.raises(NotImplementedError, match="by its linear arguments alone"):
        jax.grad(lambda s: jnp.sum(stepped(s, jnp.ones(3))))(jnp.ones(1))
