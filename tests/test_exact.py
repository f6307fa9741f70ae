"""Tests of the programs that users run: what is equal to the last bit, and what is reached how often."""

from pathlib import Path

import pytest
from fresh import run

FOLDER = Path(__file__).parent / "exact"


@pytest.mark.parametrize("module", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_programs_that_users_run(module: str) -> None:
    done = run("-m", "pytest", "-n0", "-q", str(FOLDER / module), JAXIK_TEST_EXACT="1")
    assert done.returncode == 0, done.stdout + done.stderr
