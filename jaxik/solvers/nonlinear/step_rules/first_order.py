"""A transformation of gradients from optax as a step rule, projected onto the joint limits."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.solvers.nonlinear.box import Box, from_box, to_box
from jaxik.solvers.nonlinear.formulation import Formulation, Rows, evaluate, retract, rows
from jaxik.solvers.nonlinear.levenberg_marquardt import Rule, Step, Trial
from jaxik.solvers.nonlinear.scaling import limits_at
from jaxik.solvers.nonlinear.step_rules.base import Memory, Model, without_acceptance
from jaxik.solvers.nonlinear.step_rules.effectors import every_row
from jaxik.solvers.options import SolveOptions


class _Memory(NamedTuple):
    """What a transformation keeps.

    Attributes:
      state: its own.
      update (nv,): what it makes of the last gradient.
      moved (nv,): the sum of all steps, which stands for its parameters.
    """

    state: Any
    update: jax.Array
    moved: jax.Array


@functools.cache
def first_order(transformation: Any) -> Rule:
    """The rule of an `optax.GradientTransformation`.

    It sees tangents (nv,), of which followers of couplings are zero, and not the box's coordinates: the axes of balls
    change from step to step. Line searches ask for the cost itself, whose gradient is that of errors within the clamps.
    """
    import optax

    extended = optax.with_extra_args_support(transformation)

    def empty(prepared: Formulation) -> _Memory:
        zeros = jnp.zeros_like(prepared.robot.q_home, shape=prepared.robot.nv)
        return _Memory(extended.init(zeros), zeros, zeros)

    def update(prepared: Formulation, memory: _Memory, limits: Box, proposed: Step, trial: Trial, aim: Rows) -> _Memory:
        moved = memory.moved + from_box(prepared.moving, limits, proposed.displacement)
        here = limits_at(prepared, trial.q)
        gradient = from_box(prepared.moving, here, aim.residual @ aim.jacobian)

        def cost(tangents: jax.Array) -> jax.Array:
            """The cost where a line search asks, from the trial point, inside the limits."""
            q = retract(prepared, trial.q, here, _bounded(prepared, here, tangents - moved))
            residual = rows(prepared, evaluate(prepared, q), every_row(prepared)).residual
            return 0.5 * jnp.sum(residual * residual)

        known = {"value": trial.cost, "grad": gradient, "value_fn": cost}
        change, state = extended.update(gradient, memory.state, moved, **known)
        kept = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), state, memory.state)
        return _Memory(kept, jnp.asarray(change, gradient.dtype), moved)

    return without_acceptance(_displacement, Memory(empty, update))


def _displacement(prepared: Formulation, model: Model, limits: Box, options: SolveOptions) -> jax.Array:
    return _bounded(prepared, limits, options.learning_rate * model.memory.update)


def _bounded(prepared: Formulation, limits: Box, tangent: jax.Array) -> jax.Array:
    """A tangent (nv,) as a displacement (n,) inside the box."""
    own = jnp.asarray([dof in prepared.moving.own for dof in range(prepared.robot.nv)])
    return jnp.clip(to_box(prepared.moving, limits, jnp.where(own, tangent, 0)), limits.lower, limits.upper)
