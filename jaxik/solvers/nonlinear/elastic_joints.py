"""Joint limits that yield: how far a coordinate is beyond them costs a penalty for each rad or m.

That cost has a kink at each elastic limit. Kinks divide the range of a coordinate into cells, in which the cost is
linear: inside the elastic limits, and below and above these, up to the limits that hold. Steps take the ends of cells
for limits. A coordinate that is pressed against the end of its cell by more than the penalty goes on to the next one.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.kinematics.reduced import Coordinates
from jaxik.limits.combine import tightened
from jaxik.numerics.linalg import PAD, set_rows, static_gather
from jaxik.problem.problem import Problem, elastic_joint_limit, limits_of
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear.box import movable_coordinates

# Pressed by more than the penalty is what is so by this many roundings of it.
ROUNDINGS = 1000


@pytree
class ElasticJoints:
    """Joint limits that yield, and those that hold, by coordinate.

    Attributes:
      moving: the coordinates; static.
      lower, upper (n,): limits that yield; infinite for balls, and those that hold for what does not move.
      least, most (n,): limits that hold.
      penalty (): for each rad or m.
    """

    moving: Coordinates = static()
    lower: jax.Array = leaf(1)
    upper: jax.Array = leaf(1)
    least: jax.Array = leaf(1)
    most: jax.Array = leaf(1)
    penalty: jax.Array = leaf(0)

    def excess(self, q: jax.Array) -> jax.Array:
        """How far each coordinate (n,) is above its limits at a configuration (nq,), minus how far it is below."""
        x = static_gather(scalar_coordinates(self.moving.topology, q), self.moving.own)
        return jnp.where(x > self.upper, x - self.upper, jnp.where(x < self.lower, x - self.lower, 0))

    def cost(self, q: jax.Array) -> jax.Array:
        """What that costs ()."""
        return self.penalty * jnp.sum(jnp.abs(self.excess(q)))

    def yielded(self, q: jax.Array, nv: int) -> jax.Array:
        """The same by degree of freedom (nv,)."""
        place = {dof: i for i, dof in enumerate(self.moving.own)}
        return static_gather(self.excess(q), [place.get(dof, PAD) for dof in range(nv)])

    def cells(self, q: jax.Array) -> jax.Array:
        """The cell of each coordinate (n,): -1 below its limits, 0 inside, 1 above; int32."""
        return jnp.sign(self.excess(q)).astype(jnp.int32)

    def slope(self, cells: jax.Array) -> jax.Array:
        """Gradient (n,) of the cost in cells (n,)."""
        return self.penalty * cells.astype(self.penalty.dtype)

    def ends(self, cells: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The lower and upper ends (n,) of cells (n,)."""
        low = jnp.where(cells < 0, self.least, jnp.where(cells > 0, self.upper, self.lower))
        return low, jnp.where(cells > 0, self.most, jnp.where(cells < 0, self.lower, self.upper))

    def limiting(self, robot: Robot, ends: tuple[jax.Array, jax.Array]) -> Robot:
        """The robot with lower and upper limits (n,) of coordinates in the place of its own."""
        place = {dof: i for i, dof in enumerate(self.moving.own)}
        joints = [(j, place[joint.v_index]) for j, joint in enumerate(robot.topology.joints) if joint.v_index in place]
        joints = [(j, i) for j, i in joints if j in robot.topology.scalar_joints]
        at, own = [j for j, _ in joints], [i for _, i in joints]
        low, high = (static_gather(end, own) for end in ends)
        return dataclasses.replace(
            robot,
            limit_lower=set_rows(robot.limit_lower, at, low),
            limit_upper=set_rows(robot.limit_upper, at, high),
        )

    def following(self, cells: jax.Array, q: jax.Array, forces: jax.Array) -> jax.Array:
        """The cells (n,) after those where the ends hold coordinates by some forces (n,), positive at upper ends."""
        x = static_gather(scalar_coordinates(self.moving.topology, q), self.moving.own)
        (low, high), strong = self.ends(cells), self.penalty * (1 + ROUNDINGS * jnp.finfo(q.dtype).eps)
        rises = (forces > strong) & (x >= high) & (high < self.most)
        falls = (forces < -strong) & (x <= low) & (low > self.least)
        return cells + rises.astype(jnp.int32) - falls.astype(jnp.int32)

    def hardly_holds(self, sides: jax.Array, forces: jax.Array) -> jax.Array:
        """Which coordinates (n,) a limit holds that would yield soon, or is one that holds as well.

        Args:
          sides (n,): at which limit that yields a coordinate is held, the lower one (-1) or the upper (1); 0: at none.
          forces (n,): by which it is, in size.
        """
        beyond = jnp.where(sides > 0, self.most - self.upper, self.lower - self.least)
        joint = jnp.asarray([dof in self._limited for dof in self.moving.own])
        return (sides != 0) & joint & ((beyond <= 0) | (forces >= self.penalty))

    @property
    def _limited(self) -> set[int]:
        """Degrees of freedom of hinges and slides, without slacks."""
        topology = self.moving.topology
        return {topology.joints[j].v_index for j in topology.scalar_joints if topology.joints[j].body > 0}


def with_elastic_joints(
    problem: Problem, outer: Robot, moving: Coordinates, prepare: Callable[[Robot], Robot]
) -> tuple[Robot, ElasticJoints | None]:
    """The robot inside its elastic limits, and these; as it is where none of its joint limits yields.

    What follows a coordinate has the limits that hold: the coordinate keeps, or passes, the others for it.

    Args:
      outer: the robot of a formulation, with the limits that hold.
      prepare: makes a robot with limits that of the formulation.
    """
    if (limit := elastic_joint_limit(problem)) is None:
        return outer, None
    inner = prepare(tightened((*limits_of(problem), limit.of), problem.robot))
    (lower, upper), (least, most) = ([static_gather(x, moving.own) for x in tangent_bounds(r)] for r in (inner, outer))
    if (mask := problem.dof_mask) is not None:
        slacks = jnp.ones(moving.topology.nv - problem.robot.nv, bool)
        moves = movable_coordinates(moving, jnp.concatenate([mask, slacks]))
        lower, upper = jnp.where(moves, lower, least), jnp.where(moves, upper, most)
    joints = ElasticJoints(moving, lower, upper, least, most, jnp.asarray(limit.row_penalty, lower.dtype))
    return joints.limiting(outer, (lower, upper)), joints
