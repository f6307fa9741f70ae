"""A solution in words: a short paragraph that a person can read."""

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer

from jaxik.robot.topology import Topology
from jaxik.status import Derivative, Status
from jaxik.tasks.parts import parts

if TYPE_CHECKING:
    from jaxik.solution import Solution

SHARES = {"median": 0.5, "90 %": 0.9, "max": 1.0}


def describe(solution: "Solution") -> str:
    """One element by its joints; many by how they ended. Residuals are norms over all rows, of no cost as well."""
    name = solution.topology.name
    leaves = jax.tree.leaves(
        (solution.q, solution.status, solution.residuals, solution.iterations, solution.starts, solution.derivative)
    )
    if not all(isinstance(x, np.ndarray | np.generic | jax.Array) and not isinstance(x, Tracer) for x in leaves):
        return f"Solution({name}, traced, batch {np.shape(solution.status)})"
    status = np.asarray(solution.status)
    if not status.ndim:
        return _of_one(solution, Status(int(status)))
    ended = ", ".join(f"{np.sum(status == kind)} {kind.name}" for kind in Status if np.any(status == kind))
    said = f"{name}, batch {status.shape}, {status.size} elements"
    if not status.size:
        return f"Solution({said})"
    steps, starts = np.asarray(solution.iterations), np.asarray(solution.starts)
    tried = f"starts {starts.mean():.1f} on average, {starts.max()} at most; " if starts.max() > 1 else ""
    residuals = "; ".join(
        f"{part} {', '.join(_number(x) for x in quantiles(norm, SHARES.values()))} {unit}".rstrip()
        for part, norm, unit in _norms(solution)
    )
    return (
        f"Solution({said}: {ended}; iterations {steps.mean():.1f} on average, {steps.max()} at most; "
        f"{tried}residuals ({', '.join(SHARES)}): {residuals or 'none'}{_differentiated(solution)})"
    )


def _of_one(solution: "Solution", status: Status) -> str:
    residuals = ", ".join(f"{part} {_number(norm[0])} {unit}".rstrip() for part, norm, unit in _norms(solution))
    tried = f" from {int(solution.starts)} starts" if int(solution.starts) > 1 else ""
    return (
        f"Solution({solution.topology.name}: {status.name} after {int(solution.iterations)} iterations{tried}; "
        f"q {_by_joint(solution.topology, np.asarray(solution.q))}; "
        f"residuals: {residuals or 'none'}{_differentiated(solution)})"
    )


def _differentiated(solution: "Solution") -> str:
    """How many derivatives are worth what, where the call was differentiated."""
    if solution.derivative is None or np.all(np.asarray(solution.derivative) == Derivative.UNASKED):
        return ""
    kinds = np.asarray(solution.derivative)
    if not kinds.ndim:
        return f"; derivative {Derivative(int(kinds)).name}"
    return "; derivatives: " + ", ".join(f"{np.sum(kinds == k)} {k.name}" for k in Derivative if np.any(kinds == k))


def _norms(solution: "Solution") -> list[tuple[str, np.ndarray, str]]:
    """For each part of the residuals its name, its Euclidean norm in every element, and its unit."""
    units = dict(solution.residual_units)
    count = np.asarray(solution.status).size
    rows = {part: np.asarray(x, float).reshape(count, -1) for part, x in parts(solution.residuals).items()}
    return [(part, np.linalg.norm(x, axis=1), units.get(part, "").removeprefix("1")) for part, x in rows.items()]


def quantiles(norms: np.ndarray, shares: Any) -> list[float]:
    """For each share, the number below or at which that share of the elements is; NaN is above all."""
    ordered = np.sort(norms)
    return [float(ordered[max(math.ceil(share * len(ordered)), 1) - 1]) for share in shares]


def _by_joint(topology: Topology, q: np.ndarray) -> str:
    """Coordinates by joint name; their unit stands in front where all have one, else behind each."""
    units = {unit for _, unit in topology.q_columns}
    each = []
    for joint in topology.joints:
        values = [f"{x:.4g}" for x in q[list(joint.q_indices)]]
        unit = {"rad": " rad", "m": " m"}.get(joint.type.q_units[0], "") if len(units) > 1 and len(values) == 1 else ""
        each.append(f"{joint.name} {values[0] if len(values) == 1 else '(' + ' '.join(values) + ')'}{unit}")
    return (f"[{units.pop()}] " if len(units) == 1 and "1" not in units else "") + ", ".join(each)


def _number(x: float) -> str:
    return f"{x:.3g}" if math.isfinite(x) else "not finite"
