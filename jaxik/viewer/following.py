"""The loop that moves a robot after its targets, in a thread of its own."""

import atexit
import contextlib
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
from jaxik.viewer.aims import costs_of, targets_to_drag, with_costs, with_speed, with_targets
from jaxik.viewer.poses import Poses, precision_of

VERBS = ("step", "solve", "search")
# Steps a second.
RATE = 60.0
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
      status: of `Status`; "MOVING" while the robot is on its way; "COMPILING" until its verb can run; "" where nothing
        was solved.
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
      poses: of its robot.
      show: called in the loop's thread with what there is to show.
    """

    def __init__(self, problem: Problem, q: Any, poses: Poses, show: Callable[[Shown], None]) -> None:
        """Prepare; `start` begins."""
        self._problem, self._poses, self._show = problem, poses, show
        self._stepping = with_speed(problem)
        self._q = np.array(q)
        self._targets = {name: x.astype(self._q.dtype) for name, x in targets_to_drag(problem).items()}
        self._costs = costs_of(problem, self._q.dtype)
        self._verb, self._distance = VERBS[0], 0.0
        self._nearest, self._waited = np.inf, 0
        self._changed, self._ended = threading.Condition(), False
        self._pending, self._placed = False, None
        self._compiled: set[str] = set()
        self._awaited = ""
        self._threads = [
            threading.Thread(target=run, name="jaxik.view", daemon=True) for run in (self._run, self._compile)
        ]

    @property
    def q(self) -> np.ndarray:
        """Where the robot is (nq,)."""
        return self._q

    @property
    def targets(self) -> dict[str, np.ndarray]:
        """By task what it aims at: poses (7,), wxyz and position [m], or points (3,) [m]."""
        return dict(self._targets)

    @property
    def costs(self) -> dict[str, dict[str, np.ndarray]]:
        """By task its costs, by the names of its arguments."""
        return dict(self._costs)

    def start(self) -> None:
        """Begin. A verb that is chosen for the first time is compiled meanwhile."""
        # An interpreter that ends while the compiler runs in a thread aborts.
        atexit.register(self._end, self._threads)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the loop, after the pass that it is in, and the compiler, unless it is at work: nothing interrupts it."""
        self._end(self._threads[:1])
        self._threads[1].join(timeout=0.5)
        if not self.is_compiling:
            atexit.unregister(self._end)

    @property
    def is_compiling(self) -> bool:
        """Whether the compiler is at work after `stop`."""
        return self._threads[1].is_alive()

    def _end(self, threads: list[threading.Thread]) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in threads:
            thread.join()

    def aim(self, name: str, target: Any) -> None:
        """A new target: a pose (7,), wxyz and position [m], or a point (3,) [m], as the task has it."""
        with self._changed:
            self._targets[name] = np.asarray(target, self._q.dtype)
            self._wake()

    def weigh(self, name: str, field: str, cost: Any) -> None:
        """A new cost of a task, of the shape that it had."""
        with self._changed:
            costs = self._costs[name]
            self._costs[name] = costs | {field: np.asarray(cost, self._q.dtype).reshape(costs[field].shape)}
            self._wake()

    def choose(self, verb: str) -> None:
        """Follow by "step", "solve" or "search".

        Raises:
          JaxikError: for another verb.
        """
        if verb not in VERBS:
            raise JaxikError(f"verb is one of {', '.join(VERBS)}, not {verb!r}")
        with self._changed:
            self._verb = verb
            self._wake()

    def place(self, q: Any) -> dict[str, np.ndarray]:
        """Put the robot at a configuration (nq,), and its targets where that has them; returns these."""
        q = np.array(q, self._q.dtype)
        targets = self._poses.aims(q)
        with self._changed:
            self._targets |= targets
            self._placed, self._pending = q, False
            self._changed.notify_all()
        return targets

    def _wake(self) -> None:
        self._pending, self._placed = True, None
        self._nearest, self._waited = np.inf, 0
        self._changed.notify_all()

    def _has_work(self) -> bool:
        """Whether to go on; where the verb is being compiled, that is said once."""
        can_solve = self._verb in self._compiled or self._verb != self._awaited
        return self._ended or self._placed is not None or (self._pending and can_solve)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._ended:
                    return
                placed, verb, self._placed = self._placed, self._verb, None
                self._awaited = verb if placed is None and verb not in self._compiled else ""
                self._pending = bool(self._awaited)
            began = time.perf_counter()
            try:
                if placed is not None:
                    shown = Shown(placed, self._bodies(placed))
                elif self._awaited:
                    shown = Shown(self._q, self._bodies(self._q), "COMPILING")
                else:
                    shown = self._solved(verb)
            except Exception as error:  # a page that stops answers no more: it says what happened instead
                shown = Shown(self._q, self._bodies(self._q), error=f"{type(error).__name__}: {error}")
            self._q = shown.q
            self._show(shown)
            time.sleep(max(0.0, 1 / RATE - (time.perf_counter() - began)))

    def _compile(self) -> None:
        """Run each verb once after it is first chosen, where nobody waits for it; the loop says what it raises."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._verb not in self._compiled)
                verb = self._verb
                if self._ended:
                    return
            with contextlib.suppress(Exception):
                self._pass(verb, self._q)
            with self._changed:
                self._compiled.add(verb)
                self._changed.notify_all()

    def _bodies(self, q: np.ndarray) -> np.ndarray:
        return self._poses.bodies(q[None])[0]

    def _solved(self, verb: str) -> Shown:
        q, began = self._q, time.perf_counter()
        found, bodies, status, residuals, costs, met = self._pass(verb, q)
        # `found` may be the same place with the quaternions of free joints normalised.
        still = bool(np.max(np.abs(found - q), initial=0.0) < STILL)
        name = Status(int(status)).name
        self._distance = float(np.sqrt(2 * sum(costs.values())))
        nearer = self._distance < (1 - NEARER) * self._nearest
        self._nearest, self._waited = (self._distance, 0) if nearer else (self._nearest, self._waited + 1)
        still = still or self._waited > PATIENCE
        # The quadratic program of a step that ran out of iterations leads on as well, and so do shapes that overlap.
        if verb == "step" and status in (Status.CONVERGED, Status.TIMEOUT, Status.COLLIDES):
            name = "MOVING" if not still else name if status == Status.COLLIDES else "CONVERGED" if met else "STALLED"
            with self._changed:
                self._pending = self._pending or (not still and self._placed is None)
        norms = {part: float(x) for part, x in residuals.items()}
        milliseconds = 1e3 * (time.perf_counter() - began)
        return Shown(found, bodies, name, norms, {k: float(x) for k, x in costs.items()}, milliseconds)

    def _pass(self, verb: str, q: np.ndarray) -> Any:
        problem = self._stepping if verb == "step" else self._problem
        distance = self._distance if np.isfinite(self._distance) else 0.0
        damping = np.asarray(LEAST_DAMPING + DAMPING_BY_DISTANCE * distance, q.dtype)
        with precision_of(q):
            return jax.device_get(_passes[verb](problem, dict(self._targets), dict(self._costs), q, damping))


def _stepped(problem: Problem, targets: Any, costs: Any, q: Any, damping: Any) -> tuple[Any, ...]:
    problem = with_costs(with_targets(problem, targets), costs)
    return _measured(problem, step(problem, q, 1 / RATE, damping=damping))


def _solve(problem: Problem, targets: Any, costs: Any, q: Any, damping: Any) -> tuple[Any, ...]:
    problem = with_costs(with_targets(problem, targets), costs)
    return _measured(problem, solve(problem, q))


def _search(problem: Problem, targets: Any, costs: Any, q: Any, damping: Any) -> tuple[Any, ...]:
    problem = with_costs(with_targets(problem, targets), costs)
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
