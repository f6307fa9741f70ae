"""`film`: a motion as a film."""

import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.pictures.camera import Camera
from jaxik.pictures.canvas import canvas
from jaxik.pictures.drawing import evenly
from jaxik.pictures.picture import MOVING
from jaxik.pictures.render import camera_for, drawer, floor_below, picture_size
from jaxik.problem.arguments import configuration
from jaxik.robot.robot import Robot

# Poses by which the camera, the floor and the sizes of axes and points are chosen.
FRAMED = 12
MISSING = 'films are written by imageio: `pip install "jaxik[pictures]"`'


def film(
    robot: Robot,
    q: Any,
    path: str | os.PathLike[str],
    *,
    fps: float = 30.0,
    camera: Camera | None = None,
    size: tuple[int, int] = (640, 480),
    **drawn: Any,
) -> Path:
    """Write a motion as a film.

    Args:
      robot: of a batch the first.
      q: configurations (T, nq), one a frame; `motion` makes them of a few poses.
      path: the file to write, .mp4 or .gif.
      fps: frames a second.
      camera: one for all frames; by default one that has the whole motion in view.
      size: width and height in pixels; for .mp4 even numbers.
      drawn: what else stands in each picture, as for `render`: ghosts, targets, frames, line.

    Returns:
      The path.

    Raises:
      JaxikError: for wrong arguments, a file that cannot be written, and where OpenGL or imageio is missing.
    """
    path = Path(path)
    if path.suffix.lower() not in MOVING:
        raise JaxikError(f"a film ends with {' or '.join(MOVING)}, not {path.name!r}")
    if not fps > 0:
        raise JaxikError(f"fps is above 0, not {fps!r}")
    q = configuration("q", q, robot)
    if q.ndim != 2 or not len(q):
        raise JaxikError(f"q is one configuration a frame, (T, {robot.nq}), not of shape {q.shape}")
    width, height = picture_size(size)
    if path.suffix.lower() == ".mp4" and (width % 2 or height % 2):
        raise JaxikError(f"the size of an .mp4 is of even numbers, not {size!r}")
    some = q[evenly(len(q), FRAMED)]
    drawn_at = drawer(robot, some, **drawn)
    whole = drawn_at(some)
    camera = camera_for(whole, camera, width / height)
    shown, floor = canvas(width, height, whole), floor_below(whole)
    pictures = (shown.draw(drawn_at(row), camera, floor) for row in np.asarray(q))
    _write(path, pictures, fps)
    return path


def _write(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    try:
        import imageio.v3 as imageio
    except ImportError:
        raise JaxikError(MISSING) from None
    frames = np.stack(list(pictures))
    try:
        # JAX warns of forks of a process with threads, ffmpeg's among them, which runs no code of ours.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            if path.suffix.lower() == ".gif":
                imageio.imwrite(path, frames, duration=1000 / fps, loop=0)
            else:
                imageio.imwrite(path, frames, plugin="FFMPEG", fps=fps, macro_block_size=2)
    except (OSError, ImportError, RuntimeError) as error:
        raise JaxikError(f"the film cannot be written to {path}: {str(error).splitlines()[0]}") from None


def motion(robot: Robot, poses: Any, steps: int = 20) -> jnp.ndarray:
    """A smooth motion from pose to pose for a film, at rest at each, regardless of limits on speeds.

    Args:
      robot: whose joints move.
      poses: configurations (n, nq).
      steps: frames from one pose to the next.

    Returns:
      Configurations ((n - 1) * steps + 1, nq).
    """
    q = configuration("poses", poses, robot)
    share = np.linspace(0, 1, steps + 1)[1:]
    share = jnp.asarray(share**2 * (3 - 2 * share), q.dtype)
    parts = [q[:1]]
    for start, end in itertools.pairwise(q):
        parts.append(robot.integrate(start, share[:, None] * robot.difference(start, end)))
    return jnp.concatenate(parts)
