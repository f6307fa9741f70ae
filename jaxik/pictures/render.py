"""`render`: a picture of a robot."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jaxlie
import numpy as np

from jaxik.collision.world import World
from jaxik.core.errors import JaxikError
from jaxik.pictures.camera import Camera, framing
from jaxik.pictures.canvas import canvas
from jaxik.pictures.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    SKY,
    VERMILION,
    Drawing,
    bounding_balls,
    draw_frames,
    draw_line,
    draw_points,
    draw_robot,
    draw_world,
    evenly,
    joined,
)
from jaxik.pictures.shapes import moved_shapes, one_robot, shapes_of
from jaxik.pictures.simplify import simplified
from jaxik.problem.arguments import configuration
from jaxik.robot.robot import Robot

# How much of a ghost one sees, where there are few; many add up.
GHOST = 0.25
# Solutions drawn of a batch, at most: more hide each other.
MOST_GHOSTS = 200
# Triangles of a ghost's meshes.
GHOST_FACES = 2000
# Of what is drawn, in parts of the picture's size: the axes of frames, balls at points, lines.
AXIS, POINT, LINE = 0.12, 0.018, 0.006


def render(
    robot: Robot,
    q: Any = None,
    *,
    ghosts: Any = None,
    failed: Any = None,
    targets: Any = None,
    frames: Sequence[Any] = (),
    line: Any = None,
    world: World | None = None,
    camera: Camera | None = None,
    size: tuple[int, int] = (640, 480),
) -> np.ndarray:
    """Draw a robot.

    Args:
      robot: of a batch the first.
      q: configurations (*batch, nq), all of which are drawn; `q_home` by default.
      ghosts: configurations (*batch, nq) that are drawn transparent, at most 200, evenly taken.
      failed: the same in another colour, for what did not get there.
      targets: what is to be reached: SE3 (*batch) drawn as axes, points (*batch, 3) drawn as balls, or a dict or
        sequence of them.
      frames: names of frames of the robot, drawn as axes.
      line: points (T, 3) [m] that a line is drawn through, in world axes.
      world: obstacles; half spaces are not drawn.
      camera: by default one that has everything in view.
      size: width and height in pixels.

    Returns:
      The picture (height, width, 3), uint8, RGB.

    Raises:
      JaxikError: for wrong arguments, and where there is no OpenGL, with the package that brings it.
    """
    width, height = picture_size(size)
    drawing = draw(robot, q, ghosts=ghosts, failed=failed, targets=targets, frames=frames, line=line, world=world)
    camera = camera_for(drawing, camera, width / height)
    return canvas(width, height, drawing).draw(drawing, camera, floor_below(drawing))


def camera_for(drawing: Drawing, camera: Any, aspect: float) -> Camera:
    """The camera that is asked for, or one that has everything in view."""
    if camera is None:
        return framing(drawing, aspect)
    if not isinstance(camera, Camera):
        raise JaxikError(f"camera is a jaxik.Camera, not {type(camera).__name__}")
    return camera


def floor_below(drawing: Drawing) -> float:
    """Height of the floor [m]: a robot whose base is at the origin stands on it; what hangs below has it below."""
    centers, radii = bounding_balls(drawing)
    return min(0.0, float(np.min(centers[:, 2] - radii)))


def draw(robot: Robot, q: Any = None, **drawn: Any) -> Drawing:
    """What `render` draws, as shapes in the world."""
    return drawer(robot, q, **drawn)(q)


def drawer(
    robot: Robot,
    q: Any = None,
    *,
    ghosts: Any = None,
    failed: Any = None,
    targets: Any = None,
    frames: Sequence[Any] = (),
    line: Any = None,
    world: World | None = None,
) -> Callable[[Any], Drawing]:
    """A function that draws the robot at configurations, among what `render` draws besides.

    What stands still is drawn once, in sizes that fit the robot at `q`.
    """
    if not isinstance(robot, Robot):
        raise JaxikError(f"robot is a jaxik.Robot, not {type(robot).__name__}")
    robot = one_robot(robot)
    shapes = shapes_of(robot)

    def robot_at(q: Any) -> Drawing:
        return draw_robot(robot, shapes, _finite("q", configuration("q", robot.q_home if q is None else q, robot)))

    still = []
    for named, link, joint in ((ghosts, SKY, BLUE), (failed, ORANGE, VERMILION)):
        if named is not None:
            every = _finite("ghosts", configuration("ghosts", named, robot)).reshape(-1, robot.nq)
            chosen = every[evenly(len(every), MOST_GHOSTS)]
            lighter = simplified(moved_shapes(shapes, robot.topology), GHOST_FACES)
            still.append(draw_robot(robot, lighter, chosen, link=link, joint=joint, alpha=GHOST))
    if world is not None:
        if not isinstance(world, World):
            raise JaxikError(f"world is a jaxik.World(...), not {type(world).__name__}")
        still.append(draw_world(world))
    centers, _ = bounding_balls(joined([robot_at(q), *still]))
    unit = float(np.linalg.norm(np.ptp(centers, axis=0)))
    still += [_target(target, unit) for target in _listed(targets)]
    if line is not None:
        still.append(draw_line(_points("line", line), LINE * unit, GREEN))

    def drawn_at(q: Any) -> Drawing:
        turned = [draw_frames(robot.frame_pose(robot.q_home if q is None else q, name), AXIS * unit) for name in frames]
        return joined([robot_at(q), *still, *turned])

    return drawn_at


def _target(target: Any, unit: float) -> Drawing:
    if isinstance(target, jaxlie.SE3):
        ball = draw_points(target.translation(), POINT * unit, ORANGE)
        return joined([draw_frames(target, AXIS * unit), ball])
    return draw_points(_points("a target", target), POINT * unit, ORANGE)


def _listed(targets: Any) -> list[Any]:
    if targets is None:
        return []
    if isinstance(targets, Mapping):
        return list(targets.values())
    return list(targets) if isinstance(targets, list | tuple) else [targets]


def _points(name: str, points: Any) -> np.ndarray:
    points = np.asarray(points, float)
    if points.ndim == 0 or points.shape[-1] != 3:
        raise JaxikError(f"{name} is an SE3 or points (*batch, 3), not of shape {points.shape}")
    return points


def _finite(name: str, q: Any) -> Any:
    if not np.all(np.isfinite(np.asarray(q))):
        raise JaxikError(f"{name} has entries that are not finite: there is nothing to draw there")
    return q


def picture_size(size: Any) -> tuple[int, int]:
    """Width and height in pixels, where that is what was given."""
    if not (isinstance(size, Sequence) and len(size) == 2 and all(isinstance(n, int) and 0 < n <= 8192 for n in size)):
        raise JaxikError(f"size is width and height in pixels, whole numbers up to 8192, not {size!r}")
    return size[0], size[1]
