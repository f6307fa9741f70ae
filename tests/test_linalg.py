"""Small dense systems on lanes against NumPy's float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxik.lanes import lanes
from jaxik.linalg import BLOCK, PANEL, WRITTEN_OUT, kept, solve_positive, solve_small_positive

LANES = 5
SOLVERS = {"loop": solve_positive, "written out": solve_small_positive}
SIZES = (1, 2, 6, BLOCK, BLOCK + 1, PANEL + 1, WRITTEN_OUT, WRITTEN_OUT + 1)


def _systems(size: int, condition: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Symmetric matrices (LANES, n, n) of some condition, right sides and solutions (LANES, n)."""
    random = np.random.default_rng(size)
    basis, _ = np.linalg.qr(random.normal(size=(LANES, size, size)))
    matrix = (basis * np.geomspace(1.0, 1 / condition, size)) @ basis.transpose(0, 2, 1)
    x = random.normal(size=(LANES, size))
    return matrix, np.einsum("lij,lj->li", matrix, x), x


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_positive_definite_systems_are_solved_as_closely_as_their_condition_allows(solver: str, size: int) -> None:
    matrix, right, x = _systems(size, condition=1e6)
    found, pivot = jax.jit(lanes(SOLVERS[solver], (True, True), LANES))(
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
        _, pivot = SOLVERS[solver](jnp.asarray(matrix[0] - shift * np.eye(6)), jnp.asarray(right[0]))
        assert (float(pivot) > 0) == positive


def test_what_is_kept_is_itself_and_so_are_its_derivatives() -> None:
    x = jnp.asarray([0.0, -0.0, 1e-300, -3.0, 1e300])
    np.testing.assert_array_equal(kept(x), x)
    assert np.signbit(kept(x)[1])
    np.testing.assert_array_equal(jax.jacrev(kept)(x), np.eye(5))
