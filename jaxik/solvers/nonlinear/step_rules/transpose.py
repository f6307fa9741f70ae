"""The Jacobian's transpose: steepest descent, as far as a linear model falls (Wolovich, Elliott 1984; Buss 2009)."""

import jax
import jax.numpy as jnp

from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.formulation import Formulation
from jaxik.solvers.nonlinear.step_rules.base import Model, bounded, without_acceptance
from jaxik.solvers.options import SolveOptions


def _displacement(prepared: Formulation, model: Model, limits: Box, options: SolveOptions) -> jax.Array:
    """-a J'e, with the a that makes |e - a J J'e| smallest."""

    def minimise(jacobian: jax.Array, residual: jax.Array) -> jax.Array:
        gradient = residual @ jacobian
        seen = jacobian @ gradient
        square = jnp.sum(seen * seen)
        length = jnp.sum(gradient * gradient) / jnp.where(square > 0, square, 1)
        return -options.learning_rate * length * gradient

    return bounded(model.aim, limits, minimise)


TRANSPOSE = without_acceptance(_displacement)
