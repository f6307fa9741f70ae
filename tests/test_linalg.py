"""Small dense systems on lanes against NumPy's float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive, mostly_exhaustive

from jaxik.batching.trailing_vmap import vmap_last
from jaxik.numerics.fusion import materialize
from jaxik.numerics.linalg import (
    BLOCK,
    PANEL,
    WRITTEN_OUT,
    pinv_psd,
    solve_positive,
    solve_small_positive,
    weak_directions,
)

LANES = 5
SOLVERS = {"loop": solve_positive, "written out": solve_small_positive}
SIZES = (1, 2, 6, BLOCK, BLOCK + 1, PANEL + 1, WRITTEN_OUT, WRITTEN_OUT + 1)
EVERY = [(solver, size) for solver in SOLVERS for size in SIZES]
# Of each: the smallest, and the largest that is done in a way of its own.
ALWAYS = [("loop", 1), ("loop", BLOCK + 1), ("loop", PANEL + 1), ("written out", 1), ("written out", WRITTEN_OUT + 1)]


def _systems(size: int, condition: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Symmetric matrices (LANES, n, n) of some condition, right sides and solutions (LANES, n)."""
    random = np.random.default_rng(size)
    basis, _ = np.linalg.qr(random.normal(size=(LANES, size, size)))
    matrix = (basis * np.geomspace(1.0, 1 / condition, size)) @ basis.transpose(0, 2, 1)
    x = random.normal(size=(LANES, size))
    return matrix, np.einsum("lij,lj->li", matrix, x), x


@pytest.mark.parametrize("case", mostly_exhaustive(EVERY, ALWAYS))
def test_positive_definite_systems_are_solved_as_closely_as_their_condition_allows(case: tuple[str, int]) -> None:
    solver, size = case
    matrix, right, x = _systems(size, condition=1e6)
    found, pivot = jax.jit(vmap_last(SOLVERS[solver], (True, True), LANES))(
        jnp.moveaxis(matrix, 0, -1), jnp.moveaxis(right, 0, -1)
    )
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), x, atol=1e-8)
    # L D L' without pivoting has the pivots of elimination: ratios of leading minors.
    minors = np.stack([np.linalg.det(matrix[:, :k, :k]) for k in range(size + 1)])
    np.testing.assert_allclose(pivot, (minors[1:] / minors[:-1]).min(axis=0), rtol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_smallest_pivot_tells_what_is_not_positive_definite(solver: str) -> None:
    matrix, right, _ = _systems(6, condition=10.0)
    lowest = np.linalg.eigvalsh(matrix)[0, 0]
    for shift, positive in ((0.99 * lowest, True), (1.01 * lowest, False)):
        _, pivot = jax.jit(SOLVERS[solver])(matrix[0] - shift * np.eye(6), right[0])
        assert (float(pivot) > 0) == positive


def test_what_is_kept_is_itself_and_so_are_its_derivatives() -> None:
    x = jnp.asarray([0.0, -0.0, 1e-300, -3.0, 1e300, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(materialize(x), x)
    assert np.signbit(materialize(x)[1])
    np.testing.assert_array_equal(jax.jacrev(materialize)(x[:-1]), np.eye(7))


@pytest.mark.parametrize(("dtype", "threshold", "atol"), [(np.float64, 1e-9, 1e-12), (np.float32, 1e-4, 1e-4)])
@pytest.mark.parametrize(("size", "held"), [
    (7, 2),
    *(pytest.param(n, held, marks=exhaustive) for n in (1, 2, 7, 12) for held in (0, 2) if (n, held) != (7, 2)),
])  # fmt: skip
def test_semidefinite_matrices_are_inverted_where_they_are_not_zero(
    size: int, held: int, dtype: Any, threshold: float, atol: float
) -> None:
    random = np.random.default_rng(size)
    # Side by side, of every rank: on lanes each takes as many turns as the one that lacks most.
    free = max(size - held, 0)
    matrices = np.zeros((free + 1, size, size))
    for rank, matrix in enumerate(matrices):
        basis, _ = np.linalg.qr(random.normal(size=(free, rank)))
        matrix[held:, held:] = (basis * np.linspace(1, 5, rank)) @ basis.T
    unit = np.maximum(matrices.diagonal(axis1=1, axis2=2).max(axis=1), 1e-3)
    found = jax.jit(vmap_last(lambda matrix, unit: pinv_psd(matrix, unit, threshold), (True, True), len(unit)))(
        jnp.moveaxis(matrices, 0, -1).astype(dtype), unit.astype(dtype)
    )
    for matrix, inverse, space, unswept in zip(matrices, *(np.moveaxis(x, -1, 0) for x in found), strict=True):
        expected = np.linalg.pinv(matrix, rcond=1e-8, hermitian=True)
        np.testing.assert_allclose(inverse, expected, atol=atol)
        np.testing.assert_allclose(space, expected @ matrix, atol=atol)
        assert unswept <= threshold


def test_what_is_not_semidefinite_is_seen_by_what_cannot_be_swept() -> None:
    inverted, matrix = jax.jit(pinv_psd), np.diag([2.0, 1.0, 0.0, 0.0])
    for below, seen in ((-0.5, 0.5), (-1e-3, 1e-3)):
        matrix[2, 2] = below
        _, _, unswept = inverted(matrix, 1.0, 1e-9)
        np.testing.assert_allclose(unswept, seen)
    matrix[2, 2], matrix[2, 3], matrix[3, 2] = 0, 0.25, 0.25  # of which no diagonal entry tells
    _, _, unswept = inverted(matrix, 1.0, 1e-9)
    np.testing.assert_allclose(unswept, 0.25)


def test_first_and_second_derivatives_of_a_pseudoinverse_agree_with_differences() -> None:
    base = np.random.default_rng(3).normal(size=(4, 6))
    moving = np.random.default_rng(4).normal(size=(4, 6))

    def inverse(share: jax.Array) -> jax.Array:
        factor = base + share * moving
        return pinv_psd(factor.T @ factor, jnp.asarray(10.0), 1e-9)[0]

    for function in (jax.jit(inverse), jax.jit(jax.jacfwd(inverse))):
        step = 1e-5
        differences = (function(step) - function(-step)) / (2 * step)
        np.testing.assert_allclose(jax.jit(jax.jacfwd(function))(0.0), differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 6])
def test_weak_directions_are_those_of_small_eigenvalues(size: int) -> None:
    rng = np.random.default_rng(size)
    factors = rng.normal(size=(40, size, size + 1)) * 10.0 ** rng.uniform(-2, 0, (40, size, 1))
    factors[0] = 0
    factors[1] = np.eye(size, size + 1)
    square, least = factors @ factors.swapaxes(1, 2), 10.0 ** rng.uniform(-3, -1, 40)
    found = jax.jit(vmap_last(weak_directions, (True, True), 40))(np.moveaxis(square, 0, -1), least)
    weak, inverse, own, directions = (np.moveaxis(np.asarray(x), -1, 0) for x in found)
    values, vectors = np.linalg.eigh(square)
    share = np.maximum(1 - values / least[:, None], 0)
    any_weak = values[:, 0] < least
    assert 10 < np.sum(any_weak) < 40
    np.testing.assert_allclose(weak, np.einsum("bij,bj,bkj->bik", vectors, share**2, vectors), atol=1e-11)
    np.testing.assert_array_equal(weak[~any_weak], 0)
    np.testing.assert_allclose(
        (directions * own[:, None]) @ directions.swapaxes(1, 2), square * any_weak[:, None, None], atol=1e-9
    )
    expected = np.einsum("bij,bj,bkj->bik", vectors, (1 + share) / np.maximum(values, least[:, None]), vectors)
    np.testing.assert_allclose(inverse[any_weak], expected[any_weak], rtol=1e-9, atol=1e-9 / least.min())
