"""Describe tasks for the summary and the output file: parts of their targets and errors, with units."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxik.kinematics.frames import Frame
from jaxik.tasks.axis_align import AxisAlignTask
from jaxik.tasks.com import ComTask
from jaxik.tasks.equality_constraint import EqualityConstraintTask
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.joint_coupling import JointCouplingTask
from jaxik.tasks.linear_holonomic import LinearHolonomicTask
from jaxik.tasks.look_at import LookAtTask
from jaxik.tasks.manipulability import ManipulabilityTask
from jaxik.tasks.omniwheel import OmniwheelTask
from jaxik.tasks.posture import PostureTask
from jaxik.tasks.relative_frame import RelativeFrameTask
from jaxik.tasks.rolling import RollingTask
from jaxik.tasks.weights import row_weights


class Part(NamedTuple):
    """One part of a target: an array (*batch, *core), its core rank, its name, and its unit."""

    name: str
    value: np.ndarray
    unit: str
    rank: int = 1


class Measure(NamedTuple):
    """The parts of a type of task and its line in the summary.

    Attributes:
      part: name of its error, if that has no named parts.
      describe: its line in the summary, from the task and "a target" or "8 targets".
      target: splits its target into parts.
    """

    part: str
    describe: Callable[[Any, str], str]
    target: Callable[[Any], list[Part]]


def named(frame: Frame) -> str:
    return f"{frame.kind} {frame.name or frame.index}"


def _pose(task: Any) -> list[Part]:
    pose = np.asarray(task.target.wxyz_xyz)
    return [Part("position", pose[..., 4:], "m"), Part("quaternion", pose[..., :4], "1")]


def _as(name: str, unit: str, field: str = "target", rank: int = 1) -> Callable[[Any], list[Part]]:
    return lambda task: [Part(name, np.asarray(getattr(task, field)), unit, rank)]


def _wheel(task: Any, what: str) -> str:
    return f"{named(task.hub)} above {named(task.floor)} at {what}"


def _com(task: Any, what: str) -> str:
    part = "" if task.subtree is None else f" of {task.subtree} and what it carries"
    return f"centre of mass{part} to {what}"


def _equalities(task: Any, what: str) -> str:
    return f"equality constraints {', '.join(equality.label for equality in task.equalities)}"


MEASURES: dict[type, Measure] = {
    FrameTask: Measure("", lambda t, what: f"{named(t.frame)} to {what}", _pose),
    RelativeFrameTask: Measure("", lambda t, what: f"{named(t.frame)} to {what} in {named(t.root)}", _pose),
    ComTask: Measure("position", _com, _as("position", "m")),
    PostureTask: Measure("joints", lambda t, what: f"posture to {what}", _as("q", "see q_unit", "q")),
    LookAtTask: Measure("direction", lambda t, what: f"{named(t.frame)} looks at {what}", _as("position", "m")),
    AxisAlignTask: Measure("direction", lambda t, what: f"{named(t.frame)} points along {what}", _as("direction", "1")),
    JointCouplingTask: Measure(
        "sum", lambda t, what: f"sum of {', '.join(t.joints)} to {what}", _as("sum", "rad or m", rank=0)
    ),
    LinearHolonomicTask: Measure(
        "rows", lambda t, what: f"linear relations of joints to {what}", _as("rows", "rad or m")
    ),
    EqualityConstraintTask: Measure("rows", _equalities, lambda t: []),
    RollingTask: Measure("height", _wheel, _as("radius", "m", "radius", 0)),
    OmniwheelTask: Measure("height", _wheel, _as("radius", "m", "radius", 0)),
    ManipulabilityTask: Measure(
        "manipulability",
        lambda t, what: f"manipulability of {named(t.frame)} to {what}",
        _as("manipulability", "1", rank=0),
    ),
}


class ErrorPart(NamedTuple):
    """One part of a task's error.

    Attributes:
      rows (n, m): of all elements.
      unit: "" where it has none.
      counts (m,): whether a row has a weight, and so belongs to the norm that the tolerance is of.
      tolerance: None where the task has none.
    """

    part: str
    rows: np.ndarray
    unit: str
    counts: np.ndarray
    tolerance: float | None


def error_parts(task: Any, error: Any) -> list[ErrorPart]:
    """Split the error of a task into parts, linear ones first.

    Args:
      error: of n elements, (n, m) or a dict of such.
    """
    weights, tolerances, units = row_weights(task, _first(error)), task.tolerances(), task.unit
    if not isinstance(error, dict):
        part = MEASURES[type(task)].part
        error, weights, tolerances, units = {part: error}, {part: weights}, {part: tolerances}, {part: units}
    return [
        ErrorPart(
            part,
            np.asarray(rows),
            units[part].removeprefix("1"),
            np.asarray(weights[part]) != 0,
            None if tolerances[part] is None else float(tolerances[part]),
        )
        for part, rows in sorted(error.items(), reverse=True)
    ]


def targets(task: Any, count: int) -> list[Part]:
    """Split a task's target into parts (count, *core) of the first `count` elements; a single target is repeated."""
    parts = []
    for part in MEASURES[type(task)].target(task):
        core = part.value.shape[part.value.ndim - part.rank :]
        value = part.value[:count] if part.value.ndim > part.rank else np.broadcast_to(part.value, (count, *core))
        parts.append(part._replace(value=value))
    return parts


def _first(error: Any) -> Any:
    return {part: rows[0] for part, rows in error.items()} if isinstance(error, dict) else error[0]
