"""Shapes of the bundled robots: on every body, of the quick kinds, apart where the robot is, without mass."""

from collections import Counter
from functools import cache

import mujoco
import numpy as np
import pytest

import jaxik
from jaxik.pictures.arm_meshes import arm_surfaces
from jaxik.robot.loading.catalog import find_by_name

# Their shapes are there to be seen: links that meet in a loop would always touch.
MECHANISMS = (*("delta", "five_bar", "four_bar", "gough_arm", "gripper", "hexapod", "linkage_leg", "rover", "stewart"),)
ROBOTS = tuple(name for name in jaxik.bundled_robots() if name not in MECHANISMS)
SPHERE, CAPSULE, BOX = (int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}")) for kind in ("SPHERE", "CAPSULE", "BOX"))


@cache
def model_of(name: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(find_by_name(name)))


def at_home(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = model_of(name)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    return model, data


def pairs_in_contact(model: mujoco.MjModel, data: mujoco.MjData) -> set[tuple[str, str]]:
    """Names of the bodies of each contact, in order."""
    bodies = np.sort(model.geom_bodyid[data.contact.geom[: data.ncon].reshape(-1, 2)], axis=1)
    return {(model.body(a).name, model.body(b).name) for a, b in bodies}


def distance(model: mujoco.MjModel, data: mujoco.MjData, geom: int, point: np.ndarray) -> float:
    """Signed distance of a point (3,) in the world to a geom [m], by the formulas of its kind."""
    local = data.geom_xmat[geom].reshape(3, 3).T @ (point - data.geom_xpos[geom])
    size = model.geom_size[geom]
    if model.geom_type[geom] == BOX:
        beyond = np.abs(local) - size
        return float(np.linalg.norm(np.maximum(beyond, 0)) + min(beyond.max(), 0))
    half = size[1] if model.geom_type[geom] == CAPSULE else 0
    local[2] -= np.clip(local[2], -half, half)
    return float(np.linalg.norm(local) - size[0])


def geoms_of(model: mujoco.MjModel, body: int) -> np.ndarray:
    return np.flatnonzero(model.geom_bodyid == body)


@pytest.mark.parametrize("name", ROBOTS)
def test_every_body_has_one_to_eight_named_spheres_capsules_or_boxes(name):
    model = model_of(name)
    assert {*model.geom_type.tolist()} <= {SPHERE, CAPSULE, BOX}
    for body in range(1, model.nbody):
        geoms = geoms_of(model, body)
        assert 1 <= len(geoms) <= 8, model.body(body).name
        assert [model.geom(g).name for g in geoms] == [f"{model.body(body).name}_{i}" for i in range(len(geoms))]


@pytest.mark.parametrize("name", ROBOTS)
def test_shapes_add_no_mass(name):
    spec = mujoco.MjSpec.from_file(str(find_by_name(name)))
    assert {geom.mass for geom in spec.geoms} == {0.0}
    for geom in [*spec.geoms]:
        spec.delete(geom)
    bare, model = spec.compile(), model_of(name)
    for field in ("body_mass", "body_ipos", "body_iquat", "body_inertia"):
        np.testing.assert_array_equal(getattr(model, field), getattr(bare, field))


@pytest.mark.parametrize("name", ROBOTS)
def test_nothing_touches_at_home_and_no_pair_touches_often(name):
    model, data = at_home(name)
    assert pairs_in_contact(model, data) == set()
    random, times = np.random.default_rng(0), Counter()
    scalar = [j for j in range(model.njnt) if model.jnt_type[j] != mujoco.mjtJoint.mjJNT_FREE]
    limits = np.where(model.jnt_limited[scalar, None], model.jnt_range[scalar], [-np.pi, np.pi])
    for q in random.uniform(*limits.T, (300, len(scalar))):
        data.qpos[model.jnt_qposadr[scalar]] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        times.update(pairs_in_contact(model, data))
    most = 150 if name == "mobile_manipulator" else 75  # whose arm reaches down onto the base
    assert not [pair for pair, count in times.items() if count > most], "needs an <exclude>, or slimmer shapes"


@pytest.mark.parametrize("name", ROBOTS)
def test_each_joint_is_inside_or_next_to_the_shapes_that_it_joins(name):
    """Shapes in a wrong frame, or a link without cover, leave a joint in the air."""
    model, data = at_home(name)
    for j in range(model.njnt):
        body = model.jnt_bodyid[j]
        if name == "mobile_manipulator" and not model.body_parentid[body]:
            continue  # its base moves on the floor, and has its wheels there
        geoms = [*geoms_of(model, body), *geoms_of(model, model.body_parentid[body])]
        assert min(distance(model, data, g, data.xanchor[j]) for g in geoms) < 0.01, model.joint(j).name


@pytest.mark.parametrize(
    ("name", "height"),
    [("humanoid", 0.002), ("quadruped", 0.007), ("wheeled_biped", 1e-9), ("mobile_manipulator", 1e-9)],
)
def test_robot_stands_on_the_ground_at_home(name, height):
    model, data = at_home(name)
    far = np.array([0, 0, 1e4])  # below: nearest to it is the lowest point
    lowest = min(distance(model, data, g, data.geom_xpos[g] * [1, 1, 0] - far) for g in range(model.ngeom)) - far[2]
    assert abs(lowest) < height


@pytest.mark.parametrize("finger", ["index", "middle", "ring", "thumb"])
def test_fingertip_ends_at_its_site(finger):
    model, data = at_home("hand")
    tip = data.site(f"{finger}_tip").xpos
    assert abs(distance(model, data, model.geom(f"{finger}_distal_0").id, tip)) < 1e-6


@pytest.mark.parametrize(
    ("name", "arm", "renamed"),
    [
        ("dual_arm", "panda", "left_{}"),
        ("dual_arm", "panda", "right_{}"),
        ("mobile_manipulator", "ur5e", "{}"),
    ],
)
def test_arm_on_another_robot_has_the_shapes_of_the_arm_alone(name, arm, renamed):
    whole, alone = model_of(name), model_of(arm)
    for g in range(alone.ngeom):
        theirs, ours = alone.geom(g), whole.geom(renamed.format(alone.geom(g).name.replace("base_", "arm_base_")))
        for field in ("type", "size", "pos", "quat"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))


ARMS_WITH_MESHES = ["dual_arm", "fr3", "gen3", "iiwa14", "mobile_manipulator", "panda", "ur10e", "ur5e", "xarm7"]


@pytest.mark.parametrize("name", ARMS_WITH_MESHES)
def test_meshes_lie_in_the_shapes_of_their_links_and_fill_them(name):
    """Shapes enclose the true surfaces; simplified ones may stand out by as much as they are off."""
    model, data = at_home(name)
    found = {}
    for surface in arm_surfaces(name):
        found.setdefault(surface.body, []).append(surface.mesh.vertices + surface.position)
    bodies = {model.body(b).name for b in range(1, model.nbody)}
    assert {*found} <= bodies and len(found) >= 7
    for body, parts in found.items():
        index = model.body(body).id
        points = np.concatenate(parts)[:: max(1, sum(map(len, parts)) // 300)]
        world = points @ data.xmat[index].reshape(3, 3).T + data.xpos[index]
        geoms = geoms_of(model, index)
        outside = np.array([min(distance(model, data, g, p) for g in geoms) for p in world])
        assert outside.max() < 5e-3, body
        assert np.median(outside) > -0.02, body


def test_meshes_are_below_a_megabyte_and_their_licences_lie_beside_them():
    folder = find_by_name("panda").parent / "meshes"
    files = [*folder.glob("*.npz")]
    assert sum(file.stat().st_size for file in files) < 1e6
    sources = (folder / "README.md").read_text()
    assert all(f"| {file.name} |" in sources for file in files)
    assert {file.stem for file in files} == {*ARMS_WITH_MESHES} - {"dual_arm", "mobile_manipulator"}
