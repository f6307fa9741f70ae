"""Traces of `solve`: what a row says, and the picture."""

import dataclasses
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_tasks
import pytest
from tables import exhaustive
from traces import Q0, START, STEPS, TARGETS, arm, found, trace_of

import jaxik
from jaxik import FrameTask, JaxikError, PostureTask, Problem, SolveOptions, Status, solve


@cache
def two_levels() -> jaxik.Solution:
    tasks = {
        "first": own_tasks.Joint(0, np.array([0.1, 0.25]), tolerance=1e-6),
        "rest": PostureTask(np.array([0.0, 0.4]), priority=1),
    }
    return jax.device_get(solve(Problem(arm(), tasks), Q0, options=SolveOptions(record_trace=True)))


def test_a_row_for_every_step_and_one_for_the_start() -> None:
    solution, trace = found(), trace_of(found())
    assert {leaf.shape for leaf in jax.tree.leaves(trace)} == {(5, STEPS + 1)}
    written = np.arange(STEPS + 1) <= solution.iterations[:, None]
    assert solution.iterations.max() > 5 and solution.iterations.min() == 0
    np.testing.assert_array_equal(trace.phase >= 0, written)
    np.testing.assert_array_equal(trace.phase[~written], -1)
    for column in (trace.cost, trace.size, trace.damping):
        np.testing.assert_array_equal(np.isnan(column), ~written)


def test_without_being_asked_nothing_is_recorded() -> None:
    tip = FrameTask(arm().frame("tip"), TARGETS, orientation_cost=None)
    assert jax.eval_shape(lambda: solve(Problem(arm(), {"tip": tip}), Q0)).trace is None


@exhaustive
def test_without_being_asked_nothing_is_recorded_and_what_is_found_is_the_same() -> None:
    """To the last bit as users compile it: tests/exact."""
    plain, traced = found(trace=False), found()
    assert plain.trace is None
    for name in ("status", "iterations"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(traced, name))
    for name in ("q", "cost", "stationarity"):
        np.testing.assert_allclose(getattr(plain, name), getattr(traced, name), rtol=1e-9, atol=1e-12)


def test_the_last_row_is_what_solve_returns_and_the_first_where_it_started() -> None:
    solution, trace = found(), trace_of(found())
    last = np.arange(5), solution.iterations
    np.testing.assert_array_equal(trace.cost[last], solution.cost)
    np.testing.assert_array_equal(trace.size[last], solution.stationarity)
    np.testing.assert_allclose(trace.cost[:4, 0], 0.5 * np.sum((TARGETS[:4] - START) ** 2, -1), atol=1e-14)
    np.testing.assert_array_equal(trace.damping[:3, 0], 0.3)


def test_costs_never_rise_and_those_who_stall_end_in_newton_steps() -> None:
    solution, trace = found(), trace_of(found())
    cost = trace.cost[:4]
    assert not (np.diff(cost, axis=1) > 1e-14 * (1 + cost[:, :1])).any()
    np.testing.assert_array_equal(solution.status, [0, 1, 1, 0, 5])
    assert solution.status[4] == Status.NONFINITE and trace.phase[4, 0] == 0
    phases = [trace.phase[i, : solution.iterations[i] + 1] for i in range(4)]
    assert all((np.diff(phase) >= 0).all() and phase[0] == 0 for phase in phases)
    assert [phase.max() for phase in phases] == [0, 1, 1, 0]


def test_a_lower_level_is_a_phase_of_its_own() -> None:
    solution, trace = two_levels(), trace_of(two_levels())
    for i, phase in enumerate(trace.phase):
        steps = int(solution.iterations[i])
        assert phase[0] == 0 and phase[steps] == 2 and set(phase[steps + 1 :]) == {-1}
        assert np.isfinite(trace.cost[i, : steps + 1]).all()
    np.testing.assert_allclose(solution.q, [[0.1, 0.4], [0.25, 0.4]], atol=1e-10)
    rest = 0.5 * np.sum((solution.q - np.array([0, 0.4])) ** 2, -1)
    np.testing.assert_allclose(trace.cost[np.arange(2), solution.iterations], rest, rtol=1e-9)


@exhaustive
def test_an_element_leaves_the_same_trace_alone_as_in_a_batch() -> None:
    for i in (0, 1):
        alone, among = trace_of(found(element=i)), jax.tree.map(lambda x, i=i: x[i], trace_of(found()))
        np.testing.assert_array_equal(alone.phase, among.phase)
        for column in ("cost", "size", "damping"):
            np.testing.assert_allclose(getattr(alone, column), getattr(among, column), rtol=1e-6, atol=1e-12)


@exhaustive
def test_no_more_rows_are_written_than_asked_for() -> None:
    few, all_of_them = trace_of(found(trace=3)), trace_of(found())
    assert few.cost.shape == (5, 4)
    for a, b in zip(jax.tree.leaves(few), jax.tree.leaves(all_of_them), strict=True):
        np.testing.assert_array_equal(a, b[:, :4])


@pytest.mark.parametrize("value", [-1, 2.5, "all", None])
def test_what_is_no_number_of_steps_is_said(value: Any) -> None:
    with pytest.raises(JaxikError, match="record_trace is True, False, or how many steps"):
        SolveOptions(record_trace=value)


def test_a_traced_solution_is_saved_with_its_trace(tmp_path: Path) -> None:
    jaxik.save(tmp_path / "s.npz", found())
    back = jaxik.load(tmp_path / "s.npz")
    assert jax.tree.structure(back) == jax.tree.structure(found())
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(found()), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    with np.load(tmp_path / "s.npz") as arrays:
        cut = dict(arrays) | {"trace/size": arrays["trace/size"][:, :-1]}
    np.savez(tmp_path / "cut.npz", **cut)
    with pytest.raises(JaxikError, match="'trace/size'"):
        jaxik.load(tmp_path / "cut.npz")


# --- the picture --------------------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[Any, int]] = {
    "all": (None, 5),
    "one": (1, 1),
    "some": ([0, 3], 2),
    "a mask": (np.array([False, True, True, False, False]), 2),
}


@pytest.mark.parametrize("name", CHOICES)
def test_elements_are_drawn_into_a_file(name: str, tmp_path: Path) -> None:
    elements, count = CHOICES[name]
    figure = jaxik.plot_trace(found(), tmp_path / "t.png", elements=elements)
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "t.png").stat().st_size > 10_000
    assert [axis.get_yscale() for axis in figure.axes] == ["log"] * 3
    assert f"{count} of 5 elements" in figure.axes[0].get_title(loc="left")
    assert len([line for line in figure.axes[2].lines if len(line.get_xdata()) > 1]) == count


def test_a_single_solution_two_levels_and_many_elements_are_drawn() -> None:
    one = jaxik.plot_trace(jax.tree.map(lambda x: x[1], found()))
    two = jaxik.plot_trace(two_levels())
    assert "one element" in one.axes[0].get_title(loc="left")
    said = [text.get_text() for text in two.axes[0].get_legend().get_texts()]
    assert "level 2 from here" in said
    many = jax.tree.map(lambda x: np.concatenate([x] * 20), found())
    figure = jaxik.plot_trace(many)
    assert "64 of 100 elements" in figure.axes[0].get_title(loc="left")
    said = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert {"STALLED (40)", "NONFINITE (20)", "CONVERGED (4)"} <= set(said)


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    for solution, path, elements, said in (
        (dataclasses.replace(found(), trace=None), None, None, r"SolveOptions\(record_trace=True\)"),
        (found(), tmp_path / "t.txt", None, r"t\.txt: ends in .*\.png.*, not \.txt"),
        (found(), tmp_path / "none" / "t.png", None, "there is no folder"),
        (found(), None, 7, r"an index into the batch \(5,\), not 7"),
        (found(), None, [], "there is no element to draw"),
    ):
        with pytest.raises(JaxikError, match=said):
            jaxik.plot_trace(solution, path, elements=elements)
    with pytest.raises(JaxikError, match="works on the host"):
        jax.jit(lambda s: jnp.sum(jaxik.plot_trace(s)))(found())  # type: ignore[arg-type]


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == "matplotlib"] + ["matplotlib", "matplotlib.figure"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(JaxikError, match=r"pip install 'jaxik\[plot\]'"):
        jaxik.plot_trace(found())
