"""The live page: the robot follows its targets inside its limits, and what cannot be solved is said, not raised."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.cli import main
from jaxik.cli.viewing import _seen
from jaxik.core.status import Status
from jaxik.pictures.shapes import BOX, CAPSULE, CYLINDER, ELLIPSOID, SPHERE, unpainted
from jaxik.viewer import following, poses
from jaxik.viewer.aims import problem_of, targets_to_drag
from jaxik.viewer.following import Follower, Shown
from jaxik.viewer.meshes import parts
from jaxik.viewer.panel import status_line
from jaxik.viewer.poses import Poses
from jaxik.viewer.view import View, serve, write_page

CONFIGS = Path(__file__).parents[1] / "configs"


class Watched:
    """A follower and all that it showed."""

    def __init__(self, problem: jaxik.Problem, q: Any) -> None:
        self.shown: list[Shown] = []
        self._new = threading.Condition()
        self.follower = Follower(problem, q, Poses(problem), self._show)
        self.follower.start()

    def _show(self, shown: Shown) -> None:
        with self._new:
            self.shown.append(shown)
            self._new.notify_all()

    def until(self, ended: Callable[[Shown], bool], seconds: float = 60.0) -> Shown:
        """The first that is shown from now on of which this is true."""
        with self._new:
            begin = len(self.shown)
            assert self._new.wait_for(lambda: any(map(ended, self.shown[begin:])), seconds), self.shown[-1]
            return next(filter(ended, self.shown[begin:]))


def settled(shown: Shown) -> bool:
    return shown.status not in ("", "MOVING", "COMPILING")


@pytest.fixture(scope="module")
def watched() -> Any:
    robot = jaxik.load_robot("panda")
    q = np.asarray(robot.q_home)
    made = Watched(problem_of(robot, q), q)
    yield made
    made.follower.stop()


def home_target() -> np.ndarray:
    robot = jaxik.load_robot("panda")
    return np.array(robot.frame_pose(robot.q_home, "tcp").wxyz_xyz)


@pytest.mark.parametrize("verb", mostly_exhaustive(["step", "solve"], ["step"]))
def test_the_robot_follows_a_target_that_is_moved(watched: Watched, verb: str) -> None:
    robot, target = jaxik.load_robot("panda"), home_target()
    target[4:] += [0.05, 0.1, -0.1]
    watched.follower.choose(verb)
    watched.follower.aim("tcp", target)
    shown = watched.until(settled)
    assert shown.status == "CONVERGED" and not shown.error
    np.testing.assert_allclose(robot.frame_pose(shown.q, "tcp").translation(), target[4:], atol=1e-4)
    assert shown.residuals["tcp/position"] < 1e-4
    watched.follower.choose("step")
    watched.follower.aim("tcp", home_target())
    watched.until(settled)


def test_an_unreachable_target_is_said_and_the_joints_stay_inside_their_limits(watched: Watched) -> None:
    robot, target = jaxik.load_robot("panda"), home_target()
    target[4:] += [0.0, 0.3, 3.0]
    begin = len(watched.shown)
    watched.follower.aim("tcp", target)
    shown = watched.until(settled)
    assert shown.status == "STALLED"
    assert shown.residuals["tcp/position"] > 1.0
    q = np.stack([s.q for s in watched.shown[begin:]])
    assert bool(jnp.all(robot.check_limits(q)))
    assert np.abs(np.diff(q, axis=0)).max() < 0.051  # 3 rad/s at 60 Hz


def test_a_nan_target_is_said_and_the_next_one_is_followed(watched: Watched) -> None:
    watched.follower.aim("tcp", np.full(7, np.nan))
    shown = watched.until(settled)
    assert shown.status == "NONFINITE" and np.isfinite(shown.q).all()
    watched.follower.aim("tcp", home_target())
    assert watched.until(settled).status == "CONVERGED"


def test_a_robot_in_an_obstacle_goes_on_until_it_stands_still(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, target = following._passes["step"], home_target()
    target[4:] += [0.05, 0.0, 0.0]

    def overlaps(*given: Any) -> Any:
        q, bodies, _, *rest = run(*given)
        return q, bodies, jnp.asarray(Status.COLLIDES, jnp.int32), *rest

    with monkeypatch.context() as patched:
        patched.setitem(following._passes, "step", overlaps)
        watched.follower.aim("tcp", target)
        shown = watched.until(settled)
        assert shown.status == "COLLIDES" and shown.residuals["tcp/position"] < 1e-4
    watched.follower.aim("tcp", home_target())
    assert watched.until(settled).status == "CONVERGED"


def test_an_exception_is_shown_and_the_loop_goes_on(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setitem(following._passes, "step", fails)
        watched.follower.aim("tcp", home_target())
        shown = watched.until(lambda shown: bool(shown.error))
        assert "out of memory" in status_line(shown)
    watched.follower.aim("tcp", home_target())
    assert not watched.until(settled).error


def test_targets_that_came_meanwhile_are_dropped(watched: Watched) -> None:
    begin, home = len(watched.shown), home_target()
    for height in np.linspace(0.0, 0.02, 1000):
        target = home + height * np.eye(7)[6]
        watched.follower.aim("tcp", target)
    # Targets are set faster than passes take; the last one wins.
    final = target[4:]
    shown = watched.until(lambda shown: settled(shown) and np.linalg.norm(shown.bodies) > 0)
    robot = jaxik.load_robot("panda")
    np.testing.assert_allclose(robot.frame_pose(shown.q, "tcp").translation(), final, atol=2e-4)
    assert len(watched.shown) - begin < 900


@exhaustive
def test_a_verb_that_is_not_compiled_yet_is_said_and_sliders_work_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    robot, free = jaxik.load_robot("double_pendulum"), threading.Event()
    compiled = following._passes["step"]
    monkeypatch.setitem(following._passes, "step", lambda *given: free.wait(60) and compiled(*given))
    q = np.asarray(robot.q_home)
    made = Watched(problem_of(robot, q), q)
    name, target = next(iter(made.follower.targets.items()))
    try:
        made.follower.aim(name, target)
        assert "COMPILING" in status_line(made.until(lambda shown: shown.status == "COMPILING"))
        made.follower.place(q + 0.1)
        np.testing.assert_allclose(made.until(lambda shown: not shown.status).q, q + 0.1)
        made.follower.aim(name, target)
        free.set()
        assert made.until(settled).status == "CONVERGED"
    finally:
        free.set()
        made.follower.stop()


def test_sliders_take_the_targets_along(watched: Watched) -> None:
    robot, q = jaxik.load_robot("panda"), np.array(watched.follower.q)
    q[0] += 0.5
    watched.follower.place(q)
    watched.follower.choose("step")
    assert watched.until(settled).status == "CONVERGED"
    tip, found = (robot.frame_pose(x, "tcp") for x in (q, watched.follower.q))
    np.testing.assert_allclose(found.translation(), tip.translation(), atol=1e-3)
    np.testing.assert_allclose(watched.follower.targets["tcp"], tip.wxyz_xyz, atol=1e-6)


def test_the_precision_of_the_configuration_is_that_of_the_page() -> None:
    with jax.enable_x64(True):
        robot = jaxik.load_robot("double_pendulum").astype(float)
        q = np.asarray(robot.q_home)
        near = jaxik.PostureTask(q + 0.1, tolerance=1e-11)
        made = Watched(jax.device_get(jaxik.Problem(robot, {"near": near})), q)
    everywhere = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", False)
    try:
        made.follower.choose("solve")
        shown = made.until(settled)
        assert shown.status == "CONVERGED" and shown.q.dtype == shown.bodies.dtype == np.float64
        np.testing.assert_allclose(shown.q, q + 0.1, rtol=0, atol=1e-11)
    finally:
        jax.config.update("jax_enable_x64", everywhere)
        made.follower.stop()


def test_a_cost_counts_at_once_and_compiles_nothing(watched: Watched) -> None:
    target = home_target()
    target[4:] += [0.0, 0.3, 3.0]
    watched.follower.aim("tcp", target)
    first = watched.until(settled)
    programs = following._passes["step"]._cache_size()
    watched.follower.weigh("tcp", "position_cost", np.full_like(watched.follower.costs["tcp"]["position_cost"], 10.0))
    second = watched.until(settled)
    assert second.residuals["tcp/position"] < first.residuals["tcp/position"] - 1e-3
    assert second.costs["tcp"] > 50 * first.costs["tcp"]
    assert following._passes["step"]._cache_size() == programs
    watched.follower.weigh("tcp", "position_cost", np.ones_like(watched.follower.costs["tcp"]["position_cost"]))


def test_every_kind_of_target_in_the_world_has_a_handle() -> None:
    robot = jaxik.load_robot("panda")
    tip = robot.frame("tcp")
    point = jnp.array([0.4, 0.1, 0.4])
    tasks = {
        "pose": jaxik.FrameTask(tip, robot.frame_pose(robot.q_home, tip)),
        "com": jaxik.ComTask(point),
        "look": jaxik.LookAtTask(tip, point),
        "rest": jaxik.PostureTask(robot.q_home),
    }
    shapes = {name: x.shape for name, x in targets_to_drag(jaxik.Problem(robot, tasks)).items()}
    assert shapes == {"com": (3,), "look": (3,), "pose": (7,)}


@pytest.mark.parametrize("name", mostly_exhaustive(jaxik.bundled_robots(), ["panda"]))
def test_each_end_of_a_bare_robot_has_a_handle(name: str) -> None:
    robot = jaxik.load_robot(name)
    assert targets_to_drag(problem_of(robot, robot.q_home))


def wait_for(met: Callable[[], Any]) -> None:
    ended = time.monotonic() + 60
    while not met():
        assert time.monotonic() < ended
        time.sleep(0.02)


@pytest.fixture(scope="module")
def page() -> Any:
    robot = jaxik.load_robot("panda")
    served = serve(robot, path=robot.integrate(robot.q_home, np.linspace(0, 0.3, 4)[:, None] * np.ones(7)), dt=0.02)
    yield served
    served.close()


def test_a_port_that_is_taken_is_said(page: View, capsys: Any) -> None:
    robot = jaxik.load_robot("pendulum")
    other = serve(robot, port=page.port)
    other.close()
    assert other.port != page.port
    assert capsys.readouterr().out == f"port {page.port} is taken: {other.url}\n"


def test_ghosts_of_any_number_compile_nothing_and_are_moved(page: View) -> None:
    robot = jaxik.load_robot("panda")
    q = np.asarray(robot.sample(jax.random.key(0), (500,)))
    page.ghosts(q[:3])
    programs = poses._forward._cache_size()
    for count in (1, 70, 500):
        page.ghosts(q[:count])
    assert poses._forward._cache_size() == programs
    nodes = page._scene._ghosts
    page.ghosts(q[::-1])
    assert page._scene._ghosts is nodes and len(nodes[0].batched_positions) == 500
    bodies = robot.forward(q[::-1]).wxyz_xyz
    for part, node in zip(page._scene._parts_of_ghosts(), nodes, strict=True):
        np.testing.assert_allclose(node.batched_positions, bodies[:, part.body, 4:], atol=1e-5)
        np.testing.assert_allclose(node.batched_wxyzs, bodies[:, part.body, :4], atol=1e-5)


def test_a_path_is_played_to_its_end_and_scrubbed(page: View) -> None:
    robot, player = jaxik.load_robot("panda"), page._player
    assert player is not None
    np.testing.assert_allclose(page.q, robot.q_home, atol=1e-6)
    player.play()
    wait_for(lambda: np.abs(page.q - robot.q_home - 0.3).max() < 1e-4 and player._button.label == "Play")
    assert player._slider.value == pytest.approx(0.06)
    player.seek(0.02)
    wait_for(lambda: np.abs(page.q - robot.q_home - 0.1).max() < 1e-4)
    tip = robot.frame_pose(page.q, "tcp").translation()
    np.testing.assert_allclose(page._scene._handles["tcp"].position, tip, atol=1e-5)


def test_a_joint_at_its_limit_is_marked_beside_its_slider_and_on_the_robot(page: View) -> None:
    robot = jaxik.load_robot("panda")
    q = np.array(robot.q_home)
    joint = robot.topology.joints[3]

    def labels() -> list[str]:
        return [slider.label for _, slider in page._panel._sliders.values()]

    for value, marked in ((robot.limit_upper[3], True), (q[3], False)):
        q[3] = value
        page._place(q)
        wait_for(lambda: ("● joint4" in labels()) == marked and page.q[3] == q[3])  # noqa: B023
        assert all((node.color != color) == marked for node, color in page._scene._parts[joint.body])
        assert ("at its limit: joint4 (upper)" in page._panel._details.content) == marked


def test_a_notebook_shows_the_page_and_colab_the_scene_alone(page: View, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f'<iframe src="{page.url}"' in page._repr_html_()
    assert f"ssh -L {page.port}:localhost:{page.port}" in page._repr_html_()
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    shown = page._repr_html_()
    assert "<iframe srcdoc=" in shown and page.url not in shown and 2e5 < len(shown) < 3e6


@exhaustive
def test_ctrl_c_ends_the_command_quietly_while_it_compiles() -> None:
    command = [sys.executable, "-m", "jaxik.cli", "view", "pendulum", "--port", "8200"]
    # A job in the background of a shell ignores Ctrl-C, and its children would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert running.stdout is not None
    said = running.stdout.readline() + running.stdout.readline()
    running.send_signal(signal.SIGINT)
    rest, errors = running.communicate(timeout=200)  # nothing interrupts a compilation
    assert (running.returncode, rest, errors) == (0, "", "")
    assert re.fullmatch(r"(port 8200 is taken: )?http://127.0.0.1:\d+\nCtrl-C ends it\n", said)


def test_meshes_are_closed_and_seen_from_outside() -> None:
    sizes = np.array([[0.5, 0, 0], [0.5, 1, 0], [0.5, 1, 0], [1, 2, 3], [0.5, 1, 2]], float)
    kinds, zeros = np.array([SPHERE, CAPSULE, CYLINDER, BOX, ELLIPSOID]), np.zeros((5, 3))
    shapes = unpainted(np.arange(5), kinds, sizes, zeros, np.tile(np.eye(3), (5, 1, 1)), np.zeros(5, bool))
    ball, tube = np.pi * 0.5**3 * 4 / 3, np.pi * 0.5**2 * 2
    for part, volume in zip(parts(shapes, 60), (ball, ball + tube, tube, 48.0, 8 * ball), strict=True):
        vertices, faces = part.vertices, part.faces
        a, b, c = vertices[faces].transpose(1, 0, 2)
        # Of a closed surface whose triangles turn the same way the signed volumes add up, wherever the origin is.
        for shift in (0.0, 7.0):
            assert np.sum(np.cross(a + shift, b + shift) * (c + shift)) / 6 == pytest.approx(volume, rel=0.01)


def test_what_cannot_be_viewed_is_said() -> None:
    robot = jaxik.load_robot("panda")
    with pytest.raises(jaxik.JaxikError, match=r"a jaxik.Robot or a jaxik.Problem, not str"):
        jaxik.view("panda")  # type: ignore[arg-type]
    with pytest.raises(jaxik.JaxikError, match="q is finite"):
        jaxik.view(robot, np.full(7, np.nan))
    with pytest.raises(jaxik.JaxikError, match=r"path= plays one after the other"):
        jaxik.view(robot, np.zeros((3, 7)))
    with pytest.raises(jaxik.JaxikError, match=r"path is finite configurations \(T, 7\)"):
        jaxik.view(robot, path=np.zeros(7))
    with pytest.raises(jaxik.JaxikError, match="dt is the seconds"):
        jaxik.view(robot, path=np.zeros((3, 7)), dt=0.0)
    with pytest.raises(jaxik.JaxikError, match="port"):
        jaxik.view(robot, port=-1)


def test_a_page_with_300_ghosts_is_one_small_file_that_loads_nothing(tmp_path: Path) -> None:
    robot = jaxik.load_robot("panda")
    page = write_page(tmp_path / "page.html", robot, ghosts=robot.sample(jax.random.key(0), (300,)))
    plain = write_page(tmp_path / "plain.html", robot)
    assert plain.stat().st_size + 20_000 < page.stat().st_size < 1.5e6
    loads = r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//|url\(["']?https?:|@import"""
    assert not re.findall(loads, page.read_text())


def test_the_command_writes_a_page_and_refuses_to_replace_it(tmp_path: Path, capsys: Any) -> None:
    page = str(tmp_path / "panda.html")
    assert main(["view", "panda", "--html", page]) == 0
    assert capsys.readouterr().out.strip() == page
    assert main(["view", "panda", "--html", page]) == 2
    assert main(["view", "panda", "--html", str(tmp_path / "panda.png")]) == 2
    assert main(["view", "panda", "--port", "0"]) == 2


TIP = "tip: {frame: tcp, target: {sample: 1}, orientation_cost: null}"
ROWS = f"robot: pendulum\ndtype: float64\ntasks: {{{TIP}}}\nsearch: true\ndataset: {{count: 400, shard: 200}}\n"


@exhaustive
def test_a_motion_is_played_and_rows_of_a_dataset_are_ghosts(tmp_path: Path) -> None:
    seen = _seen(str(CONFIGS / "pendulum_stuck.yaml"))
    assert seen.motion is not None and seen.motion.q.shape == (300, 1)
    assert float(seen.motion.dt) == pytest.approx(0.01)
    robot = jaxik.load_robot("pendulum")
    task = jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp", orientation_cost=None)
    plan = jaxik.Plan(jaxik.Problem(robot, {"tip": task}), 400, shard=200, model="pendulum")
    jaxik.generate(plan, tmp_path / "store")
    rows = _seen(str(tmp_path / "store")).ghosts
    dataset = jaxik.open_dataset(tmp_path / "store")
    assert len(rows.q) == 300
    np.testing.assert_array_equal(rows.q[-1], dataset["q"][-1])
    page = tmp_path / "store.html"
    assert main(["view", str(tmp_path / "store"), "--html", str(page)]) == 0
    assert page.stat().st_size > 3e5
    with pytest.raises(jaxik.JaxikError, match="plan.json"):
        _seen(str(tmp_path))
    # A configuration of a dataset shows the same rows.
    (tmp_path / "rows.yaml").write_text(ROWS)
    np.testing.assert_array_equal(_seen(str(tmp_path / "rows.yaml")).ghosts.q, rows.q)
    (tmp_path / "random.yaml").write_text(ROWS.replace("shard: 200", "randomize: {link_lengths: [0.9, 1.1]}"))
    with pytest.raises(jaxik.JaxikError, match="of their own"):
        _seen(str(tmp_path / "random.yaml"))


@exhaustive
def test_where_the_robot_of_a_configuration_is_a_section_it_stands_at_its_base(tmp_path: Path) -> None:
    robot = jaxik.load_robot("pendulum")
    based = ROWS.replace("robot: pendulum", "robot: {source: pendulum, base: {position: [1, 2, 3]}}")
    (tmp_path / "based.yaml").write_text(based.replace("400", "4"))
    seen = _seen(str(tmp_path / "based.yaml"))
    found = seen.problem.robot.frame_pose(np.zeros(1), "tcp").translation()
    np.testing.assert_allclose(found - robot.frame_pose(np.zeros(1), "tcp").translation(), [1, 2, 3], atol=1e-6)
    assert "base: {position: [1, 2, 3]}" in seen.save(seen.q, {}).read_text()


@exhaustive
def test_a_configuration_of_motions_shows_the_first_of_them(tmp_path: Path) -> None:
    track = "track: {dt: 0.05, duration: 0.5, path: {waypoints: 1}}"
    (tmp_path / "motions.yaml").write_text(f"robot: pendulum\ntasks: {{{TIP}}}\n{track}\ndataset: {{count: 8}}\n")
    seen = _seen(str(tmp_path / "motions.yaml"))
    assert seen.motion is not None and seen.motion.q.shape == (11, 1) and seen.motion.dt == 0.05
    assert len(seen.ghosts.q) == 8
