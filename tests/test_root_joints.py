"""Robots that are freed from the world or lose branches, and joint values that go to and from MuJoCo's data by name."""

from functools import cache

import jax
import jax.numpy as jnp
import jaxlie
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


def test_a_robot_on_a_floor_is_the_model_with_slides_and_a_hinge() -> None:
    """The base is turned against the world: its joints are along and about the world's axes."""
    source = TWO.replace('euler="0 0 30"', 'euler="20 -10 30"')
    spec = mujoco.MjSpec.from_string(source)
    base = spec.body("base")
    base_from_world = np.zeros(9)
    mujoco.mju_quat2Mat(base_from_world, mujoco.MjModel.from_xml_string(source).body("base").quat)
    slide, hinge = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE
    for i, (name, kind) in enumerate((("root_TX", slide), ("root_TY", slide), ("root_RZ", hinge))):
        base.add_joint(name=name, type=kind, axis=base_from_world.reshape(3, 3)[i])
    model = oracle.exact(spec.compile())
    robot = jaxik.load_robot(source).with_planar_root("base")
    assert robot.joint_names == ("lamp", "root_TX", "root_TY", "root_RZ", "a", "b")
    np.testing.assert_allclose(robot.q_home, model.qpos0, atol=1e-12)
    assert robot.topology.couplings == jaxik.load_robot(model).topology.couplings
    q = robot.sample(jax.random.key(0))
    data = oracle.evaluated(model, np.asarray(q))
    np.testing.assert_allclose(robot.forward(q).translation(), data.xpos, atol=1e-12)
    moved = robot.forward(q).translation()[robot.topology.body_index("base")]
    np.testing.assert_allclose(moved, [*q[np.array([1, 2])], 0.5], atol=1e-12)


def test_an_arm_drives_to_where_it_cannot_reach() -> None:
    cart = jaxik.load_robot(TWO).with_planar_root("base")
    target = jaxlie.SE3.from_translation(jnp.array([[3.0, 2.0, 0.5], [-5.0, 0.1, 0.5]]))
    tip = jaxik.FrameTask(cart.frame("tip", "body"), target, orientation_cost=None)
    solution = jaxik.solve(jaxik.Problem(cart, {"tip": tip}), cart.q_home)
    solution.check()


def test_what_cannot_be_freed_is_told() -> None:
    with pytest.raises(jaxik.JaxikError, match="say which body is the root.*'lamp', 'base'"):
        jaxik.load_robot(TWO).with_free_root()
    with pytest.raises(jaxik.JaxikError, match="moves already, by its joint 'lamp'"):
        jaxik.load_robot(TWO).with_free_root("lamp")
    with pytest.raises(jaxik.JaxikError, match="say which body"):
        jaxik.load_robot(TWO).with_free_root("tip")
    with pytest.raises(jaxik.JaxikError, match="joint 'root_TX' already"):
        jaxik.load_robot(TWO.replace('"lamp" axis', '"root_TX" axis')).with_planar_root("base")
    with pytest.raises(jaxik.JaxikError, match="joint 'a' already"):
        jaxik.load_robot(TWO).with_free_root("base", "a")


URDF = """<robot name="walker"><link name="trunk">MASS</link><link name="leg">MASS</link><link name="foot">MASS</link>
  <link name="tail">MASS</link>
  <joint name="hip" type="revolute"><parent link="trunk"/><child link="leg"/><origin xyz="0 .1 -.2" rpy=".3 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="1" velocity="2"/></joint>
  <joint name="knee" type="revolute"><parent link="leg"/><child link="foot"/><origin xyz="0 0 -.4" rpy="0 0 .2"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="1" velocity="3"/></joint>
  <joint name="wag" type="continuous"><parent link="trunk"/><child link="tail"/><origin xyz="-.3 0 0"/>
    <axis xyz="0 0 1"/></joint></robot>""".replace(
    "MASS", '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
)


def test_a_urdf_gets_a_free_root_as_it_is_loaded() -> None:
    robot = jaxik.load_robot(URDF, free_root=True)
    assert robot.joint_names == ("root", "hip", "knee", "wag") and robot.find_roots() == ("trunk",)
    np.testing.assert_array_equal(robot.velocity_limit[6:8], [2, 3])
    floating = URDF.replace("<link", '<link name="ground"/><link', 1).replace(
        "</robot>",
        '<joint name="root" type="floating"><parent link="ground"/><child link="trunk"/></joint></robot>',
    )
    model = jaxik.load_robot(floating)
    q = robot.sample(jax.random.key(0))
    for link in ("trunk", "foot", "tail"):
        there, own = (r.frame_pose(q, r.frame(link, "body")).as_matrix() for r in (model, robot))
        np.testing.assert_allclose(own, there, atol=1e-12)


# Two trees; of the first a branch holds a loop, one a coupled pair, one a tool and one nothing.
TREE = """<mujoco><worldbody>
  <body name="base"><joint name="lift" type="slide" axis="0 0 1"/><geom name="foot" size=".1"/>
    <body name="idle" pos="0 .3 0"><joint name="idle" axis="1 0 0"/><geom size=".1"/>
      <body name="hand" pos="0 .2 0"><joint name="wrist" type="ball"/><geom size=".1"/><site name="idle"/></body></body>
    <body name="rod" pos=".3 0 0"><joint name="rod" axis="0 1 0"/><geom size=".1"/></body>
    <body name="bar" pos=".5 0 0"><joint name="bar" axis="0 1 0"/><geom size=".1"/></body>
    <body name="drive" pos="0 -.3 0"><joint name="drive" axis="0 1 0"/><geom size=".1"/></body>
    <body name="arm" pos="0 0 .4" euler="20 0 0"><joint name="arm" axis="0 1 0" range="-60 60"/><geom size=".1"/>
      <site name="tool" pos=".2 0 .1" euler="0 30 0"/></body></body>
  <body name="other" pos="2 0 0"><freejoint name="other"/><geom size=".1"/></body></worldbody>
  <equality><weld body1="other" body2="hand" active="false"/><connect body1="rod" body2="bar" anchor=".1 0 .1"/>
    <joint joint1="arm" joint2="drive" polycoef="0 .5 0 0 0"/><joint joint1="idle" joint2="drive"/></equality>
  <keyframe><key name="home" qpos=".1 .2 1 0 0 0 .3 .4 .5 .25 2 0 0 1 0 0 0"/></keyframe></mujoco>"""


def test_a_trimmed_robot_moves_what_is_left_as_the_model_does() -> None:
    model = oracle.exact(mujoco.MjModel.from_xml_string(TREE))
    whole = jaxik.load_robot(model, geometry="model")
    robot = whole.trimmed("tool")
    assert robot.joint_names == ("lift", "rod", "bar", "drive", "arm")
    assert robot.topology.body_names == ("world", "base", "rod", "bar", "drive", "arm")
    assert [(e.kind, e.members, e.bodies) for e in robot.topology.equalities] == [
        ("connect", (), (2, 3)),
        ("joint", (4, 3), robot.topology.equalities[1].bodies),
    ]
    np.testing.assert_allclose(robot.q_home, [0.1, 0.3, 0.4, 0.5, 0.25])
    assert robot.geometry is not None and set(robot.geometry.bodies) == {1, 2, 3, 4, 5}
    q = np.asarray(robot.sample(jax.random.key(0)))
    qpos = np.array(whole.q_home)
    for joint in robot.joint_names:
        qpos[whole.q_indices(joint)] = q[robot.q_indices(joint)]
    data = oracle.evaluated(model, qpos)
    for name in ("tool", "foot"):
        pose = robot.frame_pose(q, name)
        rotation, position = oracle.frame_pose(data, whole.frame(name))
        np.testing.assert_allclose(pose.translation(), position, atol=1e-12)
        np.testing.assert_allclose(pose.rotation().as_matrix(), rotation, atol=1e-12)
    task, full = (jaxik.EqualityConstraintTask(r.equalities()) for r in (robot, whole))
    own = jax.jit(lambda q: task.residual(robot, robot.kinematics(q, task.frames)))(q)
    all_rows = jax.jit(lambda q: full.residual(whole, whole.kinematics(q, full.frames)))(qpos)
    np.testing.assert_allclose(own, all_rows[:4], atol=1e-12)


def test_roots_are_found_and_nothing_is_trimmed_to_nothing() -> None:
    robot = jaxik.load_robot(TREE)
    assert robot.find_roots() == ("base", "other") and robot.find_roots("tool", "hand") == ("base",)
    assert robot.trimmed("other").find_roots() == ("base", "other")  # the loop stays
    alone = jaxik.load_robot(TWO)
    assert alone.trimmed(alone.frame("lamp", "body")).joint_names == ("lamp",)
    with pytest.raises(jaxik.JaxikError, match="nothing of .* would move"):
        alone.trimmed(alone.frame("base", "body"))


def test_a_follower_whose_limits_bound_its_leader_stays() -> None:
    """Of joints that turn twice as far as the knee one has limits."""
    joints = (("knee", 1.0), ("bound", 1.0), ("free", 0.0))
    bodies = "".join(
        f'<body name="{name}"><joint name="{name}" range="{-57.3 * most} {57.3 * most}"/><geom size=".1"/></body>'
        for name, most in joints
    )
    couplings = "".join(f'<joint joint1="{name}" joint2="knee" polycoef="0 2 0 0 0"/>' for name in ("bound", "free"))
    whole = jaxik.load_robot(f"<mujoco><worldbody>{bodies}</worldbody><equality>{couplings}</equality></mujoco>")
    robot = whole.trimmed(whole.frame("knee", "body"))
    assert robot.joint_names == ("knee", "bound")
    q = np.asarray(robot.sample(jax.random.key(0), (64,)))
    assert 0.4 < np.abs(q[:, 0]).max() < 0.501


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
    nameless = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><joint axis='0 0 1'/><geom size='.1'/><body><joint name='joint0' axis='0 1 0'/>"
        "<geom size='.1'/></body></body></worldbody></mujoco>"
    )
    own, of_own = jaxik.load_robot(nameless), mujoco.MjData(nameless)
    own.copy_to(of_own, jnp.array([0.5, -0.25]))
    np.testing.assert_array_equal(of_own.qpos, [0.5, -0.25])
    np.testing.assert_array_equal(own.configuration(of_own), of_own.qpos)
    with pytest.raises(jaxik.UnknownNameError, match="unknown joint"):
        jaxik.load_robot("ur5e").copy_to(data, np.zeros(6))
    with pytest.raises(jaxik.JaxikError, match="not a batch"):
        robot.copy_to(data, np.zeros((2, 7)))
