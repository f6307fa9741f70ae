"""`qp`: minimise a batch of convex quadratic programs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.batching.any_size import at_any_size
from jaxik.batching.implicit_diff import Jvp, Sensitivity, run_differentiable
from jaxik.batching.method import Method, lanes_that_fit, single_pass
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import core_ranks
from jaxik.qp_solver import ActiveSet, Program, QPOptions, QPSolution, minimise
from jaxik.qp_solver.derivatives import (
    KKTInverse,
    SolutionTangent,
    differentiable_part,
    invert_kkt,
    optimum_of,
    solution_tangent,
)

RANKS = Program(H=2, c=1, lower=1, upper=1, G=2, h=1, A=2, b=1, row_penalties=1, equality_penalties=1)  # type: ignore[arg-type]


def qp(
    H: Any,  # noqa: N803
    c: Any,
    *,
    lower: Any = None,
    upper: Any = None,
    G: Any = None,  # noqa: N803
    h: Any = None,
    A: Any = None,  # noqa: N803
    b: Any = None,
    row_penalties: Any = None,
    equality_penalties: Any = None,
    warm_start: ActiveSet | None = None,
    options: QPOptions | None = None,
) -> QPSolution:
    """Minimise 1/2 x'Hx + c'x subject to lower <= x <= upper, G x <= h and A x = b.

    Leading axes of any argument are batch axes, and broadcast. The solution of an element depends neither on the size
    of the batch nor on its neighbours. Degenerate programs are allowed: infinite and equal bounds, rows of zeros,
    repeated, redundant and contradictory rows, flat H.

    Args:
      H (*batch, n, n): positive semidefinite; only its symmetric part counts. If it is not, the status is DIVERGED
        where that shows in the directions that bounds and rows leave free; elsewhere `x` satisfies the KKT conditions.
      c (*batch, n): its dtype and that of H decide the precision.
      lower, upper (*batch, n), or numbers: bounds, infinite or None for none.
      G (*batch, m, n), h (*batch, m): rows, both or neither. An infinite h is no row.
      A (*batch, p, n), b (*batch, p): equalities, both or neither.
      row_penalties (*batch, m), equality_penalties (*batch, p), or numbers: above zero, infinite for rows and
        equalities that hold; a finite one lets its row yield where it must and adds penalty * max(G x - h, 0), or
        penalty * |A x - b|, to the objective. Below the penalty as multiplier it is held as if it were hard.
      warm_start: `active` of the solution of a similar program: it saves time, and changes rounding at most.
      options: `QPOptions`; all traced.

    Returns:
      A `QPSolution`. Failure is a status, never an exception, and `x` is never NaN.

    Raises:
      JaxikError: for wrong shapes and types; on the host, before tracing.
    """
    blocks = {"G": G, "h": h, "A": A, "b": b, "row_penalties": row_penalties, "equality_penalties": equality_penalties}
    program = _program(H, c, lower, upper, blocks)
    if warm_start is not None:
        warm_start = _start(warm_start, program)
    options = QPOptions() if options is None else options
    if not isinstance(options, QPOptions):
        raise JaxikError(f"options is a jaxik.QPOptions, not {type(options).__name__}")
    arguments = {"program": program, "warm_start": warm_start, "options": options}
    ranks = {"program": _ranks(program), "warm_start": _start_ranks(warm_start), "options": core_ranks(options)}
    return at_any_size(_qp, arguments, ranks)


@jax.jit
def _qp(
    program: Program, warm_start: ActiveSet | None, options: QPOptions, present: jax.Array | None = None
) -> QPSolution:
    arguments = (program, warm_start, options)
    constraints = sum(x.shape[-1] for x in (program.c, program.h, program.b) if x is not None)
    ranks = _ranks(program), _start_ranks(warm_start), core_ranks(options)
    return run_differentiable(_method(lanes_that_fit(constraints**2)), arguments, ranks, MINIMUM, present)


@functools.cache
def _method(width: int) -> Method:
    return single_pass(minimise, width)


def _tangent(arguments: tuple[Any, ...], solution: QPSolution, kkt: KKTInverse, jvp_of: Jvp) -> SolutionTangent:
    return solution_tangent(optimum_of(solution), kkt, jvp_of, lambda arguments: arguments[0])


MINIMUM = Sensitivity(
    linearize_at=lambda arguments, solution: invert_kkt(arguments[0], optimum_of(solution)),
    tangent=_tangent,
    differentiable=differentiable_part,
    status_fields=lambda solution, kkt: [(solution.derivative_status, kkt.derivative_status)],
)


def _ranks(program: Program) -> Program:
    return Program(*(None if x is None else rank for x, rank in zip(program, RANKS, strict=True)))  # type: ignore[arg-type]


def _start_ranks(warm_start: ActiveSet | None) -> Any:
    return None if warm_start is None else core_ranks(warm_start)


def _array(name: str, value: Any, shape: str) -> jax.Array:
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        raise JaxikError(f"{name} is an array {shape}, not {value!r}") from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating) or not jnp.issubdtype(array.dtype, jnp.number):
        raise JaxikError(f"{name} is an array {shape} of real numbers, not of {array.dtype}")
    return array


def _program(hessian: Any, gradient: Any, lower: Any, upper: Any, blocks: dict[str, Any]) -> Program:
    hessian, gradient = _array("H", hessian, "(*batch, n, n)"), _array("c", gradient, "(*batch, n)")
    if hessian.ndim < 2 or hessian.shape[-1] != hessian.shape[-2] or not hessian.shape[-1]:
        raise JaxikError(f"H has shape (*batch, n, n) with n > 0, not {hessian.shape}")
    n, dtype = hessian.shape[-1], jnp.result_type(hessian, gradient)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    if jnp.finfo(dtype).bits < 32:
        raise JaxikError(f"H and c are float32 or float64, not {dtype}: give one of them in float32")
    arrays = {"c": _shaped("c", gradient, n, f"n = {n} as H has it")}
    for name, value, sign in (("lower", lower, -1), ("upper", upper, 1)):
        bound = jnp.full(n, sign * jnp.inf, dtype) if value is None else _array(name, value, "(*batch, n), or a number")
        bound = jnp.broadcast_to(bound, (n,)) if bound.ndim == 0 else bound
        arrays[name] = _shaped(name, bound, n, f"n = {n} as H has it")
    for matrix, vector, count, penalties in (("G", "h", "m", "row_penalties"), ("A", "b", "p", "equality_penalties")):
        if (blocks[matrix] is None) != (blocks[vector] is None):
            raise JaxikError(f"{matrix} and {vector} come together: give both, or neither")
        if blocks[matrix] is None:
            if blocks[penalties] is not None:
                raise JaxikError(f"{penalties} are of the rows of {matrix}: there are none")
            continue
        rows = _array(matrix, blocks[matrix], f"(*batch, {count}, n)")
        if rows.ndim < 2 or rows.shape[-1] != n:
            raise JaxikError(f"{matrix} has shape (*batch, {count}, n) with n = {n} as H has it, not {rows.shape}")
        right = _array(vector, blocks[vector], f"(*batch, {count})")
        count_said = f"{count} = {rows.shape[-2]} as {matrix} has it"
        arrays[matrix], arrays[vector] = rows, _shaped(vector, right, rows.shape[-2], count_said)
        if not rows.shape[-2]:
            del arrays[matrix], arrays[vector]
        elif blocks[penalties] is not None:
            arrays[penalties] = _penalties(penalties, blocks[penalties], rows.shape[-2], count_said)
    return Program(H=hessian.astype(dtype), **{name: x.astype(dtype) for name, x in arrays.items()})


def _shaped(name: str, x: jax.Array, length: int, said: str) -> jax.Array:
    if x.shape[-1:] != (length,):
        raise JaxikError(f"{name} has shape (*batch, {said.split(' ')[0]}) with {said}, not {x.shape}")
    return x


def _penalties(name: str, value: Any, length: int, said: str) -> jax.Array:
    penalties = _array(name, value, "(*batch, rows), or a number")
    if not isinstance(penalties, Tracer) and not (np.asarray(penalties) > 0).all():
        raise JaxikError(f"{name} are above zero, infinite for rows that hold, not {np.asarray(penalties)!r}")
    return _shaped(name, jnp.broadcast_to(penalties, (length,)) if penalties.ndim == 0 else penalties, length, said)


def _start(warm_start: Any, program: Program) -> ActiveSet:
    if not isinstance(warm_start, ActiveSet):
        raise JaxikError(f"warm_start is an ActiveSet, such as `active` of a solution; not {type(warm_start).__name__}")
    rows = 0 if program.G is None else program.G.shape[-2]
    sides = _shaped(
        "warm_start.bounds", _array("warm_start.bounds", warm_start.bounds, "(*batch, n)"), program.c.shape[-1], "n"
    )
    active_rows = jnp.asarray(warm_start.rows)
    if active_rows.shape[-1:] != (rows,) or active_rows.dtype != bool:
        raise JaxikError(
            f"warm_start.rows is an array (*batch, m) of bool with m = {rows} rows, not {active_rows.dtype} of "
            f"shape {active_rows.shape}: a warm start comes from a program with as many rows"
        )
    count = rows + (0 if program.A is None else program.A.shape[-2])
    yielding = warm_start.yielding if program.elastic else None
    if yielding is not None:
        yielding = jnp.sign(_shaped("warm_start.yielding", jnp.asarray(yielding), count, "m + p")).astype(jnp.int32)
    return ActiveSet(jnp.sign(sides).astype(jnp.int32), active_rows, yielding)
