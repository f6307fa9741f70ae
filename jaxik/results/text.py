"""Words and numbers of which results are described."""

import math
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from jaxik.core.status import DerivativeStatus, Status
from jaxik.core.trees import parts
from jaxik.kinematics.topology import Topology

SHARES = {"median": 0.5, "90 %": 0.9, "max": 1.0}


def differentiated(derivative: Any) -> str:
    """How many derivatives are worth what, where the call was differentiated."""
    if derivative is None or np.all(np.asarray(derivative) == DerivativeStatus.NOT_COMPUTED):
        return ""
    kinds = np.asarray(derivative)
    if not kinds.ndim:
        return f"; derivative {DerivativeStatus(int(kinds)).name}"
    return "; derivatives: " + counted(kinds, DerivativeStatus)


def known(leaves: list[Any]) -> bool:
    """Whether these are numbers, and not what stands for some while a program is traced."""
    return all(isinstance(x, np.ndarray | np.generic | jax.Array) and not isinstance(x, Tracer) for x in leaves)


def counted(values: np.ndarray, kinds: type[Status] | type[DerivativeStatus]) -> str:
    return ", ".join(f"{np.sum(values == kind)} {kind.name}" for kind in kinds if np.any(values == kind))


def quantiles(norms: np.ndarray, shares: Any) -> list[float]:
    """For each share, the number below or at which that share of the elements is; NaN is above all."""
    ordered = np.sort(norms)
    return [float(ordered[max(math.ceil(share * len(ordered)), 1) - 1]) for share in shares]


def residual_norms(residuals: Any, units: tuple[tuple[str, str], ...], count: int) -> list[tuple[str, np.ndarray, str]]:
    """For each part of the residuals of so many elements its name, its Euclidean norm in every one, and its unit."""
    known_units = dict(units)
    rows = {part: np.asarray(x, float).reshape(count, -1) for part, x in parts(residuals).items()}
    return [(part, np.linalg.norm(x, axis=1), known_units.get(part, "").removeprefix("1")) for part, x in rows.items()]


def yielded(values: Any, units: tuple[tuple[str, str], ...], shape: tuple[int, ...], other: str = "") -> str:
    """What yields, by its norm; of many elements how often, and the largest. `other`: unit of what has none."""
    known_units, said = dict(units), []
    for part, norm, _ in residual_norms(values, units, math.prod(shape)):
        unit, yields = known_units.get(part, other).removeprefix("1"), norm[norm != 0]
        if yields.size:
            most = f"{part} {number(float(np.max(yields)))} {unit}".rstrip()
            said.append(f"{most} at most, in {yields.size}" if shape else most)
    return f"; yielded {', '.join(said)}" if said else ""


def by_joint(topology: Topology, q: np.ndarray) -> str:
    """Coordinates by joint name; their unit stands in front where all have one, else after each."""
    units = {unit for _, unit in topology.q_columns}
    each = []
    for joint in topology.joints:
        values = [f"{x:.4g}" for x in q[list(joint.q_indices)]]
        unit = {"rad": " rad", "m": " m"}.get(joint.type.q_units[0], "") if len(units) > 1 and len(values) == 1 else ""
        each.append(f"{joint.name} {values[0] if len(values) == 1 else '(' + ' '.join(values) + ')'}{unit}")
    return (f"[{units.pop()}] " if len(units) == 1 and "1" not in units else "") + ", ".join(each)


def number(x: float) -> str:
    return f"{x:.3g}" if math.isfinite(x) else "not finite"
