"""Targets of Panda that nobody samples: stretched, singular, on the base axis, turned round, and out of reach.

All but the last can be reached, since each is the pose of a configuration within the limits. The last is farther from
the shoulder, where the first three axes meet, than the arm is long: by 1 mm, so that nothing can be closer than that.
"""

from typing import Any

import jax.numpy as jnp
import jaxlie
import mink
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import judged, poses
from benchmarks.searching import MAX_STARTS, counted, plain, program, starts, verified
from benchmarks.timing import compiled
from jaxik.robot.loading.sources import read_source

COUNT = 64  # of each kind
BEYOND = 1e-3  # [m]
SHOULDER = np.array([0.0, 0.0, 0.333])


def measured() -> dict[str, Any]:
    """How often each kind is reached, how it ended, and how far away."""
    robot, model = jaxik.load_robot("panda"), read_source("panda").model
    kinds = _targets(model, np.asarray(robot.q_home, np.float64))
    targets = {"tcp": jaxlie.SE3(jnp.asarray(np.concatenate(list(kinds.values())), jnp.float32))}
    search, _ = compiled(program(robot, ("tcp",)), targets, starts(MAX_STARTS))
    solution = search(targets, starts(MAX_STARTS))
    verdict = judged(model, solution.q, plain(targets))
    good, status, attempts = verified(verdict), np.asarray(solution.status), np.asarray(solution.num_starts)
    table, first = {}, 0
    for kind, wanted in kinds.items():
        own = slice(first, first + len(wanted))
        first = own.stop
        table[kind] = {
            "targets": len(wanted),
            "reached": round(float(good[own].mean()), 4),
            "statuses": counted(status[own]),
            "median_distance_m": float(f"{np.median(verdict.position[own]):.3g}"),
            "max_distance_m": float(f"{verdict.position[own].max():.3g}"),
            "max_angle_rad": float(f"{verdict.angle[own].max():.3g}"),
            "outside_limits": int(verdict.outside[own].sum()),
            "mean_starts": round(float(attempts[own].mean()), 2),
        }
    return table


def _targets(model: Any, home: np.ndarray) -> dict[str, np.ndarray]:
    """Poses (COUNT, 7) of each kind, wxyz_xyz."""
    random = np.random.default_rng(0)
    stretched = poses(model, _stretched(model, random), "tcp")
    beyond = stretched.copy()
    out = beyond[:, 4:] - SHOULDER
    beyond[:, 4:] += BEYOND * out / np.linalg.norm(out, axis=1, keepdims=True)
    return {
        "stretched": stretched,
        "singular": poses(model, _singular(model, random), "tcp"),
        "on the base axis": poses(model, _on_the_axis(model, random), "tcp"),
        "turned by 180 degrees": poses(model, _turned(model, home, random), "tcp"),
        "1 mm out of reach": beyond,
    }


def _stretched(model: Any, random: np.random.Generator) -> np.ndarray:
    """Configurations with the tool as far from the shoulder as joints 4 to 6 can bring it."""
    lower, upper = model.jnt_range.T
    q = np.zeros((1, 7))
    low, high = lower[3:6], upper[3:6]
    for _ in range(12):  # a grid that closes in on the best of its points
        grid = np.stack(np.meshgrid(*np.linspace(low, high, 9).T, indexing="ij"), -1).reshape(-1, 3)
        q = np.zeros((len(grid), 7))
        q[:, 3:6] = grid
        best = grid[np.linalg.norm(poses(model, q, "tcp")[:, 4:] - SHOULDER, axis=1).argmax()]
        half = 0.3 * (high - low)
        low, high = np.maximum(best - half, lower[3:6]), np.minimum(best + half, upper[3:6])
    q = random.uniform(lower, upper, (COUNT, 7))
    q[:, 3:6] = best
    return q


def _singular(model: Any, random: np.random.Generator) -> np.ndarray:
    """Configurations that lose two of the 7 axes: 1 and 3 in line, and the 6 that are left without full rank."""
    lower, upper = model.jnt_range.T
    data, jacobian, site = mujoco.MjData(model), np.zeros((6, 7)), model.site("tcp").id

    def volume(q: np.ndarray, joint3: float) -> float:
        data.qpos[:] = q
        data.qpos[2] = joint3
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
        return float(np.linalg.det(np.delete(jacobian, 2, axis=1)))

    found = []
    while len(found) < COUNT:
        q = random.uniform(lower, upper)
        q[1] = 0.0
        low, high = 0.0, 2.8
        if volume(q, low) * volume(q, high) > 0:
            continue
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if volume(q, low) * volume(q, middle) > 0 else (low, middle)
        q[2] = low
        found.append(q)
    return np.stack(found)


def _on_the_axis(model: Any, random: np.random.Generator) -> np.ndarray:
    """Configurations with the tool above or inside the base, on the axis of the first joint."""
    task = mink.FrameTask("tcp", "site", 1.0, 0.0, lm_damping=1e-2)
    found: list[np.ndarray] = []
    while len(found) < COUNT:
        height = np.array([0.0, 0.0, random.uniform(0.4, 1.2)])
        found += _reached(model, task, mink.SE3.from_translation(height), random)
    return np.stack(found)


def _turned(model: Any, home: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Configurations with the tool turned by 180 degrees from home, about any axis."""
    task = mink.FrameTask("tcp", "site", 0.0, 1.0, lm_damping=1e-2)
    start = mink.SO3(poses(model, home[None], "tcp")[0, :4])
    found: list[np.ndarray] = []
    while len(found) < COUNT:
        axis = random.normal(size=3)
        turn = mink.SO3.exp(np.pi * axis / np.linalg.norm(axis))
        found += _reached(model, task, mink.SE3.from_rotation(turn @ start), random)
    return np.stack(found)


def _reached(model: Any, task: mink.FrameTask, target: mink.SE3, random: np.random.Generator) -> list[np.ndarray]:
    """A configuration within the limits that meets the task, found by mink from a random one, or none."""
    lower, upper = model.jnt_range.T
    configuration = mink.Configuration(model, random.uniform(lower, upper))
    task.set_target(target)
    for _ in range(40):
        velocity = mink.solve_ik(configuration, [task], 1.0, "daqp", limits=[mink.ConfigurationLimit(model)])
        configuration.integrate_inplace(velocity, 1.0)
    met = np.linalg.norm(task.cost * task.compute_error(configuration)) < 1e-6
    return [np.clip(configuration.q, lower, upper)] if met else []
