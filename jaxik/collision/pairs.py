"""Which pairs of shapes are looked at, by kind: static, and so known before anything is evaluated."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.kinematics.geometry import OBSTACLE_KINDS, OBSTACLES, Geometry
from jaxik.kinematics.topology import WORLD, Topology, last_joint

# Of no shape, and kept away from pieces of what encloses the robot's shapes.
FIELDS, PIECE = ("field", "points"), "piece"
# Shapes that are solid without end have no distance from each other.
ENDLESS = "plane"

NamedPairs = tuple[tuple[str, str], ...]


# Kinds that a formula takes as one, for pairs that have none of their own.
PRIMITIVE, PRIMITIVES = "primitive", ("sphere", "capsule", "box", "cylinder", "ellipsoid")
# Of every shape but spheres.
PIECES = 4
# The order in which a formula takes its shapes.
_ORDER = ("sphere", "capsule", "box", PRIMITIVE, "hull", "plane")
_CLOSED = ("sphere", "capsule", "box", "plane")


class PairClass(NamedTuple):
    """Pairs (p,) that one formula evaluates: as few classes as there are, since each is a program to compile.

    Attributes:
      kinds: of the first and the second shapes; those of a cylinder, ellipsoid or hull are primitives or hulls.
      rows: of the first and of the second shapes (p,), among those of their kind, as `all_shapes` has them: the robot's
        and then the obstacles. Among capsules, spheres, which are capsules without length, come after all.
      turned (p,): whether a pair is named the other way round.
    """

    kinds: tuple[str, str]
    rows: tuple[tuple[int, ...], tuple[int, ...]]
    turned: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class PairTable:
    """All pairs, class by class.

    Attributes:
      classes: the pairs by their kinds.
      names: of each pair, in the order of the classes: a shape of the robot, and another or an obstacle as "boxes/3";
        four times the same where its pieces are looked at, with "field/0" or "points/0".
      bodies: of each pair, the bodies that carry its shapes; 0, the world, carries obstacles.
    """

    classes: tuple[PairClass, ...]
    names: NamedPairs
    bodies: tuple[tuple[int, int], ...]

    def signs(self, moved: np.ndarray) -> np.ndarray:
        """Of each pair and degree of freedom (p, nv): 1 where it moves the second shape alone, -1 the first, else 0.

        Args:
          moved (nbody, nv): bool, which degrees of freedom move each body.
        """
        first, second = np.array(self.bodies).T
        return moved[second].astype(int) - moved[first].astype(int)


class ShapeList(NamedTuple):
    """The static part of a geometry."""

    names: tuple[str, ...]
    bodies: tuple[int, ...]
    kinds: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]


def shape_list(geometry: Geometry) -> ShapeList:
    return ShapeList(geometry.names, geometry.bodies, geometry.kinds, geometry.pairs)


@functools.lru_cache(maxsize=256)
def pair_table(
    topology: Topology, shapes: ShapeList, obstacles: tuple[tuple[str, int], ...], pairs: NamedPairs | None
) -> PairTable:
    """The pairs of a robot's shapes with each other and with obstacles.

    Args:
      topology: of the robot.
      shapes: of the robot.
      obstacles: how many there are of each kind, by the names of `OBSTACLE_KINDS`.
      pairs: by name: a shape, a body for all of its shapes, "world" for all obstacles and what the
        model has in the world itself, "boxes" for those of a kind, or
        "boxes/3"; None for all pairs that the geometry keeps, and all moving shapes with all obstacles.

    Raises:
      UnknownNameError: for a name that nothing has.
      JaxikError: for two shapes that are fixed to each other, and where no pair is left.
    """
    count = len(shapes.names)
    labels = [*shapes.names, *(f"{kind}/{i}" for kind, number in obstacles for i in range(number))]
    fixed = [last_joint(topology, body) == WORLD for body in shapes.bodies]
    if pairs is None:
        chosen = [*shapes.pairs, *product([i for i in range(count) if not fixed[i]], range(count, len(labels)))]
    else:
        chosen = list(dict.fromkeys(_chosen(topology, shapes, labels, fixed, pairs)))
    kinds = [*shapes.kinds, *(OBSTACLE_KINDS[kind] for kind, number in obstacles for _ in range(number))]
    chosen = [(i, j) for i, j in chosen if not (kinds[i] == ENDLESS and kinds[j] in (ENDLESS, *FIELDS))]
    if not chosen:
        raise JaxikError(f"{topology.name} has no pair of shapes whose distance can change: nothing to look at")
    classes, order = [], []
    for class_kinds, members in _classes([x for x in chosen if kinds[x[1]] not in FIELDS], kinds).items():
        classes.append(_class(class_kinds, members, kinds))
        order += members
    for kind in FIELDS:
        if members := [i for i, j in chosen if kinds[j] == kind]:
            classes.append(_class_of_field(kind, members, shapes.kinds))
            counts, obstacle = piece_counts(shapes.kinds), kinds.index(kind)
            order += [(i, obstacle) for i in members for _ in range(counts[i])]
    bodies = [*shapes.bodies, *[0] * (len(labels) - count)]
    return PairTable(
        tuple(classes),
        tuple((labels[i], labels[j]) for i, j in order),
        tuple((bodies[i], bodies[j]) for i, j in order),
    )


def _class_kinds(first: str, second: str) -> tuple[str, str]:
    """The kinds of the class of a pair, in their order."""
    if not {first, second} <= {*_CLOSED}:
        first, second = (PRIMITIVE if kind in PRIMITIVES else kind for kind in (first, second))
    return (first, second) if _ORDER.index(first) <= _ORDER.index(second) else (second, first)


def _classes(pairs: list[tuple[int, int]], kinds: list[str]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """The classes, and the pairs of places in `kinds` that belong to each."""
    every = {_class_kinds(kinds[i], kinds[j]) for i, j in pairs}
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for i, j in pairs:
        own = _class_kinds(kinds[i], kinds[j])
        long = _class_kinds(*("capsule" if kind == "sphere" else kind for kind in own))
        found.setdefault(long if long in every else own, []).append((i, j))
    return found


def _class(class_kinds: tuple[str, str], pairs: list[tuple[int, int]], kinds: list[str]) -> PairClass:
    """The class of some pairs of places in `kinds`."""
    among = _rows_by_kind(kinds)

    def row(place: int, kind: str) -> int:
        own = kinds[place]
        if kind == PRIMITIVE:
            return among[place] + sum(kinds.count(before) for before in PRIMITIVES[: PRIMITIVES.index(own)])
        return among[place] + (kinds.count("capsule") if kind != own else 0)

    def takes(place: int, kind: str) -> bool:
        return kind in (kinds[place], PRIMITIVE if kinds[place] in PRIMITIVES else "") or (
            kind == "capsule" and kinds[place] == "sphere"
        )

    turned = tuple(not (takes(i, class_kinds[0]) and takes(j, class_kinds[1])) for i, j in pairs)
    sides = [(j, i) if other_way else (i, j) for (i, j), other_way in zip(pairs, turned, strict=True)]
    rows = tuple(tuple(row(pair[side], class_kinds[side]) for pair in sides) for side in (0, 1))
    return PairClass(class_kinds, (rows[0], rows[1]), turned)


def _class_of_field(kind: str, members: list[int], kinds: tuple[str, ...]) -> PairClass:
    """The pieces of some of a robot's shapes, of all its kinds, with the one obstacle of a kind of field."""
    counts = piece_counts(kinds)
    rows = tuple(sum(counts[:i]) + k for i in members for k in range(counts[i]))
    return PairClass((PIECE, kind), (rows, (0,) * len(rows)), (False,) * len(rows))


def piece_counts(kinds: tuple[str, ...]) -> list[int]:
    """Into how many pieces each shape is cut, so that a long link has a row for each part of it that is near."""
    return [1 if kind == "sphere" else PIECES for kind in kinds]


def _rows_by_kind(kinds: list[str]) -> list[int]:
    """Of each shape, its place among those of its kind."""
    return [kinds[:i].count(kind) for i, kind in enumerate(kinds)]


def _chosen(
    topology: Topology, shapes: ShapeList, labels: list[str], fixed: list[bool], pairs: NamedPairs
) -> Iterable[tuple[int, int]]:
    """Pairs of places in `labels`, the robot's shapes first."""
    count = len(shapes.names)
    for names in pairs:
        members = [_members(topology, shapes, labels, name) for name in names]
        found = []
        for i, j in product(*members):
            i, j = min(i, j), max(i, j)
            if i >= count:
                continue
            still = fixed[i] if j >= count else _same_weld(topology, shapes.bodies[i], shapes.bodies[j])
            if not still:
                found.append((i, j))
        if not found:
            raise JaxikError(f"the distance of {names[0]!r} and {names[1]!r} of {topology.name} never changes")
        yield from found


def _same_weld(topology: Topology, first: int, second: int) -> bool:
    return last_joint(topology, first) == last_joint(topology, second)


def _members(topology: Topology, shapes: ShapeList, labels: list[str], name: str) -> list[int]:
    """The shapes and obstacles that a name stands for."""
    count = len(shapes.names)
    if name in labels:
        return [labels.index(name)]
    if name in (OBSTACLES, *OBSTACLE_KINDS):
        # The model's own floor is of the world as well.
        found = [i for i in range(count) if name == OBSTACLES and shapes.bodies[i] == 0]
        found += [i for i in range(count, len(labels)) if name == OBSTACLES or labels[i].startswith(f"{name}/")]
        if not found:
            raise JaxikError(f"pairs name {name!r}, but no world with such obstacles is given")
        return found
    carriers = {topology.body_names[body] for body in shapes.bodies}
    if name in carriers:
        return [i for i, body in enumerate(shapes.bodies) if topology.body_names[body] == name]
    raise unknown_name("shape, body with shapes or obstacle", name, [*labels, *sorted(carriers), OBSTACLES])


def named_pairs(pairs: Any) -> NamedPairs | None:
    """Pairs of names, as they are given, in a form that can be static.

    Raises:
      JaxikError: if they are no pairs of names.
    """
    if pairs is None:
        return None
    if not isinstance(pairs, list | tuple):
        raise JaxikError(f'pairs is a list of pairs of names such as [("hand", "world")], not {pairs!r}')
    given = [tuple(pair) if isinstance(pair, list | tuple) else pair for pair in pairs]
    if not all(
        isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair) for pair in given
    ):
        raise JaxikError(f'pairs are pairs of names such as [("hand", "world"), ("link5", "link7")], not {pairs!r}')
    if not given:
        raise JaxikError("pairs is empty: nothing to look at; None stands for all")
    return tuple(given)
