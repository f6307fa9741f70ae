"""What the benchmarks of `search` ask of it, and how what it returns is judged."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxik
from benchmarks.judge import Verdict
from benchmarks.solve import ORIENTATION, POSITION, ROUNDING

FINE = 1e-5  # [m] and [rad]
MAX_STARTS = int(jaxik.SearchOptions().max_starts)


def program(robot: jaxik.Robot, frames: tuple[str, ...], orientation: bool = True) -> Callable[..., Any]:
    """The search for frames at their targets {frame: SE3}; `max_starts` is an argument so that it can be varied."""
    handles = {name: robot.frame(name) for name in frames}
    cost = 1.0 if orientation else None

    def search(targets: dict[str, Any], max_starts: Any) -> jaxik.Solution:
        tasks = {name: jaxik.FrameTask(handles[name], targets[name], orientation_cost=cost) for name in frames}
        options = jaxik.SearchOptions(max_starts=max_starts)
        return jaxik.search(jaxik.Problem(robot, tasks), jax.random.key(1), options=options)

    return search


def targets_of(robot: jaxik.Robot, frames: tuple[str, ...], q: jax.Array) -> dict[str, Any]:
    return {name: robot.frame_pose(q, robot.frame(name)) for name in frames}


def plain(targets: dict[str, Any]) -> dict[str, np.ndarray]:
    """Targets as arrays (n, 7) in float64, wxyz_xyz."""
    return {name: np.asarray(target.wxyz_xyz, np.float64) for name, target in targets.items()}


def starts(count: int) -> jax.Array:
    return jnp.asarray(count, jnp.int32)


def verified(verdict: Verdict) -> np.ndarray:
    """(n,) of bool: at the target and inside the limits, by C MuJoCo."""
    return verdict.within(POSITION, ORIENTATION)


def quality(solution: jaxik.Solution, verdict: Verdict) -> dict[str, Any]:
    """Success and effort over all elements, and how those ended that C MuJoCo does not find at their targets."""
    good, status = verified(verdict), np.asarray(solution.status)
    margin = POSITION + ROUNDING, ORIENTATION + ROUNDING
    claimed = status == jaxik.Status.CONVERGED
    iterations, attempts = np.asarray(solution.iterations), np.asarray(solution.num_starts)
    return {
        "targets": len(status),
        "success": round(float(good.mean()), 5),
        "success_fine": round(float(verdict.within(FINE, FINE).mean()), 5),
        "outside_limits": int(verdict.outside.sum()),
        "wrongly_converged": int((claimed & ~verdict.within(*margin)).sum()),
        "not_reached": counted(status[~good]),
        "mean_steps": round(float(iterations.mean()), 2),
        "max_steps": int(iterations.max()),
        "mean_starts": round(float(attempts.mean()), 3),
        "max_starts": int(attempts.max()),
    }


def counted(statuses: np.ndarray) -> dict[str, int]:
    return {kind.name: int((statuses == kind).sum()) for kind in jaxik.Status if (statuses == kind).any()}


def rates(solution: jaxik.Solution, verdict: Verdict, times: dict[str, float]) -> dict[str, int]:
    """Verified targets and steps per second, and targets per second of processor time."""
    reached = int(verified(verdict).sum())
    return {
        "targets_per_s": round(1e3 * reached / times["run_ms"]),
        "targets_per_processor_s": round(1e3 * reached / times["processor_ms"]),
        "steps_per_s": round(1e3 * int(np.asarray(solution.iterations).sum()) / times["run_ms"]),
    }
