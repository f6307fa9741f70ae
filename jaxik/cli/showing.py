"""Read and solve what a picture or a page shows."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxik.cli.batches import solve_part
from jaxik.cli.job import KEYS, Job, read_dtype, read_job
from jaxik.cli.tracking import KEYS as TRACK_KEYS
from jaxik.cli.tracking import TrackJob, follow, read_track_job
from jaxik.cli.yaml_file import YamlFile, read_yaml
from jaxik.core.errors import JaxikError
from jaxik.datasets.dataset import Dataset
from jaxik.pictures.drawing import evenly
from jaxik.problem.problem import Problem
from jaxik.results.solution import Solution
from jaxik.results.track import Track
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

# Elements that are solved for a picture, a film or a page, which show fewer: one program serves all three.
SOLVED = 200


def is_configuration(source: str) -> bool:
    """Whether a CONFIG is meant, and not a ROBOT."""
    return Path(source).suffix.lower() in (".yaml", ".yml")


def is_motion(source: str) -> bool:
    """Whether a CONFIG is one of `jaxik track`."""
    return is_configuration(source) and "track" in read_yaml(Path(source)).root


def is_dataset(source: str) -> bool:
    """Whether a folder of `jaxik generate` is meant."""
    return Path(source).is_dir()


class Rows(NamedTuple):
    """Rows of a dataset: name or path of the model, configurations (n, nq) and their statuses (n,)."""

    model: str
    q: np.ndarray
    status: np.ndarray


def load_drawn(source: str) -> Robot:
    """Load a robot with what its model shows; a saved robot has nothing of that."""
    return load_robot(source, meshes=Path(source).suffix.lower() != ".npz")


def solve_first(path: Path, most: int) -> tuple[YamlFile, Job, Problem, Solution]:
    """Read a configuration, and solve the first of its elements, at most so many; the solution is on the host."""
    file = read_yaml(path)
    file.root.allow(*KEYS)
    with jax.enable_x64(read_dtype(file.root, None) == "float64"):
        job = read_job(file, count=None, seed=None, max_steps=None, meshes=True)
        solved = jax.device_get(solve_part(*job.part(np.arange(min(job.count, SOLVED)))))
        shown = job.part(np.arange(min(job.count, most)))[0]
        return file, job, shown, jax.tree.map(lambda x: x[:most], solved)


def follow_paths(path: Path) -> tuple[YamlFile, TrackJob, Track]:
    """Read a configuration of `jaxik track`, and follow its paths; the motion is on the host."""
    file = read_yaml(path)
    file.root.allow(*TRACK_KEYS)
    with jax.enable_x64(read_dtype(file.root, None) == "float64"):
        job = read_track_job(file, meshes=True)
        return file, job, jax.device_get(follow(job))


def read_rows(path: Path, most: int) -> tuple[Robot, Rows]:
    """The robot of a dataset, and at most so many of its rows, evenly taken, of each the best solution."""
    dataset = Dataset(path)
    if dataset.plan["model"] is None or dataset.plan["randomize"]:
        raise JaxikError(f"{path}: its robots are random, or of no model that a file has: there is nothing to draw")
    dataset.check_complete()
    robot = load_drawn(dataset.plan["model"])
    chosen = evenly(len(dataset), most)
    q, status = (dataset[name].oindex[chosen].reshape(len(chosen), -1) for name in ("q", "status"))
    return robot, Rows(dataset.plan["model"], q[:, : robot.nq], status[:, 0])


class Played(NamedTuple):
    """Configurations (T + 1, nq), from the first on, and the duration between two of them [s]."""

    q: np.ndarray
    dt: float


def first_motion(path: Path) -> Played | None:
    """The first motion of a dataset of motions; None of other rows."""
    dataset = Dataset(path)
    if not (motion := dataset.plan.get("trajectories")):
        return None
    return Played(np.concatenate([dataset["q0"][:1], dataset["q"][0]]), motion["dt"])
