"""All that a configuration asks for, ready to be solved."""

import dataclasses
from pathlib import Path
from typing import Any

import jaxlie
import numpy as np

from jaxik.cli.poses import read_units
from jaxik.cli.robot import read_robot
from jaxik.cli.section import Section
from jaxik.cli.start import read_start
from jaxik.cli.tasks import Source, read_tasks
from jaxik.cli.yaml_file import YamlFile
from jaxik.errors import JaxikError
from jaxik.problem import Problem
from jaxik.robot.model import Robot
from jaxik.solve import SolveOptions
from jaxik.tasks.base import Task
from jaxik.tasks.frame import FrameTask

KEYS = ("robot", "tasks", "start", "options", "units", "seed", "dtype", "output")
DTYPES = ("float32", "float64")


@dataclasses.dataclass(frozen=True)
class Job:
    """What is solved.

    Attributes:
      robot, options: as the configuration says.
      tasks: with targets of one common length n.
      start: (nq,), or (n, nq).
    """

    robot: Robot
    tasks: dict[str, FrameTask]
    start: np.ndarray
    options: SolveOptions

    @property
    def count(self) -> int:
        """The number of elements, n."""
        return len(next(iter(self.targets.values())))

    @property
    def targets(self) -> dict[str, np.ndarray]:
        """For each task (n, 7), quaternion wxyz and then position [m]."""
        return {name: np.asarray(task.target.wxyz_xyz) for name, task in self.tasks.items()}

    def part(self, rows: np.ndarray) -> tuple[Problem, np.ndarray]:
        """The problem and the start of some elements."""
        dtype = self.robot.q_home.dtype
        tasks: dict[str, Task] = {
            name: dataclasses.replace(self.tasks[name], target=_poses(target[rows].astype(dtype)))
            for name, target in self.targets.items()
        }
        start = self.start[rows] if self.start.ndim == 2 else self.start
        return Problem(self.robot, tasks), start.astype(dtype)


def read_dtype(root: Section, given: str | None) -> str:
    """The precision: as given on the command line, else under the key `dtype`, else float32."""
    stated = root.choice("dtype", DTYPES, "float32")
    return given or stated


def read_output(file: YamlFile, given: Path | None) -> Path | None:
    """The output: as given on the command line, else under the key `output`, relative to the configuration."""
    stated = file.root.text("output", None)
    return given or (file.path.parent / Path(stated).expanduser() if stated else None)


def read_job(file: YamlFile, *, count: int | None, seed: int | None, max_steps: int | None) -> Job:
    """Read what is solved; arguments that are not None replace what the configuration says.

    Raises:
      ConfigError: names the place of what is wrong, and what is allowed.
    """
    root, folder = file.root, file.path.parent
    units = read_units(root)
    stated = root.integer("seed", 0)
    source = Source(folder, units, stated if seed is None else seed, count)
    options = _options(root, max_steps)
    root.section("tasks")
    robot = read_robot(root, folder, units)
    tasks = _of_one_length(root, read_tasks(root, robot, source), count)
    length = len(next(iter(tasks.values())).target.wxyz_xyz)
    start = read_start(root, robot, units, source.seed, length)
    return Job(robot, tasks, start, options)


def _options(root: Section, max_steps: int | None) -> SolveOptions:
    given: dict[str, Any] = {}
    if "options" in root:
        section = root.section("options")
        section.allow("max_steps", "initial_damping", "step_tolerance")
        if "max_steps" in section:
            given["max_steps"] = section.integer("max_steps", least=1)
        given |= {key: section.number(key) for key in ("initial_damping", "step_tolerance") if key in section}
    if max_steps is not None:
        given["max_steps"] = max_steps
    return SolveOptions(**given)


def _of_one_length(root: Section, tasks: dict[str, FrameTask], count: int | None) -> dict[str, FrameTask]:
    """The tasks with targets of one length; a single target is everyone's."""
    lengths = {name: len(task.target.wxyz_xyz) for name, task in tasks.items()}
    length = max(lengths.values())
    if any(n not in (1, length) for n in lengths.values()):
        given = ", ".join(f"{name} {n}" for name, n in lengths.items())
        root.at("tasks").fail(f"have different numbers of targets: {given}; give as many to each, or a single one")
    if count is not None and length != count:
        raise JaxikError(f"--targets {count}: the configuration has {length}")
    return {
        name: dataclasses.replace(task, target=_poses(np.broadcast_to(np.asarray(task.target.wxyz_xyz), (length, 7))))
        for name, task in tasks.items()
    }


def _poses(wxyz_xyz: Any) -> jaxlie.SE3:
    """Kept as a numpy array: parts of it go to the device, the whole does not."""
    return jaxlie.SE3(wxyz_xyz)
