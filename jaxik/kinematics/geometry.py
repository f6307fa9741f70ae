"""The shapes that a robot carries for its distances, and which pairs of them are looked at."""

import dataclasses
from collections.abc import Collection
from typing import NamedTuple, Self

import jax
import numpy as np

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.core.pytree import leaf, pytree, static

# In the order in which shapes of several kinds stand one after the other.
KINDS = ("sphere", "capsule", "box", "cylinder", "ellipsoid", "hull", "plane")

# The name that stands for all obstacles where pairs are given by name.
OBSTACLES = "world"
# Obstacles by the names that `World` gives them, and what kind of shape they are.
OBSTACLE_KINDS = {
    "spheres": "sphere",
    "capsules": "capsule",
    "boxes": "box",
    "cylinders": "cylinder",
    "ellipsoids": "ellipsoid",
    "hulls": "hull",
    "planes": "plane",
    "field": "field",
    "points": "points",
}


# Why pairs are dropped that come to matter when one of the two is moved where no joint takes it.
NEVER, ALWAYS, CONSTANT, FIXED = "never nearer", "touch in all", "as far apart", "fixed to each other"


class DroppedPair(NamedTuple):
    """Two shapes, by name, whose distance is not looked at, and why."""

    first: str
    second: str
    reason: str


@pytree
class Geometry:
    """Shapes on the bodies of a robot.

    Attributes:
      names, bodies, kinds: of each of n shapes; kinds are those of `KINDS`.
      pairs: index pairs of shapes of the robot whose distance is looked at.
      home: of those that are near each other at home, both places and the distance [m].
      dropped: the pairs that are not, with the reason.
      lost: what the model has and no kind here stands for, a sentence each.
      fits: of shapes that stand for meshes, their volume over that of the mesh's hull.
      position (n, 3) [m], quaternion (n, 4) wxyz: pose of each shape in its body.
      size (n, 3) [m]: MuJoCo's: radius; radius and half length along z; half sizes; a hull's is that of the box around
        its origin that encloses it; a plane's does not matter, it is all that lies below the z = 0 of its axes.
      corners (m, k, 3) [m]: of the m hulls, in the order of the shapes, in their axes; of a hull that has fewer than k
        the last is repeated.
    """

    names: tuple[str, ...] = static()
    bodies: tuple[int, ...] = static()
    kinds: tuple[str, ...] = static()
    pairs: tuple[tuple[int, int], ...] = static()
    home: tuple[tuple[int, int, float], ...] = static()
    dropped: tuple[DroppedPair, ...] = static()
    lost: tuple[str, ...] = static()
    fits: tuple[str, ...] = static()
    position: jax.Array = leaf(2)
    quaternion: jax.Array = leaf(2)
    size: jax.Array = leaf(2)
    corners: jax.Array = leaf(3)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{self.kinds.count(kind)} {kind}" for kind in KINDS if kind in self.kinds)
        fits = f"; volumes over those of hulls: {', '.join(self.fits)}" if self.fits else ""
        return (
            f"Geometry({len(self.names)} shapes ({kinds}), {len(self.pairs)} pairs, {len(self.dropped)} dropped{fits})"
        )

    def index(self, name: str) -> int:
        """The shape of that name.

        Raises:
          UnknownNameError: if there is none; lists the near names.
        """
        if name not in self.names:
            raise unknown_name("shape", name, self.names)
        return self.names.index(name)

    def named(self, pair: tuple[int, int]) -> tuple[str, str]:
        return self.names[pair[0]], self.names[pair[1]]

    def only(self, names: Collection[str]) -> Self:
        """Some of the shapes, without pairs."""
        places = np.array([i for i, name in enumerate(self.names) if name in names], int)
        hulls = np.isin(np.flatnonzero(np.array(self.kinds) == "hull"), places).nonzero()[0]
        return dataclasses.replace(
            self,
            **{field: tuple(getattr(self, field)[i] for i in places) for field in ("names", "bodies", "kinds")},
            **dict.fromkeys(("pairs", "home", "dropped", "lost", "fits"), ()),
            **{field: getattr(self, field)[..., places, :] for field in ("position", "quaternion", "size")},
            corners=self.corners[..., hulls, :, :],
        )

    def with_moved(self, bodies: Collection[int], reasons: tuple[str, ...]) -> Self:
        """With pairs dropped for these reasons again, where one shape is on `bodies` and one is not."""
        again, dropped, places = [], [], {name: i for i, name in enumerate(self.names)}
        for pair in self.dropped:
            first, second = (places[name] for name in pair[:2])
            crosses = (self.bodies[first] in bodies) != (self.bodies[second] in bodies)
            if crosses and pair.reason.startswith(reasons):
                again.append((first, second))
            else:
                dropped.append(pair)
        return dataclasses.replace(self, pairs=tuple(sorted((*self.pairs, *again))), dropped=tuple(dropped))


class CollisionPairs(NamedTuple):
    """Pairs of a robot's shapes by name: those whose distance is looked at, and those that are dropped."""

    kept: tuple[tuple[str, str], ...]
    dropped: tuple[DroppedPair, ...]


def geometry_of(robot_name: str, geometry: Geometry | None) -> Geometry:
    """The geometry of a robot that needs one.

    Raises:
      JaxikError: if the robot was loaded without.
    """
    if geometry is None:
        raise JaxikError(f'{robot_name} has no shapes: load it with load_robot(..., geometry="model")')
    return geometry
