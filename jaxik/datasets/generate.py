"""`generate`: the shards of a plan, solved and written one after the other; the next is solved while one is written."""

import functools
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.core.version import __version__
from jaxik.datasets.card import write_card
from jaxik.datasets.dataset import Dataset
from jaxik.datasets.plan import Plan
from jaxik.datasets.rows import RowSolver
from jaxik.datasets.store import Store, alone, open_or_create

# Rows that are solved in one call.
BATCH_SIZE = 16384


def generate(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    part: tuple[int, int] = (1, 1),
    resume: bool = False,
    batch_size: int = BATCH_SIZE,
    strict: bool = False,
    advance: Callable[[int, int], Any] = lambda rows, converged: None,
) -> Dataset:
    """Make a dataset, or what is missing of one.

    Row i is a function of the plan and i: neither `part` nor `batch_size`, nor where and how often the work was
    interrupted, changes a bit of it, on one kind of device and one version of jaxlib.

    Args:
      plan: what the rows are.
      path: a folder, such as "reach.zarr".
      part: (k, n) makes every n-th shard only, the k-th of them first, k from 1 to n: n runs, on as many machines, make
        the whole dataset, and each of them goes on with what there is.
      resume: go on with a dataset of the same plan; without it one that exists is an error.
      batch_size: rows in one call.
      strict: refuse to go on with shards of another kind of device or version of jaxlib, whose bits may differ.
      advance: told of rows, and how many of them are CONVERGED, as they are solved or found to be there.

    Returns:
      The dataset; complete unless other parts are missing.

    Raises:
      JaxikError: for another plan's dataset, with what differs; for a full disk or a folder that cannot be written; for
        another run on the same part. What is committed stays.
    """
    if not isinstance(plan, Plan):
        raise JaxikError(f"plan is a jaxik.Plan, not {type(plan).__name__}")
    own, parts = part
    if not 1 <= own <= parts:
        raise JaxikError(f"part is (k, n) with k from 1 to n, not {part}")
    solver = RowSolver(plan, min(batch_size, plan.shard, plan.count))
    path = Path(path).expanduser()
    store = open_or_create(path, plan, solver.columns(), _names(plan), resume or parts > 1)
    if strict:
        _check_devices(store)
    with alone(path, f"{own}-of-{parts}"):
        _run(store, solver, range(own - 1, plan.shards, parts), advance)
    dataset = Dataset(path)
    if dataset.complete:
        write_card(dataset)
    return dataset


def _run(store: Store, solver: RowSolver, shards: range, advance: Callable[[int, int], Any]) -> None:
    """Solve and write the shards that are missing."""
    there = store.committed()
    for shard in there.keys() & {*shards}:
        first, last = store.rows_of(shard)
        advance(last - first, there[shard]["status"].get("CONVERGED", 0))
    with ThreadPoolExecutor(1) as writer:
        pending: Future[None] | None = None
        try:
            for shard in (shard for shard in shards if shard not in there):
                started = time.perf_counter()
                arrays = solver.rows(*store.rows_of(shard), advance)
                facts = _facts(time.perf_counter() - started)
                if pending is not None:
                    pending.result()
                pending = writer.submit(store.write, shard, arrays, facts)
        finally:
            # After Ctrl-C too: what is solved is written.
            if pending is not None:
                pending.result()


def _facts(seconds: float) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "jaxik": __version__,
        "jaxlib": version("jaxlib"),
        "backend": device.platform,
        "device": _processor() if device.platform == "cpu" else device.device_kind,
        "seconds": round(seconds, 3),
    }


@functools.cache
def _processor() -> str:
    """The model of the processor, as far as the system tells."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _check_devices(store: Store) -> None:
    here = _facts(0)
    for shard, record in sorted(store.committed().items()):
        for key in ("jaxlib", "backend", "device"):
            if record[key] != here[key]:
                raise JaxikError(f"output {store.path}: shard {shard} has {key} {record[key]}, this is {here[key]}")


def _names(plan: Plan) -> dict[str, Any]:
    """What the arrays' columns are, for who opens the store with another library."""
    topology = plan.problem.robot.topology
    return {
        "robot": topology.name,
        "q_joint": [name for name, _ in topology.q_columns],
        "q_unit": [unit for _, unit in topology.q_columns],
        "status_names": [status.name for status in Status],
    }
