"""A loop on a base that moves itself: solved alike wherever the root stands, and switched without tracing again."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from benchmarks import mechanisms, steps
from jaxik.robot.robot import Robot
from jaxik.solvers.nonlinear import solve as module

COUNT = 16
FEET = {"left": (-0.1, -0.2), "right": (0.4, -0.2)}
CRANK, COUPLER, ROCKER, GROUND = 0.1, 0.35, {"near": 0.2, "far": 0.25}, 0.3
PEN = np.array([0.2, 0.1])
# The root as it is, moved by a metre, turned by 90 degrees, and both.
QUARTER = np.pi / 2
ROOTS = jaxlie.SE3.from_rotation_and_translation(
    jaxlie.SO3.exp(jnp.array([[0.0, 0, 0], [0, 0, 0], [0, 0, QUARTER], [QUARTER, 0, 0]])),
    jnp.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 0], [0, -1, 0]]),
)


@cache
def walker() -> Robot:
    """A four-bar whose crank and rocker both hang on a link that moves in the plane, and may stand on two feet."""
    made = jaxik.Mechanism("walker")
    made.link("base", joints=("X", "Y", "EZ"))
    made.link("crank", "base", joints="EZ", rest=0.4)
    made.link("coupler", "crank", position=(CRANK, 0, 0), joints="EZ", rest=0.5)
    made.link("rocker", "base", position=(GROUND, 0, 0), joints="EZ", rest=1.5)
    made.frame("pin", "coupler", position=(COUPLER, 0, 0))
    made.frame("pen", "coupler", position=(*PEN, 0))
    for name, length in ROCKER.items():
        made.frame(name, "rocker", position=(length, 0, 0))
    for foot, place in FEET.items():
        made.frame(foot, "base", position=(*place, 0))
    return made.build().with_closure("loop", "pin", list(ROCKER), ("x", "y"))


def pens() -> np.ndarray:
    """Where the pen may be (COUNT, 3) on the left foot: the base turned about it, the crank turned, both at random."""
    turn, crank = np.random.default_rng(0).uniform(-0.8, 0.8, (2, COUNT))
    crank = 0.4 + crank
    end = CRANK * np.stack([np.cos(crank), np.sin(crank)], axis=-1)
    # The coupler's end is where two circles meet.
    way = np.array([GROUND, 0.0]) - end
    apart = np.linalg.norm(way, axis=-1)
    along = (COUPLER**2 - ROCKER["near"] ** 2 + apart**2) / (2 * apart)
    angle = np.arctan2(way[:, 1], way[:, 0]) + np.arccos(along / COUPLER)
    place = np.asarray(FEET["left"])
    return np.pad(place + _turned(turn, end + _turned(angle, PEN) - place), ((0, 0), (0, 1)))


def _turned(angle: np.ndarray, points: np.ndarray) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * points[..., 0] - s * points[..., 1], s * points[..., 0] + c * points[..., 1]], axis=-1)


def solved(loop: int = 0, feet: Any = (True, False), locked: int | None = None, cost: float = 1.0) -> jaxik.Solution:
    """The pen goes to its places (4, COUNT), from home, beside each of the roots."""
    roots = jaxlie.SE3(ROOTS.wxyz_xyz[:, None])
    robot = walker().with_base(roots)
    robot = robot.pinned(robot.q_home, list(FEET), feet, kind=("x", "y")).with_active({"loop": loop})
    pen = jaxik.FrameTask(robot.frame("pen"), roots @ pens(), position_cost=jnp.asarray(cost), orientation_cost=None)
    return jaxik.solve(jaxik.Problem(robot, {"pen": pen}, dof_mask=jnp.arange(6) != (-1 if locked is None else locked)))


@cache
def standing() -> jaxik.Solution:
    return jax.device_get(solved())


@exhaustive
def test_a_loop_both_of_whose_sides_hang_on_one_moving_link_always_closes() -> None:
    found = standing()
    assert np.all(found.status == jaxik.Status.CONVERGED)
    assert np.abs(found.residuals["model"]).max() < 1e-9
    assert np.linalg.norm(found.residuals["pen"]["position"], axis=-1).max() < 1e-4


@exhaustive
def test_it_takes_the_same_steps_wherever_the_root_stands() -> None:
    found = standing()
    assert np.abs(found.iterations - found.iterations[0]).max() <= 1
    np.testing.assert_allclose(found.q, np.broadcast_to(found.q[0], found.q.shape), rtol=0, atol=1e-6)


@exhaustive
def test_a_root_on_another_foot_a_locked_joint_a_moved_loop_and_a_goal_that_is_off_are_one_trace() -> None:
    first, traces = standing(), module._solve._cache_size()
    far, right, locked, off = solved(loop=1), solved(feet=(False, True)), solved(locked=3), solved(cost=0.0)
    assert module._solve._cache_size() == traces
    home, stood = walker().q_home, {}
    for name, found, foot in (("left", first, "left"), ("right", right, "right"), ("swung", right, "left")):
        shift = walker().frame_pose(found.q[0], foot).translation() - walker().frame_pose(home, foot).translation()
        stood[name] = np.linalg.norm(shift, axis=-1).max()
    assert max(stood["left"], stood["right"]) < 1e-9 and stood["swung"] > 1e-3
    for found, held in ((first, "near"), (far, "far"), (locked, "near"), (off, "near")):
        pin, end = (walker().frame_pose(found.q[0], name).translation() for name in ("pin", held))
        np.testing.assert_allclose(pin, end, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(locked.q[..., 3], walker().q_home[3])
    assert np.all(off.status == jaxik.Status.CONVERGED) and np.all(off.q == off.q[:, :1])


@exhaustive
@pytest.mark.parametrize("free_platform", [True, False], ids=["platform free", "platform on a leg"])
def test_a_stewart_platform_takes_the_same_steps_wherever_its_root_stands(free_platform: bool) -> None:
    """Where a solver that adds world axes up loses most poses."""
    robot = jaxik.load_robot(mechanisms.stewart(free_platform))
    tool, roots = robot.frame("tool"), jaxlie.SE3(ROOTS.wxyz_xyz[:, None])
    target = roots @ steps.poses(robot.frame_pose(robot.q_home, tool), steps.PLATFORM)
    q0 = jnp.tile(robot.q_home, (4, 1, 1))
    if free_platform:
        at = np.array(robot.q_indices("free"))
        placed = roots @ jaxlie.SE3(jnp.roll(q0[..., at], 4, axis=-1))
        q0 = q0.at[..., at].set(jnp.roll(placed.wxyz_xyz, -4, axis=-1))
    found = jaxik.solve(jaxik.Problem(robot.with_base(roots), {"tool": jaxik.FrameTask(tool, target)}), q0)
    assert np.all(found.status == jaxik.Status.CONVERGED)
    assert np.abs(found.residuals["model"]).max() < 1e-9
    assert np.abs(found.iterations - found.iterations[0]).max() <= 1
