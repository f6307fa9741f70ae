"""Programs of bounds alone as steps make them: squares of weighted rows with a little damping, in both precisions."""

import daqp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import mostly_exhaustive

from jaxik import Status
from jaxik.qp_solver import Program, minimise_in_box
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


def test_a_program_that_is_not_finite_ends_at_once() -> None:
    hessian = jnp.full((3, 3), jnp.nan)
    found = projected_newton(Program(hessian, jnp.zeros(3), -jnp.ones(3), jnp.ones(3)), None, 80, 1e-10)
    assert found.status == Status.NONFINITE and found.iterations <= 2 and jnp.isfinite(found.x).all()
