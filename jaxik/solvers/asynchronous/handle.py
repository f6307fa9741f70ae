"""The handle of a solve that runs in a thread of its own."""

import asyncio
import dataclasses
import threading
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.problem.problem import Problem
from jaxik.results.solution import Solution
from jaxik.solvers.asynchronous.threads import exiting, start
from jaxik.solvers.nonlinear.solve import solve
from jaxik.solvers.options import SolveOptions
from jaxik.solvers.tracking.targets import placed, values_of


class SolveHandle:
    """A solve under way, from `solve_async`. Any thread may call its methods.

    `await handle` gives what `result` does, without blocking the loop; to cancel that does not stop the solve.
    """

    def __init__(self, problem: Problem, q0: jax.Array, options: SolveOptions, chunk: int) -> None:
        """Start at once; `q0` has the batch axes of the result."""
        self._problem, self._q, self._options, self._chunk = problem, q0, options, chunk
        # The thread that calls may have set these for itself alone.
        self._x64, self._device = jax.config.jax_enable_x64, jax.config.jax_default_device  # type: ignore[attr-defined]
        self._lock = threading.Lock()
        self._best: Solution | None = None
        self._changed = self._stopping = False
        self._future = self._started()

    def done(self) -> bool:
        """Whether it has ended; `update` makes it go on."""
        return self._ending().done()

    def poll(self) -> Solution | None:
        """The best so far, of the targets that it was found for; None before the first steps. Never waits."""
        with self._lock:
            return self._best

    def update(self, targets: dict[str, Any]) -> None:
        """Change targets, from the next chunk of steps on; where it has ended, it goes on from where it is.

        Args:
          targets: task name to a new target, or to a dict of that task's fields, as of `track`, without time.

        Raises:
          JaxikError: for an unknown task or field, for what the task refuses, and after `stop`.
        """
        with self._lock:
            if self._stopping:
                raise JaxikError(
                    "the solve was stopped: start another one with solve_async(problem, handle.result().q)"
                )
            self._problem = placed(self._problem, values_of(self._problem, targets))
            self._changed = True
            if self._future.done():
                self._future = self._started()

    def stop(self, timeout: float | None = None) -> Solution:
        """End after the chunk under way, or after compilation; what is still under way then is TIMEOUT.

        Returns, Raises: as `result`.
        """
        with self._lock:
            self._stopping = True
        return self.result(timeout)

    def result(self, timeout: float | None = None) -> Solution:
        """Wait for the end, at most so many seconds.

        Returns:
          The `Solution`; `iterations` (*batch,) are those since targets last changed.

        Raises:
          TimeoutError: if it takes longer; it goes on.
          JaxikError: what `solve` raises, as any other exception of the thread.
        """
        return self._ending().result(timeout)

    def __await__(self) -> Generator[Any, None, Solution]:
        """Wait in a coroutine."""
        return asyncio.wrap_future(self._ending()).__await__()

    def _ending(self) -> "Future[Solution]":
        with self._lock:
            return self._future

    def _started(self) -> "Future[Solution]":
        """The future of a thread that has just been started."""
        future: Future[Solution] = Future()
        # It runs: to cancel what waits for it leaves it alone.
        future.set_running_or_notify_cancel()
        start(self._run, future)
        return future

    def _run(self, future: "Future[Solution]") -> None:
        try:
            with jax.enable_x64(self._x64), jax.default_device(self._device):
                self._work(future)
        except BaseException as error:
            with self._lock:
                # An exit that comes after the result has nothing to say of it.
                if not future.done():
                    future.set_exception(error)

    def _work(self, future: "Future[Solution]") -> None:
        """Chunk after chunk, until all elements have ended or the handle is stopped."""
        shape = self._q.shape[:-1]
        left, going, best = np.zeros(shape, int), np.ones(shape, bool), None
        while True:
            with self._lock:
                problem = self._problem
                if self._changed or best is None:
                    left, best = np.broadcast_to(np.asarray(self._options.max_steps), shape), None
                    going = np.ones(shape, bool)
                self._changed = False
            steps = np.minimum(left, self._chunk)
            found = jax.block_until_ready(solve(problem, self._q, options=_limited(self._options, steps)))
            best = found if best is None else _continued(best, found, going)
            self._q = best.q
            going = np.logical_and(going, _used_up(found, steps))
            left = np.where(going, left - steps, 0)
            # An ended future and the decision that nothing has changed are one: `update` looks at both.
            with self._lock:
                self._best = best
                if self._stopping or exiting() or not (left.any() or self._changed):
                    future.set_result(best)
                    return


def _limited(options: SolveOptions, steps: np.ndarray) -> SolveOptions:
    return dataclasses.replace(options, max_steps=steps)


def _used_up(found: Solution, steps: np.ndarray) -> np.ndarray:
    """Whether elements used all steps of a chunk; what still overlaps then is COLLIDES, and may come apart."""
    status, taken = np.asarray(found.status), np.asarray(found.iterations)
    return (status == Status.TIMEOUT) | ((status == Status.COLLIDES) & (taken >= steps))


def _continued(before: Solution, after: Solution, going: np.ndarray) -> Solution:
    """What a chunk found after another one, of elements (*batch) where that one left something to do."""
    mask = jnp.asarray(going)

    def later(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(*mask.shape, *(1,) * (new.ndim - mask.ndim)), new, old)

    iterations = before.iterations + jnp.where(mask, after.iterations, 0)
    return dataclasses.replace(jax.tree.map(later, before, after), iterations=iterations)
