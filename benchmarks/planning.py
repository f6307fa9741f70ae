"""`plan_motion` in five scenes, beside OMPL's RRT-Connect with MuJoCo's collision detection.

Ends are free configurations whose hand is near an obstacle, drawn at random and paired. C MuJoCo judges the motions, at
every step and half-way between. OMPL gets the first pairs of each scene, 10 s for each, its default range and its path
simplification; a state is valid where MuJoCo has no contact nearer than the margin, in Python, as who plans with a
MuJoCo model has it. Motions between checks of OMPL are 0.02 rad long.

Gate: of the motions of four scenes 98 % are found, of those in the cage 60 %, none of them colliding.
"""

import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import least_distances
from benchmarks.scenes import NAMES, Scene, scene
from benchmarks.timing import timed
from jaxik.robot.loading.catalog import find_by_name

ARMS = {"panda": 0.855}  # how far it reaches [m]
PAIRS, PEER_PAIRS, ALONE, NEAR, MARGIN, DEEP = 512, 8, 20, 0.1, 0.005, 1e-5
SPEED, ACCELERATION, DT, STEPS = 2.0, 8.0, 0.02, 800
FOUND = {name: 0.6 if name == "cage" else 0.98 for name in NAMES}
TIME_LIMIT, RESOLUTION = 10.0, 0.02


def run() -> dict[str, Any]:
    """Each arm in each scene."""
    jaxik.use_all_cores()
    results = {name: _arm(name, reach) for name, reach in ARMS.items()}
    each = [(place, row) for rows in results.values() for place, row in rows.items() if place in NAMES]
    passed = all(row["found"] >= FOUND[place] and not row["colliding"] for place, row in each)
    return {**results, "passed": passed}


def _arm(name: str, reach: float) -> dict[str, Any]:
    robot = jaxik.load_robot(name, geometry="model")
    results: dict[str, Any] = {}

    def planned(world: jaxik.World, q0: jax.Array, q1: jax.Array) -> jaxik.Track:
        limits = (
            jaxik.ConfigurationLimit(),
            jaxik.CollisionLimit(world, margin=MARGIN),
            jaxik.VelocityLimit(SPEED),
            jaxik.AccelerationLimit(ACCELERATION),
        )
        problem = jaxik.Problem(robot, {"rest": jaxik.PostureTask(robot.q_home)}, limits)
        return jaxik.plan_motion(problem, q0, q1, jax.random.key(0), dt=DT, num_steps=STEPS)

    for place in NAMES:
        found = scene(place, reach, 0.0)
        world = world_of(found)
        ends = ends_of(robot, world, 2 * PAIRS).reshape(2, PAIRS, robot.nq)
        begin = time.perf_counter()
        motion, times = timed(planned, world, *ends, repeats=3)
        first_call_s = round(time.perf_counter() - begin - 4e-3 * times["run_ms"], 1)
        results[place] = _judged(robot, found, ends, motion) | {
            "first_call_s": first_call_s,
            "pairs_of_shapes": len(jaxik.CollisionLimit(world).table(robot).names),
            "motions_per_s": round(PAIRS / (1e-3 * times["run_ms"]), 1),
            "motions_per_processor_s": round(PAIRS / (1e-3 * times["processor_ms"]), 1),
            "one_alone_ms": _alone(planned, world, ends),
            "ompl": _ompl(robot, found, ends[:, :PEER_PAIRS]),
        }
        print(name, place, results[place], flush=True)
    return results


def _alone(planned: Any, world: jaxik.World, ends: np.ndarray) -> dict[str, float]:
    """Milliseconds of one motion in a call of its own: in the median, and on the average."""
    run, times = jax.jit(planned), []
    for q0, q1 in zip(*ends[:, : ALONE + 1], strict=True):
        begin = time.perf_counter()
        jax.block_until_ready(run(world, q0, q1))
        times.append(1e3 * (time.perf_counter() - begin))
    return {"median": round(statistics.median(times[1:]), 1), "mean": round(statistics.mean(times[1:]), 1)}


def world_of(found: Scene) -> jaxik.World:
    """The obstacles that there are, and no others to fill up with: each pair costs as much as the next."""
    capsules = found.capsules
    rods = jaxik.Capsules(capsules[:, :3], capsules[:, 3:6], capsules[:, 6]) if len(capsules) else None
    boxes = jaxik.Boxes(found.boxes[:, :3], found.boxes[:, 3:]) if len(found.boxes) else None
    return jaxik.World(boxes=boxes, capsules=rods)


def ends_of(robot: jaxik.Robot, world: jaxik.World, count: int) -> np.ndarray:
    """Free configurations (count, nq) whose hand is near an obstacle."""
    bodies = robot.topology.body_names
    assert robot.geometry is not None
    hands = [name for name in bodies if name.endswith("hand")] or [bodies[max(robot.geometry.bodies)]]
    kept: list[np.ndarray] = []
    for i in range(1000):
        q = np.asarray(robot.sample(jax.random.key(i), (16_384,)))
        near = np.asarray(robot.clearance(jnp.asarray(q), world, pairs=[(hand, "world") for hand in hands])) < NEAR
        close = np.resize(q[near], (4096, robot.nq))
        kept.append(close[np.asarray(robot.clearance(jnp.asarray(close), world)) > MARGIN + 1e-3])
        if sum(map(len, kept)) >= count:
            break
    return np.concatenate(kept)[:count]


def model_of(robot: jaxik.Robot, found: Scene) -> tuple[mujoco.MjModel, set[frozenset[str]]]:
    """Robot and scene as one model, and the pairs that are kept apart, by name."""
    spec = mujoco.MjSpec.from_file(str(find_by_name(robot.name)))
    found.add_to(spec)
    model = spec.compile()
    names = jaxik.CollisionLimit(world_of(found)).table(robot).names
    return model, {frozenset(pair) for pair in names}


def _judged(robot: jaxik.Robot, found: Scene, ends: np.ndarray, motion: jaxik.Track) -> dict[str, Any]:
    model, pairs = model_of(robot, found)
    arrived = np.all(np.asarray(motion.status) == jaxik.Status.CONVERGED, axis=0)
    moves = np.any(np.asarray(motion.velocity) != 0, axis=-1)
    colliding = 0
    for i in np.flatnonzero(arrived):
        q = np.concatenate([ends[0, i][None], np.asarray(motion.q)[: moves[:, i].sum() + 1, i]])
        way = np.concatenate([q, (q[:-1] + q[1:]) / 2])
        colliding += bool(least_distances(model, way, pairs).min() < -DEEP)
    return {
        "found": round(float(arrived.mean()), 3),
        "colliding": colliding,
        "median_duration_s": round(DT * float(np.median(moves.sum(axis=0)[arrived])), 2),
        "peak_speed": round(float(motion.peak_speed.max()), 6),
        "peak_acceleration": round(float(motion.peak_acceleration.max()), 6),
        "median_length_rad": _length(
            [np.concatenate([ends[0, i][None], np.asarray(motion.q)[:, i]]) for i in np.flatnonzero(arrived)]
        ),
    }


def _length(paths: list[np.ndarray]) -> float | None:
    """The median length of paths (T, nq) [rad]."""
    lengths = [float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()) for path in paths]
    return round(statistics.median(lengths), 2) if lengths else None


def _ompl(robot: jaxik.Robot, found: Scene, ends: np.ndarray) -> dict[str, Any]:
    """OMPL on the same pairs, one after the other."""
    try:
        from ompl import base, geometric, util
    except ImportError:
        return {"absent": "ompl is not installed"}
    util.setLogLevel(util.LOG_NONE)
    model, pairs = model_of(robot, found)
    model.geom_margin[:] = MARGIN
    data, n = mujoco.MjData(model), robot.nq
    apart = np.zeros((model.ngeom, model.ngeom), bool)
    for first, second in ((model.geom(name).id for name in pair) for pair in pairs):
        apart[first, second] = apart[second, first] = True

    def valid(state: Any) -> bool:
        data.qpos[:] = [state[i] for i in range(n)]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        near = data.contact.dist < MARGIN
        return not apart[data.contact.geom[near, 0], data.contact.geom[near, 1]].any()

    space, bounds = base.RealVectorStateSpace(n), base.RealVectorBounds(n)
    for i, (low, high) in enumerate(zip(robot.limit_lower, robot.limit_upper, strict=True)):
        bounds.setLow(i, float(low))
        bounds.setHigh(i, float(high))
    space.setBounds(bounds)
    times, paths = [], []
    for q0, q1 in zip(*ends, strict=True):
        setup = geometric.SimpleSetup(space)
        setup.setStateValidityChecker(valid)
        setup.getSpaceInformation().setStateValidityCheckingResolution(RESOLUTION / space.getMaximumExtent())
        first, last = space.allocState(), space.allocState()
        for i in range(n):
            first[i], last[i] = float(q0[i]), float(q1[i])
        setup.setStartAndGoalStates(first, last)
        setup.setPlanner(geometric.RRTConnect(setup.getSpaceInformation()))
        begin = time.perf_counter()
        solved = setup.solve(TIME_LIMIT)
        if solved and setup.haveExactSolutionPath():
            setup.simplifySolution()
            path = setup.getSolutionPath()
            paths.append(np.array([[path.getState(k)[i] for i in range(n)] for k in range(path.getStateCount())]))
        times.append(time.perf_counter() - begin)
    return {
        "found": round(len(paths) / len(times), 3),
        "motions_per_s": round(len(paths) / sum(times), 2),
        "median_length_rad": _length(paths),
    }
