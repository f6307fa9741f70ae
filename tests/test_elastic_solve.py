"""Constraints and limits of `solve` and `search` that yield: slack variables in SciPy, derivatives, statuses."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
import scipy.optimize
from derivatives import ahead_and_behind, along_random_motion, check_tangents, solved_along
from tables import exhaustive

import jaxik
from jaxik import (
    ConfigurationLimit,
    DampingTask,
    DerivativeStatus,
    Elastic,
    FrameTask,
    JaxikError,
    JaxikWarning,
    PositionLimit,
    PostureTask,
    Problem,
    Status,
    VelocityLimit,
)
from jaxik.limits.base import Limit
from jaxik.problem.problem import check_solvable
from jaxik.solvers.nonlinear.solve import check_rule

LENGTHS = np.array([0.5, 0.4, 0.3])
RANGE, COST = 3.0, 0.3
COUNT, STEP = 60, 1e-6
ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
<body><joint name="first" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
  <body pos="0.5 0 0"><joint name="second" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
    <body pos="0.4 0 0"><joint name="third" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
      <site name="tip" pos="0.3 0 0"/>
</body></body></body></worldbody></mujoco>"""


class Given(NamedTuple):
    """Cases: a target (n, 3), penalties (n,) of it and of a wall x <= offset (n,), and a posture (n, 3)."""

    target: Any
    penalty: Any
    offset: Any
    wall_penalty: Any
    posture: Any


@functools.cache
def arm(xml: str = ARM) -> Any:
    with jax.ensure_compile_time_eval():
        return jaxik.load_robot(xml)


def points(rng: np.random.Generator, nearest: float, farthest: float, count: int) -> np.ndarray:
    """Positions (n, 3) in the plane, by their distance from the arm."""
    away, angle = rng.uniform(nearest, farthest, count), rng.uniform(-np.pi, np.pi, count)
    return np.stack([away * np.cos(angle), away * np.sin(angle), 0 * angle], axis=1)


@functools.cache
def cases() -> tuple[Given, np.ndarray]:
    """Targets within reach and out of it, half of them behind a wall; and starts (n, 3)."""
    rng = np.random.default_rng(0)
    target = points(rng, 0, 1.8, COUNT)
    offset = np.where(np.arange(COUNT) % 2 == 0, 9.0, rng.uniform(-0.5, 0.5, COUNT))
    penalties = 10.0 ** rng.uniform(-1.5, 1.5, (2, COUNT))
    given = Given(target, penalties[0], offset, penalties[1], rng.uniform(-2, 2, (COUNT, 3)))
    return given, rng.uniform(-2, 2, (COUNT, 3))


def problem_of(given: Given) -> Problem:
    tip = arm().frame("tip")
    aim = FrameTask(tip, jaxlie.SE3.from_translation(jnp.asarray(given.target)), 1.0, None, axes="world")
    wall = Elastic(PositionLimit(tip, [1.0, 0, 0], given.offset), given.wall_penalty, name="wall")
    rest = {"rest": PostureTask(given.posture, cost=COST)}
    return Problem(arm(), rest, (ConfigurationLimit(), wall), {"tip": Elastic(aim, given.penalty)})


@functools.cache
def program() -> Any:
    return solved_along(problem_of, max_steps=200)


@functools.cache
def solved() -> tuple[Any, Any, Given]:
    return along_random_motion(program(), *cases())


def tip_of(q: np.ndarray, lengths: np.ndarray = LENGTHS) -> np.ndarray:
    total = np.cumsum(q)
    return np.array([lengths @ np.cos(total), lengths @ np.sin(total)])


def least(given: Given, i: int, q: np.ndarray) -> tuple[float, float]:
    """The objective of one case at a configuration (3,), and at the minimum that SLSQP finds from there.

    Its variables are joints, how far the tip is off in both ways, and how far it is beyond the wall.
    """
    weights = np.array([given.penalty[i]] * 4 + [given.wall_penalty[i]])

    def value(x: np.ndarray) -> float:
        return 0.5 * COST**2 * np.sum((x[:3] - given.posture[i]) ** 2) + weights @ x[3:]

    off = tip_of(q) - given.target[i, :2]
    start = np.concatenate([q, np.maximum(off, 0), np.maximum(-off, 0), [max(tip_of(q)[0] - given.offset[i], 0)]])
    aims = {"type": "eq", "fun": lambda x: tip_of(x[:3]) - given.target[i, :2] - x[3:5] + x[5:7]}
    wall = {"type": "ineq", "fun": lambda x: given.offset[i] - tip_of(x[:3])[0] + x[7]}
    found = scipy.optimize.minimize(
        value, start, bounds=[(-RANGE, RANGE)] * 3 + [(0, None)] * 5, constraints=[aims, wall], method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )  # fmt: skip
    return value(start), found.fun


def test_solutions_are_minima_of_the_program_with_slack_variables() -> None:
    """What holds is held to 1e-9, and nothing that SciPy finds from there costs less."""
    given, _ = cases()
    _, found, _ = solved()
    assert np.mean(found.status == Status.CONVERGED) > 0.95, found.status
    assert set(found.status) <= {Status.CONVERGED, Status.TIMEOUT}
    yielded, beyond = found.yielded["tip"]["position"][:, :2], found.yielded["wall"][:, 0]
    assert not np.any(np.signbit(beyond))
    # Some hold both rows of the target, some one, some none; walls hold, yield, and do not matter.
    held = np.sum(yielded == 0, axis=1)
    assert min(np.sum(held == k) for k in (0, 1, 2)) > 3 and np.sum(beyond > 0) > 3
    for i in np.flatnonzero(found.status == Status.CONVERGED):
        tip = tip_of(found.q[i])
        turned = given.target[i, :2] - tip
        np.testing.assert_allclose(np.where(yielded[i] == 0, turned, 0), 0, atol=1e-9)
        np.testing.assert_allclose(yielded[i], np.where(yielded[i] == 0, 0, turned), atol=1e-12)
        np.testing.assert_allclose(beyond[i], max(tip[0] - given.offset[i], 0), atol=1e-9)
        here, there = least(given, int(i), found.q[i])
        assert here - there < 1e-8, (i, here, there)


def test_a_larger_penalty_changes_nothing_that_holds() -> None:
    """Neither how many steps it takes, nor where they lead."""
    given, q0 = cases()
    _, found, _ = solved()
    motion = jax.tree.map(np.zeros_like, given)
    larger = given._replace(penalty=1e5 * given.penalty, wall_penalty=1e5 * given.wall_penalty)
    firm = jax.tree.map(np.asarray, program()(larger, motion, q0)[1])
    held = np.all(found.yielded["tip"]["position"] == 0, axis=1) & (found.yielded["wall"][:, 0] == 0)
    assert np.sum(held) > 10 and np.all(firm.status[held] == Status.CONVERGED)
    np.testing.assert_allclose(firm.q[held], found.q[held], atol=1e-7)
    # Where rows weighed what their penalties are it took 63 for 15 steps.
    assert np.mean(firm.iterations[held]) < 1.2 * np.mean(found.iterations[held])


@pytest.mark.parametrize("penalty", [np.nan, 0.0, -1.0])
def test_a_penalty_that_is_not_above_zero_is_told_under_jit(penalty: float) -> None:
    given, q0 = cases()
    motion = jax.tree.map(np.zeros_like, given)
    wrong = given._replace(penalty=np.where(np.arange(COUNT) < 5, penalty, given.penalty))
    found = program()(wrong, motion, q0)[1]
    np.testing.assert_array_equal(np.asarray(found.status) == Status.NONFINITE, np.arange(COUNT) < 5)
    assert np.all(np.isfinite(found.q))


def test_derivatives_are_central_differences() -> None:
    given, _ = cases()
    tangent, found, motion = solved()

    ahead, behind = ahead_and_behind(program(), given, motion, found.q, STEP)
    exact = (found.derivative_status == DerivativeStatus.EXACT) & (found.status == Status.CONVERGED)
    # Differences divide what is left by 2e-6.
    exact &= np.max([x.stationarity for x in (found, ahead, behind)], axis=0) < 1e-12
    # Another start may lead elsewhere.
    exact &= np.max(np.abs(ahead.q - found.q), axis=1) < 1e-3
    assert np.mean(exact) > 0.5
    assert np.sum(exact & np.any(found.yielded["tip"]["position"] != 0, axis=1)) > 10
    check_tangents(tangent, [ahead, behind], STEP, exact)


@exhaustive
def test_a_search_holds_what_it_can_and_says_what_yields() -> None:
    tip = arm().frame("tip")
    places = jaxlie.SE3.from_translation(jnp.asarray([[0.6, 0.4, 0], [2.0, 0, 0], [np.nan, 0, 0]]))
    aim = FrameTask(tip, places, 1.0, None, axes="world")
    problem = Problem(arm(), {"rest": PostureTask(np.zeros(3), cost=0.1)}, None, {"tip": Elastic(aim)})
    found = jaxik.search(problem, jax.random.key(0), options=jaxik.SearchOptions(max_starts=4, num_candidates=1))
    np.testing.assert_array_equal(found.status, [Status.CONVERGED, Status.CONVERGED, Status.NONFINITE])
    yielded = np.asarray(found.yielded["tip"]["position"])
    np.testing.assert_array_equal(yielded[0], 0)
    np.testing.assert_allclose(yielded[1], [0.8, 0, 0], atol=1e-9)  # the stretched arm reaches 1.2 m
    assert np.isnan(yielded[2, 0])
    assert "yielded" not in repr(jax.tree.map(lambda x: x[0], found))
    assert "; yielded tip/position 0.8 m" in repr(jax.tree.map(lambda x: x[1], found))


@jaxik.pytree
class NoRows(Limit):
    """One that `solve` does not hold."""


def tip_at(**more: Any) -> FrameTask:
    return FrameTask(arm().frame("tip"), jaxlie.SE3.identity(), 1.0, None, **more)


@pytest.mark.parametrize(
    ("tasks", "limits", "constraints", "rule", "said"),
    [
        ({"rest": PostureTask(np.zeros(3))}, (Elastic(NoRows()),), {}, "lm", "a NoRows holds"),
        (
            {"rest": PostureTask(np.zeros(3))},
            (Elastic(ConfigurationLimit()), Elastic(ConfigurationLimit(margin=0.1), name="near")),
            {},
            "lm",
            "'configuration_limit' and 'near': in solve and search one ConfigurationLimit may yield",
        ),
        ({"rest": PostureTask(np.zeros(3))}, (Elastic(ConfigurationLimit()),), {}, "dls", "take step_rule='lm'"),
        ({"rest": PostureTask(np.zeros(3))}, None, {"tip": None}, "dls", "'tip' is Elastic: take step_rule='lm'"),
    ],
)
def test_what_solve_cannot_let_yield_is_told_in_one_line(
    tasks: Any, limits: Any, constraints: Any, rule: str, said: str
) -> None:
    constraints = {name: Elastic(tip_at()) for name in constraints}
    with pytest.raises(JaxikError) as raised:
        jaxik.solve(Problem(arm(), tasks, limits, constraints), options=jaxik.SolveOptions(step_rule=rule))
    assert said in str(raised.value) and "\n" not in str(raised.value), str(raised.value)


def test_what_solve_leaves_out_is_not_refused() -> None:
    """Elastic limits of motion and velocity tasks at a priority of their own, which act in steps alone."""
    postures = {"rest": PostureTask(np.zeros(3)), "turn": PostureTask(np.zeros(3), priority=1)}
    speed = (ConfigurationLimit(), Elastic(VelocityLimit(1.0)))
    check_solvable(Problem(arm(), postures, speed))
    check_rule("dls", Problem(arm(), {"rest": postures["rest"]}, speed))
    damped = {"rest": postures["rest"], "slow": DampingTask(priority=1)}
    with pytest.warns(JaxikWarning, match="solve leaves out slow"):
        check_solvable(Problem(arm(), damped, None, {"tip": Elastic(tip_at())}))
