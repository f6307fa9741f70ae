"""What `step` and `linearize` refuse on the host, before anything is traced, and what to do about it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from limit_rows import mixed, planar

import jaxik
from jaxik import JaxikError, PostureTask, Problem, linearize, step
from jaxik.qp_solver import ActiveSet


@cache
def problem() -> Problem:
    return Problem(planar(), {"rest": PostureTask(planar().q_home)})


def steps(q: Any = (0.1, 0.2), dt: Any = 0.02, **options: Any) -> Callable[[], Any]:
    return lambda: step(problem(), jnp.asarray(q) if isinstance(q, tuple) else q, dt, **options)


BATCH = {"rest": PostureTask(np.zeros((3, 2)))}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a robot for a problem": (lambda: step(planar(), np.zeros(2), 0.1), "problem is a jaxik.Problem, not Robot"),  # type: ignore[arg-type]
    "a robot for a problem to linearize": (lambda: linearize(planar(), np.zeros(2), 0.1), "not Robot"),  # type: ignore[arg-type]
    "a word for q": (steps("home"), r"q is an array \(\*batch, nq\), not 'home'"),
    "complex q": (steps(np.zeros(2, complex)), "q is real, not complex128"),
    "q of another robot": (steps(np.zeros(3)), r"q has shape \(\*batch, nq\) with nq = 2, not \(3,\)"),
    "no time": (steps(dt=0.0), "dt is a positive duration"),
    "negative time": (steps(dt=-0.1), "dt is a positive duration"),
    "time that is NaN": (steps(dt=np.nan), "dt is a positive duration"),
    "a word for time": (steps(dt="now"), "dt is a number or an array of numbers, not 'now'"),
    "no number for time": (steps(dt=None), "dt is a number or an array of numbers, not None"),
    "negative damping": (steps(damping=-1e-6), "damping must not be negative or NaN: array"),
    "damping that is NaN": (steps(damping=np.nan), "damping must not be negative or NaN"),
    "a word as damping": (steps(damping="much"), "damping is a number or an array of numbers, not 'much'"),
    "a velocity of another robot": (
        steps(previous_velocity=np.zeros(3)),
        r"previous_velocity has shape \(\*batch, nv\) with nv = 2, not \(3,\)",
    ),
    "one number as the velocity before": (steps(previous_velocity=1.0), r"previous_velocity has shape .*, not \(\)"),
    "a word as the velocity before": (steps(previous_velocity="slow"), "previous_velocity is a number or an array"),
    "options of another verb": (steps(options=jaxik.SolveOptions()), "options is a jaxik.QPOptions, not SolveOptions"),
    "a result for a start": (
        steps(warm_start=np.zeros(2)),
        r"warm_start is `qp.active` of an earlier result, not ndarray",
    ),
    "a start of another robot": (
        steps(warm_start=ActiveSet(np.zeros(mixed().nv, np.int32), np.zeros(0, bool))),
        rf"warm_start is `qp.active` of an earlier result of the same problem: .*k = 2 and 0, not {mixed().nv} and 0",
    ),
    "batches that do not fit": (
        lambda: step(Problem(planar(), BATCH), np.zeros((4, 2)), 0.02),
        r"do not broadcast: problem.tasks.rest.q: \(3, 2\) of which batch \(3,\), q: \(4, 2\) of which batch \(4,\)",
    ),
    "times that do not fit": (steps(np.zeros((4, 2)), np.full(3, 0.1)), r"do not broadcast: .*motion.dt: \(3,\)"),
    "nothing to move": (
        lambda: step(
            Problem(rigid(), {"tip": jaxik.FrameTask(rigid().frame("tip"), jnp.zeros(3), orientation_cost=None)}),
            np.zeros(0),
            0.1,
        ),
        "rigid has no degrees of freedom: there is nothing to move",
    ),
}


def rigid() -> jaxik.Robot:
    return jaxik.load_robot('<mujoco model="rigid"><worldbody><site name="tip"/></worldbody></mujoco>')


@pytest.mark.filterwarnings("ignore:.*it has no joints")
@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_named(case: str) -> None:
    make, said = REFUSED[case]
    with pytest.raises(JaxikError, match=said):
        make()
