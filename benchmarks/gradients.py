"""What a gradient through `solve` costs, next to unrolling a solver and to finite differences.

Panda, 4096 targets that are the forward kinematics of uniform samples, from the middle of the limits, float32, inside a
plain `jax.jit`. The loss looks at the configurations; it is differentiated by the targets, by the whole robot, and by
the reference posture. "unrolled" is what one writes without a rule: 30 damped steps in a `lax.scan`, limits by
clipping, differentiated through all of them; the share that is then within 1e-4 m stands beside it. Central differences
are two solves for each of a target's six directions, all in one batch.

Gate: value and gradient by targets take at most 1.25 times as long as the value, with a posture, which makes the
solution one of a kind, and without it, where the solve is shorter and what a gradient adds the same.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

import jaxik
from benchmarks.timing import compiled

BATCH, REPEATS = 4096, 15
MOST = 1.25
UNROLLED_STEPS, UNROLLED_DAMPING = 30, 1e-3
DIFFERENCE = 1e-3  # m and rad: of float32 solutions, good to 1e-6


def run() -> dict[str, Any]:
    """Measure, and judge."""
    robot = jaxik.load_robot("panda")
    tip = robot.frame("tcp")
    middle = 0.5 * (robot.limit_lower + robot.limit_upper)
    targets = robot.frame_pose(robot.sample(jax.random.key(1), (BATCH,)), tip)
    weights = jax.random.normal(jax.random.key(2), (BATCH, robot.nq))

    def loss(robot: Any, targets: Any, rest: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        tasks: dict[str, jaxik.Task] = {"tip": jaxik.FrameTask(tip, targets)}
        if rest is not None:
            tasks["rest"] = jaxik.PostureTask(rest, cost=0.1)
        solution = jaxik.solve(jaxik.Problem(robot, tasks), middle)
        return jnp.sum(weights * solution.q), solution.derivative_status

    def unrolled(targets: Any) -> jax.Array:
        return jnp.sum(weights * _unrolled(robot, tip, targets, middle))

    def by_differences(targets: Any) -> jax.Array:
        ahead = DIFFERENCE * jnp.eye(6)[:, None]
        moved = targets @ jaxlie.SE3.exp(jnp.concatenate([ahead, -ahead]))
        q = jaxik.solve(jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, moved)}), middle).q
        return jnp.sum(weights * (q[:6] - q[6:]), axis=-1) / (2 * DIFFERENCE)

    results: dict[str, Any] = {}
    for name, rest in (("tip alone", None), ("tip and posture", middle)):
        value, by_target, by_robot = (
            lambda targets, rest=rest: loss(robot, targets, rest)[0],
            jax.value_and_grad(lambda targets, rest=rest: loss(robot, targets, rest), has_aux=True),
            jax.value_and_grad(lambda robot, rest=rest: loss(robot, targets, rest), has_aux=True),
        )
        programs = {"value": (value, targets), "by targets": (by_target, targets), "by robot": (by_robot, robot)}
        if rest is not None:
            by_posture = jax.value_and_grad(lambda rest: loss(robot, targets, rest), has_aux=True)
            programs["by posture"] = by_posture, rest
        else:
            programs["by central differences"] = by_differences, targets
        results[name] = _compared(programs)
        kinds = jax.jit(by_target)(targets)[0][1]
        results[name]["derivatives"] = {
            kind.name: int(jnp.sum(kinds == kind)) for kind in jaxik.DerivativeStatus if jnp.any(kinds == kind)
        }
    differences = {"unrolled value": (unrolled, targets), "unrolled": (jax.value_and_grad(unrolled), targets)}
    results["unrolled"] = _compared(differences)
    results["unrolled"]["times our value"] = round(
        results["unrolled"]["unrolled"]["run_ms"] / results["tip alone"]["value"]["run_ms"], 1
    )
    reached = jax.jit(lambda targets: _unrolled(robot, tip, targets, middle))(targets)
    missed = jnp.linalg.norm(robot.frame_pose(reached, tip).translation() - targets.translation(), axis=-1)
    results["unrolled"]["within 1e-4 m"] = round(float(jnp.mean(missed <= 1e-4)), 3)
    passed = all(results[name]["by targets"]["times"] <= MOST for name in ("tip alone", "tip and posture"))
    return {"batch": BATCH, **results, "passed": passed}


def _unrolled(robot: Any, tip: Any, targets: Any, start: jax.Array) -> jax.Array:
    """Configurations (batch, nq) after damped steps, limits by clipping."""

    def step(q: jax.Array, _: None) -> tuple[jax.Array, None]:
        error = (targets.inverse() @ robot.frame_pose(q, tip)).log()
        jacobian = robot.frame_jacobian(q, tip)
        gram = jacobian @ jnp.swapaxes(jacobian, -1, -2) + UNROLLED_DAMPING * jnp.eye(6)
        pull = jnp.linalg.solve(gram, error[..., None])
        return robot.clamp(q - (jnp.swapaxes(jacobian, -1, -2) @ pull)[..., 0]), None

    q, _ = jax.lax.scan(step, jnp.broadcast_to(start, (BATCH, start.size)), length=UNROLLED_STEPS)
    return q


def _compared(programs: dict[str, tuple[Callable[..., Any], Any]]) -> dict[str, Any]:
    """Times of programs in turn, so that what else the machine does meets all of them; the first is the measure."""
    ready, runs = {}, {name: [] for name in programs}
    found: dict[str, Any] = {}
    for name, (function, argument) in programs.items():
        program, times = compiled(function, argument)
        jax.block_until_ready(program(argument))
        ready[name] = program, argument
        memory = program.memory_analysis()
        found[name] = {**times, "temporary_mb": round(memory.temp_size_in_bytes / 1e6, 1)}
    for _ in range(REPEATS):
        for name, (program, argument) in ready.items():
            begin = time.perf_counter()
            jax.block_until_ready(program(argument))
            runs[name].append(1e3 * (time.perf_counter() - begin))
    first = next(iter(programs))
    for name, times in runs.items():
        found[name]["run_ms"] = round(statistics.median(times), 2)
        found[name]["times"] = round(statistics.median(a / b for a, b in zip(times, runs[first], strict=True)), 3)
    return found
