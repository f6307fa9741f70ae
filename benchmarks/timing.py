"""Times of a jitted function: compile and run apart, and no run counted before its result is there."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

REPEATS = 9


def measured(function: Callable[..., Any], *args: Any) -> tuple[Any, dict[str, float]]:
    """The result of `jax.jit(function)(*args)`, and its compile time and median run time."""
    program, compile_times = compiled(function, *args)
    out, run_times = timed(program, *args)
    return out, compile_times | run_times


def compiled(function: Callable[..., Any], *args: Any) -> tuple[jax.stages.Compiled, dict[str, float]]:
    """The program of `jax.jit(function)` for such arguments, and how long it took to trace and to compile."""
    start = time.perf_counter()
    traced = jax.jit(function).lower(*args)
    lowered = time.perf_counter()
    program = traced.compile()
    compiled_at = time.perf_counter()
    return program, {"trace_s": round(lowered - start, 3), "compile_s": round(compiled_at - lowered, 3)}


def timed(program: Callable[..., Any], *args: Any, repeats: int = REPEATS) -> tuple[Any, dict[str, float]]:
    """The result of a compiled program, which runs once before the clock does, and its median run time.

    `processor_ms` is what all cores together spent on a run: other work on the machine changes it less, up to twofold.
    """
    out = jax.block_until_ready(program(*args))
    runs, processor = [], time.process_time()
    for _ in range(repeats):
        begin = time.perf_counter()
        out = jax.block_until_ready(program(*args))
        runs.append(1e3 * (time.perf_counter() - begin))
    return out, {
        "run_ms": round(statistics.median(runs), 3),
        "best_run_ms": round(min(runs), 3),
        "processor_ms": round(1e3 * (time.process_time() - processor) / repeats, 3),
    }


class Clock:
    """Seconds since it was made: on the wall, and of all cores together."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._begin[0], time.process_time() - self._begin[1]
