"""Settings of every test: float64, quick compilation, and a cache of it that outlives the run.

Tests compile some thousand programs, nearly all of which run for milliseconds: as XLA compiles them for users that is
four fifths of the time. What depends on those very programs is in `exact`, which `test_exact.py` runs in interpreters
of their own; `JAXIK_TEST_EXACT=1 pytest -n0 tests/exact` runs it here.
"""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import quick_compilation

EXACT = bool(os.environ.get("JAXIK_TEST_EXACT"))
if not EXACT:
    # A third of the time of a solve's first call, 20 times that of the next. Workers have a core each: splitting the
    # generation of code over threads takes some 6 % more of it.
    os.environ.setdefault("XLA_FLAGS", f"{quick_compilation.flags()} --xla_cpu_parallel_codegen_split_count=1")

import jax  # noqa: E402
import models  # noqa: E402
import pytest  # noqa: E402

pytest_plugins = ["compile_report"]
collect_ignore = [] if EXACT else ["exact"]

# Linux gives a process 65,530 memory maps, and a compiled program takes a few of them; with 30,000 a worker holds 6 GB.
MOST_MAPS = 12_000

PROGRAM: Any = type(jax.jit(abs))

# All workers share it. An entry of which a worker reads half is a warning, which pyproject.toml ignores, and compiled.
CACHE = Path(os.environ.get("JAXIK_TEST_CACHE") or Path.home() / ".cache" / "jaxik" / "xla")

# Tracing makes millions of objects that live: 9 % of a test's time went into looking through them.
gc.set_threshold(200_000, 50, 100)

jax.config.update("jax_enable_x64", True)
# As said of large batches where no one has said it: workers share the cores already.
jax.config.update("jax_num_cpu_devices", 1)
jax.config.update("jax_compilation_cache_dir", str(CACHE))
# Hundreds of small programs: each is worth keeping.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
# Caches of a GPU, whose path would be part of what programs are found by: none was found in another folder.
jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


@pytest.fixture(autouse=True, scope="module")
def room_for_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Free compiled programs before a process runs out of memory maps, and dies.

    Those of a module and of solvers go with it. What is left are some hundred of single operations and kinematics that
    other modules have as well: to free these too takes 3 s or more, which is what they take to be made again.
    """
    yield
    solvers = [module for name, module in sys.modules.items() if name.startswith("jaxik.solvers")]
    for value in [value for module in (request.module, *solvers) for value in vars(module).values()]:
        if isinstance(value, PROGRAM):
            value.clear_cache()
        elif hasattr(value, "cache_clear") and value.__module__ == request.module.__name__:
            value.cache_clear()  # of what holds programs
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    models.report_skips(terminalreporter)
