"""Shards on many machines: one Ray actor a node, which solves, writes and commits whole shards.

Nothing of a dataset passes through the driver: it hands out numbers of shards, and hands them out again where an actor
is lost. All nodes see the folder.
"""

import contextlib
import dataclasses
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxik.batching.devices import enable_compilation_cache, use_all_cores
from jaxik.core.errors import JaxikError
from jaxik.datasets.plan import Plan
from jaxik.datasets.rows import RowSolver
from jaxik.datasets.shards import make_shard
from jaxik.datasets.store import Store

# How often a shard is tried where its actors are lost.
ATTEMPTS = 5
# The folder where a restarted actor finds compiled programs, beside the shards.
PROGRAMS = ".programs"


def ray_package() -> Any:
    """The package ray, or one line that says how to get it."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise JaxikError('the engine "ray" needs Ray: pip install "jaxik[ray]"') from None
    return ray


class Worker:
    """Makes shards in a process of its own, with all cores and devices of its node."""

    def __init__(self, plan: Plan, path: str, size: int, x64: bool) -> None:
        """Set JAX up as in the driver; nothing is compiled yet."""
        jax.config.update("jax_enable_x64", x64)
        with contextlib.suppress(JaxikError):
            use_all_cores()
        if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
            enable_compilation_cache(Path(path) / PROGRAMS)
        self._solver, self._store = RowSolver(plan, size), Store(Path(path))

    def ready(self) -> None:
        """Answer when the process is there."""

    def make(self, shard: int) -> tuple[int, int]:
        """Solve, write and commit a shard; returns its rows, and how many are CONVERGED."""
        return make_shard(self._store, self._solver, shard)


def run_on_ray(
    plan: Plan,
    store: Store,
    size: int,
    shards: Iterable[int],
    advance: Callable[[int, int], Any],
    address: str | None,
    workers: int | None,
) -> None:
    """Make shards on the nodes of a Ray cluster; see `generate`.

    Raises:
      JaxikError: what a worker raised; where all nodes are lost, or a shard is the end of several actors.
    """
    ray = ray_package()
    own = not ray.is_initialized()
    if own:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        _Driver(ray, plan, store, size, workers).run(deque(shards), advance)
    finally:
        if own:
            ray.shutdown()


class _Driver:
    def __init__(self, ray: Any, plan: Plan, store: Store, size: int, workers: int | None) -> None:
        self._ray = ray
        cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        cores = [count for count in cores if count]
        if not cores:
            raise JaxikError("the Ray cluster has no node with a CPU")
        self._workers = len(cores) if workers is None else workers
        # As many cores as the smallest node has: a second actor does not fit beside the first.
        share = min(cores) if workers is None else max(1, sum(cores) // workers)
        remote = ray.remote(num_cpus=share, scheduling_strategy="SPREAD")(Worker)
        # As numbers of NumPy: a worker would round float64 of JAX as it reads them, before it is told otherwise.
        host = [jax.tree.map(np.asarray, x) for x in (plan.problem, plan.options)]
        start = None if plan.start is None else np.asarray(plan.start)
        plan = dataclasses.replace(plan, problem=host[0], options=host[1], start=start)
        x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        self._begun = lambda: remote.remote(plan, os.fspath(store.path.resolve()), size, x64)
        # What runs: a call to its actor, and the shard that it makes, or None where it only says that it is there.
        self._running: dict[Any, tuple[Any, int | None]] = {}
        self._attempts: dict[int, int] = {}

    def run(self, todo: deque[int], advance: Callable[[int, int], Any]) -> None:
        for _ in range(min(self._workers, len(todo))):
            self._begin()
        while todo or any(shard is not None for _, shard in self._running.values()):
            [done], _ = self._ray.wait([*self._running])
            actor, shard = self._running.pop(done)
            try:
                made = self._ray.get(done)
            except self._ray.exceptions.RayTaskError as error:
                raise JaxikError(str(error.cause).splitlines()[0] if error.cause else str(error)) from None
            except self._ray.exceptions.RayActorError:
                self._lost(shard, todo)
                continue
            if shard is not None:
                advance(*made)
            if todo:
                following = todo.popleft()
                self._running[actor.make.remote(following)] = actor, following

    def _begin(self) -> None:
        actor = self._begun()
        self._running[actor.ready.remote()] = actor, None

    def _lost(self, shard: int | None, todo: deque[int]) -> None:
        """Give the shard of an actor that is no more to another, and ask for one in its place."""
        if shard is not None:
            self._attempts[shard] = self._attempts.get(shard, 0) + 1
            if self._attempts[shard] == ATTEMPTS:
                raise JaxikError(f"shard {shard} was the end of {ATTEMPTS} Ray actors: is their memory too small?")
            todo.appendleft(shard)
        if not any(node["Alive"] for node in self._ray.nodes()):
            raise JaxikError("all nodes of the Ray cluster are lost; --resume goes on with what is committed")
        self._begin()
