"""Verbs at batches of a thousand to a million: elements a second, compile time, what came back.

A Panda: kinematics (a pose and its Jacobian), `step` with joint and velocity limits, `step` kept off 20 boxes and off
itself, `track` along circles, `solve` from the middle of the limits, its gradient by the targets, `search`, and
`search` among the boxes. Starts and targets are of uniform samples that are clear of the boxes and of the arm itself. A
humanoid of 41 degrees of freedom: `step` and `search` for the poses that hands and feet have in uniform samples.
Float32, default costs and options, one plain `jax.jit`, whose arguments and results stay on the device.

C MuJoCo judges up to 10,000 elements of each run, in float64: `reached` is the share within 1e-4 m and 1e-3 rad and
inside the limits, `colliding` how many of those overlap by more than 1e-6 m. `converged` is what the statuses say, of
all elements.

Gates: none outside the limits, none colliding that says CONVERGED, every search at least 99.9 % reached.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np

import jaxik
from benchmarks.judge import Verdict, judged, least_distances
from benchmarks.scenes import arm_among_boxes
from benchmarks.search_bodies import BODIES
from benchmarks.searching import targets_of
from benchmarks.timing import compiled, timed
from jaxik.robot.loading.sources import read_source

BATCHES = (1_000, 10_000, 100_000, 1_000_000)
LARGEST_ON_A_CPU = 100_000
DT, FAST, DAMPING, MARGIN = 0.01, 2.0, 1e-3, 0.005
JUDGED, POSITION, ORIENTATION, PENETRATION = 10_000, 1e-4, 1e-3, 1e-6
REPEATS = 5
SUCCESS = 0.999
SEARCHES = ("search", "search among boxes", "humanoid search")
TRACKED, RADIUS = 100, 0.05  # steps of a track, and of its circle [m]


class _Verb(NamedTuple):
    """A program and what it is measured on.

    Attributes:
      run: arguments -> result.
      given: batch -> arguments.
      judge: arguments, configurations (n, nq) -> C MuJoCo's verdict.
      model: where overlaps count, the robot among the boxes.
      steps: that an element takes.
    """

    run: Callable[..., Any]
    given: Callable[[int], tuple[Any, ...]]
    judge: Callable[[tuple[Any, ...], np.ndarray], Verdict] | None = None
    model: mujoco.MjModel | None = None
    steps: int = 1


def run(largest_batch: int | None = None) -> dict[str, Any]:
    """Measure every verb at every batch."""
    largest = largest_batch or (LARGEST_ON_A_CPU if jax.default_backend() == "cpu" else max(BATCHES))
    robot, world, model = arm_among_boxes()
    pairs = {frozenset(pair) for pair in jaxik.CollisionLimit(world).table(robot).names}
    verbs = {**_of_panda(robot, world, model), **_of_humanoid()}
    results: dict[str, Any] = {name: {} for name in verbs}
    for batch in [batch for batch in BATCHES if batch <= largest] or [largest]:
        for name, verb in verbs.items():
            results[name][batch] = _measured(verb, batch, pairs)
    return {"verbs": results, "passed": _passed(results)}


def _of_panda(robot: jaxik.Robot, world: jaxik.World, model: mujoco.MjModel) -> dict[str, _Verb]:
    tip, plain = robot.frame("tcp"), jaxik.load_robot("panda")
    middle = 0.5 * (robot.limit_lower + robot.limit_upper)
    held = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(FAST)
    apart = jaxik.CollisionLimit(world, margin=MARGIN)

    @functools.lru_cache(maxsize=1)
    def given(batch: int) -> tuple[jax.Array, jaxlie.SE3]:
        """Starts, free of the boxes, and targets that free configurations reach."""
        q = robot.sample(jax.random.key(1), (5 * batch,))
        free = jnp.flatnonzero(robot.clearance(q, world) > MARGIN + 1e-3)
        assert free.size >= 2 * batch, "too few free samples"
        return q[free[:batch]], robot.frame_pose(q[free[batch : 2 * batch]], "tcp")

    def problem(target: Any, limits: Any = (held[0],), robot: jaxik.Robot = plain) -> jaxik.Problem:
        return jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}, limits=limits)

    def step(robot: jaxik.Robot, limits: Any) -> Callable[..., Any]:
        return lambda q, target: _moved(jaxik.step(problem(target, limits, robot), q, DT, damping=DAMPING))

    def track(q: jax.Array, _: Any) -> tuple[jax.Array, jax.Array]:
        pose = plain.frame_pose(q, tip)

        def circle(t: jax.Array, *_: Any) -> dict[str, Any]:
            angle = 2 * jnp.pi * t / (TRACKED * DT)
            way = RADIUS * jnp.stack([jnp.cos(angle) - 1, jnp.sin(angle), 0 * angle])
            return {"tip": jaxlie.SE3(pose.wxyz_xyz + jnp.concatenate([jnp.zeros(4), way]))}

        found = jaxik.track(problem(pose, held), q, DT, circle, num_steps=TRACKED)
        return found.q[-1], found.status

    def solve(target: Any) -> jaxik.Solution:
        return jaxik.solve(problem(target), middle)

    def gradient(_: Any, target: Any) -> Any:
        return jax.grad(lambda target: jnp.sum(solve(target).q ** 2))(target)

    def search(limits: Any, robot: jaxik.Robot) -> Callable[..., Any]:
        return lambda _, target: jaxik.search(problem(target, limits, robot), jax.random.key(0))

    def judge(given: tuple[Any, ...], q: np.ndarray) -> Verdict:
        return judged(read_source("panda").model, q, {"tcp": given[1].wxyz_xyz[: len(q)]})

    return {
        "kinematics": _Verb(lambda q, _: (plain.frame_pose(q, tip), plain.frame_jacobian(q, tip)), given),
        "step": _Verb(step(plain, held), given),
        "step among boxes": _Verb(step(robot, (*held, apart)), given),
        "track": _Verb(track, given, steps=TRACKED),
        "solve": _Verb(lambda _, target: solve(target), given, judge),
        "gradient of solve": _Verb(gradient, given),
        "search": _Verb(search((held[0],), plain), given, judge),
        "search among boxes": _Verb(search((held[0], apart), robot), given, judge, model),
    }


def _of_humanoid() -> dict[str, _Verb]:
    robot = jaxik.load_robot("humanoid")
    frames, held = BODIES["humanoid"], (jaxik.ConfigurationLimit(),)

    @functools.lru_cache(maxsize=1)
    def given(batch: int) -> tuple[jax.Array, dict[str, jaxlie.SE3]]:
        q, goal = robot.sample(jax.random.key(1), (2, batch))
        return q, targets_of(robot, frames, goal)

    def problem(targets: dict[str, jaxlie.SE3]) -> jaxik.Problem:
        tasks = {name: jaxik.FrameTask(robot.frame(name), targets[name]) for name in frames}
        return jaxik.Problem(robot, tasks, limits=held)

    def judge(given: tuple[Any, ...], q: np.ndarray) -> Verdict:
        return judged(read_source("humanoid").model, q, {name: x.wxyz_xyz[: len(q)] for name, x in given[1].items()})

    return {
        "humanoid step": _Verb(lambda q, x: _moved(jaxik.step(problem(x), q, DT, damping=DAMPING)), given),
        "humanoid search": _Verb(lambda _, x: jaxik.search(problem(x), jax.random.key(0)), given, judge),
    }


def _moved(result: jaxik.StepResult) -> tuple[jax.Array, jax.Array]:
    return result.velocity, result.status


def _measured(verb: _Verb, batch: int, pairs: set[frozenset[str]]) -> dict[str, Any]:
    given = verb.given(batch)
    program, times = compiled(verb.run, *given)
    result, run_times = timed(program, *given, repeats=REPEATS)
    figures = {
        **times,
        **run_times,
        "per_s": round(1e3 * batch * verb.steps / run_times["run_ms"]),
        "temporary_mb": round(program.memory_analysis().temp_size_in_bytes / 2**20, 1),
    }
    if verb.judge is None:
        return figures
    q, converged = np.asarray(result.q[:JUDGED]), np.asarray(result.converged)
    verdict = verb.judge(given, q)
    figures |= {
        "converged": float(f"{converged.mean():.5g}"),
        "reached": float(f"{verdict.within(POSITION, ORIENTATION).mean():.5g}"),
        "outside_limits": int(verdict.outside.sum()),
        "mean_steps": round(float(np.mean(result.iterations)), 2),
    }
    if verb.model is not None:
        distances = least_distances(verb.model, q[converged[: len(q)]], pairs)
        figures["colliding"] = int(np.sum(distances < -PENETRATION))
    return figures


def _passed(results: dict[str, Any]) -> bool:
    figures = [(verb, point) for verb, by_batch in results.items() for point in by_batch.values()]
    inside = not any(point.get("outside_limits") or point.get("colliding") for _, point in figures)
    return inside and all(point["reached"] >= SUCCESS for verb, point in figures if verb in SEARCHES)
