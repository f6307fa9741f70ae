"""Where `q_home` comes from, and where a search begins on a robot whose model names no home."""

import dataclasses
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik import FrameTask, Problem, search
from jaxik.robot.batched import first_start
from jaxik.robot.loading.catalog import find_by_name
from jaxik.robot.robot import Robot

# `b` follows `a`, and is at its limit where `a` is at 0.5; `c` has no limits.
ARM = """<mujoco model="arm"><compiler angle="radian"/><worldbody>
<body><joint name="free" type="free"/><geom size=".1"/>
<body pos=".3 0 0"><joint name="a" axis="0 0 1" range="-.1 2"/><geom size=".1"/>
<body pos=".3 0 0"><joint name="b" axis="0 0 1" range="-2 1"/><geom size=".1"/>
<body pos=".3 0 0"><joint name="c" axis="0 1 0" ref=".2"/><geom size=".1"/>
<body pos=".3 0 0"><joint name="d" axis="0 1 0" range=".4 1"/><geom size=".1"/>
<body pos=".3 0 0"><joint name="ball" type="ball" range="0 1"/><geom size=".1"/>
</body></body></body></body></body></body></worldbody>
<equality><joint joint1="b" joint2="a" polycoef="0 2 0 0 0"/></equality>{}</mujoco>"""
HOME = '<keyframe><key name="{}" qpos="0 0 1 1 0 0 0  .1 .2 .3 .5  1 0 0 0"/></keyframe>'
WORDS = {"": "qpos0 moved inside the limits", "bent": "qpos0 moved inside the limits", "home": "keyframe 'home'"}


@cache
def arm(keyframe: str) -> jaxik.Robot:
    return jaxik.load_robot(ARM.format(HOME.format(keyframe) if keyframe else ""))


@cache
def panda() -> jaxik.Robot:
    """Without its keyframe."""
    spec = mujoco.MjSpec.from_file(str(find_by_name("panda")))
    for key in list(spec.keys):
        spec.delete(key)
    return jaxik.load_robot(spec)


@jax.jit
def _in_float32(robot: Robot) -> Robot:
    return robot.astype(np.float32)


@pytest.mark.parametrize("keyframe", WORDS)
def test_a_robot_says_where_its_home_comes_from_and_a_file_keeps_it(keyframe: str, tmp_path: Path) -> None:
    jaxik.save(tmp_path / "arm.npz", arm(keyframe))
    for robot in (arm(keyframe), jaxik.load_robot(tmp_path / "arm.npz"), _in_float32(arm(keyframe))):
        assert robot.q_home_origin == WORDS[keyframe]
        assert f"q_home: {WORDS[keyframe]}" in repr(robot)
    moved = dataclasses.replace(arm(keyframe), q_home=arm(keyframe).q_home.at[7].add(0.01))
    assert moved.q_home_origin == "set after loading"
    several = jax.jit(lambda robot: jax.tree.map(lambda x: jnp.stack([x, x]), robot))(arm(keyframe))
    assert several.q_home_origin == WORDS[keyframe]
    said: list[str] = []
    jax.jit(lambda robot: said.append(robot.q_home_origin) or robot.q_home)(arm(keyframe))
    assert said == [WORDS[keyframe]]


def test_a_search_begins_mid_range_where_there_is_no_home() -> None:
    # Of `a` 0.2 is in the middle, as its follower lets it go to 0.5 only; of what has no two limits, home is.
    expected = [0, 0, 0, 1, 0, 0, 0, 0.2, 0.4, 0.2, 0.7, 1, 0, 0, 0]
    for robot in (arm(""), arm("bent")):
        np.testing.assert_allclose(first_start(robot), expected, atol=1e-12)
    for robot in (arm("home"), dataclasses.replace(arm(""), q_home=arm("home").q_home)):
        np.testing.assert_array_equal(first_start(robot), arm("home").q_home)


def test_each_robot_of_a_batch_begins_in_the_middle_of_its_own_ranges() -> None:
    upper = panda().limit_upper - jnp.array([[0.0], [0.2]])
    several = dataclasses.replace(panda(), limit_upper=upper)
    np.testing.assert_allclose(first_start(several), (panda().limit_lower + upper) / 2, atol=1e-12)


@exhaustive
def test_without_a_home_a_search_takes_fewer_steps_than_from_qpos0() -> None:
    robot = panda()
    q = robot.sample(jax.random.key(0), (500,)).at[0].set(first_start(robot))
    problem = Problem(robot, {"tip": FrameTask(robot.frame("tcp"), robot.frame_pose(q, "tcp"))})
    own, stretched = (search(problem, jax.random.key(1), starts=starts) for starts in (None, robot.q_home))
    assert own.iterations[0] == 0 and own.num_starts[0] == 1
    np.testing.assert_allclose(own.q[0], q[0], atol=1e-12)
    assert np.all(np.asarray(own.converged))
    assert np.mean(own.iterations) < 0.75 * np.mean(stretched.iterations)  # 12.5 and 19.6 of 4,096 in float32


def test_joints_that_no_task_needs_stay_at_home_not_mid_range() -> None:
    robot = panda()
    hand = robot.frame("link4")
    target = robot.frame_pose(first_start(robot), hand).translation()
    found = search(Problem(robot, {"elbow": FrameTask(hand, target, orientation_cost=None)}), jax.random.key(0))
    assert found.iterations == 0
    np.testing.assert_array_equal(found.q[4:], robot.q_home[4:])


def test_another_rest_is_where_solve_starts_and_values_go_by_joint_name() -> None:
    arm = jaxik.load_robot("panda")
    q = arm.sample(jax.random.key(0), (3,))
    values = arm.joint_values(q)
    assert list(values) == list(arm.joint_names) and values["joint1"].shape == (3,)
    np.testing.assert_array_equal(arm.configuration(values), q)
    free = jaxik.load_robot(ARM.format(""))
    assert [x.shape for x in free.joint_values(free.q_home).values()] == [(7,), (), (), (), (), (4,)]
    np.testing.assert_array_equal(free.configuration(free.joint_values(free.q_home)), free.q_home)
    rested = arm.with_rest(q[0])
    assert rested.q_home_origin == "set after loading"
    np.testing.assert_array_equal(rested.q_home, q[0])
    for wrong in (q[0, :3], q[0].at[2].set(np.nan)):
        with pytest.raises(jaxik.JaxikError):
            arm.with_rest(wrong)
