"""What the step rules of `solve` reach, and in how many steps, on six robots and mechanisms.

200 random targets each, float64, at most 300 steps, tolerances 1e-4 m and 1e-3 rad: arms from the middle of their
joint ranges to poses of random configurations; mechanisms from home to poses nearby, closures within their tolerance.
Success is judged by the status. Numbers of the rules are the defaults; of optax Adam with steps of 0.03, and L-BFGS.

Gate: no rule reaches more than the default one.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxik
from benchmarks.steps import PLATFORM, hexapod_problem, poses

COUNT, STEPS = 200, 300
RULES = {name: name for name in ("lm", "dls", "sdls", "svd", "transpose")}
RULES |= {"adam": optax.adam(0.03), "lbfgs": optax.lbfgs()}
# How far targets are from home, either way in each axis [m].
FIVE_BAR, DELTA = (0.06, 0.06, 0.0), (0.1, 0.1, 0.08)


def run() -> dict[str, Any]:
    """Measure, and judge."""
    with jax.enable_x64(True):
        found = {name: {rule: _measured(*make(), RULES[rule]) for rule in RULES} for name, make in ROBOTS.items()}
    best = all(found[name]["lm"]["converged"] >= by["converged"] for name in found for by in found[name].values())
    return {**found, "passed": best}


def _measured(problem: jaxik.Problem, q0: jax.Array, rule: Any) -> dict[str, Any]:
    began = time.perf_counter()
    solution = jax.device_get(jaxik.solve(problem, q0, options=jaxik.SolveOptions(max_steps=STEPS, step_rule=rule)))
    reached = np.asarray(solution.converged)
    return {
        "converged": float(reached.mean()),
        "median steps": float(np.median(solution.iterations[reached])) if reached.any() else None,
        "statuses": {status.name: int((solution.status == status).sum()) for status in jaxik.Status},
        "seconds with compilation": round(time.perf_counter() - began, 1),
    }


def _arm(name: str) -> Callable[[], tuple[jaxik.Problem, jax.Array]]:
    def make() -> tuple[jaxik.Problem, jax.Array]:
        robot = jaxik.load_robot(name).astype(jnp.float64)
        tip = robot.frame("tcp")
        target = robot.frame_pose(robot.sample(jax.random.key(0), (COUNT,)), tip)
        return jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}), 0.5 * (
            robot.limit_lower + robot.limit_upper
        )

    return make


def _positions(name: str, frame: str, most: tuple[float, ...]) -> Callable[[], tuple[jaxik.Problem, jax.Array]]:
    def make() -> tuple[jaxik.Problem, jax.Array]:
        robot = jaxik.load_robot(name).astype(jnp.float64)
        tip = robot.frame(frame)
        away = jnp.array(most) * jax.random.uniform(jax.random.key(0), (COUNT, 3), minval=-1, maxval=1)
        target = robot.frame_pose(robot.q_home, tip).translation() + away
        return jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target, orientation_cost=None)}), robot.q_home

    return make


def _stewart() -> tuple[jaxik.Problem, jax.Array]:
    robot = jaxik.load_robot("stewart").astype(jnp.float64)
    tool = robot.frame("tcp")
    target = poses(robot.frame_pose(robot.q_home, tool), PLATFORM, COUNT)
    return jaxik.Problem(robot, {"tool": jaxik.FrameTask(tool, target)}), robot.q_home


def _hexapod() -> tuple[jaxik.Problem, jax.Array]:
    problem = hexapod_problem()
    return problem, problem.robot.q_home


ROBOTS = {
    "panda": _arm("panda"),
    "ur5e": _arm("ur5e"),
    "five_bar": _positions("five_bar", "tcp", FIVE_BAR),
    "delta": _positions("delta", "tcp", DELTA),
    "stewart": _stewart,
    "hexapod, feet pinned": _hexapod,
}
