"""Choose the solver of a program.

Projected Newton for bounds alone, an interior point for equalities that may yield, the dual active-set method for the
rest, and where those do not find a minimum.
"""

import dataclasses

import jax.numpy as jnp
from jax import lax

from jaxik.core.status import Status
from jaxik.numerics.fusion import materialize
from jaxik.qp_solver.active_set import minimise as minimise_active_set
from jaxik.qp_solver.elastic_box import elastic_projected_newton
from jaxik.qp_solver.elastic_equalities import elastic_equalities
from jaxik.qp_solver.options import QPOptions, max_iterations, tolerance
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution
from jaxik.qp_solver.projected_newton import projected_newton
from jaxik.qp_solver.scaling import units, with_symmetric_hessian


def minimise(program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None) -> QPSolution:
    """Minimise one convex quadratic program: a function of one element, for `lanes` and `vmap`.

    Programs of bounds alone take projected Newton steps, those of bounds and equalities that may yield an interior
    point. Other programs, and those without a minimum, go to `active_set.minimise`, which has the same arguments and
    result.
    """
    if program.G is not None or (program.A is not None and program.equality_penalties is None):
        return minimise_active_set(program, warm_start, options)
    found = (minimise_in_box if program.A is None else minimise_with_elastic_equalities)(program, warm_start, options)
    solved = (found.status == Status.CONVERGED) & jnp.all(program.lower <= program.upper)
    return lax.cond(solved, lambda: found, lambda: minimise_active_set(program, warm_start, options))


def minimise_in_box(
    program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None
) -> QPSolution:
    """Minimise a program of bounds alone, which do not cross, that has a minimum."""
    options = QPOptions() if options is None else options
    program = with_symmetric_hessian(program)
    # Once: each kernel that reads it would round it to a power of two again.
    unit = materialize(units(program.H))
    scaled = Program(unit[:, None] * program.H * unit, unit * program.c, program.lower / unit, program.upper / unit)
    limit = max_iterations(options, program.c.shape[0])
    solution = projected_newton(scaled, warm_start, limit, tolerance(options, program.c.dtype))
    return dataclasses.replace(solution, x=unit * solution.x, bound_multipliers=solution.bound_multipliers / unit)


def minimise_in_elastic_box(
    program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None
) -> QPSolution:
    """Minimise a program of bounds, which do not cross, and of rows that are elastic bounds, that has a minimum.

    Rows are one or more blocks of 2 n: upper bounds, `x <= h`, then lower ones, `-x <= h`, each with its penalty.
    """
    options = QPOptions() if options is None else options
    rows = 0 if program.h is None else program.h.shape[0]
    limit = max_iterations(options, program.c.shape[0] + rows)
    return elastic_projected_newton(
        with_symmetric_hessian(program), warm_start, limit, tolerance(options, program.c.dtype)
    )


def minimise_with_elastic_equalities(
    program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None
) -> QPSolution:
    """Minimise a program of bounds, which do not cross, and equalities with penalties, where that converges.

    An interior point starts in the middle: `warm_start` is not looked at.
    """
    del warm_start
    options = QPOptions() if options is None else options
    limit = max_iterations(options, program.c.shape[0])
    return elastic_equalities(with_symmetric_hessian(program), limit, tolerance(options, program.c.dtype))
