"""Read and solve what a picture or a page shows."""

from pathlib import Path

import jax
import numpy as np

from jaxik.cli.batches import solve_part
from jaxik.cli.job import KEYS, Job, read_dtype, read_job
from jaxik.cli.yaml_file import YamlFile, read_yaml
from jaxik.problem.problem import Problem
from jaxik.results.solution import Solution
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

# Elements that are solved for a picture, a film or a page, which show fewer: one program serves all three.
SOLVED = 200


def is_configuration(source: str) -> bool:
    """Whether a CONFIG is meant, and not a ROBOT."""
    return Path(source).suffix.lower() in (".yaml", ".yml")


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
