"""Pictures: every robot is drawn where C MuJoCo says that it is, and what cannot be drawn is said in one line."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from fresh import run_program
from scipy.spatial import ConvexHull
from tables import exhaustive, mostly_exhaustive

import jaxik
from benchmarks import mechanisms
from jaxik.cli import main
from jaxik.kinematics.visual import Mesh
from jaxik.pictures import canvas
from jaxik.pictures import render as render_module
from jaxik.pictures.camera import framing
from jaxik.pictures.drawing import bounding_balls, draw_points, joined
from jaxik.pictures.film import motion
from jaxik.pictures.render import draw
from jaxik.pictures.shapes import MESH, SPHERE, automatic_shapes, shapes_of
from jaxik.pictures.show import surroundings
from jaxik.pictures.surfaces import grid_surface, hull_surface

SIZE = 160, 120
MAGENTA = 1.0, 0.0, 1.0
# An arm and a closed loop.
EVERY_ROBOT = pytest.mark.parametrize("name", mostly_exhaustive(jaxik.bundled_robots(), ["panda", "four_bar"]))
needs_gl = pytest.mark.skipif(canvas.backend() is None, reason="no OpenGL: apt-get install libegl1 libosmesa6")


def pixel(camera: jaxik.Camera, point: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Where a point is in a picture, column and row, by the pinhole model."""
    turn, lift = np.radians([camera.azimuth, camera.elevation])
    ahead = np.array([np.cos(lift) * np.cos(turn), np.cos(lift) * np.sin(turn), np.sin(lift)])
    right = np.cross(ahead, [0, 0, 1])
    right = right / np.linalg.norm(right)
    ray = point - (np.asarray(camera.lookat) - camera.distance * ahead)
    focal = size[1] / 2 / np.tan(np.radians(camera.field_of_view) / 2)
    across, up = ray @ right / (ray @ ahead), ray @ np.cross(right, ahead) / (ray @ ahead)
    return np.array([size[0] / 2 + focal * across, size[1] / 2 - focal * up])


def frame_of(robot: jaxik.Robot) -> jaxik.Frame:
    kinds = robot.frame_names
    kind = "site" if kinds["site"] else "body"
    return robot.frame(kinds[kind][-1], kind)


@needs_gl
@EVERY_ROBOT
def test_a_robot_is_drawn_with_its_tip_at_the_projected_pixel(name: str) -> None:
    robot = jaxik.load_robot(name)
    frame = frame_of(robot)
    model = mujoco.MjModel.from_xml_path(str(Path(jaxik.__file__).parent / "robot" / "bundled" / f"{name}.xml"))
    data = mujoco.MjData(model)
    data.qpos[:] = robot.q_home
    mujoco.mj_kinematics(model, data)
    tip = data.site_xpos[frame.index] if frame.kind == "site" else data.xpos[frame.index]
    drawing = draw(robot)
    camera = framing(drawing, SIZE[0] / SIZE[1])
    centers, _ = bounding_balls(drawing)
    ball = draw_points(tip, 0.02 * np.ptp(centers, axis=0).max(), MAGENTA)
    # The ball alone, since links may stand before it.
    alone = canvas.canvas(*SIZE).draw(ball, camera, float(centers[:, 2].min()) - 1.0).astype(int)
    seen = np.argwhere((alone[..., 0] > alone[..., 1] + 60) & (alone[..., 2] > alone[..., 1] + 60))
    assert np.linalg.norm(seen.mean(axis=0)[::-1] + 0.5 - pixel(camera, tip, SIZE)) < 2
    floor = float(centers[:, 2].min())
    empty = canvas.canvas(*SIZE, drawing).draw(joined([drawing])._replace(color=drawing.color * 0), camera, floor)
    whole = canvas.canvas(*SIZE, drawing).draw(drawing, camera, floor)
    assert 0.01 < np.mean(np.any(np.abs(whole.astype(int) - empty) > 30, axis=-1)) < 0.6


URDF = """<robot name="arm"><link name="base"/><link name="upper">
  <visual><geometry><mesh filename="package://gone/upper.stl"/></geometry></visual></link><link name="hand"/>
  <joint name="lift" type="prismatic"><parent link="base"/><child link="upper"/><origin xyz="0 0 .3"/>
    <axis xyz="0 0 1"/><limit lower="0" upper="1" effort="1" velocity="1"/></joint>
  <joint name="fixed" type="fixed"><parent link="upper"/><child link="hand"/><origin xyz=".5 0 0"/></joint></robot>"""
ODD = {
    "closed loops and a free body": mechanisms.stewart(True),
    "a ball joint": mechanisms.stewart(False),
    "a free base": mechanisms.hexapod(),
    "a URDF whose mesh is missing": URDF,
    "no joints": '<mujoco><worldbody><body pos="0 0 1"><geom size=".1"/></body></worldbody></mujoco>',
}


@needs_gl
@pytest.mark.filterwarnings("ignore::jaxik.JaxikWarning")
@pytest.mark.parametrize(
    "kind", mostly_exhaustive(ODD, ["closed loops and a free body", "a URDF whose mesh is missing"])
)
def test_any_model_is_drawn(kind: str) -> None:
    robot = jaxik.load_robot(ODD[kind])
    camera = framing(draw(robot), SIZE[0] / SIZE[1])
    drawing = draw(robot)
    floor = float(drawing.position[:, 2].min()) - 0.1
    whole = canvas.canvas(*SIZE, drawing).draw(drawing, camera, floor)
    empty = canvas.canvas(*SIZE).draw(drawing._replace(color=drawing.color * 0), camera, floor)
    assert 0.01 < np.mean(np.any(np.abs(whole.astype(int) - empty) > 30, axis=-1)) < 0.7


@EVERY_ROBOT
def test_the_camera_has_everything_in_view(name: str) -> None:
    drawing = draw(jaxik.load_robot(name))
    centers, _ = bounding_balls(drawing)
    for size in (SIZE, (90, 160)):
        camera = framing(drawing, size[0] / size[1], azimuth=40.0, elevation=-35.0)
        places = np.array([pixel(camera, center, size) for center in centers])
        assert (places > 0).all() and (places < size).all()


def test_shapes_move_with_their_bodies_and_reach_from_joint_to_joint() -> None:
    robot = jaxik.load_robot("ur5e")
    shapes = automatic_shapes(robot)
    assert shapes.is_joint.sum() == robot.nv
    lengths = 2 * shapes.size[~shapes.is_joint, 1]
    np.testing.assert_allclose(np.sort(lengths)[-2:], [0.4145, 0.425], atol=0.02)  # hypot(.3922, .1333) and a2
    moved = draw(robot, robot.sample(jax.random.key(0), (3,)))
    assert moved.kind.size == 3 * shapes_of(robot).kind.size
    assert np.isfinite(moved.position).all()


@needs_gl
def test_ghosts_targets_frames_and_lines_are_seen() -> None:
    robot = jaxik.load_robot("panda")
    q = robot.sample(jax.random.key(0), (4,))
    camera = framing(draw(robot, q), SIZE[0] / SIZE[1])
    plain = jaxik.render(robot, camera=camera, size=SIZE)
    assert plain.shape == (120, 160, 3) and plain.dtype == np.uint8
    pose = robot.frame_pose(q, "tcp")
    circle = jnp.stack([0.3 * jnp.cos(jnp.arange(9.0)), 0.3 * jnp.sin(jnp.arange(9.0)), jnp.full(9, 0.6)], axis=1)
    more: list[dict[str, Any]] = [
        {"ghosts": q},
        {"failed": q},
        {"targets": pose},
        {"targets": {"tip": pose.translation()}},
        {"frames": ["tcp"]},
        {"line": circle},
    ]
    for drawn in more:
        assert np.mean(jaxik.render(robot, camera=camera, size=SIZE, **drawn) != plain) > 1e-3, drawn


@needs_gl
def test_a_robot_a_problem_and_a_solution_show_themselves(tmp_path: Path) -> None:
    robot = jaxik.load_robot("double_pendulum")
    target = robot.frame_pose(robot.q_home, "tcp")
    far = jaxlie.SE3.from_translation(jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 5.0]])) @ target
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(robot.frame("tcp"), far, orientation_cost=None)})
    whole, zero = np.array([0, 1], np.int32), np.zeros(2)  # solved, and not
    q = np.stack([robot.q_home, robot.q_home + 1])
    residuals = {"tip": {"position": np.zeros((2, 3))}}
    solution = jaxik.Solution(q, whole, residuals, whole, whole, zero, zero, topology=robot.topology)
    pictures = [robot.show(size=SIZE), problem.show(size=SIZE), solution.show(problem, size=SIZE)]
    pictures.append(solution.show(robot, size=SIZE))
    assert len({np.asarray(picture).tobytes() for picture in pictures}) == 4
    assert pictures[0]._repr_png_().startswith(b"\x89PNG")
    assert pictures[0].save(tmp_path / "a.png").stat().st_size > 1000
    with pytest.raises(jaxik.JaxikError, match="pass the problem that was solved"):
        solution.show(jaxik.load_robot("panda"))


def test_obstacles_are_drawn_where_a_limit_keeps_away_from_them() -> None:
    robot = jaxik.load_robot("panda", geometry="model")
    world = jaxik.World(
        spheres=jaxik.Spheres([[0.5, 0, 0.9], [9, 9, 9]], 0.1, mask=[True, False]),
        capsules=jaxik.Capsules([[0, 0.5, 0]], [[0, 0.5, 1.0]], 0.05),
        boxes=jaxik.Boxes([[0.6, 0, 0.2]], [0.2, 0.3, 0.02]),
        planes=jaxik.Planes([[0, 0, 1.0]]),
    )
    tip = jaxik.FrameTask(robot.frame("tcp"), jnp.array([0.5, 0, 0.5]), orientation_cost=None)
    problem = jaxik.Problem(robot, {"tip": tip}, limits=(jaxik.CollisionLimit(world),))
    bare, with_world = draw(robot), draw(robot, **surroundings(problem))
    added = with_world.kind[len(bare.kind) : len(bare.kind) + 3].tolist()
    assert added == [mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_BOX]
    np.testing.assert_allclose(with_world.position[len(bare.kind) :][:3], [[0.5, 0, 0.9], [0, 0.5, 0.5], [0.6, 0, 0.2]])
    np.testing.assert_allclose(with_world.size[len(bare.kind) + 2], [0.2, 0.3, 0.02], atol=1e-6)
    with pytest.raises(jaxik.JaxikError, match="jaxik.World"):
        draw(robot, world="table")


@needs_gl
def test_a_film_has_a_frame_for_each_configuration(tmp_path: Path) -> None:
    import imageio.v3 as imageio
    import imageio_ffmpeg

    robot = jaxik.load_robot("double_pendulum")
    q = motion(robot, np.array([[0.0, 0.0], [1.0, -1.0], [0.0, 0.5]]), steps=3)
    np.testing.assert_allclose(q[jnp.array([0, 3, 6])], [[0, 0], [1, -1], [0, 0.5]], atol=1e-12)
    made = [jaxik.film(robot, q, tmp_path / name, size=SIZE, fps=10) for name in ("a.gif", "a.mp4")]
    frames = imageio.imread(made[0])
    assert frames.shape[:3] == (7, 120, 160) and not np.array_equal(frames[0], frames[3])
    assert imageio_ffmpeg.count_frames_and_secs(made[1]) == (7, pytest.approx(0.7))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "not a robot": ({"robot": "panda"}, "robot is a jaxik.Robot, not str"),
    "another length": ({"q": np.zeros(6)}, "q"),
    "not a number": ({"q": np.full(7, np.nan)}, "q has entries that are not finite"),
    "ghosts": ({"ghosts": np.full((2, 7), np.inf)}, "ghosts has entries that are not finite"),
    "size": ({"size": (0, 10)}, "size is width and height in pixels"),
    "half pixels": ({"size": 10.5}, "size is width and height in pixels"),
    "target": ({"targets": np.zeros(4)}, "points \\(\\*batch, 3\\), not of shape \\(4,\\)"),
    "frame": ({"frames": ["tpc"]}, "tcp"),
    "camera": ({"camera": "near"}, "camera is a jaxik.Camera, not str"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_drawn_is_named(wrong: str) -> None:
    given, said = WRONG[wrong]
    with pytest.raises(jaxik.JaxikError, match=said):
        jaxik.render(**{"robot": jaxik.load_robot("panda")} | given)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"distance": 0.0}, "distance is above 0, not 0.0"),
        ({"lookat": (0, 0)}, "lookat is a point"),
        ({"field_of_view": 180}, "field_of_view is between 0 and 180"),
    ],
)
def test_a_camera_that_sees_nothing_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        jaxik.Camera(**{"lookat": (0, 0, 0), "distance": 1.0} | wrong)


@needs_gl
def test_what_stands_still_in_a_film_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    draws = render_module.draw_robot
    monkeypatch.setattr(
        render_module, "draw_robot", lambda *a, alpha=1.0, **k: drawn.append(alpha < 1) or draws(*a, alpha=alpha, **k)
    )
    robot = jaxik.load_robot("pendulum")
    jaxik.film(robot, np.linspace(0, 1, 5)[:, None], tmp_path / "a.gif", size=(60, 40), ghosts=np.ones((3, 1)))
    assert sum(drawn) == 1 and len(drawn) >= 6


def test_films_and_pictures_that_cannot_be_written_are_refused_first(tmp_path: Path) -> None:
    robot = jaxik.load_robot("pendulum")
    q = np.zeros((2, 1))
    for given, said in [
        ({"path": "a.avi"}, "ends with .mp4 or .gif"),
        ({"path": "a.gif", "fps": 0}, "fps is above 0"),
        ({"path": "a.mp4", "size": (101, 100)}, "even numbers"),
        ({"path": "a.gif", "q": q[0]}, "one configuration a frame"),
        ({"path": "a.gif", "camera": 3}, "camera is a jaxik.Camera, not int"),
    ]:
        with pytest.raises(jaxik.JaxikError, match=said):
            jaxik.film(**{"robot": robot, "q": q} | given)
    with pytest.raises(jaxik.JaxikError, match="a picture ends with .png"):
        jaxik.Picture(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / "a.xyz")


@needs_gl
def test_render_draws_a_robot_and_what_a_configuration_leads_to(tmp_path: Path, capsys: Any) -> None:
    config = tmp_path / "reach.yaml"
    config.write_text("robot: double_pendulum\ntasks: {rest: {type: posture, target: home}}\n")
    for source, place in (("pendulum", tmp_path / "a.png"), (str(config), tmp_path / "b.png")):
        assert main(["render", source, str(place), "--size", "80x60"]) == 0
        assert capsys.readouterr().out == f"{place}\n" and place.stat().st_size > 500
    assert main(["render", "pendulum", str(tmp_path / "a.png")]) == 2
    assert "exists already" in capsys.readouterr().err
    for place, said in (("a.txt", "a picture ends with"), ("no/a.png", "there is no folder")):
        assert main(["render", "pendulum", str(tmp_path / place)]) == 2
        assert said in capsys.readouterr().err


@exhaustive
def test_a_machine_without_opengl_is_told_what_to_install() -> None:
    said = run_program(
        "import ctypes.util, os; ctypes.util.find_library = lambda name: None\n"
        "[os.environ.pop(x, None) for x in ('MUJOCO_GL', 'DISPLAY')]\n"
        "import jaxik\n"
        "try: jaxik.render(jaxik.load_robot('pendulum'))\n"
        "except jaxik.JaxikError as error: print(error)"
    )
    assert "apt-get install libegl1 libosmesa6" in said.stdout, said


def volume(mesh: Mesh) -> float:
    """Of what a closed surface encloses; negative where its triangles face inward."""
    a, b, c = (mesh.vertices[mesh.faces[:, i]] for i in range(3))
    return float(np.sum(a * np.cross(b, c)) / 6)


def test_hulls_and_grids_have_closed_surfaces_that_face_outward() -> None:
    corners = np.random.default_rng(0).normal(size=(40, 3)) + np.arange(3)
    middle, mesh = hull_surface(corners) or pytest.fail()
    assert volume(mesh) == pytest.approx(ConvexHull(corners).volume)
    np.testing.assert_allclose(middle + mesh.vertices.max(axis=0), corners.max(axis=0))
    assert (hull_surface(corners) or pytest.fail())[1] is mesh and hull_surface(corners * [1, 1, 0]) is None
    values = np.random.default_rng(1).normal(size=(5, 6, 7))
    middle, mesh = grid_surface(values, 0.1) or pytest.fail()
    assert volume(mesh) == pytest.approx((values <= 0).sum() * 1e-3) and grid_surface(np.ones((2, 2, 2)), 1.0) is None
    solid = 0.1 * np.argwhere(values <= 0)
    np.testing.assert_allclose(middle + mesh.vertices.max(axis=0), solid.max(axis=0) + 0.05)


@needs_gl
def test_robots_of_hulls_and_obstacles_of_no_shape_are_drawn() -> None:
    vertices = " ".join(f"{x} {y} {z}" for x in (0, 0.1) for y in (0, 0.2) for z in (0, 0.3))
    robot = jaxik.load_robot(
        f"""<mujoco><asset><mesh name="m" vertex="{vertices}"/></asset><worldbody><body><joint axis="0 0 1"/>
        <geom type="mesh" mesh="m" pos="0 0 .2"/></body></worldbody></mujoco>""",
        geometry="hull",
    )
    world = jaxik.World(
        hulls=jaxik.Hulls([[0.5, 0, 0]], np.random.default_rng(0).normal(size=(9, 3)) * 0.1),
        field=jaxik.VoxelField.from_heights(np.zeros((3, 3)), 0.1, (-0.5, 0, 0), room=0.1),
        points=jaxik.Points([[0, 0.5, 0], [0, 0.6, 0]], 0.02, [True, False]),
    )
    drawing = draw(robot, world=world)
    assert drawing.kind.tolist()[:4] == [MESH, SPHERE, MESH, MESH]
    np.testing.assert_allclose(drawing.size[0], [0.05, 0.1, 0.15])
    np.testing.assert_allclose(drawing.position[0], [0.05, 0.1, 0.35])
    np.testing.assert_allclose(drawing.position[3][:2], [-0.4, 0.1])
    assert (jaxik.render(robot, size=SIZE, world=world).reshape(-1, 3).std(axis=0) > 5).any()
