"""Joint limits of `solve` and `search` that yield: slack variables in SciPy, derivatives, statuses."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
import scipy.optimize
from tables import exhaustive
from test_elastic_solve import RANGE, arm, tip_of

import jaxik
from jaxik import (
    ConfigurationLimit,
    DerivativeStatus,
    Elastic,
    FrameTask,
    PostureTask,
    Problem,
    Status,
)

REST = 0.1
COUNT, STEP = 64, 1e-5


class Given(NamedTuple):
    """Cases: a target (n, 3), margins (n,) that yield and their penalties (n,), and a posture (n, 3)."""

    target: Any
    margin: Any
    penalty: Any
    posture: Any


@functools.cache
def cases() -> tuple[Given, np.ndarray]:
    """Targets within reach, margins up to most of the range; and starts (n, 3)."""
    rng = np.random.default_rng(0)
    away, angle = rng.uniform(0.3, 1.1, COUNT), rng.uniform(-np.pi, np.pi, COUNT)
    target = np.stack([away * np.cos(angle), away * np.sin(angle), 0 * angle], axis=1)
    given = Given(
        target, rng.uniform(0.5, 2.5, COUNT), 10 ** rng.uniform(-2, 0.5, COUNT), rng.uniform(-2, 2, (COUNT, 3))
    )
    return given, rng.uniform(-2, 2, (COUNT, 3))


def problem_of(given: Given, held: bool) -> Problem:
    """The tip a constraint where `held`, else a task."""
    aim = FrameTask(arm().frame("tip"), jaxlie.SE3.from_translation(jnp.asarray(given.target)), 1.0, None, axes="world")
    tasks, limits = {"rest": PostureTask(given.posture, cost=REST)}, (
        ConfigurationLimit(),
        Elastic(ConfigurationLimit(margin=given.margin), given.penalty, name="comfort"),
    )  # fmt: skip
    return Problem(arm(), tasks if held else {**tasks, "tip": aim}, limits, {"tip": aim} if held else {})


@functools.cache
def program(held: bool) -> Any:
    """Solutions with their derivatives along a motion of what is given."""

    def outcome(given: Given, q0: Any) -> Any:
        found = jaxik.solve(problem_of(given, held), q0, options=jaxik.SolveOptions(max_steps=100))
        return (found.q, found.yielded, found.cost), found

    @jax.jit
    def run(given: Given, motion: Given, q0: Any) -> Any:
        _, tangent, found = jax.jvp(lambda given: outcome(given, q0), (given,), (motion,), has_aux=True)
        return tangent, found

    return run


@functools.cache
def solved(held: bool) -> tuple[Any, Any, Given]:
    given, q0 = cases()
    rng = np.random.default_rng(1)
    motion = Given(*(rng.normal(size=x.shape) * np.minimum(1, x**2) for x in given))
    motion.target[:, 2] = 0  # the arm is planar
    tangent, found = program(held)(given, motion, q0)
    return jax.tree.map(np.asarray, tangent), jax.tree.map(np.asarray, found), motion


def least(given: Given, i: int, q: np.ndarray, held: bool) -> tuple[float, float]:
    """The objective of one case at a configuration (3,), and at the minimum that SLSQP finds from there.

    Its variables are joints, and how far each is beyond its margin.
    """
    inside = RANGE - given.margin[i]

    def off(x: np.ndarray) -> np.ndarray:
        return tip_of(x[:3]) - given.target[i, :2]

    def value(x: np.ndarray) -> float:
        rest = 0.5 * REST**2 * np.sum((x[:3] - given.posture[i]) ** 2) + given.penalty[i] * np.sum(x[3:])
        return rest if held else rest + 0.5 * off(x) @ off(x)

    start = np.concatenate([q, np.maximum(np.abs(q) - inside, 0)])
    rows = [{"type": "ineq", "fun": lambda x, sign=sign: inside + x[3:] - sign * x[:3]} for sign in (1, -1)]
    rows += [{"type": "eq", "fun": off}] if held else []
    found = scipy.optimize.minimize(
        value, start, bounds=[(-RANGE, RANGE)] * 3 + [(0, None)] * 3, constraints=rows, method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )  # fmt: skip
    return value(start), found.fun


@exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_search_stays_inside_where_it_can_and_goes_beyond_where_it_must(dtype: str) -> None:
    robot = jaxik.load_robot("panda")
    hand, starts = robot.frame("hand"), jnp.asarray(robot.q_home[None], dtype)
    target = FrameTask(hand, robot.frame_pose(robot.sample(jax.random.key(0), (512,)), hand))
    soft = Elastic(ConfigurationLimit(margin=0.3), 1e-6, name="comfort")
    key, hard = jax.random.key(1), ConfigurationLimit()
    inside = jaxik.search(Problem(robot, {"hand": target}, (ConfigurationLimit(margin=0.3),)), key, starts=starts)
    found = jaxik.search(Problem(robot, {"hand": target}, (hard, soft)), key, starts=starts)
    beyond, reached = np.any(found.yielded["comfort"] != 0, axis=1), np.asarray(found.status) == Status.CONVERGED
    assert np.mean(reached) > 0.99
    # What the same search finds inside of the margin stays there, but for what its second half of starts finds.
    assert np.sum(beyond & (np.asarray(inside.status) == Status.CONVERGED)) < 5
    assert np.sum(beyond & reached) > 20
    np.testing.assert_array_equal(robot.clamp(found.q), found.q)


BOTH = pytest.mark.parametrize("held", [False, True], ids=["task", "constraint"])


@BOTH
def test_solutions_are_minima_of_the_program_with_slack_variables(held: bool) -> None:
    """What is inside costs nothing, and nothing that SciPy finds from there costs less."""
    given, _ = cases()
    _, found, _ = solved(held)
    # A tip that the posture draws away from its target is no task that is met: STALLED.
    ends = {Status.CONVERGED, Status.INFEASIBLE} if held else {Status.STALLED}
    assert np.mean(np.isin(found.status, list(ends))) > 0.95
    minima = np.isin(found.status, [Status.CONVERGED, Status.STALLED])
    # Without what yields 79 % are met, from one start.
    assert np.mean(minima) > 0.75, np.flatnonzero(~minima)
    inside, yielded = RANGE - given.margin[:, None], found.yielded["comfort"]
    np.testing.assert_array_equal(yielded, np.sign(found.q) * np.maximum(np.abs(found.q) - inside, 0))
    at = np.abs(found.q) == inside
    assert np.sum(at) > 10 and np.sum(yielded > 0) > 5 and np.sum(yielded < 0) > 5
    for i in np.flatnonzero(minima):
        here, there = least(given, int(i), found.q[i], held)
        assert here - there < 1e-9, (i, here, there)


@BOTH
def test_derivatives_are_central_differences(held: bool) -> None:
    given, _ = cases()
    tangent, found, motion = solved(held)

    def moved(step: float) -> Any:
        there = Given(*(x + step * m for x, m in zip(given, motion, strict=True)))
        return jax.tree.map(np.asarray, program(held)(there, motion, found.q)[1])

    ahead, behind = moved(STEP), moved(-STEP)
    exact = (found.derivative_status == DerivativeStatus.EXACT) & (found.status != Status.INFEASIBLE)
    # Another start may lead elsewhere.
    exact &= np.max(np.abs([ahead.q - found.q, behind.q - found.q]), axis=(0, 2)) < 1e-3
    # Differences divide what is left by 2e-5.
    exact &= np.max([x.stationarity for x in (found, ahead, behind)], axis=0) < 3e-11
    assert np.mean(exact) > 0.6
    assert np.sum(exact & np.any(found.yielded["comfort"] != 0, axis=1)) > 10
    for one, far, near in zip(
        jax.tree.leaves(tangent),
        *(jax.tree.leaves((x.q, x.yielded, x.cost)) for x in (ahead, behind)),
        strict=True,
    ):
        np.testing.assert_allclose(one[exact], (far - near)[exact] / (2 * STEP), atol=1e-5, rtol=1e-5)
