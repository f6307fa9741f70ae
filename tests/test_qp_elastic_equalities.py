"""Equalities that yield within bounds: against slack variables in DAQP; rows that repeat, vanish and contradict."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qp_oracle

from jaxik import Status
from jaxik.qp_solver import Program, QPSolution, minimise
from jaxik.qp_solver.dispatch import minimise_with_elastic_equalities

COUNT, N, P = 1000, 7, 6


@functools.cache
def programs() -> Program:
    """As steps make them, penalties far above the objective or about as large; the first 800 in general position."""
    rng = np.random.default_rng(0)
    matrix, x = rng.normal(size=(COUNT, P, N)), rng.normal(size=(COUNT, N))
    roots = rng.normal(size=(COUNT, N, N))
    hessian = np.einsum("bki,bkj->bij", roots, roots) * 10.0 ** rng.uniform(-4, 0, (COUNT, 1, 1))
    hessian[: COUNT // 2] *= np.eye(N)
    box = rng.uniform(0.05, 1, (2, COUNT, N))
    special = slice(800, COUNT)
    box[:, special] = np.where(rng.random((2, COUNT - 800, N)) < 0.1, np.inf, box[:, special])
    equal = (rng.random((COUNT - 800, N)) < 0.1) & np.isfinite(box[1, special])
    box[0, special] = np.where(equal, -box[1, special], box[0, special])
    right = np.einsum("bpn,bn->bp", matrix, x * rng.uniform(0, 1, (COUNT, 1)))
    matrix[special, -1] = matrix[special, 0]
    right[850:, -1] = right[850:, 0]
    matrix[special, 1] = np.where(rng.random((COUNT - 800, 1)) < 0.5, 0, matrix[special, 1])
    penalties = 10.0 ** rng.uniform(-1, 2, (COUNT, P))
    penalties[special, 2] = np.where(rng.random(COUNT - 800) < 0.5, np.inf, penalties[special, 2])
    linear = 0.1 * rng.normal(size=(COUNT, N))
    return Program(hessian + 1e-3 * np.eye(N), linear, -box[0], box[1], A=matrix, b=right, equality_penalties=penalties)


def solved(solver: Any, dtype: Any = jnp.float64) -> QPSolution:
    given = jax.tree.map(lambda x: jnp.asarray(x, dtype), programs())
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(solver))(given))


@functools.cache
def exact() -> np.ndarray:
    """The minima that DAQP finds with a slack variable for each way to miss; NaN where an equality cannot be held."""
    program, found = programs(), np.full((COUNT, N), np.nan)
    for i in range(COUNT):
        elastic, k = np.isfinite(program.equality_penalties[i]), N + 2 * P
        bent = np.zeros((k, k))
        bent[:N, :N] = program.H[i]
        weights = np.tile(np.where(elastic, program.equality_penalties[i], 0), 2)
        most = np.tile(np.where(elastic, 1e6, 0), 2)
        one = Program(
            bent,
            np.concatenate([program.c[i], weights]),
            np.concatenate([program.lower[i], 0 * most]),
            np.concatenate([program.upper[i], most]),
            A=np.concatenate([program.A[i], -np.eye(P), np.eye(P)], axis=1),
            b=program.b[i],
        )
        minimum = qp_oracle.from_daqp(one)
        if minimum is not None:
            found[i] = minimum[0][:N]
    return found


@pytest.fixture(scope="module")
def found() -> QPSolution:
    return solved(minimise)


def test_minima_are_those_of_slack_variables(found: QPSolution) -> None:
    program, feasible = programs(), np.isfinite(exact()[:, 0])
    np.testing.assert_array_equal(found.status, np.where(feasible, Status.CONVERGED, Status.INFEASIBLE))
    np.testing.assert_allclose(found.x[feasible], exact()[feasible], atol=1e-7)
    missed = np.einsum("bpn,bn->bp", program.A, found.x) - program.b
    yields, y = found.active.yielding, found.equality_multipliers
    assert 0.3 < np.mean(yields != 0) < 0.7 and 0.2 < np.mean(found.active.bounds != 0) < 0.6
    held = (yields == 0) & feasible[:, None]
    np.testing.assert_allclose(missed[held], 0, atol=1e-9)
    assert np.all((yields * missed)[feasible] >= -1e-12)
    np.testing.assert_allclose((yields * y)[yields != 0], program.equality_penalties[yields != 0], rtol=1e-9)
    assert np.all(np.abs(y[feasible]) <= program.equality_penalties[feasible] * (1 + 1e-12))
    slopes = np.einsum("bij,bj->bi", program.H, found.x) + program.c + np.einsum("bpn,bp->bn", program.A, y)
    np.testing.assert_allclose((slopes + found.bound_multipliers)[feasible], 0, atol=1e-7)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-7), (jnp.float32, 2e-3)])
def test_hardly_any_needs_the_active_set(dtype: Any, tolerance: float) -> None:
    alone, feasible = solved(minimise_with_elastic_equalities, dtype), np.isfinite(exact()[:, 0])
    done = alone.status == Status.CONVERGED
    assert np.mean(done[:800]) > 0.99 and np.mean(done[feasible]) > 0.98, (np.mean(done[:800]), np.mean(done[feasible]))
    assert not np.any(done & ~feasible)
    np.testing.assert_allclose(alone.x[done], exact()[done], atol=tolerance)
    assert np.mean(alone.iterations[:800]) < 10 and np.max(alone.iterations) <= 20


@pytest.mark.parametrize("field", ["c", "b", "equality_penalties"])
def test_what_is_no_number_is_a_status(field: str) -> None:
    program = jax.tree.map(lambda x: jnp.asarray(x[0]), programs())
    broken = jax.jit(minimise)(program._replace(**{field: jnp.nan * getattr(program, field)}))
    assert broken.status == Status.NONFINITE and jnp.isfinite(broken.x).all()
