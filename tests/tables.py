"""Which rows of a table always run, and which before a release alone (`pytest -m exhaustive`)."""

from collections.abc import Iterable
from typing import Any

import pytest

exhaustive = pytest.mark.exhaustive


def mostly_exhaustive(cases: Iterable[Any], always: Iterable[Any]) -> list[Any]:
    """The rows of a table, those outside `always` marked exhaustive."""
    cases, always = list(cases), list(always)
    unknown = [case for case in always if case not in cases]
    assert not unknown, f"no such rows: {unknown}"
    return [case if case in always else pytest.param(case, marks=exhaustive) for case in cases]
