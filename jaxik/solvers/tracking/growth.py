"""Derivatives through a loop of steps that stay bounded where those of its steps multiply.

Near a singularity a step's derivative is large: what a linear step leaves of an error, times its curvature, over the
damping. Over many steps such factors multiply, though the motion itself is calm. So a perturbation of the state is
followed beside the motion, a little of which is added at every step; where it has grown beyond a limit, the derivative
of the state is shortened by as much as brings the perturbation back to it. The motion stays as it is.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.motion import Motion
from jaxik.solvers.differential.step import stepped


class Growth(NamedTuple):
    """What a perturbation has become.

    Attributes:
      q (*batch, nq), velocity (*batch, nv): the perturbation of the state.
      cut (*batch,): 1 where the derivative was shortened in this step or in one before, else 0.
    """

    q: jax.Array
    velocity: jax.Array
    cut: jax.Array


def no_growth(q: jax.Array, velocity: jax.Array) -> Growth:
    """Before the first step."""
    return Growth(jnp.ones_like(q), jnp.zeros_like(velocity), jnp.zeros_like(q[..., 0]))


def grown(growth: Growth, limit: jax.Array, width: int, continuous: bool, asked: Any) -> tuple[Growth, jax.Array]:
    """The perturbation after a step, and the share (*batch,) of the derivative that is kept.

    Known only where the step is differentiated: else nothing is computed, and the share is 1.

    Args:
      limit (*batch,): the largest entry of the perturbation.
      width, continuous, asked: the arguments of `stepped`.
    """

    @jax.custom_jvp
    def found(growth: Growth, limit: jax.Array, asked: Any) -> tuple[Growth, jax.Array]:
        return growth, jnp.ones_like(growth.cut)

    @found.defjvp
    def _(given: Any, tangents: Any) -> Any:
        after = _perturbed(*given)
        return after, jax.tree.map(jnp.zeros_like, after)

    def _perturbed(growth: Growth, limit: jax.Array, asked: Any) -> tuple[Growth, jax.Array]:
        problem, q, motion, *rest = asked

        def step(q: jax.Array, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
            moving = Motion(motion.dt, velocity, motion.previous_acceleration)
            taken = stepped(width, continuous, problem, q, moving, *rest)
            return taken.q, taken.velocity

        _, (q, velocity) = jax.jvp(step, (q, motion.previous_velocity), (growth.q, growth.velocity))
        # A part of this step's own, with a sign that cancels nothing.
        q = q + jnp.where(q < 0, -1, 1)
        displaced = jnp.asarray(motion.dt)[..., None] * velocity
        size = jnp.maximum(jnp.max(jnp.abs(q), axis=-1), jnp.max(jnp.abs(displaced), axis=-1))
        share = jnp.where(jnp.isfinite(size), jnp.minimum(limit / size, 1), 0)
        some = share[..., None] > 0
        kept = jnp.where(some, share[..., None] * q, 1), jnp.where(some, share[..., None] * velocity, 0)
        return Growth(*kept, jnp.where(share < 1, 1, growth.cut)), share

    return found(*jax.lax.stop_gradient((growth, limit)), asked)


def shortened(x: jax.Array, share: jax.Array) -> jax.Array:
    """The value (*batch, n), with a share (*batch,) of its derivative."""
    here, kept = jax.lax.stop_gradient(x), jax.lax.stop_gradient(share)[..., None]
    return here + kept * (x - here)
