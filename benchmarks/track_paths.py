"""Paths of a Panda's tool for the benchmark of `track`, as poses (T, 7), wxyz_xyz."""

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

import jaxik
from jaxik.robot.robot import Robot

# CppFlow (Morgan, Millard and Sukhatme, ICRA 2024) places the paths of TORM in front of a Panda so: the path's x is the
# world's -z, its z the world's x.
PLACE = jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.from_y_radians(np.pi / 2), jnp.array([0.75, 0.0, 0.5]))
RATE = 30.0  # waypoints a second of IKLink's trajectories


def cppflow_paths() -> dict[str, np.ndarray]:
    """Shapes of CppFlow's problems, without their obstacles, held by the tool centre point.

    Of those that it has for a Panda: two lines of 0.9 m across the workspace, 200 waypoints, and TORM's tilted square,
    where they are; of those for a Fetch a circle with a radius of 0.25 m, 500 waypoints, 0.2 m nearer to the base than
    the square, as a Panda's arm is shorter. Its turns by 45 degrees leave a Panda's reach in 8 % of their waypoints.
    """
    across = np.zeros((200, 3))
    across[:, 0] = np.linspace(0.45, -0.45, 200)
    across += [0.0, 0.54, 0.79]
    nearer = jaxlie.SE3.from_translation(jnp.array([-0.2, 0.0, 0.0])) @ PLACE
    return {
        "line, tool tilted": _poses(np.array([0.7057944, -0.70841676, 0.0, 0.0]), across),
        "line, tool up": _poses(np.array([1.0, 0.0, 0.0, 0.0]), across),
        "square": _placed(PLACE, _square()),
        "circle": _placed(nearer, _circle(0.25, 500)),
    }


def _square(step: float = 0.005) -> np.ndarray:
    """Once around, in steps of half a centimetre."""
    corners = np.array([[0, 0, 0], [0, 0.2, 0], [-0.3, 0.2, -0.2], [-0.3, -0.2, -0.2], [0, -0.2, 0], [0, 0, 0]])
    at = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    along = np.linspace(0, at[-1], round(at[-1] / step) + 1)
    return np.stack([np.interp(along, at, corners[:, k]) for k in range(3)], axis=1)


def _circle(radius: float, count: int) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, count)
    return np.column_stack([0 * angle, radius * (np.cos(angle) - 1), radius * np.sin(angle)])


def random_paths(robot: Robot, frame: str, count: int) -> dict[str, np.ndarray]:
    """Smooth trajectories through random poses, in the manner of IKLink's, of 500 to 800 waypoints at 30 a second.

    IKLink publishes one such trajectory and not how it is made. Here a path goes through the poses of six random
    configurations that have the tool above z = 0.1 m and at most 0.65 m from the shoulder, as a cubic.
    """
    tip, shoulder, paths = robot.frame(frame), np.array([0.0, 0.0, 0.333]), {}
    for i in range(count):
        drawn = np.asarray(robot.frame_pose(robot.sample(jax.random.key(i), (400,)), tip).wxyz_xyz)
        near = (np.linalg.norm(drawn[:, 4:] - shoulder, axis=1) < 0.65) & (drawn[:, 6] > 0.1)
        through = drawn[near][:6]
        waypoints = 500 + 300 * i // max(count - 1, 1)
        times = np.arange(len(through)) * (waypoints / RATE) / (len(through) - 1)
        at = np.arange(waypoints) / RATE
        paths[f"random {i}"] = np.asarray(jaxik.interpolate(jaxlie.SE3(jnp.asarray(through)), times, at).wxyz_xyz)
    return paths


def _poses(quaternion: np.ndarray, positions: np.ndarray) -> np.ndarray:
    quaternion = quaternion / np.linalg.norm(quaternion)
    return np.concatenate([np.tile(quaternion, (len(positions), 1)), positions], axis=1)


def _placed(place: jaxlie.SE3, positions: np.ndarray) -> np.ndarray:
    return np.asarray((place @ jaxlie.SE3.from_translation(jnp.asarray(positions))).wxyz_xyz)
