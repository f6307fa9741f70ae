"""Convex quadratic programs with bounds, rows and equalities: `minimise` takes one element, `qp` a batch.

`dispatch.py` chooses: projected Newton for bounds alone, an interior point for equalities that may yield within bounds,
the dual active-set method for the rest. Imports core,
numerics and batching.
"""

from jaxik.qp_solver.dispatch import minimise, minimise_in_box, minimise_in_elastic_box
from jaxik.qp_solver.options import QPOptions
from jaxik.qp_solver.program import ActiveSet, Certificate, Program, QPSolution

__all__ = [
    "ActiveSet",
    "Certificate",
    "Program",
    "QPOptions",
    "QPSolution",
    "minimise",
    "minimise_in_box",
    "minimise_in_elastic_box",
]
