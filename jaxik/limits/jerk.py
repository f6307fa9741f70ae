"""Keep the acceleration of joints from changing faster than it may."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, set_fields
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.kinematics.motion import Motion
from jaxik.limits.acceleration import displacement_before
from jaxik.limits.base import Bounds, Limit, times
from jaxik.limits.per_joint import by_joint, check_by_joint, on_rates
from jaxik.robot.robot import Robot

# Halvings of the range that jerk leaves to a displacement; a chord follows.
HALVINGS = 5


@pytree
class JerkLimit(Limit):
    """Keep the acceleration of joints from changing faster than it may, so that what follows can keep all limits.

    With x the displacement of this step, x' = dt previous_velocity, c = x - x' its change and c' = dt^2
    previous_acceleration that of the step before, `|c - c'| <= max_jerk dt^3`. A step also leaves a way to go on within
    this, the velocity and acceleration limits and the limits of hinges and slides: braking as hard as these allow,
    acceleration falling by the jerk until it is the hardest, stops a joint before its limit, and an acceleration that
    falls to zero stays below the largest speed. Both are exact for the discrete steps, and each is followed by a step
    that keeps them. Towards a limit a joint is slowed earlier, so that speed and acceleration reach zero together, and
    it rests there and does not bounce off (a seven-segment profile, Biagiotti and Melchiorri, "Trajectory Planning for
    Automatic Machines and Robots", 2008, 3.4).

    The `gain` of a `ConfigurationLimit` is not used on joints with a largest jerk. A ball's three rates have their
    jerk limited, but not its stop at its total angle. What cannot be kept together, as on a start that is too fast,
    or beside a `CollisionLimit` whose rows ask joints to stop sooner, breaks the limits on jerk and acceleration, and
    never those on joints.

    Args:
      max_jerk: [rad/s^3, m/s^3], infinite where there is no limit: a number for all hinges, slides and balls;
        (*batch, nv); or a dict from joint name to a number, (*batch, 1), or (*batch, 3) for balls, which limits no
        other joint.

    Raises:
      JaxikError: for a wrong type, or a jerk that is not above zero; in `Problem`, for joints that the robot does not
        have, a wrong shape, or a limit of a free joint.
    """

    velocity_level = True
    max_jerk: Any = leaf(1)

    def __post_init__(self) -> None:
        set_fields(self, max_jerk=by_joint("max_jerk", self.max_jerk, "above zero"))

    def check(self, robot: Robot) -> None:
        super().check(robot)
        check_by_joint("max_jerk", self.max_jerk, robot, "for a smooth motion add a LowAccelerationTask")

    def bounds(
        self, robot: Robot, kin: Kinematics, motion: Motion, speeds: Bounds | None = None, change: Any = jnp.inf
    ) -> Bounds:
        """Bounds (nv,) of the displacement.

        Args:
          robot: with the limits to stop at.
          speeds: bounds (nv,) of displacements that velocity limits set.
          change: how much the displacement may differ from that of the step before (nv,), by acceleration limits.
        """
        zero = jnp.zeros(robot.nv, kin.q.dtype)
        if speeds is None:
            speeds = zero - jnp.inf, zero + jnp.inf
        before = displacement_before(robot, motion)
        turn = zero if motion.previous_acceleration is None else motion.dt * motion.dt * motion.previous_acceleration
        jerk = times(motion.dt**3, on_rates(robot, self.max_jerk, jnp.inf))
        limited = jnp.isfinite(jerk)
        jerk, hardest = jnp.where(limited, jerk, 1), zero + change
        least, most = (before + jnp.clip(a, turn - jerk, turn + jerk) for a in (-hardest, hardest))

        lower, upper = tangent_bounds(robot)
        coordinate = scalar_coordinates(robot.topology, kin.q)
        # Both directions at once, the lower one mirrored.
        towards = _Towards(
            jnp.stack([coordinate - lower, upper - coordinate]),
            jnp.stack([-speeds[0], speeds[1]]),
            jnp.stack([-before, before]),
            jerk,
            hardest,
        )
        nearest, furthest = jnp.stack([-most, least]), jnp.stack([-least, most])
        must = _largest(_Towards.overshoot_of_braking, towards, nearest, furthest)
        should = jnp.minimum(must, _largest(_Towards.overshoot_of_landing, towards, nearest, furthest))
        # A joint outside its limits comes back no faster than it can stop speeding up, and stop at its other limit.
        outside, other = towards.distance < 0, -should[::-1]
        must, should = (jnp.where(outside, jnp.maximum(x, other), x) for x in (must, should))
        low, high = _compatible(-must[0], must[1], -should[0], should[1])
        return jnp.where(limited, low, -jnp.inf), jnp.where(limited, high, jnp.inf)


class _Towards(NamedTuple):
    """Limits in the direction of motion; a displacement x of this step is followed by others, c more than the last.

    Attributes:
      distance, speed (2, nv): to the joint's limit, and the largest displacement of a step.
      before (2, nv): the displacement of the step before.
      jerk, hardest (nv,): the largest change of c from step to step, and the largest c.
    """

    distance: jax.Array
    speed: jax.Array
    before: jax.Array
    jerk: jax.Array
    hardest: jax.Array

    def overshoot_of_braking(self, x: jax.Array) -> jax.Array:
        """By how much a displacement passes the distance, or the speed, when all that follows brakes hardest.

        Braking is c - J, c - 2 J, ..., -A, -A, ...: the least displacements that there can be, so that this decides
        whether a displacement is viable.
        """
        c, jerk = x - self.before, self.jerk
        root = (c - jerk / 2) ** 2 + 2 * jerk * x
        last = jnp.floor((c - jerk / 2 + jnp.sqrt(jnp.maximum(root, 0))) / jerk)
        ramp = jnp.ceil((c + self.hardest) / jerk) - 1
        i = jnp.where(root > 0, jnp.clip(last, 0, jnp.maximum(ramp, 0)), 0)
        travelled = i * x + c * i * (i + 1) / 2 - jerk * i * (i + 1) * (i + 2) / 6
        left = x + i * c - jerk * i * (i + 1) / 2
        held = jnp.isfinite(self.hardest) & (i >= ramp) & (left > 0)
        hardest, left = jnp.where(held, self.hardest, 1), jnp.where(held, left, 0)
        j = jnp.floor(left / hardest)
        travelled = jnp.maximum(travelled + j * left - hardest * j * (j + 1) / 2, 0)
        k = jnp.floor(jnp.maximum(c, 0) / jerk)
        fastest = x + k * c - jerk * k * (k + 1) / 2
        return jnp.maximum(x + travelled - self.distance, fastest - self.speed)

    def overshoot_of_landing(self, x: jax.Array) -> jax.Array:
        """The same when speed and acceleration reach zero together: c falls by J to -p, stays there, and rises by J.

        The three parts last n, h and m steps, m = p / J, which are no whole numbers here: sums over them are taken as
        the polynomials that they are, so that a step along the profile leaves the profile that it is on.
        """
        c, jerk = x - self.before, self.jerk
        square = jerk * x - jerk * c / 2 + c * c / 2
        bounces = (square <= 0) | ((c < 0) & (square < c * c))
        p = jnp.minimum(jnp.sqrt(jnp.where(bounces, 1, square)), self.hardest)
        n, m = jnp.maximum((c + p) / jerk, 0), p / jerk
        held = jnp.maximum((x + c * (n - 1) / 2) / p - (n + m) / 2, 0)
        falling = n * x + c * n * (n + 1) / 2 - jerk * n * (n + 1) * (n + 2) / 6
        y = x + n * c - jerk * n * (n + 1) / 2
        constant = held * y - p * held * (held + 1) / 2
        z = y - p * held
        rising = m * z - p * m * (m + 1) / 2 + jerk * m * (m + 1) * (m + 2) / 6
        # A step that stops in the next one has no profile: the last of the way, less than a jerk goes.
        stops = (jnp.abs(x + c) <= jerk) & (jnp.abs(x) <= jnp.minimum(jerk, self.hardest))
        travelled = jnp.where(bounces | stops, 0, falling + constant + rising)
        fastest = x + jnp.where(c > 0, c * c / (2 * jerk) - c / 2, 0)
        return jnp.maximum(x + travelled - self.distance, fastest - self.speed)


Overshoot = Callable[[_Towards, jax.Array], jax.Array]
Point = tuple[jax.Array, jax.Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _largest(overshoot: Overshoot, towards: _Towards, nearest: jax.Array, furthest: jax.Array) -> jax.Array:
    """The largest x in [nearest, furthest] without overshoot, which grows with x; `nearest` where there is none.

    The root of a chord across a 32nd of the range: as far below the largest as the overshoot bends in between.
    """
    (good, bad), (low, high) = _bracket(overshoot, towards, nearest, furthest)
    return _root(nearest, furthest, good, bad, low, high)


def _bracket(
    overshoot: Overshoot, towards: _Towards, nearest: jax.Array, furthest: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Shares of the range between which the root is, and the overshoot there."""

    def halved(_: Any, ends: tuple[Point, Point]) -> tuple[Point, Point]:
        good, bad = ends
        share = (good[0] + bad[0]) / 2
        middle = share, overshoot(towards, nearest + share * (furthest - nearest))
        return _chosen(middle[1] <= 0, middle, good), _chosen(middle[1] <= 0, bad, middle)

    # A loop, not its unrolled steps, which XLA fuses and computes several times over: 3 times as long in all.
    zero = jnp.zeros_like(nearest)
    ends = (zero, overshoot(towards, nearest)), (zero + 1, overshoot(towards, furthest))
    good, bad = jax.lax.fori_loop(0, HALVINGS, halved, ends)
    return (good[0], bad[0]), (good[1], bad[1])


def _root(
    nearest: jax.Array, furthest: jax.Array, good: jax.Array, bad: jax.Array, low: jax.Array, high: jax.Array
) -> jax.Array:
    """The root of the chord between shares of the range, with what overshoots there; an end where it has none.

    The overshoot is convex, so that there is none at the chord's root. To look whether there is asks rounding where the
    chord is straight, and then the answer jumps: of 256 pendulums 75 moved otherwise alone than in a batch.
    """
    rise, across = high - low, furthest - nearest
    chord = nearest + across * (good - (bad - good) * low / jnp.where(rise > 0, rise, 1))
    return jnp.where(high <= 0, furthest, jnp.where(low <= 0, chord, nearest))


@_largest.defjvp
def _largest_jvp(overshoot: Overshoot, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """The derivative of the chord's root: shares of the range stay as they are."""
    shares, _ = _bracket(overshoot, *primals)

    def found(towards: _Towards, nearest: jax.Array, furthest: jax.Array) -> jax.Array:
        low, high = (overshoot(towards, nearest + share * (furthest - nearest)) for share in shares)
        return _root(nearest, furthest, *shares, low, high)

    return jax.jvp(found, primals, tangents)


def _chosen(first: jax.Array, one: Point, other: Point) -> Point:
    return jnp.where(first, one[0], other[0]), jnp.where(first, one[1], other[1])


def _compatible(low: jax.Array, high: jax.Array, softer_low: jax.Array, softer_high: jax.Array) -> Bounds:
    """Bounds that stopping at a limit asks for; where these contradict each other, those that braking asks for."""
    middle = jnp.clip((softer_low + softer_high) / 2, jnp.minimum(low, high), jnp.maximum(low, high))
    clash = softer_low > softer_high
    return jnp.where(clash, middle, softer_low), jnp.where(clash, middle, softer_high)
