"""Touch, or keep named shapes a distance apart."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.collision.distances import operands_of, separations, separations_of, table_of
from jaxik.collision.nearest import Nearest
from jaxik.collision.pairs import NamedPairs, PairTable, named_pairs
from jaxik.collision.shapes import by_kind
from jaxik.collision.world import World
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import geometry_of
from jaxik.robot.robot import Robot
from jaxik.tasks import arguments
from jaxik.tasks.clearance import PairsTask, check_world


@pytree
class DistanceTask(PairsTask):
    """Bring shapes to a signed distance, 0 to touch: the residual of each pair is d - distance [m].

    A name may stand for several shapes: d is then the least of all their distances. Of two boxes it is their separation
    along an axis: their distance where they touch, overlap, or face each other with a face, and less where corners or
    edges face. A pair whose obstacles are masked has a residual of 0.

    Leave the pairs out of a `CollisionLimit`, whose margin keeps them apart. Derivatives of solutions are those of the
    shapes that are nearest.

    Args:
      pairs: names of pairs, as for `robot.distances`, each a row.
      distance: [m] (*batch,), negative for shapes that overlap.
      world: obstacles; None for the robot's own pairs alone.
      cost: (*batch,), of every pair.
      tolerance: [m] (*batch,), of the norm over all pairs.
      priority, gain, lm_damping: as of every task.

    Raises:
      JaxikError: for a wrong type; in `Problem`, for a robot without shapes, and for pairs that are none.
    """

    pairs: NamedPairs = static()
    distance: Any = leaf(0, default=0.0)
    world: World | None = leaf(default=None)
    cost: Any = leaf(0, default=1.0)
    priority: int = static(default=0, kw_only=True)
    gain: Any = leaf(0, default=1.0, kw_only=True)
    lm_damping: Any = leaf(0, default=0.0, kw_only=True)
    tolerance: Any = leaf(0, default=1e-4, kw_only=True)
    one_sided = False
    target_field = ("distance", "distance", "m")

    def __post_init__(self) -> None:
        check_world(self.world)
        pairs = named_pairs(self.pairs)
        if pairs is None:
            raise JaxikError('pairs names what is to touch, such as [("hand", "world")]')
        arguments.set_common(self)
        set_fields(
            self,
            pairs=pairs,
            distance=validation.array("distance", self.distance),
            cost=validation.number("cost", self.cost),
        )

    def check(self, robot: Robot) -> None:
        super().check(robot)
        self._tables(robot)

    def _tables(self, robot: Robot) -> list[PairTable]:
        """What each pair of names stands for."""
        geometry = geometry_of(robot.name, robot.geometry)
        return [table_of(robot.topology, geometry, self.world, (pair,)) for pair in self.pairs]

    def _every(self, robot: Robot, kin: Kinematics) -> jax.Array:
        """Of each row the distances (rows, p) of all pairs, infinite of those that are not its own."""
        geometry, table = geometry_of(robot.name, robot.geometry), self.table(robot)
        return self._by_row(robot, table, jax.lax.stop_gradient(separations(geometry, self.world, table, kin)))

    def tied(self, robot: Robot, kin: Kinematics, within: jax.Array | float) -> jax.Array:
        every = self._every(robot, kin)
        if every.shape[1] < 2:
            return jnp.zeros((), bool)
        least, second = jnp.sort(every, axis=1)[:, :2].T
        return jnp.any(second - least <= within)  # not of infinite ones

    def nearest(self, robot: Robot, kin: Kinematics) -> Nearest:
        every = self._every(robot, kin)
        which = jnp.argmin(every, axis=1)
        return Nearest(which, jnp.min(every, axis=1))

    def active(self, excess: jax.Array, most: jax.Array | float) -> jax.Array:
        return ~jnp.isposinf(excess)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        # Of the named shapes alone, so that derivatives are by the few frames that carry these.
        geometry = geometry_of(robot.name, robot.geometry)
        own = geometry.only({name for names in self.table(robot).names for name in names})
        table = table_of(robot.topology, own, self.world, self.pairs)
        bodies = kin.transforms([Frame("body", body) for body in own.bodies])
        shapes = by_kind(own, self.world, bodies.rotation, bodies.position)
        every = self._by_row(robot, table, separations_of(operands_of(shapes, table)))
        found = jnp.min(every, axis=1)
        masked = jnp.isposinf(found)
        return jnp.where(masked, 0, jnp.where(masked, 0, found) - self.distance)

    def _by_row(self, robot: Robot, table: PairTable, distances: jax.Array) -> jax.Array:
        own = np.array([[names in each.names for names in table.names] for each in self._tables(robot)])
        return jnp.where(own, distances, jnp.inf)
