"""Steps of a planar arm, of which tests of `step` over batch axes take some or many."""

from functools import cache
from typing import Any

import jax
import numpy as np
from limit_rows import planar

import jaxik
from jaxik import ConfigurationLimit, FrameTask, LowAccelerationTask, Problem, VelocityLimit, step

MANY = 300


@cache
def given() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "target": np.append(rng.uniform(-1.5, 1.5, (MANY, 2)), np.zeros((MANY, 1)), axis=1),
        "cost": rng.uniform(0.5, 2.0, (MANY, 3)),
        "gain": rng.uniform(0.3, 1.0, MANY),
        "fast": rng.uniform(1.0, 40.0, (MANY, 2)),
        "q": np.asarray(planar().sample(jax.random.key(0), (MANY,))),
        "dt": rng.uniform(0.01, 0.1, MANY),
        "damping": 10.0 ** rng.uniform(-6, -2, MANY),
        "previous": rng.uniform(-0.5, 0.5, (MANY, 2)),
    }


def problem(at: dict[str, Any]) -> Problem:
    tasks = {
        "tip": FrameTask(planar().frame("tip"), at["target"], at["cost"], None, gain=at["gain"]),
        "smooth": LowAccelerationTask(0.5),
    }
    return Problem(planar(), tasks, (ConfigurationLimit(at["gain"]), VelocityLimit(at["fast"])))


def stepped(at: dict[str, Any]) -> jaxik.StepResult:
    return step(problem(at), at["q"], at["dt"], damping=at["damping"], previous_velocity=at["previous"])


def first(count: int) -> dict[str, np.ndarray]:
    return {name: value[:count] for name, value in given().items()}


@cache
def batched(count: int) -> jaxik.StepResult:
    return jax.device_get(stepped(first(count)))
