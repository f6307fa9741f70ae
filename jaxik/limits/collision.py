"""Keep the shapes of a robot apart from each other and from obstacles."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.collision.contact import Contact
from jaxik.collision.distances import contacts, distance_rows, moved_by, table_of
from jaxik.collision.pairs import NamedPairs, PairTable, named_pairs
from jaxik.collision.shapes import shape_frames
from jaxik.collision.world import World
from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast, leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import geometry_of
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Limit, Rows, share
from jaxik.robot.robot import Robot


@pytree
class CollisionLimit(Limit):
    """Keep distances d between shapes above a margin: rows `-d' dq <= gain (d - margin)` of the nearest pairs.

    `step` looks at all pairs again where it arrives, and is shortened until none that was apart overlaps, and none that
    overlaps gets deeper than the deepest was. A start that is nearer than the margin moves out.

    Args:
      world: obstacles; None for the robot's own pairs alone. Moving them never recompiles.
      pairs: names of pairs, as for `robot.distances`; None for all.
      margin: (*batch,) [m], to which distances may shrink. Rows are linear, and a step may pass a distance of a few
        millimetres that its row had left: a margin of 5 mm makes that rare, and shortened steps with it.
      gain: the share of d - margin that one step may use (*batch,).
      rate: [1/s] (*batch,) instead of `gain`: the share is then 1 - exp(-rate dt), and motion the same at any dt.
      rows: how many pairs have a row, the nearest; static.

    Raises:
      JaxikError: for a wrong type or sign; in `Problem`, for a robot without shapes, or whose model had shapes that no
        distance is known of, and for pairs that are none.
    """

    world: World | None = leaf(default=None)
    pairs: NamedPairs | None = static(default=None)
    margin: Any = leaf(0, default=0.005)
    gain: Any = leaf(0, default=0.9)
    rate: Any = leaf(0, default=None)
    rows: int = static(default=8)

    def __post_init__(self) -> None:
        if self.world is not None and not isinstance(self.world, World):
            raise JaxikError(f"world is a jaxik.World(...), not {type(self.world).__name__}")
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise JaxikError(f"rows is how many pairs have a row, from 1 on, not {self.rows!r}")
        set_fields(
            self,
            pairs=named_pairs(self.pairs),
            margin=validation.number("margin", self.margin),
            gain=share(self.gain),
            rate=None if self.rate is None else validation.positive("rate", self.rate),
        )

    def check(self, robot: Robot) -> None:
        super().check(robot)
        geometry = geometry_of(robot.name, robot.geometry)
        if geometry.lost and self.pairs is None:
            raise JaxikError(
                f"{robot.name} has shapes that no distance is known of ({'; '.join(geometry.lost)}): name the pairs "
                "that are to be kept apart, CollisionLimit(pairs=[...])"
            )
        self.table(robot)

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        return shape_frames(geometry_of(robot.name, robot.geometry))

    def table(self, robot: Robot) -> PairTable:
        """The pairs that are kept apart."""
        return table_of(robot.topology, geometry_of(robot.name, robot.geometry), self.world, self.pairs)

    def contacts(self, robot: Robot, kin: Kinematics) -> Contact:
        return contacts(geometry_of(robot.name, robot.geometry), self.world, self.table(robot), kin)

    def distances(self, robot: Robot, kin: Kinematics) -> jax.Array:
        robot = robot.astype(kin.q.dtype)
        return cast(self, kin.q.dtype).contacts(robot, kin).distance

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion) -> Rows:
        table, contact = self.table(robot), self.contacts(robot, kin)
        signs = jnp.asarray(table.signs(moved_by(kin)), kin.q.dtype)
        nearest, signs = _nearest(contact, signs, min(self.rows, len(table.names)))
        matrix = -distance_rows(kin, signs, nearest.normal, nearest.point)
        part = self.gain if self.rate is None else 1 - jnp.exp(-self.rate * motion.dt)
        free = jnp.isfinite(nearest.distance)
        return matrix, jnp.where(free, part * (jnp.where(free, nearest.distance, 0) - self.margin), jnp.inf)


def _nearest(contact: Contact, signs: jax.Array, count: int) -> tuple[Contact, jax.Array]:
    """The nearest pairs, and their rows of `signs` (p, nv): one after the other, as sums over a mask.

    A gather of what each element chooses is a loop over its entries; sums are vector instructions.
    """
    size = contact.distance.shape[0]
    numbers = jnp.arange(size)

    def take(left: jax.Array, _: None) -> tuple[jax.Array, Any]:
        least = jnp.min(left)
        chosen = numbers == jnp.min(jnp.where(left == least, numbers, size))
        taken = jax.tree.map(lambda x: jnp.sum(jnp.where(chosen, x, 0)), (contact.normal, contact.point))
        return jnp.where(chosen, jnp.inf, left), (least, *taken, chosen.astype(signs.dtype) @ signs)

    _, (distance, normal, point, chosen) = lax.scan(take, contact.distance, None, length=count)
    return Contact(distance, normal, point), chosen
