"""What batching writes as sums for one element: the same numbers as NumPy's products, and no product left."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxik.batching.small_products import with_sums

RANDOM = np.random.default_rng(0)
CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "matrix and vector": ("ij,j->i", (6, 7), (7,)),
    "vector and matrix": ("i,ij->j", (6,), (6, 7)),
    "transposed": ("ij,i->j", (6, 7), (6,)),
    "vectors": ("i,i->", (5,), (5,)),
    "rotations": ("ij,jk->ik", (3, 3), (3, 3)),
    "stacked rotations and points": ("fij,fj->fi", (4, 3, 3), (4, 3)),
    "stacked rotations": ("fij,fjk->fik", (4, 3, 3), (4, 3, 3)),
    "two axes": ("ijk,jk->i", (2, 3, 4), (3, 4)),
    "second operand first": ("jf,fij->fi", (3, 4), (4, 2, 3)),
    "nothing to add": ("ij,j->i", (3, 0), (0,)),
}


def _products(function: Callable[..., jax.Array], *arguments: jax.Array) -> int:
    return jax.jit(function).lower(*arguments).as_text().count("dot_general")


@pytest.mark.parametrize("case", CASES)
def test_sums_are_the_products(case: str) -> None:
    equation, *shapes = CASES[case]
    left, right = (RANDOM.normal(size=shape) for shape in shapes)
    function = with_sums(lambda a, b: jnp.einsum(equation, a, b))
    np.testing.assert_allclose(function(left, right), np.einsum(equation, left, right), rtol=1e-13, atol=1e-15)
    assert _products(function, jnp.asarray(left), jnp.asarray(right)) == 0


def test_products_in_loops_and_branches_become_sums_and_large_ones_stay() -> None:
    matrix, x = RANDOM.normal(size=(4, 4)) / 4, RANDOM.normal(size=4)
    large = RANDOM.normal(size=(40, 4))

    @jax.jit
    def turned(x: jax.Array) -> jax.Array:
        return jnp.asarray(matrix) @ x

    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = jax.lax.fori_loop(0, 3, lambda _, x: turned(x), x)
        x = jax.lax.cond(x[0] < jnp.inf, turned, lambda x: x, x)
        return turned(x), (jnp.asarray(large) @ x) @ jnp.ones((40, 40))

    small, summed = with_sums(function)(jnp.asarray(x))
    last = np.linalg.matrix_power(matrix, 4) @ x
    np.testing.assert_allclose(small, matrix @ last, rtol=1e-12)
    np.testing.assert_allclose(summed, (large @ last) @ np.ones((40, 40)), rtol=1e-12)
    assert _products(with_sums(function), jnp.asarray(x)) == 1


def test_linear_systems_keep_the_names_of_their_programs() -> None:
    matrix, x = RANDOM.normal(size=(3, 3)) + 4 * np.eye(3), RANDOM.normal(size=3)
    for function in (jnp.linalg.solve, lambda a, b: jnp.linalg.inv(a) @ b):
        np.testing.assert_allclose(with_sums(function)(matrix, x), np.linalg.solve(matrix, x), rtol=1e-12)
