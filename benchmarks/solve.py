"""`solve` from one start: success, steps per second inside a plain `jax.jit`, compile time.

The protocol: targets are the forward kinematics of uniform samples within the limits, the start is the middle of the
limits, at most 100 steps, default costs, float32. Success and errors are those of C MuJoCo in float64 at the returned
configurations, over all elements. A step is what `solution.iterations` counts: a trial point, accepted or rejected,
without the first evaluation and the polishing step. Linearisations count those as well. What idle lanes do is in
neither.

Gates: the share of targets within 1e-4 m and 1e-3 rad, no element that says CONVERGED and is not, none outside the
limits of the model.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxik
from benchmarks.judge import judged
from benchmarks.timing import measured
from jaxik.robot.loading.sources import read_source

BATCHES = (1, 256, 4096, 32768)
TARGETS = 4096
POSITION, ORIENTATION = 1e-4, 1e-3
# What float32 poses add to an error that is judged in float64.
ROUNDING = 2e-6
SUCCESS = {"panda": 0.84, "ur5e": 0.80}


def run() -> dict[str, Any]:
    """Measure, and judge."""
    robots = {name: _robot(name) for name in SUCCESS}
    return {"robots": robots, "passed": all(figures["passed"] for figures in robots.values())}


def _robot(name: str) -> dict[str, Any]:
    robot = jaxik.load_robot(name)
    tip = robot.frame("tcp")
    middle = 0.5 * (robot.limit_lower + robot.limit_upper)

    def solve(target: Any, q0: jax.Array) -> jaxik.Solution:
        return jaxik.solve(jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}), q0)

    speed, quality = {}, {}
    for batch in BATCHES:
        target = robot.frame_pose(robot.sample(jax.random.key(1), (batch,)), tip)
        solution, times = measured(solve, target, middle)
        steps = int(jnp.sum(solution.iterations))
        linearisations = steps + batch + int(jnp.sum(solution.converged))
        speed[batch] = {
            **times,
            "steps": steps,
            "steps_per_s": round(1e3 * steps / times["run_ms"]),
            "linearisations_per_s": round(1e3 * linearisations / times["run_ms"]),
            "targets_per_s": round(1e3 * batch / times["run_ms"]),
        }
        if batch == TARGETS:
            quality = _quality(name, solution, target)
    passed = quality["success"] >= SUCCESS[name] and not quality["wrongly_converged"] and not quality["outside_limits"]
    return {"speed_by_batch": speed, "quality": quality, "passed": bool(passed)}


def _quality(name: str, solution: jaxik.Solution, target: Any) -> dict[str, Any]:
    """Errors in C MuJoCo at the returned configurations."""
    verdict = judged(read_source(name).model, solution.q, {"tcp": target.wxyz_xyz})
    position, angle = verdict.position, verdict.angle
    good = (position <= POSITION) & (angle <= ORIENTATION)
    claimed = np.asarray(solution.converged)
    wrong = claimed & ((position > POSITION + ROUNDING) | (angle > ORIENTATION + ROUNDING))
    status = np.asarray(solution.status)
    return {
        "targets": len(status),
        "success": round(float(good.mean()), 4),
        "wrongly_converged": int(wrong.sum()),
        "outside_limits": int(verdict.outside.sum()),
        "statuses": {kind.name: int((status == kind).sum()) for kind in jaxik.Status if (status == kind).any()},
        "position_error_m": _percentiles(position),
        "orientation_error_rad": _percentiles(angle),
        "mean_steps": round(float(jnp.mean(solution.iterations)), 2),
    }


def _percentiles(errors: np.ndarray) -> dict[str, float]:
    return {f"p{p}": float(f"{np.percentile(errors, p):.3g}") for p in (50, 90, 99, 100)}
