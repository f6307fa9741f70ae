"""Tests of the programs that users run: what is equal to the last bit, and what is reached how often."""

from pathlib import Path

from fresh import run

FOLDER = Path(__file__).parent / "exact"


def test_programs_that_users_run() -> None:
    """All in one interpreter: each start takes four seconds, and searches share their programs."""
    done = run("-m", "pytest", "-n0", "-q", str(FOLDER), JAXIK_TEST_EXACT="1")
    assert done.returncode == 0, done.stdout + done.stderr
