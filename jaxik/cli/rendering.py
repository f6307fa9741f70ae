"""`jaxik render`: draw a robot, or what a configuration leads to."""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxik.batching.devices import enable_compilation_cache
from jaxik.cli.output import check_new
from jaxik.cli.showing import (
    follow_paths,
    is_configuration,
    is_dataset,
    is_motion,
    load_drawn,
    read_rows,
    solve_first,
)
from jaxik.pictures.camera import framing
from jaxik.pictures.drawing import evenly
from jaxik.pictures.film import film, motion
from jaxik.pictures.picture import MOVING, Picture, check_picture
from jaxik.pictures.render import draw, render
from jaxik.pictures.show import solution_options, surroundings
from jaxik.robot.robot import Robot

# Solutions that a picture shows, rows of a dataset, which lie everywhere, and what a film moves through.
MOST_DRAWN, MOST_ROWS, MOST_MOVED = 200, 60, 4
# Of a motion: ghosts of a picture, and seconds of a film's frame.
MOMENTS, FRAME = 6, 1 / 30


def run_render(arguments: argparse.Namespace) -> int:
    """Draw, and say where the picture is."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    moving = arguments.picture.suffix.lower() in MOVING
    check_picture(arguments.picture)
    check_new(f"picture {arguments.picture}", arguments.picture, arguments.force)
    robot, q, options = _drawn(arguments.source, moving)
    width, height = arguments.size
    drawing = draw(robot, q, **options)
    options["camera"] = framing(drawing, width / height, arguments.azimuth, arguments.elevation)
    if moving:
        frames = q if is_motion(arguments.source) else motion(robot, q)
        film(robot, frames, arguments.picture, size=arguments.size, **options)
    else:
        Picture(render(robot, q, size=arguments.size, **options)).save(arguments.picture)
    print(arguments.picture)
    return 0


def _drawn(source: str, moving: bool) -> tuple[Robot, Any, dict[str, Any]]:
    """The robot, where it is drawn, or its configurations one after the other, and what else is drawn."""
    if is_dataset(source):
        robot, rows = read_rows(Path(source), MOST_MOVED if moving else MOST_ROWS)
        return (robot, rows.q, {}) if moving else (robot, *solution_options(rows))
    if is_motion(source):
        return _followed(Path(source), moving)
    if is_configuration(source):
        return _solved(Path(source), moving)
    robot = load_drawn(source)
    q = robot.q_home[None]
    return robot, np.concatenate([q, robot.sample(jax.random.key(0), (3,)), q]) if moving else q, {}


def _solved(path: Path, moving: bool) -> tuple[Robot, Any, dict[str, Any]]:
    """The robot of a configuration, where it is drawn, and what else is."""
    _, job, problem, solution = solve_first(path, MOST_MOVED if moving else MOST_DRAWN)
    targets = surroundings(problem)
    if moving:
        start = np.asarray(job.robot.q_home)
        return job.robot, np.concatenate([start[None], solution.q]), targets
    best, ghosts = solution_options(solution)
    return job.robot, best, ghosts | targets


def _followed(path: Path, moving: bool) -> tuple[Robot, Any, dict[str, Any]]:
    """The robot of paths that are followed, and its motion: a frame of a film at a time, or its end and ghosts."""
    _, job, found = follow_paths(path)
    targets = surroundings(job.problem)
    if moving:
        return job.problem.robot, found.resample(min(FRAME, float(found.dt) * len(found.q))).q, targets
    q = np.asarray(found.q)
    return job.problem.robot, q[-1], {"ghosts": q[evenly(len(q) - 1, MOMENTS)]} | targets
