"""Quadratic programs at random, against DAQP, quadprog and the conditions of optimality."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qp_oracle
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import QPSolution, Status
from jaxik.qp_solver import Program

BATCH = 100
# Variables, rows, equalities.
SHAPES = [(2, 3, 0), (7, 0, 0), (7, 2, 0), (12, 8, 2), (41, 20, 6), (60, 12, 0)]
# Everything, and everything of a large program; bounds alone are in test_qp_box.py.
COMMON = [(12, 8, 2), (41, 20, 6)]


def solve(program: Program, dtype: Any = jnp.float64) -> QPSolution:
    given = {name: jnp.asarray(x, dtype) for name, x in program._asdict().items() if x is not None}
    return jax.tree.map(np.asarray, jaxik.qp(given.pop("H"), given.pop("c"), **given))


def against_oracles(program: Program, solution: QPSolution, oracles: list[Any]) -> np.ndarray:
    """Check every element; how many ended in each status."""
    for i, status in enumerate(solution.status):
        one, found = qp_oracle.element(program, i), qp_oracle.element(solution, i)
        others = [oracle(one) for oracle in oracles]
        if status == Status.INFEASIBLE:
            assert qp_oracle.proves_infeasible(one, found), i
            assert all(other is None for other in others), i
            continue
        assert status == Status.CONVERGED, (i, Status(status), found.kkt_residual)
        assert qp_oracle.residual(one, found) < 1e-10, (i, qp_oracle.residual(one, found))
        conditioned = np.linalg.cond(one.H) < 1e6
        for other in others:
            assert other is not None, i
            np.testing.assert_allclose(found.objective, other[1], rtol=1e-7, atol=1e-7, err_msg=str(i))
            if conditioned:
                np.testing.assert_allclose(found.x, other[0], atol=1e-7, err_msg=str(i))
    return np.bincount(solution.status, minlength=len(Status))


@pytest.mark.parametrize("shape", mostly_exhaustive(SHAPES, COMMON))
def test_random_programs_agree_with_daqp_and_quadprog(shape: tuple[int, int, int]) -> None:
    n, m, p = shape
    program = qp_oracle.random_program(np.random.default_rng(n), BATCH, n, m, p)
    ended = against_oracles(program, solve(program), [qp_oracle.from_daqp, qp_oracle.from_quadprog])
    assert ended[Status.CONVERGED] > 0.5 * BATCH
    assert (ended[Status.INFEASIBLE] > 0.03 * BATCH) == (m > 1)


@pytest.mark.parametrize("shape", mostly_exhaustive(SHAPES, [(12, 8, 2)]))
def test_flat_programs_agree_with_daqp(shape: tuple[int, int, int]) -> None:
    n, m, p = shape
    rng = np.random.default_rng(100 + n)
    program = qp_oracle.random_program(rng, BATCH, n, m, p, rank=n // 2, damping=0.0)
    # A third has no curvature at all. Finite bounds: else there need not be a minimum.
    program = program._replace(
        H=np.where(np.arange(BATCH)[:, None, None] % 3 == 0, 0, program.H),
        lower=np.maximum(program.lower, -2),
        upper=np.minimum(program.upper, 2),
    )
    against_oracles(program, solve(program), [qp_oracle.from_daqp])


@exhaustive
@pytest.mark.parametrize("shape", SHAPES)
def test_ten_thousand_random_programs_agree_with_daqp_and_quadprog(shape: tuple[int, int, int]) -> None:
    n, m, p = shape
    rng = np.random.default_rng(1000 + n)
    for turn in range(17):
        definite, flat = turn % 4 != 3, turn % 4 == 3
        program = qp_oracle.random_program(
            rng, BATCH, n, m, p, rank=n // 2 if flat else None, damping=0.0 if flat else 10.0 ** -(turn % 4)
        )
        if flat:
            program = program._replace(lower=np.maximum(program.lower, -2), upper=np.minimum(program.upper, 2))
        oracles = [qp_oracle.from_daqp, *([qp_oracle.from_quadprog] if definite else [])]
        against_oracles(program, solve(program), oracles)


@pytest.mark.parametrize("shape", mostly_exhaustive([(7, 0, 0), (12, 8, 2), (41, 20, 6)], [(12, 8, 2)]))
def test_float32_solves_to_one_in_ten_thousand(shape: tuple[int, int, int]) -> None:
    n, m, p = shape
    program = qp_oracle.random_program(np.random.default_rng(200 + n), BATCH, n, m, p)
    single = Program(*(None if x is None else np.asarray(x, np.float32) for x in program))
    solution = solve(program, jnp.float32)
    ended = np.bincount(solution.status, minlength=len(Status))
    assert ended[Status.CONVERGED] + ended[Status.INFEASIBLE] == BATCH, ended
    for i in np.flatnonzero(solution.status == Status.CONVERGED):
        one, found = qp_oracle.element(qp_oracle.numbers(single), i), qp_oracle.element(solution, i)
        scale = max(1.0, np.max(np.abs(found.bound_multipliers)), np.max(np.abs(one.H @ found.x)))
        assert qp_oracle.residual(one, found) < 1e-4 * scale


@functools.cache
def _programs() -> Program:
    return qp_oracle.random_program(np.random.default_rng(5), BATCH, *COMMON[0])


def test_warm_start_gives_the_same_answer_with_fewer_pivots() -> None:
    program = _programs()
    cold = solve(program)
    moved = program._replace(c=program.c + 0.02 * np.random.default_rng(6).normal(size=program.c.shape))
    given = {name: x for name, x in moved._asdict().items() if x is not None}
    warm = jax.tree.map(np.asarray, jaxik.qp(given.pop("H"), given.pop("c"), **given, warm_start=cold.active))
    again = solve(moved)
    assert np.array_equal(warm.status, again.status)
    fine = again.status == Status.CONVERGED
    np.testing.assert_allclose(warm.x[fine], again.x[fine], atol=1e-12)
    assert np.mean(warm.iterations[fine]) < 0.5 * np.mean(again.iterations[fine])


def test_wrong_start_costs_time_and_not_the_answer() -> None:
    program, rng = _programs(), np.random.default_rng(7)
    cold = solve(program)
    start = jaxik.ActiveSet(
        jnp.asarray(rng.integers(-1, 2, program.c.shape), jnp.int32), jnp.asarray(rng.random(program.h.shape) < 0.5)
    )
    given = {name: x for name, x in program._asdict().items() if x is not None}
    wrong = jax.tree.map(np.asarray, jaxik.qp(given.pop("H"), given.pop("c"), **given, warm_start=start))
    assert np.array_equal(wrong.status, cold.status)
    fine = cold.status == Status.CONVERGED
    np.testing.assert_allclose(wrong.x[fine], cold.x[fine], atol=1e-11)
