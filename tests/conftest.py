"""Settings of every test: float64, and a compilation cache that outlives the run."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import models
import pytest

# A folder for each worker: entries are not written at once, and another worker might read half of one.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
CACHE = Path(os.environ.get("JAXIK_TEST_CACHE") or Path.home() / ".cache" / "jaxik" / "xla") / WORKER

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", str(CACHE))
# Hundreds of small programs: each is worth keeping.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_module() -> Iterator[None]:
    """Free a module's compiled programs: one that keeps all of them runs out of memory maps, and dies."""
    yield
    jax.clear_caches()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    models.report_skips(terminalreporter)
