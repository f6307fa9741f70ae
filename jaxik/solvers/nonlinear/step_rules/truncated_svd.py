"""The pseudoinverse by singular values, without those that are small."""

import jax
import jax.numpy as jnp

from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.formulation import Formulation
from jaxik.solvers.nonlinear.step_rules.base import Model, bounded, without_acceptance
from jaxik.solvers.options import SolveOptions


def _displacement(prepared: Formulation, model: Model, limits: Box, options: SolveOptions) -> jax.Array:
    """-J^+ e."""

    def minimise(jacobian: jax.Array, residual: jax.Array) -> jax.Array:
        left, values, right = jnp.linalg.svd(jacobian, full_matrices=False)
        kept = (values > options.truncation * values[0]) & (values > 0)
        return -jnp.where(kept, left.T @ residual / jnp.where(kept, values, 1), 0) @ right

    return bounded(model.aim, limits, minimise)


TRUNCATED_SVD = without_acceptance(_displacement)
