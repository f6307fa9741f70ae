"""Traces of `solve` as a picture, drawn by matplotlib: an extra, `pip install 'jaxik[plot]'`."""

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.results.solution import Solution
from jaxik.results.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 64  # lines that an eye tells apart
# Of Okabe and Ito, which those who do not tell red from green tell apart.
COLOURS = {
    Status.CONVERGED: "#0072B2",
    Status.STALLED: "#D55E00",
    Status.TIMEOUT: "#CC79A7",
    Status.DIVERGED: "#E69F00",
    Status.INFEASIBLE: "#009E73",
    Status.COLLIDES: "#F0E442",
    Status.NONFINITE: "#000000",
}
MARKERS = "oD^vs*"  # of phases from 1 on
PANELS = {"cost": "cost", "size": "step [rad or m]", "damping": "damping"}


def plot_trace(solution: Solution, path: str | os.PathLike[str] | None = None, *, elements: Any = None) -> "Figure":
    """Draw cost, size of the steps and damping against the steps taken, a line an element.

    Colours say how elements ended, markers where one went on to Newton steps or to a lower level, whose cost is another
    and starts a new line. What is zero or not finite has no place on a logarithmic axis, and leaves a gap.

    Args:
      solution: of `solve` with `SolveOptions(record_trace=True)`.
      path: of a file to write or replace, its format as its ending: .png, .svg, .pdf; None: none.
      elements: which, an index into the batch axes as numpy has it: `5`, `~solution.converged`, `[3, 8]`; by default
        all, and of more than 64 those that did not converge first, and then those with the most steps.

    Returns:
      The matplotlib figure, which a notebook shows.

    Raises:
      JaxikError: without a trace, under `jit`, for elements that there are not, for a file that cannot be written, and
        where matplotlib is missing.
    """
    figure = new_figure()
    if path is not None:
        check_file(path)
    trace, status, every = _chosen(solution, elements)
    axes = figure.subplots(len(PANELS), sharex=True)
    phases = np.asarray(trace.phase)
    for axis, (name, label) in zip(axes, PANELS.items(), strict=True):
        values = np.asarray(getattr(trace, name), float)
        values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        style = {"linewidth": 1.2, "alpha": 0.9} if len(status) < 12 else {"linewidth": 0.6, "alpha": 0.6}
        for line, phase, kind in zip(values, phases, status, strict=True):
            _line(axis, line, phase, {"color": COLOURS[Status(kind)], "markersize": 3.5} | style)
        axis.set_yscale("log")
        axis.set_ylabel(label)
        axis.grid(color="0.9", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("steps taken")
    axes[-1].set_xlim(0, max(1, np.nonzero(phases >= 0)[1].max(initial=0)))
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    shown = f"{len(status)} of {every} elements" if every > 1 else "one element"
    axes[0].set_title(f"{solution.topology.name}: {shown}", loc="left", fontsize="medium")
    _legend(axes[0], status, phases)
    if path is not None:
        save_figure(figure, path)
    return figure


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> None:
    try:
        figure.savefig(Path(path).expanduser(), dpi=150)
    except OSError as error:
        raise JaxikError(f"plot {os.fspath(path)}: {error.strerror}") from None


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise a `JaxikError` unless a plot can be written there, before anyone waits for a solve."""
    file, formats = Path(path).expanduser(), new_figure().canvas.get_supported_filetypes()
    if file.suffix.removeprefix(".").lower() not in formats:
        raise JaxikError(f"plot {file}: ends in .{', .'.join(sorted(formats))}, not {file.suffix or 'in nothing'}")
    if not file.parent.is_dir():
        raise JaxikError(f"plot {file}: there is no folder {file.parent}")


def new_figure() -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise JaxikError("plots need matplotlib, which is not installed: pip install 'jaxik[plot]'") from None
    # Not through pyplot, which would keep the figure and want a display.
    return Figure(figsize=(8, 7), layout="constrained")


def _chosen(solution: Solution, elements: Any) -> tuple[Trace, np.ndarray, int]:
    """The traces (n, T) and statuses (n,) of what is drawn, and the number of all elements."""
    trace = solution.trace
    if trace is None:
        raise JaxikError("the solution has no trace: solve with options=SolveOptions(record_trace=True)")
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((trace, solution.status))):
        raise JaxikError("plot_trace works on the host: return the solution from jit first")
    status, iterations = np.asarray(solution.status), np.asarray(solution.iterations)
    if elements is None:
        order = np.lexsort((-iterations.ravel(), status.ravel() == Status.CONVERGED))
        elements = np.unravel_index(np.sort(order[:MOST]), status.shape) if status.ndim else ()
    try:
        chosen = status[elements]
        trace = jax.tree.map(lambda x: np.asarray(x)[elements].reshape(chosen.size, np.shape(x)[-1]), trace)
    except (IndexError, TypeError, ValueError) as error:
        raise JaxikError(f"elements is an index into the batch {status.shape}, not {elements!r}: {error}") from None
    if not chosen.size:
        raise JaxikError(f"there is no element to draw, of the batch {status.shape}")
    return trace, chosen.ravel(), status.size


def _line(axis: Any, line: np.ndarray, phase: np.ndarray, style: dict[str, Any]) -> None:
    """One element: a line for Gauss-Newton and Newton, one for each lower level, a marker where a phase starts."""
    steps = np.arange(len(line))
    changes = np.flatnonzero((phase[1:] > 0) & (phase[1:] != phase[:-1])) + 1
    ends = [0, *(i for i in changes if phase[i] > 1), len(line)]
    for start, end in itertools.pairwise(ends):
        alone = np.isfinite(line[start:end]).sum() == 1  # no line
        axis.plot(steps[start:end], line[start:end], marker="." if alone else "", **style)
    for i in changes:
        axis.plot(steps[i], line[i], MARKERS[(phase[i] - 1) % len(MARKERS)], **style)


def _legend(axis: Any, status: np.ndarray, phases: np.ndarray) -> None:
    for kind in Status:
        if np.any(status == kind):
            axis.plot([], [], color=COLOURS[kind], label=f"{kind.name} ({np.sum(status == kind)})")
    for phase in range(1, int(phases.max(initial=0)) + 1):
        name = "Newton from here" if phase == 1 else f"level {phase} from here"
        if np.any(phases == phase):
            axis.plot([], [], MARKERS[(phase - 1) % len(MARKERS)], color="0.4", markersize=4, label=name)
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize="small", frameon=False)
