"""Which degrees of freedom a solver moves: those that matter, each with a coordinate of its own or behind another's.

A degree of freedom that no task depends on has no coordinate: it stays where it is, and costs nothing. Nor has one
that a joint coupling drives: it follows its leader, exactly.
"""

import dataclasses
import functools
from collections.abc import Collection, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from jaxik.core.errors import JaxikError
from jaxik.kinematics.manifold import quaternion_places
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import Coupling, Topology
from jaxik.numerics.linalg import PAD, set_rows, static_gather

RobotLike = TypeVar("RobotLike", bound=RobotModel)

# How far from home the limit of a leader without one is looked for [rad or m].
UNLIMITED_REACH = 1e3
# In so many steps it is walked from home to a leader's limit.
WALK = 64


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """The degrees of freedom with a coordinate of their own, and the couplings behind them.

    Attributes:
      own: degrees of freedom, ascending; coordinate i is that of `own[i]`. Where nothing moves, one that is held, as
        arrays without entries have no largest one.
      couplings: indices of `topology.couplings`, a leader's own coupling before those that it leads.
      still: nothing moves.
    """

    topology: Topology
    own: tuple[int, ...]
    couplings: tuple[int, ...]
    still: bool = False

    @functools.cached_property
    def balls(self) -> tuple[int, ...]:
        """The ball joints that have coordinates."""
        return tuple(j for j in self.topology.ball_joints if self.topology.joints[j].v_index in self.own)

    @functools.cached_property
    def rounds(self) -> int:
        """Length of the longest chain of couplings."""
        depth: dict[int, int] = {}
        for coupling in self._couplings:
            depth[coupling.follower] = 1 + (0 if coupling.leader is None else depth.get(coupling.leader, 0))
        return max(depth.values(), default=0)

    @functools.cached_property
    def behind(self) -> tuple[tuple[int, ...], ...]:
        """For each coordinate, which of the couplings move with it, as places in `couplings`."""
        roots = _roots(self._couplings)
        dofs = [self._dof(roots[c.follower]) for c in self._couplings]
        return tuple(tuple(i for i, dof in enumerate(dofs) if dof == own) for own in self.own)

    @functools.cached_property
    def leads(self) -> tuple[int, ...]:
        """For each coupling, the place of the one that drives its leader, or NOTHING."""
        place = {c.follower: i for i, c in enumerate(self._couplings)}
        return tuple(PAD if c.leader is None else place.get(c.leader, PAD) for c in self._couplings)

    @functools.cached_property
    def follower_joints(self) -> tuple[int, ...]:
        return tuple(c.follower for c in self._couplings)

    @functools.cached_property
    def follower_dofs(self) -> tuple[int, ...]:
        return tuple(self._dof(c.follower) for c in self._couplings)

    @functools.cached_property
    def follower_places(self) -> tuple[int, ...]:
        """Where each follower stands in a configuration."""
        return tuple(self.topology.joints[c.follower].q_index for c in self._couplings)

    @functools.cached_property
    def leader_places(self) -> tuple[int, ...]:
        """Where each leader stands in a configuration, or NOTHING."""
        joints = self.topology.joints
        return tuple(PAD if c.leader is None else joints[c.leader].q_index for c in self._couplings)

    @property
    def _couplings(self) -> list[Coupling]:
        return [self.topology.couplings[i] for i in self.couplings]

    def _dof(self, joint: int | None) -> int:
        return PAD if joint is None else self.topology.joints[joint].v_index


def coordinates(topology: Topology, used: Collection[int], *, hold_couplings: bool) -> Coordinates:
    """Give coordinates to what moves the degrees of freedom that are used.

    Args:
      used: degrees of freedom that some task depends on.
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
    return Coordinates(topology, tuple(sorted(own)) or (0,), order, still=not own)


def _in_order(topology: Topology) -> tuple[int, ...]:
    """The couplings, leaders before those that follow them."""
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
    """For each follower the joint at the head of its chain; None where that is held at a constant."""
    roots: dict[int, int | None] = {}
    for coupling in couplings:
        roots[coupling.follower] = None if coupling.leader is None else roots.get(coupling.leader, coupling.leader)
    return roots


def _leaders(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """How far each leader is from its reference; zero for couplings without one."""
    places = moving.leader_places
    return static_gather(q, places) - static_gather(robot.qpos0, places)


def _coefficients(robot: RobotModel, moving: Coordinates) -> jax.Array:
    """Polynomials of the couplings, constant first (5, ncoupling)."""
    return robot.coupling_coefficients[jnp.asarray(moving.couplings, int)].T


def slopes(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """How far each follower moves for a unit step of the coordinate at the head of its chain (ncoupling,)."""
    x, c = _leaders(robot, moving, q), _coefficients(robot, moving)
    own = c[1] + x * (2 * c[2] + x * (3 * c[3] + x * 4 * c[4]))
    heads = jnp.asarray([lead == PAD for lead in moving.leads])
    total = own
    for _ in range(moving.rounds - 1):
        total = own * jnp.where(heads, 1.0, static_gather(total, moving.leads))
    return total


def second_slopes(robot: RobotModel, moving: Coordinates, q: jax.Array, slope: jax.Array) -> jax.Array:
    """How the slopes (ncoupling,) change for a unit step of the coordinate at the head of each chain."""
    heads = tuple(i for i, lead in enumerate(moving.leads) if lead == PAD and moving.leader_places[i] != PAD)
    ones = jnp.ones(len(heads), q.dtype)
    along = set_rows(jnp.zeros_like(q), tuple(moving.leader_places[i] for i in heads), ones)
    along = set_rows(along, moving.follower_places, slope)
    return jax.jvp(lambda q: slopes(robot, moving, q), (q,), (along,))[1]


def apply_couplings_clipped(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """The configuration (nq,) with every follower where its leader has it, and inside its limits.

    Where the leaders keep the limits of `tighten_leader_limits`, the followers are inside as they are.
    """
    if not moving.couplings:
        return q
    joints = moving.follower_joints
    lower, upper = static_gather(robot.limit_lower, joints), static_gather(robot.limit_upper, joints)
    for _ in range(moving.rounds):
        q = set_rows(q, moving.follower_places, jnp.clip(_followers(robot, moving, q), lower, upper))
    return q


def apply_couplings(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """The same, limits or not: for derivatives, which are not those of the limit where a follower is at its own."""
    for _ in range(moving.rounds):
        q = set_rows(q, moving.follower_places, _followers(robot, moving, q))
    return q


def _followers(robot: RobotModel, moving: Coordinates, q: jax.Array) -> jax.Array:
    """Where the leaders have their followers (ncoupling,), limits or not."""
    x, c = _leaders(robot, moving, q), _coefficients(robot, moving)
    polynomial = c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])))
    return static_gather(robot.qpos0, moving.follower_places) + polynomial


def tighten_leader_limits(robot: RobotLike, moving: Coordinates) -> RobotLike:
    """The robot with the limits of leaders drawn in so far that no follower passes its own.

    What is kept is the interval around `q_home` that reaches out to where the first follower would leave; where one is
    outside even there, the interval around the nearest place, of those walked to, where none is. If there is none, the
    leader is held at home.
    """
    heads = [i for i, places in enumerate(moving.behind) if places]
    if not heads:
        return robot
    joints = moving.topology.joints
    leaders = [next(j for j, joint in enumerate(joints) if joint.v_index == moving.own[i]) for i in heads]
    home = static_gather(robot.q_home, [joints[j].q_index for j in leaders])
    followers = moving.follower_joints
    # At most this far where there is no limit; beyond, float32 no longer tells a turn from the next.
    reach = jnp.asarray(UNLIMITED_REACH, home.dtype)
    shares = jnp.arange(WALK + 1, dtype=home.dtype) / WALK
    bounds = []

    def allowed(value: jax.Array) -> jax.Array:
        at = _led(robot, moving, leaders, value)
        inside = (at >= static_gather(robot.limit_lower, followers)) & (
            at <= static_gather(robot.limit_upper, followers)
        )
        kept = [jnp.all(jnp.stack([inside[place] for place in moving.behind[i]])) for i in heads]
        return jnp.stack(kept)

    ends = [static_gather(robot.limit_lower, leaders), static_gather(robot.limit_upper, leaders)]
    ends = [jnp.where(jnp.isfinite(end), end, home + out) for end, out in zip(ends, (-reach, reach), strict=True)]
    places = jnp.concatenate([home + shares[:, None] * (end - home) for end in ends])
    far = jnp.where(jax.vmap(allowed)(places), jnp.abs(places - home), jnp.inf)
    nearest = jnp.min(far, axis=0)
    reached = jnp.min(jnp.where(far == nearest, places, jnp.inf), axis=0)
    home = jax.lax.stop_gradient(jnp.where((nearest > 0) & jnp.isfinite(nearest), reached, home))
    for limit, own in zip((robot.limit_lower, robot.limit_upper), ends, strict=True):

        def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            inner, outer = ends
            middle = (inner + outer) / 2
            good = allowed(middle)
            return jnp.where(good, middle, inner), jnp.where(good, outer, middle)

        # First a walk outward: a polynomial may leave the limits and come back.
        stops = home + shares[1:, None] * (own - home)
        good = jnp.cumprod(jax.vmap(allowed)(stops), axis=0)
        steps = jnp.sum(good, axis=0)
        inside = steps == WALK
        inner, outer = (home + shares[jnp.minimum(steps + k, WALK)] * (own - home) for k in (0, 1))
        between = jax.lax.stop_gradient((inner, outer))
        edge, _ = jax.lax.fori_loop(0, 4 * jnp.finfo(home.dtype).nmant, halve, between)
        edge = _moving_edge(robot, moving, heads, leaders, jax.lax.stop_gradient(edge))
        bounds.append(jnp.where(inside, static_gather(limit, leaders), edge))
    return dataclasses.replace(
        robot,
        limit_lower=set_rows(robot.limit_lower, tuple(leaders), bounds[0]),
        limit_upper=set_rows(robot.limit_upper, tuple(leaders), bounds[1]),
    )


def _led(robot: RobotModel, moving: Coordinates, leaders: Sequence[int], value: jax.Array) -> jax.Array:
    """Where all followers are (ncoupling,) with the leaders at `value` (n,), and other joints at home."""
    q = set_rows(robot.q_home, tuple(robot.topology.joints[j].q_index for j in leaders), value)
    at = _followers(robot, moving, q)
    for _ in range(moving.rounds - 1):
        q = set_rows(q, moving.follower_places, at)
        at = _followers(robot, moving, q)
    return at


def _moving_edge(
    robot: RobotModel, moving: Coordinates, heads: Sequence[int], leaders: Sequence[int], edge: jax.Array
) -> jax.Array:
    """Where leaders meet the limits of their followers (n,), as a function of all that decides it.

    `edge` is the value, found by halving, which has no derivative. Two Newton steps from it, towards the limit that is
    nearest there, change nothing, and have the right first and second one.
    """
    followers = moving.follower_joints
    lower, upper = static_gather(robot.limit_lower, followers), static_gather(robot.limit_upper, followers)
    at = _led(robot, moving, leaders, edge)
    below = at - lower < upper - at
    gap = jax.lax.stop_gradient(jnp.minimum(jnp.abs(at - lower), jnp.abs(upper - at)))
    nearest = [jnp.asarray(moving.behind[i])[jnp.argmin(gap[jnp.asarray(moving.behind[i])])] for i in heads]

    def off(value: jax.Array) -> jax.Array:
        at = _led(robot, moving, leaders, value)
        return jnp.stack([jnp.where(below, at - lower, at - upper)[i] for i in nearest])

    for _ in range(2):
        # Each follower moves with its own leader alone.
        left, slope = jax.jvp(off, (edge,), (jnp.ones_like(edge),))
        left = left - jax.lax.stop_gradient(left)
        edge = edge - jnp.where(slope != 0, left / jnp.where(slope != 0, slope, 1), 0)
    return edge


def movable(topology: Topology, dof_mask: jax.Array) -> jax.Array:
    """Which degrees of freedom move (nv,) where the mask (nv,) holds some."""
    for _, rate in quaternion_places(topology):
        # Of three rotation rates one alone does not add up to an angle: they move together, or not at all.
        turn = jnp.all(dof_mask[rate : rate + 3], keepdims=True)
        dof_mask = jnp.concatenate([dof_mask[:rate], turn, turn, turn, dof_mask[rate + 3 :]])
    return dof_mask
