"""Read and solve what a picture or a page shows."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxik.cli.batches import solve_part
from jaxik.cli.job import KEYS, Job, check_keys, read_dtype, read_job
from jaxik.cli.plans import KEYS as PLAN_KEYS
from jaxik.cli.plans import read_plan
from jaxik.cli.poses import read_units
from jaxik.cli.robot import read_robot
from jaxik.cli.tracking import KEYS as TRACK_KEYS
from jaxik.cli.tracking import TrackJob, follow, read_track_job
from jaxik.cli.yaml_file import YamlFile, read_yaml
from jaxik.core.errors import JaxikError
from jaxik.datasets.dataset import Dataset
from jaxik.datasets.rows import RowSolver
from jaxik.pictures.drawing import evenly
from jaxik.problem.problem import Problem
from jaxik.results.solution import Solution
from jaxik.results.track import Track
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

# Elements that are solved for a picture, a film or a page, which show fewer: one program serves all three.
SOLVED = 200
RANDOM = "{path}: its rows have robots or obstacles of their own (randomize): a picture shows one robot"
NO_MODEL = "{path}: its plan names no model of its robot as it is; show the configuration that it was made from"


def is_configuration(source: str) -> bool:
    """Whether a CONFIG is meant, and not a ROBOT."""
    return Path(source).suffix.lower() in (".yaml", ".yml")


def is_motion(source: str) -> bool:
    """Whether a CONFIG is one of `jaxik track`."""
    return is_configuration(source) and not is_dataset(source) and "track" in read_yaml(Path(source)).root


def is_dataset(source: str) -> bool:
    """Whether rows are meant: a folder of `jaxik generate`, or its CONFIG."""
    return Path(source).is_dir() or (is_configuration(source) and "dataset" in read_yaml(Path(source)).root)


class Played(NamedTuple):
    """Configurations (T + 1, nq), from the first on, and the duration between two of them [s]."""

    q: np.ndarray
    dt: float


class Rows(NamedTuple):
    """Rows of a dataset: its model, or None of a CONFIG, configurations (n, nq), statuses (n,), the first motion."""

    model: str | None
    q: np.ndarray
    status: np.ndarray
    motion: Played | None


def load_drawn(source: str) -> Robot:
    """Load a robot with what its model shows; a saved robot has nothing of that."""
    return load_robot(source, meshes=Path(source).suffix.lower() != ".npz")


def solve_first(path: Path, most: int) -> tuple[YamlFile, Job, Problem, Solution]:
    """Read a configuration, and solve the first of its elements, at most so many; the solution is on the host."""
    file = read_yaml(path)
    check_keys(file.root, KEYS)
    with jax.enable_x64(read_dtype(file.root, None) == "float64"):
        job = read_job(file, count=None, seed=None, max_steps=None, meshes=True)
        solved = jax.device_get(solve_part(*job.part(np.arange(min(job.count, SOLVED)))))
        shown = job.part(np.arange(min(job.count, most)))[0]
        return file, job, shown, jax.tree.map(lambda x: x[:most], solved)


def follow_paths(path: Path) -> tuple[YamlFile, TrackJob, Track]:
    """Read a configuration of `jaxik track`, and follow its paths; the motion is on the host."""
    file = read_yaml(path)
    check_keys(file.root, TRACK_KEYS)
    with jax.enable_x64(read_dtype(file.root, None) == "float64"):
        job = read_track_job(file, meshes=True)
        return file, job, jax.device_get(follow(job))


def read_rows(path: Path, most: int) -> tuple[Robot, Rows]:
    """The robot of a dataset, and at most so many of its rows, evenly taken, of each the best solution.

    Args:
      path: of its folder, or of its configuration, whose rows are solved now.
    """
    if path.is_dir():
        model, rows, dt = _stored(path, most)
        robot = load_drawn(model)
    else:
        model, (robot, rows, dt) = None, _generated(path, most)
    q, status = (rows[name].reshape(len(rows[name]), -1) for name in ("q", "status"))
    played = None if dt is None else Played(np.concatenate([rows["q0"][:1], rows["q"][0]]), dt)
    return robot, Rows(model, q[:, : robot.nq], status[:, 0], played)


def _stored(path: Path, most: int) -> tuple[str, dict[str, np.ndarray], float | None]:
    """Model, rows and duration of a step, of a dataset on disk."""
    dataset = Dataset(path)
    if dataset.plan["randomize"]:
        raise JaxikError(RANDOM.format(path=path))
    if dataset.plan["model"] is None:
        raise JaxikError(NO_MODEL.format(path=path))
    dataset.check_complete()
    motion = dataset.plan.get("trajectories")
    chosen = evenly(len(dataset), most)
    names = ("q", "status", *(("q0",) if motion else ()))
    rows = {name: dataset[name].oindex[chosen] for name in names}
    return dataset.plan["model"], rows, motion["dt"] if motion else None


def _generated(path: Path, most: int) -> tuple[Robot, dict[str, np.ndarray], float | None]:
    """The same of a configuration, whose robot is drawn as its section `robot` places it."""
    file = read_yaml(path)
    check_keys(file.root, PLAN_KEYS)
    with jax.enable_x64(read_dtype(file.root, None) == "float64"):
        plan = read_plan(file, count=None, seed=None)
        if plan.randomize is not None:
            raise JaxikError(RANDOM.format(path=path))
        robot = read_robot(file.root, path.parent, read_units(file.root), meshes=True)
        chosen = evenly(plan.rows, most)
        rows = RowSolver(plan, len(chosen)).rows_at(chosen)
    return robot, rows, None if plan.trajectories is None else plan.trajectories.dt
