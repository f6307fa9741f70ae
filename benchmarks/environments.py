"""What pose actions add to an environment's step on MJX on the CPU, beside joint actions; how XLA should compile it.

Joint actions are the joint targets that the pose actions lead to: MJX takes some 2 % longer for arms that move than for
arms at rest. With XLA's defaults MJX is not measured: a step takes half a second for each arm. Gates: at 256 and 1,024
environments at most 5 % a step (median of interleaved pairs, by the time of all cores together, with the options of
`benchmarks.mjx_arm`), and no program compiled again in 1,000 steps. To be run with NPROC=1 in the environment: on two
cores jaxlib 0.10.2 now and then hangs in two batched Cholesky factorizations at once.
"""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import jax

import jaxik
from benchmarks.mjx_arm import COMPILER_OPTIONS, MjxArm
from benchmarks.timing import Clock
from jaxik.rl import PoseAction, PoseActionEnv

BATCHES, PAIRS, STEPS = (256, 1024), 31, 1000
MOST = 1.05
WITHOUT_FUSION = {"xla_disable_hlo_passes": "fusion"}


def run(batches: tuple[int, ...] = BATCHES) -> dict[str, Any]:
    """Panda, float32."""
    robot = jaxik.load_robot("panda")
    arm = MjxArm(robot)
    act = PoseAction(robot, {"tip": "tcp"}, translation=0.01, rotation=0.05)
    posed = PoseActionEnv(arm, act)
    functions = {"joint": jax.vmap(arm.step), "pose": jax.vmap(posed.step), "alone": act.__call__}
    quick = _programs(functions, COMPILER_OPTIONS)
    found, again, ended = {}, 0, 0
    for count in batches:
        keys = jax.random.split(jax.random.key(0), count)
        given = jax.random.uniform(jax.random.key(1), (count, act.size), minval=-1)
        states = [jax.jit(jax.vmap(env.reset), compiler_options=COMPILER_OPTIONS)(keys) for env in (arm, posed)]
        alone = act.reset(states[0].data.ctrl), states[0].data.ctrl, given
        told = quick["alone"](*alone)[0]
        arguments = {"joint": (states[0], told), "pose": (states[1], given), "alone": alone}
        rows = {"without fusion emitters": _interleaved(quick, arguments, count)}
        if count == batches[0]:
            again, ended = _thousand(quick["pose"], *arguments["pose"])
            rows["without fusion"] = _interleaved(_programs(functions, WITHOUT_FUSION), arguments, count)
            rows["XLA's defaults"] = _interleaved({"alone": jax.jit(functions["alone"])}, arguments, count)
        found[str(count)] = rows
    ratios = [rows["without fusion emitters"]["pose_by_joint_processor"][1] for rows in found.values()]
    passed = max(ratios) <= MOST and not again and not ended
    return {**found, "compiled_again": again, "not_finite": ended, "passed": passed}


def _programs(functions: Mapping[str, Callable[..., Any]], options: dict[str, Any]) -> dict[str, Any]:
    return {kind: jax.jit(function, compiler_options=options) for kind, function in functions.items()}


def _thousand(step: Any, state: Any, given: jax.Array) -> tuple[int, int]:
    """How many programs so many steps of random actions compile anew, and how many environments end."""
    programs = step._cache_size()
    for number in range(STEPS):
        state = step(state, jax.random.uniform(jax.random.key(number), given.shape, minval=-1))
    return step._cache_size() - programs, int((state.done > 0).sum())


def _interleaved(
    programs: Mapping[str, Callable[..., Any]], arguments: Mapping[str, tuple[Any, ...]], count: int
) -> dict[str, Any]:
    """Seconds of the first call, which compiles, and medians of the others in microseconds an environment.

    Ratios are quartiles of those of one pair each.
    """
    row: dict[str, Any] = {}
    for kind, program in programs.items():
        clock = Clock()
        jax.block_until_ready(program(*arguments[kind]))
        row[f"{kind}_first_s"], row[f"{kind}_first_processor_s"] = (round(x, 1) for x in clock.read())
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in programs}
    for _ in range(PAIRS):
        for kind, program in programs.items():
            clock = Clock()
            jax.block_until_ready(program(*arguments[kind]))
            wall, processor = clock.read()
            times[kind].append((1e6 * wall / count, 1e6 * processor / count))
    for kind, runs in times.items():
        walls, processors = zip(*runs, strict=True)
        row[f"{kind}_us"], row[f"{kind}_processor_us"] = (round(statistics.median(x), 1) for x in (walls, processors))
        row[f"{kind}_best_us"] = round(min(walls), 1)
    if "pose" in times:
        for i, name in enumerate(("wall", "processor")):
            ratios = [pose[i] / joint[i] for joint, pose in zip(times["joint"], times["pose"], strict=True)]
            row[f"pose_by_joint_{name}"] = [round(x, 3) for x in statistics.quantiles(ratios, n=4)]
    return row
