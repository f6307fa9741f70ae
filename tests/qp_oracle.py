"""Quadratic programs at random, independent checks of their solutions, and what DAQP and quadprog say of them."""

from typing import Any

import daqp
import numpy as np
import quadprog

from jaxik import QPSolution
from jaxik.qp_solver import Program

# DAQP's flags where it says that nothing satisfies the constraints, where it gives up on degenerate ones, and where
# equalities depend on each other: of independent rows (A, b) because they contradict each other.
DAQP_INFEASIBLE, DAQP_CYCLES, DAQP_DEPENDENT = -1, -2, -6


def numbers(program: Any) -> Program:
    return Program(*(None if x is None else np.asarray(x, float) for x in program))


def element(tree: Any, i: int) -> Any:
    if isinstance(tree, Program):
        return Program(*(None if x is None else x[i] for x in tree))
    parts = vars(tree).values()
    return type(tree)(
        *(element(x, i) if hasattr(x, "__dataclass_fields__") else x if x is None else x[i] for x in parts)
    )


def random_program(
    rng: np.random.Generator, batch: int, n: int, m: int, p: int, rank: int | None = None, damping: float = 1e-2
) -> Program:
    """Feasible bounds and equalities, about half of the bounds active, and a tenth of all rows contradictory.

    Of the bounds a fifth is infinite and a twentieth are pairs of equal ones.
    """
    slopes = rng.normal(size=(batch, n if rank is None else rank, n))
    bent = np.einsum("bri,brj->bij", slopes, slopes) + damping * np.eye(n)
    lower, upper = -rng.uniform(0, 1, (batch, n)), rng.uniform(0, 1, (batch, n))
    inside = rng.uniform(lower, upper)
    equal = rng.random((batch, n)) < 0.05
    lower, upper = np.where(equal, inside, lower), np.where(equal, inside, upper)
    lower = np.where(~equal & (rng.random((batch, n)) < 0.2), -np.inf, lower)
    upper = np.where(~equal & (rng.random((batch, n)) < 0.2), np.inf, upper)
    rows = rng.normal(size=(batch, m, n))
    right = np.einsum("bmn,bn->bm", rows, inside) + rng.uniform(-0.05, 1, (batch, m))
    # Some of them against each other, with a gap between what they allow.
    apart = rng.random(batch) < 0.1
    if m > 1:
        rows[:, 0] = np.where(apart[:, None], -2 * rows[:, 1], rows[:, 0])
        right[:, 0] = np.where(apart, -2 * right[:, 1] - rng.uniform(1e-3, 1, batch), right[:, 0])
    equalities = rng.normal(size=(batch, p, n))
    return Program(
        H=bent,
        c=3 * rng.normal(size=(batch, n)),
        lower=lower,
        upper=upper,
        G=rows if m else None,
        h=right if m else None,
        A=equalities if p else None,
        b=np.einsum("bpn,bn->bp", equalities, inside) if p else None,
    )


def residual(program: Program, solution: QPSolution) -> float:
    """Largest violation of the conditions of Karush, Kuhn and Tucker of one element, absolute; exact for the bounds."""
    x, w = np.asarray(solution.x, float), np.asarray(solution.bound_multipliers, float)
    assert np.all(program.lower <= x) and np.all(x <= program.upper)
    assert np.all(x[w > 0] == program.upper[w > 0]) and np.all(x[w < 0] == program.lower[w < 0])
    left = program.H @ x + program.c + w
    worst = 0.0
    if program.G is not None:
        z = np.asarray(solution.row_multipliers, float)
        slack = program.h - program.G @ x
        assert np.all(z >= 0)
        left = left + z @ program.G
        worst = max(worst, np.max(-slack), np.max(np.minimum(z, np.where(np.isinf(slack), np.inf, slack))))
    if program.A is not None:
        left = left + np.asarray(solution.equality_multipliers, float) @ program.A
        worst = max(worst, np.max(np.abs(program.A @ x - program.b)))
    return max(worst, float(np.max(np.abs(left))))


def proves_infeasible(program: Program, solution: QPSolution) -> bool:
    """Whether the certificate of one element is a Farkas ray."""
    ray = solution.certificate
    lower, upper, rows = (np.asarray(x, float) for x in (ray.lower, ray.upper, ray.rows))
    total, size = upper - lower, upper + lower
    value = np.sum(upper[upper > 0] * program.upper[upper > 0]) - np.sum(lower[lower > 0] * program.lower[lower > 0])
    if program.G is not None:
        total, size = total + rows @ program.G, size + rows @ np.abs(program.G)
        value = value + np.sum(rows[rows > 0] * program.h[rows > 0])
    if program.A is not None:
        y = np.asarray(ray.equalities, float)
        total, size, value = total + y @ program.A, size + np.abs(y) @ np.abs(program.A), value + y @ program.b
    signs = min(lower.min(), upper.min(), rows.min(initial=0)) >= 0
    return bool(signs and np.max(np.abs(total)) <= 2e-14 * np.max(size) and value < 0 and np.isfinite(value))


def without_repetition(program: Program) -> Program:
    """One element with independent equalities, contradictions included: DAQP and quadprog take no others."""
    if program.A is None or program.b is None:
        return program
    _, sizes, turned = np.linalg.svd(np.column_stack([program.A, program.b]), full_matrices=False)
    rows = (sizes[:, None] * turned)[sizes > 1e-10 * sizes.max(initial=0)]
    return program._replace(A=rows[:, :-1], b=rows[:, -1])


def from_daqp(program: Program) -> tuple[np.ndarray, float] | None:
    """Minimiser and minimum of one element; None where it finds none."""
    n = program.c.shape[0]
    blocks, upper, lower = [], [program.upper], [program.lower]
    sense = [np.zeros(n, np.int32)]
    if program.G is not None:
        blocks.append(program.G)
        upper.append(program.h)
        lower.append(np.full_like(program.h, -np.inf))
        sense.append(np.zeros(program.h.shape, np.int32))
    if program.A is not None:
        blocks.append(program.A)
        upper.append(program.b)
        lower.append(program.b)
        sense.append(np.full(program.b.shape, 5, np.int32))
    x, value, flag, _ = daqp.solve(
        program.H,
        program.c,
        np.ascontiguousarray(np.concatenate([np.zeros((0, n)), *blocks])),
        np.minimum(np.concatenate(upper), 1e30),
        np.maximum(np.concatenate(lower), -1e30),
        np.concatenate(sense),
        primal_tol=1e-11,
        dual_tol=1e-12,
        eta_prox=1e-11,
        progress_tol=1e-16,
    )
    assert flag in (1, 2, DAQP_INFEASIBLE, DAQP_CYCLES, DAQP_DEPENDENT), flag
    return None if flag < 0 else (np.asarray(x), value)


def from_quadprog(program: Program) -> tuple[np.ndarray, float] | None:
    """The same by quadprog, for a positive definite H."""
    n = program.c.shape[0]
    equalities = [] if program.A is None else [(program.A, program.b)]
    given = program.lower == program.upper
    blocks = [*equalities, (np.eye(n)[given], program.lower[given])]
    first = sum(len(d) for _, d in blocks)
    if program.G is not None:
        finite = program.h < np.inf
        blocks.append((-program.G[finite], -program.h[finite]))
    low, high = ~given & (program.lower > -np.inf), ~given & (program.upper < np.inf)
    blocks += [(np.eye(n)[low], program.lower[low]), (-np.eye(n)[high], -program.upper[high])]
    rows, right = np.concatenate([a for a, _ in blocks]), np.concatenate([d for _, d in blocks])
    try:
        x, value, *_ = quadprog.solve_qp(program.H, -program.c, rows.T, right, first)
    except ValueError as error:
        assert "inconsistent" in str(error), error
        return None
    return x, value
