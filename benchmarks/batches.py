"""Panda's verbs at batches of a thousand to a million: elements a second, compile time, what came back.

Kinematics (a pose and its Jacobian), `step` with joint and velocity limits, `step` kept off 20 boxes and off itself,
`solve` from the middle of the limits, `search`, and `search` among the boxes. Starts and targets are of uniform samples
that are clear of the boxes and of the arm itself. Float32, default costs and options, one plain `jax.jit`, whose
arguments and results stay on the device.

C MuJoCo judges up to 10,000 elements of each run, in float64: `reached` is the share within 1e-4 m and 1e-3 rad and
inside the limits, `colliding` how many of those overlap by more than 1e-6 m. `converged` is what the statuses say, of
all elements.

Gates: none outside the limits, none colliding that says CONVERGED, every search at least 99.9 % reached.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import judged, least_distances
from benchmarks.scenes import arm_among_boxes
from benchmarks.timing import compiled, timed
from jaxik.robot.loading.sources import read_source

BATCHES = (1_000, 10_000, 100_000, 1_000_000)
LARGEST_ON_A_CPU = 100_000
DT, FAST, DAMPING, MARGIN = 0.01, 2.0, 1e-3, 0.005
JUDGED, POSITION, ORIENTATION, PENETRATION = 10_000, 1e-4, 1e-3, 1e-6
REPEATS = 5
SUCCESS = 0.999
SEARCHES = ("search", "search among boxes")


class _Given(NamedTuple):
    """Starts (n, 7), free of the boxes, and targets that free configurations reach."""

    q: jax.Array
    target: Any


def run(largest_batch: int | None = None) -> dict[str, Any]:
    """Measure every verb at every batch."""
    largest = largest_batch or (LARGEST_ON_A_CPU if jax.default_backend() == "cpu" else max(BATCHES))
    robot, world, model = arm_among_boxes()
    programs = _programs(robot, world)
    pairs = {frozenset(pair) for pair in jaxik.CollisionLimit(world).table(robot).names}
    results: dict[str, Any] = {}
    for batch in (batch for batch in BATCHES if batch <= largest):
        given = _given(robot, world, batch)
        for verb, program in programs.items():
            figures = _measured(program, given, batch)
            solution = figures.pop("result")
            if isinstance(solution, jaxik.Solution):
                figures |= _quality(solution, given, model if verb.endswith("boxes") else None, pairs)
            results.setdefault(verb, {})[batch] = figures
    return {"verbs": results, "passed": _passed(results)}


def _programs(robot: jaxik.Robot, world: jaxik.World) -> dict[str, Callable[[jax.Array, Any], Any]]:
    tip = robot.frame("tcp")
    plain = jaxik.load_robot("panda")
    middle = 0.5 * (robot.limit_lower + robot.limit_upper)
    held = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(FAST)
    apart = jaxik.CollisionLimit(world, margin=MARGIN)

    def problem(target: Any, limits: Any = (held[0],), robot: jaxik.Robot = plain) -> jaxik.Problem:
        return jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}, limits=limits)

    def step(robot: jaxik.Robot, limits: Any) -> Callable[[jax.Array, Any], Any]:
        def of(q: jax.Array, target: Any) -> Any:
            result = jaxik.step(problem(target, limits, robot), q, DT, damping=DAMPING)
            return result.velocity, result.status

        return of

    return {
        "kinematics": lambda q, _: (plain.frame_pose(q, tip), plain.frame_jacobian(q, tip)),
        "step": step(plain, held),
        "step among boxes": step(robot, (*held, apart)),
        "solve": lambda _, target: jaxik.solve(problem(target), middle),
        "search": lambda _, target: jaxik.search(problem(target), jax.random.key(0)),
        "search among boxes": lambda _, target: jaxik.search(
            problem(target, (held[0], apart), robot), jax.random.key(0)
        ),
    }


def _given(robot: jaxik.Robot, world: jaxik.World, batch: int) -> _Given:
    """Starts and targets for a batch."""
    q = robot.sample(jax.random.key(1), (5 * batch,))
    free = jnp.flatnonzero(robot.clearance(q, world) > MARGIN + 1e-3)
    assert free.size >= 2 * batch, "too few free samples"
    return _Given(q[free[:batch]], robot.frame_pose(q[free[batch : 2 * batch]], "tcp"))


def _measured(program: Callable[..., Any], given: _Given, batch: int) -> dict[str, Any]:
    compiled_program, times = compiled(program, *given)
    result, run_times = timed(compiled_program, *given, repeats=REPEATS)
    return {
        **times,
        **run_times,
        "per_s": round(1e3 * batch / run_times["run_ms"]),
        "temporary_mb": round(compiled_program.memory_analysis().temp_size_in_bytes / 2**20, 1),
        "result": result,
    }


def _quality(
    solution: jaxik.Solution, given: _Given, among: mujoco.MjModel | None, pairs: set[frozenset[str]]
) -> dict[str, Any]:
    q, target = np.asarray(solution.q[:JUDGED]), np.asarray(given.target.wxyz_xyz[:JUDGED])
    verdict = judged(read_source("panda").model, q, {"tcp": target})
    converged = np.asarray(solution.converged)
    figures = {
        "converged": float(f"{converged.mean():.5g}"),
        "reached": float(f"{verdict.within(POSITION, ORIENTATION).mean():.5g}"),
        "outside_limits": int(verdict.outside.sum()),
        "mean_steps": round(float(np.mean(solution.iterations)), 2),
    }
    if among is None:
        return figures
    distances = least_distances(among, q[converged[: len(q)]], pairs)
    return {**figures, "colliding": int(np.sum(distances < -PENETRATION))}


def _passed(results: dict[str, Any]) -> bool:
    figures = [(verb, point) for verb, by_batch in results.items() for point in by_batch.values()]
    inside = not any(point.get("outside_limits") or point.get("colliding") for _, point in figures)
    return inside and all(point["reached"] >= SUCCESS for verb, point in figures if verb in SEARCHES)
