"""Forward kinematics and derivatives of a 30-joint chain, robot as a jit argument.

Gates: positions agree with C MuJoCo; each form compiles in under 10 s; 4096 poses in float32 take under 20 ms, with
their forward-mode derivative under 200 ms. `jacfwd`, all 30 directions at once, is shown without a gate: it is bound by
memory, and `frame_jacobian` is the way to get it.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from benchmarks.timing import measured
from jaxik.robot.loading.load import load_robot

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_trees import deep_chain

JOINTS, BATCH = 30, 4096
LIMITS_MS = {"pose": 20.0, "pose_and_tangent": 200.0}
COMPILE_LIMIT_S = 10.0


def run() -> dict[str, Any]:
    """Measure, and judge."""
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
    passed = (
        error < 1e-6 * 0.1 * (JOINTS + 1)
        and all(figures["compile_s"] < COMPILE_LIMIT_S for figures in times.values())
        and all(times[name]["run_ms"] < limit for name, limit in LIMITS_MS.items())
    )
    return {"joints": JOINTS, "batch": BATCH, "position_error_m": error, "times": times, "passed": passed}
