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
    from jaxik.stepping import StepResult

SHARES = {"median": 0.5, "90 %": 0.9, "max": 1.0}


def describe(solution: "Solution") -> str:
    """One element by its joints; many by how they ended. Residuals are norms over all rows, of no cost as well."""
    name = solution.topology.name
    leaves = jax.tree.leaves(
        (solution.q, solution.status, solution.residuals, solution.iterations, solution.starts, solution.derivative)
    )
    if not _known(leaves):
        return f"Solution({name}, traced, batch {np.shape(solution.status)})"
    status = np.asarray(solution.status)
    if not status.ndim:
        return _of_one(solution, Status(int(status)))
    said = f"{name}, batch {status.shape}, {status.size} elements"
    if not status.size:
        return f"Solution({said})"
    steps, starts = np.asarray(solution.iterations), np.asarray(solution.starts)
    tried = f"starts {starts.mean():.1f} on average, {starts.max()} at most; " if starts.max() > 1 else ""
    residuals = "; ".join(
        f"{part} {', '.join(_number(x) for x in quantiles(norm, SHARES.values()))} {unit}".rstrip()
        for part, norm, unit in _norms(solution)
    )
    ended = _counted(status, Status)
    return (
        f"Solution({said}: {ended}; iterations {steps.mean():.1f} on average, {steps.max()} at most; "
        f"{tried}residuals ({', '.join(SHARES)}): {residuals or 'none'}{_differentiated(solution)})"
    )


def describe_step(result: "StepResult") -> str:
    """How steps ended, and what their derivatives are worth."""
    status = result.status
    if not _known([status, result.velocity, result.derivative]):
        return f"StepResult(traced, batch {np.shape(status)})"
    if not np.ndim(status):
        velocity = np.array2string(np.asarray(result.velocity), precision=4, separator=", ", threshold=32)
        return f"StepResult({Status(int(status)).name}; velocity {velocity}{_differentiated(result)})"
    ended = _counted(np.asarray(status), Status)
    return f"StepResult(batch {np.shape(status)}, {np.size(status)} elements: {ended}{_differentiated(result)})"


def _of_one(solution: "Solution", status: Status) -> str:
    residuals = ", ".join(f"{part} {_number(norm[0])} {unit}".rstrip() for part, norm, unit in _norms(solution))
    tried = f" from {int(solution.starts)} starts" if int(solution.starts) > 1 else ""
    return (
        f"Solution({solution.topology.name}: {status.name} after {int(solution.iterations)} iterations{tried}; "
        f"q {_by_joint(solution.topology, np.asarray(solution.q))}; "
        f"residuals: {residuals or 'none'}{_differentiated(solution)})"
    )


def _differentiated(solution: "Solution | StepResult") -> str:
    """How many derivatives are worth what, where the call was differentiated."""
    if solution.derivative is None or np.all(np.asarray(solution.derivative) == Derivative.UNASKED):
        return ""
    kinds = np.asarray(solution.derivative)
    if not kinds.ndim:
        return f"; derivative {Derivative(int(kinds)).name}"
    return "; derivatives: " + _counted(kinds, Derivative)


def _known(leaves: list[Any]) -> bool:
    """Whether these are numbers, and not what stands for some while a program is traced."""
    return all(isinstance(x, np.ndarray | np.generic | jax.Array) and not isinstance(x, Tracer) for x in leaves)


def _counted(values: np.ndarray, kinds: type[Status] | type[Derivative]) -> str:
    return ", ".join(f"{np.sum(values == kind)} {kind.name}" for kind in kinds if np.any(values == kind))


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
