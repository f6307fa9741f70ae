"""Read the tasks of a configuration; `TYPES` has the keys of each type of task."""

import dataclasses
from typing import Any, NamedTuple

import jaxlie

from jaxik.cli import fields, targets
from jaxik.cli.fields import Read, Source
from jaxik.cli.section import Section
from jaxik.cli.targets import Aimless, Target, read_target
from jaxik.core.errors import unknown_name
from jaxik.tasks import frame, manipulability
from jaxik.tasks.axis_align import AxisAlignTask
from jaxik.tasks.base import Task
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


class Type(NamedTuple):
    """A type of task: its class, its target, and a reader for each other argument; all have `priority`.

    Attributes:
      of_world: whether it is about the obstacles of the configuration.
    """

    task: Any
    target: Target | None
    fields: dict[str, Read]
    of_world: bool = False


_POSE: dict[str, Read] = {
    "position_cost": fields.rows_or_none,
    "orientation_cost": fields.rows_or_none,
    "position_tolerance": fields.length,
    "orientation_tolerance": fields.angle,
    "mask": fields.mask,
}
_WHEEL: dict[str, Read] = {"hub": fields.frame, "floor": fields.frame, "tolerance": fields.length}
_POINTED: dict[str, Read] = {
    "frame": fields.frame,
    "axis": fields.vector,
    "cost": fields.number,
    "tolerance": fields.angle,
}

TYPES = {
    "frame": Type(FrameTask, targets.POSE, {"frame": fields.frame, "axes": fields.one_of(frame.AXES)} | _POSE),
    "relative_frame": Type(RelativeFrameTask, targets.POSE, {"frame": fields.frame, "root": fields.frame} | _POSE),
    "com": Type(ComTask, targets.POINT, {"subtree": fields.body, "cost": fields.rows(3), "tolerance": fields.length}),
    "posture": Type(
        PostureTask,
        targets.CONFIGURATION,
        {"cost": fields.joint_costs, "free_joints": fields.switch, "tolerance": fields.of_posture},
    ),
    "look_at": Type(LookAtTask, targets.POINT, _POINTED),
    "axis_align": Type(AxisAlignTask, targets.DIRECTION, _POINTED),
    "joint_coupling": Type(
        JointCouplingTask,
        targets.SUM,
        {"joints": fields.joints, "ratios": fields.ratios, "cost": fields.number, "tolerance": fields.of_joints},
    ),
    "linear_holonomic": Type(
        LinearHolonomicTask,
        targets.ROWS,
        {"matrix": fields.matrix, "q0": fields.configuration, "cost": fields.rows(None), "tolerance": fields.of_matrix},
    ),
    "equality_constraint": Type(
        EqualityConstraintTask,
        None,
        {"equalities": fields.equalities, "cost": fields.rows(None), "tolerance": fields.of_equalities},
    ),
    "rolling": Type(RollingTask, targets.RADIUS, _WHEEL | {"cost": fields.rows(3)}),
    "omniwheel": Type(OmniwheelTask, targets.RADIUS, _WHEEL | {"cost": fields.rows(2), "axle": fields.vector}),
    "manipulability": Type(
        ManipulabilityTask,
        targets.NUMBER,
        {
            "frame": fields.frame,
            "mask": fields.flags,
            "axes": fields.one_of(manipulability.AXES),
            "cost": fields.number,
            "tolerance": fields.number,
        },
    ),
    "clearance": Type(
        ClearanceTask,
        None,
        {
            "distance": fields.length,
            "pairs": fields.pairs,
            "cost": fields.number,
            "rows": fields.count,
            "tolerance": fields.length,
        },
        of_world=True,
    ),
    "distance": Type(
        DistanceTask,
        None,
        {"pairs": fields.pairs, "distance": fields.length, "cost": fields.number, "tolerance": fields.length},
        of_world=True,
    ),
}
# What differential IK reads of every task.
MOTION: dict[str, Read] = {"gain": fields.number, "lm_damping": fields.number}
VELOCITY_TYPES = ("damping", "joint_velocity", "low_acceleration", "kinetic_energy")


def read_tasks(section: Section, source: Source, of_motion: bool = False) -> dict[str, Task]:
    """Read the tasks of a section, by name; several targets have a leading axis.

    Args:
      of_motion: whether they may say how differential IK serves them.
    """
    if not section.values:
        section.place.fail("is empty; a problem needs at least one task")
    tasks = {}
    for name in section.values:
        if not name or "/" in name:
            section.place.fail(f"names are not empty and without '/', which parts names in the output: {name!r}")
        tasks[name] = read_task(section.section(name), source, MOTION if of_motion else {})
    return tasks


def read_task(section: Section, source: Source, more: dict[str, Read] | None = None) -> Task:
    """Read one task, of the fields of its type and of `more`."""
    kind = _type(section)
    readers: dict[str, Read] = {"priority": fields.whole} | kind.fields | (more or {})
    kinds = [fields.kind_key(key) for key, read in readers.items() if read is fields.frame]
    section.allow("type", *readers, *kinds, *([kind.target.key] if kind.target else []))
    needed = {field.name for field in dataclasses.fields(kind.task) if field.default is dataclasses.MISSING}
    given = {key: read(section, key, source) for key, read in readers.items() if key in section or key in needed}
    given |= {"world": source.world} if kind.of_world else {}
    target = kind.target
    # A target with a default, as the sum of a coupling has one, need not be written.
    if target and (target.key in section or target.field in needed):
        value = read_target(target, Aimless(kind.task, given, section, source))
        given |= {target.field: jaxlie.SE3(value) if target is targets.POSE else value}  # type: ignore[arg-type]
    with section.place.blamed():
        task = kind.task(**given)
        task.check(source.robot)
    return task


def _type(section: Section) -> Type:
    name = section.text("type", "frame")
    with section.at("type").blamed():
        if name in VELOCITY_TYPES:
            section.at("type").fail(
                f"{name} is a velocity task: it says how to move and acts in differential IK only, where solve looks "
                f"for a configuration; one of {', '.join(TYPES)}"
            )
        if name not in TYPES:
            raise unknown_name("type of task", name, TYPES)
    return TYPES[name]
