"""Rows and equalities that may be missed at a price: against slack variables, warm starts, derivatives."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qp_oracle
from tables import exhaustive

import jaxik
from jaxik import JaxikError, Status
from jaxik.qp_solver import Program

BATCH, N, M, P = 1000, 6, 5, 3


@functools.cache
def programs() -> Program:
    """Contradictory rows and equalities, some of which hold."""
    rng = np.random.default_rng(0)
    made = qp_oracle.random_program(rng, BATCH, N, M, P)
    row_penalties, equality_penalties = 10.0 ** rng.uniform(-1, 3, (BATCH, M)), 10.0 ** rng.uniform(-1, 3, (BATCH, P))
    right = made.h - rng.uniform(0, 3, (BATCH, M)) * (rng.random((BATCH, M)) < 0.5)
    offset = made.b + rng.normal(size=(BATCH, P)) * (rng.random((BATCH, P)) < 0.5)
    # The first row and the first equality hold, and can.
    row_penalties[:, 0], equality_penalties[:, 0], offset[:, 0] = np.inf, np.inf, made.b[:, 0]
    right[:, 0] = np.inf
    return made._replace(h=right, b=offset, row_penalties=row_penalties, equality_penalties=equality_penalties)


@functools.cache
def cold() -> jaxik.QPSolution:
    return solved(programs())


def solved(program: Program, dtype: Any = jnp.float64, **more: Any) -> jaxik.QPSolution:
    given = {name: jnp.asarray(x, dtype) for name, x in program._asdict().items()}
    return jax.tree.map(np.asarray, jaxik.qp(given.pop("H"), given.pop("c"), **given, **more))


def with_slack_variables(one: Program) -> Program:
    """The same program of one element without penalties: a variable for each way to miss a row."""
    rows, equalities = (np.flatnonzero(np.isfinite(x)) for x in (one.row_penalties, one.equality_penalties))
    n, k = N, len(rows) + 2 * len(equalities)
    first, second = len(rows), len(rows) + len(equalities)
    bent = np.zeros((n + k, n + k))
    bent[:n, :n] = one.H
    penalties = one.row_penalties[rows], one.equality_penalties[equalities], one.equality_penalties[equalities]
    above, apart = np.zeros((M, n + k)), np.zeros((P, n + k))
    above[:, :n], apart[:, :n] = one.G, one.A
    above[rows, n + np.arange(len(rows))] = -1
    apart[equalities, n + first + np.arange(len(equalities))] = -1
    apart[equalities, n + second + np.arange(len(equalities))] = 1
    lower, upper = np.concatenate([one.lower, np.zeros(k)]), np.concatenate([one.upper, np.full(k, np.inf)])
    return Program(bent, np.concatenate([one.c, *penalties]), lower, upper, above, one.h, apart, one.b)


def test_programs_agree_with_slack_variables_in_daqp() -> None:
    program, solution = programs(), cold()
    assert np.all(solution.status == Status.CONVERGED)
    misses = np.einsum("bpn,bn->bp", program.A, solution.x) - program.b
    over = np.einsum("bmn,bn->bm", program.G, solution.x) - program.h
    rows, equalities = solution.active.yielding[:, :M], solution.active.yielding[:, M:]
    assert 0.2 < np.mean(rows != 0) < 0.6 and 0.2 < np.mean(equalities != 0) < 0.6
    np.testing.assert_array_equal(rows[:, 0], 0)
    for i in range(BATCH):
        found = qp_oracle.from_daqp(with_slack_variables(qp_oracle.element(program, i)))
        assert found is not None, i
        np.testing.assert_allclose(solution.x[i], found[0][:N], atol=1e-7, err_msg=str(i))
        slack = found[0][N:]
        np.testing.assert_allclose(np.where(rows[i, 1:] != 0, over[i, 1:], 0), slack[: M - 1], atol=1e-7)
        signed = slack[M - 1 : M + P - 2] - slack[M + P - 2 :]
        np.testing.assert_allclose(np.where(equalities[i, 1:] != 0, misses[i, 1:], 0), signed, atol=1e-7)


@exhaustive
def test_float32_agrees_with_float64() -> None:
    single = solved(programs(), jnp.float32)
    assert np.all(single.status == Status.CONVERGED)
    np.testing.assert_allclose(single.x, solved(programs()).x, atol=2e-4)


def test_contradictions_of_what_may_yield_are_never_infeasible_in_float32() -> None:
    """Equalities that nearly follow from each other, of singular values from 1e-4 to 1, in a narrow box."""
    rng = np.random.default_rng(3)
    count, n, p = 500, 7, 6
    left, right = (np.linalg.qr(rng.normal(size=(count, k, p)))[0] for k in (p, n))
    matrix = np.einsum("bij,bj,bkj->bik", left, 10.0 ** rng.uniform(-4, 0, (count, p)), right)
    given = 0.01 * np.tile(np.eye(n), (count, 1, 1)), 0.01 * rng.normal(size=(count, n)), matrix
    bent, slopes, matrix, right = (jnp.asarray(x, jnp.float32) for x in (*given, 0.1 * rng.normal(size=(count, p))))
    found = jaxik.qp(bent, slopes, lower=-0.02, upper=0.02, A=matrix, b=right, equality_penalties=10.0)
    np.testing.assert_array_equal(found.status, Status.CONVERGED)


@exhaustive
def test_a_warm_start_finds_what_yields_at_once() -> None:
    warm = solved(programs(), warm_start=cold().active)
    np.testing.assert_array_equal(warm.iterations, 0)
    np.testing.assert_allclose(warm.x, cold().x, atol=1e-9)
    np.testing.assert_array_equal(warm.active.yielding, cold().active.yielding)


def test_derivatives_of_programs_are_central_differences() -> None:
    program = qp_oracle.element(programs(), slice(0, 40))
    given = {name: jnp.asarray(x) for name, x in program._asdict().items()}
    rng = np.random.default_rng(1)

    def varied(x: Any) -> jax.Array:
        size = np.where(np.isfinite(x), np.abs(x), 0)
        return jnp.asarray(rng.normal(size=x.shape) * np.minimum(1, size))

    moves = {name: varied(np.asarray(x)) for name, x in given.items()}
    moves |= {"lower": 0 * given["c"], "upper": 0 * given["c"]}
    moves["H"] = moves["H"] + jnp.swapaxes(moves["H"], 1, 2)

    def outcome(given: dict[str, jax.Array]) -> Any:
        rest = dict(given)
        solution = jaxik.qp(rest.pop("H"), rest.pop("c"), **rest)
        return solution.x, solution.row_multipliers, solution.equality_multipliers

    @jax.jit
    def moved(s: jax.Array) -> Any:
        return jax.jvp(outcome, (jax.tree.map(lambda x, t: x + s * t, given, moves),), (moves,))

    (_, found), (ahead, _), (behind, _) = (moved(s) for s in (0.0, 1e-6, -1e-6))
    for derivative, above, below in zip(found, ahead, behind, strict=True):
        np.testing.assert_allclose(derivative, (above - below) / 2e-6, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: jaxik.qp(np.eye(2), np.ones(2), row_penalties=1.0), "row_penalties are of the rows of G"),
        (lambda: jaxik.qp(np.eye(2), np.ones(2), A=np.eye(2), b=np.ones(2), equality_penalties=0), "above zero"),
    ],
)
def test_mistakes_are_told_in_one_line(given: Any, said: str) -> None:
    with pytest.raises(JaxikError) as raised:
        given()
    assert said in str(raised.value) and "\n" not in str(raised.value), str(raised.value)
