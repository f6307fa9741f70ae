"""What a first call costs: seconds of tracing, lowering and compiling, and kernels, and how many of these differ."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jaxik
from benchmarks.kernels import different_kernels, kernels

BATCH = 4096


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions and their arguments, by name."""
    robot = jaxik.load_robot("panda")
    tip = robot.frame("tcp")
    q = robot.sample(jax.random.key(0), (BATCH,))
    target = robot.frame_pose(q, tip)

    def problem(target: Any) -> jaxik.Problem:
        return jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)})

    def gradient(parameters: jax.Array) -> jax.Array:
        return jax.grad(lambda x: jnp.sum(jaxik.solve(problem(type(target)(x))).q))(parameters)

    def steps(target: Any, q: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda q, _: (jaxik.step(problem(target), q, 0.01).q, None), q, None, length=10)[0]

    def track(target: Any, q: jax.Array) -> jaxik.Track:
        path = jax.tree.map(lambda x: jnp.stack([x] * 10), target)
        return jaxik.track(problem(target), q, 0.01, {"tip": path})

    return {
        "panda solve": (lambda target: jaxik.solve(problem(target)), (target,)),
        "panda search": (lambda target: jaxik.search(problem(target), jax.random.key(0)), (target,)),
        "panda gradient of solve": (gradient, (target.wxyz_xyz,)),
        "panda step": (lambda target, q: jaxik.step(problem(target), q, 0.01), (target, q)),
        "panda scan of step": (steps, (target, q)),
        "panda track": (track, (target, q)),
        **_apart(),
        "humanoid search": _humanoid(),
        "stewart solve of one pose": _stewart(),
    }


def _apart() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Programs that keep the arm's shapes apart from each other and from a box: the rows of pairs of each kind."""
    robot = jaxik.load_robot("panda", geometry="model")
    tip, q, away = robot.frame("tcp"), robot.sample(jax.random.key(0), (256,)), jnp.array([0.6, 0.0, 0.3])

    def problem(target: Any, away: jax.Array) -> jaxik.Problem:
        limit = jaxik.CollisionLimit(jaxik.World(boxes=jaxik.Boxes(away[None], jnp.full((1, 3), 0.1))))
        return jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}, limits=(limit,))

    def step(q: jax.Array, target: Any, away: jax.Array) -> jax.Array:
        return jaxik.step(problem(target, away), q, 0.01).q

    def search(target: Any, away: jax.Array) -> jaxik.Solution:
        return jaxik.search(problem(target, away), jax.random.key(0))

    target = robot.frame_pose(q, tip)
    return {"panda step apart": (step, (q, target, away)), "panda search apart": (search, (target, away))}


def _humanoid() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    robot = jaxik.load_robot("humanoid")
    names = ("left_foot", "right_foot", "left_hand", "right_hand")
    q = robot.sample(jax.random.key(0), (256,))
    targets = {name: robot.frame_pose(q, name) for name in names}

    def search(targets: Any) -> jaxik.Solution:
        tasks: dict[str, Any] = {name: jaxik.FrameTask(robot.frame(name), targets[name]) for name in names}
        return jaxik.search(jaxik.Problem(robot, tasks), jax.random.key(0))

    return search, (targets,)


def _stewart() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Of a closed chain by itself: the steps on constraints and task, Newton's, and those in the null space."""
    robot = jaxik.load_robot("stewart")
    tip = robot.frame("tcp")

    def solve(target: Any) -> jaxik.Solution:
        return jaxik.solve(jaxik.Problem(robot, {"tip": jaxik.FrameTask(tip, target)}))

    return solve, (robot.frame_pose(robot.q_home, tip),)


def run() -> dict[str, Any]:
    """Trace, lower and compile each program in a process that has compiled nothing of it."""
    found: dict[str, Any] = {}
    for name, (function, arguments) in programs().items():
        jax.clear_caches()
        times = [time.perf_counter()]
        traced = jax.jit(function).trace(*arguments)
        times.append(time.perf_counter())
        lowered = traced.lower()
        times.append(time.perf_counter())
        compiled = lowered.compile()
        times.append(time.perf_counter())
        seconds = [round(b - a, 2) for a, b in itertools.pairwise(times)]
        found[name] = dict(zip(("trace_s", "lower_s", "compile_s"), seconds, strict=True))
        text = compiled.as_text()
        found[name] |= {"kernels": kernels(text), "different_kernels": different_kernels(text)}
    return found | {"passed": True}
