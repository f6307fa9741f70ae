"""Independent chains in one model: success, steps and time of each, beside those of a model that has one.

`arms` are six-jointed arms beside each other, each with a pose to reach; `loops` planar arms whose tips run on a rail.
`lost` gives the last chain of every model a goal that is out of reach.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

import jaxik
from benchmarks.kernels import kernels
from benchmarks.timing import compiled, timed
from jaxik.robot.robot import Robot

POSES = 256
COUNTS = (1, 2, 8)
SPACING = 5.0
# Share of targets that a chain reaches from one start.
LEAST = {"arms": 0.5, "loops": 0.98}


def arms(count: int) -> Robot:
    """Arms of six hinges, 0.9 m long."""
    made = jaxik.Mechanism(f"arms{count}")
    links = (("EZ", 0.0), ("EY", 0.3), ("EY", 0.3), ("EX", 0.1), ("EY", 0.1), ("EX", 0.1))
    for k in range(count):
        parent: list[str] = []
        for i, (joint, along) in enumerate(links):
            place = (along, SPACING * k if not i else 0.0, 0.0)
            made.link(f"a{k}_{i}", *parent, position=place, joints={joint: (-2.8, 2.8)}, rest=0.3)
            parent = [f"a{k}_{i}"]
        made.frame(f"tip{k}", parent[0], position=(0.1, 0.0, 0.0))
    return made.build().astype(np.float64)


def loops(count: int) -> Robot:
    """Arms of three hinges and 3 m in a plane, with their tips on lines along x."""
    made = jaxik.Mechanism(f"loops{count}")
    for k in range(count):
        y = SPACING * k
        made.link(f"l{k}_0", position=(0, y, 0), joints="EZ", rest=0.3)
        made.link(f"l{k}_1", f"l{k}_0", position=(1, 0, 0), joints="EZ", rest=0.5)
        made.link(f"l{k}_2", f"l{k}_1", position=(1, 0, 0), joints="EZ", rest=-0.4)
        made.frame(f"tip{k}", f"l{k}_2", position=(1, 0, 0))
        made.frame(f"line{k}", "world", position=(0, y, 0))
        made.closure(f"rail{k}", f"tip{k}", f"line{k}", ("y",))
    return made.build().astype(np.float64)


def _arm_goals(robot: Robot, count: int, lost: bool) -> dict[str, jaxik.Task]:
    one = arms(1)
    tasks = {}
    for k in range(count):
        pose = one.frame_pose(one.sample(jax.random.key(k), (POSES,)), one.frame("tip0"))
        far = 9.0 if lost and k == count - 1 else 0.0
        shift = jnp.array([far, SPACING * k, 0.0])
        pose = jaxlie.SE3.from_rotation_and_translation(pose.rotation(), pose.translation() + shift)
        tasks[f"goal{k}"] = jaxik.FrameTask(robot.frame(f"tip{k}"), pose)
    return tasks


def _loop_goals(robot: Robot, count: int, lost: bool) -> dict[str, jaxik.Task]:
    along, tasks = jnp.array([1.0, 0, 0, 0, 0, 0]), {}
    for k in range(count):
        x = jax.random.uniform(jax.random.key(k), (POSES,), jnp.float64, 1.0, 2.8) + 9.0 * (lost and k == count - 1)
        aim = jnp.stack([x, SPACING * k + 0 * x, 0 * x], axis=-1)
        tip = robot.frame(f"tip{k}")
        target = jaxlie.SE3.from_translation(aim)
        tasks[f"goal{k}"] = jaxik.FrameTask(tip, target, orientation_cost=None, mask=along, axes="world")
    return tasks


MODELS = {"arms": (arms, _arm_goals), "loops": (loops, _loop_goals)}


def measure(kind: str, count: int, lost: bool) -> dict[str, Any]:
    """Of each chain, in order: share CONVERGED, mean steps; of the problem its closures, kernels and run time."""
    build, goals = MODELS[kind]
    robot = build(count)
    program, times = compiled(
        lambda tasks: jaxik.solve(jaxik.Problem(robot, tasks), robot.q_home), goals(robot, count, lost)
    )
    found, runs = timed(program, goals(robot, count, lost))
    chains = found.chains
    closures = np.abs(found.residuals["model"]).max() if "model" in found.residuals else 0.0
    return {
        "converged": np.mean(np.asarray(chains.status) == jaxik.Status.CONVERGED, axis=0).round(3).tolist(),
        "mean steps": np.mean(np.asarray(chains.iterations), axis=0).round(2).tolist(),
        "largest closure error": float(closures),
        "kernels": kernels(program.as_text() or ""),
        **times,
        **runs,
    }


def run() -> dict[str, Any]:
    """Measure, and judge: closures hold, and no chain does worse than the same chain of a model of its own."""
    found, passed = dict[str, Any](), True
    with jax.enable_x64(True):
        for kind, lost, count in itertools.product(MODELS, (False, True), COUNTS):
            one = measure(kind, count, lost)
            found[f"{kind} {count}{', the last one lost' if lost else ''}"] = one
            reached = one["converged"][:-1] if lost else one["converged"]
            passed = passed and one["largest closure error"] < 1e-9 and all(share > LEAST[kind] for share in reached)
    return {**found, "passed": passed}
