"""Times of a jitted function: compile and run apart, and no run counted before its result is there."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

REPEATS = 9


def measured(function: Callable[..., Any], *args: Any) -> tuple[Any, dict[str, float]]:
    """The result of `jax.jit(function)(*args)`, and its compile time and median run time."""
    start = time.perf_counter()
    traced = jax.jit(function).lower(*args)
    lowered = time.perf_counter()
    compiled = traced.compile()
    compiled_at = time.perf_counter()
    out = jax.block_until_ready(compiled(*args))
    runs = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        out = jax.block_until_ready(compiled(*args))
        runs.append(1e3 * (time.perf_counter() - begin))
    return out, {
        "trace_s": round(lowered - start, 3),
        "compile_s": round(compiled_at - lowered, 3),
        "run_ms": round(statistics.median(runs), 3),
        "best_run_ms": round(min(runs), 3),
    }
