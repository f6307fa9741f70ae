"""A motion as a table: a line a step, for spreadsheets and robot controllers."""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.status import Status
from jaxik.kinematics.topology import Joint, Topology


def write_csv(
    path: str | os.PathLike[str], topology: Topology, columns: np.ndarray, status: np.ndarray, element: Any
) -> None:
    """Write the motion of one element.

    Args:
      columns: time, q, velocity and acceleration (T, *batch, 1 + nq + 2 nv).
      status: (T, *batch).
      element: an index into the batch.
    """
    chosen = (slice(None), *(element if isinstance(element, tuple) else (element,)))
    batch = status.shape[1:]
    try:
        columns, status = columns[chosen], status[chosen]
    except (IndexError, TypeError) as error:
        raise JaxikError(f"element is an index into the batch {batch}, not {element!r}: {error}") from None
    if status.ndim != 1:
        raise JaxikError(f"a CSV holds one motion of the batch {batch}: say which, as in element=0 or element=(0, 1)")
    try:
        with Path(path).expanduser().open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time [s]", *_headings(topology), "status"])
            for numbers, ended in zip(columns, status, strict=True):
                # NumPy's own text has the digits of the precision: 0.02 in float32 is no 0.019999999552965164.
                writer.writerow([*map(str, numbers), Status(ended).name])
    except OSError as error:
        raise JaxikError(f"output {os.fspath(path)}: {error.strerror}") from None


def _headings(topology: Topology) -> list[str]:
    """Of each column of q, velocity and acceleration: joint, component where there are several, and unit."""
    coordinates, rates = [], []
    for joint in topology.joints:
        units = joint.type.q_units
        names = _components(joint, len(units))
        coordinates += [f"{n} [{u}]" if u != "1" else n for n, u in zip(names, units, strict=True)]
        of_rates = {1: units[:1], 3: ("rad",) * 3, 6: ("m",) * 3 + ("rad",) * 3}[joint.type.nv]
        rates += zip(_components(joint, joint.type.nv), of_rates, strict=True)
    kinds = {"velocity": "s", "acceleration": "s^2"}
    return coordinates + [f"{n} {kind} [{u}/{per}]" for kind, per in kinds.items() for n, u in rates]


def _components(joint: Joint, count: int) -> list[str]:
    return [joint.name] if count == 1 else [f"{joint.name}.{i}" for i in range(count)]
