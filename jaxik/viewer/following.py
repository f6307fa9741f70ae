"""The loop that moves a robot after its targets, in a thread of its own."""

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.core.trees import parts
from jaxik.problem.problem import Problem
from jaxik.solvers.differential.step import step
from jaxik.solvers.nonlinear.solve import solve
from jaxik.solvers.search.search import search
from jaxik.viewer.aims import targets_to_drag, with_speed, with_targets

VERBS = ("step", "solve", "search")
# Steps a second, and seconds a pose of a motion that is played is seen.
RATE = 60.0
FRAME = 1 / 30
# A robot whose joints move less in a step than this [rad, m] stands still.
STILL = 1e-5
# Nor does one come nearer whose distance has not shrunk by this share in as many steps: it ends there.
NEARER, PATIENCE = 1e-3, 60
# Far from a target the curvature of the kinematics counts, in proportion to the distance: without damping an arm that
# is stretched towards an unreachable target swings about the best it can do.
LEAST_DAMPING, DAMPING_BY_DISTANCE = 1e-4, 0.5


class Shown(NamedTuple):
    """What there is to show after a pass of the loop.

    Attributes:
      q (nq,), bodies (nbody, 7): configuration, and poses of all bodies, wxyz and position [m].
      status: of `Status`, "MOVING" while the robot is on its way, or "" where nothing was solved.
      residuals: norm by part, "tip/position" [m], "tip/orientation" [rad].
      costs: 1/2 |cost * residual|^2 by task.
      milliseconds: that the pass took.
      error: what was raised, or "".
    """

    q: np.ndarray
    bodies: np.ndarray
    status: str = ""
    residuals: Mapping[str, float] = MappingProxyType({})
    costs: Mapping[str, float] = MappingProxyType({})
    milliseconds: float = 0.0
    error: str = ""


class Follower:
    """Solves for the latest targets, and hands on what there is to show. Older targets are dropped.

    Args:
      problem: of one element.
      q (nq,): where the robot is at first.
      show: called in the loop's thread with what there is to show.
    """

    def __init__(self, problem: Problem, q: Any, show: Callable[[Shown], None]) -> None:
        """Prepare; `start` begins."""
        self._problem, self._show = problem, show
        self._stepping = with_speed(problem)
        self._q = np.array(q)
        self._targets = {name: x.astype(self._q.dtype) for name, x in targets_to_drag(problem).items()}
        self._verb, self._distance = VERBS[0], 0.0
        self._nearest, self._waited = np.inf, 0
        self._changed, self._ended = threading.Condition(), False
        self._pending = False
        self._placed: list[np.ndarray] = []
        self._forward = jax.jit(lambda q: problem.robot.forward(q).wxyz_xyz)
        self._thread = threading.Thread(target=self._run, name="jaxik.view", daemon=True)

    @property
    def q(self) -> np.ndarray:
        """Where the robot is (nq,)."""
        return self._q

    def start(self) -> None:
        """Compile what a drag needs, show the robot, and begin."""
        self.place(self._q)
        self._pass(self._q)
        self._thread.start()

    def stop(self) -> None:
        """End the loop, after the pass that it is in."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def aim(self, name: str, target: Any) -> None:
        """A new target: a pose (7,), wxyz and position [m], or a point (3,) [m], as the task has it."""
        with self._changed:
            self._targets[name] = np.asarray(target, self._q.dtype)
            self._pending, self._placed = True, []
            self._nearest, self._waited = np.inf, 0
            self._changed.notify()

    def choose(self, verb: str) -> None:
        """Follow by "step", "solve" or "search".

        Raises:
          JaxikError: for another verb.
        """
        if verb not in VERBS:
            raise JaxikError(f"verb is one of {', '.join(VERBS)}, not {verb!r}")
        with self._changed:
            self._verb, self._pending = verb, True
            self._changed.notify()

    def place(self, q: Any) -> None:
        """Put the robot at a configuration (nq,), or at one after the other (T, nq), until a target is moved."""
        with self._changed:
            self._placed = [*np.asarray(q, self._q.dtype).reshape(-1, self._q.size)]
            self._pending = False
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._pending or self._placed)
                if self._ended:
                    return
                placed = self._placed.pop(0) if self._placed else None
                more = bool(self._placed)
                self._pending = False
            began = time.perf_counter()
            try:
                shown = self._solved() if placed is None else Shown(placed, np.asarray(self._forward(placed)))
            except Exception as error:  # a page that stops answers no more: it says what happened instead
                shown = Shown(self._q, np.asarray(self._forward(self._q)), error=f"{type(error).__name__}: {error}")
            self._q = shown.q
            self._show(shown)
            pause = FRAME if more else 1 / RATE
            time.sleep(max(0.0, pause - (time.perf_counter() - began)))

    def _solved(self) -> Shown:
        q, began = self._q, time.perf_counter()
        found, bodies, status, residuals, costs, met = self._pass(q)
        # `found` may be the same place with the quaternions of free joints normalised.
        still = bool(np.max(np.abs(found - q), initial=0.0) < STILL)
        name = Status(int(status)).name
        self._distance = float(np.sqrt(2 * sum(costs.values())))
        nearer = self._distance < (1 - NEARER) * self._nearest
        self._nearest, self._waited = (self._distance, 0) if nearer else (self._nearest, self._waited + 1)
        still = still or self._waited > PATIENCE
        # The quadratic program of a step that ran out of iterations leads on as well.
        if self._verb == "step" and status in (Status.CONVERGED, Status.TIMEOUT):
            name = "MOVING" if not still else "CONVERGED" if met else "STALLED"
            with self._changed:
                self._pending = self._pending or (not still and not self._placed)
        norms = {part: float(x) for part, x in residuals.items()}
        milliseconds = 1e3 * (time.perf_counter() - began)
        return Shown(found, bodies, name, norms, {k: float(x) for k, x in costs.items()}, milliseconds)

    def _pass(self, q: np.ndarray) -> Any:
        verb = self._verb
        problem = self._stepping if verb == "step" else self._problem
        distance = self._distance if np.isfinite(self._distance) else 0.0
        damping = np.asarray(LEAST_DAMPING + DAMPING_BY_DISTANCE * distance, q.dtype)
        return jax.device_get(_passes[verb](problem, dict(self._targets), q, damping))


def _stepped(problem: Problem, targets: dict[str, Any], q: Any, damping: Any) -> tuple[Any, ...]:
    problem = with_targets(problem, targets)
    return _measured(problem, step(problem, q, 1 / RATE, damping=damping))


def _solve(problem: Problem, targets: dict[str, Any], q: Any, damping: Any) -> tuple[Any, ...]:
    problem = with_targets(problem, targets)
    return _measured(problem, solve(problem, q))


def _search(problem: Problem, targets: dict[str, Any], q: Any, damping: Any) -> tuple[Any, ...]:
    problem = with_targets(problem, targets)
    return _measured(problem, search(problem, jax.random.key(0), starts=q[None]))


_passes = {"step": jax.jit(_stepped), "solve": jax.jit(_solve), "search": jax.jit(_search)}


def _measured(problem: Problem, result: Any) -> tuple[Any, ...]:
    """Configuration, bodies, status, norms by part, costs by task, and whether all tolerances are met."""
    norms, costs, met = {}, {}, jnp.asarray(True)
    for name, residual in result.residuals.items():
        task = problem.tasks.get(name)
        weights = {} if task is None else parts(task.weights())
        tolerances = {} if task is None else parts(task.tolerances())
        cost = jnp.zeros((), result.q.dtype)
        for part, rows in parts(residual).items():
            label = f"{name}/{part}" if part else name
            weight = jnp.asarray(weights.get(part, weights.get("", 0.0)))
            norms[label] = jnp.linalg.norm(rows)
            cost = cost + 0.5 * jnp.sum((weight * rows) ** 2)
            counted = jnp.linalg.norm(jnp.where(weight > 0, rows, 0.0))
            met = met & (counted <= tolerances.get(part, tolerances.get("", jnp.inf)))
        costs[name] = cost
    bodies = problem.robot.forward(result.q).wxyz_xyz
    return result.q, bodies, result.status, norms, costs, met
