"""`view`: serve a page that shows a robot and lets its targets be dragged."""

import builtins
import contextlib
import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.problem.arguments import configuration
from jaxik.problem.problem import Problem
from jaxik.results.solution import Solution
from jaxik.robot.robot import Robot
from jaxik.tasks.frame import FrameTask
from jaxik.viewer.aims import first_element, problem_of, targets_to_drag
from jaxik.viewer.following import Follower, Shown
from jaxik.viewer.panel import Panel
from jaxik.viewer.scene import Scene

MISSING = 'the page is served by viser: `pip install "jaxik[viewer]"`'
# Ghosts on a page, at most: more hide each other.
MOST_GHOSTS = 500


class View:
    """A page that is being served. `close()` ends it.

    Attributes:
      url: where it is.
      follower: the loop that moves the robot; `follower.aim(name, target)` does what dragging a handle does.
    """

    def __init__(self, problem: Problem, q: np.ndarray, ghosts: Any, port: int, host: str) -> None:
        """Serve; `view` checks what is given."""
        self._problem = problem
        self._server = _server(host, port)
        self.url = f"http://{host}:{self._server.get_port()}"
        motion, q = q, q.reshape(-1, problem.robot.nq)[0]
        self._scene = Scene(self._server, problem.robot, q)
        if ghosts is not None:
            self.ghosts(ghosts)
        self.follower = Follower(problem, q, self._show)
        self._scene.handles(problem, targets_to_drag(problem), self.follower.aim)
        play = (lambda: self._placed(motion)) if motion.ndim == 2 else None
        self._panel = Panel(self._server, problem.robot, q, self.follower.choose, self._placed, play)
        self.follower.start()

    def ghosts(self, ghosts: Any) -> None:
        """Draw configurations (*batch, nq), or a `Solution`, transparent; what did not converge in another colour."""
        self._scene.ghosts(*_ghosts(self._problem.robot, ghosts))

    def close(self) -> None:
        """Stop serving."""
        self.follower.stop()
        _stop(self._server)

    def _show(self, shown: Shown) -> None:
        with self._server.atomic():
            self._scene.move(shown.bodies)
            self._panel.show(shown)

    def _placed(self, q: np.ndarray) -> None:
        """The robot goes where the sliders or a motion say, and the handles of its frames with it."""
        self.follower.place(q)
        last = q.reshape(-1, q.shape[-1])[-1]
        for name, task in self._problem.tasks.items():
            if isinstance(task, FrameTask):
                pose = np.asarray(self._problem.robot.frame_pose(last, task.frame).wxyz_xyz, float)
                self._scene.move_handle(name, pose)

    def __repr__(self) -> str:
        return f"View of {self._problem.robot.name} at {self.url}"


def view(
    robot: Robot | Problem,
    q: Any = None,
    *,
    ghosts: Any = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    block: bool | None = None,
) -> View:
    """Serve a page on which a robot follows the targets that are dragged with the mouse.

    Args:
      robot: a problem, whose frame, point, centre-of-mass and look-at targets get a handle; or a robot, each end of
        which does. Of a batch the first.
      q: where it starts (nq,), `q_home` by default; or a motion (T, nq) that a button plays.
      ghosts: configurations (*batch, nq), or a `Solution`, drawn transparent, at most 500, evenly taken.
      port: where the page is served; the next that is free, where something else is.
      host: "127.0.0.1" for this machine alone, "0.0.0.0" for all that reach it.
      block: whether to wait until Ctrl-C; by default in a script, and not in a notebook or an interactive session.

    Raises:
      JaxikError: for wrong arguments, and where viser is not installed.
    """
    problem, q = _given(robot, q)
    if not (isinstance(port, int) and 0 < port < 65536):
        raise JaxikError(f"port is a whole number from 1 to 65535, not {port!r}")
    served = View(problem, q, ghosts, port, host)
    print(f"{served.url}  (Ctrl-C ends it)", flush=True)
    interactive = hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")
    if not interactive if block is None else block:
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            served.close()
    return served


def write_page(path: str | os.PathLike[str], robot: Robot | Problem, q: Any = None, *, ghosts: Any = None) -> Path:
    """Write one file that a browser opens without a server: the robot, its targets and ghosts, to be looked at.

    Args, raises: as of `view`; also for a file that cannot be written.
    """
    path = Path(path)
    problem, q = _given(robot, q)
    server = _server("127.0.0.1", 8080)
    try:
        scene = Scene(server, problem.robot, q.reshape(-1, problem.robot.nq)[0])
        if ghosts is not None:
            scene.ghosts(*_ghosts(problem.robot, ghosts))
        if isinstance(robot, Problem):
            scene.targets(targets_to_drag(problem))
        page = server.scene.as_html()
    finally:
        _stop(server)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise JaxikError(f"the page cannot be written to {path}: {error}") from None
    return path


def _given(robot: Any, q: Any) -> tuple[Problem, np.ndarray]:
    """The problem of one element, and configurations (nq,) or (T, nq), on the host."""
    if not isinstance(robot, Robot | Problem):
        raise JaxikError(f"what is viewed is a jaxik.Robot or a jaxik.Problem, not {type(robot).__name__}")
    one = first_element(robot)
    model = one if isinstance(one, Robot) else one.robot
    q = np.asarray(configuration("q", model.q_home if q is None else q, model))
    if q.ndim > 2 or not q.size or not np.isfinite(q).all():
        raise JaxikError(f"q is finite and of shape ({model.nq},), or (T, {model.nq}) of a motion, not {q.shape}")
    start = q.reshape(-1, model.nq)[0]
    return (one if isinstance(one, Problem) else problem_of(one, start)), q


def _ghosts(robot: Robot, ghosts: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Configurations (n, nq) and their statuses (n,), at most 500."""
    solved = isinstance(ghosts, Solution)
    q = np.asarray(configuration("ghosts", ghosts.q if solved else ghosts, robot)).reshape(-1, robot.nq)
    if not np.isfinite(q).all():
        raise JaxikError("ghosts has entries that are not finite: there is nothing to draw there")
    chosen = np.unique(np.linspace(0, len(q) - 1, MOST_GHOSTS).astype(int))
    return q[chosen], np.asarray(ghosts.status).reshape(-1)[chosen] if solved else None


def _server(host: str, port: int) -> Any:
    try:
        import viser
    except ImportError:
        raise JaxikError(MISSING) from None
    # It prints a table of addresses, which a page that is written does not have.
    with contextlib.redirect_stdout(io.StringIO()):
        return viser.ViserServer(host=host, port=port, verbose=False)


def _stop(server: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()
