"""Minimise a program by the shortest way there is for it."""

import dataclasses

import jax.numpy as jnp
from jax import lax

from jaxik.core.status import Status
from jaxik.qp_solver.active_set import minimise as minimise_any
from jaxik.qp_solver.form import units
from jaxik.qp_solver.options import QPOptions, max_iterations, tolerance
from jaxik.qp_solver.program import ActiveSet, Program, QPSolution
from jaxik.qp_solver.projected_newton import projected


def minimise(program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None) -> QPSolution:
    """Minimise one convex quadratic program: a function of one element, for `lanes` and `vmap`.

    Bounds alone take projected Newton steps; rows and equalities, and what has no minimum, the dual active-set method
    of `minimise.minimise`, with the same arguments and answers.
    """
    if program.G is not None or program.A is not None:
        return minimise_any(program, warm_start, options)
    short = minimise_in_box(program, warm_start, options)
    solved = (short.status == Status.CONVERGED) & jnp.all(program.lower <= program.upper)
    return lax.cond(solved, lambda: short, lambda: minimise_any(program, warm_start, options))


def minimise_in_box(
    program: Program, warm_start: ActiveSet | None = None, options: QPOptions | None = None
) -> QPSolution:
    """The same for a program of bounds alone, which do not cross, that has a minimum."""
    options = QPOptions() if options is None else options
    hessian = 0.5 * (program.H + program.H.T)
    unit = units(hessian)
    scaled = Program(unit[:, None] * hessian * unit, unit * program.c, program.lower / unit, program.upper / unit)
    limit = max_iterations(options, program.c.shape[0])
    found = projected(scaled, warm_start, limit, tolerance(options, program.c.dtype))
    return dataclasses.replace(found, x=unit * found.x, bound_multipliers=found.bound_multipliers / unit)
