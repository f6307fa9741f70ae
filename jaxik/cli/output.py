"""The output of `jaxik solve`: an `.npz` file of named arrays, read by `numpy.load(path)`.

With n elements, in SI units:

| array | shape | |
|---|---|---|
| `q` | (n, nq) | configurations, inside the joint limits |
| `q_joint`, `q_unit` | (nq,) | for each column of `q`: its joint; "rad", "m", or "1" (a quaternion's, wxyz) |
| `status` | (n,) | `jaxik.Status`; `status_names[status]` are their names |
| `iterations` | (n,) | steps taken |
| `cost` | (n,) | 1/2 the sum of squared weighted residuals |
| `stationarity` | (n,) | size of the step that was left [rad or m] |
| `residuals/TASK/PART` | (n, 3) | what is left to the target: position [m], orientation [rad], a rotation vector |
| `targets/TASK/position` | (n, 3) | [m] |
| `targets/TASK/quaternion` | (n, 4) | wxyz |
| `start` | (nq,) or (n, nq) | where solving started |

And for whoever finds the file: `format` "jaxik solution", `format_version`, `jaxik_version`, `robot`, `joint_names`
(njoint,), `dtype`, `units` (JSON: array to unit), `elements_asked` (more than n where a person interrupted it),
`config` (the text of the configuration) and `arguments` (JSON: options of the command line that replace parts of it).
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

import jaxik
from jaxik.cli.job import Job
from jaxik.errors import JaxikError
from jaxik.robot.model import Robot
from jaxik.robot.topology import JointType
from jaxik.solve import Solution
from jaxik.status import Status

FORMAT_VERSION = 1
PART_UNITS = {"position": "m", "orientation": "rad"}


@contextlib.contextmanager
def reserved(path: Path | None, force: bool) -> Iterator[IO[bytes] | None]:
    """A file to write that becomes `path` at the end, if nothing failed; until then `path` stays as it is.

    Raises:
      JaxikError: if it cannot be written, or exists and `force` is not given.
    """
    if path is None:
        yield None
        return
    if path.suffix != ".npz":
        raise JaxikError(f"output {path}: is an .npz file, not {path.suffix or 'one without an ending'}")
    if path.is_dir():
        raise JaxikError(f"output {path}: is a folder")
    if path.exists() and not force:
        raise JaxikError(f"output {path}: exists already; choose another name, or --force to replace it")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        file = temporary.open("xb")
    except OSError as error:
        raise JaxikError(f"output {path}: {error.strerror}") from None
    try:
        with file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_solution(file: IO[bytes], job: Job, solution: Solution, config: str, arguments: dict[str, Any]) -> None:
    """Write an `.npz` with the arrays that this module's text lists."""
    count = len(solution.q)
    arrays: dict[str, Any] = {
        "q": solution.q,
        "status": solution.status,
        "iterations": solution.iterations,
        "cost": solution.cost,
        "stationarity": solution.stationarity,
        "start": job.start if job.start.ndim == 1 else job.start[:count],
    }
    units = {"q": "see q_unit", "start": "see q_unit", "stationarity": "rad or m"}
    for task, parts in solution.residuals.items():
        for part, value in parts.items():
            arrays[f"residuals/{task}/{part}"] = value
            units[f"residuals/{task}/{part}"] = PART_UNITS[part]
    for task, target in job.targets.items():
        arrays[f"targets/{task}/position"] = target[:count, 4:]
        arrays[f"targets/{task}/quaternion"] = target[:count, :4]
        units[f"targets/{task}/position"] = "m"
    q_joint, q_unit = _columns(job.robot)
    np.savez(
        file,
        allow_pickle=False,
        **arrays,
        q_joint=q_joint,
        q_unit=q_unit,
        joint_names=list(job.robot.joint_names),
        status_names=[status.name for status in Status],
        units=json.dumps(units),
        robot=job.robot.name,
        dtype=str(solution.q.dtype),
        elements_asked=job.count,
        format="jaxik solution",
        format_version=FORMAT_VERSION,
        jaxik_version=jaxik.__version__,
        config=config,
        arguments=json.dumps(arguments),
    )


def _columns(robot: Robot) -> tuple[list[str], list[str]]:
    """For each column of a configuration, its joint and its unit."""
    units = {
        JointType.HINGE: ["rad"],
        JointType.SLIDE: ["m"],
        JointType.BALL: ["1"] * 4,
        JointType.FREE: ["m"] * 3 + ["1"] * 4,
    }
    joints = robot.topology.joints
    return [j.name for j in joints for _ in j.q_indices], [unit for j in joints for unit in units[j.type]]
