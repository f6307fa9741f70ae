"""Where the bodies of a robot are, at any number of configurations, by one program."""

from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from jaxik.kinematics.frames import Frame
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot
from jaxik.tasks.com import ComTask
from jaxik.tasks.frame import FrameTask

# Configurations in one call. A single one takes hardly less time, and another number of ghosts compiles nothing.
TILE = 64


def precision_of(q: Any) -> AbstractContextManager[Any]:
    """JAX in the precision of configurations, which is a setting of each thread."""
    return jax.enable_x64(np.asarray(q).dtype == np.float64)


class Poses:
    """Forward kinematics on the host, of the robot of a problem."""

    def __init__(self, problem: Problem) -> None:
        """Keep what of it is asked for."""
        tasks = problem.tasks.items()
        self._robot = problem.robot
        self._frames = tuple((name, task.frame) for name, task in tasks if isinstance(task, FrameTask))
        self._subtrees = tuple((name, self._root(task)) for name, task in tasks if isinstance(task, ComTask))

    def _root(self, task: ComTask) -> str:
        (root,) = task.subtrees
        return root if isinstance(root, str) else self._robot.topology.body_names[root]

    def bodies(self, q: np.ndarray) -> np.ndarray:
        """Poses of all bodies (n, nbody, 7), wxyz and position [m], at configurations (n, nq)."""
        return self._at(q)[0]

    def aims(self, q: np.ndarray) -> dict[str, np.ndarray]:
        """By task where the robot has what the task aims, at a configuration (nq,): poses (7,) and points (3,)."""
        return {name: x[0] for name, x in self._at(q[None])[1].items()}

    def _at(self, q: np.ndarray) -> Any:
        count = max(1, -(-len(q) // TILE)) * TILE
        tiles = q[np.minimum(np.arange(count), len(q) - 1)].reshape(-1, TILE, q.shape[1])
        with precision_of(q):
            done = [jax.device_get(_forward(self._robot, self._frames, self._subtrees, tile)) for tile in tiles]
        return jax.tree.map(lambda *xs: np.concatenate(xs)[: len(q)], *done)


@jax.jit(static_argnums=(1, 2))
def _forward(
    robot: Robot, frames: tuple[tuple[str, Frame], ...], subtrees: tuple[tuple[str, str], ...], q: Any
) -> tuple[Any, dict[str, Any]]:
    aims = {name: robot.frame_pose(q, frame).wxyz_xyz for name, frame in frames}
    aims |= {name: robot.center_of_mass(q, subtree) for name, subtree in subtrees}
    return robot.forward(q).wxyz_xyz, aims
