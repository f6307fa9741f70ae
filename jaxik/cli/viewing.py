"""`jaxik view`: a page that shows a robot, or what a configuration leads to."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxik.batching.devices import enable_compilation_cache
from jaxik.cli.output import check_new
from jaxik.cli.pose_file import Saver, save_into, save_new
from jaxik.cli.showing import is_configuration, load_drawn, solve_first
from jaxik.core.errors import JaxikError
from jaxik.pictures.show import solution_options
from jaxik.problem.problem import Problem
from jaxik.viewer.aims import problem_of
from jaxik.viewer.poses import precision_of
from jaxik.viewer.view import serve, wait, write_page

# Solutions of a configuration that stand around as ghosts: more hide the robot.
MOST_SHOWN = 50


class Seen(NamedTuple):
    """What is viewed, where the robot is, its ghosts, and how a pose of it is saved."""

    problem: Problem
    q: np.ndarray
    ghosts: Any
    save: Saver


def run_view(arguments: argparse.Namespace) -> int:
    """Serve a page until Ctrl-C, or write it and say where it is."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    page = arguments.html
    if page is not None:
        if page.suffix.lower() not in (".html", ".htm"):
            raise JaxikError(f"a page ends with .html, not {page.name!r}")
        check_new(f"page {page}", page, arguments.force)
    seen = _configuration(Path(arguments.source)) if is_configuration(arguments.source) else _robot(arguments.source)
    with precision_of(seen.q):
        if page is not None:
            print(write_page(page, seen.problem, seen.q, ghosts=seen.ghosts))
            return 0
        given = {"ghosts": seen.ghosts, "save": seen.save}
        served = serve(seen.problem, seen.q, port=arguments.port, host=arguments.host, **given)
        wait(served)
    if served.follower.is_compiling:
        # Nothing else ends the compiler at once, and nobody wants what it is at.
        sys.stdout.flush()
        os._exit(0)
    return 0


def _robot(source: str) -> Seen:
    robot = load_drawn(source)
    q = np.asarray(robot.q_home)
    problem = problem_of(robot, q)
    return Seen(problem, q, None, save_new(source, problem))


def _configuration(path: Path) -> Seen:
    """Of a configuration: one solution, and the others as ghosts."""
    file, job, problem, solution = solve_first(path, MOST_SHOWN)
    best, _ = solution_options(solution)
    return Seen(problem, best, solution if np.size(solution.status) > 1 else None, save_into(file, job.robot))
