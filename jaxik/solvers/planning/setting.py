"""What a motion is planned in: the two ends, the joint ranges, and what is looked at on the way."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.collision.reach import largest_motion, seen_pairs
from jaxik.collision.sweep import Look, look
from jaxik.core.status import Status
from jaxik.kinematics.forward import forward
from jaxik.kinematics.geometry import geometry_of
from jaxik.kinematics.link_constants import Segments
from jaxik.kinematics.reduced import apply_couplings_clipped, movable
from jaxik.kinematics.sampling import coupled_coordinates, spread
from jaxik.kinematics.topology import Topology, dofs_of_entries
from jaxik.limits.collision import CollisionLimit
from jaxik.numerics.kronecker import unit_samples
from jaxik.numerics.linalg import set_rows, static_gather
from jaxik.problem.problem import Problem, constants_of, effective_joint_limits, limits_of
from jaxik.robot.robot import Robot
from jaxik.solvers.planning.options import PlanningOptions

# How far beyond both ends a joint without limits is drawn [rad or m].
AROUND = 3.2
# Of a joint that does not move, and beyond a limit: what both ends may differ by [rad or m].
ROUNDING = 1e-5


class Setting(NamedTuple):
    """Of one element.

    Attributes:
      robot: with the joint ranges in which configurations are drawn.
      constants: of the kinematics of its shapes.
      apart: the limits that keep shapes apart.
      first, last (nq,): both ends.
      moves (nq,): whether a motion changes an entry.
      shift (d,): uint32, where the sequence of samples sets out.
      status (): CONVERGED where the ends may be joined, as far as they say by themselves.
    """

    robot: Robot
    constants: Segments | None
    apart: tuple[CollisionLimit, ...]
    first: jax.Array
    last: jax.Array
    moves: jax.Array
    shift: jax.Array
    status: jax.Array
    options: PlanningOptions


def setting_of(problem: Problem, q0: jax.Array, q1: jax.Array, shift: jax.Array, options: PlanningOptions) -> Setting:
    """The setting of one element."""
    robot, apart = effective_joint_limits(problem), collision_limits(problem)
    constants = constants_of(robot, apart) if apart else None
    moves = _moving(problem)
    finite = jnp.all(jnp.isfinite(q0)) & jnp.all(jnp.isfinite(q1))
    q0 = jnp.where(jnp.isfinite(q0), q0, problem.robot.q_home)
    q1 = jnp.where(jnp.isfinite(q1), q1, q0)
    stays = jnp.all(moves | (jnp.abs(q1 - q0) <= ROUNDING))
    places, joints = scalar_places(robot.topology), list(robot.topology.scalar_joints)
    lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
    ends = [static_gather(q, places) for q in (q0, q1)]
    inside = [jnp.all((q >= lower - ROUNDING) & (q <= upper + ROUNDING)) for q in ends]
    status = jnp.where(stays & inside[0] & inside[1], Status.CONVERGED, Status.INFEASIBLE)
    status = jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)
    low, high = jnp.minimum(*ends) - AROUND, jnp.maximum(*ends) + AROUND
    robot = _with_ranges(robot, jnp.maximum(lower, low), jnp.minimum(upper, high))
    return Setting(robot, constants, apart, q0, jnp.where(moves, q1, q0), moves, shift, status, options)


def collision_limits(problem: Problem) -> tuple[CollisionLimit, ...]:
    return tuple(limit for limit in limits_of(problem) if isinstance(limit, CollisionLimit))


def scalar_places(topology: Topology) -> list[int]:
    """Where hinges and slides are in a configuration."""
    return [topology.joints[j].q_index for j in topology.scalar_joints]


def _with_ranges(robot: Robot, lower: jax.Array, upper: jax.Array) -> Robot:
    joints = list(robot.topology.scalar_joints)
    return dataclasses.replace(
        robot,
        limit_lower=set_rows(robot.limit_lower, joints, lower),
        limit_upper=set_rows(robot.limit_upper, joints, upper),
    )


def _moving(problem: Problem) -> jax.Array:
    """Which entries of a configuration (nq,) a motion changes: those of hinges and slides that are not held."""
    topology = problem.robot.topology
    scalar = {topology.joints[j].v_index for j in topology.scalar_joints}
    moving = jnp.asarray([dof in scalar for dof in range(problem.robot.nv)], bool)
    if problem.dof_mask is not None:
        moving = moving & movable(topology, problem.dof_mask)
    return static_gather(moving, dofs_of_entries(topology))


def drawn(setting: Setting, index: jax.Array) -> jax.Array:
    """Sample `index` () of the configurations (nq,); what does not move is where both ends have it."""
    robot = setting.robot
    shares = unit_samples(setting.shift, index).astype(setting.first.dtype)
    q = spread(robot, shares, jnp.asarray(AROUND, shares.dtype))
    q = apply_couplings_clipped(robot, coupled_coordinates(robot.topology), q)
    return jnp.where(setting.moves, q, setting.first)


def displaced(topology: Topology, change: jax.Array) -> jax.Array:
    """The displacement (nv,) of a change of hinges and slides in a configuration (nq,)."""
    dofs = [topology.joints[j].v_index for j in topology.scalar_joints]
    return set_rows(jnp.zeros(topology.nv, change.dtype), dofs, static_gather(change, scalar_places(topology)))


class Seen(NamedTuple):
    """What is seen at a configuration.

    Attributes:
      looks: of each limit that keeps shapes apart.
      free (): whether all of them are kept.
      way_is_free (): whether they are all the way from the look before.
    """

    looks: tuple[Look, ...]
    free: jax.Array
    way_is_free: jax.Array


def seen_at(
    setting: Setting, q: jax.Array, change: jax.Array, aside: jax.Array, before: tuple[Look, ...] | None
) -> Seen:
    """Look at a configuration (nq,).

    Args:
      change (nq,): of the configuration since the look before.
      aside (nq,): how far the path that is meant may be from the straight way, joint by joint.
    """
    found, free, way_is_free = [], jnp.ones((), bool), jnp.ones((), bool)
    if setting.constants is None:
        return Seen((), free, way_is_free)
    robot = setting.robot
    kin = forward(setting.constants, apply_couplings_clipped(robot, coupled_coordinates(robot.topology), q))
    change, aside = displaced(robot.topology, change), jnp.abs(displaced(robot.topology, aside))
    for i, limit in enumerate(setting.apart):
        geometry, table = geometry_of(robot.name, robot.geometry), limit.table(robot)
        moved, turned = largest_motion(geometry, kin, seen_pairs(geometry, table, kin), aside)
        margin = limit.margin + jnp.exp(turned) * moved
        last = None if before is None else before[i]
        here, stays = look(geometry, limit.world, table, kin, change, last, margin)
        found.append(here)
        free, way_is_free = free & jnp.all(here.distance >= margin), way_is_free & jnp.all(stays)
    return Seen(tuple(found), free, way_is_free)


def nothing_seen(setting: Setting) -> Any:
    """Zeros like what is seen."""
    none = jnp.zeros_like(setting.first)
    shapes = jax.eval_shape(lambda: seen_at(setting, setting.first, none, none, None).looks)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
