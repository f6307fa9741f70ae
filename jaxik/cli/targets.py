"""Targets of tasks: as written, from a file, where a configuration has them, or where random ones do."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jaxlie
import numpy as np

from jaxik.cli import fields
from jaxik.cli.configurations import of_one_unit, rate_factors, read_configuration
from jaxik.cli.fields import Source
from jaxik.cli.poses import POSE_KEYS, ROTATIONS, Needs, read_pose
from jaxik.cli.section import Place, Section, read_numbers
from jaxik.cli.target_files import read_target_file

_BLOCK = 65536  # configurations whose kinematics are evaluated at once: about 100 MB for an arm
_WHOLE = ("sample", "file", "from")  # keys of a target that is not written out


@dataclasses.dataclass(frozen=True)
class Aimless:
    """A task that still needs its target.

    Attributes:
      task: its class.
      given: its other arguments.
    """

    task: Any
    given: dict[str, Any]
    section: Section
    source: Source

    def at(self, q: Any, field: str) -> np.ndarray:
        """The target that the configurations `q` (*batch, nq) meet."""
        with self.section.place.blamed():
            value = getattr(self.task.from_configuration(self.source.robot, q, **self.given), field)
        return np.asarray(value.wxyz_xyz if isinstance(value, jaxlie.SE3) else value)


@dataclasses.dataclass(frozen=True)
class Target:
    """How the targets of a type of task are written.

    Attributes:
      written: reads one that is written out.
      shifted: reads what a target that is taken from a configuration differs in; None: in nothing.
      listed: whether one that is written out is a list of numbers.
      from_file: reads those of a file; None: they are in no file.
      key, field: where it stands in the configuration, and in the task.
    """

    written: Callable[[Any, Place, Aimless], np.ndarray]
    shifted: Callable[[np.ndarray, Section, Aimless], np.ndarray] | None = None
    listed: bool = False
    from_file: Callable[[Section, Aimless], np.ndarray] | None = None
    key: str = "target"
    field: str = "target"


def read_target(kind: Target, task: Aimless) -> np.ndarray:
    """The targets of a task: one, or several with a leading axis."""
    place, value = task.section.at(kind.key), task.section.get(kind.key)
    if isinstance(value, list) and not (kind.listed and value and isinstance(value[0], int | float)):
        each = [_single(item, place / i, kind, task) for i, item in enumerate(value)]
        targets = np.stack(each) if each else place.fail("is empty")
    elif isinstance(value, Mapping) and "sample" in value:
        targets = _sampled(Section(value, place), kind, task)
    elif isinstance(value, Mapping) and "file" in value and kind.from_file:
        targets = kind.from_file(Section(value, place), task)
    else:
        return _single(value, place, kind, task)
    # Of fewer than are asked for, all: tasks have to agree, and that is checked where they meet.
    targets = targets[: task.source.count]
    return targets if len(targets) > 1 else targets[0]


def _single(value: Any, place: Place, kind: Target, task: Aimless) -> np.ndarray:
    if not (isinstance(value, Mapping) and "from" in value):
        return kind.written(value, place, task)
    section, source = Section(value, place), task.source
    if not kind.shifted:
        section.allow("from")
    q = read_configuration(section.get("from"), section.at("from"), source.robot, source.units)
    target = task.at(q, kind.field)
    return kind.shifted(target, section, task) if kind.shifted else target


def _sampled(section: Section, kind: Target, task: Aimless) -> np.ndarray:
    """What random configurations meet; tasks share the configurations, so that they can be met together."""
    section.allow("sample")
    count = section.integer("sample", least=1) if task.source.count is None else task.source.count
    q = task.source.robot.sample(jax.random.key(task.source.seed), (count,))
    return np.concatenate([task.at(q[i : i + _BLOCK], kind.field) for i in range(0, count, _BLOCK)])


def _needs(task: Aimless) -> Needs:
    return Needs(*(task.given.get(cost, 1) is not None for cost in ("position_cost", "orientation_cost")))


def _pose(value: Any, place: Place, task: Aimless) -> np.ndarray:
    section = Section(value, place)
    section.allow(*_WHOLE, *POSE_KEYS)
    return read_pose(section, task.source.units, _needs(task))


def _shifted_pose(pose: np.ndarray, section: Section, task: Aimless) -> np.ndarray:
    """A pose with another position or rotation, moved by `offset` and turned about the axes that it is in by `turn`."""
    section.allow("from", "offset", "turn", *POSE_KEYS)
    given = read_pose(section, task.source.units, Needs(position=False, rotation=False))
    whole = isinstance(section.get("matrix", None), list) and len(section.get("matrix")) == 4
    rotations = [key for key in ROTATIONS if key in section]
    if "offset" in section and ("position" in section or whole):
        section.place.fail("gives the position twice, in itself and as offset from a configuration")
    if "turn" in section and rotations:
        section.place.fail(f"gives the rotation twice, as {rotations[0]} and as turn from a configuration")
    rotation = given[:4] if rotations else pose[:4]
    position = given[4:] if "position" in section or whole else pose[4:]
    if "turn" in section:
        turn = section.section("turn")
        turn.allow(*ROTATIONS)
        by = read_pose(turn, task.source.units, Needs(position=False))
        rotation = np.asarray((jaxlie.SO3(by[:4]) @ jaxlie.SO3(rotation)).wxyz)  # type: ignore[arg-type]
    return np.concatenate([rotation, position + _offset(section, task)])


def _offset(section: Section, task: Aimless) -> np.ndarray:
    shift = fields.vector(section, "offset", task.source) if "offset" in section else np.zeros(3)
    return shift * task.source.units.length


def _point(value: Any, place: Place, task: Aimless) -> np.ndarray:
    section = Section(value, place)
    section.allow(*_WHOLE, "position")
    return fields.vector(section, "position", task.source) * task.source.units.length


def _shifted_point(point: np.ndarray, section: Section, task: Aimless) -> np.ndarray:
    section.allow("from", "offset")
    return point + _offset(section, task)


def _points_of_file(section: Section, task: Aimless) -> np.ndarray:
    needs = Needs(position=True, rotation=False)
    return read_target_file(section, task.source.folder, task.source.units, needs)[:, 4:]


def _rows(value: Any, place: Place, task: Aimless) -> np.ndarray:
    """Each row has the unit of the degrees of freedom that it adds up."""
    matrix, factors = task.given["matrix"], rate_factors(task.source.robot, task.source.units)
    numbers = read_numbers(value, (len(matrix),), place)
    return np.array([of_one_unit(x, factors[row != 0], place) for x, row in zip(numbers, matrix, strict=True)])


def _sum(value: Any, place: Place, task: Aimless) -> np.ndarray:
    number = float(read_numbers(value, (), place))
    return np.array(of_one_unit(number, fields.joint_factors(task.section, task.source), place))


def _radius(value: Any, place: Place, task: Aimless) -> np.ndarray:
    return read_numbers(value, (), place) * task.source.units.length


POSE = Target(
    _pose,
    _shifted_pose,
    from_file=lambda section, task: read_target_file(section, task.source.folder, task.source.units, _needs(task)),
)
POINT = Target(_point, _shifted_point, from_file=_points_of_file)
DIRECTION = Target(lambda value, place, task: read_numbers(value, (3,), place), listed=True)
CONFIGURATION = Target(
    lambda value, place, task: read_configuration(value, place, task.source.robot, task.source.units),
    listed=True,
    field="q",
)
NUMBER = Target(lambda value, place, task: read_numbers(value, (), place))
SUM = Target(_sum)
ROWS = Target(_rows, listed=True)
RADIUS = Target(_radius, key="radius", field="radius")
