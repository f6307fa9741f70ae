"""Whole-body problems: a humanoid of 41 degrees of freedom with seven tasks, from perturbed postures.

Both feet and hands hold or reach a pose, the head stays upright, the centre of mass is lowered, and a posture is kept:
once below the others (priority 1), once beside them with a small cost, where every solve ends at stationarity.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np

import jaxik
from benchmarks.timing import measured
from jaxik.robot.loading.sources import read_source

BATCH = 1024
PERTURBATION = 0.1  # standard deviation of the start's tangent [rad or m]
REACH = {"left_foot": (0, 0, 0), "right_foot": (0, 0, 0), "left_hand": (0.08, 0, 0.15), "right_hand": (0.05, 0, -0.1)}
LOWERED = (0.02, 0.03, -0.06)
SOLVED = 0.99  # share of elements that C MuJoCo has to find at their targets
TOLERANCE = 1e-4  # [m]


def run() -> dict[str, Any]:
    """Compile and run times, steps per second, and success over all elements, judged by C MuJoCo."""
    below, beside = _measured(priority=1, cost=1.0), _measured(priority=0, cost=1e-2)
    return {"posture below": below, "posture beside": beside, "passed": below["reached"] >= SOLVED}


def _measured(priority: int, cost: float) -> dict[str, Any]:
    robot = jaxik.load_robot("humanoid")
    home = robot.q_home
    tasks: dict[str, Any] = {
        name: jaxik.FrameTask(robot.frame(name), _moved(robot.frame_pose(home, name), offset))
        for name, offset in REACH.items()
    }
    tasks["head"] = jaxik.FrameTask.from_configuration(robot, home, "head", position_cost=None)
    tasks["com"] = jaxik.ComTask(robot.center_of_mass(home) + jnp.asarray(LOWERED))
    tasks["rest"] = jaxik.PostureTask(home, cost=cost, priority=priority)
    keys = jax.random.split(jax.random.key(0), BATCH)
    shift = jax.vmap(lambda key: PERTURBATION * jax.random.normal(key, (robot.nv,)))(keys)
    solution, times = measured(lambda q0: jaxik.solve(jaxik.Problem(robot, tasks), q0), robot.integrate(home, shift))
    steps = int(jnp.sum(solution.iterations))
    statuses = np.bincount(solution.status, minlength=len(jaxik.Status))
    return {
        **times,
        "steps_per_s": round(1e3 * steps / times["run_ms"]),
        "mean_steps": round(steps / BATCH, 2),
        "statuses": {kind.name: int(statuses[kind]) for kind in jaxik.Status if statuses[kind]},
        "reached": float(np.mean(_worst(tasks, np.asarray(solution.q, float)) < TOLERANCE)),
    }


def _moved(pose: jaxlie.SE3, offset: Any) -> jaxlie.SE3:
    return jaxlie.SE3(pose.wxyz_xyz.at[4:].add(jnp.asarray(offset)))


def _worst(tasks: dict[str, Any], q: np.ndarray) -> np.ndarray:
    """Largest distance (n,) [m] of feet, hands and centre of mass from their targets, by C MuJoCo."""
    model = read_source("humanoid").model
    data, worst = mujoco.MjData(model), []
    for row in q:
        data.qpos[:] = row
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        gaps = [data.site(name).xpos - np.asarray(tasks[name].target.translation()) for name in REACH]
        gaps.append(data.subtree_com[0] - np.asarray(tasks["com"].target))
        worst.append(max(np.linalg.norm(gap) for gap in gaps))
    return np.asarray(worst)
