"""Save a pose as the start of a configuration, in a new file beside what was read."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from jaxik.cli.configurations import coordinate_factors, read_configuration
from jaxik.cli.poses import SI, Units, read_units
from jaxik.cli.section import Place
from jaxik.cli.yaml_file import YamlFile, parse, read_failure
from jaxik.core.errors import JaxikError
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot
from jaxik.tasks.frame import FrameTask

# Called with q (nq,) and the targets by task, poses (7,) or points (3,); returns the file that was written.
Saver = Callable[[np.ndarray, dict[str, np.ndarray]], Path]
# Significant digits: no float32 reads differently.
DIGITS = 9
# A saved start is read as the pose was to this [rad, m].
ROUNDING = 1e-6


def save_into(file: YamlFile, robot: Robot) -> Saver:
    """Copies of a configuration with another start, its text left as it is otherwise."""

    def save(q: np.ndarray, _: dict[str, np.ndarray]) -> Path:
        units = read_units(file.root)
        text = with_start(file.text, start_of(robot, q, units))
        _check_start(text, file, robot, units, q)
        return write_beside(file.path, text)

    return save


def save_new(source: str, problem: Problem) -> Saver:
    """New configurations in the working directory, with a task for each end of a robot, as `problem_of` has them."""

    def save(q: np.ndarray, targets: dict[str, np.ndarray]) -> Path:
        tasks: dict[str, Any] = {}
        for name, task in problem.tasks.items():
            if isinstance(task, FrameTask):
                place = {"position": _numbers(targets[name][4:]), "quaternion": _numbers(targets[name][:4])}
                tasks[name] = {"frame": task.frame.name, "kind": task.frame.kind, "target": place}
        values = {"robot": source, "start": start_of(problem.robot, q, SI), "tasks": tasks}
        text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=120)
        return write_beside(Path(f"{Path(source).stem}.yaml"), text)

    return save


def start_of(robot: Robot, q: np.ndarray, units: Units) -> dict[str, Any]:
    """A configuration (nq,) by joint, as `start` reads it."""
    found = {}
    for joint in robot.topology.joints:
        numbers = _numbers(q[list(joint.q_indices)] / coordinate_factors(joint, units))
        found[joint.name] = numbers[0] if len(numbers) == 1 else numbers
    return found


def with_start(text: str, start: Any) -> str:
    """The text of a configuration with another value of `start`, comments and all else as they are."""
    line = "start: " + yaml.safe_dump(start, default_flow_style=True, width=np.inf, sort_keys=False)
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    for key, value in root.value:
        if key.value == "start":
            return text[: key.start_mark.index] + line.rstrip() + text[_end(value) :]
    return text.rstrip("\n") + "\n\n" + line


def _end(node: yaml.Node) -> int:
    """Where the text of a node ends. A block itself ends where the next key begins, behind comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.index


def write_beside(path: Path, text: str) -> Path:
    """Write a file that is not there yet, named after one that may be: `NAME_pose.yaml`, `NAME_pose2.yaml`, ..."""
    names = (f"{path.stem}_pose{count if count > 1 else ''}.yaml" for count in itertools.count(1))
    new = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise JaxikError(f"{new}: {read_failure(error)}") from None
    return new


def _check_start(text: str, file: YamlFile, robot: Robot, units: Units, q: np.ndarray) -> None:
    """Raise a `JaxikError` where the text does not read as the file with another start: in rare forms of YAML."""
    place = Place(str(file.path))
    try:
        values = parse(text, place)
        same = {k: v for k, v in values.items() if k != "start"} == {
            k: v for k, v in file.root.values.items() if k != "start"
        }
        read = read_configuration(values["start"], place, robot, units)
    except (JaxikError, KeyError, AttributeError):
        same, read = False, q
    if not (same and np.allclose(read, q, rtol=0, atol=ROUNDING)):
        raise JaxikError(f"{file.path} is written in a way in which start cannot be replaced; write it yourself: {q}")


def _numbers(values: Any) -> list[float]:
    return [float(f"{x:.{DIGITS}g}") for x in np.asarray(values, float)]
