"""Describe tasks for the summary: a line each, and the parts of their errors, with units."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxik.kinematics.frames import Frame
from jaxik.tasks.axis_align import AxisAlignTask
from jaxik.tasks.clearance import ClearanceTask
from jaxik.tasks.com import ComTask
from jaxik.tasks.distance import DistanceTask
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


class Measure(NamedTuple):
    """The error of a type of task and its line in the summary.

    Attributes:
      part: name of its error, if that has no named parts.
      describe: its line in the summary, from the task and "a target" or "8 targets".
    """

    part: str
    describe: Callable[[Any, str], str]


def named(frame: Frame) -> str:
    return f"{frame.kind} {frame.name or frame.index}"


def _wheel(task: Any, what: str) -> str:
    return f"{named(task.hub)} above {named(task.floor)} at {what}"


def _com(task: Any, what: str) -> str:
    part = "" if task.subtree is None else f" of {task.subtree} and what it carries"
    return f"centre of mass{part} to {what}"


def _pairs(task: Any, what: str) -> str:
    names = ", ".join(f"{first} and {second}" for first, second in task.pairs)
    return f"{names} {1e3 * float(task.distance):.3g} mm apart"


def _equalities(task: Any, what: str) -> str:
    return f"equality constraints {', '.join(equality.label for equality in task.equalities)}"


MEASURES: dict[type, Measure] = {
    FrameTask: Measure("", lambda t, what: f"{named(t.frame)} to {what}"),
    RelativeFrameTask: Measure("", lambda t, what: f"{named(t.frame)} to {what} in {named(t.root)}"),
    ComTask: Measure("position", _com),
    PostureTask: Measure("joints", lambda t, what: f"posture to {what}"),
    LookAtTask: Measure("direction", lambda t, what: f"{named(t.frame)} looks at {what}"),
    AxisAlignTask: Measure("direction", lambda t, what: f"{named(t.frame)} points along {what}"),
    JointCouplingTask: Measure("sum", lambda t, what: f"sum of {', '.join(t.joints)} to {what}"),
    LinearHolonomicTask: Measure("rows", lambda t, what: f"linear relations of joints to {what}"),
    EqualityConstraintTask: Measure("rows", _equalities),
    RollingTask: Measure("height", _wheel),
    OmniwheelTask: Measure("height", _wheel),
    ClearanceTask: Measure("missing", lambda t, what: f"shapes {1e3 * float(t.distance):.3g} mm apart"),
    DistanceTask: Measure("distance", _pairs),
    ManipulabilityTask: Measure("manipulability", lambda t, what: f"manipulability of {named(t.frame)} to {what}"),
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


def _first(error: Any) -> Any:
    return {part: rows[0] for part, rows in error.items()} if isinstance(error, dict) else error[0]
