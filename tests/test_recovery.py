"""A step back inside limits that demand more together than there is: as fast as all can, and not standing still."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.optimize import linprog
from tables import exhaustive, mostly_exhaustive
from test_step_rules import ARM

import jaxik
from jaxik import (
    ConfigurationLimit,
    DerivativeStatus,
    FrameTask,
    PositionLimit,
    PostureTask,
    Problem,
    Status,
    VelocityLimit,
)
from jaxik.limits.combine import MergedRows
from jaxik.qp_solver import ActiveSet, Program, QPOptions
from jaxik.solvers.differential.limit_recovery import Demands, minimise_at_largest_scale

FAST, DT, STEPS = 1.0, 0.02, 40
TOGETHER = """
<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
  <body><joint name="a" axis="0 0 1" range="-1 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
    <body pos="1 0 0"><joint name="b" axis="0 0 1" range="-3 3"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
</body></body></worldbody><equality><joint joint1="b" joint2="a" polycoef="0 2 0 0 0"/></equality></mujoco>"""
FOUR_BAR = """
<mujoco><compiler angle="radian"/><default><geom type="capsule" size="0.01"/></default><worldbody>
  <body><joint axis="0 0 1"/><geom fromto="0 0 0 0.1 0 0"/>
    <body pos="0.1 0 0"><joint axis="0 0 1"/><geom fromto="0 0 0 0.35 0 0"/><site name="pin" pos="0.35 0 0"/></body>
  </body>
  <body pos="0.3 0 0"><joint axis="0 0 1"/><geom fromto="0 0 0 0.2 0 0"/><site name="end" pos="0.2 0 0"/></body>
</worldbody><equality><connect site1="pin" site2="end"/></equality></mujoco>"""
START = np.array([0.1, -0.5, 0.2, -2, 0.1, 1.8, 0.7])


def coupled() -> tuple[Problem, Any, Callable[[Any], Any]]:
    """The follower may turn no faster than the leader, which is to come back at full speed."""
    robot = jaxik.load_robot(TOGETHER)
    problem = Problem(robot, {"rest": PostureTask(np.zeros(2))}, (ConfigurationLimit(), VelocityLimit(FAST)))
    return problem, np.array([1.2, 2.4]), lambda q: q[0] - 1


def behind(*planes: tuple[list[float], float], upright: bool = False) -> Any:
    """Panda's tool behind planes by some distance."""

    def scene() -> tuple[Problem, Any, Callable[[Any], Any]]:
        robot = jaxik.load_robot("panda")
        tip = robot.frame("tcp")
        place = np.asarray(robot.frame_pose(START, tip).translation())
        limits = tuple(PositionLimit(tip, normal, float(place @ normal) - by) for normal, by in planes)
        held = {"upright": FrameTask.from_configuration(robot, START, "tcp", position_cost=None)} if upright else {}
        tasks = {"rest": PostureTask(robot.q_home, 0.01)}
        problem = Problem(robot, tasks, (ConfigurationLimit(), VelocityLimit(FAST), *limits), held)

        def beyond(q: Any) -> Any:
            at = np.asarray(robot.frame_pose(q, tip).translation())
            return max(float(at @ np.asarray(limit.normal) - limit.offset) for limit in limits)

        return problem, START, beyond

    return scene


def apart(source: str, q: list[float], gap: Callable[[mujoco.MjData], float]) -> Any:
    """A robot off a constraint of its model, by a gap that MuJoCo tells, and a posture."""

    def scene() -> tuple[Problem, Any, Callable[[Any], Any]]:
        robot, model = jaxik.load_robot(source), mujoco.MjModel.from_xml_string(source)
        problem = Problem(robot, {"rest": PostureTask(np.array(q), 0.01)}, (ConfigurationLimit(), VelocityLimit(FAST)))

        def beyond(q: Any) -> float:
            data = mujoco.MjData(model)
            data.qpos = q
            mujoco.mj_kinematics(model, data)
            return gap(data)

        return problem, np.array(q), beyond

    return scene


SCENES = {
    "a loop that is open": apart(
        FOUR_BAR, [0, 0.5, 1.5], lambda data: np.linalg.norm(data.site("pin").xpos - data.site("end").xpos)
    ),
    "a joint off its coupling": apart(TOGETHER, [0.2, 1.5], lambda data: abs(data.qpos[1] - 2 * data.qpos[0])),
    "a joint that drives another": coupled,
    "two planes": behind(([0.0, 0, 1], 0.05), ([1.0, 0, 0], 0.05)),
    "a plane, upright": behind(([0.0, 0, 1], 0.05), upright=True),
}


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float32, np.float64], [np.float32]))
@pytest.mark.parametrize("name", mostly_exhaustive(SCENES, ["a loop that is open"]))
def test_what_is_outside_comes_back_although_not_all_of_it_can_at_once(name: str, dtype: Any) -> None:
    problem, q, beyond = SCENES[name]()

    at = jnp.asarray(q, dtype)
    step = jax.jit(lambda q: jaxik.step(problem, q, DT))
    recovery_scale = jax.jit(lambda q: jaxik.linearize(problem, q, DT).recovery_scale)(at)
    assert 0 < recovery_scale < 1
    gone = beyond(np.asarray(at, float))
    for _ in range(STEPS):
        result = step(at)
        assert result.status == Status.CONVERGED
        assert np.abs(result.velocity).max() <= FAST * (1 + 1e-5)
        at = result.q
    # In 0.8 s; a joint 0.2 rad outside at half its speed needs 0.4 s.
    assert beyond(np.asarray(at, float)) < 1e-4 < gone


def test_a_coupling_that_holds_lets_what_is_squeezed_go_on() -> None:
    """The first variable is squeezed from both sides, so that the scale is zero; the others are coupled."""

    def stepped(gap: jax.Array) -> Any:
        squeezed, coupled = jnp.array([[1.0, 0, 0], [-1, 0, 0]]), jnp.array([[0.0, 1, -1]])
        deep, box = jnp.full(2, -1e-3), (jnp.full(3, -0.01), jnp.full(3, 0.01))
        rows = MergedRows(squeezed, deep, np.ones(2, bool), jnp.zeros(2), jnp.full(2, -0.01))
        demands = Demands(box, rows, (coupled, gap[None]), jnp.ones(1, bool))
        program = Program(jnp.eye(3), jnp.array([0.0, -1, -1]), *box, squeezed, deep, coupled, gap[None])
        return minimise_at_largest_scale(program, demands, None, None)[1]

    found = jax.jit(jax.vmap(stepped))(jnp.array([1e-8, 5e-3]))
    assert found.status.tolist() == [Status.CONVERGED, Status.INFEASIBLE]
    np.testing.assert_allclose(found.x[0], [0, 0.01, 0.01], atol=1e-6)


def test_a_loop_that_no_motion_closes_is_infeasible() -> None:
    problem, q, gap = apart(
        FOUR_BAR.replace('name="end" pos="0.2 0 0"', 'name="end" pos="0.2 0 0.01"'),
        [0, 0.5, 1.5],
        lambda data: np.linalg.norm(data.site("pin").xpos - data.site("end").xpos),
    )()
    result = jaxik.step(problem, q, DT)
    assert result.status == Status.INFEASIBLE and gap(result.q) == gap(q) and not np.any(result.velocity)


@exhaustive
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_demands_that_can_all_be_met_are_met_whole(dtype: Any) -> None:
    problem, q, _ = behind(([0.0, 0, 1], 0.05))()
    q = q.astype(dtype)
    model = jaxik.linearize(problem, q, DT)
    assert model.recovery_scale == 1 and jaxik.step(problem, q, DT).status == Status.CONVERGED


@exhaustive
def test_the_derivative_of_a_shared_way_back_is_approximate() -> None:
    problem, q, _ = coupled()

    def stepped(q: jax.Array) -> Any:
        result = jaxik.step(problem, q, DT)
        return jnp.sum(result.velocity), result

    slope, result = jax.grad(stepped, has_aux=True)(jnp.asarray(q))
    assert result.derivative_status == DerivativeStatus.APPROXIMATE and np.isfinite(slope).all()


@pytest.mark.parametrize(
    ("source", "tool"), [(ARM, "tip"), pytest.param("panda", "tcp", marks=exhaustive)], ids=["short arm", "panda"]
)
@exhaustive
def test_float32_sees_what_cannot_all_be_met_where_float64_does(source: str, tool: str) -> None:
    robot, count = jaxik.load_robot(source), 300
    tip, rng = robot.frame(tool), np.random.default_rng(0)
    q = np.asarray(robot.sample(jax.random.key(0), (count,)))
    place = np.asarray(robot.frame_pose(q, tip).translation())
    normals = rng.standard_normal((2, count, 3))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    by = rng.uniform(0, 0.03, (2, count))

    def demanded(dtype: Any) -> tuple[Problem, Any]:
        planes = [PositionLimit(tip, n, np.sum(place * n, axis=1) - b) for n, b in zip(normals, by, strict=True)]
        limits = (ConfigurationLimit(), VelocityLimit(FAST), *planes)
        return Problem(robot, {"rest": PostureTask(robot.q_home, 0.01)}, limits), jnp.asarray(q, dtype)

    asked, at = demanded(np.float32)
    result = jax.jit(lambda asked, q: jaxik.step(asked, q, DT))(asked, at)
    shares = jax.jit(lambda asked, q: jaxik.linearize(asked, q, DT).recovery_scale)
    recovery_scale, status, wide = shares(asked, at), result.status, shares(*demanded(np.float64))
    # Taken for all of it, a share of 0.995 left 5 of 600 standing, INFEASIBLE.
    assert (status != Status.INFEASIBLE).all()
    # A share above 0.999, of which nine tenths are used, is all to float32, and what it leaves near the tolerance.
    clear = (wide == 1) | (wide < 0.9 * 0.998)
    assert np.mean(clear) > 0.98
    np.testing.assert_array_equal(status[clear], Status.CONVERGED)
    np.testing.assert_allclose(recovery_scale[clear], wide[clear], atol=1e-3)
    assert 0.3 < np.mean(wide < 1) < 0.7


MIXED, FREE = 60, 3


@cache
def conflicts() -> dict[str, np.ndarray]:
    """Two rows that demand nearly opposite motions, two that demand nothing, two elastic; two equalities, one elastic.

    In every third element the box of the first variable demands a motion as well. Elastic ones ask for what cannot be.
    """
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(MIXED, 6, FREE))
    matrix[:, 1] = -matrix[:, 0] + 0.5 * rng.normal(size=(MIXED, FREE))
    right = rng.uniform(0.02, 0.1, (MIXED, 6)) * [-1, -1, 1, 1, -9, -9]
    lower = np.where(np.arange(MIXED)[:, None] % 3 == [0, 3, 3], 0.02, -0.05)
    equal = rng.uniform(-0.002, 0.002, (MIXED, 2)) + np.array([0, 9])
    return {"G": matrix, "h": right, "lower": lower, "A": rng.normal(size=(MIXED, 2, FREE)), "b": equal}


@jax.jit
def shared(given: Any, start: ActiveSet, most: jax.Array) -> Any:
    """The scale, and the minimum, by Euclidean length; `most` iterations for that."""

    def one(given: Any, start: ActiveSet, most: jax.Array) -> Any:
        upper, inf = jnp.full(FREE, 0.05), jnp.full(4, jnp.inf)
        least = -0.1 * jnp.sum(jnp.abs(given["G"][:4]), axis=1)
        rows = MergedRows(given["G"][:4], given["h"][:4], np.zeros(4, bool), jnp.zeros(4), least)
        held = jnp.array([[1.0], [0.0]])
        demands = Demands((given["lower"], upper), rows, (held * given["A"], held[:, 0] * given["b"]))
        penalties = jnp.append(inf, jnp.array([1e-3, 1e-3])), jnp.array([jnp.inf, 1e-3])
        program = Program(jnp.eye(FREE), jnp.zeros(FREE), upper=upper, row_penalties=penalties[0], **given)
        program = program._replace(equality_penalties=penalties[1])
        scale, found = minimise_at_largest_scale(program, demands, start, QPOptions(max_iterations=most))
        return scale, found

    return jax.vmap(one)(given, start, most)


def most_of(i: int) -> float | None:
    """The largest scale of the demands of an element, by HiGHS; None where there is none."""
    at = {name: x[i] for name, x in conflicts().items()}
    moved = np.maximum(at["lower"], 0)
    demanded = np.minimum(at["h"][:4], 0)
    # A motion that the box demands is the scale times that, and one that takes the rest of the room.
    columns = np.column_stack([at["G"][:4], at["G"][:4] @ moved - demanded])
    box = [(min(low, 0), 0.05 - move) for low, move in zip(at["lower"], moved, strict=True)]
    equal = np.append(at["A"][0], at["A"][0] @ moved)[None], at["b"][:1]
    found = linprog([*np.zeros(FREE), -1.0], columns, np.maximum(at["h"][:4], 0), *equal, [*box, (0, 1)])
    return -found.fun if found.status == 0 else None


def test_the_scale_is_that_of_what_holds_whatever_yields_and_from_wherever_the_program_starts() -> None:
    """Cold, from the active set of the same and of another element, and with one iteration for the minimum."""
    given = jax.tree.map(jnp.asarray, conflicts())
    cold = ActiveSet(jnp.zeros((MIXED, FREE), jnp.int32), jnp.zeros((MIXED, 6), bool), jnp.zeros((MIXED, 8), jnp.int32))
    one = jnp.ones(MIXED, jnp.int32)
    many = 200 * one
    scale, found = shared(given, cold, many)
    most = [most_of(i) for i in range(MIXED)]
    known = np.array([x is not None for x in most])
    share = np.array([1.0 if x is None or x > 1 - 1e-5 else 0.9 * x for x in most])
    assert known.mean() > 0.7 and np.mean(share < 1) > 0.5
    np.testing.assert_allclose(scale, share, atol=1e-6)
    np.testing.assert_array_equal(found.status, np.where(known, Status.CONVERGED, Status.INFEASIBLE))
    for start in (found.active, jax.tree.map(lambda x: jnp.roll(x, 1, axis=0), found.active)):
        again, same = shared(given, start, many)
        np.testing.assert_array_equal(again, scale)
        np.testing.assert_allclose(same.x[known], found.x[known], atol=1e-9)
        np.testing.assert_array_equal(same.status, found.status)
    short, _ = shared(given, cold, one)
    np.testing.assert_allclose(short, scale, atol=1e-9)
