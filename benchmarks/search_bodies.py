"""`search` for several frames at once: two arms, a humanoid that floats, a hand with coupled joints.

Targets are poses of all frames at one random configuration, which meets the couplings, so that each can be reached.
Fingertips have positions only. No gate: the rates stand with the reasons of the failures.
"""

from typing import Any

import jax

import jaxik
from benchmarks.judge import judged
from benchmarks.searching import MAX_STARTS, plain, program, quality, rates, starts, targets_of
from benchmarks.timing import compiled, timed
from jaxik.robot.loading.sources import read_source

BODIES = {
    "dual_arm": ("left_tcp", "right_tcp"),
    "humanoid": ("left_foot", "right_foot", "left_hand", "right_hand"),
    "hand": ("index_tip", "middle_tip", "ring_tip", "thumb_tip"),
}
POSITIONS_ONLY = ("hand",)
REPEATS = 1


def measured(name: str, count: int) -> dict[str, Any]:
    robot, model, frames = jaxik.load_robot(name), read_source(name).model, BODIES[name]
    orientation = name not in POSITIONS_ONLY
    targets = targets_of(robot, frames, robot.sample(jax.random.key(0), (count,)))
    search, times = compiled(program(robot, frames, orientation), targets, starts(MAX_STARTS))
    solution, run_times = timed(search, targets, starts(MAX_STARTS), repeats=REPEATS)
    verdict = judged(model, solution.q, plain(targets), orientation)
    return {
        "frames": list(frames),
        **quality(solution, verdict),
        **times,
        **run_times,
        **rates(solution, verdict, run_times),
    }
