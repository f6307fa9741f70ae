"""Robots: what loading makes of a model, names and errors, mounts and tool points, pickling."""

import dataclasses
import pickle
import warnings
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import models
import mujoco
import numpy as np
import oracle
import own_tasks
import pytest
import random_trees
from tables import mostly_exhaustive

from jaxik.core.errors import JaxikError, JaxikWarning, UnknownNameError
from jaxik.kinematics.frames import Frame
from jaxik.robot import batched
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

ARM = """<mujoco model="arm"><compiler angle="radian"/><worldbody>
<site name="marker" pos="1 2 3"/>
<body name="upper" pos="0 0 .5" quat="1 0 1 0"><joint name="shoulder" axis="0 0 1" range="0.2 1" ref="0.1"/>
 <geom name="link" size=".1"/>
 <body name="lower" pos="1 0 0"><joint name="elbow" type="ball" range="0 1"/><geom size=".1"/>
  <body name="tool" pos="0 .2 0"><joint name="slide" type="slide"/><geom name="tool" size=".1"/>
   <site name="tip" pos=".1 0 0"/></body></body></body>
<body name="second" pos="0 1 0"><joint name="other"/><geom size=".1"/></body>
<body name="target" mocap="true" pos="3 3 3"/>
</worldbody></mujoco>"""
FREE = """<mujoco model="duck"><worldbody><body name="trunk"><freejoint name="root"/><geom size=".1"/></body>
</worldbody></mujoco>"""


@cache
def arm() -> Robot:
    return load_robot(ARM)


@cache
def duck() -> Robot:
    return load_robot(FREE)


# Joints with a reference, couplings, meshes; MJCF and URDF.
ALWAYS = ("gym_walker2d", "robotiq_2f85", "frax_panda")
LEAVES = {
    "body_position": "body_pos",
    "body_quaternion": "body_quat",
    "body_mass": "body_mass",
    "joint_anchor": "jnt_pos",
    "joint_axis": "jnt_axis",
    "site_position": "site_pos",
    "qpos0": "qpos0",
}


@pytest.mark.parametrize("name", mostly_exhaustive(models.MODELS, ALWAYS))
def test_a_published_model_loads_alike_from_its_file_and_from_the_compiled_model(name: str) -> None:
    model = models.reference_model(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JaxikWarning)
        robots = [load_robot(models.require(name)), load_robot(model)]
    for robot in robots:
        assert (robot.nq, robot.nv) == (model.nq, model.nv)
        for leaf, array in LEAVES.items():
            if leaf != "body_mass" or not models.MODELS[name].needs_kinematics_only:
                np.testing.assert_array_equal(getattr(robot, leaf), getattr(model, array), err_msg=leaf)
        for i, joint in enumerate(robot.topology.joints):
            taken = any(model.joint(k).name == f"joint{i}" for k in range(model.njnt))
            assert joint.name == (model.joint(i).name or f"joint{i}{'_' * taken}")
            limits = model.jnt_range[i] if model.jnt_limited[i] else (-np.inf, np.inf)
            assert (robot.limit_lower[i], robot.limit_upper[i]) == tuple(limits)
        assert robot.topology.keyframes == tuple(model.key(i).name for i in range(model.nkey))
        np.testing.assert_array_equal(robot.keyframes, model.key_qpos.reshape(model.nkey, model.nq))


def test_a_robot_is_no_view_of_the_model_it_came_from() -> None:
    model = mujoco.MjModel.from_xml_string(ARM)
    robot = load_robot(model)
    before = np.array(robot.body_position)
    model.body_pos[:] = 77
    np.testing.assert_array_equal(robot.body_position, before)


@pytest.mark.parametrize("seed", range(4))
def test_home_is_the_keyframe_or_else_the_reference_moved_inside_the_limits(seed: int) -> None:
    model = random_trees.compiled(seed)
    robot = load_robot(model)
    if seed % 2 == 0:
        np.testing.assert_array_equal(robot.q_home, model.key("home").qpos)
    else:
        np.testing.assert_array_equal(robot.q_home, robot.clamp(model.qpos0))
        assert robot.check_limits(robot.q_home) and not robot.check_limits(robot.qpos0)
    np.testing.assert_array_equal(robot.keyframe("bent"), model.key("bent").qpos)


OUTSIDE = """<mujoco model="arm"><compiler angle="radian"/><worldbody><body>
<joint name="turn" axis="0 0 1" range="-1 1"/><geom size=".1"/><body><joint name="ball" type="ball" range="0 0.5"/>
<geom size=".1"/><body><joint name="slide" type="slide" range="0 1"/><geom size=".1"/><body>
<joint name="free" axis="0 1 0"/><geom size=".1"/></body></body></body></body></worldbody>
<keyframe><key name="home" qpos="{}"/></keyframe></mujoco>"""


@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("1 1 0 0 0 0 9", None),
        ("1.0000001 0.97 0.2431 0 0 1 9", None),  # the ball by 0.49 rad
        ("-1.5 1 0 0 0 0.5 0", r'the keyframe "home" is outside the limits of turn \(by 0.5 rad\): solve starts'),
        ("0 0 0 1 0 -0.25 0", r"ball \(by 2.64 rad\), slide \(by 0.25 m\)"),
        ("0 -1 0 0 0 1 0", None),
    ],
)
def test_a_home_outside_the_limits_is_said_at_loading(home: str, said: str | None) -> None:
    if said is None:
        load_robot(OUTSIDE.format(home))  # a warning is an error in these tests
        return
    with pytest.warns(JaxikWarning, match=said):
        robot = load_robot(OUTSIDE.format(home))
    assert robot.q_home[0] == float(home.split()[0])


def test_batched_keyframes_are_looked_up_behind_the_batch() -> None:
    robot = load_robot(random_trees.compiled(0))
    several = dataclasses.replace(robot, keyframes=jnp.stack([robot.keyframes, 2 * robot.keyframes]))
    np.testing.assert_array_equal(
        several.keyframe("bent"), jnp.stack([robot.keyframe("bent"), 2 * robot.keyframe("bent")])
    )


# --- names ---------------------------------------------------------------------------------------------------------


def test_indices_of_joints_are_mujocos() -> None:
    for robot, xml in ((arm(), ARM), (duck(), FREE)):
        model = mujoco.MjModel.from_xml_string(xml)
        for i, name in enumerate(robot.joint_names):
            q, v = robot.q_indices(name), robot.v_indices(name)
            assert (q[0], v[0]) == (model.jnt_qposadr[i], model.jnt_dofadr[i])
            assert (len(q), len(v)) == {0: (7, 6), 1: (4, 3), 2: (1, 1), 3: (1, 1)}[int(model.jnt_type[i])]


def test_a_joint_without_a_name_gets_one_that_no_other_has() -> None:
    robot = load_robot(
        "<mujoco><worldbody><body><joint/><geom size='1'/><body><joint name='joint0'/><geom size='1'/></body></body>"
        "</worldbody></mujoco>"
    )
    assert robot.joint_names == ("joint0_", "joint0")


def test_frames_are_found_by_name_and_kind() -> None:
    assert arm().frame("tip") == Frame("site", 1)
    assert arm().frame("lower") == Frame("body", 2)
    assert arm().frame("link") == Frame("geom", 0)
    assert arm().frame("tool", kind="geom") == Frame("geom", 2)
    assert arm().frame(Frame("body", 2)) == Frame("body", 2)
    assert arm().frame_names["body"] == ("world", "upper", "lower", "tool", "second", "target")
    np.testing.assert_array_equal(arm().frame_pose(arm().q_home, "marker").translation(), [1, 2, 3])


ERRORS = {
    "ambiguous frame": (lambda r: r.frame("tool"), JaxikError, 'kind="body" or kind="geom"'),
    "unknown frame": (lambda r: r.frame("tipp"), UnknownNameError, "did you mean 'tip'"),
    "frame of another model's prefix": (lambda r: r.frame("robot1_lower"), UnknownNameError, "did you mean 'lower'"),
    "frame like no other": (lambda r: r.frame("xyz"), UnknownNameError, "known: 'marker', 'tip', 'world', 'upper'"),
    "joint as a frame": (lambda r: r.frame("elbow"), UnknownNameError, "'elbow' is a joint, and no frame: .* 'lower'"),
    "unknown in the kind": (lambda r: r.frame("lower", "site"), UnknownNameError, "unknown site 'lower'"),
    "no name": (lambda r: r.frame(""), UnknownNameError, "unknown frame ''"),
    "kind": (lambda r: r.frame("tip", "link"), JaxikError, "'body', 'site' or 'geom', not 'link'"),
    "frame out of range": (lambda r: r.frame(Frame("site", 9)), JaxikError, "site index 9 is out of range: arm has 2"),
    "joint": (lambda r: r.q_indices("elbo"), UnknownNameError, "did you mean 'elbow'"),
    "keyframe": (lambda r: r.keyframe("home"), UnknownNameError, "there is no keyframe here"),
    "body of the centre of mass": (lambda r: r.center_of_mass(r.q_home, "uper"), UnknownNameError, "'upper'"),
    "massless": (lambda r: r.center_of_mass(r.q_home, "target"), JaxikError, "'target' of arm has no mass"),
    "reference": (
        lambda r: r.frame_jacobian(r.q_home, "tip", "local"),
        JaxikError,
        "body, world, world_aligned, not 'local'",
    ),
    "value of a ball": (lambda r: r.configuration({"elbow": 0.1}), JaxikError, r"ball joint with 4 coord.* shape \(\)"),
    "joint of a value": (lambda r: r.configuration({"shoulderr": 0.1}), UnknownNameError, "did you mean 'shoulder'"),
    "base": (lambda r: r.configuration({}, np.zeros(3)), JaxikError, r"nq = 7, not \(3,\)"),
    "batches of values": (
        lambda r: r.configuration({"shoulder": np.zeros(2), "slide": np.zeros(3)}),
        JaxikError,
        r"base: \(\), shoulder: \(2,\), slide: \(3,\)",
    ),
    "site twice": (lambda r: r.with_frame("tip", "tool", jaxlie.SE3.identity()), JaxikError, "'tip' already"),
    "body of a frame": (lambda r: r.with_frame("a", "tol", jaxlie.SE3.identity()), UnknownNameError, "'tool'"),
    "frame on a site": (lambda r: r.with_frame("a", r.frame("tip"), jaxlie.SE3.identity()), JaxikError, "site 'tip'"),
    "base of a free robot": (lambda _: duck().with_base(jaxlie.SE3.identity()), JaxikError, "duck has a free base"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_what_was_given_and_what_is_allowed(name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text) as caught:
        call(arm())
    assert "\n" not in str(caught.value)


def test_a_robot_tells_a_person_what_it_is() -> None:
    assert repr(arm()) == (
        "Robot(arm: 6 degrees of freedom in 4 joints (1 ball, 1 slide, 2 hinge), 5 bodies, sites: marker, tip, "
        "q_home: qpos0 moved inside the limits)"
    )
    assert "1 free" in repr(duck()) and "sites: none" in repr(duck())
    several = dataclasses.replace(arm(), q_home=jnp.zeros((3, 7)))
    assert repr(several).endswith("batch (3,))")
    assert repr(jax.vmap(lambda r: r)(batched_everywhere(2))).startswith("Robot(arm: 6 degrees")


def batched_everywhere(count: int) -> Robot:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), arm())


# --- configurations ------------------------------------------------------------------------------------------------

BALL = np.array([0.5, 0.5, 0.5, 0.5])
CONFIGURATIONS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "nothing": ({}, ()),
    "scalars": ({"shoulder": 0.3, "slide": -2}, ()),
    "ball": ({"elbow": BALL, "shoulder": [0.3]}, ()),
    "batch": ({"shoulder": np.linspace(0, 1, 3), "elbow": BALL}, (3,)),
    "broadcast": ({"shoulder": np.ones((2, 1, 1)), "slide": np.ones((2, 3)), "elbow": np.tile(BALL, (3, 1))}, (2, 3)),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_are_written_by_joint_name(name: str) -> None:
    values, batch = CONFIGURATIONS[name]
    q = arm().configuration(values)
    assert q.shape == (*batch, 7)
    for joint in arm().joint_names:
        got = np.asarray(q)[..., arm().q_indices(joint)]
        want = values.get(joint, np.asarray(arm().q_home)[arm().q_indices(joint)])
        width = got.shape[-1]
        want = np.asarray(want, float)
        want = want if want.shape[-1:] == (width,) else want[..., None]  # hinges and slides may leave their axis out
        np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))


def test_a_base_of_whole_numbers_does_not_round_the_values() -> None:
    q = arm().configuration({"shoulder": 0.5}, base=[0, 1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(q, [0.5, 1, 0, 0, 0, 0, 0])
    batch = arm().configuration({"shoulder": np.array([0.1, 0.2])}, base=np.zeros((2, 7)))
    np.testing.assert_array_equal(batch[:, 0], [0.1, 0.2])


# --- changes -------------------------------------------------------------------------------------------------------

POSE = jaxlie.SE3(jnp.array([0.1, -0.7, 0.5, 0.5, 0.3, -0.2, 0.9]))


def test_a_new_frame_moves_with_its_body() -> None:
    q = arm().sample(jax.random.key(0))
    longer = arm().with_frame("grasp", "lower", POSE)
    want = arm().frame_pose(q, "lower") @ POSE
    np.testing.assert_allclose(longer.frame_pose(q, "grasp").as_matrix(), want.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(longer.frame_pose(q, "tip").wxyz_xyz, arm().frame_pose(q, "tip").wxyz_xyz)
    assert longer.with_frame("third", Frame("body", 0), POSE).frame_names["site"] == ("marker", "tip", "grasp", "third")
    assert arm().frame_names["site"] == ("marker", "tip")


def test_a_batch_of_tools_is_a_batch_of_frames_and_derivatives_reach_it() -> None:
    q = arm().sample(jax.random.key(0))
    poses = jaxlie.SE3(jnp.stack([POSE.wxyz_xyz, jaxlie.SE3.identity().wxyz_xyz]))
    got = arm().with_frame("grasp", "tool", poses).frame_pose(q, "grasp")
    want = arm().frame_pose(q, arm().frame("tool", "body"))
    np.testing.assert_allclose(got.translation()[1], want.translation(), atol=1e-14)

    def height(offset: jax.Array) -> jax.Array:
        pose = jaxlie.SE3.from_translation(offset)
        return arm().with_frame("grasp", "tool", pose).frame_pose(q, "grasp").translation()[2]

    np.testing.assert_allclose(jax.grad(height)(jnp.zeros(3)), want.rotation().as_matrix()[2], atol=1e-14)


def test_a_mounted_robot_moves_as_mujocos_does_with_moved_bodies() -> None:
    q = np.asarray(arm().sample(jax.random.key(1)))
    spec = mujoco.MjSpec.from_string(ARM)
    pose = POSE.normalize()
    for name in ("upper", "second"):
        body = spec.body(name)
        moved = pose @ jaxlie.SE3(jnp.concatenate([np.array(body.quat), np.array(body.pos)])).normalize()
        body.quat, body.pos = np.asarray(moved.rotation().wxyz), np.asarray(moved.translation())
    data = oracle.evaluated(oracle.exact(spec.compile()), q)
    mounted = arm().with_base(POSE)
    np.testing.assert_allclose(mounted.forward(q).translation(), data.xpos, atol=1e-12)
    np.testing.assert_allclose(mounted.forward(q).rotation().as_matrix().reshape(-1, 9), data.xmat, atol=1e-12)
    np.testing.assert_array_equal(mounted.frame_pose(q, "marker").translation(), [1, 2, 3])


def test_a_batch_of_mounts_is_a_batch_of_robots() -> None:
    q = arm().sample(jax.random.key(1), (3,))
    mounts = jaxlie.SE3(jnp.stack([POSE.wxyz_xyz, jaxlie.SE3.identity().wxyz_xyz, POSE.inverse().wxyz_xyz]))
    got = arm().with_base(mounts).frame_pose(q, "tip")
    np.testing.assert_allclose(got.as_matrix(), (mounts @ arm().frame_pose(q, "tip")).as_matrix(), atol=1e-14)


@pytest.mark.filterwarnings("ignore:.*it has no joints")
def test_a_robot_of_mocap_bodies_alone_can_be_mounted() -> None:
    targets = load_robot('<mujoco><worldbody><body name="a" mocap="true" pos="1 0 0"/></worldbody></mujoco>')
    np.testing.assert_array_equal(targets.with_base(POSE).forward(targets.q_home).translation(), [[0, 0, 0], [1, 0, 0]])


# --- identity ------------------------------------------------------------------------------------------------------


def test_pickled_robots_come_back_with_the_same_topology() -> None:
    back = pickle.loads(pickle.dumps(arm()))
    assert back.topology is arm().topology
    jax.tree.map(np.testing.assert_array_equal, back, arm())
    q = arm().sample(jax.random.key(2))
    np.testing.assert_array_equal(back.frame_pose(q, "tip").wxyz_xyz, arm().frame_pose(q, "tip").wxyz_xyz)


def test_the_same_model_loaded_twice_has_one_topology_and_another_model_another() -> None:
    assert load_robot(ARM).topology is arm().topology
    assert hash(load_robot(ARM).topology) == hash(arm().topology)
    other = load_robot(ARM.replace('name="slide"', 'name="glide"'))
    assert other.topology != arm().topology
    assert jax.tree.structure(other) != jax.tree.structure(arm())


def test_outside_of_a_trace_one_program_serves_all_frames() -> None:
    """And gives what a program for the frame alone does, in all references; of sites, bodies and geoms."""
    robot = load_robot(own_tasks.MIXED)
    q = robot.sample(jax.random.key(0), (3,))
    frames = [robot.frame(name, kind) for kind, names in robot.frame_names.items() for name in names]
    assert len(frames) > 5
    batched._compiled_for_any_frame.clear_cache()
    programs = batched._compiled_for_any_frame._cache_size
    every = [(robot.frame_pose(q, frame).wxyz_xyz, robot.frame_jacobian(q, frame, "world")) for frame in frames]
    assert programs() == 2

    @jax.jit
    def traced(q: jax.Array) -> Any:
        some = frames[1::4]
        return [(robot.frame_pose(q, frame).wxyz_xyz, robot.frame_jacobian(q, frame, "world")) for frame in some]

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), every[1::4], traced(q))
    for reference in ("body", "world_aligned"):
        one = jax.jit(lambda q, reference=reference: robot.frame_jacobian(q, "tip", reference))(q)
        np.testing.assert_allclose(robot.frame_jacobian(q, "tip", reference), one, atol=1e-13)
