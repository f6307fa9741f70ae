"""Traces of `solve`, to the last bit: recording changes nothing."""

import numpy as np
from tables import exhaustive
from traces import found

from jaxik import SolveOptions


@exhaustive
def test_without_being_asked_nothing_is_recorded_and_with_it_nothing_else_changes() -> None:
    plain, traced = found(trace=False), found()
    assert (
        plain.trace is None and SolveOptions().record_trace == 0 and SolveOptions(record_trace=True).record_trace == 100
    )
    for name in ("q", "status", "iterations", "cost", "stationarity"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(traced, name))
