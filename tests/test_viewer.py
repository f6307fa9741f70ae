"""The live page: the robot follows its targets inside its limits, and what cannot be solved is said, not raised."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxik
from jaxik.cli import main
from jaxik.viewer import following
from jaxik.viewer.aims import problem_of, targets_to_drag
from jaxik.viewer.following import Follower, Shown
from jaxik.viewer.panel import described
from jaxik.viewer.poses import Poses
from jaxik.viewer.view import write_page


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


@pytest.mark.parametrize("verb", ["step", "solve"])
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


def test_an_exception_is_shown_and_the_loop_goes_on(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setitem(following._passes, "step", fails)
        watched.follower.aim("tcp", home_target())
        shown = watched.until(lambda shown: bool(shown.error))
        assert "out of memory" in described(shown)
    watched.follower.aim("tcp", home_target())
    assert not watched.until(settled).error


def test_targets_that_came_meanwhile_are_dropped(watched: Watched) -> None:
    begin = len(watched.shown)
    for height in np.linspace(0.0, 0.02, 1000):
        target = home_target()
        target[6] += height
        watched.follower.aim("tcp", target)
    # Targets are set faster than passes take; the last one wins.
    final = target[4:]
    shown = watched.until(lambda shown: settled(shown) and np.linalg.norm(shown.bodies) > 0)
    robot = jaxik.load_robot("panda")
    np.testing.assert_allclose(robot.frame_pose(shown.q, "tcp").translation(), final, atol=2e-4)
    assert len(watched.shown) - begin < 900


def test_a_verb_that_is_not_compiled_yet_is_said_and_sliders_work_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    robot, free = jaxik.load_robot("double_pendulum"), threading.Event()
    compiled = following._passes["step"]
    monkeypatch.setitem(following._passes, "step", lambda *given: free.wait(60) and compiled(*given))
    q = np.asarray(robot.q_home)
    made = Watched(problem_of(robot, q), q)
    name, target = next(iter(made.follower.targets.items()))
    try:
        made.follower.aim(name, target)
        assert "COMPILING" in described(made.until(lambda shown: shown.status == "COMPILING"))
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


def test_every_kind_of_target_in_the_world_has_a_handle_and_each_end_of_a_bare_robot() -> None:
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
    for name in jaxik.bundled_robots():
        model = jaxik.load_robot(name)
        assert targets_to_drag(problem_of(model, model.q_home)), name


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
