"""One shard: solved, written, and recorded with what solved it."""

import functools
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from jaxik.core.version import __version__
from jaxik.datasets.rows import RowSolver, solved
from jaxik.datasets.store import Store


def make_shard(store: Store, solver: RowSolver, shard: int) -> tuple[int, int]:
    """Solve and write one shard; returns its rows, and how many are CONVERGED."""
    started = time.perf_counter()
    arrays = solver.rows(*store.rows_of(shard))
    store.write(shard, arrays, facts_of(time.perf_counter() - started))
    return len(arrays["status"]), int(solved(arrays).sum())


def facts_of(seconds: float) -> dict[str, Any]:
    """What solved a shard, and how long that took."""
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
