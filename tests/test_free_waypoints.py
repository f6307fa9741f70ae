"""Whole paths that ask for something at some waypoints alone: goals, via points, and motions to begin with."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
import scipy.optimize
from tables import exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    CollisionLimit,
    ConfigurationLimit,
    Cylinders,
    DerivativeStatus,
    FrameTask,
    PostureTask,
    Problem,
    Spheres,
    Status,
    Track,
    VelocityLimit,
    WholePathOptions,
    World,
    track,
)
from jaxik.core.errors import JaxikError
from jaxik.solvers.tracking.smoothing import HORIZON
from jaxik.solvers.tracking.whole_path import whole_path

ARM = """<mujoco><compiler angle="degree" autolimits="true"/><worldbody>
  <body><joint name="shoulder" axis="0 0 1" range="-170 170"/>
    <geom type="capsule" fromto="0 0 0 .4 0 0" size=".02"/>
    <body pos=".4 0 0"><joint name="elbow" axis="0 0 1" range="-150 150"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/>
      <body pos=".3 0 0"><joint name="wrist" axis="0 0 1" range="-120 120"/>
        <geom type="capsule" fromto="0 0 0 .15 0 0" size=".02"/>
        <site name="tip" pos=".15 0 0"/></body></body></body></worldbody></mujoco>"""
STEPS, DT = 30, 0.05
START = np.array([0.2, 0.6, 0.4])


@cache
def arm() -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(ARM), geometry="model").astype(jnp.float64)


def costs(*times: int) -> np.ndarray:
    """(STEPS,) 1 at some times and 0 at others."""
    return np.isin(np.arange(STEPS), times).astype(float)


def at_times(values: dict[int, Any]) -> np.ndarray:
    """(STEPS, ...) values at their times, and what was before in between."""
    first = next(iter(values.values()))
    return np.stack([next((values[k] for k in sorted(values, reverse=True) if k <= t), first) for t in range(STEPS)])


def tips(q: Any) -> np.ndarray:
    """Where C MuJoCo has the tip at configurations (..., 3)."""
    model = mujoco.MjModel.from_xml_string(ARM)
    data, found = mujoco.MjData(model), []
    for each in np.asarray(q).reshape(-1, 3):
        data.qpos[:] = each
        mujoco.mj_kinematics(model, data)
        found.append(data.site("tip").xpos.copy())
    return np.reshape(found, (*np.shape(q)[:-1], 3))


def postures(limits: tuple[Any, ...] = (ConfigurationLimit(),)) -> Problem:
    return Problem(arm(), {"rest": PostureTask(START, tolerance=1e-6)}, limits)


def points(limits: tuple[Any, ...]) -> Problem:
    tip = FrameTask(arm().frame("tip"), jaxlie.SE3.identity(), orientation_cost=None)
    return Problem(arm(), {"tip": tip}, limits)


def _moving() -> np.ndarray:
    """The square (STEPS, STEPS) of the differences of a motion from rest."""
    rows = [np.diff(np.eye(STEPS + 3), order + 1, axis=0)[2 - order :] * HORIZON**order for order in range(3)]
    rows = np.concatenate(rows)[:, 3:]
    return rows.T @ rows


def least_motion(given: dict[int, np.ndarray], start: np.ndarray, rests: bool) -> np.ndarray:
    """The motion (STEPS, 3) of least squared differences from rest through configurations: its normal equations."""
    before = 3
    stencils = [np.array([1.0]), np.array([1.0, -1.0]), np.array([1.0, -2.0, 1.0])]
    rows = []
    for order, stencil in enumerate(stencils):
        difference = np.convolve(stencil, [1.0, -1.0])
        for t in range(before, before + STEPS):
            row = np.zeros(before + STEPS)
            row[t - order - 1 : t + 1] = HORIZON**order * difference[::-1]
            rows.append(row)
    cost = np.asarray(rows)
    held = [(k, start) for k in range(before)] + [(before + k, q) for k, q in given.items()]
    fixed = np.zeros((len(held) + 2 * rests, before + STEPS))
    fixed[np.arange(len(held)), [k for k, _ in held]] = 1
    right = np.stack([q for _, q in held] + [np.zeros(3)] * (2 * rests))
    for k in range(2 * rests):
        fixed[len(held) + k, [-1 - k, -2 - k]] = 1, -1
    size, count = before + STEPS, len(fixed)
    system = np.block([[cost.T @ cost, fixed.T], [fixed, np.zeros((count, count))]])
    return np.linalg.solve(system, np.concatenate([np.zeros((size, 3)), right]))[before:size]


VIA = {9: np.array([0.9, -0.3, 0.1]), STEPS - 1: np.array([-0.5, 0.2, -0.4])}
ENDS_LATER = {19: np.array([1.2, 0.1, 0.3])}


def through(rests: bool) -> tuple[jax.Array, Track, jax.Array]:
    """Targets, the motion, and its derivative where each target moves by its sine."""
    given = (VIA, ENDS_LATER)
    targets = jnp.asarray(np.stack([at_times(each) for each in given], axis=1))
    when = np.stack([costs(*each) for each in given], axis=1)[..., None]
    options = WholePathOptions(candidates=8, longest_step=1.0, end_at_rest=rests)

    def plan(targets: jax.Array) -> Track:
        given = {"rest": {"q": targets, "cost": when}}
        return track(postures(), START, DT, given, mode="whole", options=options)

    motion, moved = jax.jvp(plan, (targets,), (jnp.sin(targets),))
    return targets, motion, moved.q


@pytest.mark.parametrize("rests", [False, True])
def test_a_motion_is_the_smoothest_of_all_through_what_is_asked_for(rests: bool) -> None:
    _, motion, moved = through(rests)
    assert (np.asarray(motion.status) == Status.CONVERGED).all()
    assert (np.asarray(motion.derivative_status) == DerivativeStatus.EXACT).all()
    for i, each in enumerate((VIA, ENDS_LATER)):
        np.testing.assert_allclose(motion.q[:, i], least_motion(each, START, rests), atol=1e-6)
        ways = {t: np.sin(q) for t, q in each.items()}
        np.testing.assert_allclose(moved[:, i], least_motion(ways, np.zeros(3), rests), atol=1e-6)
    assert (np.abs(motion.velocity[-2:]).max() < 1e-6) == rests


def through_points(when: np.ndarray) -> Track:
    """A motion that is at two points each, in the middle and at the end, if it is asked for then, and ends at rest."""
    targets = jnp.asarray(np.repeat(GOALS, 15, axis=0))
    tip = {"target": jaxlie.SE3.from_translation(targets), "position_cost": when[..., None]}
    limits = (ConfigurationLimit(), VelocityLimit(2.5), AccelerationLimit(12.0))
    options = WholePathOptions(candidates=16, end_at_rest=True)
    return track(points(limits), START, DT, {"tip": tip}, mode="whole", options=options)


GOALS = np.array([[[0.5, 0.5, 0.0], [0.2, 0.6, 0.0]], [[0.6, -0.2, 0.0], [-0.3, 0.5, 0.0]]])


def test_points_are_met_when_they_are_asked_for_and_limits_hold_in_between() -> None:
    motion = through_points(np.stack([costs(14, STEPS - 1)] * 2, axis=1))
    motion.check()
    assert np.asarray(motion.jumps).tolist() == [0, 0]
    met = tips(motion.q[jnp.array([14, STEPS - 1])])
    assert np.abs(met - GOALS).max() < 1e-6
    assert max(float(x.max()) for x in (motion.speed_share, motion.acceleration_share)) <= 1
    assert np.abs(motion.velocity[-1]).max() < 1e-6


def test_other_times_compile_nothing_and_what_is_too_fast_for_the_limits_says_so() -> None:
    through_points(np.stack([costs(14, STEPS - 1)] * 2, axis=1))
    before = whole_path._cache_size()
    motion = through_points(np.stack([costs(STEPS - 1), costs(0)], axis=1))
    assert whole_path._cache_size() == before
    status = np.asarray(motion.status)
    assert (status[:, 0] == Status.CONVERGED).all()
    assert (status[:, 1] == Status.INFEASIBLE).any()


def bent(side: float) -> np.ndarray:
    """A motion (STEPS, 3) that goes around a ball with the arm drawn in, or stretched."""
    share = np.linspace(0, 1, STEPS)[:, None]
    return (1 - share) * [-0.9, 0.2, 0.0] + share * [0.9, 0.2, 0.0] + np.sin(np.pi * share) * [-side / 2, side, 0.0]


BEGIN = np.stack([bent(1.8), bent(-1.8)], axis=1)
BALL, RADIUS = np.array([0.72, 0.0, 0.0]), 0.08
# Kept so far, waypoints are near enough to each other that no step cuts through the ball; with the second it would.
WIDE, NARROW = 0.01, 0.0002


def around_the_ball(ball: Any, margin: float, begin: Any = BEGIN) -> Track:
    return around(World(spheres=Spheres(ball[None], [RADIUS])), margin, begin)


def around_a_cylinder(radius: Any) -> Track:
    return around(World(cylinders=Cylinders(jaxlie.SE3.from_translation(jnp.asarray(BALL)[None]), radius, 0.1)), WIDE)


def around(world: World, margin: float, begin: Any = BEGIN) -> Track:
    limits = (ConfigurationLimit(), CollisionLimit(world, margin=margin), VelocityLimit(10.0))
    tip = {
        "target": jaxlie.SE3.from_translation(jnp.tile(jnp.asarray(tips(BEGIN[-1])), (STEPS, 1, 1))),
        "position_cost": costs(STEPS - 1)[:, None, None],
    }
    options = WholePathOptions(smoothing_tolerance=1e-8)
    return track(points(limits), bent(0.0)[0], DT, {"tip": tip}, mode="whole", initial=begin, options=options)


@pytest.fixture(scope="module")
def curved() -> Track:
    return around_the_ball(BALL, WIDE)


def room_at_the_ball(q: np.ndarray) -> np.ndarray:
    """By how much more than is aimed at the three links are from the ball (..., 3), at configurations (..., 3)."""
    angles, lengths = np.cumsum(q, axis=-1), np.array([0.4, 0.3, 0.15])
    ways = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    begin = np.cumsum(ways, axis=-2) - ways
    share = np.clip(((BALL[:2] - begin) * ways).sum(-1) / lengths**2, 0, 1)
    away = np.linalg.norm(begin + share[..., None] * ways - BALL[:2], axis=-1)
    return away - RADIUS - 0.02 - WIDE * 1.05


def slopes(of: Any, q: np.ndarray) -> np.ndarray:
    """Of a function of one waypoint, at all of a motion (T, 3): (T, k, 3)."""
    step = 1e-6 * np.eye(3)
    return np.stack([(of(q + h) - of(q - h)) / 2e-6 for h in step], axis=-1)


def least_motion_around_the_ball(begin: np.ndarray) -> np.ndarray:
    """From a motion (STEPS, 3), by sequential quadratic programming of another library."""
    square, goal, start = _moving(), tips(begin[-1])[:2], bent(0.0)[0]

    def all_slopes(x: np.ndarray) -> np.ndarray:
        own = slopes(room_at_the_ball, x.reshape(STEPS, 3))
        return np.einsum("tkj,ts->tksj", own, np.eye(STEPS)).reshape(3 * STEPS, 3 * STEPS)

    def last(x: np.ndarray) -> np.ndarray:
        angles = np.cumsum(x[-3:])
        return np.array([0.4, 0.3, 0.15]) @ np.stack([np.cos(angles), np.sin(angles)], axis=-1) - goal

    found = scipy.optimize.minimize(
        lambda x: np.einsum("ti,ts,si", x.reshape(STEPS, 3) - start, square, x.reshape(STEPS, 3) - start) / 2,
        begin.ravel(),
        jac=lambda x: (square @ (x.reshape(STEPS, 3) - start)).ravel(),
        constraints=[
            {"type": "ineq", "fun": lambda x: room_at_the_ball(x.reshape(STEPS, 3)).ravel(), "jac": all_slopes},
            {"type": "eq", "fun": last},
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert found.success
    return found.x.reshape(STEPS, 3)


def test_a_motion_goes_around_an_obstacle_on_the_side_where_it_begins(curved: Track) -> None:
    assert np.asarray(curved.check().settled).all() and "settled" not in repr(curved)
    elbow = np.asarray(curved.q)[STEPS // 2, :, 1]
    assert elbow[0] > 0.3 and elbow[1] < -0.3
    assert room_at_the_ball(np.asarray(curved.q)).min() > -1e-7


def test_a_motion_that_was_found_begins_another(curved: Track) -> None:
    again = around_the_ball(BALL, WIDE, curved)
    np.testing.assert_allclose(again.q, curved.q, atol=1e-7)


@pytest.mark.parametrize("side", [0, 1])
def test_no_motion_beside_one_around_an_obstacle_costs_less(curved: Track, side: int) -> None:
    found = least_motion_around_the_ball(np.asarray(curved.q)[:, side])
    np.testing.assert_allclose(curved.q[:, side], found, atol=1e-5)


def test_what_would_be_cut_on_the_way_to_a_waypoint_is_kept_farther_apart() -> None:
    robot, world = arm(), World(spheres=Spheres(BALL[None], [RADIUS]))
    found = around_the_ball(BALL, NARROW).check()
    free = ~np.asarray(robot.in_collision(found.q[:-1], world, to=found.q[1:]))
    assert free.all()
    assert np.asarray(found.settled).all() and np.asarray(robot.clearance(found.q, world)).min() < 2 * WIDE


@pytest.mark.parametrize("margin", [WIDE, NARROW])
def test_a_motion_around_an_obstacle_has_derivatives(margin: float) -> None:
    """By the place of the obstacle, beside central differences."""

    def motion(ball: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = around_the_ball(ball, margin)
        return found.q, found.derivative_status

    around_the_ball(BALL, margin)
    way = np.array([0.6, 0.8, 0.0])
    (_, status), (tangent, _) = jax.jvp(motion, (jnp.asarray(BALL),), (jnp.asarray(way),))
    assert (np.asarray(status) == DerivativeStatus.EXACT).all()
    before = whole_path._cache_size()
    ahead, behind = (np.asarray(around_the_ball(BALL + h * way, margin).q) for h in (1e-5, -1e-5))
    assert whole_path._cache_size() == before  # an obstacle that moves compiles nothing
    assert np.abs(tangent).max() > 0.5
    np.testing.assert_allclose(tangent, (ahead - behind) / 2e-5, atol=1e-5)


@exhaustive
def test_one_waypoint_whose_derivative_is_approximate_makes_that_of_its_motion_so() -> None:
    """How the normal of a cylinder turns is left out."""

    def status(radius: jax.Array) -> jax.Array:
        return around_a_cylinder(radius).derivative_status

    worth, _ = jax.jvp(status, (jnp.array([RADIUS]),), (jnp.ones(1),))
    assert (np.asarray(worth) >= DerivativeStatus.APPROXIMATE).all()


def test_costs_over_a_horizon_are_weighed_where_no_task_has_a_tolerance() -> None:
    """The motion that costs least: its normal equations. It need not begin near."""
    cost, target = 1.5 * np.linspace(0, 1, STEPS), np.array([0.9, -0.3, 0.1])
    free = Problem(arm(), {"rest": PostureTask(target)}, (ConfigurationLimit(),))
    noise = np.random.default_rng(1).uniform(-0.3, 0.3, (STEPS, 3))
    options = WholePathOptions(longest_step=1.0)
    given = {"rest": {"cost": cost}}
    motion = track(free, START, DT, given, mode="whole", initial=START + noise, options=options)
    weighed = np.diag(cost**2)
    np.testing.assert_allclose(
        motion.q, np.linalg.solve(_moving() + weighed, weighed @ np.tile(target - START, (STEPS, 1))) + START, atol=1e-6
    )
    assert (np.asarray(motion.status) == Status.CONVERGED).all()


def with_the_wrist_held(start: Any, begin: np.ndarray, goal: np.ndarray, smoothing_steps: int = 60) -> Track:
    """Motions (STEPS, 4, 3) from given ones to points (STEPS, 4, 3) at the last waypoint, where they are to rest."""
    tip = {"target": jaxlie.SE3.from_translation(jnp.asarray(goal)), "position_cost": costs(STEPS - 1)[:, None, None]}
    limits = ConfigurationLimit(), VelocityLimit(2.5)
    problem = Problem(arm(), points(limits).tasks, limits, dof_mask=np.array([True, True, False]))
    options = WholePathOptions(end_at_rest=True, smoothing_steps=smoothing_steps)
    return track(problem, start, DT, {"tip": tip}, mode="whole", initial=begin, options=options)


GOAL = np.tile([0.5, 0.55, 0.0], (STEPS, 4, 1))


@pytest.fixture(scope="module")
def odd() -> Track:
    """From a motion that is NaN somewhere, one outside the limits, to a target that is NaN before, and from outside."""
    start, begin, goal = np.stack([START, START, START, [3.2, 0.6, 0.4]]), np.tile(START, (STEPS, 4, 1)), GOAL.copy()
    begin[3, 0], begin[:, 1, 1] = np.nan, np.linspace(0.6, 2.9, STEPS)
    begin[:, 1, 2] = np.linspace(0.4, 0.9, STEPS)
    goal[:10, 2] = np.nan
    return with_the_wrist_held(start, begin, goal)


def test_a_motion_to_begin_with_that_is_not_finite_is_nonfinite_and_comes_back_finite(odd: Track) -> None:
    assert np.isfinite(odd.q).all() and np.isfinite(odd.velocity).all()
    assert (np.asarray(odd.status)[:, 0] == Status.NONFINITE).all()


def test_a_motion_to_begin_with_is_moved_inside_the_limits(odd: Track) -> None:
    assert (np.asarray(odd.status)[:, 1] == Status.CONVERGED).all()
    assert np.abs(odd.q[:, 1, 1]).max() <= np.radians(150) + 1e-12


def test_a_joint_that_is_held_stays_whatever_a_motion_begins_with(odd: Track) -> None:
    np.testing.assert_array_equal(odd.q[:, :, 2], 0.4)


def test_a_target_where_nothing_is_asked_may_be_nan(odd: Track) -> None:
    assert (np.asarray(odd.status)[:, 2] == Status.CONVERGED).all()


def test_a_motion_that_does_not_come_to_rest_says_so() -> None:
    begin = START + np.linspace(0, 1, STEPS)[:, None, None] * np.array([[[0.5, 0.5, 0.0]]] * 4).swapaxes(0, 1)
    motion = with_the_wrist_held(np.tile(START, (4, 1)), begin, tips(begin[-1:]) * np.ones((STEPS, 1, 1)), 0)
    assert np.abs(motion.velocity[-2:]).max(axis=-1).min() > 0.1
    assert not np.asarray(motion.settled).any() and "4 not settled" in repr(motion)
    assert (
        np.asarray(motion.status) == np.repeat([Status.CONVERGED, Status.INFEASIBLE], [STEPS - 2, 2])[:, None]
    ).all()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"initial": np.zeros((STEPS - 1, 3))}, "initial, whose first axis is time, has 29 steps, the targets 30"),
        ({"initial": np.zeros(3)}, "its first axis is to be time"),
        ({"initial": np.zeros((STEPS, 4))}, "initial"),
        ({"initial": np.zeros((STEPS, 3)), "mode": "online"}, 'leave it out of mode="online"'),
        ({"initial": np.zeros((STEPS, 5, 3))}, "batch axes"),
    ],
)
def test_an_initial_motion_that_does_not_fit_is_named(given: dict[str, Any], match: str) -> None:
    targets = {"rest": {"q": np.zeros((STEPS, 2, 3))}}
    with pytest.raises(JaxikError, match=match):
        track(postures(), START, DT, targets, **({"mode": "whole"} | given))


@pytest.mark.parametrize("flag", [2, None, "yes"])
def test_a_flag_that_is_none_is_named(flag: Any) -> None:
    with pytest.raises(JaxikError, match="end_at_rest is True or False"):
        WholePathOptions(end_at_rest=flag)
