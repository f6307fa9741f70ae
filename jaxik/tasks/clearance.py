"""Stay away from obstacles and from oneself."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxik.collision.distances import table_of
from jaxik.collision.nearest import (
    Curvatures,
    Nearest,
    Pairs,
    curvatures_at,
    nearest_distances,
    nearest_pairs,
    pairs_at,
    pairs_of,
)
from jaxik.collision.pairs import NamedPairs, PairTable, named_pairs
from jaxik.collision.shapes import shape_frames
from jaxik.collision.world import World
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import geometry_of
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.base import Task


class PairsTask(Task):
    """What tasks of distances have in common.

    Derivatives of solutions take the pairs that it has at a solution for given, and of these those that are active.

    Attributes:
      one_sided: whether a pair has no residual where it is farther apart than asked.
    """

    one_sided = True
    unit = "m"
    world: World | None
    distance: Any
    pairs: Any

    def nearest(self, robot: Robot, kin: Kinematics) -> Nearest:
        """The pairs that have a row (rows,)."""
        raise NotImplementedError

    def active(self, excess: jax.Array, most: jax.Array | float) -> jax.Array:
        """Which of these (rows,) have a residual, farther apart than asked by `excess`, or nearly, by up to `most`."""
        raise NotImplementedError

    def check(self, robot: Robot) -> None:
        super().check(robot)
        self.table(robot)

    def tied(self, robot: Robot, kin: Kinematics, within: jax.Array | float) -> jax.Array:
        """Whether another pair is as near as one that has a row, and would have it instead ()."""
        return jnp.zeros((), bool)

    def held(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """Whether an active pair has a normal that counts as given where rows are differentiated ()."""
        pairs = self.nearest(robot, kin)
        active = self.active(pairs.distance - self.distance, 0.0)
        return jnp.any(active & self.pairs_at(robot, kin, pairs).held)

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        return shape_frames(geometry_of(robot.name, robot.geometry))

    def table(self, robot: Robot) -> PairTable:
        """The pairs that are looked at."""
        return table_of(robot.topology, geometry_of(robot.name, robot.geometry), self.world, self.pairs)

    def pairs_at(self, robot: Robot, kin: Kinematics, pairs: Nearest) -> Pairs:
        """Some pairs (rows,), with their rows."""
        geometry = geometry_of(robot.name, robot.geometry)
        return pairs_at(geometry, self.world, self.table(robot), kin, pairs)

    def pairs_of(self, robot: Robot, kin: Kinematics, which: jax.Array) -> Pairs:
        """The same of pairs that were chosen elsewhere, by their places (rows,)."""
        geometry = geometry_of(robot.name, robot.geometry)
        return pairs_of(geometry, self.world, self.table(robot), kin, which)

    def curvatures_at(self, robot: Robot, kin: Kinematics, pairs: Nearest) -> Curvatures:
        """Of some pairs (rows,)."""
        geometry = geometry_of(robot.name, robot.geometry)
        return curvatures_at(geometry, self.world, self.table(robot), kin, pairs)


@pytree
class ClearanceTask(PairsTask):
    """Keep shapes a distance apart, softly: the residual of each of the nearest pairs is min(d - distance, 0) [m].

    Args:
      world: obstacles; None for the robot's own pairs alone.
      distance: [m] (*batch,), from which on a pair counts.
      pairs: names of pairs, as for `robot.distances`; None for all.
      cost: (*batch,), of every pair.
      rows: how many pairs have a row, the nearest; static.
      tolerance: [m] (*batch,), by which pairs may be nearer, in sum of squares.
      priority, gain, lm_damping: as of every task.

    Raises:
      JaxikError: for a wrong type or sign; in `Problem`, for a robot without shapes, and for pairs that are none.
    """

    world: World | None = leaf(default=None)
    distance: Any = leaf(0, default=0.05)
    pairs: NamedPairs | None = static(default=None)
    cost: Any = leaf(0, default=1.0)
    rows: int = static(default=8)
    priority: int = static(default=0, kw_only=True)
    gain: Any = leaf(0, default=1.0, kw_only=True)
    lm_damping: Any = leaf(0, default=0.0, kw_only=True)
    tolerance: Any = leaf(0, default=1e-3, kw_only=True)

    def __post_init__(self) -> None:
        check_pairs(self.world, self.rows)
        arguments.set_common(self)
        set_fields(
            self,
            distance=validation.number("distance", self.distance),
            pairs=named_pairs(self.pairs),
            cost=validation.number("cost", self.cost),
        )

    def nearest(self, robot: Robot, kin: Kinematics) -> Nearest:
        """The nearest pairs (rows,)."""
        geometry = geometry_of(robot.name, robot.geometry)
        return nearest_pairs(geometry, self.world, self.table(robot), kin, self.rows)

    def active(self, excess: jax.Array, most: jax.Array | float) -> jax.Array:
        return excess < most

    def weighted_hessian(
        self, robot: Robot, kin: Kinematics, multipliers: jax.Array
    ) -> tuple[dict[Any, jax.Array], jax.Array | None]:
        """Zero: Gauss-Newton. The curvature of distances takes that of the kinematics of all bodies."""
        return {}, None

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return jnp.minimum(self.excess(robot, kin), 0)

    def excess(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """How much farther apart than asked the nearest pairs are (rows,) [m]; where it is zero the cost has a kink."""
        geometry = geometry_of(robot.name, robot.geometry)
        return nearest_distances(geometry, self.world, self.table(robot), kin, self.rows) - self.distance

    def jacobian(self, robot: Robot, kin: Kinematics) -> jax.Array:
        nearest = self.nearest(robot, kin)
        return jnp.where((nearest.distance < self.distance)[:, None], self.pairs_at(robot, kin, nearest).jacobian, 0)


def check_pairs(world: Any, rows: Any) -> None:
    """Check what tasks and limits of distances have in common."""
    check_world(world)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise JaxikError(f"rows is how many pairs have a row, from 1 on, not {rows!r}")


def check_world(world: Any) -> None:
    if world is not None and not isinstance(world, World):
        raise JaxikError(f"world is a jaxik.World(...), not {type(world).__name__}")
