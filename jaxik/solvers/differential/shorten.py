"""Shorten a displacement until no two shapes that were apart overlap where it arrives, or on the way there."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.collision.distances import least_distance
from jaxik.collision.sweep import march
from jaxik.kinematics.forward import Kinematics, forward
from jaxik.limits.combine import Looks, looking_at_distances, merged_distances, merged_look
from jaxik.numerics.linalg import first_true
from jaxik.problem.problem import Problem, constants_of, effective_joint_limits, limits_of
from jaxik.solvers.differential.integrate import integrate_within_limits
from jaxik.solvers.differential.linearization import evaluated

# Halvings before the robot stands still for a step.
HALVINGS = 3
# Roundings of a distance of about a metre: pairs that slide along each other are apart up to these.
ROUNDINGS = 4
# Configurations on the way of a step that are looked at, and the least part of it between two of them. Of steps far
# from all obstacles the first two looks are all.
LOOKS, SHORTEST = 24, 2.0**-7
# A step that takes overlapping shapes by less apart [m] stands still.
STILL = 1e-6


class Arrival(NamedTuple):
    """How much of a displacement is taken, and what is near where it arrives.

    Attributes:
      fraction (): of the displacement; 1, 1/2, 1/4, 1/8, or 0; where the way is looked at, any.
      clearance (): the least distance [m] there.
      nearest (): which pair has it, of those of all limits that look at distances.
      deepest (): the least distance before the step, where shapes overlapped.
    """

    fraction: jax.Array
    clearance: jax.Array
    nearest: jax.Array
    deepest: jax.Array

    @property
    def stands_still(self) -> jax.Array:
        """Whether shapes overlap, the deepest of them no less than before ()."""
        return (self.clearance < -STILL) & (self.clearance < self.deepest + STILL)


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
    allowed = _allowed(before)

    def shorter(state: tuple[Arrival, jax.Array]) -> tuple[Arrival, jax.Array]:
        fraction = state[0].fraction / 2
        fraction = jnp.where(fraction < 0.5**HALVINGS, 0, fraction)
        reached, _ = integrate_within_limits(moving, q, fraction * displacement, lower, upper)
        found = merged_distances(looking, robot, forward(constants, reached))
        return _arrival(fraction, found, state[0].deepest), jnp.all(found >= allowed)

    def goes_on(state: tuple[Arrival, jax.Array]) -> jax.Array:
        return ~state[1] & (state[0].fraction > 0)

    # The first is the whole displacement: in the loop as well, where it is compiled once.
    twice = Arrival(jnp.full((), 2, q.dtype), jnp.min(before), jnp.zeros((), jnp.int32), jnp.min(before))
    arrival, _ = lax.while_loop(goes_on, shorter, (twice, jnp.zeros((), bool)))
    return arrival


def _arrival(fraction: jax.Array, distance: jax.Array, deepest: jax.Array) -> Arrival:
    least = least_distance(distance)
    return Arrival(fraction, least, first_true(distance == least), deepest)


def _allowed(distance: jax.Array) -> jax.Array:
    """How near pairs (p,) may come in a step, by their distances before it."""
    tolerance = -ROUNDINGS * jnp.finfo(distance.dtype).eps
    return jnp.where(distance >= tolerance, tolerance, jnp.min(distance))


def arrive_without_crossing(
    problem: Problem, q: jax.Array, displacement: jax.Array, lower: jax.Array, upper: jax.Array
) -> Arrival | None:
    """The same, at whose end and on the way to which all distances are free."""
    looking = looking_at_distances(limits_of(problem))
    if not looking:
        return None
    robot, moving = problem.robot, effective_joint_limits(problem)
    constants = constants_of(robot, looking)

    def at(share: jax.Array) -> Kinematics:
        return forward(constants, integrate_within_limits(moving, q, share * displacement, lower, upper)[0])

    def look(share: jax.Array, ahead: jax.Array, before: _OnTheWay) -> tuple[_OnTheWay, jax.Array, jax.Array]:
        found, free = merged_look(looking, robot, at(share), ahead * displacement, before.looks)
        allowed = jnp.where(share > 0, before.allowed, _allowed(found.distance))
        return _OnTheWay(found, allowed), jnp.all(found.distance >= allowed), jnp.all(free)

    shapes = jax.eval_shape(lambda: merged_look(looking, robot, at(jnp.zeros((), q.dtype)), None, None)[0])
    looks: Looks = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    end = march(look, _OnTheWay(looks, looks.distance), q.dtype, LOOKS, SHORTEST)
    return _arrival(end.share, end.seen.looks.distance, jnp.min(end.seen.allowed))


class _OnTheWay(NamedTuple):
    """What was seen last, and how near pairs (p,) may come."""

    looks: Looks
    allowed: jax.Array
