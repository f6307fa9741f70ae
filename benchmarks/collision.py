"""Collisions: `step` beside mink and pink with the same obstacles, pairs and limits, and `search` with them and blind.

Panda with its own shapes among 20 boxes, its free starts and random targets. Both step for 50 steps of 0.01 s: rate,
the least distance that MuJoCo finds on the way, and programs without a solution, at which a robot stops. mink looks at
the pairs that jaxik looks at, from 0.1 m on, pink's barrier at the nearest eight of them, one robot at a time on one
core, as they do; ours in a batch on all cores.
`search`: poses of free configurations, blind and with a `CollisionLimit`.

Gates: no step of ours penetrates or is without a solution, at least 10 times mink's steps a second; of the searches
99.9 % are CONVERGED, and MuJoCo finds none of these colliding.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mink
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import least_distances
from benchmarks.scenes import arm_among_boxes
from benchmarks.timing import measured
from jaxik.robot.loading.catalog import find_by_name

DT, FAST, DAMPING, STEPS = 0.01, 2.0, 1e-3, 50
BATCH, PEER_ROBOTS, TARGETS = 1024, 20, 1024
MARGIN, GAIN, DETECTED, ROWS = 0.005, 0.9, 0.1, 8
TIMES_MINK, SOLVED = 10.0, 0.999

_Walked = tuple[list[np.ndarray], int]  # configurations, and programs without a solution


def run() -> dict[str, Any]:
    """Steps of jaxik and mink, and searches."""
    jaxik.use_all_cores()
    robot, world, model = arm_among_boxes()
    samples = robot.sample(jax.random.key(1), 8 * BATCH)
    free = samples[np.asarray(robot.clearance(samples, world)) > MARGIN + 1e-3]
    assert len(free) >= 2 * BATCH
    results = {
        "pairs": len(robot.distances(free[0], world).pairs),
        "step": _steps(robot, world, model, free[:BATCH]),
        "search": _searches(robot, world, model, free[BATCH : BATCH + TARGETS]),
    }
    ours, theirs, found = results["step"]["jaxik"], results["step"]["mink"], results["search"]["apart"]
    passed = ours["least_mm"] > -1e-3 and not ours["without_solution"] and found["colliding"] == 0
    rate = ours["steps_per_s"] >= TIMES_MINK * theirs["steps_per_s"] and found["converged"] >= SOLVED
    return {**results, "passed": bool(passed and rate)}


def _steps(robot: jaxik.Robot, world: jaxik.World, model: mujoco.MjModel, q: jax.Array) -> dict[str, Any]:
    tip = robot.frame("tcp")
    targets = robot.frame_pose(robot.sample(jax.random.key(2), BATCH), tip)
    limit = jaxik.CollisionLimit(world, margin=MARGIN, gain=GAIN)
    limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(FAST), limit
    names = limit.table(robot).names
    pairs = {frozenset(pair) for pair in names}

    def walk(q: jax.Array, targets: Any) -> Any:
        def one(q: jax.Array, _: None) -> Any:
            problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, targets)}, limits=limits)
            result = jaxik.step(problem, q, DT, damping=DAMPING)
            return result.q, (result.q, result.status, result.fraction)

        return jax.lax.scan(one, q, length=STEPS)[1]

    (path, status, fraction), times = measured(walk, q, targets)
    ours = {
        **times,
        "steps_per_s": round(BATCH * STEPS / times["run_ms"] * 1e3),
        "least_mm": float(1e3 * least_distances(model, np.asarray(path).reshape(-1, robot.nq), pairs).min()),
        "without_solution": int(np.sum(np.asarray(status) != jaxik.Status.CONVERGED)),
        "shortened": float(np.mean(np.asarray(fraction) < 1)),
    }
    few = np.asarray(q[:PEER_ROBOTS], float), np.asarray(targets.wxyz_xyz[:PEER_ROBOTS], float)
    peers = {"mink": lambda: _mink(model, robot, names, *few), "pink": lambda: _pink(model, names, *few)}
    return {"jaxik": ours, **{peer: _judged(walk, model, pairs) for peer, walk in peers.items()}}


def _judged(walk: Callable[[], _Walked], model: mujoco.MjModel, pairs: set[frozenset[str]]) -> dict[str, Any]:
    begin = time.perf_counter()
    path, lost = walk()
    seconds = time.perf_counter() - begin
    return {
        "steps_per_s": round(len(path) / seconds),
        "least_mm": float(1e3 * least_distances(model, np.array(path), pairs).min()),
        "without_solution": lost,
    }


def _mink(model: mujoco.MjModel, robot: jaxik.Robot, names: Any, q: np.ndarray, targets: np.ndarray) -> _Walked:
    configuration, task = mink.Configuration(model), mink.FrameTask("tcp", "site", 1.0, 1.0)
    limits = [
        mink.ConfigurationLimit(model),
        mink.VelocityLimit(model, dict.fromkeys(robot.joint_names, FAST)),
        mink.CollisionAvoidanceLimit(model, [([a], [b]) for a, b in names], GAIN, MARGIN, DETECTED),
    ]
    path, lost = [], 0
    for start, target in zip(q, targets, strict=True):
        configuration.update(start)
        task.set_target(mink.SE3(target))
        for _ in range(STEPS):
            try:
                velocity = mink.solve_ik(configuration, [task], DT, "daqp", damping=DAMPING, limits=limits)
            except mink.NoSolutionFound:
                lost += 1
                break
            configuration.integrate_inplace(velocity, DT)
            path.append(configuration.q.copy())
    return path, lost


def _pink(model: mujoco.MjModel, names: Any, q: np.ndarray, targets: np.ndarray) -> _Walked:
    """A barrier of the nearest eight pairs, the obstacles among the arm's own shapes; its gain is a rate [1/s]."""
    import coal
    import pink
    import pinocchio

    source = str(find_by_name("panda"))
    arm = pinocchio.buildModelFromMJCF(source)
    arm.velocityLimit = np.full(arm.nv, FAST)
    shapes = pinocchio.buildGeomFromMJCF(arm, source, pinocchio.GeometryType.COLLISION)
    for geom in (model.geom(i) for i in range(model.ngeom)):
        if geom.name.startswith("boxes/"):
            placed = pinocchio.SE3(np.eye(3), geom.pos)
            shapes.addGeometryObject(pinocchio.GeometryObject(geom.name, 0, placed, coal.Box(*2 * geom.size)))
    for pair in names:
        shapes.addCollisionPair(pinocchio.CollisionPair(*map(shapes.getGeometryId, pair)))
    data, shapes_data = arm.createData(), shapes.createData()
    limits = pink.limits.ConfigurationLimit(arm, config_limit_gain=0.95), pink.limits.VelocityLimit(arm)
    barrier = pink.barriers.SelfCollisionBarrier(ROWS, GAIN / DT, safe_displacement_gain=0.0, d_min=MARGIN)
    task = pink.tasks.FrameTask("tcp", 1.0, 1.0)
    path, lost = [], 0
    for start, target in zip(q, targets, strict=True):
        task.set_target(pinocchio.XYZQUATToSE3(np.concatenate([target[4:], target[1:4], target[:1]])))
        now = pink.Configuration(arm, data, start, collision_model=shapes, collision_data=shapes_data)
        for _ in range(STEPS):
            try:
                velocity = pink.solve_ik(
                    now, [task], DT, "daqp", damping=DAMPING, limits=limits, barriers=[barrier], safety_break=False
                )
            except pink.exceptions.NoSolutionFound:
                lost += 1
                break
            now.integrate_inplace(velocity, DT)
            path.append(now.q.copy())
    return path, lost


def _searches(robot: jaxik.Robot, world: jaxik.World, model: mujoco.MjModel, q: jax.Array) -> dict[str, Any]:
    """Both with the same targets."""
    tip = robot.frame("tcp")
    targets = robot.frame_pose(q, tip)
    limit = jaxik.CollisionLimit(world, margin=MARGIN)
    pairs = {frozenset(pair) for pair in limit.table(robot).names}
    results = {}
    for name, limits in (("blind", None), ("apart", (jaxik.ConfigurationLimit(), limit))):

        def search(targets: Any, limits: Any = limits) -> jaxik.Solution:
            problem = jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, targets)}, limits=limits)
            return jaxik.search(problem, jax.random.key(3))

        found, times = measured(search, targets)
        converged = np.asarray(found.converged)
        deepest = least_distances(model, np.asarray(found.q)[converged], pairs)
        results[name] = {
            **times,
            "targets_per_s": round(TARGETS / times["run_ms"] * 1e3),
            "converged": float(converged.mean()),
            "colliding": float(np.mean(deepest < -1e-5)),
            "steps": float(jnp.mean(found.iterations)),
            "starts": float(jnp.mean(found.num_starts)),
        }
    return results
