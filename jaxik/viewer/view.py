"""`view`: serve a page that shows a robot and lets its targets be dragged."""

import builtins
import contextlib
import html
import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.pictures.drawing import evenly
from jaxik.problem.arguments import configuration
from jaxik.problem.problem import Problem, effective_joint_limits
from jaxik.robot.robot import Robot
from jaxik.viewer.aims import first_element, problem_of, targets_to_drag
from jaxik.viewer.following import Follower, Shown
from jaxik.viewer.panel import Panel, at_limits
from jaxik.viewer.playing import FRAME, Player
from jaxik.viewer.poses import Poses
from jaxik.viewer.scene import Scene

MISSING = 'the page is served by viser: `pip install "jaxik[viewer]"`'
# Ghosts on a page, at most: more hide each other.
MOST_GHOSTS = 500
# Of the page in a notebook [pixels].
HEIGHT = 500


class View:
    """A page that is being served. `close()` ends it; in a notebook it is shown below its cell.

    Attributes:
      url: where it is.
      follower: the loop that moves the robot; `follower.aim(name, target)` does what dragging a handle does.
    """

    def __init__(
        self,
        problem: Problem,
        q: np.ndarray,
        *,
        ghosts: Any = None,
        path: np.ndarray | None = None,
        dt: float = FRAME,
        port: int = 8080,
        host: str = "127.0.0.1",
        save: Callable[[np.ndarray, dict[str, np.ndarray]], Any] | None = None,
    ) -> None:
        """Serve; `view` checks what is given. `save` is called with q and the targets, and says where they are."""
        self._problem, self._poses = problem, Poses(problem)
        self._limits = jax.device_get(effective_joint_limits(problem))
        self._server = _server(host, port)
        self.port = self._server.get_port()
        self.url = f"http://{'localhost' if host == '0.0.0.0' else host}:{self.port}"
        self._scene = Scene(self._server, problem.robot, self._poses.bodies(q[None])[0])
        self.follower = Follower(problem, q, self._poses, self._show)
        self._scene.handles(problem, self.follower.targets, self.follower.aim)
        self._panel = Panel(self._server.gui, self.follower.choose)
        self._player = None if path is None else Player(self._server.gui, path, dt, self._place)
        self._panel.add_buttons(
            lambda: self._place(self.follower.q),
            None if save is None else lambda: save(self.follower.q, self.follower.targets),
        )
        self._has_switch = False
        if ghosts is not None:
            self.ghosts(ghosts)
        priorities = {name: getattr(task, "priority", 0) for name, task in problem.tasks.items()}
        self._panel.add_costs(priorities, self.follower.costs, self.follower.weigh)
        self._panel.add_sliders(self._limits, q, self._place_joint)
        self._panel.add_details()
        self.follower.start()

    @property
    def q(self) -> np.ndarray:
        """Where the robot is (nq,)."""
        return self.follower.q

    def ghosts(self, ghosts: Any) -> None:
        """Draw configurations (*batch, nq), or of a result, transparent; what did not converge in another colour."""
        q, status = _ghosts(self._problem.robot, ghosts)
        self._scene.ghosts(self._poses.bodies(q), status)
        if not self._has_switch:
            self._panel.add_ghost_switch(self._scene.show_ghosts)
            self._has_switch = True

    def close(self) -> None:
        """Stop serving."""
        if self._player is not None:
            self._player.stop()
        self.follower.stop()
        _stop(self._server)

    def _show(self, shown: Shown) -> None:
        limited = at_limits(self._limits, shown.q)
        joints = self._problem.robot.topology.joints
        with self._server.atomic():
            self._scene.move(shown.bodies)
            self._scene.mark(frozenset(joint.body for joint in joints if joint.q_index in limited))
            self._panel.show(shown, limited)

    def _place(self, q: np.ndarray) -> None:
        """The robot goes where the sliders or a path say, and the handles go with it."""
        for name, target in self.follower.place(q).items():
            self._scene.move_handle(name, target)

    def _place_joint(self, at: int, value: float) -> None:
        q = np.array(self.follower.q)
        q[at] = value
        self._place(q)

    def __repr__(self) -> str:
        return f"View of {self._problem.robot.name} at {self.url}"

    def _repr_html_(self) -> str:
        if "google.colab" in sys.modules:
            page = html.escape(self._server.scene.as_html())
            said = "Colab lets no live page through: this picture can be turned, and targets are dragged elsewhere."
            return f'{said}<iframe srcdoc="{page}" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
        link = f'<a href="{self.url}" target="_blank">{self.url}</a>'
        far = f"Where the notebook runs on another machine: ssh -L {self.port}:localhost:{self.port} MACHINE"
        return f'{link}<iframe src="{self.url}" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>{far}'


def view(
    robot: Robot | Problem,
    q: Any = None,
    *,
    path: Any = None,
    dt: float = FRAME,
    ghosts: Any = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    block: bool | None = None,
) -> View:
    """Serve a page on which a robot follows the targets that are dragged with the mouse.

    In a notebook the page stands below the cell whose last line this is. Where it runs on another machine, forward the
    port, `ssh -L 8080:localhost:8080 MACHINE`, and the page is at localhost here. Colab lets no live page through: it
    shows the same scene without handles and panel.

    Args:
      robot: a problem, whose frame, point, centre-of-mass and look-at targets get a handle; or a robot, each end of
        which does. Of a batch the first.
      q: where it starts (nq,), by default where `path` does, else `q_home`.
      path: configurations (T, nq), or a result that has them as `q`, to be played: the page has a slider for the time
        and a button.
      dt: seconds from one configuration of `path` to the next.
      ghosts: configurations (*batch, nq), or a result that has them as `q`, with a `status`, drawn transparent, at most
        500, evenly taken.
      port: where the page is served; the next that is free, where something else is.
      host: "127.0.0.1" for this machine alone, "0.0.0.0" for all that reach it.
      block: whether to wait until Ctrl-C; by default in a script, and not in a notebook or an interactive session.

    Raises:
      JaxikError: for wrong arguments, and where viser is not installed.
    """
    served = serve(robot, q, path=path, dt=dt, ghosts=ghosts, port=port, host=host)
    interactive = hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")
    if not interactive if block is None else block:
        wait(served)
    return served


def serve(
    robot: Any,
    q: Any = None,
    *,
    path: Any = None,
    dt: float = FRAME,
    ghosts: Any = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    save: Callable[[np.ndarray, dict[str, np.ndarray]], Any] | None = None,
) -> View:
    """Check what is given, serve, and say where; arguments as of `view` and `View`."""
    problem, start = _given(robot, q)
    if not (isinstance(port, int) and 0 < port < 65536):
        raise JaxikError(f"port is a whole number from 1 to 65535, not {port!r}")
    if path is not None:
        path = _path(problem.robot, getattr(path, "q", path), start.dtype)
        start = path[0] if q is None else start
    if not (np.ndim(dt) == 0 and np.isfinite(dt) and dt > 0):
        raise JaxikError(f"dt is the seconds between configurations of path, above 0, not {dt!r}")
    served = View(problem, start, ghosts=ghosts, path=path, dt=float(dt), port=port, host=host, save=save)
    taken = "" if served.port == port else f"port {port} is taken: "
    print(f"{taken}{served.url}", flush=True)
    return served


def wait(served: View) -> None:
    """Serve until Ctrl-C."""
    try:
        print("Ctrl-C ends it", flush=True)
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        served.close()


def write_page(path: str | os.PathLike[str], robot: Robot | Problem, q: Any = None, *, ghosts: Any = None) -> Path:
    """Write one file that a browser opens without a server: the robot, its targets and ghosts, to be looked at.

    Args, raises: as of `view`; also for a file that cannot be written.
    """
    path = Path(path)
    problem, q = _given(robot, q)
    poses = Poses(problem)
    server = _server("127.0.0.1", 8080)
    try:
        scene = Scene(server, problem.robot, poses.bodies(q[None])[0])
        if ghosts is not None:
            rows, status = _ghosts(problem.robot, ghosts)
            scene.ghosts(poses.bodies(rows), status)
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
    """The problem of one element, and a configuration (nq,), on the host."""
    if not isinstance(robot, Robot | Problem):
        raise JaxikError(f"what is viewed is a jaxik.Robot or a jaxik.Problem, not {type(robot).__name__}")
    one = first_element(robot)
    model = one if isinstance(one, Robot) else one.robot
    q = np.asarray(configuration("q", model.q_home if q is None else q, model))
    if q.ndim > 1:
        raise JaxikError(
            f"q is one configuration ({model.nq},), not of shape {q.shape}: path= plays one after the other"
        )
    if not np.isfinite(q).all():
        raise JaxikError("q is finite: there is nothing to draw there")
    return (one if isinstance(one, Problem) else problem_of(one, q)), q


def _path(robot: Robot, path: Any, dtype: Any) -> np.ndarray:
    path = np.asarray(configuration("path", path, robot), dtype)
    if path.ndim != 2 or not len(path) or not np.isfinite(path).all():
        raise JaxikError(
            f"path is finite configurations (T, {robot.nq}), one after the other, not of shape {path.shape}"
        )
    return path


def _ghosts(robot: Robot, ghosts: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Configurations (n, nq) and their statuses (n,), at most 500."""
    q = np.asarray(configuration("ghosts", getattr(ghosts, "q", ghosts), robot)).reshape(-1, robot.nq)
    status = getattr(ghosts, "status", None)
    if not np.isfinite(q).all():
        raise JaxikError("ghosts has entries that are not finite: there is nothing to draw there")
    chosen = evenly(len(q), MOST_GHOSTS)
    return q[chosen], None if status is None else np.asarray(status).reshape(-1)[chosen]


def _server(host: str, port: int) -> Any:
    try:
        import viser
    except ImportError:
        raise JaxikError(MISSING) from None
    # It prints a table of addresses, which a page that is written does not have.
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host=host, port=port, verbose=False)
    # Without the button that would send the page over another machine; the panel beside the scene, not above it.
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    server.gui.main_panel.dock_right()
    return server


def _stop(server: Any) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()
