"""Selectively damped least squares (Buss, Kim: Journal of Graphics Tools 10(3), 2005).

Each singular direction has a clamp of its own: small where moving the joints as it does moves the end effectors much
farther, each on its own way, than the error that it removes is long.
"""

import jax
import jax.numpy as jnp

from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.formulation import Formulation
from jaxik.solvers.nonlinear.step_rules.base import Model, bounded, without_acceptance
from jaxik.solvers.nonlinear.step_rules.effectors import effectors, every_row
from jaxik.solvers.options import SolveOptions


def _displacement(prepared: Formulation, model: Model, limits: Box, options: SolveOptions) -> jax.Array:
    member = jnp.asarray(effectors(prepared, every_row(prepared))[0], model.best.q.dtype)

    def minimise(jacobian: jax.Array, residual: jax.Array) -> jax.Array:
        left, values, right = jnp.linalg.svd(jacobian, full_matrices=False)
        seen = values > jnp.finfo(values.dtype).eps * jnp.maximum(values[0], 1)
        inverse = jnp.where(seen, 1 / jnp.where(seen, values, 1), 0)
        # N_i, how far a unit of a direction moves the end effectors; M_i, how far each joint would move them alone.
        together = jnp.sum(jnp.sqrt(member @ (left * left)), axis=0)
        by_joint = jnp.sum(jnp.sqrt(member @ (jacobian * jacobian)), axis=0)
        apart = inverse * (jnp.abs(right) @ by_joint)
        most = options.step_clamp * jnp.minimum(1, together / jnp.where(apart > 0, apart, 1))
        along = _clamped(-(inverse * (left.T @ residual))[:, None] * right, most)
        return _clamped(jnp.sum(along, axis=0), options.step_clamp)

    return bounded(model.aim, limits, minimise)


def _clamped(displacements: jax.Array, most: jax.Array) -> jax.Array:
    """Displacements (..., n), shortened until no entry exceeds `most` (...)."""
    size = jnp.max(jnp.abs(displacements), axis=-1)
    return jnp.where(size > most, most / jnp.where(size > 0, size, 1), 1)[..., None] * displacements


SELECTIVELY_DAMPED = without_acceptance(_displacement)
