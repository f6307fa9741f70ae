"""Convex quadratic programs: `minimise` one, with bounds, rows and equalities, in a form that maps onto lanes."""

from jaxik.quadratic.options import QPOptions
from jaxik.quadratic.path import minimise, minimise_in_box
from jaxik.quadratic.program import ActiveSet, Certificate, Program, QPSolution

__all__ = ["ActiveSet", "Certificate", "Program", "QPOptions", "QPSolution", "minimise", "minimise_in_box"]
