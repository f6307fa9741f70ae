"""Shorten a displacement until no two shapes that were apart overlap where it arrives."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.kinematics.forward import forward
from jaxik.limits.combine import looking_at_distances, merged_distances
from jaxik.problem.problem import Problem, constants_of, effective_joint_limits, limits_of
from jaxik.solvers.differential.integrate import integrate_within_limits
from jaxik.solvers.differential.linearization import evaluated

# Halvings before the robot stands still for a step.
HALVINGS = 3
# Roundings of a distance of about a metre: pairs that slide along each other are apart up to these.
ROUNDINGS = 4


class Arrival(NamedTuple):
    """How much of a displacement is taken, and what is near where it arrives.

    Attributes:
      fraction (): of the displacement; 1, 1/2, 1/4, 1/8, or 0.
      clearance (): the least distance [m] there.
      nearest (): which pair has it, of those of all limits that look at distances.
    """

    fraction: jax.Array
    clearance: jax.Array
    nearest: jax.Array


def arrive(
    problem: Problem, q: jax.Array, displacement: jax.Array, lower: jax.Array, upper: jax.Array
) -> Arrival | None:
    """The longest of a few fractions of a displacement (nv,) at whose end all distances are free; None without any.

    Rows of limits are linear, and what they leave out is of second order in the displacement. A pair that is apart
    stays apart; one that overlaps may not get deeper than the deepest of all was.
    """
    looking = looking_at_distances(limits_of(problem))
    if not looking:
        return None
    robot, moving = problem.robot, effective_joint_limits(problem)
    constants = constants_of(robot, looking)
    # As the linearization has them: they are not evaluated again.
    before = merged_distances(looking, robot, evaluated(problem, q))
    tolerance = -ROUNDINGS * jnp.finfo(q.dtype).eps
    allowed = jnp.where(before >= tolerance, tolerance, jnp.min(before))

    def shorter(state: tuple[Arrival, jax.Array]) -> tuple[Arrival, jax.Array]:
        fraction = state[0].fraction / 2
        fraction = jnp.where(fraction < 0.5**HALVINGS, 0, fraction)
        reached, _ = integrate_within_limits(moving, q, fraction * displacement, lower, upper)
        found = merged_distances(looking, robot, forward(constants, reached))
        arrival = Arrival(fraction, jnp.min(found), jnp.argmin(found).astype(jnp.int32))
        return arrival, jnp.all(found >= allowed)

    def goes_on(state: tuple[Arrival, jax.Array]) -> jax.Array:
        return ~state[1] & (state[0].fraction > 0)

    # The first is the whole displacement: in the loop as well, where it is compiled once.
    twice = Arrival(jnp.full((), 2, q.dtype), jnp.min(before), jnp.zeros((), jnp.int32))
    arrival, _ = lax.while_loop(goes_on, shorter, (twice, jnp.zeros((), bool)))
    return arrival
