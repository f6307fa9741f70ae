"""The equality constraints of a robot, found by name or index."""

from collections.abc import Iterable

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.kinematics.equality import EQUALITY_ROWS, Equality
from jaxik.kinematics.topology import Topology


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
