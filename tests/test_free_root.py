"""Robots that are freed from the world, and joint values that go to and from MuJoCo's data by name."""

from functools import cache

import jax
import mujoco
import numpy as np
import oracle
import pytest

import jaxik
from jaxik.robot.loading.catalog import find_by_name

# A spring-like couple of joints behind another tree, so that joints stand before and behind the root.
TWO = """<mujoco><worldbody>
  <body name="lamp" pos="1 0 0"><joint name="lamp" axis="0 1 0"/><geom size=".1"/></body>
  <body name="base" pos="0 0 .5" euler="0 0 30"><geom size=".1"/><body name="arm" pos=".2 0 0">
    <joint name="a" axis="0 0 1" range="-1 1"/><geom size=".1"/><body name="tip" pos=".2 0 0">
      <joint name="b" axis="0 1 0"/><geom size=".1"/></body></body></body></worldbody>
  <equality><joint name="both" joint1="b" joint2="a" polycoef="0 .5 0 0 0"/></equality></mujoco>"""


@cache
def freed() -> tuple[jaxik.Robot, mujoco.MjModel]:
    spec = mujoco.MjSpec.from_string(TWO)
    spec.body("base").add_freejoint(name="root")
    return jaxik.load_robot(TWO).with_free_root("base"), oracle.exact(spec.compile())


def test_a_freed_robot_is_the_model_with_a_free_joint() -> None:
    robot, model = freed()
    assert robot.joint_names == ("lamp", "root", "a", "b")
    np.testing.assert_allclose(robot.q_home, model.qpos0, atol=1e-12)
    assert robot.topology.couplings == jaxik.load_robot(model).topology.couplings
    np.testing.assert_array_equal(robot.limit_upper, jaxik.load_robot(model).limit_upper)
    q = robot.sample(jax.random.key(0))
    data = oracle.evaluated(model, np.asarray(q))
    np.testing.assert_allclose(robot.forward(q).translation(), data.xpos, atol=1e-12)
    assert (robot.nq, robot.nv, len(robot.armature)) == (model.nq, model.nv, model.nv)


def test_what_cannot_be_freed_is_told() -> None:
    with pytest.raises(jaxik.JaxikError, match="say which body is the root.*'lamp', 'base'"):
        jaxik.load_robot(TWO).with_free_root()
    with pytest.raises(jaxik.JaxikError, match="moves already, by its joint 'lamp'"):
        jaxik.load_robot(TWO).with_free_root("lamp")
    with pytest.raises(jaxik.JaxikError, match="say which body"):
        jaxik.load_robot(TWO).with_free_root("tip")
    with pytest.raises(jaxik.JaxikError, match="joint 'a' already"):
        jaxik.load_robot(TWO).with_free_root("base", "a")


def test_joint_values_go_to_the_data_of_a_scene_and_back_by_name() -> None:
    scene = mujoco.MjSpec.from_file(str(find_by_name("panda")))
    scene.worldbody.add_body(name="cup", pos=(0.5, 0, 0)).add_freejoint(name="cup")
    scene.body("cup").add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(0.1, 0, 0), mass=1.0)
    data = mujoco.MjData(scene.compile())
    robot = jaxik.load_robot("panda")
    q = robot.sample(jax.random.key(0))
    robot.copy_to(data, q)
    np.testing.assert_array_equal(robot.configuration(data), q)
    np.testing.assert_array_equal(data.joint("cup").qpos, [0.5, 0, 0, 1, 0, 0, 0])
    with pytest.raises(jaxik.UnknownNameError, match="unknown joint"):
        jaxik.load_robot("ur5e").copy_to(data, np.zeros(6))
    with pytest.raises(jaxik.JaxikError, match="not a batch"):
        robot.copy_to(data, np.zeros((2, 7)))
