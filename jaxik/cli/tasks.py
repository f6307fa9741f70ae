"""The tasks of a configuration, each with its targets."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jaxlie
import numpy as np

from jaxik.cli.poses import POSE_KEYS, Needs, Units, read_pose
from jaxik.cli.section import Section, read_numbers, shown
from jaxik.cli.target_files import read_target_file
from jaxik.robot.model import Robot
from jaxik.robot.topology import Frame
from jaxik.tasks.frame import AXES, FrameTask

_BLOCK = 65536  # configurations whose kinematics are evaluated at once: about 100 MB for an arm


@dataclasses.dataclass(frozen=True)
class Source:
    """What targets are made from, besides their own section.

    Attributes:
      folder: where paths of the configuration start.
      units: of the configuration.
      seed: of everything that is sampled.
      count: so many targets are drawn, or taken of those that are listed; None: as the configuration says.
    """

    folder: Path
    units: Units
    seed: int
    count: int | None


def read_tasks(root: Section, robot: Robot, source: Source) -> dict[str, FrameTask]:
    """The tasks under the key `tasks`, by name, with targets (n, 7) or (1, 7) each."""
    section = root.section("tasks")
    if not section.values:
        section.place.fail("is empty; a problem needs at least one task")
    tasks = {}
    for name in section.values:
        if not name or "/" in name:
            section.place.fail(f"names are not empty and without '/', which parts names in the output: {name!r}")
        task = section.section(name)
        kind = task.choice("type", tuple(TASKS), "frame")
        tasks[name] = TASKS[kind](task, robot, source)
    return tasks


def _frame_task(section: Section, robot: Robot, source: Source) -> FrameTask:
    costs, tolerances = ("position_cost", "orientation_cost"), ("position_tolerance", "orientation_tolerance")
    section.allow("type", "frame", "kind", "target", "axes", "mask", *costs, *tolerances)
    kind = section.choice("kind", ("site", "body", "geom"), None)
    name = section.text("frame")
    with section.at("frame").blamed():
        frame = robot.frame(name, kind)
    given: dict[str, Any] = {}
    for cost in costs:
        if cost in section:
            given[cost] = None if section.get(cost) is None else section.number_or_axes(cost)
    for tolerance, unit in zip(tolerances, source.units, strict=True):
        if tolerance in section:
            given[tolerance] = section.number(tolerance) * unit
    if "axes" in section:
        given["axes"] = section.choice("axes", AXES)
    if "mask" in section:
        given["mask"] = _mask(section)
    needs = Needs(*(given.get(cost, 1) is not None for cost in costs))
    target = read_target(section, robot, frame, source, needs)
    with section.place.blamed():
        return FrameTask(frame, jaxlie.SE3(target), **given)  # type: ignore[arg-type]


TASKS: dict[str, Callable[[Section, Robot, Source], FrameTask]] = {"frame": _frame_task}


def _mask(section: Section) -> np.ndarray:
    value = section.get("mask")
    flags = [float(x) if isinstance(x, bool) else x for x in value] if isinstance(value, list) else value
    mask = read_numbers(flags, (6,), section.at("mask"))
    if not ((mask >= 0) & (mask <= 1)).all():
        section.at("mask").fail(f"weights rows by numbers from 0 to 1, not {shown(value)}")
    return mask


def read_target(section: Section, robot: Robot, frame: Frame, source: Source, needs: Needs) -> np.ndarray:
    """The targets of a task (n, 7), quaternion wxyz and then position [m]: sampled, from a file, or as written."""
    place, value = section.at("target"), section.get("target")
    if isinstance(value, list):
        poses = [_written(Section(item, place / i), source, needs) for i, item in enumerate(value)]
        return _first(np.stack(poses) if poses else place.fail("is empty"), source)
    target = Section(value, place)
    if "sample" in target:
        target.allow("sample")
        count = target.integer("sample", least=1)
        return sampled_targets(robot, frame, count if source.count is None else source.count, source.seed)
    if "file" in target:
        return _first(read_target_file(target, source.folder, source.units, needs), source)
    return _written(target, source, needs)[None]


def _written(section: Section, source: Source, needs: Needs) -> np.ndarray:
    section.allow("sample", "file", *POSE_KEYS)
    return read_pose(section, source.units, needs)


def _first(targets: np.ndarray, source: Source) -> np.ndarray:
    # Of fewer than are asked for, all: tasks have to agree, and that is checked where they meet.
    return targets[: source.count]


def sampled_targets(robot: Robot, frame: Frame, count: int, seed: int) -> np.ndarray:
    """Where random configurations have the frame: (count, 7), quaternion wxyz and then position [m].

    Frames of one robot share the configurations, so that the targets of several tasks can be met together.
    """
    q = robot.sample(jax.random.key(seed), (count,))
    poses = [np.asarray(robot.frame_pose(q[i : i + _BLOCK], frame).wxyz_xyz) for i in range(0, count, _BLOCK)]
    return np.concatenate(poses)
