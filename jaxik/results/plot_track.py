"""A motion as a picture, drawn by matplotlib: an extra, `pip install 'jaxik[plot]'`."""

import os
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError
from jaxik.core.trees import parts
from jaxik.results.plot import check_file, new_figure, save_figure
from jaxik.results.track import Track
from jaxik.robot.robot import Robot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of Okabe and Ito, which those who do not tell red from green tell apart; then dashed, then dotted.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
# Lines that a legend names.
NAMED = 14


def plot_track(
    track: Track, robot: Robot, path: str | os.PathLike[str] | None = None, *, element: Any = ()
) -> "Figure":
    """Draw joints within their limits, speeds, how near speed, acceleration and jerk are to their limits, and errors.

    Args:
      track: of `jaxik.track`.
      robot: that moved, without batch axes.
      path: of a file to write or replace, its format as its ending: .png, .svg, .pdf; None: none.
      element: of a batch, the index of the element: `3`, or `(3, 0)`.

    Returns:
      The matplotlib figure, which a notebook shows.

    Raises:
      JaxikError: under `jit`, for another robot, an element that there is not, a file that cannot be written, and where
        matplotlib is missing.
    """
    figure = new_figure()
    if path is not None:
        check_file(path)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(track)):
        raise JaxikError("plot_track works on the host: return the track from jit first")
    if not track.status.shape[0]:
        raise JaxikError("the track has no steps: there is nothing to plot")
    if robot.topology != track.topology:
        raise JaxikError(f"the robot is {robot.name}, the track is of {track.topology.name}")
    chosen = (slice(None), *(element if isinstance(element, tuple) else (element,)))
    batch = track.status.shape[1:]
    try:
        of_one = jax.tree.map(lambda x: np.asarray(x, float)[chosen], _over_time(track))
    except IndexError as error:
        raise JaxikError(f"element is an index into the batch {batch}, not {element!r}: {error}") from None
    if of_one["speed"].ndim != 1:
        raise JaxikError(f"a plot shows one motion of the batch {batch}: say which, as in element=0")
    time = np.asarray(track.time)
    time = time if time.ndim == 1 else time[chosen]
    labels = (
        "joints, 0 to 1 of range",
        "velocity [1/s]",
        "share of limit",
        *(("error",) if of_one["residuals"] else ()),
    )
    axes = figure.subplots(len(labels), sharex=True)
    _joints(axes[0], time, of_one["q"], robot)
    _lines(axes[1], time, dict(zip(_rate_names(robot), of_one["velocity"].T, strict=True)))
    _lines(axes[2], time, {name: of_one[name] for name in ("speed", "acceleration", "jerk")})
    axes[2].axhline(1, color="0.6", linewidth=0.8)
    units = dict(track.residual_units)
    norms = {
        f"{part} [{units.get(part, '')}]".replace(" []", ""): np.linalg.norm(rows.reshape(len(time), -1), axis=1)
        for part, rows in of_one["residuals"].items()
    }
    if norms:  # a motion that was planned follows nothing
        _lines(axes[3], time, {name: np.where(norm > 0, norm, np.nan) for name, norm in norms.items()})
        axes[3].set_yscale("log")
    for axis, label in zip(axes, labels, strict=True):
        axis.set_ylabel(label)
        axis.grid(color="0.9", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("time [s]")
    axes[0].set_title(track.topology.name, loc="left", fontsize="medium")
    if path is not None:
        save_figure(figure, path)
    return figure


def _over_time(track: Track) -> dict[str, Any]:
    return {
        "q": track.q,
        "velocity": track.velocity,
        "speed": track.speed_share,
        "acceleration": track.acceleration_share,
        "jerk": track.jerk_share,
        "residuals": parts(track.residuals),
    }


def _joints(axis: Any, time: np.ndarray, q: np.ndarray, robot: Robot) -> None:
    """Hinges and slides with limits, each as its share of the way from the lower to the upper one."""
    lower, upper = np.asarray(robot.limit_lower, float), np.asarray(robot.limit_upper, float)
    lines = {}
    for j in robot.topology.scalar_joints:
        if np.isfinite(upper[j] - lower[j]) and upper[j] > lower[j]:
            joint = robot.topology.joints[j]
            lines[joint.name] = (q[:, joint.q_index] - lower[j]) / (upper[j] - lower[j])
    _lines(axis, time, lines)
    axis.axhspan(-0.05, 0, color="0.9", linewidth=0)
    axis.axhspan(1, 1.05, color="0.9", linewidth=0)
    axis.set_ylim(-0.05, 1.05)


def _rate_names(robot: Robot) -> list[str]:
    return [
        joint.name if joint.type.nv == 1 else f"{joint.name}.{i}"
        for joint in robot.topology.joints
        for i in range(joint.type.nv)
    ]


def _lines(axis: Any, time: np.ndarray, lines: dict[str, np.ndarray]) -> None:
    for i, (name, values) in enumerate(lines.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}
        axis.plot(time, values, linewidth=1.2, label=name, **style)
    if 0 < len(lines) <= NAMED:
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", frameon=False)
