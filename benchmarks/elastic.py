"""What a step costs more where constraints and limits are `Elastic`: Pandas beside the same with the rows hard.

The tip as a constraint, held by its row penalties and out of what the speed limits allow in a step; and the speed
limits themselves, which hold or yield to the tip as a task. Interleaved in one process, in the processor's time, as
other work on the machine moves that least.

Gates: at most 1.1 times the hard one where they hold, 1.5 times where they yield. Last, a constraint took 1.16 and 1.29
times, a limit 1.43, 1.57 towards the targets of the hard one, where 87 % yield, and 2.2 towards ones out of reach,
where all do: 0.3 us of a step that takes 0.7 where its limit is hard. What is left is in benchmarks/README.md.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

import jaxik

BATCH, REPEATS, DT, SPEED = 4096, 25, 0.01, 2.0
HOLDS, YIELDS = 1.1, 1.5
# Standard deviations of the way to the targets [rad]: within what the speed limits allow, and beyond.
NEAR, FAR = 0.005, 0.05
AWAY = (0.6, 0.0, 0.3)  # [m], of targets that a tip cannot reach


def run() -> dict[str, Any]:
    """Processor's milliseconds of each case, and ratios to the hard one."""
    robot = jaxik.load_robot("panda")
    tip = robot.frame("tcp")
    shifts = jnp.clip(jax.random.normal(jax.random.key(0), (2, BATCH, robot.nv)), -2, 2)
    q = robot.integrate(robot.q_home, 0.2 * shifts[0])
    near, far = (robot.frame_pose(robot.integrate(q, way * shifts[1]), tip) for way in (NEAR, FAR))
    away = jaxlie.SE3.from_rotation_and_translation(near.rotation(), near.translation() + jnp.asarray(AWAY))
    rest = {"rest": jaxik.PostureTask(robot.q_home, cost=0.1)}
    joints, speed = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(SPEED)

    def constrained(target: jaxlie.SE3, penalty: Any) -> jaxik.Problem:
        task = jaxik.FrameTask(tip, target)
        task = task if penalty is None else jaxik.Elastic(task, penalty=penalty)
        return jaxik.Problem(robot, rest, (joints, speed), {"tip": task})

    def limited(target: jaxlie.SE3, penalty: Any) -> jaxik.Problem:
        limit = speed if penalty is None else jaxik.Elastic(speed, penalty=penalty)
        return jaxik.Problem(robot, rest | {"tip": jaxik.FrameTask(tip, target)}, (joints, limit))

    speeds = {"hard": (far, None), "holds": (far, 1.0), "yields": (far, 0.01), "all yield": (away, 0.01)}
    results = {
        "constraint": _compared(constrained, q, {"hard": (near, None), "holds": (near, 10.0), "yields": (far, 10.0)}),
        "speed": _compared(limited, q, speeds),
    }
    ratios = [(name, case["times_hard"]) for cases in results.values() for name, case in cases.items()]
    passed = all(ratio <= (YIELDS if "yield" in name else HOLDS) for name, ratio in ratios)
    return {**results, "passed": passed}


def _compared(problem: Callable[..., jaxik.Problem], q: jax.Array, cases: dict[str, Any]) -> dict[str, Any]:
    def stepped(q: jax.Array, target: jaxlie.SE3, penalty: Any) -> jaxik.StepResult:
        return jaxik.step(problem(target, penalty), q, DT)

    run, results, times = jax.jit(stepped), {}, {name: [] for name in cases}
    for name, given in cases.items():
        result = jax.block_until_ready(run(q, *given))
        missed = [np.any(np.asarray(x).reshape(BATCH, -1) != 0, axis=1) for x in jax.tree.leaves(result.yielded)]
        results[name] = {
            "yield": float(np.mean(np.any(missed, axis=0))) if missed else None,
            "iterations": float(np.mean(np.asarray(result.qp.iterations))),
        }
    for _ in range(REPEATS):
        for name, given in cases.items():
            begin = time.process_time()
            jax.block_until_ready(run(q, *given))
            times[name].append(1e3 * (time.process_time() - begin))
    for name, result in results.items():
        result["processor_ms"] = round(statistics.median(times[name]), 1)
        # Of runs one after the other, which other work on the machine slows alike.
        ratios = np.asarray(times[name]) / np.asarray(times["hard"])
        result["times_hard"] = round(float(np.median(ratios)), 2)
    return results
