"""`track` with `mode="whole"` makes plans of `plan_motion` smooth, in the five scenes where these are measured.

Each plan is sampled at as many waypoints over its own duration, and begins a motion from its first configuration to its
last that keeps the limits that the plan has, at rest in the end. C MuJoCo judges the motions at every waypoint and
at every eighth of the way between. What is minimised, and jerk, are compared with those of the plans.

Gate: 80 % are CONVERGED, none of these colliding at a waypoint or between.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxik
from benchmarks.judge import least_distances
from benchmarks.planning import ACCELERATION, DEEP, MARGIN, SPEED, ends_of, model_of, world_of
from benchmarks.scenes import NAMES, scene
from benchmarks.timing import timed

REACH, PAIRS, STEPS, DT, WAYPOINTS, SMOOTH = 0.855, 64, 800, 0.02, 96, 0.8
# Of a plan, whose time is next to the least.
LONGER = 1.1


def run() -> dict[str, Any]:
    jaxik.use_all_cores()
    robot = jaxik.load_robot("panda", geometry="model")
    results = {}
    for name in NAMES:
        results[name] = _scene(robot, name)
        print(name, results[name], flush=True)
    apart = all(not (row["colliding"] or row["colliding_between"]) for row in results.values())
    passed = apart and all(row["converged"] >= SMOOTH for row in results.values())
    return results | {"passed": passed}


def _problem(robot: jaxik.Robot, world: jaxik.World) -> jaxik.Problem:
    limits = (
        jaxik.ConfigurationLimit(),
        jaxik.CollisionLimit(world, margin=MARGIN),
        jaxik.VelocityLimit(SPEED),
        jaxik.AccelerationLimit(ACCELERATION),
    )
    return jaxik.Problem(robot, {"goal": jaxik.PostureTask(robot.q_home, tolerance=1e-4)}, limits)


def _scene(robot: jaxik.Robot, name: str) -> dict[str, Any]:
    found = scene(name, REACH, 0.0)
    problem = _problem(robot, world_of(found))
    start, goal = ends_of(robot, world_of(found), 2 * PAIRS).reshape(2, PAIRS, robot.nq)
    plan = jaxik.plan_motion(problem, start, goal, jax.random.key(0), dt=DT, num_steps=STEPS)
    arrives = np.flatnonzero(np.all(np.asarray(plan.status) == jaxik.Status.CONVERGED, axis=0))
    lasts = np.any(np.asarray(plan.velocity) != 0, axis=-1).sum(axis=0)
    start, goal, lasts = start[arrives], goal[arrives], lasts[arrives]
    path = np.concatenate([start[None], np.asarray(plan.q)[:, arrives]])
    begin = _sampled(path, lasts)
    when = (jnp.arange(WAYPOINTS) >= WAYPOINTS - 1).astype(jnp.float32)[:, None, None]
    options = jaxik.WholePathOptions(end_at_rest=True)

    def smoothed(start: jax.Array, goal: jax.Array, dt: jax.Array, begin: jax.Array) -> jaxik.Track:
        asked = {"goal": {"q": jnp.broadcast_to(goal, begin.shape), "cost": when}}
        return jaxik.track(problem, start, dt, asked, mode="whole", initial=begin, options=options)

    dt = jnp.asarray(LONGER * DT * lasts / WAYPOINTS, jnp.float32)
    clock = time.perf_counter()
    motion, times = timed(smoothed, start, goal, dt, begin, repeats=1)
    first_call_s = time.perf_counter() - clock - 2e-3 * times["run_ms"]
    good = np.all(np.asarray(motion.status) == jaxik.Status.CONVERGED, axis=0)
    q = np.concatenate([start[None], np.asarray(motion.q)])[:, good]
    model, pairs = model_of(robot, found)
    least = np.array([least_distances(model, each, pairs).min() for each in np.moveaxis(q, 1, 0)])
    between = [least_distances(model, _between(x), pairs).min() for x in np.moveaxis(q, 1, 0)]
    before = np.concatenate([start[None], begin])[:, good]
    return {
        "plans": len(arrives),
        "converged": round(float(good.mean()), 3),
        "colliding": int((least < -DEEP).sum()),
        "colliding_between": int((np.array(between) < -DEEP).sum()),
        "deepest_between_mm": round(max(0.0, *(-1e3 * np.array(between))), 2),
        "movement": round(float(np.median(_square(q, 1) / _square(before, 1))), 3),
        "squared_jerk": round(float(np.median(_square(q, 3) / _square(before, 3))), 4),
        "peak_speed": round(float(motion.speed_share[:, good].max()), 4),
        "peak_acceleration": round(float(motion.acceleration_share[:, good].max()), 4),
        "motions_per_s": round(len(arrives) / (1e-3 * times["run_ms"]), 1),
        "first_call_s": round(first_call_s, 1),
    }


def _sampled(path: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """Of paths (T, B, nq) that last so many steps (B,) waypoints at equal times (WAYPOINTS, B, nq)."""
    share = np.arange(1, WAYPOINTS + 1)[:, None] / WAYPOINTS * lasts
    at = np.minimum(share.astype(int), lasts - 1)
    part, row = (share - at)[..., None], np.arange(path.shape[1])
    return ((1 - part) * path[at, row] + part * path[at + 1, row]).astype(np.float32)


def _between(q: np.ndarray) -> np.ndarray:
    """Configurations on the ways of a motion (T, nq), at every eighth of them."""
    share = np.arange(1, 8)[:, None, None] / 8
    return ((1 - share) * q[:-1] + share * q[1:]).reshape(-1, q.shape[-1])


def _square(q: np.ndarray, order: int) -> np.ndarray:
    return (np.diff(q, order, axis=0) ** 2).sum(axis=(0, 2))
