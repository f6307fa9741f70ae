"""Robots that look like their models: what is kept, where it is drawn, and that no program knows of it."""

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from test_pictures import needs_gl, pixel

import jaxik
from jaxik.cli import main
from jaxik.kinematics.visual import Mesh
from jaxik.pictures import canvas
from jaxik.pictures.camera import framing
from jaxik.pictures.render import GHOST_FACES, draw
from jaxik.pictures.shapes import BOX, CAPSULE, MESH, automatic_shapes, shapes_of
from jaxik.pictures.simplify import clustered, simplified
from jaxik.viewer.view import write_page

SIZE = 320, 240
# A wedge: no axis of it is one of symmetry, so it is seen where vertices are turned or moved.
VERTICES = np.array([[0, 0, 0], [0.4, 0, 0], [0, 0.2, 0], [0, 0, 0.1], [0.4, 0.05, 0.1]], float)
FACES = np.array([[0, 2, 1], [0, 1, 4], [0, 4, 3], [0, 3, 2], [1, 2, 4], [2, 3, 4]])
ARM = """
<mujoco model="arm"><compiler meshdir="meshes"/>
  <default><default class="visual"><geom group="2" contype="0" conaffinity="0"/></default>
    <default class="collision"><geom group="3"/></default></default>
  <asset><mesh name="wedge" file="{wedge}" scale="1 1 2"/><material name="red" rgba="1 0 0 1"/></asset>
  <worldbody><geom type="plane" size="1 1 1"/><body name="upper" pos="0 0 .3">
    <joint name="lift" axis="0 1 0" range="-2 2"/>
    <geom class="visual" type="mesh" mesh="wedge" material="red" pos=".05 0 0" euler="30 0 20"/>
    <geom class="collision" type="box" size="1 1 1"/>
    <body name="hand" pos=".4 0 0"><joint name="turn" axis="0 0 1" range="-2 2"/>
      <geom class="visual" type="box" size=".03 .02 .01" rgba="0 0 1 1"/><geom class="visual" size=".5" rgba="0 0 0 0"/>
    </body></body></worldbody></mujoco>"""
URDF = """<robot name="arm"><link name="base"/>
  <link name="upper"><visual><geometry><mesh filename="package://arm/meshes/{wedge}"/></geometry></visual>
    <collision><geometry><sphere radius=".9"/></geometry></collision></link>
  <link name="hand"><visual><geometry><mesh filename="package://arm/meshes/{hand}"/></geometry></visual></link>
  <link name="tool"><collision><geometry><box size=".1 .1 .1"/></geometry></collision></link><link name="tip"/>
  <joint name="lift" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
  <joint name="turn" type="revolute"><parent link="upper"/><child link="hand"/><origin xyz=".4 0 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
  <joint name="a" type="fixed"><parent link="hand"/><child link="tool"/><origin xyz=".2 0 0"/></joint>
  <joint name="b" type="fixed"><parent link="tool"/><child link="tip"/><origin xyz=".1 0 0"/></joint></robot>"""


def write_stl(path: Path) -> None:
    record = np.zeros(len(FACES), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    record["corners"] = VERTICES[FACES]
    path.write_bytes(b"\0" * 80 + np.uint32(len(FACES)).tobytes() + record.tobytes())


def write_obj(path: Path) -> None:
    lines = ["v {} {} {}".format(*v) for v in VERTICES] + ["f {} {} {}".format(*(f + 1)) for f in FACES]
    path.write_text("\n".join(lines))


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    """An MJCF file beside the folder of its mesh."""
    folder = tmp_path / "arm"
    (folder / "meshes").mkdir(parents=True)
    write_stl(folder / "meshes" / "wedge.stl")
    write_obj(folder / "meshes" / "wedge.obj")
    (folder / "arm.xml").write_text(ARM.format(wedge="wedge.stl"))
    return folder / "arm.xml"


def seen(picture: np.ndarray) -> np.ndarray:
    """Where a picture is red (n, 2), column and row."""
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    return np.argwhere((red > green + 60) & (red > blue + 60))[:, ::-1]


@needs_gl
@pytest.mark.parametrize("file", ["wedge.stl", "wedge.obj"])
def test_a_mesh_is_drawn_where_mujoco_has_its_vertices(arm: Path, file: str) -> None:
    arm.write_text(ARM.format(wedge=file))
    robot = jaxik.load_robot(arm, meshes=True)
    q = np.array([0.4, -0.7])
    model = mujoco.MjModel.from_xml_path(str(arm))
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    (geom,) = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_MESH)
    vertices = data.geom_xpos[geom] + model.mesh_vert @ data.geom_xmat[geom].reshape(3, 3).T
    drawing = draw(robot, q)
    for azimuth in (20.0, 130.0):
        camera = framing(drawing, SIZE[0] / SIZE[1], azimuth=azimuth)
        picture = canvas.canvas(*SIZE, drawing).draw(drawing, camera, -1.0)
        expected = np.array([pixel(camera, vertex, SIZE) for vertex in vertices])
        assert (expected > 0).all() and (expected < SIZE).all()
        found = seen(picture) + 0.5
        np.testing.assert_allclose([found.min(axis=0), found.max(axis=0)], [expected.min(axis=0), expected.max(axis=0)],
                                   atol=2.0)  # fmt: skip


def test_what_the_model_shows_is_kept_and_nothing_that_collides(arm: Path) -> None:
    shapes = shapes_of(jaxik.load_robot(arm, meshes=True))
    assert shapes.kind.tolist() == [MESH, BOX] and shapes.body.tolist() == [1, 2]
    np.testing.assert_allclose(shapes.color, [[1, 0, 0, 1], [0, 0, 1, 1]])
    np.testing.assert_allclose(np.sort(np.ptp(shapes.mesh[0].vertices, axis=0)), np.sort(2 * shapes.size[0]), rtol=1e-6)


def test_a_robot_that_did_not_ask_holds_nothing_more(arm: Path) -> None:
    bare = jaxik.load_robot(arm)
    assert bare.visual.body.size == 0 and not bare.visual.meshes
    assert (shapes_of(bare).kind == automatic_shapes(bare).kind).all()
    panda = jaxik.load_robot("panda", meshes=True)
    assert panda.visual.body.size == 0 and shapes_of(panda).is_joint.any()


def test_programs_do_not_know_what_a_robot_looks_like(arm: Path) -> None:
    bare, painted = jaxik.load_robot(arm), jaxik.load_robot(arm, meshes=True)
    assert jax.tree.structure(bare) == jax.tree.structure(painted)
    assert len(jax.tree.leaves(bare)) == len(jax.tree.leaves(painted))

    @jax.jit
    def reach(robot: jaxik.Robot, point: Any) -> Any:
        tip = jaxik.FrameTask(robot.frame("hand"), point, orientation_cost=None)
        return jaxik.step(jaxik.Problem(robot, {"tip": tip}), robot.q_home, dt=0.01).q

    point = jnp.array([0.3, 0.1, 0.4])
    np.testing.assert_array_equal(reach(bare, point), reach(painted, point))
    assert reach._cache_size() == 1
    # Changes keep it.
    moved = painted.with_base(painted.frame_pose(painted.q_home, "hand")).astype(jnp.float16)
    assert jax.tree.map(lambda x: x, moved).visual is painted.visual
    assert bare.astype(jnp.float16).visual is bare.visual and painted.astype(jnp.float16).visual is painted.visual


@pytest.mark.parametrize("hand", ["hand.stl", "hand.dae"])
def test_the_body_of_a_missing_mesh_has_automatic_shapes(arm: Path, hand: str) -> None:
    (arm.parent / "meshes" / "hand.dae").touch()
    urdf = arm.with_suffix(".urdf")
    urdf.write_text(URDF.format(wedge="wedge.obj", hand=hand))
    with pytest.warns(jaxik.JaxikWarning, match=hand) as caught:
        robot = jaxik.load_robot(urdf, meshes=True)
    assert len(caught) == 1
    shapes, names = shapes_of(robot), robot.topology.body_names
    kinds = {name: set(shapes.kind[shapes.body == index]) for index, name in enumerate(names)}
    # A link without <visual> shows its <collision>; one with neither is seen nowhere.
    assert kinds["upper"] == {MESH} and kinds["tool"] == {BOX} and kinds["tip"] == set()
    assert CAPSULE in kinds["hand"] and MESH not in kinds["hand"]


def test_a_model_all_of_whose_meshes_are_missing_is_drawn_automatically(arm: Path) -> None:
    arm.write_text(ARM.format(wedge="gone.stl").replace('type="box" size=".03 .02 .01"', 'type="mesh" mesh="wedge"'))
    with pytest.warns(jaxik.JaxikWarning, match=r"meshes: gone.stl") as caught:
        robot = jaxik.load_robot(arm, meshes=True)
    assert len(caught) == 1
    np.testing.assert_array_equal(shapes_of(robot).body, automatic_shapes(robot).body)


def test_saved_robots_have_no_meshes(arm: Path, tmp_path: Path) -> None:
    jaxik.save(tmp_path / "arm.npz", jaxik.load_robot(arm, meshes=True))
    assert jaxik.load_robot(tmp_path / "arm.npz").visual.body.size == 0
    with pytest.raises(jaxik.LoadError, match="load its model with meshes=True"):
        jaxik.load_robot(tmp_path / "arm.npz", meshes=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_without_meshes_to_give_says_so() -> None:
    from mujoco import mjx

    text = '<mujoco><worldbody><body><joint/><geom type="capsule" size=".1 .2"/></body></worldbody></mujoco>'
    model = mjx.put_model(mujoco.MjModel.from_xml_string(text))
    with pytest.warns(jaxik.JaxikWarning, match="no meshes to draw: load the model from its file"):
        robot = jaxik.load_robot(model, meshes=True)
    assert shapes_of(robot).is_joint.any()


def ball(count: int) -> Mesh:
    """A sphere of radius 0.1 about the origin, of 4 count^2 triangles or so."""
    across, up = np.arange(2 * count), np.arange(count + 1)
    angle, height = np.meshgrid(np.pi * across / count, np.pi * up / count)
    points = np.stack([np.sin(height) * np.cos(angle), np.sin(height) * np.sin(angle), -np.cos(height)], axis=-1)
    at = np.arange(points[..., 0].size).reshape(points.shape[:2])
    here, beside = at[:-1], np.roll(at, -1, axis=1)[:-1]
    above, over = at[1:], np.roll(at, -1, axis=1)[1:]
    faces = [np.stack(x, axis=-1).reshape(-1, 3) for x in ((here, beside, over), (here, over, above))]
    return Mesh(0.1 * points.reshape(-1, 3), np.concatenate(faces))


def test_simplified_meshes_keep_their_form(arm: Path) -> None:
    lighter = clustered(ball(100), 0.01)
    assert len(lighter.faces) < 4000
    np.testing.assert_allclose(np.linalg.norm(lighter.vertices, axis=1), 0.1, rtol=0.02)
    a, b, c = lighter.vertices[lighter.faces].transpose(1, 0, 2)
    assert np.sum(np.cross(a, b) * c) / 6 == pytest.approx(4 / 3 * np.pi * 1e-3, rel=0.03)
    shapes = shapes_of(jaxik.load_robot(arm, meshes=True))
    large = shapes._replace(mesh=np.array([ball(200), None]))
    few = simplified(large, GHOST_FACES)
    assert 0.4 * GHOST_FACES < len(few.mesh[0].faces) <= GHOST_FACES
    assert simplified(large, GHOST_FACES).mesh[0] is few.mesh[0]  # what is drawn again is not computed again
    assert simplified(shapes, GHOST_FACES).mesh[0] is shapes.mesh[0]
    crumb = shapes._replace(mesh=np.array([Mesh(1e-6 * VERTICES[:3], FACES[:1]), None]))
    assert simplified(crumb, GHOST_FACES).kind.tolist() == [BOX]


def test_commands_draw_the_meshes_of_a_file(arm: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["view", str(arm), "--html", str(tmp_path / "a.html")]) == 0
    bare = write_page(tmp_path / "b.html", jaxik.load_robot(arm))
    assert (tmp_path / "a.html").read_bytes() != bare.read_bytes()
    if canvas.backend() is not None:
        from PIL import Image

        config = arm.with_suffix(".yaml")
        config.write_text("robot: arm.xml\ntasks: {rest: {type: posture, target: home}}\n")
        for source, place in ((arm, tmp_path / "a.png"), (config, tmp_path / "b.png")):
            assert main(["render", str(source), str(place), "--size", "320x240"]) == 0
            assert len(seen(np.asarray(Image.open(place)))) > 500
    jaxik.save(tmp_path / "arm.npz", jaxik.load_robot(arm))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["view", str(tmp_path / "arm.npz"), "--html", str(tmp_path / "c.html")]) == 0
