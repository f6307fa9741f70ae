"""Damped least squares: one damping for all directions (Wampler 1986; Nakamura, Hanafusa 1986)."""

import jax
import jax.numpy as jnp

from jaxik.numerics.linalg import largest
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.formulation import Formulation
from jaxik.solvers.nonlinear.gauss_newton import damped_least_squares
from jaxik.solvers.nonlinear.scaling import least_damping
from jaxik.solvers.nonlinear.step_rules.base import Model, bounded, without_acceptance
from jaxik.solvers.options import SolveOptions


def _displacement(prepared: Formulation, model: Model, limits: Box, options: SolveOptions) -> jax.Array:
    """argmin |e + J d|^2 + damping^2 |d|^2."""

    def minimise(jacobian: jax.Array, residual: jax.Array) -> jax.Array:
        # Without any, a singular matrix has no inverse.
        least = least_damping(residual.dtype) * largest(jnp.sum(jacobian * jacobian, axis=0))
        square = jnp.maximum(options.damping * options.damping, least)
        return damped_least_squares(jacobian, jnp.ones_like(jacobian[0]), residual, square)[0]

    return bounded(model.aim, limits, minimise)


DAMPED_LEAST_SQUARES = without_acceptance(_displacement)
