"""`search`: success, effort, targets per second, and other libraries on the same targets in the same run.

The protocol: targets are the forward kinematics of uniform samples within the limits, default costs and options,
float32. Success and errors are those of C MuJoCo in float64 at the returned configurations, over all elements, limits
held; only what it verifies counts as a target per second. Our times are those of a program compiled before, on one
device inside a plain `jax.jit`, and shared out over all cores by `jaxik.use_all_cores`.

Gates: on every arm 99.9 % of the targets within 1e-4 m and 1e-3 rad and 99.5 % within 1e-5 m and 1e-5 rad, none outside
the limits, none that says CONVERGED and is not; at most 60 steps a target on Panda, and there at least 100 times the
verified targets per second of Newton and of mink.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxik
from benchmarks import search_bodies, search_hard, search_peers, search_plots
from benchmarks.judge import judged
from benchmarks.kernels import kernels_per_step
from benchmarks.searching import MAX_STARTS, plain, program, quality, rates, starts, targets_of, verified
from benchmarks.timing import compiled, timed
from jaxik.batching.devices import use_all_cores
from jaxik.robot.loading.sources import read_source

ARMS = ("panda", "ur5e", "ur10e", "iiwa14", "gen3", "fr3", "xarm7")
TARGETS = 10_000
BODY_TARGETS = 1_000  # at most, of whole bodies
BATCHES = (1, 16, 256, 4096, 32768, 262144, 1 << 20)
LARGEST = {"cpu": 32768}  # of the batches, where nothing else is said; all of them elsewhere
FEWEST = 64  # targets of which the times of small batches are means
BUDGETS = (1, 2, 3, 4, 6, 8, 16, 32, 64, MAX_STARTS)  # starts
# Steps per second at which the multiprocessors of an accelerator could issue what a step of Panda computes.
ISSUE_LIMITS = {"H100": 3.7e10, "H200": 3.7e10}
REPEATS = 3
DEVICES = ("one_device", "all_cores")
NEARLY_ALL = 0.99
SUCCESS, SUCCESS_FINE, STEPS, TIMES_PEERS = 0.999, 0.995, {"panda": 60}, 100.0


def run(
    targets: int = TARGETS,
    largest_batch: int | None = None,
    robots: list[str] | None = None,
    pictures: Path | None = None,
) -> dict[str, Any]:
    """Measure, and judge; draw as well where a folder for `pictures` is given."""
    known = (*ARMS, *search_bodies.BODIES)
    if set(robots or ()) - set(known):
        raise ValueError(f"robots are some of {', '.join(known)}; not {', '.join(robots or ())}")
    chosen = [name for name in known if not robots or name in robots]
    arms = [name for name in chosen if name in ARMS]
    results: dict[str, Any] = {"arms": {}}
    for name in arms:
        _say(name)
        arm = _prepared(name, targets)
        results["arms"][name] = _arm(arm)
        if name == "panda":
            results["panda"] = _panda(arm)
    if jax.default_backend() == "cpu":
        use_all_cores()
        jax.clear_caches()  # what was traced before stays on one device
        for name in arms:
            _say(f"{name}, all cores")
            results["arms"][name]["all_cores"] = _arm(_prepared(name, targets))["one_device"]
    bodies = [name for name in chosen if name in search_bodies.BODIES]
    results["bodies"] = {}
    for name in bodies:
        _say(name)
        results["bodies"][name] = search_bodies.measured(name, min(targets, BODY_TARGETS))
    if "panda" in arms:
        _say("panda, hard targets and batch sizes")
        results["hard"] = search_hard.measured()
        largest = largest_batch or LARGEST.get(jax.default_backend(), BATCHES[-1])
        results["throughput"] = {batch: _throughput(batch) for batch in BATCHES if batch <= largest}
        results["ratios"] = _ratios(results)
        if pictures is not None:
            search_plots.draw(results, pictures)
    gates = _gates(results)
    return {**results, "gates": gates, "passed": all(gates.values())}


def _say(what: str) -> None:
    """Minutes pass in between, most of them compiling."""
    print(f"search: {what}", file=sys.stderr, flush=True)


class Arm(NamedTuple):
    """An arm with its targets {frame: SE3} and the compiled search for them."""

    robot: jaxik.Robot
    model: Any
    targets: dict[str, Any]
    search: Callable[..., jaxik.Solution]
    times: dict[str, float]


def _prepared(name: str, count: int) -> Arm:
    robot = jaxik.load_robot(name)
    targets = targets_of(robot, ("tcp",), robot.sample(jax.random.key(0), (count,)))
    return Arm(
        robot, read_source(name).model, targets, *compiled(program(robot, ("tcp",)), targets, starts(MAX_STARTS))
    )


def _arm(arm: Arm) -> dict[str, Any]:
    solution, run_times = timed(arm.search, arm.targets, starts(MAX_STARTS), repeats=REPEATS)
    verdict = judged(arm.model, solution.q, plain(arm.targets))
    speed = {**arm.times, **run_times, **rates(solution, verdict, run_times)}
    return {**quality(solution, verdict), "one_device": speed}


def _panda(arm: Arm) -> dict[str, Any]:
    """Success against time: of ours by the number of starts, and of the others."""
    wanted = plain(arm.targets)
    curve = []
    for budget in BUDGETS:
        solution, times = timed(arm.search, arm.targets, starts(budget), repeats=1)
        good = verified(judged(arm.model, solution.q, wanted))
        setting = f"{budget} start{'s' * (budget > 1)}"
        curve.append(search_peers.figures(setting, good, 1e-3 * times["run_ms"], 1e-3 * times["processor_ms"]))
    return {"jaxik": curve, **search_peers.measured(arm.model, wanted["tcp"], np.asarray(arm.robot.q_home, float))}


def _throughput(batch: int) -> dict[str, Any]:
    """Verified targets per second of Panda by batch size; a batch of one has no batch axis, as a caller's has none."""
    robot, model = jaxik.load_robot("panda"), read_source("panda").model
    shape = (batch,) if batch > 1 else ()
    rounds = [
        # Other keys than that of the search, whose starts would be where the targets come from.
        targets_of(robot, ("tcp",), robot.sample(jax.random.key(100 + i), shape))
        for i in range(max(1, FEWEST // batch))
    ]
    search, times = compiled(program(robot, ("tcp",)), rounds[0], starts(MAX_STARTS))
    reached, steps, milliseconds = 0, 0, 0.0
    for targets in rounds:
        solution, run_times = timed(search, targets, starts(MAX_STARTS), repeats=REPEATS)
        wanted = {name: np.atleast_2d(target) for name, target in plain(targets).items()}
        reached += int(verified(judged(model, np.atleast_2d(solution.q), wanted)).sum())
        steps += int(np.sum(solution.iterations))
        milliseconds += run_times["run_ms"]
    steps_per_s = 1e3 * steps / milliseconds
    limit = next((rate for name, rate in ISSUE_LIMITS.items() if name in jax.devices()[0].device_kind), None)
    return {
        **times,
        "run_ms": round(milliseconds / len(rounds), 3),
        "success": round(reached / (batch * len(rounds)), 5),
        "targets_per_s": round(1e3 * reached / milliseconds),
        "steps_per_s": round(steps_per_s),
        "of_issue_limit": limit and float(f"{steps_per_s / limit:.3g}"),
        "kernels_per_step": kernels_per_step(search.as_text()),
    }


def _ratios(results: dict[str, Any]) -> dict[str, Any]:
    """How many times a peer's verified targets per second ours are.

    Against its most thorough setting on one device, on all cores, and by processor time; and on one device against
    the fastest of its settings that reach 99 %.
    """
    ours, ratios = results["arms"]["panda"], {}
    one, table = ours["one_device"], results["panda"]
    for name, peer in table.items():
        if name == "jaxik" or "absent" in peer or not peer[-1]["success"]:
            continue
        best = peer[-1]["targets_per_s"], peer[-1]["targets_per_processor_s"]
        fastest = max((point["targets_per_s"] for point in peer if point["success"] >= NEARLY_ALL), default=best[0])
        ratios[name] = {
            **{device: ours[device]["targets_per_s"] / best[0] for device in DEVICES if device in ours},
            "processor_time": one["targets_per_processor_s"] / best[1],
            "its fastest with 99 %": one["targets_per_s"] / fastest,
        }
    return {name: {key: round(value, 1) for key, value in ratio.items()} for name, ratio in ratios.items()}


def _gates(results: dict[str, Any]) -> dict[str, bool]:
    gates = {}
    for name, arm in results["arms"].items():
        gates[f"{name}: success"] = arm["success"] >= SUCCESS
        gates[f"{name}: success, fine"] = arm["success_fine"] >= SUCCESS_FINE
        gates[f"{name}: within limits"] = not arm["outside_limits"]
        gates[f"{name}: status"] = not arm["wrongly_converged"]
        if name in STEPS:
            gates[f"{name}: steps"] = arm["mean_steps"] <= STEPS[name]
    for name in ("newton", "mink"):
        if name in results.get("ratios", {}):
            gates[f"times {name}"] = max(results["ratios"][name].get(device, 0) for device in DEVICES) >= TIMES_PEERS
    return gates
