"""Forward kinematics and derivatives of a 30-joint chain, robot as an argument: compile and run times as JSON.

The gates are those of the project: under 10 s to compile, and on two cores 20 ms for 4096 poses in float32 and 200 ms
with their forward-mode derivative. Exits with 1 where one is missed, or where the poses are wrong.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxik.robot.build import load_robot

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_trees import deep_chain

JOINTS, BATCH, REPEATS = 30, 4096, 9
LIMITS_MS = {"pose": 20.0, "pose_and_tangent": 200.0}
COMPILE_LIMIT_S = 10.0


def measured(function: Callable[..., Any], *args: Any) -> tuple[Any, dict[str, float]]:
    """The compiled function's result, and its compile time and median run time."""
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*args).compile()
    compile_s = time.perf_counter() - start
    runs = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        out = jax.block_until_ready(compiled(*args))
        runs.append(1e3 * (time.perf_counter() - start))
    return out, {"compile_s": round(compile_s, 3), "run_ms": round(statistics.median(runs), 3)}


def main() -> int:
    xml = deep_chain(JOINTS)
    robot = load_robot(xml)
    tip = robot.frame("tip")
    q = jax.random.uniform(jax.random.key(0), (BATCH, JOINTS), jnp.float32, -2.9, 2.9)

    def pose(robot: Any, q: jax.Array) -> jax.Array:
        return robot.frame_pose(q, tip).wxyz_xyz

    functions = {
        "pose": pose,
        "pose_and_tangent": lambda robot, q: jax.jvp(lambda q: pose(robot, q), (q,), (jnp.ones_like(q),)),
        "frame_jacobian": lambda robot, q: robot.frame_jacobian(q, tip),
        "all_bodies": lambda robot, q: robot.forward(q).wxyz_xyz,
        "gradient": lambda robot, q: jax.grad(lambda q: jnp.sum(pose(robot, q)))(q),
        "jacfwd": lambda robot, q: jax.vmap(jax.jacfwd(lambda q: pose(robot, q)))(q),
    }
    results = {name: measured(function, robot, q) for name, function in functions.items()}

    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    error = 0.0
    for i in range(0, BATCH, 256):
        data.qpos[:] = q[i]
        mujoco.mj_kinematics(model, data)
        error = max(error, float(np.abs(results["pose"][0][i, 4:] - data.site("tip").xpos).max()))
    times = {name: figures for name, (_, figures) in results.items()}
    good = (
        error < 1e-6 * 0.1 * (JOINTS + 1)
        and all(figures["compile_s"] < COMPILE_LIMIT_S for figures in times.values())
        and all(times[name]["run_ms"] < limit for name, limit in LIMITS_MS.items())
    )
    device = jax.devices()[0].device_kind
    report = {"device": device, "jax": jax.__version__, "joints": JOINTS, "batch": BATCH, "position_error_m": error}
    print(json.dumps({**report, "times": times, "passed": good}, indent=2))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
