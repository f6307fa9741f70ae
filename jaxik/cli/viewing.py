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
from jaxik.cli.showing import (
    Played,
    follow_paths,
    is_configuration,
    is_dataset,
    is_motion,
    load_drawn,
    read_rows,
    solve_first,
)
from jaxik.cli.yaml_file import read_yaml
from jaxik.core.errors import JaxikError
from jaxik.pictures.show import solution_options
from jaxik.problem.problem import Problem
from jaxik.results.track import Track
from jaxik.viewer.aims import problem_of
from jaxik.viewer.poses import precision_of
from jaxik.viewer.view import serve, wait, write_page

# Solutions of a configuration, rows of a dataset that stand around as ghosts: more hide the robot.
MOST_SHOWN, MOST_ROWS = 50, 300


class Seen(NamedTuple):
    """What is viewed, where the robot is, its ghosts, how a pose of it is saved, and a motion that is played."""

    problem: Problem
    q: np.ndarray
    ghosts: Any
    save: Saver
    motion: Track | Played | None = None


def run_view(arguments: argparse.Namespace) -> int:
    """Serve a page until Ctrl-C, or write it and say where it is."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    page = arguments.html
    if page is not None:
        if page.suffix.lower() not in (".html", ".htm"):
            raise JaxikError(f"a page ends with .html, not {page.name!r}")
        check_new(f"page {page}", page, arguments.force)
    seen = _seen(arguments.source)
    with precision_of(seen.q):
        if page is not None:
            print(write_page(page, seen.problem, seen.q, ghosts=seen.ghosts))
            return 0
        given: dict[str, Any] = {"ghosts": seen.ghosts, "save": seen.save}
        if seen.motion is not None:
            given |= {"path": seen.motion.q, "dt": float(seen.motion.dt)}
        served = serve(seen.problem, seen.q, port=arguments.port, host=arguments.host, **given)
        wait(served)
    if served.follower.is_compiling:
        # Nothing else ends the compiler at once, and nobody wants what it is at.
        sys.stdout.flush()
        os._exit(0)
    return 0


def _seen(source: str) -> Seen:
    if is_dataset(source):
        return _dataset(source)
    if is_motion(source):
        return _motion(Path(source))
    return _configuration(Path(source)) if is_configuration(source) else _robot(source)


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


def _motion(path: Path) -> Seen:
    """Of paths that are followed: where the robot starts, and its motion to be played."""
    file, job, motion = follow_paths(path)
    start = np.asarray(motion.q[0]) if job.start is None else job.start
    return Seen(job.problem, start, None, save_into(file, job.problem.robot), motion)


def _dataset(source: str) -> Seen:
    """Of a dataset: one configuration, and other rows as ghosts; the first of its motions is played."""
    robot, rows = read_rows(Path(source), MOST_ROWS)
    best, _ = solution_options(rows)
    problem = problem_of(robot, best)
    save = save_into(read_yaml(Path(source)), robot) if rows.model is None else save_new(rows.model, problem)
    return Seen(problem, best, rows, save, rows.motion)
