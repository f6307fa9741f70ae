"""A million steps with a `CollisionLimit`: random targets among obstacles, at three step lengths.

Robots: an arm, a dual arm, a humanoid, each in the scene "table" of `collision_free`. MuJoCo looks at one
configuration of 20, and jaxik's own distances at all of them.

Gates: no pair that was apart overlaps by more than 1e-6 m, no step is INFEASIBLE, no configuration is NaN.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import least_distances
from benchmarks.scenes import scene
from benchmarks.timing import compiled, timed
from jaxik.robot.loading.catalog import find_by_name

# Frames that follow targets, the reach for the scene's size, and how high it stands [m].
ROBOTS = {
    "panda": (("tcp",), 0.85, 0.0),
    "dual_arm": (("left_tcp", "right_tcp"), 1.3, 0.6),
    "humanoid": (("left_hand", "right_hand", "left_foot", "right_foot"), 0.9, 0.0),
}
TIMES, BATCH, STEPS, HELD = (1e-3, 1e-2, 0.05), 1024, 100, 25
MARGIN, FAST, DAMPING, SEEN, DEEP = 0.005, 2.0, 1e-3, 20, 1e-6


def run(robots: Sequence[str] | None = None, steps: int = 1_000_000) -> dict[str, Any]:
    """Each robot, so many steps in all, a third of them at each step length."""
    jaxik.use_all_cores()
    results: dict[str, Any] = {name: _soak(name, steps) for name in robots or ROBOTS}
    rows = [row for times in results.values() for row in times.values()]
    passed = all(row["least_mm"] > -1e3 * DEEP and not row["infeasible"] and not row["nan"] for row in rows)
    return {**results, "passed": bool(passed)}


def _soak(name: str, steps: int) -> dict[str, Any]:
    frames, reach, height = ROBOTS[name]
    robot, found = jaxik.load_robot(name, geometry="model"), scene("table", reach, height)
    world, spec = found.world(), mujoco.MjSpec.from_file(str(find_by_name(name)))
    found.add_to(spec)
    model = spec.compile()
    limit = jaxik.CollisionLimit(world, margin=MARGIN)
    pairs = {frozenset(p) for p in limit.table(robot).names if _has(model, p)}
    limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(FAST), limit
    tips = {frame: robot.frame(frame) for frame in frames}

    def walk(q: jax.Array, targets: dict[str, Any], dt: jax.Array) -> Any:
        def one(q: jax.Array, i: jax.Array) -> Any:
            now = {f: jaxik.FrameTask(tips[f], jax.tree.map(lambda x: x[i // HELD], targets[f])) for f in tips}
            result = jaxik.step(jaxik.Problem(robot, now, limits=limits), q, dt, damping=DAMPING)
            return result.q, (result.q, result.status, result.clearance, result.fraction)

        return jax.lax.scan(one, q, jnp.arange(STEPS))

    q, program = _free(robot, world), None
    rows: dict[str, Any] = {}
    for dt in TIMES:
        q_now, each = q, []
        for block in range(-(-steps // (len(TIMES) * BATCH * STEPS))):
            goals = robot.sample(jax.random.key(block), (STEPS // HELD) * BATCH).reshape(-1, BATCH, robot.nq)
            targets = {frame: robot.frame_pose(goals, tip) for frame, tip in tips.items()}
            arguments = q_now, targets, jnp.asarray(dt, q.dtype)
            if program is None:
                program, _ = compiled(walk, *arguments)
            (q_now, out), times = timed(program, *arguments, repeats=1)
            each.append((*map(np.asarray, out), times["run_ms"]))
        path, status, clearance, fraction, ran = (np.stack(x) for x in zip(*each, strict=True))
        looked = least_distances(model, path.reshape(-1, robot.nq)[::SEEN], pairs)
        rows[f"{dt:g} s"] = {
            "steps": int(status.size),
            "steps_per_s": round(status.size / ran.sum() * 1e3),
            "least_mm": float(1e3 * min(looked.min(), clearance.min())),
            "infeasible": int((status == jaxik.Status.INFEASIBLE).sum()),
            "without_solution": int((status != jaxik.Status.CONVERGED).sum()),
            "nan": int(np.isnan(path).any(axis=-1).sum()),
            "shortened": float((fraction < 1).mean()),
        }
        print(name, dt, rows[f"{dt:g} s"], flush=True)
    return rows


def _free(robot: jaxik.Robot, world: jaxik.World) -> jax.Array:
    """Configurations (BATCH, nq) that nothing is near to, some of them several times."""
    q = robot.sample(jax.random.key(0), 8 * BATCH)
    for joint in robot.topology.free_joints:
        at = np.array(robot.topology.joints[joint].q_indices)
        q = q.at[:, at].set(robot.q_home[at])
    free = np.asarray(q)[np.asarray(robot.clearance(q, world)) > MARGIN + 1e-3]
    return jnp.asarray(np.resize(free, (BATCH, robot.nq)))


def _has(model: mujoco.MjModel, pair: tuple[str, str]) -> bool:
    return all(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, name) >= 0 for name in pair)
