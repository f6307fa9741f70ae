"""What a motion is planned in: the two ends, the joint ranges, and what is looked at on the way."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.reach import largest_motion, seen_pairs
from jaxik.collision.sweep import Look, look
from jaxik.core.pytree import leaf, pytree, static
from jaxik.core.status import Status
from jaxik.kinematics.forward import forward
from jaxik.kinematics.geometry import geometry_of
from jaxik.kinematics.link_constants import Segments
from jaxik.kinematics.manifold import scalar_coordinates, scalar_places
from jaxik.kinematics.motion import Motion
from jaxik.kinematics.reduced import apply_couplings_clipped, coordinates, movable
from jaxik.kinematics.sampling import spread
from jaxik.kinematics.topology import dofs_of_entries
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.collision import CollisionLimit
from jaxik.limits.per_joint import on_rates
from jaxik.limits.velocity import VelocityLimit
from jaxik.numerics.kronecker import unit_samples
from jaxik.numerics.linalg import set_rows, static_gather
from jaxik.problem.problem import Problem, constants_of, effective_joint_limits, limits_of
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.formulation import Formulation
from jaxik.solvers.planning.options import PlanningOptions
from jaxik.solvers.planning.projection import keeps, manifold_of, stride_on

# How far beyond both ends a joint without limits is drawn [rad or m].
AROUND = 3.2
# By how much an end may be beyond a limit, off a coupling, and elsewhere with what does not move [rad or m].
TOLERANCE = 1e-5
# In ranges that are narrower than this, as the root of the sum of squares over joints [rad or m], lengths are smaller.
NARROW = 5.0


@pytree
class Setting:
    """Of one element.

    Attributes:
      robot: with the joint ranges in which configurations are drawn.
      constants: of the kinematics of its shapes.
      apart: the limits that keep shapes apart.
      first, last (nq,): both ends.
      moves (nq,): whether a motion changes an entry.
      unit (): of lengths of ways, 1, or less where ranges are narrow.
      shift (d,): uint32, where the sequence of samples sets out.
      status (): CONVERGED where the ends may be joined, as far as they say by themselves.
      manifold: the constraints that hold on the way, if any.
      couplings: whether the model's joint couplings hold; static.
    """

    robot: Robot = leaf()
    constants: Segments | None = leaf()
    apart: tuple[CollisionLimit, ...] = leaf()
    first: jax.Array = leaf(1)
    last: jax.Array = leaf(1)
    moves: jax.Array = leaf(1)
    unit: jax.Array = leaf(0)
    shift: jax.Array = leaf(1)
    status: jax.Array = leaf(0)
    options: PlanningOptions = leaf()
    manifold: Formulation | None = leaf()
    couplings: bool = static()

    def followed(self, q: jax.Array) -> jax.Array:
        """A configuration (nq,), its driven joints where couplings have them."""
        topology = self.robot.topology
        moving = coordinates(topology, range(topology.nv), hold_couplings=self.couplings)
        return apply_couplings_clipped(self.robot, moving, q)


def setting_of(problem: Problem, q0: jax.Array, q1: jax.Array, shift: jax.Array, options: PlanningOptions) -> Setting:
    """The setting of one element."""
    robot, apart, topology = effective_joint_limits(problem), collision_limits(problem), problem.robot.topology
    finite = jnp.all(jnp.isfinite(q0)) & jnp.all(jnp.isfinite(q1))
    q0 = jnp.where(jnp.isfinite(q0), q0, problem.robot.q_home)
    q1 = jnp.where(jnp.isfinite(q1), q1, q0)
    dofs, places = moving_dofs(problem), scalar_places(topology)
    moves = static_gather(dofs, dofs_of_entries(topology))
    robot, inside = _with_ranges(robot, *(static_gather(q, places) for q in (q0, q1)))
    joints = list(topology.scalar_joints)
    ranges = static_gather(robot.limit_upper, joints) - static_gather(robot.limit_lower, joints)
    width = jnp.sqrt(jnp.sum(jnp.where(static_gather(moves, places), ranges, 0) ** 2))
    setting = Setting(
        robot=robot,
        constants=constants_of(robot, apart) if apart else None,
        apart=apart,
        first=q0,
        last=jnp.where(moves, q1, q0),
        moves=moves,
        unit=jnp.minimum(1, width / NARROW),
        shift=shift,
        status=jnp.zeros((), jnp.int32),
        options=options,
        manifold=manifold_of(problem, dofs),
        couplings=problem.constraints is None,
    )
    may = inside & jnp.all(moves | (jnp.abs(q1 - q0) <= TOLERANCE)) & _on_couplings(setting)
    if setting.manifold is not None:
        may = may & keeps(setting.manifold, q0) & keeps(setting.manifold, q1)
    status = jnp.where(may, Status.CONVERGED, Status.INFEASIBLE)
    return dataclasses.replace(setting, status=jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32))


def _on_couplings(setting: Setting) -> jax.Array:
    """Whether both ends, and straight ways between any two configurations, meet the couplings that hold ()."""
    samples = [drawn(setting, jnp.asarray(i)) for i in range(2)]
    between = 0.3 * samples[0] + 0.7 * samples[1]  # of which a polynomial that is not linear is off
    given = jnp.stack([setting.first, setting.last, between])
    followed = jax.vmap(setting.followed)(given)
    return jnp.all(jnp.abs(followed - given) <= TOLERANCE)


def collision_limits(problem: Problem) -> tuple[CollisionLimit, ...]:
    return tuple(limit for limit in limits_of(problem) if isinstance(limit, CollisionLimit))


def _with_ranges(robot: Robot, *ends: jax.Array) -> tuple[Robot, jax.Array]:
    """The robot with ranges around both ends for joints without limits, and whether the ends (k,) are inside ()."""
    joints = list(robot.topology.scalar_joints)
    lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
    inside = [jnp.all((q >= lower - TOLERANCE) & (q <= upper + TOLERANCE)) for q in ends]
    lower = jnp.where(jnp.isfinite(lower), lower, jnp.minimum(*ends) - AROUND)
    upper = jnp.where(jnp.isfinite(upper), upper, jnp.maximum(*ends) + AROUND)
    limits = {
        "limit_lower": set_rows(robot.limit_lower, joints, lower),
        "limit_upper": set_rows(robot.limit_upper, joints, upper),
    }
    return dataclasses.replace(robot, **limits), inside[0] & inside[1]


class Rates(NamedTuple):
    """Bounds of the rates of a configuration's entries (nq,), and of their changes; infinite where there is none."""

    lower: jax.Array
    upper: jax.Array
    acceleration: jax.Array


def rates_of(problem: Problem) -> Rates:
    """The bounds that limits keep."""
    robot, topology = problem.robot, problem.robot.topology
    infinite = jnp.full(robot.nv, jnp.inf, robot.q_home.dtype)
    lower, upper, acceleration = -infinite, infinite, infinite
    for limit in limits_of(problem):
        if isinstance(limit, VelocityLimit):
            low, high = limit.bounds(robot, None, Motion(jnp.ones((), lower.dtype)))  # type: ignore[arg-type]
            lower, upper = jnp.maximum(lower, low), jnp.minimum(upper, high)
        elif isinstance(limit, AccelerationLimit):
            acceleration = jnp.minimum(acceleration, on_rates(robot, limit.max_acceleration, jnp.inf))
    dofs = [topology.joints[j].v_index for j in topology.scalar_joints]

    def of_entries(x: jax.Array, otherwise: float) -> jax.Array:
        free = jnp.full(robot.nq, otherwise, x.dtype)
        return set_rows(free, scalar_places(topology), static_gather(x, dofs))

    return Rates(of_entries(lower, -jnp.inf), of_entries(upper, jnp.inf), of_entries(acceleration, jnp.inf))


def moving_dofs(problem: Problem) -> jax.Array:
    """Which degrees of freedom (nv,) a motion changes.

    Those of hinges and slides that are not held, may move, and have some limit of speed or acceleration.
    """
    topology = problem.robot.topology
    rates, places = rates_of(problem), scalar_places(topology)
    may = (rates.upper > rates.lower) & (jnp.isfinite(rates.upper) | jnp.isfinite(rates.acceleration))
    dofs = [topology.joints[j].v_index for j in topology.scalar_joints]
    moving = set_rows(jnp.zeros(problem.robot.nv, bool), dofs, static_gather(may, places))
    return moving if problem.dof_mask is None else moving & movable(topology, problem.dof_mask)


def drawn(setting: Setting, index: jax.Array) -> jax.Array:
    """Sample `index` () of the configurations (nq,); what does not move is where both ends have it."""
    robot = setting.robot
    shares = unit_samples(setting.shift, index).astype(setting.first.dtype)
    q = setting.followed(spread(robot, shares, jnp.asarray(AROUND, shares.dtype)))
    return jnp.where(setting.moves, q, setting.first)


class Known(NamedTuple):
    """What is known of a configuration that was looked at.

    Attributes:
      looks: of each limit that keeps shapes apart.
      q (nq,): where the robot is, of motions with constraints; else None.
    """

    looks: tuple[Look, ...]
    q: jax.Array | None


class Seen(NamedTuple):
    """What is seen at a configuration.

    Attributes:
      known: of it.
      free (): whether limits and constraints are kept.
      way_is_free (): whether they are all the way from the look before.
    """

    known: Known
    free: jax.Array
    way_is_free: jax.Array


def seen_at(setting: Setting, q: jax.Array, change: jax.Array, aside: jax.Array, before: Known | None) -> Seen:
    """Look at a configuration (nq,).

    Args:
      change (nq,): of the configuration since the look before; 0 at the first.
      aside (nq,): how far the path that is meant may be from the straight way, joint by joint.
    """
    found, free, way_is_free = [], jnp.ones((), bool), jnp.ones((), bool)
    at = None
    if setting.manifold is not None:
        last = q if before is None or before.q is None else jnp.where(jnp.any(change != 0), before.q, q)
        gone = stride_on(setting.manifold, q, change, aside, last, setting.unit)
        q, change, aside, free, way_is_free = gone
        at = q
    if setting.constants is None:
        return Seen(Known((), at), free, way_is_free)
    robot = setting.robot
    kin = forward(setting.constants, q)
    change, aside = (scalar_coordinates(robot.topology, x) for x in (change, jnp.abs(aside)))
    for i, limit in enumerate(setting.apart):
        geometry, table = geometry_of(robot.name, robot.geometry), limit.table(robot)
        pairs = seen_pairs(geometry, table, kin)
        moved, _ = largest_motion(geometry, kin, pairs, aside)
        _, turned = largest_motion(geometry, kin, pairs, aside + jnp.abs(change))
        margin = limit.margin + jnp.exp(turned) * moved
        last = None if before is None else before.looks[i]
        here, stays = look(geometry, limit.world, table, kin, change, last, margin)
        found.append(here)
        # Shapes that were too near for what the path may be aside are excused by the look, and here they are not.
        stays = stays if last is None else stays & (last.distance >= margin)
        free, way_is_free = free & jnp.all(here.distance >= margin), way_is_free & jnp.all(stays)
    return Seen(Known(tuple(found), at), free, way_is_free)


def nothing_seen(setting: Setting) -> Any:
    """Zeros like what is known of a configuration."""
    none = jnp.zeros_like(setting.first)
    shapes = jax.eval_shape(lambda: seen_at(setting, setting.first, none, none, None).known)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
