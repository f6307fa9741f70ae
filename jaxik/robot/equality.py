"""Equality constraints and tendons: static references, whose numbers are looked up in the robot at use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jaxik.errors import JaxikError, unknown_name

if TYPE_CHECKING:
    from jaxik.robot.topology import Frame, Topology

# Rows of each kind of equality constraint that can be evaluated.
EQUALITY_ROWS = {"connect": 3, "weld": 6, "joint": 1, "tendon": 1}
# How many numbers of each MuJoCo's kinematics read: anchor, position, quaternion and torque scale of a weld.
EQUALITY_NUMBERS = 11


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
      kind: "connect", "weld", "joint", "tendon", or another of MuJoCo's, which cannot be evaluated.
      active: whether the model starts with it.
      frames: what it looks at: the two ends of a connect or weld, bodies or sites; the sites of tendons.
      members: indices of the one or two joints or tendons; the first is a polynomial of the second.
      bodies: those that it touches.
    """

    name: str
    index: int
    kind: str
    active: bool
    frames: tuple[Frame, ...]
    members: tuple[int, ...]
    bodies: tuple[int, ...]

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


def select(topology: Topology, given: Iterable[str | int | Equality] | None) -> tuple[Equality, ...]:
    """The equality constraints of these names or indices; see `Robot.equalities`."""
    if given is not None:
        return tuple(_find(topology, g) for g in ([given] if isinstance(given, str | int | Equality) else given))
    mocap = set(topology.mocap_bodies)
    found = [e for e in topology.equalities if e.active and topology.can_evaluate(e) and not mocap & set(e.bodies)]
    if not found:
        raise JaxikError(
            f"{topology.name} has no active equality constraint that touches no mocap body; it has {_listed(topology)}"
        )
    return tuple(found)


def _find(topology: Topology, given: str | int | Equality) -> Equality:
    if isinstance(given, str):
        names = [e.name for e in topology.equalities]
        if not given or given not in names:
            raise unknown_name("equality constraint", given, [name for name in names if name])
        index = names.index(given)
    else:
        index = given.index if isinstance(given, Equality) else given
    if not 0 <= index < len(topology.equalities):
        raise JaxikError(f"{topology.name} has no equality constraint {index}; it has {_listed(topology)}")
    found = topology.equalities[index]
    if isinstance(given, Equality) and given != found:
        raise JaxikError(f"the equality constraint {given.label!r} is of another robot than {topology.name}")
    if not found.active:
        raise JaxikError(
            f"the equality constraint {found.label!r} of {topology.name} is not active; it has {_listed(topology)}"
        )
    if not topology.can_evaluate(found):
        raise JaxikError(
            f"the equality constraint {found.label!r} of {topology.name} cannot be evaluated: kinematics know "
            f"{', '.join(EQUALITY_ROWS)}, with tendons that go round no geom"
        )
    return found


def _listed(topology: Topology) -> str:
    each = [f"{e.index}: {e.label}" + ("" if e.active else " (not active)") for e in topology.equalities]
    return ", ".join(each) or "none"
