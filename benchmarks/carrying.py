"""`plan_motion` with a constraint: Pandas carry a glass around a wall, upright, and the same without.

Ends are found by `search`, with the hand pointing down on both sides of the wall. C MuJoCo judges the motions, at every
step and half-way between, and the robot's forward kinematics by MuJoCo how far the glass leans.

Gate: 98 % of the motions are found, none colliding, none leaning by more than 1e-4 rad, none beyond a limit.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import least_distances
from benchmarks.planning import ACCELERATION, DEEP, DT, MARGIN, SPEED, model_of, world_of
from benchmarks.scenes import Scene
from benchmarks.timing import timed

PAIRS, STEPS, FOUND, LEANS, HELD = 64, 400, 0.98, 1e-4, 1.001
WALL = Scene(np.array([[0.5, 0.0, 0.35, 0.15, 0.02, 0.35]]), np.zeros((0, 7)))
BEHIND, BEFORE = ([0.4, 0.15, 0.1], [0.6, 0.4, 0.5]), ([0.4, -0.4, 0.1], [0.6, -0.15, 0.5])
DOWN = jaxlie.SO3(np.array([0.0, 1.0, 0.0, 0.0]))


def run() -> dict[str, Any]:
    """With the glass upright, and without."""
    robot = jaxik.load_robot("panda", geometry="model")
    apart = jaxik.ConfigurationLimit(), jaxik.CollisionLimit(world_of(WALL), margin=MARGIN)
    ends = [_ends(robot, apart, places, seed) for seed, places in enumerate((BEHIND, BEFORE))]
    tip = robot.frame("tcp")
    upright = jaxik.FrameTask(tip, DOWN, position_cost=None, orientation_cost=np.array([1.0, 1.0, 0.0]))
    results = {
        name: _carried(robot, apart, constraints, ends)
        for name, constraints in (("upright", {"upright": upright}), ("free", {}))
    }
    held = results["upright"]
    passed = held["found"] >= FOUND and held["leans_rad"] <= LEANS and held["peaks"] <= HELD
    return {**results, "passed": passed and not any(row["colliding"] for row in results.values())}


def _ends(robot: jaxik.Robot, limits: tuple[Any, ...], places: Any, seed: int) -> jax.Array:
    """Configurations (PAIRS, nq) with the hand pointing down in a region."""
    points = jnp.asarray(np.random.default_rng(seed).uniform(*places, (PAIRS, 3)), jnp.float32)
    hand = jaxik.FrameTask(robot.frame("tcp"), jaxlie.SE3.from_rotation_and_translation(DOWN, points))
    return jaxik.search(jaxik.Problem(robot, {"hand": hand}, limits), jax.random.key(seed)).check().q


def _carried(
    robot: jaxik.Robot, apart: tuple[Any, ...], constraints: dict[str, Any], ends: list[jax.Array]
) -> dict[str, Any]:
    limits = (*apart, jaxik.VelocityLimit(SPEED), jaxik.AccelerationLimit(ACCELERATION))
    problem = jaxik.Problem(robot, {"rest": jaxik.PostureTask(robot.q_home)}, limits, constraints)

    def planned(q0: jax.Array, q1: jax.Array) -> jaxik.Track:
        return jaxik.plan_motion(problem, q0, q1, jax.random.key(2), dt=DT, num_steps=STEPS)

    begin = time.perf_counter()
    motion, times = timed(planned, *ends, repeats=3)
    first_call_s = time.perf_counter() - begin - 4e-3 * times["run_ms"]
    found = np.all(np.asarray(motion.status) == jaxik.Status.CONVERGED, axis=0)
    paths = [np.concatenate([ends[0][i][None], np.asarray(motion.q)[:, i]]) for i in np.flatnonzero(found)]
    colliding, leans = _judged(robot, paths)
    moving = np.any(np.asarray(motion.velocity) != 0, axis=-1).sum(axis=0)
    return {
        "first_call_s": round(first_call_s, 1),
        "motions_per_s": round(PAIRS / (1e-3 * times["run_ms"]), 1),
        "found": round(float(found.mean()), 3),
        "colliding": colliding,
        "leans_rad": float(f"{leans:.1e}"),
        "median_duration_s": round(DT * float(np.median(moving[found])), 2),
        "peaks": round(float(jnp.maximum(motion.peak_speed, motion.peak_acceleration).max()), 4),
    }


def _judged(robot: jaxik.Robot, paths: list[np.ndarray]) -> tuple[int, float]:
    """How many of the paths (T, nq) collide, and by how much the hand leans on them [rad], by C MuJoCo."""
    model, pairs = model_of(robot, WALL)
    data, site, colliding, leans = mujoco.MjData(model), model.site("tcp").id, 0, 0.0
    for path in paths:
        way = np.concatenate([path, (path[:-1] + path[1:]) / 2])
        colliding += bool(least_distances(model, way, pairs).min() < -DEEP)
        for q in path:
            data.qpos[: robot.nq] = q
            mujoco.mj_kinematics(model, data)
            leans = max(leans, float(np.linalg.norm(data.site_xmat[site].reshape(3, 3)[:2, 2])))
    return colliding, leans
