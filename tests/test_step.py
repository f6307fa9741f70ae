"""What `step` does with one robot: where it leads, what it says, and in which order it obeys."""

from functools import cache
from typing import Any

import jax
import jaxlie
import numpy as np
import pytest

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    FrameTask,
    PostureTask,
    Problem,
    Status,
    VelocityLimit,
    linearize,
    step,
)
from jaxik.robot.robot import Robot

DT = 0.02
TIGHT = 2.0  # rad/s, which stops some joints and leaves others room


@cache
def panda() -> Robot:
    return jaxik.load_robot("panda")


def low() -> np.ndarray:
    return np.asarray(panda().limit_lower)


def high() -> np.ndarray:
    return np.asarray(panda().limit_upper)


def middle() -> np.ndarray:
    return (low() + high()) / 2


@cache
def usual() -> dict[str, Any]:
    """What a case does not say of itself: a tip to be moved by 0.1 m, a posture below it, no limit that matters."""
    start = np.array([0.1, -0.5, 0.2, -2.0, 0.1, 1.8, 0.7])
    pose = np.asarray(panda().frame_pose(start, "tcp").wxyz_xyz)
    return {
        "q": start,
        "target": pose + np.array([0, 0, 0, 0, 0.06, 0.08, 0]),
        "posture": middle(),
        "tip_cost": 1.0,
        "turn_cost": 1.0,
        "rest_cost": 1.0,
        "gain": 1.0,
        "margin": 0.0,
        "fast": 1e3,
        "slow": -1e3,
        "hard": 1e9,
        "mask": np.ones(7, bool),
        "dt": DT,
        "damping": 1e-6,
        "previous": np.zeros(7),
    }


def problem(at: dict[str, Any]) -> Problem:
    tasks = {
        "tip": FrameTask(panda().frame("tcp"), jaxlie.SE3(at["target"]), at["tip_cost"], at["turn_cost"]),
        "rest": PostureTask(at["posture"], at["rest_cost"], priority=1),
    }
    limits = (
        ConfigurationLimit(at["gain"], at["margin"]),
        VelocityLimit(at["fast"], at["slow"]),
        AccelerationLimit(at["hard"]),
    )
    return Problem(panda(), tasks, limits, dof_mask=at["mask"])


@jax.jit
@jax.vmap
def stepped(at: dict[str, Any]) -> tuple[Any, jaxik.StepResult]:
    given = {"damping": at["damping"], "previous_velocity": at["previous"]}
    return linearize(problem(at), at["q"], at["dt"], **given), step(problem(at), at["q"], at["dt"], **given)


def with_pose(q: Any) -> dict[str, Any]:
    return {"q": np.asarray(q), "target": np.asarray(panda().frame_pose(np.asarray(q), "tcp").wxyz_xyz)}


def nan(name: str, at: Any) -> dict[str, Any]:
    value = np.array(usual()[name], float)
    value[at] = np.nan
    return {name: value}


BEYOND = np.array([1, -1, 1, -1, -1, 1, -1]) * 5.0
NO_TIP = {"tip_cost": 0.0, "turn_cost": 0.0}
NEAR = usual()["target"] - np.array([0, 0, 0, 0, 0.048, 0.064, 0])
NARROW = {"fast": TIGHT, "slow": -TIGHT, "turn_cost": 0.0, "target": NEAR}
FROZEN = np.array([1, 0, 1, 1, 1, 0, 1], bool)
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "half the time": {"dt": DT / 2},
    "fulfilled": {**with_pose(usual()["q"]), "posture": usual()["q"]},
    "fulfilled above": {**with_pose(usual()["q"]), "posture": usual()["q"] + 0.3},
    "onto the bounds": {**NO_TIP, "posture": middle() + BEYOND},
    "onto the other bounds": {**NO_TIP, "posture": middle() - BEYOND},
    "most of the way to the bounds": {**NO_TIP, "posture": middle() + BEYOND, "gain": 0.5},
    "onto the margin": {**NO_TIP, "posture": middle() + BEYOND, "margin": 0.05},
    "on a bound already": {**NO_TIP, "q": np.append(low()[0], usual()["q"][1:]), "posture": low() - 1.0},
    "both ways, one slower": {**NO_TIP, "posture": usual()["q"] + BEYOND, "fast": 1.0, "slow": -0.2},
    "light below": {"rest_cost": 1e-4},
    "heavy below": {"rest_cost": 1e4},
    "light below a light one": {"tip_cost": 1e-4, "turn_cost": 1e-4, "rest_cost": 1e-4},
    "heavy below a light one": {"tip_cost": 1e-4, "turn_cost": 1e-4, "rest_cost": 1e4},
    "light below, slow": {"rest_cost": 1e-4, **NARROW},
    "heavy below, slow": {"rest_cost": 1e4, **NARROW},
    "held": {"mask": FROZEN},
    "outside": {"q": usual()["q"] + np.array([3.5, 0, 0, 0, 0, -3.0, 0]), "fast": 1.0, "slow": -0.5},
    "faster than it may brake": {"previous": np.full(7, 0.5), "hard": 2.0, "target": usual()["target"]},
    "NaN in q": nan("q", 2),
    "NaN in the target": nan("target", 5),
    "NaN in the quaternion": nan("target", 0),
    "NaN below": nan("posture", 3),
    "NaN as damping": {"damping": np.nan},
    "NaN as a cost": {"tip_cost": np.nan},
    "NaN as time": {"dt": np.nan},
    "no time": {"dt": 0.0},
    "NaN before": nan("previous", 1),
    "NaN as a limit": {"fast": np.nan},
}


def batch(cases: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.stack([np.asarray({**usual(), **case}[name]) for case in cases]) for name in usual()}


@cache
def answers() -> dict[str, tuple[dict[str, Any], Any, jaxik.StepResult]]:
    """For each case what was asked, its quadratic program, and the step."""
    given = batch(list(CASES.values()))
    model, result = jax.device_get(stepped(given))
    return {
        name: (
            {key: value[i] for key, value in given.items()},
            jax.tree.map(lambda x, i=i: x[i], model),
            jax.tree.map(lambda x, i=i: x[i], result),
        )
        for i, name in enumerate(CASES)
    }


def test_a_tenth_of_a_metre_is_covered_in_few_steps() -> None:
    given, distances = batch([{"rest_cost": 0.0}, {}] + [{}] * (len(CASES) - 2)), []
    for _ in range(20):
        result = jax.device_get(stepped(given)[1])
        distances.append(np.linalg.norm(result.residuals["tip"]["position"][:2], axis=1))
        given["q"] = result.q
    distances = np.stack(distances)
    np.testing.assert_allclose(distances[0], 0.1, rtol=1e-12)
    going = distances[:-1] > 1e-12
    assert (np.diff(distances, axis=0)[going] < 0).all()
    assert distances[-1].max() < 1e-6


LOST = [name for name in CASES if name.startswith(("NaN", "no time"))]


def test_a_step_is_the_displacement_over_its_time() -> None:
    for name, (asked, _, result) in answers().items():
        if name not in LOST:
            assert result.status == Status.CONVERGED, name
            moved = np.asarray(panda().difference(asked["q"], result.q))
            np.testing.assert_allclose(moved, result.velocity * asked["dt"], atol=1e-15, err_msg=name)


def test_half_the_time_is_twice_the_velocity() -> None:
    _, _, whole = answers()["plain"]
    _, _, half = answers()["half the time"]
    np.testing.assert_allclose(half.velocity, 2 * whole.velocity, rtol=1e-12)
    np.testing.assert_allclose(half.q, whole.q, atol=1e-15)


def test_fulfilled_tasks_give_zero() -> None:
    _, _, result = answers()["fulfilled"]
    np.testing.assert_allclose(result.velocity, 0, atol=1e-10)
    _, model, result = answers()["fulfilled above"]
    assert np.abs(result.velocity).max() > 0.1  # the posture pulls
    np.testing.assert_allclose(tip_motion(model, result, DT), 0, atol=1e-12)


def tip_motion(model: Any, result: jaxik.StepResult, dt: float) -> np.ndarray:
    """J x of the tip."""
    return np.concatenate(jax.tree.leaves(model.jacobians["tip"])) @ result.velocity * dt


PAIRS = [
    ("light below", "heavy below"),
    ("light below a light one", "heavy below a light one"),
    ("light below, slow", "heavy below, slow"),
]


@pytest.mark.parametrize(("light", "heavy"), PAIRS)
def test_a_lower_level_does_not_move_a_higher_one(light: str, heavy: str) -> None:
    _, model, one = answers()[light]
    _, _, other = answers()[heavy]
    rows = slice(3, 6) if light.endswith("slow") else slice(0, 6)  # those with a cost: its turn comes first
    np.testing.assert_allclose(tip_motion(model, one, DT)[rows], tip_motion(model, other, DT)[rows], atol=1e-10)
    # The tip's own minimum, which knows no posture: the first level's.
    first = np.concatenate(jax.tree.leaves(model.jacobians["tip"]))[rows]
    np.testing.assert_allclose(tip_motion(model, other, DT)[rows], first @ one.qp.x, atol=1e-10)
    assert np.abs(other.velocity * DT - one.qp.x).max() > 1e-3  # and the posture does act
    if light.endswith("slow"):
        assert np.isclose(np.abs(other.velocity), TIGHT, rtol=1e-12).sum() >= 2


def test_a_step_lands_on_a_bound_bitwise() -> None:
    for name, bounds in (
        ("onto the bounds", np.where(BEYOND > 0, high(), low())),
        ("onto the other bounds", np.where(BEYOND > 0, low(), high())),
    ):
        _, _, result = answers()[name]
        np.testing.assert_array_equal(result.q, bounds)
    _, _, result = answers()["onto the margin"]
    np.testing.assert_array_equal(result.q, np.where(BEYOND > 0, high() - 0.05, low() + 0.05))
    asked, _, result = answers()["most of the way to the bounds"]
    np.testing.assert_allclose(result.q, (asked["q"] + np.where(BEYOND > 0, high(), low())) / 2, atol=1e-15)
    _, _, result = answers()["on a bound already"]
    assert result.q[0] == low()[0] and result.velocity[0] == 0


def test_velocity_limits_may_differ_by_direction() -> None:
    """mjinx has the two swapped."""
    _, _, result = answers()["both ways, one slower"]
    np.testing.assert_allclose(result.velocity, np.where(BEYOND > 0, 1.0, -0.2), rtol=1e-15)
    np.testing.assert_allclose(
        np.where(BEYOND > 0, result.limit_margins["upper"], result.limit_margins["lower"]), 0, atol=1e-17
    )


def test_frozen_joints_stay_while_others_move() -> None:
    asked, _, result = answers()["held"]
    np.testing.assert_array_equal(result.q[~FROZEN], asked["q"][~FROZEN])
    np.testing.assert_array_equal(result.velocity[~FROZEN], 0)
    assert np.abs(result.velocity[FROZEN]).min() > 1e-3


def test_a_start_outside_its_limits_comes_back_at_the_speed_that_it_is_allowed() -> None:
    """mink and pink find no solution."""
    asked, _, result = answers()["outside"]
    assert asked["q"][0] > high()[0] and asked["q"][5] < low()[5]
    np.testing.assert_allclose(result.velocity[[0, 5]], [-0.5, 1.0], rtol=1e-15)


def test_acceleration_is_limited_from_the_step_before() -> None:
    asked, _, result = answers()["faster than it may brake"]
    change = result.velocity - asked["previous"]
    assert np.abs(change).max() <= 2.0 * DT * (1 + 1e-12)
    assert np.isclose(np.abs(change), 2.0 * DT).any()


@pytest.mark.parametrize("name", LOST)
def test_what_is_not_finite_is_said_and_moves_nothing(name: str) -> None:
    asked, _, result = answers()[name]
    assert result.status == Status.NONFINITE
    np.testing.assert_array_equal(result.velocity, 0)
    np.testing.assert_array_equal(result.q, np.where(np.isnan(asked["q"]), panda().q_home, asked["q"]))
