"""`track` with `mode="whole"` towards goals: Pandas go to random poses, and a receding horizon follows a circle.

64 go within 3 s from random configurations to poses of others, free on the way, and end at rest, within limits of
speed, acceleration and jerk. What smoothing minimises is compared with that of quintics between the same ends, which
know no limits. The horizon of 20 steps of 50 ms begins each time with what was planned before. C MuJoCo judges both.

Gate: 98 % end within 0.1 mm and 1 mrad, all of these within limits; the horizon is within 0.1 mm at each step.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np

import jaxik
from benchmarks.timing import timed
from jaxik.robot.loading.sources import read_source

PAIRS, STEPS, DT, REACHED, LIMITS = 64, 60, 0.05, 0.98, 1.0001
HORIZON, LOOPS = 20, 60


def run() -> dict[str, Any]:
    robot = jaxik.load_robot("panda")
    results = {"goals": _goals(robot), "receding horizon": _receding(robot)}
    return results | {"passed": all(row["passed"] for row in results.values())}


def _goals(robot: jaxik.Robot) -> dict[str, Any]:
    tip = robot.frame("tcp")
    start, other = robot.sample(jax.random.key(0), (2, PAIRS))
    pose = robot.frame_pose(other, tip)
    when = jnp.zeros((STEPS, 1, 1)).at[-3:].set(1.0)
    limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(2.0), jaxik.AccelerationLimit(10.0), jaxik.JerkLimit(200.0)
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, jaxlie.SE3.identity())}, limits)
    options = jaxik.WholePathOptions(candidates=32, end_at_rest=True)

    def planned(start: jax.Array, pose: jax.Array) -> jaxik.Track:
        target = jaxlie.SE3(jnp.broadcast_to(pose, (STEPS, PAIRS, 7)))
        asked = {"tip": {"target": target, "position_cost": when, "orientation_cost": when}}
        return jaxik.track(problem, start, DT, asked, mode="whole", options=options)

    begin = time.perf_counter()
    motion, times = timed(planned, start, pose.wxyz_xyz, repeats=3)
    first_call_s = time.perf_counter() - begin - 4e-3 * times["run_ms"]
    good = np.all(np.asarray(motion.status) == jaxik.Status.CONVERGED, axis=0)
    near = _errors(robot, motion.q[-1][good], pose.wxyz_xyz[good])
    shares = [float(x[:, good].max()) for x in (motion.speed_share, motion.acceleration_share, motion.jerk_share)]
    reached = float(good.mean())
    return {
        "first_call_s": round(first_call_s, 1),
        "motions_per_s": round(PAIRS / (1e-3 * times["run_ms"]), 1),
        "reached": round(reached, 3),
        "largest_error": [float(f"{x:.1e}") for x in near],
        "largest_shares": [round(x, 4) for x in shares],
        "cost_by_quintics": round(float(np.median(_cost(start, motion.q) / _of_quintics(start, motion.q))), 3),
        "passed": bool(reached >= REACHED and near[0] < 1e-4 and near[1] < 1e-3 and max(shares) < LIMITS),
    }


def _cost(start: Any, q: Any) -> np.ndarray:
    """What smoothing minimises (B,), of motions (T, B, nq) from rest."""
    q = np.concatenate([np.repeat(np.asarray(start)[None], 3, axis=0), np.asarray(q)])
    return sum(64.0**k * (np.diff(q, k + 1, axis=0)[2 - k :] ** 2).sum(axis=(0, 2)) for k in range(3))


def _of_quintics(start: Any, q: Any) -> np.ndarray:
    share = np.arange(1, STEPS + 1)[:, None, None] / STEPS
    blend = share**3 * (10 - 15 * share + 6 * share**2)
    return _cost(start, start + blend * np.asarray(q[-1] - start))


def _receding(robot: jaxik.Robot) -> dict[str, Any]:
    tip = robot.frame("tcp")
    home = robot.frame_pose(robot.q_home, tip)
    limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(2.0), jaxik.AccelerationLimit(10.0)
    problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, home)}, limits)

    def circle(t: np.ndarray) -> jaxlie.SE3:
        around = 0.15 * np.stack([np.cos(1.5 * t) - 1, np.sin(1.5 * t), 0 * t], axis=-1)
        return jaxlie.SE3(
            np.concatenate([np.tile(home.wxyz_xyz[:4], (len(t), 1)), home.translation() + around], axis=-1)
        )

    # Set out gently: on the circle only from the end of the first horizon on.
    q, velocity, plan = robot.q_home, jnp.zeros(robot.nv), jnp.tile(robot.q_home, (HORIZON, 1))
    commanded, asked, times = [], [], []
    for k in range(LOOPS):
        ahead = k + 1 + np.arange(HORIZON)
        targets, when = circle(DT * ahead), (ahead >= HORIZON).astype(np.float32)
        given = {"tip": {"target": targets, "position_cost": when, "orientation_cost": when}}
        begin = time.perf_counter()
        motion = jaxik.track(problem, q, DT, given, velocity=velocity, mode="whole", initial=plan)
        plan = jax.block_until_ready(jnp.concatenate([motion.q[1:], motion.q[-1:]]))
        times.append(time.perf_counter() - begin)
        q, velocity = motion.q[0], motion.velocity[0]
        if when[0]:
            commanded.append(q)
            asked.append(targets.wxyz_xyz[0])
    errors = _errors(robot, commanded, np.stack(asked))
    return {
        "first_call_s": round(times[0], 1),
        "median_plan_ms": round(1e3 * float(np.median(times[1:])), 2),
        "largest_error": [float(f"{x:.1e}") for x in errors],
        "passed": bool(errors[0] < 1e-4),
    }


def _errors(robot: jaxik.Robot, q: Any, poses: Any) -> tuple[float, float]:
    """The largest distance [m] and angle [rad] of C MuJoCo's site from poses (n, 7)."""
    model = read_source("panda").model
    data, site, errors = mujoco.MjData(model), model.site("tcp").id, []
    for configuration, pose in zip(np.asarray(q), np.asarray(poses, np.float64), strict=True):
        data.qpos[: robot.nq] = configuration
        mujoco.mj_kinematics(model, data)
        turned, apart, away = np.zeros(4), np.zeros(4), np.zeros(3)
        mujoco.mju_mat2Quat(turned, data.site_xmat[site])
        mujoco.mju_negQuat(apart, pose[:4])
        mujoco.mju_mulQuat(apart, turned, apart)
        mujoco.mju_quat2Vel(away, apart, 1.0)
        errors.append((np.linalg.norm(data.site_xpos[site] - pose[4:]), np.linalg.norm(away)))
    return tuple(np.max(errors, axis=0))
