"""Reduced coordinates: the degrees of freedom that a solver moves, and those that follow by joint couplings.

A degree of freedom that no task depends on has no coordinate: it stays where it is, and costs nothing. Nor has one
that a joint coupling drives: it follows its leader exactly.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from jaxik.core.errors import JaxikError
from jaxik.kinematics.manifold import quaternion_places
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import Coupling, Topology
from jaxik.numerics.linalg import PAD, set_rows, static_gather

RobotLike = TypeVar("RobotLike", bound=RobotModel)

# The limit of a leader without one is searched this far from home [rad or m].
UNLIMITED_REACH = 1e3
# Samples from home to a leader's limit.
WALK_STEPS = 64


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """The independent degrees of freedom, and the couplings that follow them.

    Attributes:
      own: independent degrees of freedom, ascending; coordinate i is that of `own[i]`. Where nothing moves, one that is
        held, as the maximum of an empty array is an error.
      couplings: indices of `topology.couplings`, that of a leader before those of its followers.
      is_empty: no degree of freedom moves.
    """

    topology: Topology
    own: tuple[int, ...]
    couplings: tuple[int, ...]
    is_empty: bool = False

    @functools.cached_property
    def balls(self) -> tuple[int, ...]:
        """The ball joints that have coordinates."""
        return tuple(j for j in self.topology.ball_joints if self.topology.joints[j].v_index in self.own)

    @functools.cached_property
    def chain_length(self) -> int:
        """Length of the longest chain of couplings."""
        depth: dict[int, int] = {}
        for coupling in self._couplings:
            depth[coupling.follower] = 1 + (0 if coupling.leader is None else depth.get(coupling.leader, 0))
        return max(depth.values(), default=0)

    @functools.cached_property
    def dependents(self) -> tuple[tuple[int, ...], ...]:
        """For each coordinate, the couplings that it drives, as indices into `couplings`."""
        roots = _roots(self._couplings)
        dofs = [self._dof(roots[c.follower]) for c in self._couplings]
        return tuple(tuple(i for i, dof in enumerate(dofs) if dof == own) for own in self.own)

    @functools.cached_property
    def parent_coupling(self) -> tuple[int, ...]:
        """For each coupling, the index of the one that drives its leader, or PAD."""
        place = {c.follower: i for i, c in enumerate(self._couplings)}
        return tuple(PAD if c.leader is None else place.get(c.leader, PAD) for c in self._couplings)

    @functools.cached_property
    def follower_joints(self) -> tuple[int, ...]:
        return tuple(c.follower for c in self._couplings)

    @functools.cached_property
    def follower_dofs(self) -> tuple[int, ...]:
        return tuple(self._dof(c.follower) for c in self._couplings)

    @functools.cached_property
    def follower_q_indices(self) -> tuple[int, ...]:
        """Index of each follower in a configuration."""
        return tuple(self.topology.joints[c.follower].q_index for c in self._couplings)

    @functools.cached_property
    def leader_q_indices(self) -> tuple[int, ...]:
        """Index of each leader in a configuration, or PAD."""
        joints = self.topology.joints
        return tuple(PAD if c.leader is None else joints[c.leader].q_index for c in self._couplings)

    @property
    def _couplings(self) -> list[Coupling]:
        return [self.topology.couplings[i] for i in self.couplings]

    def _dof(self, joint: int | None) -> int:
        return PAD if joint is None else self.topology.joints[joint].v_index


def coordinates(topology: Topology, used: Collection[int], *, hold_couplings: bool) -> Coordinates:
    """Choose the independent degrees of freedom that move those in use.

    Args:
      used: degrees of freedom that a task depends on.
      hold_couplings: whether the model's joint couplings hold.

    Raises:
      JaxikError: if couplings drive a joint twice, or in a circle.
    """
    order = _in_order(topology) if hold_couplings else ()
    couplings = [topology.couplings[i] for i in order]
    roots = _roots(couplings)
    joints = topology.joints
    own: set[int] = set()
    for joint, description in enumerate(joints):
        if not set(used).isdisjoint(description.v_indices):
            root = roots.get(joint, joint)
            own |= set() if root is None else set(joints[root].v_indices)
    return Coordinates(topology, tuple(sorted(own)) or (0,), order, is_empty=not own)


def _in_order(topology: Topology) -> tuple[int, ...]:
    """Couplings in topological order, leaders before their followers."""
    drives: dict[int, int] = {}
    for i, coupling in enumerate(topology.couplings):
        if coupling.follower in drives:
            raise JaxikError(
                f"joint {topology.joints[coupling.follower].name!r} of {topology.name} is driven by two couplings, "
                "which cannot both hold: remove one from the model, or pass constraints={} and hold them by tasks"
            )
        drives[coupling.follower] = i
    order: list[int] = []

    def visit(i: int, path: tuple[int, ...]) -> None:
        if i in path:
            names = ", ".join(topology.joints[topology.couplings[p].follower].name for p in path)
            raise JaxikError(
                f"couplings of {topology.name} drive each other in a circle ({names}): remove one from the model, or "
                "pass constraints={} and hold them by tasks"
            )
        leader = topology.couplings[i].leader
        if leader in drives:
            visit(drives[leader], (*path, i))
        if i not in order:
            order.append(i)

    for i in range(len(topology.couplings)):
        visit(i, ())
    return tuple(order)


def _roots(couplings: list[Coupling]) -> dict[int, int | None]:
    """From follower to the joint at the head of its chain; None where that is a constant."""
    roots: dict[int, int | None] = {}
    for coupling in couplings:
        roots[coupling.follower] = None if coupling.leader is None else roots.get(coupling.leader, coupling.leader)
    return roots


def _leaders(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """Displacement of each leader from its reference (ncoupling,); zero for couplings without a leader."""
    places = moving.leader_q_indices
    return static_gather(q, places) - static_gather(robot.qpos0, places)


def _coefficients(robot: RobotModel, moving: Coordinates) -> jax.Array:
    """Polynomials of the couplings, constant first (5, ncoupling)."""
    return robot.coupling_coefficients[jnp.asarray(moving.couplings, int)].T


def slopes(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """Derivatives (ncoupling,) of the followers by the coordinates at the heads of their chains."""
    x, c = _leaders(robot, moving, q), _coefficients(robot, moving)
    own = c[1] + x * (2 * c[2] + x * (3 * c[3] + x * 4 * c[4]))
    heads = jnp.asarray([lead == PAD for lead in moving.parent_coupling])
    total = own
    for _ in range(moving.chain_length - 1):
        total = own * jnp.where(heads, 1.0, static_gather(total, moving.parent_coupling))
    return total


def second_slopes(robot: RobotModel, moving: Coordinates, q: jax.Array, slope: jax.Array) -> jax.Array:
    """Second derivatives (ncoupling,) of the followers by the coordinates at the heads of their chains."""
    leaders = moving.leader_q_indices
    heads = tuple(i for i, parent in enumerate(moving.parent_coupling) if parent == PAD and leaders[i] != PAD)
    ones = jnp.ones(len(heads), q.dtype)
    along = set_rows(jnp.zeros_like(q), tuple(leaders[i] for i in heads), ones)
    along = set_rows(along, moving.follower_q_indices, slope)
    return jax.jvp(lambda q: slopes(robot, moving, q), (q,), (along,))[1]


def apply_couplings_clipped(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """Set every follower of a configuration (nq,) from its leader, clipped to its limits.

    Clipping changes rounding alone where the leaders keep the limits of `tighten_leader_limits`.
    """
    if not moving.couplings:
        return q
    joints = moving.follower_joints
    lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
    for _ in range(moving.chain_length):
        q = set_rows(q, moving.follower_q_indices, jnp.clip(_followers(robot, moving, q), lower, upper))
    return q


def follow(robot: RobotModel, moving: Coordinates, q: jax.Array, given: tuple[int, ...]) -> jax.Array:
    """Set the followers that some joints drive, and are not among these, clipped to their limits."""
    moved = set(given)
    for i, coupling in enumerate(moving.topology.couplings[j] for j in moving.couplings):
        if coupling.leader in moved and coupling.follower not in given:
            j = coupling.follower
            position = jnp.clip(_followers(robot, moving, q)[i], robot.limit_lower[j], robot.limit_upper[j])
            q = set_rows(q, (moving.follower_q_indices[i],), position[None])
            moved.add(j)
    return q


def apply_couplings(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """Set every follower of a configuration (nq,) from its leader, not clipped: for derivatives."""
    for _ in range(moving.chain_length):
        q = set_rows(q, moving.follower_q_indices, _followers(robot, moving, q))
    return q


def _followers(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """Positions of the followers (ncoupling,), not clipped."""
    x, c = _leaders(robot, moving, q), _coefficients(robot, moving)
    polynomial = c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])))
    return static_gather(robot.qpos0, moving.follower_q_indices) + polynomial


def tighten_leader_limits(robot: RobotLike, moving: Coordinates) -> RobotLike:
    """The robot with the limits of leaders tightened so that no follower leaves its own.

    The new limits are those of the interval around `q_home` in which all followers keep theirs. If a follower is
    outside at home, it is the interval around the nearest value, of those sampled up to the limits, where none is; if
    there is no such value, the leader is held at home.
    """
    heads = [i for i, places in enumerate(moving.dependents) if places]
    if not heads:
        return robot
    joints = moving.topology.joints
    leaders = [next(j for j, joint in enumerate(joints) if joint.v_index == moving.own[i]) for i in heads]
    home = static_gather(robot.q_home, [joints[j].q_index for j in leaders])
    followers = moving.follower_joints
    # At most this far where there is no limit; beyond, float32 no longer tells a turn from the next.
    reach = jnp.asarray(UNLIMITED_REACH, home.dtype)
    fractions = jnp.arange(WALK_STEPS + 1, dtype=home.dtype) / WALK_STEPS

    def allowed(value: jax.Array) -> jax.Array:
        """Which leaders (n,) keep all their followers inside their limits at a value (n,)."""
        positions = _followers_with(robot, moving, leaders, value)
        inside = (positions >= static_gather(robot.limit_lower, followers)) & (
            positions <= static_gather(robot.limit_upper, followers)
        )
        return jnp.stack([jnp.all(jnp.stack([inside[place] for place in moving.dependents[i]])) for i in heads])

    ends = [static_gather(robot.limit_lower, leaders), static_gather(robot.limit_upper, leaders)]
    ends = [jnp.where(jnp.isfinite(end), end, home + out) for end, out in zip(ends, (-reach, reach), strict=True)]
    samples = jnp.concatenate([home + fractions[:, None] * (end - home) for end in ends])
    distance = jnp.where(jax.vmap(allowed)(samples), jnp.abs(samples - home), jnp.inf)
    nearest = jnp.min(distance, axis=0)
    center = jnp.min(jnp.where(distance == nearest, samples, jnp.inf), axis=0)
    home = jax.lax.stop_gradient(jnp.where((nearest > 0) & jnp.isfinite(nearest), center, home))
    bounds = []
    for limit, end in zip((robot.limit_lower, robot.limit_upper), ends, strict=True):
        edge, whole = _edge(allowed, home, end, fractions)
        edge = _differentiable_edge(robot, moving, heads, leaders, edge)
        bounds.append(jnp.where(whole, static_gather(limit, leaders), edge))
    return dataclasses.replace(
        robot,
        limit_lower=set_rows(robot.limit_lower, tuple(leaders), bounds[0]),
        limit_upper=set_rows(robot.limit_upper, tuple(leaders), bounds[1]),
    )


def _edge(
    allowed: Callable[[jax.Array], jax.Array], home: jax.Array, end: jax.Array, fractions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The last allowed value (n,) on the way from home to an end (n,), and whether all of the way is allowed (n,).

    First a walk outward, as a polynomial may leave the limits and come back; then bisection.
    """

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        inner, outer = ends
        middle = (inner + outer) / 2
        good = allowed(middle)
        return jnp.where(good, middle, inner), jnp.where(good, outer, middle)

    stops = home + fractions[1:, None] * (end - home)
    good = jnp.cumprod(jax.vmap(allowed)(stops), axis=0)
    steps = jnp.sum(good, axis=0)
    whole = steps == WALK_STEPS
    inner, outer = (home + fractions[jnp.minimum(steps + k, WALK_STEPS)] * (end - home) for k in (0, 1))
    between = jax.lax.stop_gradient((inner, outer))
    edge, _ = jax.lax.fori_loop(0, 4 * jnp.finfo(home.dtype).nmant, halve, between)
    return jax.lax.stop_gradient(edge), whole


def _followers_with(robot: RobotModel, moving: Coordinates, leaders: Sequence[int], value: jax.Array) -> jax.Array:
    """Positions of all followers (ncoupling,) with the leaders at `value` (n,), and other joints at home."""
    q = set_rows(robot.q_home, tuple(robot.topology.joints[j].q_index for j in leaders), value)
    positions = _followers(robot, moving, q)
    for _ in range(moving.chain_length - 1):
        q = set_rows(q, moving.follower_q_indices, positions)
        positions = _followers(robot, moving, q)
    return positions


def _differentiable_edge(
    robot: RobotModel, moving: Coordinates, heads: Sequence[int], leaders: Sequence[int], edge: jax.Array
) -> jax.Array:
    """The values of leaders (n,) where a follower meets its limit, with derivatives by the robot.

    `edge` is the value from bisection, which has no derivative. Two Newton steps from it, towards the limit that is
    nearest there, leave the value as it is, and have the right first and second derivative.
    """
    followers = moving.follower_joints
    lower, upper = static_gather(robot.limit_lower, followers), static_gather(robot.limit_upper, followers)
    positions = _followers_with(robot, moving, leaders, edge)
    below = positions - lower < upper - positions
    gap = jax.lax.stop_gradient(jnp.minimum(jnp.abs(positions - lower), jnp.abs(upper - positions)))
    nearest = [jnp.asarray(moving.dependents[i])[jnp.argmin(gap[jnp.asarray(moving.dependents[i])])] for i in heads]

    def off(value: jax.Array) -> jax.Array:
        positions = _followers_with(robot, moving, leaders, value)
        return jnp.stack([jnp.where(below, positions - lower, positions - upper)[i] for i in nearest])

    for _ in range(2):
        # The Jacobian is diagonal: each follower moves with its own leader alone.
        error, slope = jax.jvp(off, (edge,), (jnp.ones_like(edge),))
        error = error - jax.lax.stop_gradient(error)
        edge = edge - jnp.where(slope != 0, error / jnp.where(slope != 0, slope, 1), 0)
    return edge


def movable(topology: Topology, dof_mask: jax.Array) -> jax.Array:
    """The mask (*batch, nv) of degrees of freedom that move, given the problem's `dof_mask`."""
    for _, rate in quaternion_places(topology):
        # The three rotation rates of a ball move together or not at all: one alone is not the rate of an angle.
        turn = jnp.all(dof_mask[..., rate : rate + 3], axis=-1, keepdims=True)
        dof_mask = jnp.concatenate([dof_mask[..., :rate], turn, turn, turn, dof_mask[..., rate + 3 :]], axis=-1)
    return dof_mask
