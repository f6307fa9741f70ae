"""Programs of bounds alone as steps make them: squares of weighted rows with a little damping, in both precisions."""

import daqp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import mostly_exhaustive

from jaxik import QPOptions, Status
from jaxik.qp_solver import ActiveSet, Program, minimise_in_box
from jaxik.qp_solver.projected_newton import projected_newton

CASES = {  # variables, rows, cost
    "arm": (7, 6, 1.0),
    "arm, high cost": (7, 6, 100.0),
    "redundant": (30, 12, 1.0),
    "redundant, high cost": (30, 12, 100.0),
}
COUNT = 64


def programs(size: int, rows: int, cost: float) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    jacobian = cost * rng.standard_normal((COUNT, rows, size))
    right = cost * rng.standard_normal((COUNT, rows))
    hessian = np.einsum("bki,bkj->bij", jacobian, jacobian) + 1e-6 * np.eye(size)
    bounds = rng.uniform(0.01, 0.3, (2, COUNT, size))
    return [hessian, -np.einsum("bki,bk->bi", jacobian, right), -bounds[0], bounds[1]]


@pytest.mark.parametrize("name", mostly_exhaustive(CASES, ["arm, high cost", "redundant, high cost"]))
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_steps_reach_the_minimum_that_daqp_finds(name: str, dtype: object) -> None:
    given = programs(*CASES[name])
    found = jax.jit(jax.vmap(lambda *x: minimise_in_box(Program(*x))))(*(jnp.asarray(x, dtype) for x in given))
    np.testing.assert_array_equal(found.status, Status.CONVERGED)
    x = np.asarray(found.x, float)
    # Bounds are met bitwise in their own precision.
    lower, upper = (np.asarray(jnp.asarray(bound, dtype), float) for bound in given[2:])
    assert ((x >= lower) & (x <= upper)).all()
    assert float(found.kkt_residual.max()) <= (1e-5 if dtype == jnp.float32 else 1e-11)
    # Of an arm from the clipped free minimum 3.4 at least; of thirty variables 11.7.
    assert np.mean(found.iterations) < (1.5 if lower.shape[1] == 7 else 10.5 if dtype == jnp.float64 else 13)
    undecided = 0
    for i in range(COUNT):
        hessian, slope = given[0][i], given[1][i]
        exact, _, flag, _ = daqp.solve(
            hessian, slope, np.zeros((0, len(slope))), upper[i].copy(), lower[i].copy(), np.zeros(len(slope), np.int32)
        )
        if flag != 1:
            undecided += 1  # DAQP gives up on some of these: their KKT residual has to do
            continue
        ours, theirs = (0.5 * y @ hessian @ y + slope @ y for y in (x[i], exact))
        assert ours <= theirs + (1e-4 if dtype == jnp.float32 else 1e-9) * (1 + abs(theirs))
    assert undecided <= COUNT // 2


@pytest.mark.parametrize("limit", [3, None])
def test_what_is_called_converged_is_a_minimum_after_shortened_steps(limit: int | None) -> None:
    """Nearly flat programs of which some variables have no bounds, from an active set that is empty."""
    rng, count, size = np.random.default_rng(0), 1000, 6
    jacobian = rng.standard_normal((count, size - 1, size))
    hessian = np.einsum("bki,bkj->bij", jacobian, jacobian) + 1e-6 * np.eye(size)
    slope, bound = rng.standard_normal((count, size)), rng.uniform(0.01, 0.3, (count, size))
    bound = np.where(rng.random((count, size)) < 0.4, np.inf, bound)
    hessian[0, :2, :2], slope[0, :2], bound[0, :2] = [[1, 1 - 1e-6], [1 - 1e-6, 1]], [-1, 1], [np.inf, 0.01]
    hessian[0, :2, 2:] = hessian[0, 2:, :2] = 0
    given = [jnp.asarray(x, jnp.float32) for x in (hessian, slope, -bound, bound)]
    start = ActiveSet(jnp.zeros(size, jnp.int32), jnp.zeros(0, bool))
    options = None if limit is None else QPOptions(max_iterations=limit)
    found = jax.jit(jax.vmap(lambda *x: minimise_in_box(Program(*x), start, options)))(*given)
    x, pushes = np.asarray(found.x, float), np.asarray(found.bound_multipliers, float)
    hessian, slope = (np.asarray(x, float) for x in given[:2])
    error = np.einsum("bij,bj->bi", hessian, x) + slope + pushes
    sizes = np.einsum("bij,bj->bi", np.abs(hessian), np.abs(x)) + np.abs(slope)
    residual = np.max(np.abs(error), axis=1) / np.max(sizes, axis=1)
    converged = np.asarray(found.status) == Status.CONVERGED
    assert np.mean(converged) > (0.2 if limit else 0.9)
    # The solver's residual, of at most 1e-4, is in units in which H has a diagonal of 1.
    assert residual[converged].max() < 1e-3


def test_warm_starts_with_part_of_the_active_set_end_with_all_of_it() -> None:
    hessian, slope, lower, upper = programs(*CASES["arm, high cost"])
    # As limits on accelerations make them, about the velocity before.
    middle = np.random.default_rng(0).normal(size=lower.shape)
    given = Program(*map(jnp.asarray, (hessian, slope, middle + lower, middle + upper)))
    run = jax.jit(jax.vmap(minimise_in_box, in_axes=(0, 0)))
    cold = run(given, ActiveSet(jnp.zeros((COUNT, 7), jnp.int32), jnp.zeros((COUNT, 0), bool)))
    for seed in range(8):
        # A step that leaves one of two bounds, shortened by the other, ends at the minimum.
        kept = np.random.default_rng(seed).random((COUNT, 7)) < 0.7
        warm = run(given, ActiveSet(jnp.where(kept, cold.active.bounds, 0), cold.active.rows))
        np.testing.assert_array_equal(warm.status, Status.CONVERGED)
        np.testing.assert_array_equal(warm.active.bounds, cold.active.bounds)
        np.testing.assert_allclose(warm.x, cold.x, atol=1e-12)


def test_a_program_that_is_not_finite_ends_at_once() -> None:
    given = Program(np.full((3, 3), np.nan), np.zeros(3), -np.ones(3), np.ones(3))
    found = jax.jit(lambda given: projected_newton(given, None, 80, 1e-10))(given)
    assert found.status == Status.NONFINITE and found.iterations <= 2 and jnp.isfinite(found.x).all()
