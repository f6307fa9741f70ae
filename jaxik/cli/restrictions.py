"""Read what restricts a solution: limits, constraints and fixed joints."""

from collections.abc import Callable

import numpy as np

from jaxik.cli import fields
from jaxik.cli.configurations import named_joint, of_one_unit
from jaxik.cli.elastic import KEY, elastic, without_elastic
from jaxik.cli.fields import Source
from jaxik.cli.poses import Units
from jaxik.cli.section import Section, read_numbers
from jaxik.cli.task_limits import FORM, read_task_limit
from jaxik.cli.tasks import read_tasks
from jaxik.cli.world import keeps_apart, read_collision
from jaxik.kinematics.topology import JointType
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.base import Limit
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.distance import DistanceLimit
from jaxik.limits.elastic import Elastic
from jaxik.limits.jerk import JerkLimit
from jaxik.limits.position import PositionLimit
from jaxik.limits.velocity import VelocityLimit
from jaxik.robot.robot import Robot
from jaxik.tasks.base import Task


def read_limits(root: Section, source: Source, of_motion: bool = False) -> tuple[Limit | Elastic, ...] | None:
    """Read the limits under the key `limits`; without it None, the robot's own; `[]` gives none.

    Args:
      of_motion: whether it may limit velocities and accelerations as well.
    """
    if "limits" not in root:
        return None
    if root.get("limits") == []:
        return ()
    section = root.section("limits")
    motion = tuple(MOTION) if of_motion else ()
    section.allow("margin", *_LISTED, "collision", KEY, *motion)
    yielding = _yielding(section, ("margin", *motion))
    margin = _margin(section, source.robot, source.units) if "margin" in section else 0.0
    with section.at("margin").blamed():
        joints: list[Limit | Elastic] = [ConfigurationLimit(margin=margin)]
    if "margin" in yielding:
        joints = [ConfigurationLimit(), elastic(yielding, "margin", joints[0], name="margin")]
    others: list[Limit | Elastic] = [
        read(item, number, source)
        for key, (read, form) in _LISTED.items()
        for number, item in enumerate(_items(section, key, form))
    ]
    if keeps_apart(root):
        others.append(read_collision(section, source))
    return (*joints, *others, *_of_motion(section, yielding, source))


def _yielding(section: Section, keys: tuple[str, ...]) -> Section:
    """What the key `elastic` lets yield, by the keys of the limits."""
    yielding = section.section(KEY) if KEY in section else Section({}, section.at(KEY))
    yielding.allow(*keys)
    for key in yielding.values:
        if key not in section:
            yielding.at(key).fail(f"lets a limit yield that is not there: give {key} among the limits as well")
    return yielding


def _of_motion(section: Section, yielding: Section, source: Source) -> list[Limit | Elastic]:
    """Limits of speeds and their changes."""
    found: list[Limit | Elastic] = []
    for key in section.values:
        if key in MOTION:
            limit = MOTION[key](section, key, source)
            found.append(elastic(yielding, key, limit, name=key) if key in yielding else limit)
    return found


def _velocity(section: Section, key: str, source: Source) -> VelocityLimit:
    with section.at(key).blamed():
        limit = VelocityLimit(None if section.get(key) is True else fields.by_joint(section, key, source))
        limit.check(source.robot)
    return limit


def _acceleration(section: Section, key: str, source: Source) -> AccelerationLimit | JerkLimit:
    with section.at(key).blamed():
        limit = {"acceleration": AccelerationLimit, "jerk": JerkLimit}[key](fields.by_joint(section, key, source))
        limit.check(source.robot)
    return limit


# Limits of a motion by their keys.
MOTION: dict[str, Callable[[Section, str, Source], Limit]] = {
    "velocity": _velocity,
    "acceleration": _acceleration,
    "jerk": _acceleration,
}


def _margin(section: Section, robot: Robot, units: Units) -> float:
    limited = [joint for joint in robot.topology.joints if joint.type is not JointType.FREE]
    factors = [units.length if joint.type is JointType.SLIDE else units.angle for joint in limited]
    return of_one_unit(section.number("margin"), factors, section.at("margin"))


def _items(section: Section, key: str, form: str) -> list[Section]:
    if key not in section:
        return []
    given = section.get(key)
    if not isinstance(given, list) or not given:
        section.at(key).fail(f"is a list, each {form}")
    return [Section(item, section.at(key) / i) for i, item in enumerate(given)]


def _half_space(section: Section, number: int, source: Source) -> PositionLimit | Elastic:
    section.allow("frame", fields.kind_key("frame"), "normal", "offset", *fields.SHARE, KEY)
    frame, normal = fields.frame(section, "frame", source), fields.vector(section, "normal", source)
    offset = read_numbers(section.get("offset"), (), section.at("offset")) * source.units.length
    with section.place.blamed():
        limit = PositionLimit(frame, normal, offset, **fields.share(section))
    return elastic(section, KEY, limit, name=f"half_space_{number}") if KEY in section else limit


def _distance(section: Section, number: int, source: Source) -> DistanceLimit | Elastic:
    ends = ("first", "second")
    section.allow(*ends, *map(fields.kind_key, ends), "distance", *fields.SHARE, KEY)
    first, second = (fields.frame(section, end, source) for end in ends)
    distance = fields.length(section, "distance", source)
    with section.place.blamed():
        limit = DistanceLimit(first, second, distance, **fields.share(section))
    return elastic(section, KEY, limit, name=f"distance_{number}") if KEY in section else limit


# Limits of which there may be several: by their key, how each is read and written.
_LISTED: dict[str, tuple[Callable[[Section, int, Source], Limit | Elastic], str]] = {
    "half_spaces": (_half_space, "{frame: NAME, normal: [x, y, z], offset: DISTANCE}"),
    "distances": (_distance, "{first: FRAME, second: FRAME, distance: LENGTH}"),
    "tasks": (read_task_limit, FORM),
}


def read_constraints(
    root: Section, tasks: Section, source: Source, of_motion: bool = False
) -> dict[str, Task | Elastic] | None:
    """Read the tasks under the key `constraints`; without it None, the model's own constraints; `{}` gives none.

    Args:
      of_motion: as of `read_tasks`.
    """
    if "constraints" not in root:
        return None
    if root.get("constraints") == {}:
        return {}
    constraints = root.section("constraints")
    for name in constraints.values:
        section = constraints.section(name)
        if name in tasks:
            section.place.fail(f"tasks has {name!r} already: results are named by both, so give it another name")
        if "priority" in section:
            section.at("priority").fail(
                "constraints hold before all tasks, and before none of each other: leave it out"
            )
    written = {name: constraints.section(name) for name in constraints.values}
    plain = {name: without_elastic(section).values for name, section in written.items()}
    found: dict[str, Task | Elastic] = dict(read_tasks(Section(plain, constraints.place), source, of_motion))
    for name, section in written.items():
        if KEY in section:
            found[name] = elastic(section, KEY, found[name])
    return found


def read_fixed_joints(root: Section, source: Source) -> np.ndarray | None:
    """Read which degrees of freedom move (nv,): False for joints under the key `fixed_joints`; None: all move."""
    if "fixed_joints" not in root:
        return None
    moves = np.ones(source.robot.nv, bool)
    for name in fields.joints(root, "fixed_joints", source):
        moves[list(named_joint(source.robot, name, root.at("fixed_joints")).v_indices)] = False
    return moves
