"""Samples of robots with joint couplings: driven joints are where leaders have them, so targets can be reached."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tables import mostly_exhaustive

import jaxik
from jaxik import FrameTask, Problem, search
from jaxik.cli.configurations import read_configuration
from jaxik.cli.poses import SI, Units
from jaxik.cli.section import Place
from jaxik.kinematics.sampling import dimensions, spread
from jaxik.robot.loading.sources import read_source

COUNT = 500
INERTIA = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'


def urdf_joint(name: str, parent: str, axis: str, limits: str, mimic: str = "") -> str:
    lower, upper = limits.split()
    return f"""<link name="{name}">{INERTIA}</link>
      <joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{name}"/><origin xyz="0.1 0 0.02"/>
      <axis xyz="{axis}"/><limit lower="{lower}" upper="{upper}" effort="1" velocity="1"/>{mimic}</joint>"""


# `second` is at its limit long before its leader `first` is, and leads `third`.
FINGER = f"""<robot name="finger"><link name="palm"/>
  {urdf_joint("turn", "palm", "0 0 1", "-1 1")}
  {urdf_joint("first", "turn", "0 1 0", "-0.2 2")}
  {urdf_joint("second", "first", "0 1 0", "-0.1 0.9", '<mimic joint="first" multiplier="0.7" offset="0.1"/>')}
  {urdf_joint("third", "second", "0 1 0", "-1 0.5", '<mimic joint="second" multiplier="-0.8"/>')}
</robot>"""
TIPS = {"hand": ("index_tip", "middle_tip", "ring_tip", "thumb_tip"), FINGER: ("third",)}


@cache
def sampled(source: str) -> tuple[jaxik.Robot, jax.Array]:
    robot = jaxik.load_robot(source)
    return robot, robot.sample(jax.random.key(0), (COUNT,))


@pytest.mark.parametrize("source", TIPS, ids=["hand", "mimic joints of a URDF"])
def test_mujoco_finds_sampled_couplings_held_and_limits_kept(source: str) -> None:
    robot, q = sampled(source)
    model = read_source(source).model
    data = mujoco.MjData(model)
    for row in np.asarray(q):
        data.qpos[:] = row
        mujoco.mj_forward(model, data)
        equality = data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        assert equality.sum() == len(robot.topology.couplings) > 1
        np.testing.assert_allclose(data.efc_pos[equality], 0, atol=1e-12)
        assert not (data.efc_type == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT).any()


def test_a_urdf_stands_at_home_where_its_mimic_joints_are() -> None:
    robot = jaxik.load_robot(FINGER)
    home = {name: float(value) for name, value in robot.joint_values(robot.q_home).items()}
    assert robot.q_home_origin == "qpos0 moved inside the limits"
    assert home["first"] == 0 and home["second"] == pytest.approx(0.1) and home["third"] == pytest.approx(-0.08)
    # `second` ends at 0.9, where `first` is at -0.1 / 0.7.
    far = jaxik.load_robot(FINGER.replace('offset="0.1"', 'offset="1.0"'))
    home = {name: float(value) for name, value in far.joint_values(far.q_home).items()}
    assert home["second"] <= 0.9 and home["second"] == pytest.approx(0.7 * home["first"] + 1)


def test_joints_that_named_ones_drive_follow_in_a_configuration() -> None:
    robot = jaxik.load_robot(FINGER)
    followed = robot.joint_values(robot.configuration({"first": jnp.array([0.5, 1.0])}))
    np.testing.assert_allclose(followed["second"], [0.45, 0.8])
    np.testing.assert_allclose(followed["third"], [-0.36, -0.64])
    chained = robot.joint_values(robot.configuration({"first": 0.5, "second": 0.2}))
    assert float(chained["second"]) == 0.2 and float(chained["third"]) == pytest.approx(-0.16)
    named = robot.joint_values(robot.configuration({"turn": 0.3, "first": 0.5, "second": 0.2, "third": 0.1}))
    assert [float(named[name]) for name in ("turn", "first", "second", "third")] == [0.3, 0.5, 0.2, 0.1]
    alone = robot.joint_values(robot.configuration({"turn": 0.3}, base=jnp.array([0.0, 0.5, 0.2, 0.1])))
    assert [float(alone[name]) for name in ("first", "second", "third")] == [0.5, 0.2, 0.1]


def test_files_say_configurations_by_what_drives() -> None:
    robot, place = jaxik.load_robot(FINGER), Place("file")
    by_joint = read_configuration({"first": 30.0}, place, robot, Units(angle=np.pi / 180))
    np.testing.assert_array_equal(by_joint, robot.configuration({"first": 30 * np.pi / 180}))
    middle = robot.joint_values(jnp.asarray(read_configuration("mid-range", place, robot, SI)))
    np.testing.assert_allclose([middle[name] for name in robot.joint_names], [0, 0.9, 0.73, -0.584])


@pytest.mark.parametrize("source", mostly_exhaustive(TIPS, [FINGER]), ids=["hand", "mimic joints of a URDF"])
def test_sampled_poses_of_tips_are_reached(source: str) -> None:
    robot, q = sampled(source)
    tasks = {tip: FrameTask(robot.frame(tip), robot.frame_pose(q, tip)) for tip in TIPS[source]}
    found = search(Problem(robot, tasks), jax.random.key(1))
    assert np.mean(np.asarray(found.converged)) > 0.99


def test_leaders_fill_the_range_that_their_followers_leave_them() -> None:
    _, q = sampled(FINGER)
    first = np.asarray(q)[:, 1]
    # Below, third reaches -0.8 * -0.04: all followers are inside. Above, second reaches 0.9 at (0.9 - 0.1) / 0.7.
    lowest, highest = -0.2, 0.8 / 0.7
    np.testing.assert_allclose(np.quantile(first, [0, 0.5, 1]), np.linspace(lowest, highest, 3), atol=0.08)


def test_robots_without_couplings_are_sampled_independently_joint_by_joint() -> None:
    robot, key = jaxik.load_robot("panda"), jax.random.key(5)
    shares = jax.random.uniform(key, (dimensions(robot.topology),), robot.q_home.dtype)
    np.testing.assert_array_equal(robot.sample(key), spread(robot, shares, jnp.ones(())))


def test_each_robot_of_a_batch_has_couplings_of_its_own() -> None:
    robot, _ = sampled(FINGER)
    slopes = jnp.array([0.2, 0.7, -0.1])
    several = dataclasses.replace(robot, equality_data=jnp.stack([robot.equality_data.at[0, 1].set(s) for s in slopes]))
    q = np.asarray(several.sample(jax.random.key(0), (64, 3)))
    np.testing.assert_allclose(q[..., 2], 0.1 + slopes * q[..., 1], atol=1e-12)


def test_couplings_that_contradict_each_other_are_left_out_of_samples() -> None:
    twice = '<equality><joint joint1="b" joint2="a"/><joint joint1="b" joint2="a" polycoef="1 1 0 0 0"/></equality>'
    bodies = "".join(f'<body><joint name="{name}" axis="0 0 1" range="-1 1"/><geom size=".1"/></body>' for name in "ab")
    robot = jaxik.load_robot(f'<mujoco><compiler angle="radian"/><worldbody>{bodies}</worldbody>{twice}</mujoco>')
    q = robot.sample(jax.random.key(0), (COUNT,))
    assert np.abs(np.corrcoef(q.T)[0, 1]) < 0.2
    assert np.all(robot.check_limits(q))
