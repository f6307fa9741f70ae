"""Read the paths of `jaxik track`: named shapes and waypoints, as targets over time."""

from typing import Any

import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.cli import fields, targets
from jaxik.cli.fields import Source
from jaxik.cli.section import Section, preview, read_numbers
from jaxik.cli.tasks import TYPES
from jaxik.robot.robot import Robot
from jaxik.solvers.tracking.interpolate import interpolate
from jaxik.solvers.tracking.shapes import SHAPES, eased
from jaxik.tasks.base import Task

LAPS = {"line": 0.5, "circle": 1.0, "lemniscate": 1.0}


def read_paths(section: Section, tasks: dict[str, Task], written: Section, times: np.ndarray, source: Source) -> Any:
    """Targets over time (T, ...) by task, of the key `paths`.

    Args:
      section: task to path.
      tasks, written: the tasks, and how they are written; a shape starts at the target of its task.
      times: (T,) [s], the end of each step.
    """
    found = {}
    for name in section.values:
        if name not in tasks:
            section.at(name).fail(f"is the path of a task, one of {', '.join(tasks)}")
        path, kind = section.section(name), TYPES[written.section(name).text("type", "frame")]
        if kind.target not in (targets.POSE, targets.POINT, targets.CONFIGURATION):
            path.place.fail("moves poses, points and postures; the target of this task is none of them")
        if "waypoints" in path:
            found[name] = _through_waypoints(path, written.section(name), kind, times, source)
        else:
            found[name] = _shaped(path, tasks[name], kind, times, source)
    return found


def _shaped(path: Section, task: Any, kind: Any, times: np.ndarray, source: Source) -> Any:
    """A line, circle or lemniscate that starts at the task's target, whose orientation stays."""
    if kind.target is targets.CONFIGURATION:
        path.place.fail("of a posture goes through waypoints: {waypoints: [...], times: [...]}")
    shape = path.choice("shape", tuple(SHAPES))
    path.allow("shape", "laps", "ramp", *(("to",) if shape == "line" else ("radius", "normal", "toward")))
    phase = 2 * np.pi * _laps(path, shape) * eased(jnp.asarray(times), _ramp(path, times[-1]))
    along, across = map(np.asarray, SHAPES[shape](phase))
    if shape == "line":
        shift = along[:, None] * fields.vector(path, "to", source) * source.units.length
    else:
        first, second = _plane(path, source)
        radius = path.number("radius") * source.units.length
        shift = radius * (along[:, None] * first + across[:, None] * second)
    start = np.asarray(task.target.wxyz_xyz if kind.target is targets.POSE else task.target)
    moved = np.tile(start, (len(times), 1))
    moved[:, -3:] += shift
    return jaxlie.SE3(moved) if kind.target is targets.POSE else moved  # type: ignore[arg-type]


def _laps(path: Section, shape: str) -> float:
    return path.number("laps") if "laps" in path else LAPS[shape]


def _ramp(path: Section, duration: float) -> float:
    """How long it speeds up, and slows down at the end [s]."""
    if "ramp" not in path:
        return duration / 5
    ramp = path.number("ramp")
    if not 0 < 2 * ramp <= duration:
        path.at("ramp").fail(f"is a time above 0 and up to half of the duration of {duration:g} s, not {ramp:g}")
    return ramp


def _plane(path: Section, source: Source) -> tuple[np.ndarray, np.ndarray]:
    """Two unit vectors (3,) in the plane of a shape: away from its centre where it starts, and the way it sets out."""
    normal = fields.vector(path, "normal", source) if "normal" in path else np.array([0.0, 0.0, 1.0])
    toward = fields.vector(path, "toward", source) if "toward" in path else None
    if not np.linalg.norm(normal) > 0:
        path.at("normal").fail("is a direction, of any length but zero")
    normal = normal / np.linalg.norm(normal)
    if toward is None:
        toward = np.eye(3)[np.argmin(np.abs(normal))]
    second = np.cross(normal, toward)
    if not np.linalg.norm(second) > 1e-6:
        path.at("toward").fail("is a direction in the plane, not along its normal")
    second = second / np.linalg.norm(second)
    return np.cross(second, normal), second


def _through_waypoints(path: Section, task: Section, kind: Any, times: np.ndarray, source: Source) -> Any:
    """A smooth path through targets, each written as those of the task are, from the task's own at time 0."""
    path.allow("waypoints", "times")
    given = path.get("waypoints")
    if not isinstance(given, list) or not given:
        path.at("waypoints").fail(f"is a list of targets, not {preview(given)}")
    target = kind.target
    given_fields = {key: read(task, key, source) for key, read in kind.fields.items() if key in task}
    values = [task.get(target.key), *given]
    if target is targets.CONFIGURATION and not isinstance(given[0], list | dict | str):
        path.at("waypoints").fail("is a list of configurations")
    stated = Section(task.values | {target.key: values}, path.at("waypoints"))
    points = targets.read_target(target, targets.Aimless(kind.task, given_fields, stated, source))
    when = np.concatenate([[0.0], read_numbers(path.get("times"), (len(given),), path.at("times"))])
    # The last step may end up to half a step before the duration.
    if when[-1] > times[-1] + times[0]:
        path.at("times").fail(f"goes on to {when[-1]:g} s, beyond the duration of {times[-1]:g} s")
    robot: Robot | None = source.robot if target is targets.CONFIGURATION else None
    with path.place.blamed():
        way = interpolate(
            jaxlie.SE3(points) if target is targets.POSE else points,  # type: ignore[arg-type]
            when,
            times,
            robot=robot,
        )
    return way
