"""Loading: from each kind of source to a compiled model, whatever is missing beside the kinematics."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import mujoco
import numpy as np
import pytest

from jaxik import load_robot
from jaxik.core import errors
from jaxik.core.errors import JaxikError, JaxikWarning, LoadError, UnknownNameError
from jaxik.robot.loading.repair import quiet_mujoco
from jaxik.robot.loading.sources import bundled_robots, read_source

ARM = """<mujoco model="arm"><worldbody><body name="upper"><joint name="shoulder" axis="0 0 1"/>
<geom name="link" type="capsule" fromto="0 0 0 1 0 0" size=".1"/><body name="lower" pos="1 0 0">
<joint name="elbow" axis="0 1 0"/><geom size=".1"/><site name="tip" pos="1 0 0"/></body></body></worldbody></mujoco>"""

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'


def urdf(joints: str, shapes: str = "", links: str = "abcdef") -> str:
    bodies = "".join(f'<link name="{link}">{INERTIAL}{shapes if link == "b" else ""}</link>' for link in links)
    return f'<robot name="bot">{bodies}{joints}</robot>'


def joint(name: str, kind: str, parent: str, child: str, inside: str = "") -> str:
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{name}" type="{kind}">{ends}<axis xyz="0 0 1"/><origin xyz="0 0 0.5"/>{inside}</joint>'


LIMIT = '<limit lower="-1" upper="2" velocity="3" effort="1"/>'
TWO = joint("j1", "revolute", "a", "b", LIMIT) + joint("j2", "prismatic", "b", "c", LIMIT.replace("3", "0.25"))
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def mesh_urdf(filename: str) -> str:
    shape = f'<collision><geometry><mesh filename="{filename}"/></geometry></collision>'
    return urdf(TWO, shape, links="abc")


@pytest.fixture(autouse=True)
def nothing_is_written(tmp_path_factory, monkeypatch, capfd):
    """Each test runs in an empty folder, ends without a log file there, and neither prints nor warns."""
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert not list(folder.glob("*.TXT"))
    assert capfd.readouterr() == ("", "")


def forward(model: mujoco.MjModel, q: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    return data


def joint_names(model: mujoco.MjModel) -> list[str]:
    return [model.joint(i).name for i in range(model.njnt)]


# --- bundled robots -------------------------------------------------------------------------------------------------


def test_bundled_names_all_load():
    assert {"panda", "ur5e"} <= set(bundled_robots())  # their figures: test_bundled_arms
    for name in bundled_robots():
        source = read_source(name)
        assert source.name == name and source.dropped == ()
        bounded = source.model.jnt_type != mujoco.mjtJoint.mjJNT_FREE  # the motion of a free base has no limit
        assert set(source.velocity_limits) == set(np.array(joint_names(source.model))[bounded])
        assert source.model.key("home").qpos.shape == (source.model.nq,)


# --- kinds of source ------------------------------------------------------------------------------------------------


def test_model_is_taken_as_it_is():
    model = mujoco.MjModel.from_xml_string(ARM)
    source = read_source(model)
    assert source.model is model and source.name == "arm" and source.dropped == ()


def test_spec_is_not_modified():
    asset = '</worldbody><asset><mesh name="m" file="no.obj"/></asset>'
    spec = mujoco.MjSpec.from_string(ARM.replace("</worldbody>", asset))
    spec.body("lower").add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="m")
    source = read_source(spec)
    assert source.name == "arm" and source.dropped and source.model.nmesh == 0
    assert len(spec.meshes) == 1 and len(spec.geoms) == 3 and not spec.compiler.balanceinertia


@pytest.mark.parametrize("as_text", [str, lambda path: path], ids=["str", "Path"])
@pytest.mark.parametrize(("file", "text", "nv"), [("my_arm.xml", ARM, 2), ("my_bot.urdf", urdf(TWO, links="abc"), 2)])
def test_files_load_and_are_named_by_their_stem(tmp_path, as_text, file, text, nv):
    (tmp_path / file).write_text("<?xml version='1.0'?>\n<!-- <robot> or <mujoco> -->\n" + text)
    source = read_source(as_text(tmp_path / file))
    assert source.model.nv == nv and source.name == file.split(".")[0] and source.dropped == ()


NAMELESS = ARM.replace(' model="arm"', "")


@pytest.mark.parametrize(
    ("text", "name"), [(ARM, "arm"), ("\n  " + urdf(TWO, links="abc"), "bot"), (NAMELESS, "model")]
)
def test_xml_text_loads(text, name):
    assert read_source(text).name == name


def test_a_model_without_a_name_is_called_model_or_as_its_file(tmp_path):
    assert read_source(mujoco.MjSpec.from_string(NAMELESS)).name == "model"
    assert read_source(mujoco.MjModel.from_xml_string(NAMELESS)).name == "model"
    assert read_source(urdf(TWO, links="abc").replace(' name="bot"', "", 1)).name == "model"
    (tmp_path / "gripper.xml").write_text(NAMELESS)
    assert read_source(tmp_path / "gripper.xml").name == "gripper"


def test_velocity_limits_in_mjcf_are_numerics():
    numeric = '</worldbody><custom><numeric name="velocity_limit:{}" data="1.5"/></custom>'
    assert read_source(ARM.replace("</worldbody>", numeric.format("elbow"))).velocity_limits == {"elbow": 1.5}
    with pytest.raises(LoadError, match="wrist.*does not exist"):
        read_source(ARM.replace("</worldbody>", numeric.format("wrist")))


@pytest.mark.parametrize("source", [None, 3, b"panda"])
def test_another_type_is_refused_with_the_types_that_load(source):
    with pytest.raises(JaxikError, match=r"mujoco\.MjModel"):
        read_source(source)


EVERYTHING = """<mujoco model="every"><worldbody>
<body name="mocap" mocap="true" pos="1 2 3"/>
<body name="base" pos="0 0 1"><freejoint name="free"/>
<inertial pos="0 0 0" quat="1 1 0 0" mass="1" diaginertia="2 2 3"/>
<geom name="hull" type="box" size=".1 .2 .3" pos=".1 0 0"/>
<site name="s1" pos="0 .1 0"/>
<body pos=".1 .2 .3" quat="1 2 3 4"><joint name="ball" type="ball" pos=".01 0 0" range="0 1" limited="true"/>
<geom size=".1"/>
<body name="arm" pos="0 0 .5"><joint name="slide" type="slide" axis="1 1 0" range="-1 1" limited="true"/>
<joint name="hinge" axis="0 1 1" pos="0 0 .1" ref=".2"/><geom type="cylinder" size=".1 .2" name="pulley" contype="0"
conaffinity="0"/>
<site pos="0 0 .2" quat="1 1 0 0"/><site name="s2" pos="0 .2 .2"/>
<inertial pos=".1 .2 .3" mass="2" diaginertia="1 1 1"/></body></body></body></worldbody>
<tendon><fixed name="sum"><joint joint="slide" coef="2"/><joint joint="hinge" coef="-1"/></fixed>
<spatial name="cable" range="0 3" limited="true"><site site="s1"/>
<geom geom="pulley"/><site site="s2"/></spatial></tendon>
<equality><weld name="w" body1="mocap" body2="base"/><connect body1="arm" body2="base"
anchor="0 0 .1" active="false"/>
<joint joint1="slide" joint2="hinge" polycoef="0 2 0 0 0"/><tendon tendon1="sum" polycoef=".5 0 0 0 0"/></equality>
<custom><numeric name="velocity_limit:slide" data="0.5"/></custom>
<keyframe><key name="home" qpos="0 0 1 1 0 0 0 1 0 0 0 .3 .4"/></keyframe></mujoco>"""


def test_mjx_model_becomes_the_model_that_it_was_put_from(capfd):
    from mujoco import mjx

    model = mujoco.MjModel.from_xml_string(EVERYTHING)
    put = mjx.put_model(model)
    capfd.readouterr()  # MJX prints when it is imported, which is not ours to answer for
    source = read_source(put)
    rebuilt = source.model
    assert source.name == "every" and source.velocity_limits == {"slide": 0.5}
    for kind in ("BODY", "JOINT", "SITE", "GEOM", "EQUALITY", "TENDON", "KEY"):
        of = getattr(mujoco.mjtObj, f"mjOBJ_{kind}")
        names = [[mujoco.mj_id2name(m, of, i) for i in range(20)] for m in (model, rebuilt)]
        assert names[0] == names[1]
    fields = "body_parentid body_mocapid body_subtreemass jnt_type jnt_limited jnt_qposadr qpos0 site_bodyid geom_type "
    fields += "eq_type eq_obj1id eq_obj2id eq_objtype eq_active0 eq_data wrap_type wrap_objid wrap_prm key_qpos "
    fields += "jnt_range body_pos body_ipos tendon_range tendon_limited tendon_length0"
    for field in fields.split():
        np.testing.assert_allclose(getattr(rebuilt, field), getattr(model, field), rtol=1e-6, atol=1e-6, err_msg=field)
    q = np.random.default_rng(0).normal(size=model.nq)
    expected, found = forward(model, q), forward(rebuilt, q)
    for field in ("xpos", "xquat", "site_xpos", "geom_xpos", "geom_xmat", "ximat", "subtree_com"):
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), atol=2e-6, err_msg=field)


def test_mjx_model_with_a_batch_axis_is_refused(capfd):
    from mujoco import mjx

    put = mjx.put_model(mujoco.MjModel.from_xml_string(ARM))
    capfd.readouterr()
    with pytest.raises(LoadError, match=r"batch axis.*\(1, 3, 3\)"):
        read_source(put.replace(body_pos=put.body_pos[None]))


def test_mjx_is_not_imported_by_loading():
    code = "import sys, jaxik.robot.loading.sources as s; s.read_source('panda'); print('mujoco.mjx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert run.stdout.strip() == "False"


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(errors.__file__).parents[1])}


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("pnada", "did you mean 'panda'"),
        ("UR5", "did you mean 'ur5e'?"),
        ("zzzz", "known: " + ", ".join(map(repr, bundled_robots()))),
    ],
)
def test_unknown_name_lists_near_names_or_else_the_bundled_ones_once(given, near):
    with pytest.raises(UnknownNameError) as error:
        read_source(given)
    message = str(error.value)
    assert message.startswith(f"unknown robot {given!r}; {near}") and "path of an MJCF or URDF file" in message
    assert all(message.count(repr(name)) <= 1 for name in bundled_robots())


@pytest.fixture
def menagerie(tmp_path, monkeypatch):
    arms = "maker_arm/arm.xml", "maker_arm/arm_nohand.xml", "maker_arm/scene.xml"
    for file in (*arms, "alone/iiwa.xml", "alone/scene.xml", "hands/left.xml", "hands/right.xml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(ARM.replace('"arm"', f'"{file}"'))
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [("maker_arm", "arm"), ("maker_arm/arm_nohand", "arm_nohand"), ("hands/left", "left"), ("alone", "iiwa")],
)
def test_menagerie_names(menagerie, name, file):
    assert read_source(name).name == file


def test_menagerie_folder_of_several_robots_lists_them(menagerie):
    with pytest.raises(LoadError, match="hands/left, hands/right"):
        read_source("hands")
    with pytest.raises(UnknownNameError, match="did you mean 'maker_arm'"):
        read_source("maker_rm")
    assert read_source(menagerie / "maker_arm").name == "arm"


def test_robot_descriptions_names(tmp_path, monkeypatch):
    package = tmp_path / "robot_descriptions"
    package.mkdir()
    (tmp_path / "arm.xml").write_text(ARM)
    (package / "__init__.py").write_text("")
    (package / "my_arm_mj_description.py").write_text(f"MJCF_PATH = {str(tmp_path / 'arm.xml')!r}")
    (package / "offline_description.py").write_text("raise OSError('no route to host')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_source("my_arm_mj_description").model.nv == 2
    with pytest.raises(LoadError, match="no route to host"):
        read_source("offline_description")
    with pytest.raises(UnknownNameError, match="did you mean 'my_arm_mj_description'"):
        read_source("my_arm_description")


@pytest.mark.parametrize("path", ["nowhere/arm.xml", "/nowhere/arm.urdf"])
def test_missing_file_says_so(path):
    with pytest.raises(LoadError, match=f"{path}: no such file"):
        read_source(path)


# --- MJCF that is incomplete ----------------------------------------------------------------------------------------

BROKEN = """<mujoco model="broken"><asset><mesh name="m" file="no.obj"/><mesh file="part.stl"/>
<texture name="t" type="2d" file="t.png"/>
<material name="paint" texture="t"/><hfield name="h" file="h.png" size="1 1 1 1"/></asset><worldbody>
<geom type="hfield" hfield="h"/><body name="a"><joint name="j1" axis="0 0 1"/><geom name="lost" type="mesh" mesh="m"/>
<geom name="kept" size=".1" pos=".3 0 0" material="paint"/><site name="s1"/>
<body name="b" pos="1 0 0"><joint name="j2"/><geom type="mesh" mesh="part"/><site name="s2"/></body></body></worldbody>
<contact><pair geom1="lost" geom2="kept"/></contact><actuator><motor joint="j1"/></actuator>
<tendon><spatial name="cable"><site site="s1"/><site site="s2"/></spatial></tendon>
<keyframe><key name="home" qpos="1 2" ctrl="3"/></keyframe></mujoco>"""


def test_missing_assets_are_dropped_and_said_and_all_else_is_kept():
    source = read_source(BROKEN)
    said = " | ".join(source.dropped)
    for part in ("meshes: no.obj, part.stl", "t.png", "h.png", "mass that came from these shapes, of bodies: a, b"):
        assert part in said
    model = source.model
    assert joint_names(model) == ["j1", "j2"] and model.ngeom == 1 and model.ntendon == 1 and model.nu == 1
    np.testing.assert_array_equal(model.geom("kept").pos, [0.3, 0, 0])
    np.testing.assert_array_equal(model.key("home").qpos, [1, 2])


def test_meshes_that_exist_are_kept(tmp_path):
    (tmp_path / "no.obj").write_text(TETRAHEDRON)
    (tmp_path / "broken.xml").write_text(BROKEN)
    source = read_source(tmp_path / "broken.xml")
    assert source.model.nmesh == 1 and source.dropped[0] == "meshes: part.stl"


def test_a_mesh_that_cannot_be_read_is_dropped(tmp_path):
    (tmp_path / "no.obj").write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "broken.xml").write_text(BROKEN)
    assert read_source(tmp_path / "broken.xml").model.nmesh == 0


@pytest.mark.parametrize("inertia", ['diaginertia="1 1 9"', 'fullinertia="-1 1 1 0 0 0"', 'fullinertia="1 1 1 9 0 0"'])
def test_impossible_inertia_is_repaired_with_mass_and_centre_kept(inertia):
    inertial = f'<inertial pos="1 2 3" mass="2" {inertia}/>'
    source = read_source(ARM.replace('<geom name="link"', f'{inertial}<geom name="link"'))
    assert source.dropped == ("impossible inertias of bodies: upper",)
    assert source.model.body("upper").mass == 2
    np.testing.assert_array_equal(source.model.body("upper").ipos, [1, 2, 3])


@pytest.mark.parametrize("kind", ["hinge", "slide"])  # for a slide MuJoCo warns that the inertia is nearly singular
def test_a_moving_body_without_mass_loads(kind):
    source = read_source(ARM.replace('<geom size=".1"/>', "").replace('name="elbow"', f'name="elbow" type="{kind}"'))
    assert source.dropped == ("bodies without mass: lower",)
    assert source.model.body("lower").mass < 1e-8


def test_mujoco_warnings_are_neither_printed_nor_logged():
    text = urdf(joint("j", "revolute", "a", "b", '<limit lower="1" upper="1"/>'), links="ab")
    with quiet_mujoco():
        mujoco.MjSpec.from_string(text)  # MuJoCo's reader warns that equal limits are ignored


def test_missing_include_is_said(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "more.xml").write_text('<mujocoinclude><include file="gone.xml"/></mujocoinclude>')
    includes = '<include file="parts/more.xml"/><include file="actuators.xml"/><worldbody>'
    (tmp_path / "m.obj").write_text(TETRAHEDRON)
    arm = ARM.replace("<worldbody>", '<asset><mesh file="m.obj"/></asset>' + includes, 1)
    (tmp_path / "arm.xml").write_text(arm)
    source = read_source(tmp_path / "arm.xml")
    assert source.model.nv == 2 and source.model.nmesh == 1
    assert source.dropped == ("included files: gone.xml, actuators.xml",)


def test_a_scene_whose_robot_is_missing_is_an_error():
    with pytest.raises(LoadError, match=r"no joint is left.*panda\.xml"):
        read_source('<mujoco><include file="panda.xml"/><worldbody><geom size="1"/></worldbody></mujoco>')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mujoco><worldbody>", "XML"),
        ("<robot><link", "malformed XML"),
        (ARM.replace('axis="0 0 1"', 'type="hinj"'), "hinj.*joint"),
        (ARM.replace('axis="0 0 1"', 'range="2 1" limited="true"'), r"range\[0\] should be smaller"),
        ("<html></html>", "root element is html"),
        (urdf(joint("j1", "revolut", "a", "b"), links="ab"), "'j1' has the unknown type 'revolut'.*revolute"),
        (urdf(joint("j1", "revolute", "a", "nolink"), links="a"), "MuJoCo|XML|link"),
        (urdf(joint("j1", "revolute", "a", "b", '<limit lower="x"/>'), links="ab"), "no number.*'x'"),
        ('<robot xmlns:xacro="http://wiki.ros.org/xacro"><xacro:include filename="a"/></robot>', "expand it first"),
    ],
)
def test_a_genuine_error_names_the_file_and_the_reason(tmp_path, text, message):
    (tmp_path / "bad.xml").write_text(text)
    with pytest.raises(LoadError, match=message) as error:
        read_source(tmp_path / "bad.xml")
    assert str(tmp_path / "bad.xml") in str(error.value) and "\n" not in str(error.value)


# --- URDF -----------------------------------------------------------------------------------------------------------


def test_urdf_keeps_tool_frames_and_velocity_limits():
    source = read_source(urdf(TWO + joint("mount", "fixed", "c", "d"), links="abcd"))
    assert source.velocity_limits == {"j1": 3.0, "j2": 0.25}
    assert source.model.body("d").parentid == source.model.body("c").id
    np.testing.assert_array_equal(source.model.body("d").pos, [0, 0, 0.5])
    np.testing.assert_array_equal(source.model.jnt_range, [[-1, 2], [-1, 2]])


@pytest.mark.parametrize("scheme", ["package://nowhere/m.stl", "m.stl", "/nowhere/m.obj", "model://nowhere/m.dae"])
def test_urdf_without_its_meshes_loads(scheme):
    source = read_source(mesh_urdf(scheme))
    assert source.model.nv == 2 and source.model.nmesh == 0
    assert source.dropped[0].startswith("meshes that are not found: ")
    with pytest.raises(LoadError, match="no shape that collides.*; meshes that are not found: "):
        load_robot(mesh_urdf(scheme), geometry="hull")


@pytest.mark.parametrize(
    ("filename", "at"),
    [
        ("package://my_pkg/meshes/m.obj", "my_pkg/meshes/m.obj"),
        ("package://my_pkg/meshes/m.obj", "my_pkg/urdf/my_pkg/meshes/m.obj"),
        ("package://my_pkg/a%20b/m.obj", "my_pkg/a b/m.obj"),
        ("../meshes/m.obj", "my_pkg/meshes/m.obj"),
        ("meshes/m.obj", "my_pkg/urdf/m.obj"),
    ],
)
def test_urdf_meshes_are_found(tmp_path, filename, at):
    (tmp_path / "my_pkg" / "urdf").mkdir(parents=True)
    (tmp_path / at).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / at).write_text(TETRAHEDRON)
    (tmp_path / "my_pkg" / "urdf" / "bot.urdf").write_text(mesh_urdf(filename))
    source = read_source(tmp_path / "my_pkg" / "urdf" / "bot.urdf")
    assert source.model.nmesh == 1 and source.dropped == ()


def test_urdf_mesh_format_that_mujoco_does_not_read(tmp_path):
    (tmp_path / "m.dae").write_text("")
    (tmp_path / "bot.urdf").write_text(mesh_urdf("m.dae"))
    assert read_source(tmp_path / "bot.urdf").dropped == ("meshes that MuJoCo does not read: m.dae",)


def test_urdf_shape_of_no_size_does_not_stop_it():
    source = read_source(urdf(TWO, '<visual><geometry><box size="0 0 0"/></geometry></visual>', links="abc"))
    assert source.dropped == ("shapes of no size, of bodies: b",) and source.model.nv == 2


@pytest.mark.parametrize(
    "inner, said",
    [
        (
            '<limit lower="2" upper="1" effort="1" velocity="1"/>',
            "the lower limit is above the upper one of joints: j1",
        ),
    ],
)
def test_urdf_joints_that_make_no_sense_are_named(inner: str, said: str):
    with pytest.raises(LoadError, match=said):
        read_source(urdf(joint("j1", "revolute", "a", "b", inner)))


def test_urdf_mimic_of_a_joint_that_does_not_exist_is_dropped_and_said():
    source = read_source(urdf(joint("j1", "revolute", "a", "b", LIMIT + '<mimic joint="zz"/>')))
    assert source.dropped == ("mimics of joints that do not exist, by joints: j1 (of zz)",)
    assert source.model.nv == 1 and source.model.neq == 0


def test_a_robot_without_joints_loads_with_a_warning():
    with pytest.warns(JaxikWarning, match="it has no joints: nothing moves"):
        robot = load_robot('<mujoco><worldbody><body name="rock"/></worldbody></mujoco>')
    assert robot.nv == 0


def test_urdf_mimic_is_a_joint_equality():
    mimic = joint("j2", "revolute", "b", "c", LIMIT + '<mimic joint="j1" multiplier="-2" offset="0.3"/>')
    mimic += joint("j3", "continuous", "c", "d", '<mimic joint="j1"/>')
    model = read_source(urdf(joint("j1", "revolute", "a", "b", LIMIT) + mimic, links="abcd")).model
    assert list(model.eq_type) == [mujoco.mjtEq.mjEQ_JOINT] * 2 and model.eq_active0.all()
    pairs = [(model.joint(i).name, model.joint(j).name) for i, j in zip(model.eq_obj1id, model.eq_obj2id, strict=True)]
    assert pairs == [("j2", "j1"), ("j3", "j1")]
    np.testing.assert_array_equal(model.eq_data[:, :5], [[0.3, -2, 0, 0, 0], [0, 1, 0, 0, 0]])


@pytest.mark.parametrize(
    ("kind", "limit", "expected"),
    [
        ("revolute", LIMIT, (1, -1, 2)),
        ("revolute", '<limit upper="2"/>', (1, 0, 2)),
        ("revolute", '<limit lower="0.5" upper="0.5"/>', (1, 0.5, 0.5)),
        ("prismatic", '<limit lower="0" upper="0"/>', (1, 0, 0)),
        ("revolute", '<limit velocity="1"/>', (0, 0, 0)),
        ("revolute", "", (0, 0, 0)),
        ("continuous", LIMIT, (0, 0, 0)),
    ],
)
def test_urdf_limits(kind, limit, expected):
    source = read_source(urdf(joint("j", kind, "a", "b", limit), links="ab"))
    assert (source.model.jnt_limited[0], *source.model.jnt_range[0]) == expected
    assert bool(source.dropped) == ("velocity" in limit and "lower" not in limit)


def test_urdf_planar_joint_moves_freely_in_its_plane():
    source = read_source(urdf(joint("p", "planar", "a", "b", LIMIT), links="ab"))
    assert joint_names(source.model) == ["p_TX", "p_TY", "p_RZ"] and not source.model.jnt_limited.any()
    assert source.velocity_limits == {"p_TX": 3.0, "p_TY": 3.0}


@pytest.mark.parametrize("root", ["world", "a"])
def test_urdf_floating_joint_of_the_root_is_a_free_joint(root):
    text = urdf(joint("f", "floating", "a", "b") + joint("j", "continuous", "b", "c"), links="abc")
    model = read_source(text.replace('"a"', f'"{root}"')).model
    assert list(model.jnt_type) == [mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_HINGE]
    assert joint_names(model) == ["f", "j"]
    np.testing.assert_array_equal(model.qpos0[:7], [0, 0, 0.5, 1, 0, 0, 0])


def test_urdf_floating_joint_inside_the_tree_is_slides_and_a_ball():
    model = read_source(urdf(joint("j", "continuous", "a", "b") + joint("f", "floating", "b", "c"), links="abc")).model
    assert joint_names(model) == ["j", "f_TX", "f_TY", "f_TZ", "f_R"]
    data = forward(model, np.array([np.pi / 2, 0.1, 0.2, 0.3, 1, 0, 0, 0]))
    np.testing.assert_allclose(data.body("c").xpos, [-0.2, 0.1, 1.3], atol=1e-12)


_TREES = {
    "names used twice": (("a", "a"), (("j", "a", "b"),), "link names used twice: a"),
    "joints of one name": (("a", "b", "c"), (("j", "a", "b"), ("j", "b", "c")), "joint names used twice: j"),
    "a loop": (
        ("a", "b", "c"),
        (("j", "a", "c"), ("k", "b", "c"), ("l", "a", "b")),
        "two joints: c; .*with_closure",
    ),
    "no root": (("a", "b"), (("j", "a", "b"), ("k", "b", "a")), "no link is the root"),
}


@pytest.mark.parametrize("mistake", _TREES)
def test_a_urdf_that_is_no_tree_is_told_in_one_line(mistake):
    links, joints, said = _TREES[mistake]
    text = "".join(f'<link name="{name}"/>' for name in links)
    text += "".join(
        f'<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/></joint>'
        for name, parent, child in joints
    )
    with pytest.raises(LoadError, match=said) as error:
        read_source(f'<robot name="r">{text}</robot>')
    assert "\n" not in str(error.value)
