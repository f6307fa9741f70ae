"""Bundled robots with several limbs, held to the table of `bodies`.

Symmetry, support and masses are read from C MuJoCo's model of the file; one test shows that the loaded robot is it.
"""

import warnings

import jax
import jaxlie
import mujoco
import numpy as np
import pytest
from bodies import (
    BODIES,
    FLOATING,
    MIRROR,
    SYMMETRIC,
    at,
    both,
    home,
    joint_names,
    mirror_image,
    model_of,
    other_side,
    random_postures,
    robot_of,
    scalar_joints,
    site_poses,
    without_side,
)
from tables import mostly_exhaustive

import jaxik


def assert_close(found, expected, atol=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


# --- every one ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BODIES)
def test_body_loads_without_a_warning_and_has_the_sizes_mass_and_sites_of_the_table(name):
    body = BODIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robot = jaxik.load_robot(name)
    assert (robot.nq, robot.nv) == (body.nq, body.nv)
    assert sorted(robot.frame_names["site"]) == sorted(body.sites)
    assert {robot.frame(site).kind for site in body.sites} == {"site"}  # no body has the same name
    assert_close(np.sum(robot.body_mass), body.mass)


@pytest.mark.parametrize("name", BODIES)
def test_every_joint_has_a_velocity_limit_and_home_is_inside_the_limits(name):
    robot = robot_of(name)
    assert [joint.name for joint in robot.topology.joints if joint.type.nq == 7] == ["root"] * BODIES[name].floating
    scalar = np.arange(6 if BODIES[name].floating else 0, robot.nv)
    velocity = np.asarray(robot.velocity_limit)
    assert (velocity[scalar] > 0).all() and np.isfinite(velocity[scalar]).all()
    np.testing.assert_array_equal(robot.q_home, home(name))
    assert float(np.max(robot.limit_excess(robot.q_home))) == 0
    assert jax.jit(lambda robot: robot.check_limits(robot.astype(np.float32).q_home))(robot)


@pytest.mark.parametrize("name", mostly_exhaustive(BODIES, ["humanoid"]))
def test_body_poses_and_centre_of_mass_are_those_of_c_mujoco(name):
    robot, postures = robot_of(name), random_postures(name, 20)
    poses, centers = jax.jit(lambda q: (robot.forward(q).wxyz_xyz, robot.center_of_mass(q)))(postures)
    for q, pose, center in zip(postures, np.asarray(poses), np.asarray(centers), strict=True):
        data = at(name, q)
        turned = np.asarray(jaxlie.SO3(pose[:, :4]).as_matrix())
        assert_close(turned, data.xmat.reshape(-1, 3, 3))
        assert_close(pose[:, 4:], data.xpos)
        assert_close(center, data.subtree_com[0])


@pytest.mark.parametrize("name", BODIES)
def test_couplings_hold_at_home_and_leave_their_leaders_the_whole_range(name):
    topology, model = robot_of(name).topology, model_of(name)
    names = topology.joint_names
    assert {(names[c.follower], names[c.leader]) for c in topology.couplings} == set(BODIES[name].couplings)
    for follower, leader in BODIES[name].couplings:
        q = home(name)
        assert q[model.joint(follower).qposadr[0]] == q[model.joint(leader).qposadr[0]] * (2 / 3) > 0
        (lower, upper), image = model.joint(follower).range, model.joint(leader).range * (2 / 3)
        assert lower <= image[0] < image[1] <= upper


# --- standing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATING)
def test_at_home_the_contacts_are_on_the_floor_and_nothing_is_below(name):
    body = BODIES[name]
    positions, _ = site_poses(name, home(name), body.contacts)
    assert_close(positions[:, 2], body.height)
    assert at(name, home(name)).xpos[1:, 2].min() > 0


@pytest.mark.parametrize("name", FLOATING)
def test_at_home_the_centre_of_mass_is_above_the_support(name):
    body, center = BODIES[name], at(name, home(name)).subtree_com[0][:2]
    corners = site_poses(name, home(name), body.contacts)[0][:, :2]  # of a rectangle along x and y, or of a line
    assert (corners.min(0) + body.margin <= center).all() and (center <= corners.max(0) - body.margin).all()


def test_at_home_the_soles_of_the_humanoid_are_flat_and_its_hands_point_forward():
    _, rotations = site_poses("humanoid", home("humanoid"), ("head", *both("hand", "foot")))
    assert_close(rotations, np.broadcast_to(np.eye(3), (5, 3, 3)))


# --- left and right -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYMMETRIC)
def test_home_and_limits_are_their_own_mirror_image(name):
    model, negated = model_of(name), BODIES[name].negated
    assert negated is not None and set(negated) <= {without_side(joint) for joint in joint_names(model)}
    np.testing.assert_array_equal(mirror_image(name, home(name)), home(name))
    velocity = np.asarray(robot_of(name).velocity_limit)
    for i in scalar_joints(model):
        joint = model.joint(i)
        other = model.joint(other_side(joint.name))
        lower, upper = other.range
        expected = (-upper, -lower) if without_side(joint.name) in negated else (lower, upper)
        np.testing.assert_array_equal(joint.range, expected)
        assert joint.limited == other.limited
        assert velocity[joint.dofadr[0]] == velocity[other.dofadr[0]]


@pytest.mark.parametrize("name", SYMMETRIC)
def test_mirror_image_of_a_posture_has_the_mirror_image_of_its_sites(name):
    sites = BODIES[name].sites
    for q in (home(name), *random_postures(name, 20)):
        positions, rotations = site_poses(name, q, sites)
        there, turned = site_poses(name, mirror_image(name, q), [other_side(site) for site in sites])
        assert_close(there, positions @ MIRROR)
        assert_close(turned, MIRROR @ rotations @ MIRROR)


@pytest.mark.parametrize("name", [name for name in SYMMETRIC if BODIES[name].mirrored_mass])
def test_mirror_image_of_a_posture_has_the_mirror_image_of_its_masses(name):
    model = model_of(name)
    sides = [model.body(other_side(model.body(i).name)).id for i in range(model.nbody)]
    np.testing.assert_array_equal(model.body_mass, model.body_mass[sides])
    np.testing.assert_array_equal(model.body_inertia, model.body_inertia[sides])
    for q in random_postures(name, 20):
        center = at(name, mirror_image(name, q)).subtree_com[0]
        assert_close(center, MIRROR @ at(name, q).subtree_com[0])


# --- figures --------------------------------------------------------------------------------------------------------

COMPOSITES = [
    ("dual_arm", "left_", "left_link0", "panda"),
    ("dual_arm", "right_", "right_link0", "panda"),
    ("mobile_manipulator", "", "arm_base", "ur5e"),
]


def seen_from(data: mujoco.MjData, base: int, site: str) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and position of a site in the axes of a body."""
    back = data.xmat[base].reshape(3, 3).T
    return back @ data.site(site).xmat.reshape(3, 3), back @ (data.site(site).xpos - data.xpos[base])


@pytest.mark.parametrize(("name", "prefix", "base", "arm"), COMPOSITES)
def test_arm_of_a_composite_robot_is_the_bundled_arm(name, prefix, base, arm):
    whole, alone = model_of(name), model_of(arm)
    joints = [whole.joint(prefix + joint) for joint in joint_names(alone)]
    first = whole.body(base).id
    for field in ("body_mass", "body_ipos", "body_inertia", "body_iquat"):
        found = getattr(whole, field)[first : first + alone.nbody - 1]
        np.testing.assert_array_equal(found, getattr(alone, field)[1:])
    np.testing.assert_array_equal([joint.range for joint in joints], alone.jnt_range)
    velocity = np.asarray(robot_of(name).velocity_limit)[[joint.dofadr[0] for joint in joints]]
    np.testing.assert_array_equal(velocity, jaxik.load_robot(arm).velocity_limit)
    tip = "flange" if prefix else "tcp"  # beyond it, the hands of the two arms are turned apart
    for q in random_postures(name, 5):
        found = seen_from(at(name, q), first, prefix + tip)
        expected = seen_from(at(arm, q[[joint.qposadr[0] for joint in joints]]), 1, tip)
        for x, y in zip(found, expected, strict=True):
            assert_close(x, y)


STATURE, WEIGHT = 1.70, 60.0
HEIGHTS = {"foot": 0.039, "shank": 0.285, "thigh": 0.530, "upper_arm": 0.818, "forearm": 0.632, "palm": 0.486}
TRUNK = {"pelvis": 0.142, "torso_link": 0.355, "head_link": 0.081}
LIMBS = {"foot": 0.0145, "shank": 0.0465, "thigh": 0.1, "upper_arm": 0.028, "forearm": 0.016}


def test_humanoid_standing_straight_has_the_published_heights_and_masses():
    model = model_of("humanoid")
    data = at("humanoid", model.qpos0)
    for body, part in HEIGHTS.items():
        for side in ("left", "right"):
            assert_close(data.body(f"{side}_{body}_link").xpos[2], part * STATURE)
    for site, height in {"head": 0.936, "left_toe": 0, "left_heel": 0, "left_foot": 0}.items():
        assert_close(data.site(site).xpos[2], height * STATURE)
    length = data.site("left_toe").xpos - data.site("left_heel").xpos
    assert_close(length, [0.152 * STATURE, 0, 0])
    breadth = data.body("left_upper_arm_link").xpos - data.body("right_upper_arm_link").xpos
    assert_close(breadth, [0, 0.259 * STATURE, 0])
    limbs = {f"{limb}_link": part for name, part in LIMBS.items() for limb in both(name)}
    for body, part in (TRUNK | limbs).items():
        assert_close(model.body(body).mass, part * WEIGHT)
    hand = sum(model.body(f"left_{body}_link").mass[0] for body in ("palm", "fingers", "thumb"))
    assert_close(hand, 0.006 * WEIGHT)


FINGERS = {"index": (0.245, 0.143, 0.097), "middle": (0.266, 0.170, 0.108), "ring": (0.244, 0.165, 0.107)}
FINGERS["thumb"] = (0.251, 0.196, 0.158)


@pytest.mark.parametrize("finger", FINGERS)
def test_fingers_have_the_published_lengths_to_a_tenth_of_a_millimetre(finger):
    model = model_of("hand")
    tip = model.site(f"{finger}_tip")
    ends = [tip.pos]
    body = tip.bodyid[0]
    for _ in range(2):
        ends.append(model.body_pos[body])
        body = model.body_parentid[body]
    assert_close(np.linalg.norm(ends, axis=1)[::-1], 0.19 * np.array(FINGERS[finger]), atol=6e-5)


def test_fingers_close_towards_the_palm_and_the_thumb_meets_them():
    straight, closed = np.zeros(16), home("hand")
    before, _ = site_poses("hand", straight, BODIES["hand"].sites)
    after, _ = site_poses("hand", closed, BODIES["hand"].sites)
    assert (after[:, 2] - before[:, 2] > 0.05).all()
    assert after[:3, 1].min() < after[3, 1] < after[:3, 1].max()
