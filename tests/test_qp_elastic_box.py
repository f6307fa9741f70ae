"""Bounds that yield at a price: against slack variables in DAQP, where kinks coincide too; warm starts."""

import dataclasses
import functools
from typing import Any

import daqp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxik import Status
from jaxik.qp_solver import ActiveSet, Program, QPSolution, minimise_in_elastic_box

COUNT, N = 300, 7


@functools.cache
def programs() -> Program:
    """As steps make them; two blocks of elastic bounds in hard ones: some cross, coincide, are none or out of reach."""
    rng = np.random.default_rng(0)
    rows, right = rng.normal(size=(COUNT, 6, N)), rng.normal(size=(COUNT, 6))
    hessian = np.einsum("bki,bkj->bij", rows, rows) + 1e-2 * np.eye(N)
    box = rng.uniform(0.05, 0.5, (2, COUNT, N))
    places = rng.uniform(-0.02, 0.3, (COUNT, 2, 2, N))
    places[:, 1] = np.where(rng.random((COUNT, 2, N)) < 0.2, places[:, 0], places[:, 1])
    places[:, 0, 0] = np.where(rng.random((COUNT, N)) < 0.2, box[1], places[:, 0, 0])
    places = np.where(rng.random(places.shape) < 0.1, 0.0, places)
    places = np.where(rng.random(places.shape) < 0.1, np.inf, places)
    matrix = np.tile(np.concatenate([np.eye(N), -np.eye(N)] * 2), (COUNT, 1, 1))
    h = places.reshape(COUNT, 4 * N)
    penalties = 10.0 ** rng.uniform(-2, 1, (COUNT, 4 * N))
    penalties[:, N : 2 * N] = penalties[:, :N]
    return Program(
        H=hessian,
        c=-np.einsum("bki,bk->bi", rows, right),
        lower=-box[0],
        upper=box[1],
        G=np.where(np.isinf(h)[..., None], 0, matrix),
        h=h,
        row_penalties=penalties,
    )


def solved(dtype: Any, warm_start: ActiveSet | None = None) -> QPSolution:
    given = jax.tree.map(lambda x: jnp.asarray(x, dtype), programs())
    run = jax.jit(jax.vmap(minimise_in_elastic_box, in_axes=(0, None if warm_start is None else 0)))
    return jax.tree.map(np.asarray, run(given, warm_start))


@functools.cache
def exact() -> np.ndarray:
    """The minima that DAQP finds with a slack variable for each row."""
    program, found = programs(), []
    rows = 4 * N
    for i in range(COUNT):
        h = np.where(np.isinf(program.h[i]), 1e6, program.h[i])
        bent = np.zeros((N + rows, N + rows))
        bent[:N, :N] = program.H[i]
        x, _, flag, _ = daqp.solve(
            bent,
            np.concatenate([program.c[i], program.row_penalties[i]]),
            np.concatenate([program.G[i], -np.eye(rows)], axis=1),
            np.concatenate([program.upper[i], np.full(rows, 1e6), h]),
            np.concatenate([program.lower[i], np.zeros(rows), np.full(rows, -1e30)]),
            np.zeros(N + 2 * rows, np.int32),
        )
        assert flag == 1, (i, flag)
        found.append(x[:N])
    return np.stack(found)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-7), (jnp.float32, 2e-4)])
def test_minima_are_those_of_slack_variables(dtype: Any, tolerance: float) -> None:
    program, found = programs(), solved(dtype)
    np.testing.assert_array_equal(found.status, Status.CONVERGED)
    np.testing.assert_allclose(found.x, exact(), atol=tolerance)
    over = np.einsum("bmn,bn->bm", program.G, found.x) - program.h
    yields = found.active.yielding != 0
    assert 0.05 < np.mean(yields) < 0.5 and np.mean(found.active.rows) > 0.05
    assert np.all(over[yields] > 0) and np.all(over[~yields] <= 1e-6)
    np.testing.assert_allclose(over[found.active.rows], 0, atol=1e-6)
    multipliers = found.row_multipliers
    np.testing.assert_allclose(multipliers[yields], program.row_penalties[yields], rtol=1e-6)
    assert np.all((multipliers >= 0) & (multipliers <= program.row_penalties * (1 + 1e-6)))
    forces = np.einsum("bmn,bm->bn", program.G, multipliers) + found.bound_multipliers
    slopes = np.einsum("bij,bj->bi", program.H, found.x) + program.c
    np.testing.assert_allclose(slopes, -forces, atol=tolerance)
    assert np.mean(found.iterations) < 1.6 and np.max(found.iterations) < 10


def test_a_warm_start_changes_nothing_but_time() -> None:
    cold = solved(jnp.float64)
    warm = solved(jnp.float64, cold.active)
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)
    # Without an active set 1.47, after sweeps that find most of it.
    assert np.mean(warm.iterations) < 1.4 < np.mean(cold.iterations)
    rng = np.random.default_rng(1)
    wrong = jax.tree.map(lambda x: rng.permutation(np.asarray(x)), cold.active)
    np.testing.assert_allclose(solved(jnp.float64, wrong).x, cold.x, atol=1e-8)


def test_a_warm_start_with_part_of_the_active_set_ends_with_all_of_it() -> None:
    middle = np.random.default_rng(0).normal(size=(COUNT, N))
    program = programs()
    given = program._replace(
        lower=program.lower + middle,
        upper=program.upper + middle,
        h=program.h + np.einsum("bij,bj->bi", program.G, middle),
    )
    run = jax.jit(jax.vmap(minimise_in_elastic_box))
    none = jax.tree.map(jnp.zeros_like, solved(jnp.float64).active)
    cold = run(given, none)
    for seed in range(8):
        kept = np.random.default_rng(seed).random((COUNT, N)) < 0.7
        warm = run(given, dataclasses.replace(cold.active, bounds=np.where(kept, cold.active.bounds, 0)))
        np.testing.assert_array_equal(warm.status, Status.CONVERGED)
        np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)


def test_bounds_that_hard_ones_make_yield_at_a_large_penalty_converge_in_float32() -> None:
    """A hard lower bound beyond an elastic upper one; forces of the size of the penalty cancel."""
    penalties, demands = (np.ravel(x) for x in np.meshgrid(10.0 ** np.arange(1, 5), 10.0 ** np.arange(-4.0, 0)))
    one = jnp.ones((penalties.size, 1), jnp.float32)
    program = Program(
        H=one[:, None],
        c=one * -demands[:, None],
        lower=0.002 * one,
        upper=jnp.inf * one,
        G=jnp.asarray([[1.0], [-1.0]], jnp.float32) * one[:, None],
        h=jnp.asarray([0.001, jnp.inf], jnp.float32) * one,
        row_penalties=one * jnp.asarray(penalties, jnp.float32)[:, None] * jnp.ones(2),
    )
    program = jax.tree.map(lambda x: x.astype(jnp.float32), program)
    found = jax.jit(jax.vmap(minimise_in_elastic_box))(program)
    np.testing.assert_array_equal(found.status, Status.CONVERGED)
    np.testing.assert_array_equal(found.x, program.lower)
    np.testing.assert_array_equal(found.active.yielding, np.broadcast_to([1, 0], found.active.yielding.shape))


def test_two_points_about_as_low_are_no_cycle_in_float32() -> None:
    """A step of a Panda: clipped steps went back and forth, as rounding excused one that rose by 8e-8."""
    below = [
        [1.362146],
        [0.01942033, 1.351001],
        [1.144578, -0.03679517, 1.323567],
        [-0.02434989, -1.372007, 0.06959035, 1.522314],
        [-0.5515378, 0.03178616, -0.9705507, -0.08830292, 1.036045],
        [0.3206522, -1.109283, 0.2281389, 1.155215, -0.04716762, 1.107747],
        [-1.059862, -0.3522002, -0.7021686, 0.3813345, 0.2137215, -0.001632608, 1.084059],
    ]
    c = [-0.001089271, 0.116956, -0.02222805, -0.3344548, 0.06139479, -0.1408563, 0.003847521]
    hessian = np.zeros((N, N))
    for k, row in enumerate(below):
        hessian[k, : k + 1] = hessian[: k + 1, k] = row
    wide, rows = np.full(N, 4.0), np.concatenate([np.eye(N), -np.eye(N)])
    program = Program(hessian, np.array(c), -wide, wide, rows, np.full(2 * N, 0.02), row_penalties=np.full(2 * N, 0.01))
    found = jax.jit(minimise_in_elastic_box)(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), program))
    assert found.status == Status.CONVERGED and found.iterations < 50


@pytest.mark.parametrize("field", ["c", "h", "row_penalties"])
def test_what_is_no_number_is_a_status(field: str) -> None:
    program = jax.tree.map(lambda x: jnp.asarray(x[0]), programs())
    found = jax.jit(minimise_in_elastic_box)(program._replace(**{field: jnp.nan * getattr(program, field)}))
    assert found.status == Status.NONFINITE and jnp.isfinite(found.x).all() and found.iterations < 50


def test_one_entry_that_is_no_number_ends_a_program_at_once() -> None:
    """At a variable that its bounds fix, so that the others do not hear of it."""
    given, bad = programs(), np.random.default_rng(0).integers(0, programs().c.shape[1], len(programs().c))
    at = np.arange(len(bad)), bad
    fixed = given._replace(c=given.c.copy(), lower=given.lower.copy(), upper=given.upper.copy())
    fixed.c[at], fixed.lower[at], fixed.upper[at] = np.nan, 0.1, 0.1
    found = jax.jit(jax.vmap(minimise_in_elastic_box))(jax.tree.map(jnp.asarray, fixed))
    assert (found.status == Status.NONFINITE).all() and jnp.isfinite(found.x).all() and (found.iterations < 50).all()
