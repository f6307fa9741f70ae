"""`generate`: the shards of a plan, solved and written one after the other; the next is solved while one is written."""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.datasets.card import write_card
from jaxik.datasets.dataset import Dataset
from jaxik.datasets.plan import Plan
from jaxik.datasets.ray_engine import run_on_ray
from jaxik.datasets.rows import RowSolver
from jaxik.datasets.shards import facts_of
from jaxik.datasets.store import Store, alone, open_or_create

ENGINES = ("process", "ray")
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
    engine: str = "process",
    address: str | None = None,
    workers: int | None = None,
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
      batch_size: rows in one call; trajectories have calls of their own size.
      strict: refuse to go on with shards of another kind of device or version of jaxlib, whose bits may differ.
      engine: "process", this one with all its devices, or "ray": an actor on each node of a Ray cluster, which all see
        the folder; shards of lost nodes are made by others.
      address: of the Ray cluster, as of `ray.init`; None: the one that is connected to, else a local one.
      workers: how many Ray actors; None: one a node.
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
    validation.one_of("engine", engine, ENGINES)
    solver = RowSolver(plan, min(batch_size, plan.rows_of_shard, plan.rows))
    path = Path(path).expanduser()
    store = open_or_create(path, plan, solver.columns(), _names(plan), resume or parts > 1)
    if strict:
        _check_devices(store)
    with alone(path, f"{own}-of-{parts}"):
        missing = _missing(store, range(own - 1, plan.shards, parts), advance)
        if engine == "ray":
            run_on_ray(plan, store, solver.size, missing, advance, address, workers)
        else:
            _run(store, solver, missing, advance)
    dataset = Dataset(path)
    if dataset.complete:
        write_card(dataset)
    return dataset


def _missing(store: Store, shards: range, advance: Callable[[int, int], Any]) -> list[int]:
    """The shards that are not there yet."""
    there = store.committed()
    for shard in there.keys() & {*shards}:
        first, last = store.rows_of(shard)
        advance(last - first, there[shard].get("solved", 0))
    return [shard for shard in shards if shard not in there]


def _run(store: Store, solver: RowSolver, shards: list[int], advance: Callable[[int, int], Any]) -> None:
    """Solve and write shards; one is written while the next is solved."""
    with ThreadPoolExecutor(1) as writer:
        pending: Future[None] | None = None
        try:
            for shard in shards:
                started = time.perf_counter()
                arrays = solver.rows(*store.rows_of(shard), advance)
                facts = facts_of(time.perf_counter() - started)
                if pending is not None:
                    pending.result()
                pending = writer.submit(store.write, shard, arrays, facts)
        finally:
            # After Ctrl-C too: what is solved is written.
            if pending is not None:
                pending.result()


def _check_devices(store: Store) -> None:
    here = facts_of(0)
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
    } | ({} if plan.trajectories is None else {"dt": float(plan.trajectories.dt)})
