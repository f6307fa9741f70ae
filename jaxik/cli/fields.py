"""Read the arguments of tasks from a configuration: one function for each kind of argument."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.cli.configurations import named_joint, of_one_unit, rate_factors, read_configuration
from jaxik.cli.poses import Units
from jaxik.cli.section import Section, preview, read_numbers
from jaxik.collision.world import World
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.manifold_derivatives import free_rates
from jaxik.robot.robot import Robot


@dataclasses.dataclass(frozen=True)
class Source:
    """The context in which a task is read: robot, units, seed and number of targets.

    Attributes:
      folder: where paths of the configuration start.
      units: of the configuration.
      seed: of everything that is sampled.
      count: so many targets are drawn, or taken of those that are listed; None: as the configuration says.
      world: the obstacles; None without.
    """

    robot: Robot
    folder: Path
    units: Units
    seed: int
    count: int | None
    world: World | None = None


Read = Callable[[Section, str, Source], Any]

# How much of what is left to a limit one step may use: a number, or by a rate [1/s].
SHARE = ("gain", "rate")


def kind_key(key: str) -> str:
    """The key of a frame's kind (site, body, geom), for names that are ambiguous."""
    return "kind" if key == "frame" else f"{key}_kind"


def frame(section: Section, key: str, source: Source) -> Frame:
    kind, name = section.choice(kind_key(key), ("site", "body", "geom"), None), section.text(key)
    with section.at(key).blamed():
        return source.robot.frame(name, kind)


def body(section: Section, key: str, source: Source) -> str:
    name = section.text(key)
    with section.at(key).blamed():
        source.robot.topology.body_index(name)
    return name


def whole(section: Section, key: str, source: Source) -> int:
    return section.integer(key)


def switch(section: Section, key: str, source: Source) -> bool:
    value = section.get(key)
    if not isinstance(value, bool):
        section.at(key).fail(f"is true or false, not {preview(value)}")
    return value


def share(section: Section) -> dict[str, float]:
    """Read what a limit has of `SHARE`."""
    if all(key in section for key in SHARE):
        section.at("rate").fail("stands in the place of gain: leave one of them out")
    return {key: section.number(key) for key in SHARE if key in section}


def pairs(section: Section, key: str, source: Source) -> Any:
    """Read names of pairs, which the task or limit checks."""
    return section.get(key)


def count(section: Section, key: str, source: Source) -> int:
    return section.integer(key, least=1)


def one_of(choices: tuple[str, ...]) -> Read:
    return lambda section, key, source: section.choice(key, choices)


def number(section: Section, key: str, source: Source) -> float:
    return section.number(key)


def length(section: Section, key: str, source: Source) -> float:
    return section.number(key) * source.units.length


def angle(section: Section, key: str, source: Source) -> float:
    return section.number(key) * source.units.angle


def rows(count: int | None) -> Read:
    """Read a number, or one for each row; None: any number of rows, which the task checks."""
    return lambda section, key, source: section.number_or_rows(key, count)


def rows_or_none(section: Section, key: str, source: Source) -> np.ndarray | None:
    return None if section.get(key) is None else section.number_or_rows(key, 3)


def vector(section: Section, key: str, source: Source) -> np.ndarray:
    return read_numbers(section.get(key), (3,), section.at(key))


def mask(section: Section, key: str, source: Source) -> np.ndarray:
    """Read six weights from 0 to 1; true and false count as 1 and 0."""
    value = section.get(key)
    flags = [float(x) if isinstance(x, bool) else x for x in value] if isinstance(value, list) else value
    weights = read_numbers(flags, (6,), section.at(key))
    if not ((weights >= 0) & (weights <= 1)).all():
        section.at(key).fail(f"weights rows by numbers from 0 to 1, not {preview(value)}")
    return weights


def flags(section: Section, key: str, source: Source) -> np.ndarray:
    weights = mask(section, key, source)
    if not np.isin(weights, (0, 1)).all():
        section.at(key).fail(f"takes rows or leaves them out: 0 or 1 each, not {preview(section.get(key))}")
    return weights.astype(bool)


def joint_costs(section: Section, key: str, source: Source) -> Any:
    """Read a number, or {joint: number} as (nv,) with 1 for the other joints."""
    if not isinstance(section.get(key), Mapping):
        return section.number(key)
    costs, given = np.ones(source.robot.nv), section.section(key)
    for name in given.values:
        costs[list(named_joint(source.robot, name, given.place).v_indices)] = given.number(name)
    return costs


def by_joint(section: Section, key: str, source: Source) -> Any:
    """Read a number for all joints but free ones, or {joint: number}, in the units of their rates."""
    if not isinstance(section.get(key), Mapping):
        factors = rate_factors(source.robot, source.units)
        turning = np.delete(factors, free_rates(source.robot.topology))
        return of_one_unit(section.number(key), turning, section.at(key))
    given = section.section(key)
    factors, found = rate_factors(source.robot, source.units), {}
    for name in given.values:
        joint = named_joint(source.robot, name, given.place)
        found[name] = given.number(name) * factors[joint.v_index]
    return found


def joints(section: Section, key: str, source: Source) -> tuple[str, ...]:
    names = section.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        section.at(key).fail(f"is a list of joint names, not {preview(names)}")
    for i, name in enumerate(names):
        named_joint(source.robot, name, section.at(key) / i)
    return tuple(names)


def ratios(section: Section, key: str, source: Source) -> np.ndarray:
    """Read one number for each of `joints`."""
    return read_numbers(section.get(key), (len(joints(section, "joints", source)),), section.at(key))


def joint_factors(section: Section, source: Source) -> list[float]:
    """The SI factor of each of `joints`, for a sum over them."""
    factors, names = rate_factors(source.robot, source.units), joints(section, "joints", source)
    return [float(factors[dof]) for name in names for dof in source.robot.v_indices(name)]


def of_joints(section: Section, key: str, source: Source) -> float:
    return of_one_unit(section.number(key), joint_factors(section, source), section.at(key))


def of_posture(section: Section, key: str, source: Source) -> float:
    """Read a tolerance on the degrees of freedom of a posture that have a cost."""
    counts = np.broadcast_to(joint_costs(section, "cost", source) if "cost" in section else 1.0, source.robot.nv) != 0
    if not section.get("free_joints", False):
        counts[free_rates(source.robot.topology)] = False
    factors = rate_factors(source.robot, source.units)[counts]
    return of_one_unit(section.number(key), factors, section.at(key))


def of_matrix(section: Section, key: str, source: Source) -> float:
    """Read a tolerance on the rows of `matrix`."""
    read = matrix(section, "matrix", source).any(axis=0)
    factors = rate_factors(source.robot, source.units)[read]
    return of_one_unit(section.number(key), factors, section.at(key))


def of_equalities(section: Section, key: str, source: Source) -> float:
    """Read a tolerance on the rows of `equalities`: lengths, except angles of welds and of coupled hinges."""
    units, chosen = source.units, equalities(section, "equalities", source)
    factors = [units.length for e in chosen if e.kind != "joint"] + [units.angle for e in chosen if e.kind == "weld"]
    first = [source.robot.topology.joints[e.members[0]] for e in chosen if e.kind == "joint"]
    factors += [rate_factors(source.robot, units)[joint.v_index] for joint in first]
    return of_one_unit(section.number(key), factors, section.at(key))


def matrix(section: Section, key: str, source: Source) -> np.ndarray:
    """Read rows (p, nv): each nv numbers, or {joint: number} with 0 for the other joints."""
    value = section.get(key)
    if not isinstance(value, list) or not value:
        section.at(key).fail(f"is a list of rows, each {{joint: number}} or {source.robot.nv} numbers")
    return np.stack([_row(item, section, key, i, source) for i, item in enumerate(value)])


def _row(value: Any, section: Section, key: str, i: int, source: Source) -> np.ndarray:
    nv, place = source.robot.nv, section.at(key) / i
    if not isinstance(value, Mapping):
        return read_numbers(value, (nv,), place)
    row, given = np.zeros(nv), Section(value, place)
    for name in given.values:
        joint = named_joint(source.robot, name, place)
        shape = () if joint.type.nv == 1 else (joint.type.nv,)
        row[list(joint.v_indices)] = read_numbers(given.get(name), shape, given.at(name))
    return row


def configuration(section: Section, key: str, source: Source) -> np.ndarray:
    """Read a configuration (nq,), home by default."""
    return read_configuration(section.get(key, "home"), section.at(key), source.robot, source.units)


def equalities(section: Section, key: str, source: Source) -> tuple[Equality, ...]:
    """Read names or MuJoCo indices of equality constraints; by default all active ones."""
    given = section.get(key, None)
    if key in section and (not isinstance(given, list) or not given or not all(map(_names_equality, given))):
        section.at(key).fail(f"is a list of names of equality constraints, not {preview(given)}")
    with section.at(key).blamed():
        return source.robot.equalities(given)


def _names_equality(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
