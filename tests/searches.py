"""Searches that tests share: a planar arm with targets in and out of reach, and arms from everywhere."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import oracle
from own_tasks import PLANAR

import jaxik
from jaxik import FrameTask, Problem, search
from jaxik.robot.loading.sources import read_source

PLANE = jaxik.load_robot(PLANAR)


REACH = 1.7  # of the planar arm, whose first joint turns by 0.3 rad either way


def tip_task(robot: jaxik.Robot, target: Any, **options: Any) -> FrameTask:
    return FrameTask(robot.frame("tip"), target, **options)


def planar_targets(dtype: Any = np.float64) -> jax.Array:
    """Positions (6, 3): four in reach, one just out of it, one far out."""
    q = jnp.array([[0.2, -2.0], [-0.25, 0.4], [0.0, 0.0], [0.3, 2.5]])
    near = PLANE.frame_pose(q, PLANE.frame("tip")).translation()
    return jnp.concatenate([near, jnp.array([[REACH + 1e-3, 0, 0], [-3.0, 0, 0]])]).astype(dtype)


def planar(target: Any, more: Any = None, **fields: Any) -> Problem:
    return Problem(PLANE, {"tip": tip_task(PLANE, target, orientation_cost=None), **(more or {})}, **fields)


@cache
def found() -> jaxik.Solution:
    return search(planar(planar_targets()), jax.random.key(0))


@cache
def arm(name: str) -> tuple[jaxik.Robot, jaxlie.SE3, jaxik.Solution]:
    """1000 poses of uniform configurations, searched for in float32."""
    robot = jaxik.load_robot(name)
    q = robot.sample(jax.random.key(7), (1000,))
    target = robot.frame_pose(q, robot.frame("tcp"))
    problem = Problem(robot, {"tip": FrameTask(robot.frame("tcp"), target)})
    return robot, target, jax.device_get(search(problem, jax.random.key(8), starts=robot.q_home.astype(np.float32)))


def errors(name: str, q: np.ndarray, target: jaxlie.SE3) -> tuple[np.ndarray, np.ndarray]:
    """Position [m] and angle [rad] by which C MuJoCo sees the tool of configurations (n, nq) off its targets."""
    model, site = read_source(name).model, jaxik.load_robot(name).frame("tcp")
    position, angle = np.zeros(len(q)), np.zeros(len(q))
    for i, goal in enumerate(np.asarray(target.wxyz_xyz, float)):
        rotation, place = oracle.frame_pose(oracle.evaluated(model, np.asarray(q[i], float)), site)
        reached, difference = np.zeros(4), np.zeros(3)
        mujoco.mju_mat2Quat(reached, rotation.ravel())
        mujoco.mju_subQuat(difference, goal[:4], reached)
        position[i], angle[i] = np.linalg.norm(place - goal[4:]), np.linalg.norm(difference)
    return position, angle


def check_found(name: str) -> None:
    """Nearly all poses of an arm are found, by C MuJoCo, inside its limits and with little effort."""
    robot, target, solution = arm(name)
    position, angle = errors(name, solution.q, target)
    assert np.mean((position < 1e-4) & (angle < 1e-3)) >= 0.999
    assert np.mean((position < 1e-5) & (angle < 1e-5)) >= 0.995
    lower, upper = np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)
    assert (lower <= solution.q).all() and (solution.q <= upper).all()
    assert ((position < 1.01e-4) & (angle < 1.01e-3))[solution.converged].all()
    assert solution.iterations.mean() < 25 and solution.num_starts.mean() < 1.6
    assert solution.num_starts.max() > 5  # some are hard
