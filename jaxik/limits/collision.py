"""Keep the shapes of a robot apart from each other and from obstacles."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.collision.distances import separations, table_of
from jaxik.collision.nearest import Nearest, Pairs, nearest_pairs, pairs_at
from jaxik.collision.pairs import NamedPairs, PairTable, named_pairs
from jaxik.collision.shapes import shape_frames
from jaxik.collision.sweep import Look, look
from jaxik.collision.world import World
from jaxik.core import validation
from jaxik.core.errors import JaxikError, JaxikWarning
from jaxik.core.pytree import cast, leaf, pytree, set_fields, static
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import Geometry, geometry_of
from jaxik.kinematics.motion import Motion
from jaxik.limits.base import Limit, Rows, share, share_of_step
from jaxik.robot.robot import Robot
from jaxik.tasks.clearance import ClearanceTask, check_pairs

# The default [m].
MARGIN = 0.005
# By how much `solve` and `search` aim farther than the margin: a share of it, and at least [m].
AIM_BEYOND, LEAST_BEYOND = 0.05, 1e-4
# Of a metre of overlap, in `solve` and `search`, beside one of a metre from a target.
COST = 3.0


@pytree
class KeptClear(ClearanceTask):
    """A `CollisionLimit` in `solve` and `search`: met, no pair is nearer than the margin."""


@pytree
class CollisionLimit(Limit):
    """Keep distances d between shapes above a margin: rows `-d' dq <= gain (d - margin)` of pairs that may meet.

    `solve` and `search` call a solution CONVERGED only if all pairs are farther apart than the margin; one that is the
    best but not free is COLLIDES.

    `step` looks at all pairs again where it arrives, and is shortened until none that was apart overlaps, and none that
    overlaps gets deeper than the deepest was. A start that is nearer than the margin moves out, the deepest pair first:
    others may get as deep as that meanwhile, where they are in its way. Where it does not get less deep the step is
    COLLIDES. `step(continuous=True)` looks at the way as well, on which a fast joint may pass a thin obstacle.

    Of two boxes that face each other with corners or edges, it is their separation along an axis that is kept above the
    margin: their distance, which is never less, may then be more than the margin asks. Whether they overlap is exact.

    Derivatives of `solve`, `search` and `step` are exact with pairs that press on each other between spheres, capsules,
    boxes, hulls and planes; of `solve` and `search`, with pairs that a lower priority presses as near as is aimed at,
    as well. `derivative_status` says WEAKLY_ACTIVE where a pair is just that far apart and nothing presses on it, or
    where other corners or edges of it take over, as of parallel faces; and APPROXIMATE where a cylinder, an ellipsoid
    or a grid presses: how the direction from one shape to the other turns is left out there.

    Args:
      world: obstacles; None for the robot's own pairs alone. Moving them never recompiles.
      pairs: names of pairs, as for `robot.distances`; None for all.
      margin: (*batch,) [m], to which distances may shrink. Rows are linear, and a step may pass a distance of a few
        millimetres that its row had left: a margin of 5 mm makes that rare, and shortened steps with it.
      gain: the share of d - margin that one step may use (*batch,).
      rate: [1/s] (*batch,) instead of `gain`: the share is then 1 - exp(-rate dt), and motion the same at any dt.
      rows: how many pairs have a row, those that may meet first if all joints move alike; static.

    Raises:
      JaxikError: for a wrong type or sign; in `Problem`, for a robot without shapes, or whose model had shapes that no
        distance is known of, and for pairs that are none.

    Warns:
      JaxikWarning: in `Problem`, if its shapes are nearer than the margin at home, obstacles left aside; of the
        default margin only if they overlap.
    """

    world: World | None = leaf(default=None)
    pairs: NamedPairs | None = static(default=None)
    margin: Any = leaf(0, default=MARGIN)
    gain: Any = leaf(0, default=0.9)
    rate: Any = leaf(0, default=None)
    rows: int = static(default=8)

    def __post_init__(self) -> None:
        check_pairs(self.world, self.rows)
        margin = validation.number("margin", self.margin)
        if not isinstance(margin, Tracer) and not np.isfinite(margin).all():
            raise JaxikError(f"margin is a distance [m] that pairs can have, not {np.asarray(margin)}")
        set_fields(
            self,
            pairs=named_pairs(self.pairs),
            margin=margin,
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
        self._compare_with_home(robot.name, geometry, self.table(robot))

    def _compare_with_home(self, name: str, geometry: Geometry, table: PairTable) -> None:
        """Warn of a margin that shapes of the robot do not even have at home: few configurations might keep it."""
        if isinstance(self.margin, Tracer):
            return
        margin, kept = float(np.asarray(self.margin).max()), {frozenset(pair) for pair in table.names}
        # The default is none that anyone chose: a robot as compact as that would be warned of at each use.
        least = 0.0 if np.isclose(margin, MARGIN) else margin
        nearer = [(d, *geometry.named((i, j))) for i, j, d in geometry.home if d < least]
        nearer = sorted(pair for pair in nearer if frozenset(pair[1:]) in kept)
        if nearer:
            distance, first, second = nearer[0]
            others = "1 more pair is" if len(nearer) == 2 else f"{len(nearer) - 1} more pairs are"
            more = f", and {others} nearer than that" if nearer[1:] else ""
            apart = f"are {1e3 * distance:.3g} mm apart" if distance >= 0 else "overlap"
            warnings.warn(
                f"CollisionLimit(margin={margin:g}): {first} and {second} of {name} {apart} at home{more}: choose a "
                "smaller margin, or name the pairs to keep apart, CollisionLimit(pairs=[...]), in YAML collision: "
                "{pairs: [...]}",
                JaxikWarning,
                stacklevel=2,
            )

    def frames_of(self, robot: Robot) -> tuple[Frame, ...]:
        return shape_frames(geometry_of(robot.name, robot.geometry))

    def table(self, robot: Robot) -> PairTable:
        """The pairs that are kept apart."""
        return table_of(robot.topology, geometry_of(robot.name, robot.geometry), self.world, self.pairs)

    def pair_names(self, robot: Robot) -> NamedPairs:
        return self.table(robot).names

    def distances(self, robot: Robot, kin: Kinematics) -> jax.Array:
        robot, limit = robot.astype(kin.q.dtype), cast(self, kin.q.dtype)
        return separations(geometry_of(robot.name, robot.geometry), limit.world, self.table(robot), kin)

    def look(
        self, robot: Robot, kin: Kinematics, displacement: jax.Array | None = None, before: Look | None = None
    ) -> tuple[Look, jax.Array, jax.Array]:
        robot, limit = robot.astype(kin.q.dtype), cast(self, kin.q.dtype)
        geometry = geometry_of(robot.name, robot.geometry)
        found, free = look(geometry, limit.world, self.table(robot), kin, displacement, before)
        return found, found.distance, free

    def clearance_task(self, priority: int) -> KeptClear:
        """Aims a little farther than the margin, which rounding then does not miss."""
        beyond = jnp.maximum(AIM_BEYOND * self.margin, LEAST_BEYOND)
        return KeptClear(
            self.world, self.margin + beyond, self.pairs, COST, self.rows, priority=priority, tolerance=beyond
        )

    def beyond_contact(self, motion: Motion) -> jax.Array:
        return share_of_step(self.gain, self.rate, motion) * self.margin

    def choice(self, robot: Robot, kin: Kinematics) -> Nearest:
        geometry = geometry_of(robot.name, robot.geometry)
        return nearest_pairs(geometry, self.world, self.table(robot), kin, self.rows, soonest=True)

    def held_rows(self, robot: Robot, kin: Kinematics, choice: Nearest) -> jax.Array:
        return self._pairs_at(robot, kin, choice).held

    def _pairs_at(self, robot: Robot, kin: Kinematics, nearest: Nearest) -> Pairs:
        geometry = geometry_of(robot.name, robot.geometry)
        return pairs_at(geometry, self.world, self.table(robot), kin, nearest)

    def inequalities(self, robot: Robot, kin: Kinematics, motion: Motion, *, choice: Nearest | None = None) -> Rows:
        found = self._pairs_at(robot, kin, self.choice(robot, kin) if choice is None else choice)
        part = share_of_step(self.gain, self.rate, motion)
        absent = jnp.isposinf(found.distance)
        room = jnp.where(absent, 0, found.distance) - self.margin
        return -found.jacobian, jnp.where(absent, jnp.inf, part * room)
