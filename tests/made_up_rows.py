"""A dataset that nobody solved: for what reads and writes rows, whatever they are."""

from pathlib import Path

import numpy as np

import jaxik
from jaxik.datasets.rows import Column
from jaxik.datasets.store import Store, open_or_create

COUNT, SHARD = 150, 64
SHAPES = {"q": ((7,), "f4"), "status": ((), "i1"), "path": ((5, 3), "f8"), "scale": ((), "f8"), "success": ((), "?")}


def filled(path: Path) -> Store:
    """A store of made-up rows, one of whose arrays has nothing but zeros in shard 1."""
    robot = jaxik.load_robot("double_pendulum")
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask.from_configuration(robot, robot.q_home, "tcp")})
    columns = {name: Column(shape, np.dtype(kind), "", "") for name, (shape, kind) in SHAPES.items()}
    store = open_or_create(path, jaxik.Plan(problem, COUNT, shard=SHARD), columns, {}, False)
    random = np.random.default_rng(0)
    for shard in range(store.shards):
        first, last = store.rows_of(shard)
        rows = {n: random.integers(0, 9, (last - first, *c.shape)).astype(c.dtype) for n, c in columns.items()}
        rows["status"] = np.minimum(rows["status"], 1) * (shard != 1)
        store.write(shard, rows, {})
    return store
