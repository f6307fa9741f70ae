"""Joint limits of `solve` and `search` that yield: slack variables in SciPy, derivatives, statuses."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
import scipy.optimize
from derivatives import ahead_and_behind, along_random_motion, check_tangents, solved_along
from tables import exhaustive, mostly_exhaustive
from test_elastic_solve import ARM, LENGTHS, RANGE, arm, points, tip_of

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
    target = points(rng, 0.3, 1.1, COUNT)
    given = Given(
        target, rng.uniform(0.5, 2.5, COUNT), 10 ** rng.uniform(-2, 0.5, COUNT), rng.uniform(-2, 2, (COUNT, 3))
    )
    return given, rng.uniform(-2, 2, (COUNT, 3))


def problem_of(given: Given, held: bool) -> Problem:
    """The tip a constraint where `held`, else a task."""
    aim = FrameTask(arm().frame("tip"), jaxlie.SE3.from_translation(jnp.asarray(given.target)), 1.0, None, axes="world")
    rest = {"rest": PostureTask(given.posture, cost=REST)}
    soft = Elastic(ConfigurationLimit(margin=given.margin), given.penalty, name="comfort")
    tasks, constraints = (rest, {"tip": aim}) if held else ({**rest, "tip": aim}, {})
    return Problem(arm(), tasks, (ConfigurationLimit(), soft), constraints)


@functools.cache
def program(held: bool) -> Any:
    return solved_along(lambda given: problem_of(given, held), max_steps=100)


@functools.cache
def solved(held: bool) -> tuple[Any, Any, Given]:
    return along_random_motion(program(held), *cases())


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


@pytest.mark.parametrize("solutions", mostly_exhaustive([1, 4], [1]))
def test_a_search_stays_inside_where_it_can_and_goes_beyond_where_it_must(solutions: int) -> None:
    """Joints up to 1.2 rad with a margin of 0.3, given positions that they reach: what it returns is where it says."""
    robot = jaxik.load_robot(ARM.replace("-3 3", "-1.2 1.2"))
    tip, hard = robot.frame("tip"), ConfigurationLimit()
    target = robot.frame_pose(robot.sample(jax.random.key(0), (128,)), tip).translation()
    aim = FrameTask(tip, target, orientation_cost=None)
    soft = Elastic(ConfigurationLimit(margin=0.3), 1e-6, name="near")
    options = jaxik.SearchOptions(max_starts=16, solutions=solutions)
    found = jaxik.search(Problem(robot, {"tip": aim}, (hard, soft)), jax.random.key(1), options=options)
    found = jax.tree.map(lambda x: np.asarray(x) if solutions > 1 else np.asarray(x)[:, None], found)
    reached, beyond = found.status == Status.CONVERGED, np.any(found.yielded["near"] != 0, axis=-1)
    assert np.mean(reached[:, 0]) > 0.95
    off = np.linalg.norm(robot.frame_pose(found.q, tip).translation() - target[:, None], axis=-1)
    assert np.max(off[reached]) < 2e-4
    np.testing.assert_array_equal(robot.clamp(found.q), found.q)
    far = np.sign(found.q) * np.maximum(np.abs(found.q) - (1.2 - 0.3), 0)
    np.testing.assert_allclose(found.yielded["near"], far, atol=1e-15)
    least = np.array([inside_reach(np.asarray(x)) for x in target])
    # A grid has a position inside for each that is reached there.
    assert not np.any(beyond[:, 0] & reached[:, 0] & least) and np.sum(beyond & reached) > 10


def inside_reach(target: np.ndarray) -> bool:
    """Whether joints up to 0.9 rad surely reach a position: all others being so, the last two do."""
    first = np.linspace(-0.9, 0.9, 61)
    x, y = target[0] - LENGTHS[0] * np.cos(first), target[1] - LENGTHS[0] * np.sin(first)
    cosine = (x**2 + y**2 - LENGTHS[1] ** 2 - LENGTHS[2] ** 2) / (2 * LENGTHS[1] * LENGTHS[2])
    for third in (np.arccos(np.clip(cosine, -1, 1)), -np.arccos(np.clip(cosine, -1, 1))):
        bend = np.arctan2(LENGTHS[2] * np.sin(third), LENGTHS[1] + LENGTHS[2] * np.cos(third))
        second = np.arctan2(y, x) - bend - first
        if np.any((np.abs(cosine) < 1) & (np.abs(third) < 0.85) & (np.abs(second) < 0.85) & (np.abs(first) < 0.85)):
            return True
    return False


BOTH = pytest.mark.parametrize("held", [False, pytest.param(True, marks=exhaustive)], ids=["task", "constraint"])


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

    ahead, behind = ahead_and_behind(program(held), given, motion, found.q, STEP)
    exact = (found.derivative_status == DerivativeStatus.EXACT) & (found.status != Status.INFEASIBLE)
    # Another start may lead elsewhere.
    exact &= np.max(np.abs([ahead.q - found.q, behind.q - found.q]), axis=(0, 2)) < 1e-3
    # Differences divide what is left by 2e-5.
    exact &= np.max([x.stationarity for x in (found, ahead, behind)], axis=0) < 3e-11
    assert np.mean(exact) > 0.6
    assert np.sum(exact & np.any(found.yielded["comfort"] != 0, axis=1)) > 10
    check_tangents(tangent, [ahead, behind], STEP, exact)


def test_what_is_held_stays_and_a_ball_keeps_the_limit_that_holds() -> None:
    robot = jaxik.load_robot(
        """<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
        <body><joint name="ball" type="ball" range="0 1.5"/><geom size="0.1"/>
          <body pos="0.5 0 0"><joint name="held" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
            <body pos="0.4 0 0"><joint name="free" axis="0 0 1" range="-3 3"/><geom size="0.1"/></body></body>
        </body></worldbody></mujoco>"""
    )
    q0 = jnp.concatenate([jaxlie.SO3.from_z_radians(1.2).wxyz, jnp.array([2.5, 2.5])])
    limits = ConfigurationLimit(), Elastic(ConfigurationLimit(margin=1.0), 10.0, name="near")
    problem = Problem(robot, {"rest": PostureTask(q0)}, limits, dof_mask=jnp.array([1, 1, 1, 0, 1], bool))
    found = jaxik.solve(problem, q0)
    np.testing.assert_allclose(found.q, q0.at[5].set(2.0), atol=1e-12)
    np.testing.assert_array_equal(found.yielded["near"], 0)
