"""`jaxik view`: a page that shows a robot, or what a configuration leads to."""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxik.batching.devices import enable_compilation_cache
from jaxik.cli.batches import solve_part
from jaxik.cli.job import KEYS, read_dtype, read_job
from jaxik.cli.output import check_new
from jaxik.cli.yaml_file import read_yaml
from jaxik.core.errors import JaxikError
from jaxik.pictures.show import solution_options
from jaxik.problem.problem import Problem
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot
from jaxik.viewer.view import MOST_GHOSTS, view, write_page


def run_view(arguments: argparse.Namespace) -> int:
    """Serve a page until Ctrl-C, or write it and say where it is."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    page = arguments.html
    if page is not None:
        if page.suffix.lower() not in (".html", ".htm"):
            raise JaxikError(f"a page ends with .html, not {page.name!r}")
        check_new(f"page {page}", page, arguments.force)
    seen, q, ghosts = _source(arguments.source)
    if page is None:
        view(seen, q, ghosts=ghosts, port=arguments.port, host=arguments.host, block=True)
    else:
        print(write_page(page, seen, q, ghosts=ghosts))
    return 0


def _source(source: str) -> tuple[Robot | Problem, Any, Any]:
    """What is viewed, where it is, and its ghosts: of a configuration all solutions, or as many as are drawn."""
    if Path(source).suffix.lower() not in (".yaml", ".yml"):
        return load_robot(source), None, None
    file = read_yaml(Path(source))
    file.root.allow(*KEYS)
    with jax.enable_x64(read_dtype(file.root, None) == "float64"):
        job = read_job(file, count=None, seed=None, max_steps=None)
        part = job.part(np.arange(min(job.count, MOST_GHOSTS)))
        problem, solution = part[0], jax.device_get(solve_part(*part))
    best, _ = solution_options(solution)
    return problem, best, solution if np.size(solution.status) > 1 else None
