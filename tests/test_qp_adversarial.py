"""Quadratic programs that break solvers: degenerate, redundant, contradictory, flat, unbounded, badly scaled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qp_oracle

import jaxik
from jaxik import QPOptions, QPSolution, Status
from jaxik.qp_solver import Program

# One compiled program for all of them: rows that are not needed are rows of zeros.
N, ROWS, EQUALITIES, BATCH = 8, 10, 2, 40
INF = np.inf
RNG = np.random.default_rng


def solve(program: Program, **more: Any) -> QPSolution:
    given = {name: jnp.asarray(x) for name, x in program._asdict().items() if x is not None}
    return jax.tree.map(np.asarray, jaxik.qp(given.pop("H"), given.pop("c"), **given, **more))


def padded(
    bent: Any,
    slope: Any,
    lower: Any,
    upper: Any,
    rows: Any = None,
    right: Any = None,
    equal: Any = None,
    to: Any = None,
) -> Program:
    """A batch of programs of N variables or fewer, of the one shape; what is not given does not bind."""
    n = np.shape(slope)[-1]
    hessian, gradient = np.zeros((BATCH, N, N)), np.zeros((BATCH, N))
    hessian[:, :n, :n], gradient[:, :n] = bent, slope
    low, high = np.full((BATCH, N), -1.0), np.full((BATCH, N), 1.0)
    low[:, :n], high[:, :n] = lower, upper
    blocks = []
    for matrix, vector, count in ((rows, right, ROWS), (equal, to, EQUALITIES)):
        block, ends = np.zeros((BATCH, count, N)), np.zeros((BATCH, count))
        if matrix is not None:
            given = np.shape(matrix)[-2]
            block[:, :given, :n], ends[:, :given] = matrix, vector
        blocks += [block, ends]
    return Program(hessian, gradient, low, high, *blocks)


def definite(rng: np.random.Generator, n: int = N) -> np.ndarray:
    slopes = rng.normal(size=(BATCH, n, n))
    return slopes @ np.swapaxes(slopes, 1, 2) + 0.1 * np.eye(n)


def ties() -> Program:
    """Everything the same in every coordinate."""
    return padded(np.eye(N), -3 * np.ones(N), -np.ones(N), np.ones(N), np.ones((ROWS, N)), np.full(ROWS, 4.0))


def degenerate(curved: bool) -> Program:
    """All rows, bounds and equalities through one point of small integers, most of them redundant there."""
    rng = RNG(0)
    point = rng.integers(-1, 2, (BATCH, N)).astype(float)
    rows = rng.integers(-1, 2, (BATCH, ROWS, N)).astype(float)
    slopes = rng.integers(-1, 2, (BATCH, 3, N)).astype(float)
    return padded(
        np.swapaxes(slopes, 1, 2) @ slopes * curved,
        rng.integers(-3, 4, (BATCH, N)),
        point - rng.integers(0, 2, (BATCH, N)),
        point + rng.integers(0, 2, (BATCH, N)),
        rows,
        np.einsum("bmn,bn->bm", rows, point),
        rows[:, :2] + rows[:, 2:4],
        np.einsum("bmn,bn->bm", rows[:, :2] + rows[:, 2:4], point),
    )


def corners() -> Program:
    """Minima in corners of the box, and exactly on faces, with multipliers of zero."""
    rng = RNG(1)
    target = rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0], (BATCH, N))
    return padded(np.eye(N), -target, -np.ones(N), np.ones(N))


def klee_minty(curvature: float) -> Program:
    """The cube whose 2^n corners a simplex method may visit, in units of its sides."""
    side = 5.0 ** np.arange(1, N + 1)
    rows = np.array([[2.0 ** (i - j + 1) if j < i else float(i == j) for j in range(N)] for i in range(N)])
    slope = -(2.0 ** np.arange(N - 1, -1, -1)) * side
    return padded(
        curvature * np.eye(N),
        slope / np.max(-slope),
        np.zeros(N),
        np.full(N, INF),
        rows * side / side[:, None],
        np.ones(N),
    )


def doubled() -> Program:
    """Every row and equality again, at another scale; rows of zeros; opposite rows that leave no room between them."""
    rng = RNG(2)
    inside, rows = rng.uniform(-0.5, 0.5, (BATCH, N)), rng.normal(size=(BATCH, ROWS, N))
    rows[:, 1], rows[:, 3], rows[:, 5], rows[:, 6] = 3 * rows[:, 0], -rows[:, 2], rows[:, 4], 0
    right = np.einsum("bmn,bn->bm", rows, inside)
    right[:, 7:] += rng.uniform(0, 0.3, (BATCH, 3))
    equality = np.einsum("bn,bn->b", rows[:, 9], inside)
    return padded(
        definite(rng), 5 * rng.normal(size=(BATCH, N)), -np.ones(N), np.ones(N), rows, right,
        rows[:, [9, 9]] * np.array([[1.0], [-7.0]]), equality[:, None] * np.array([1.0, -7.0]),
    )  # fmt: skip


def nearly_parallel(angle: float) -> Program:
    """Pairs of rows at a small angle; half of the pairs leave a thin wedge, whose apex is far away."""
    rng = RNG(3)
    inside, rows = rng.uniform(-0.5, 0.5, (BATCH, N)), rng.normal(size=(BATCH, ROWS, N))
    sides = np.where(np.arange(5) % 2 == 0, 1.0, -1.0)[:, None]
    rows[:, 1::2] = sides * rows[:, ::2] + angle * rng.normal(size=(BATCH, 5, N))
    right = np.einsum("bmn,bn->bm", rows, inside) + angle * rng.uniform(0, 1, (BATCH, ROWS))
    return padded(definite(rng), 3 * rng.normal(size=(BATCH, N)), -np.ones(N), np.ones(N), rows, right)


def ill_conditioned(condition: float) -> Program:
    rng = RNG(4)
    turn = np.linalg.qr(rng.normal(size=(BATCH, N, N)))[0]
    bent = np.einsum("bij,j,bkj->bik", turn, np.geomspace(1, 1 / condition, N), turn)
    rows = rng.normal(size=(BATCH, ROWS, N))
    right = rng.uniform(0, 1, (BATCH, ROWS))
    return padded(
        (bent + np.swapaxes(bent, 1, 2)) / 2, rng.normal(size=(BATCH, N)), -np.ones(N), np.ones(N), rows, right
    )


def badly_scaled() -> Program:
    """Rows from 1e-6 to 1e6; the residual of each is looked at in its own units."""
    rng = RNG(5)
    rows, scale = rng.normal(size=(BATCH, ROWS, N)), 10 ** rng.uniform(-6, 6, (BATCH, ROWS))
    right = rng.uniform(0, 1, (BATCH, ROWS))
    return padded(
        definite(rng), 3 * rng.normal(size=(BATCH, N)), -np.ones(N), np.ones(N), rows * scale[..., None], right * scale
    )


def given() -> Program:
    """All variables given, but one."""
    rng = RNG(6)
    at = rng.uniform(-1, 1, (BATCH, N))
    at[:, 0] = 0
    width = np.eye(N)[0]
    return padded(definite(rng), rng.normal(size=(BATCH, N)), at - width, at + width, np.eye(N)[:1], np.full(1, 0.1))


def single() -> Program:
    """One variable."""
    c = np.linspace(-2, 2, BATCH)[:, None]
    return padded(np.ones((1, 1)), c, -np.ones(1), np.full(1, INF), np.ones((1, 1)), np.full(1, 0.5))


SOLVABLE: dict[str, tuple[Callable[..., Program], tuple[Any, ...]]] = {
    "ties": (ties, ()),
    "degenerate": (degenerate, (True,)),
    "degenerate and flat": (degenerate, (False,)),
    "corners": (corners, ()),
    "Klee-Minty, flat": (klee_minty, (0.0,)),
    "Klee-Minty, curved": (klee_minty, (1e-4,)),
    "doubled": (doubled, ()),
    "nearly parallel, 1e-4": (nearly_parallel, (1e-4,)),
    "nearly parallel, 1e-8": (nearly_parallel, (1e-8,)),
    "condition 1e6": (ill_conditioned, (1e6,)),
    "condition 1e10": (ill_conditioned, (1e10,)),
    "badly scaled": (badly_scaled, ()),
    "given": (given, ()),
    "single": (single, ()),
}


@pytest.mark.parametrize("name", SOLVABLE)
def test_every_hard_program_that_has_a_minimum_is_solved(name: str) -> None:
    make, arguments = SOLVABLE[name]
    program = make(*arguments)
    solution = solve(program)
    assert np.all(solution.status == Status.CONVERGED), np.bincount(solution.status)
    assert np.max(solution.kkt_residual) < 1e-12
    for i in range(BATCH):
        one, found = qp_oracle.element(program, i), qp_oracle.element(solution, i)
        length = np.maximum(np.max(np.abs(one.G), axis=1), 1)
        one = one._replace(G=one.G / length[:, None], h=one.h / length)
        found = jaxik.QPSolution(**(vars(found) | {"row_multipliers": found.row_multipliers * length}))
        largest = max(1.0, np.max(found.row_multipliers))
        assert qp_oracle.residual(one, found) < 1e-10 * largest, i


def test_degenerate_programs_have_the_minimum_of_daqp() -> None:
    for curved in (True, False):
        program = degenerate(curved)
        solution = solve(program)
        for i in range(BATCH):
            other = qp_oracle.from_daqp(qp_oracle.element(program, i))
            # DAQP calls a few of these infeasible, though all have a feasible point by construction.
            if other is not None:
                np.testing.assert_allclose(solution.objective[i], other[1], atol=1e-7)


class Wrong(NamedTuple):
    """A program without a minimum."""

    status: Status
    H: Any = np.eye(N)
    c: Any = np.ones(N)
    lower: Any = -np.ones(N)
    upper: Any = np.ones(N)
    G: Any = None
    h: Any = None
    A: Any = None
    b: Any = None


def only(k: int, value: float, rest: float) -> np.ndarray:
    return np.where(np.arange(N) == k, value, rest)


FIRST = np.eye(N)[:1]
ONE_FREE = only(0, 1e-8, 0.0)
WRONG = {
    "bounds that cross": Wrong(Status.INFEASIBLE, lower=only(3, 1 + 1e-9, -1.0)),
    "a row of zeros": Wrong(Status.INFEASIBLE, G=np.zeros((1, N)), h=[-1e-6]),
    "an equality of zeros": Wrong(Status.INFEASIBLE, A=np.zeros((1, N)), b=[1e-6]),
    "a row against the bounds": Wrong(Status.INFEASIBLE, G=np.ones((1, N)), h=[-N - 1e-6]),
    "an equality against the bounds": Wrong(Status.INFEASIBLE, A=np.ones((1, N)), b=[N + 1e-6]),
    "rows against each other": Wrong(
        Status.INFEASIBLE, lower=np.full(N, -INF), upper=np.full(N, INF),
        G=np.stack([np.arange(1.0, N + 1), -3 * np.arange(1.0, N + 1)]), h=[1, -3 - 1e-6],
    ),
    "equalities against each other": Wrong(
        Status.INFEASIBLE, A=np.stack([np.arange(N), 0.1 * np.arange(N)]), b=[1, 0.1 + 1e-6]
    ),
    "three rows that close": Wrong(
        Status.INFEASIBLE, lower=np.full(N, -INF), upper=np.full(N, INF),
        G=[[1, 1, *[0] * (N - 2)], [-2, 1, *[0] * (N - 2)], [1, -2, *[0] * (N - 2)]], h=[-1, -1, -1],
    ),
    "infeasible and flat": Wrong(Status.INFEASIBLE, H=np.zeros((N, N)), G=np.ones((1, N)), h=[-N - 1.0]),
    "infeasible and unbounded": Wrong(
        Status.INFEASIBLE, H=np.zeros((N, N)), lower=only(0, -INF, -1.0), G=np.stack([only(1, 1, 0), only(1, -1, 0)]),
        h=[-0.5, 0.4],
    ),
    "no curvature, no bound": Wrong(Status.DIVERGED, H=np.diag(only(2, 0, 1)), lower=only(2, -INF, -1.0)),
    "a free direction between rows": Wrong(
        Status.DIVERGED, H=np.zeros((N, N)), lower=np.full(N, -INF), upper=np.full(N, INF), G=-FIRST, h=[1],
        A=[[0, 1, -1, *[0] * (N - 3)]], b=[0.5],
    ),
    "negative curvature": Wrong(Status.DIVERGED, H=np.diag(only(2, -1, 1))),
    "NaN in H": Wrong(Status.NONFINITE, H=np.diag(only(2, np.nan, 1))),
    "infinity in c": Wrong(Status.NONFINITE, c=only(2, INF, 1)),
    "NaN in a bound": Wrong(Status.NONFINITE, lower=only(2, np.nan, -1)),
    "a lower bound at infinity": Wrong(Status.NONFINITE, lower=only(2, INF, -1), upper=only(2, INF, 1)),
    "NaN in a row": Wrong(Status.NONFINITE, G=FIRST * np.nan, h=[1]),
    "NaN in h": Wrong(Status.NONFINITE, G=FIRST, h=[np.nan]),
    "infinity in b": Wrong(Status.NONFINITE, A=FIRST, b=[INF]),
}  # fmt: skip


def test_programs_without_a_minimum_say_why() -> None:
    blocks = [padded(*wrong[1:]) for wrong in WRONG.values()]
    names = [name for name in Program._fields if getattr(blocks[0], name) is not None]
    stacked = {name: np.stack([getattr(block, name)[0] for block in blocks]) for name in names}
    program = Program(**{name: np.concatenate([x, np.repeat(x[:1], BATCH - len(x), 0)]) for name, x in stacked.items()})
    solution = solve(program)
    said = {name: Status(s).name for name, s in zip(WRONG, solution.status[: len(WRONG)], strict=True)}
    assert said == {name: wrong.status.name for name, wrong in WRONG.items()}
    assert np.all(np.isfinite(solution.x))
    for i, (name, wrong) in enumerate(WRONG.items()):
        one, found = qp_oracle.element(program, i), qp_oracle.element(solution, i)
        direction = found.certificate.direction
        if wrong.status == Status.INFEASIBLE:
            assert qp_oracle.proves_infeasible(one, found), name
        if wrong.status == Status.DIVERGED and name != "negative curvature":
            assert np.max(np.abs(one.H @ direction)) < 1e-8 and one.c @ direction < -1e-3, name
            assert np.max(one.G @ direction) < 1e-8 and np.max(np.abs(one.A @ direction)) < 1e-8, name
            assert np.all(direction[np.isfinite(one.upper)] <= 0) and np.all(direction[np.isfinite(one.lower)] >= 0), (
                name
            )
    assert not np.any(solution.certificate.rows[solution.status != Status.INFEASIBLE])


def test_infinite_right_hand_side_is_no_row() -> None:
    program = nearly_parallel(0.5)
    without = program._replace(h=np.where(np.arange(ROWS) < 5, program.h, INF))
    zeros = program._replace(
        G=np.where(np.arange(ROWS)[:, None] < 5, program.G, 0), h=np.where(np.arange(ROWS) < 5, program.h, 0)
    )
    np.testing.assert_array_equal(solve(without).x, solve(zeros).x)
    assert not np.array_equal(solve(without).x, solve(program).x)


def test_out_of_iterations_is_a_timeout_with_a_point_in_the_box() -> None:
    program = doubled()
    solution = solve(program, options=QPOptions(max_iterations=3))
    assert np.mean(solution.status == Status.TIMEOUT) > 0.5
    assert np.all((program.lower <= solution.x) & (solution.x <= program.upper))
    assert np.max(solution.iterations) == 3
