"""Equality constraints and tendons: static references, whose numbers are looked up in the robot at use."""

import dataclasses

from jaxik.kinematics.frames import Frame

# Rows of each kind of equality constraint of MuJoCo that can be evaluated.
EQUALITY_ROWS = {"connect": 3, "weld": 6, "joint": 1, "tendon": 1}
# How many numbers each has: a closure's two points and two quaternions. MuJoCo's kinematics read 11 at most.
EQUALITY_NUMBERS = 14
# The directions that a closure may hold, in the axes of its second frame: three translations, three rotations.
DIRECTIONS = ("x", "y", "z", "rx", "ry", "rz")
# What kinds of closures hold; those with an axis have it along z.
CLOSURES = {
    "spherical": (0, 1, 2),
    "universal": (0, 1, 2, 5),
    "hinge": (0, 1, 2, 3, 4),
    "cylinder": (0, 1, 3, 4),
    "slide": (0, 1, 3, 4, 5),
    "weld": (0, 1, 2, 3, 4, 5),
}


@dataclasses.dataclass(frozen=True)
class Coupling:
    """A joint equality: `follower - ref = polynomial(leader - ref)`, or a constant where `leader` is None."""

    name: str
    follower: int
    leader: int | None


@dataclasses.dataclass(frozen=True)
class Equality:
    """A static reference to an equality constraint of a robot; its numbers are looked up in the robot at use.

    Attributes:
      index: its number in MuJoCo, and its row of `Robot.equality_data`.
      kind: "connect", "weld", "joint", "tendon", or another of MuJoCo's, which cannot be evaluated; "closure" for one
        that `robot.with_closure` added.
      active: whether the model starts with it.
      frames: what it looks at: the two ends of a connect, weld or closure; the sites of tendons.
      members: indices of the one or two joints or tendons; the first is a polynomial of the second.
      bodies: those that it touches.
      directions: what a closure holds, as indices of `DIRECTIONS`.
    """

    name: str
    index: int
    kind: str
    active: bool
    frames: tuple[Frame, ...]
    members: tuple[int, ...]
    bodies: tuple[int, ...]
    directions: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """How many rows its residual has, where it can be evaluated."""
        return len(self.directions) if self.kind == "closure" else EQUALITY_ROWS[self.kind]

    @property
    def label(self) -> str:
        """The name, or kind and number where it has none."""
        return self.name or f"{self.kind} {self.index}"


@dataclasses.dataclass(frozen=True)
class Tendon:
    """A length: a weighted sum of joint coordinates (fixed), or of distances between pairs of sites (spatial).

    Attributes:
      start: where its weights start in `Robot.tendon_coefficients`.
      joints: of a fixed tendon.
      spans: pairs of sites of a spatial tendon; the weight is one over the divisor of the pulley before it.
      wraps: whether it goes round a geom, which cannot be evaluated.
    """

    name: str
    start: int
    joints: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    wraps: bool
