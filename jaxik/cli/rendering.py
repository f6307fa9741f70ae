"""`jaxik render`: draw a robot, or what a configuration leads to."""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxik.batching.devices import enable_compilation_cache
from jaxik.cli.output import check_new
from jaxik.cli.showing import is_configuration, load_drawn, solve_first
from jaxik.pictures.camera import framing
from jaxik.pictures.film import film, motion
from jaxik.pictures.picture import MOVING, Picture, check_picture
from jaxik.pictures.render import draw, render
from jaxik.pictures.show import solution_options, surroundings
from jaxik.robot.robot import Robot

# Solutions that a picture shows, and that a film moves through.
MOST_DRAWN, MOST_MOVED = 200, 4


def run_render(arguments: argparse.Namespace) -> int:
    """Draw, and say where the picture is."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        enable_compilation_cache()
    moving = arguments.picture.suffix.lower() in MOVING
    check_picture(arguments.picture)
    check_new(f"picture {arguments.picture}", arguments.picture, arguments.force)
    if is_configuration(arguments.source):
        robot, q, options = _solved(Path(arguments.source), moving)
    else:
        robot = load_drawn(arguments.source)
        q, options = robot.q_home[None], {}
        if moving:
            q = np.concatenate([q, robot.sample(jax.random.key(0), (3,)), q])
    width, height = arguments.size
    drawing = draw(robot, q, **options)
    options["camera"] = framing(drawing, width / height, arguments.azimuth, arguments.elevation)
    if moving:
        film(robot, motion(robot, q), arguments.picture, size=arguments.size, **options)
    else:
        Picture(render(robot, q, size=arguments.size, **options)).save(arguments.picture)
    print(arguments.picture)
    return 0


def _solved(path: Path, moving: bool) -> tuple[Robot, Any, dict[str, Any]]:
    """The robot of a configuration, where it is drawn, and what else is."""
    _, job, problem, solution = solve_first(path, MOST_MOVED if moving else MOST_DRAWN)
    targets = surroundings(problem)
    if moving:
        start = np.asarray(job.robot.q_home)
        return job.robot, np.concatenate([start[None], solution.q]), targets
    best, ghosts = solution_options(solution)
    return job.robot, best, ghosts | targets
