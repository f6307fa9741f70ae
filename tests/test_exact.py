"""Tests of the programs that users run: what is equal to the last bit, and what is reached how often."""

from pathlib import Path

import pytest
from fresh import run
from tables import exhaustive

FOLDER = Path(__file__).parent / "exact"


@pytest.mark.parametrize("which", ["not exhaustive", pytest.param("exhaustive", marks=exhaustive)])
def test_programs_that_users_run(which: str) -> None:
    """All in one interpreter: each start takes four seconds, and searches share their programs."""
    # Workers have a core each: what a program says does not depend on how many threads generate its code.
    one = "--xla_cpu_parallel_codegen_split_count=1"
    done = run("-m", "pytest", "-n0", "-q", "-m", which, str(FOLDER), JAXIK_TEST_EXACT="1", XLA_FLAGS=one)
    assert done.returncode == 0, done.stdout + done.stderr
