"""Where the attempts of a global search start: the user's own configurations first, then an even spread."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree
from jaxik.kinematics.reduced import movable
from jaxik.kinematics.sampling import spread
from jaxik.kinematics.topology import JointType, Topology, dofs_of_entries
from jaxik.numerics.kronecker import unit_samples
from jaxik.numerics.linalg import static_gather
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import Formulation, project_start

# The first starts are drawn from so much of each joint's range, around its middle: near its ends joints get stuck. From
# anywhere 53 % of a Panda's attempts reach their target, in 27 steps for each that does, from the middle half 80 %, in
# 14; of a dual arm's 31 %, in 78, and 59 %, in 35. With 0.35 and 0.7 searches take as many steps within 5 %.
INNER = 0.5
# So many starts. Those after them are from all of it: the few targets that are left need that, and a batch waits for
# them. Processor time per goal in a cage with 4, every other one and 32: of a Panda 136, 174 and 182 us, with none 132;
# of a dual arm 484, 487 and 505. Elsewhere with 2, 4, 8 and 128 a humanoid takes 31.5, 28.8, 27.7 and 27.1 steps.
INNER_STARTS = 4


@pytree
class StartSampler:
    """What a search varies from element to element, and candidate to candidate.

    Attributes:
      own (k, nq): the user's starts, or the robot's first.
      reference (nq,): hinges that make several turns start within half a turn of it; what has no limits, around it.
      shift (d,): uint32, the place in the unit cube from which the sequence sets out, in units of 2^-32.
      first, stride, count (): int32; of all starts of the element it takes `count`, every `stride`-th from `first` on.
      unlimited_range (): how far from the reference slides and free joints without limits start [m].
      steps (): at most so many for each attempt.
    """

    own: jax.Array = leaf(2)
    reference: jax.Array = leaf(1)
    shift: jax.Array = leaf(1)
    first: jax.Array = leaf(0)
    stride: jax.Array = leaf(0)
    count: jax.Array = leaf(0)
    unlimited_range: jax.Array = leaf(0)
    steps: jax.Array = leaf(0)


class StartSet(NamedTuple):
    """The starts of one element.

    Attributes:
      window: the robot with the limits between which they are drawn.
      inward (joints,): by how much the first of these are farther from each limit.
    """

    spread: StartSampler
    window: Robot
    inward: jax.Array


def starts_of(prepared: Formulation, spread: StartSampler) -> StartSet:
    """The starts of an element, with the limits that hold in its problem."""
    robot = prepared.problem.robot
    count = len(robot.topology.joints)
    reference = jnp.where(jnp.isfinite(spread.reference), spread.reference, robot.q_home)
    spread = dataclasses.replace(spread, reference=reference)
    limits = prepared.robot.limit_lower[:count], prepared.robot.limit_upper[:count]
    lower, upper = _near(robot.topology, spread.reference, *limits, spread.unlimited_range)
    inward = _inward(robot.topology, spread, *limits)
    return StartSet(spread, dataclasses.replace(robot, limit_lower=lower, limit_upper=upper), inward)


def _inward(topology: Topology, spread: StartSampler, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """How far from their limits (joints,) the first starts are: of joints that get stuck there, and for one solution.

    A hinge that turns all the way round has no ends, and several solutions are looked for everywhere.
    """
    hinge = jnp.asarray([joint.type is JointType.HINGE for joint in topology.joints], bool)
    ends = jnp.isfinite(lower) & jnp.isfinite(upper) & ~(hinge & (upper - lower >= 2 * jnp.pi))
    return jnp.where(ends & (spread.stride == 1), (1 - INNER) / 2 * (upper - lower), 0)


def _near(
    topology: Topology, reference: jax.Array, lower: jax.Array, upper: jax.Array, unlimited_range: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Limits (njoint,) around a reference: a hinge reaches every pose within one turn, however many it makes."""
    hinge = jnp.asarray([joint.type is JointType.HINGE for joint in topology.joints], bool)
    slide = jnp.asarray([joint.type is JointType.SLIDE for joint in topology.joints], bool)
    middle = static_gather(reference, [joint.q_index for joint in topology.joints])
    reach = jnp.where(hinge, jnp.pi, unlimited_range).astype(lower.dtype)
    low = jnp.maximum(lower, jnp.minimum(middle - reach, upper - 2 * reach))
    high = jnp.minimum(upper, jnp.maximum(middle + reach, lower + 2 * reach))
    drawn_in = hinge | (slide & ~(jnp.isfinite(lower) & jnp.isfinite(upper)))
    return jnp.where(drawn_in, low, lower), jnp.where(drawn_in, high, upper)


def start_of(prepared: Formulation, starts: StartSet, base: jax.Array, turn: jax.Array) -> jax.Array:
    """The configuration (nq,) at which the attempt `turn` (), from 0 on, starts.

    Args:
      base (nq,): where degrees of freedom stand that no task depends on, or that are held.
    """
    given = starts.spread
    index, count = given.first + given.stride * turn, given.own.shape[0]
    own = given.own[jnp.minimum(index, count - 1)]
    drawn = spread(_window(starts, index - count), unit_samples(given.shift, index - count), given.unlimited_range)
    for j in prepared.problem.robot.topology.free_joints:
        place = prepared.problem.robot.topology.joints[j].q_index
        drawn = drawn.at[place : place + 3].add(given.reference[place : place + 3])
    base = base[: own.shape[0]]
    own = jnp.where(jnp.isfinite(own), own, base)
    return project_start(prepared, jnp.where(_moving(prepared), jnp.where(index < count, own, drawn), base))


def _window(starts: StartSet, number: jax.Array) -> Robot:
    """The robot with the limits between which the start `number` () of those that are drawn is."""
    inward = jnp.where(number < INNER_STARTS, starts.inward, 0)
    lower, upper = starts.window.limit_lower + inward, starts.window.limit_upper - inward
    return dataclasses.replace(starts.window, limit_lower=lower, limit_upper=upper)


def _moving(prepared: Formulation) -> jax.Array:
    """Which entries of a configuration (nq,) a search chooses."""
    robot = prepared.problem.robot
    moving = jnp.asarray([dof in prepared.moving.own for dof in range(robot.nv)], bool)
    if prepared.problem.dof_mask is not None:
        moving = moving & movable(robot.topology, prepared.problem.dof_mask)
    return static_gather(moving, dofs_of_entries(robot.topology))
