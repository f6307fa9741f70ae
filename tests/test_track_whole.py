"""What `track(..., mode="whole")` finds along paths that are known before it sets out."""

import dataclasses
import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    CollisionLimit,
    ConfigurationLimit,
    Elastic,
    FrameTask,
    JerkLimit,
    PositionLimit,
    PostureTask,
    Problem,
    Spheres,
    Status,
    Track,
    TrackOptions,
    VelocityLimit,
    WholePathOptions,
    World,
    track,
)
from jaxik.core.errors import JaxikError
from jaxik.numerics.block_tridiagonal import (
    factorize_block_tridiagonal,
    solve_block_tridiagonal,
    solve_factorized,
)
from jaxik.solvers.tracking import barrier
from jaxik.solvers.tracking.path_result import meetings, status_of
from jaxik.solvers.tracking.shortest_path import SPREAD, STRAINED, shortest_path

# A crane that turns by 400 degrees and has one joint more than a point needs.
CRANE = """<mujoco><compiler angle="degree" autolimits="true"/><worldbody><body pos="0 0 .3">
  <joint name="yaw" axis="0 0 1" range="-200 200"/><geom size=".05"/>
  <body><joint name="shoulder" axis="0 -1 0" range="-20 80"/><geom size=".05"/>
    <body pos=".4 0 0"><joint name="elbow" axis="0 1 0" range="40 150"/><geom size=".05"/>
      <body pos=".3 0 0"><joint name="wrist" axis="0 1 0" range="0 60"/><geom size=".05"/>
        <site name="tip" pos=".2 0 0"/></body></body></body></body></worldbody></mujoco>"""
# An arm with a ball and a coupled joint, on a base that floats, beside a sphere.
FLOATING = """<mujoco><compiler angle="degree" autolimits="true"/><worldbody>
  <geom type="sphere" size=".08" pos=".28 .2 .45"/>
  <body pos="0 0 .3"><freejoint/><geom size=".05"/>
    <body><joint name="shoulder" type="ball" range="0 120"/>
      <geom type="capsule" fromto=".1 0 0 .4 0 0" size=".02"/>
      <body pos=".4 0 0"><joint name="elbow" axis="0 1 0" range="5 150"/>
        <geom type="capsule" fromto=".05 0 0 .4 0 0" size=".02"/><site name="tip" pos=".4 0 0"/>
        <body pos=".4 0 0"><joint name="finger" axis="0 1 0" range="0 60"/>
          <geom size=".01" contype="0" conaffinity="0"/></body></body></body></body></worldbody>
  <equality><joint joint1="finger" joint2="elbow" polycoef="0 .3 0 0 0"/></equality></mujoco>"""
STEPS, DT = 121, 0.1
MAX_SPEED, MAX_ACCELERATION = 1.15, 0.6
PATHS = ("whole turn", "more than that", "out of reach", "not finite", "in and out")


@cache
def crane() -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(CRANE))


def around(start: float, end: float, radius: float = 0.55) -> np.ndarray:
    """Points (STEPS, 3) around the crane, from one angle to another [degrees]."""
    angle = np.radians(np.linspace(start, end, STEPS))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), np.full(STEPS, 0.3)], axis=1)


@cache
def points() -> np.ndarray:
    """(STEPS, paths, 3)."""
    out = around(30, 60)
    out[:, :2] *= 1 + 0.9 * np.sin(np.linspace(0, np.pi, STEPS))[:, None]
    lost = around(0, 60)
    lost[60] = np.nan
    reach = around(-45, 45)
    reach[:, :2] *= 1.1 + 0.25 * np.cos(np.linspace(0, 4 * np.pi, STEPS))[:, None]
    return np.stack([around(171, 171 + 378), around(0, 540), out, lost, reach], axis=1)


def with_limit(limit: Any) -> Problem:
    return Problem(crane(), problem().tasks, (ConfigurationLimit(), limit))


def half_space() -> PositionLimit:
    return PositionLimit(crane().frame("tip"), [0.0, 1.0, 0.0], 0.05)


def problem(accelerated: float = MAX_ACCELERATION, fast: float = MAX_SPEED, jerk: float = 20.0) -> Problem:
    tip = FrameTask(crane().frame("tip"), jaxlie.SE3.identity(), orientation_cost=None)
    limits = (ConfigurationLimit(), VelocityLimit(fast), AccelerationLimit(accelerated), JerkLimit(jerk))
    return Problem(crane(), {"tip": tip}, limits)


def poses(at: np.ndarray) -> jaxlie.SE3:
    return jaxlie.SE3.from_translation(jnp.asarray(at))


@cache
def found(smoothing_steps: int = 60, seed: int = 0) -> Track:
    """All paths at once: one program for most tests."""
    options = WholePathOptions(candidates=32, smoothing_steps=smoothing_steps, seed=seed)
    return track(problem(), None, DT, {"tip": poses(points())}, mode="whole", options=options)


def of(path: str, motion: Track) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Configurations, statuses and jumps of one path."""
    i = PATHS.index(path)
    return np.asarray(motion.q)[:, i], np.asarray(motion.status)[:, i], np.asarray(motion.jumped)[:, i]


def errors(q: np.ndarray, at: np.ndarray) -> np.ndarray:
    """How far C MuJoCo finds the tip from points [m]."""
    model = mujoco.MjModel.from_xml_string(CRANE)
    data, reached = mujoco.MjData(model), []
    for configuration in q:
        data.qpos[:] = configuration
        mujoco.mj_kinematics(model, data)
        reached.append(data.site("tip").xpos.copy())
    return np.linalg.norm(np.asarray(reached) - at, axis=1)


def test_the_start_is_chosen_so_that_a_turn_ends_within_the_limits() -> None:
    q, status, jumped = of("whole turn", found())
    assert (status == Status.CONVERGED).all() and not jumped.any()
    assert np.degrees(q[0, 0]) == pytest.approx(-189, abs=0.1)
    assert errors(q, points()[:, 0]).max() < 1e-4


def test_a_whole_turn_that_is_too_much_is_a_jump_and_says_where() -> None:
    q, status, jumped = of("more than that", found())
    assert jumped.sum() == 1 and np.asarray(found().jumps).tolist() == [0, 1, 0, 0, 0]
    where = int(np.flatnonzero(jumped)[0])
    # From 0 it turns up to 200 degrees, and has to be at 540 - 360 at the end.
    assert 180 <= where * 540 / (STEPS - 1) <= 205
    assert abs(np.degrees(q[where, 0] - q[where - 1, 0])) > 300
    assert status[where] == Status.INFEASIBLE and (np.delete(status, where) == Status.CONVERGED).all()
    assert errors(q, points()[:, 1]).max() < 1e-4
    with pytest.raises(JaxikError, match=rf"INFEASIBLE \(\({where}, 1\).*these are jumps, see `jumped`"):
        found().check()
    assert "1 jump" in repr(found())


def test_what_is_out_of_reach_is_said_and_the_rest_is_followed() -> None:
    q, status, jumped = of("out of reach", found())
    distance = np.linalg.norm(points()[:, 2] - [0, 0, 0.3], axis=1)
    beyond, within = distance > 0.85, distance < 0.84
    # A motion to the edge of its reach, and back, is one of infinite speed, which limits cut.
    shares = np.stack([found().speed_share, found().acceleration_share, found().jerk_share])[:, :, 2]
    kept = np.max(shares, axis=0) <= 1
    assert (status[beyond] == Status.STALLED).all() and (status[within & kept] == Status.CONVERGED).all()
    assert (status[within & ~kept] == Status.INFEASIBLE).all() and (within & kept).sum() > 30
    assert not jumped.any()
    assert errors(q, points()[:, 2])[within].max() < 1e-4


def test_a_target_that_is_not_finite_spoils_no_other() -> None:
    q, status, jumped = of("not finite", found())
    assert np.isfinite(q).all() and not jumped.any()
    assert status[60] == Status.NONFINITE and (np.delete(status, 60) == Status.CONVERGED).all()


def test_a_motion_is_smoothed_until_it_keeps_its_limits() -> None:
    raw, smooth, followed = found(0), found(), [PATHS.index(name) for name in ("whole turn", "in and out")]
    assert np.asarray(raw.peak_acceleration)[followed].max() > 4
    assert np.asarray(smooth.peak_acceleration)[followed].max() <= 1
    assert np.asarray(smooth.peak_speed)[followed].max() <= 1
    for i in followed:
        q = np.asarray(smooth.q)[:, i]
        assert np.abs(np.diff(q, axis=0)).max() <= MAX_SPEED * DT
        assert np.abs(np.diff(q, 2, axis=0)).max() <= MAX_ACCELERATION * DT**2


def test_tolerances_are_left_alone_where_a_path_is_kept_within_its_limits() -> None:
    """The program is longer than the path, and what stands behind the last waypoint elsewhere."""
    options = WholePathOptions(candidates=32)
    slow = track(problem(fast=0.3), None, DT, {"tip": poses(points())}, mode="whole", options=options)
    q, status, jumped = of("in and out", slow)
    assert (status == Status.CONVERGED).all() and not jumped.any()
    assert np.abs(np.diff(q, axis=0)).max() > 0.29 * DT and errors(q, points()[:, 4]).max() < 1e-9


@exhaustive
def test_tight_limits_are_kept_in_float32_and_those_that_cannot_be_do_no_harm() -> None:
    """Slacks of the interior point do not come to zero before limits are met; jerks are of a smooth motion."""
    robot = crane().astype(np.float32)
    tip = FrameTask(robot.frame("tip"), jaxlie.SE3.identity(), orientation_cost=None)
    targets = {"tip": jaxlie.SE3(poses(points()[:, 4]).wxyz_xyz.astype(np.float32))}

    def planned(**limits: float) -> Track:
        asked = Problem(robot, {"tip": tip}, problem(**limits).limits)
        return track(asked, None, DT, targets, mode="whole", options=WholePathOptions(candidates=32))

    plan, unkept = planned(fast=0.3), planned(accelerated=0.2)
    assert plan.q.dtype == np.float32 and plan.check().jumps == 0
    assert np.abs(np.diff(plan.q, axis=0)).max() > 0.29 * DT
    assert np.any(unkept.status == Status.INFEASIBLE) and np.abs(unkept.acceleration).max() < 1


def test_joint_limits_hold_to_the_last_digit() -> None:
    lower, upper = mujoco.MjModel.from_xml_string(CRANE).jnt_range.T
    assert (found().q >= lower).all() and (found().q <= upper).all()


def test_velocity_and_acceleration_are_differences_of_the_motion() -> None:
    motion = found()
    assert np.allclose(motion.velocity[1:], np.diff(motion.q, axis=0) / DT, atol=1e-9)
    assert np.allclose(motion.acceleration[1:], np.diff(motion.velocity, axis=0) / DT, atol=1e-7)


def test_other_targets_limits_and_seeds_compile_nothing() -> None:
    found()
    from jaxik.solvers.tracking.whole_path import whole_path

    programs = whole_path._cache_size()
    options = WholePathOptions(candidates=32, seed=3, smoothing_steps=5, jump_cost=7)
    track(problem(2.0), None, 0.11, {"tip": poses(0.9 * points())}, mode="whole", options=options)
    # Nor do other numbers of waypoints, up to what a program has room for.
    longer = np.concatenate([points(), np.tile(points()[-1:], (144 - STEPS, 1, 1))])
    motion = track(problem(), None, DT, {"tip": poses(longer)}, mode="whole", options=options)
    assert motion.q.shape == (144, len(PATHS), 4) and motion.jumped.shape == (144, len(PATHS))
    assert whole_path._cache_size() == programs


@exhaustive
def test_what_stands_behind_a_path_changes_nothing() -> None:
    """Programs have room for more waypoints."""
    options = WholePathOptions(candidates=32)
    shorter = track(problem(), None, DT, {"tip": poses(points()[:110])}, mode="whole", options=options)
    assert (shorter.status[:, 0] == Status.CONVERGED).all() and not shorter.jumped[:, 0].any()
    assert errors(np.asarray(shorter.q)[:, 0], points()[:110, 0]).max() < 1e-4


@pytest.mark.parametrize("seed", mostly_exhaustive(range(4), [0]))
def test_limits_hold_on_random_paths(seed: int) -> None:
    """Five paths each, that one motion follows within the limits."""
    rng, t = np.random.default_rng(seed), np.linspace(0, 1, STEPS)[:, None, None]
    middle, size, phase = rng.uniform([-1, 0.4, 1.2, 0.4], [1, 0.8, 1.8, 0.7], (5, 4)), *rng.uniform(0, 1, (2, 5, 4))
    q = middle + 0.3 * size * np.sin(2 * np.pi * t + 6.3 * phase) + 0.1 * size * np.sin(6 * np.pi * t + 9 * phase)
    at = np.asarray(crane().frame_pose(jnp.asarray(q), "tip").translation())
    # The motion that made the path keeps these limits, and smoothing does not know it.
    fast, accelerated, jerk = (np.abs(np.diff(q, k, axis=0)).max() / DT**k for k in (1, 2, 3))
    options = WholePathOptions(candidates=32)
    motion = track(problem(accelerated, fast, jerk), None, DT, {"tip": poses(at)}, mode="whole", options=options)
    assert motion.check().jumps.sum() == 0
    differences = np.asarray(motion.q)
    for k, most in enumerate((fast, accelerated, jerk), start=1):
        differences = np.diff(differences, axis=0)
        assert np.abs(differences).max() <= most * DT**k * (1 + 1e-9)


def test_limits_that_no_motion_keeps_are_named() -> None:
    options = WholePathOptions(candidates=32)
    motion = track(problem(accelerated=0.02), None, DT, {"tip": poses(points())}, mode="whole", options=options)
    status = np.asarray(motion.status)[:, PATHS.index("in and out")]
    assert (status == Status.INFEASIBLE).any() and not np.asarray(motion.jumped)[:, PATHS.index("in and out")].any()
    with pytest.raises(JaxikError, match="pass a limit, see `speed_share`"):
        motion.check()


def test_a_path_that_is_too_fast_is_not_left_for_fewer_jumps() -> None:
    options = WholePathOptions(candidates=32)
    motion = track(problem(fast=0.1), None, DT, {"tip": poses(points())}, mode="whole", options=options)
    for i in map(PATHS.index, ("whole turn", "in and out")):
        q, status = np.asarray(motion.q)[:, i], np.asarray(motion.status)[:, i]
        assert errors(q, points()[:, i]).max() < 1e-4 and np.abs(np.diff(q, axis=0)).max() < 0.3
        assert set(status) <= {Status.CONVERGED, Status.INFEASIBLE} and np.mean(status == Status.INFEASIBLE) > 0.9


@cache
def floating() -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(FLOATING), geometry="model")


@cache
def from_start(dtype: str) -> tuple[Track, np.ndarray, np.ndarray]:
    """The motion of a base that stays and of one that floats, where both start, and where their tip is to be."""
    start = floating().q_home.at[-2:].set(jnp.array([1.2, 0.36])).astype(dtype)
    angle = np.linspace(0, 1, 40)
    tip = np.asarray(floating().frame_pose(start, "tip").translation())
    at = np.stack([tip[0] * np.cos(angle), tip[0] * np.sin(angle), tip[2] + 0.1 * angle], axis=1)
    asked = {
        "tip": FrameTask(floating().frame("tip"), jaxlie.SE3.identity(), orientation_cost=None),
        "rest": PostureTask(floating().q_home, 0.01),
    }
    limits = (ConfigurationLimit(), VelocityLimit(MAX_SPEED), AccelerationLimit(1e3), CollisionLimit(margin=0.01))
    stays = np.ones((2, floating().nv), bool)
    stays[0, :4] = False  # of a free joint's three rotations all stay where one does
    options = WholePathOptions(candidates=8, smoothing_steps=20)
    found = track(
        Problem(floating(), asked, limits, dof_mask=stays),
        start,
        DT,
        {"tip": poses(at[:, None])},
        mode="whole",
        options=options,
    )
    return found, np.asarray(start), at


@exhaustive
def test_a_start_that_is_given_is_kept() -> None:
    motion, start, _ = from_start("float64")
    assert motion.check().jumps.tolist() == [0, 0]
    moved = floating().difference(start, motion.q[0])
    assert np.abs(moved[:, 6:]).max() <= MAX_SPEED * DT
    assert np.allclose(motion.velocity[0], moved / DT, atol=1e-9)


@exhaustive
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-9), ("float32", 1e-5)])
def test_balls_bases_couplings_and_obstacles_are_kept(dtype: str, digits: float) -> None:
    """By C MuJoCo."""
    motion, start, at = from_start(dtype)
    assert motion.q.dtype == dtype and motion.check().jumps.tolist() == [0, 0]
    q = np.asarray(motion.q, float)
    assert (q[:, 0, :7] == start[:7]).all() and np.abs(q[-1, 1, :7] - start[:7]).max() > 0.01
    model = mujoco.MjModel.from_xml_string(FLOATING)
    data = mujoco.MjData(model)
    for k, i in itertools.product(range(len(at)), range(2)):
        data.qpos[:] = q[k, i]
        mujoco.mj_forward(model, data)
        assert np.linalg.norm(data.site("tip").xpos - at[k]) < digits
        assert abs(data.qpos[12] - 0.3 * data.qpos[11]) < digits
        assert 2 * np.arccos(min(abs(data.qpos[7]), 1)) <= np.radians(120)
        assert min(mujoco.mj_geomDistance(model, data, 0, geom, 1.0, None) for geom in (1, 2, 3)) >= 0.01


def test_a_track_of_whole_mode_is_saved_with_its_jumps(tmp_path) -> None:
    jaxik.save(tmp_path / "motion.npz", found())
    again = jaxik.load(tmp_path / "motion.npz")
    assert np.array_equal(again.jumped, found().jumped) and np.array_equal(again.settled, found().settled)
    assert found().resample(0.05).jumps.shape == (5,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "offline"}, "mode is one of"),
        ({"targets": lambda t, q, v: {}}, "arrays over time"),
        ({"options": TrackOptions()}, "WholePathOptions"),
        ({"velocity": np.zeros(4)}, "give q0 as well"),
        ({"targets": {}}, "num_steps"),
        ({"problem": "posture"}, "no task of the highest priority has one"),
        ({"problem": lambda: with_limit(half_space())}, "does not hold PositionLimit, only ConfigurationLimit, Vel"),
        ({"problem": lambda: with_limit(Elastic(half_space()))}, "take 'position_limit' out of Elastic"),
    ],
)
def test_mistakes_are_named(arguments: dict, message: str) -> None:
    given = {"problem": problem(), "targets": {"tip": poses(points())}, "mode": "whole"} | arguments
    if callable(given["problem"]):
        given["problem"] = given["problem"]()
    if given["problem"] == "posture":
        given["problem"] = Problem(crane(), {"tip": PostureTask(crane().q_home)})
        given["targets"] = {"tip": jnp.zeros((3, 4))}
    with pytest.raises(JaxikError, match=message):
        track(given.pop("problem"), None, DT, given.pop("targets"), **given)


@pytest.mark.parametrize("moving", mostly_exhaustive([False, True], [False]))
def test_a_path_may_stay_at_one_place(moving: bool) -> None:
    preferred = problem().tasks | {"rest": PostureTask(crane().q_home, 0.01)}
    targets, steps = ({"rest": jnp.zeros((5, 4))}, None) if moving else ({}, 3)

    def found(dt: Any) -> Track:
        asked, options = Problem(crane(), preferred), WholePathOptions(candidates=2)
        return track(asked, None, dt, targets, mode="whole", num_steps=steps, options=options)

    assert jax.eval_shape(found, DT).q.shape == (steps or 5, 4)


@exhaustive
def test_tolerances_are_used_where_steps_would_be_too_long() -> None:
    """A waypoint is 5 mm ahead on the arc: with a tolerance that is small a jump, with a large one none."""
    at = around(0, 60)
    at[60] = at[60] + 0.005 * np.array([-np.sin(np.radians(30)), np.cos(np.radians(30)), 0])
    tip = FrameTask(
        crane().frame("tip"),
        jaxlie.SE3.identity(),
        orientation_cost=None,
        position_tolerance=jnp.array([1e-4, 0.01]),
    )
    options, steps = WholePathOptions(candidates=32), 0.013
    limits = ConfigurationLimit(), VelocityLimit(steps / DT)
    motion = track(Problem(crane(), {"tip": tip}, limits), None, DT, {"tip": poses(at)}, mode="whole", options=options)
    assert motion.jumps.tolist() == [1, 0]
    assert (np.asarray(motion.status[:, 1]) == Status.CONVERGED).all()
    q = np.asarray(motion.q[:, 1])
    assert np.abs(np.diff(q, axis=0)).max() <= steps * (1 + 1e-9)
    off = errors(q, at)
    assert 1e-3 < off.max() <= 0.01
    # Only near there.
    assert np.delete(off, np.arange(50, 71)).max() < 1e-3


def test_constraints_are_judged_as_by_solve() -> None:
    """Whatever their cost; a posture has no tolerance."""
    q = jnp.zeros((2, 3, 4)).at[0, 0, 3].set(1e-6).at[0, 1, 3].set(1e-10)
    tip = FrameTask(crane().frame("tip"), crane().frame_pose(q[0, 0], "tip"), orientation_cost=None)
    held = Problem(crane(), {"tip": tip}, constraints={"held": PostureTask(jnp.zeros(4), 1e-3)})
    status = jax.jit(lambda q: status_of(held, q, jnp.zeros((2, 3), bool)))(q)
    assert status.tolist() == [[Status.STALLED, *[Status.CONVERGED] * 2], [Status.CONVERGED] * 3]


def test_options_are_checked() -> None:
    for wrong in ({"candidates": 0}, {"longest_step": -1.0}, {"smoothing_steps": -1}, {"jump_cost": 0}):
        with pytest.raises(JaxikError):
            WholePathOptions(**wrong)
    with pytest.raises(JaxikError, match="TrackOptions"):
        track(problem(), crane().q_home, DT, {"tip": poses(points()[:, 0])}, options=WholePathOptions())


@pytest.mark.parametrize("seed", mostly_exhaustive(range(3), [0]))
@pytest.mark.parametrize("fixed", [False, True])
def test_no_path_through_the_candidates_is_cheaper(seed: int, fixed: bool) -> None:
    rng = np.random.default_rng(seed)
    steps, lanes, jump_cost = 5, 4, 3
    q, missed = (
        rng.uniform(-3, 3, (steps, lanes, 4)) * rng.uniform(size=(steps, lanes, 1)),
        rng.uniform(size=(steps, lanes)) < 0.3,
    )
    (miss, penalty), longest = rng.uniform(size=(2, steps, lanes)), np.full(4, 0.8)
    start = q[0].mean(axis=0) if fixed else None

    def cost(lanes_taken: tuple[int, ...]) -> tuple[int, float]:
        at = [q[t, lane] for t, lane in enumerate(lanes_taken)]
        ways = np.diff(([start] if fixed else []) + at, axis=0) / longest
        lost = [t for t, lane in enumerate(lanes_taken) if missed[t, lane]]
        furthest = np.abs(ways).max(axis=1)
        events = np.where(furthest > STRAINED, jump_cost - 1, furthest > 1)
        events = np.where(furthest > SPREAD, jump_cost, events)
        return len(lost) + np.sum(events), np.sum(ways**2) + sum(
            (miss[t, lane] if t in lost else 0) + penalty[t, lane] for t, lane in enumerate(lanes_taken)
        )

    best = min(itertools.product(range(lanes), repeat=steps), key=cost)
    given = map(jnp.asarray, (q, missed, miss, penalty, longest, jump_cost))
    chosen, _ = jax.jit(lambda *given: shortest_path(crane().topology, *given, start))(*given)
    assert tuple(np.asarray(chosen)) == best


def test_a_path_that_is_too_fast_at_some_places_alone_still_avoids_jumps() -> None:
    strained, smooth = np.full(20, 0.01), np.full(20, 0.001)
    strained[[3, 9, 15]], smooth[10] = 0.024, 0.1
    q = np.zeros((21, 2, 4))
    q[1:, 0, 0], q[1:, 1, 0], q[:, 1, 1] = np.cumsum(strained), np.cumsum(smooth), 0.5
    no, zero = np.zeros((21, 2), bool), np.zeros((21, 2))
    given = q, no, zero, zero, np.full(4, 0.02), jnp.asarray(8)
    chosen, _ = jax.jit(lambda *given: shortest_path(crane().topology, *given, None))(*given)
    assert np.all(np.asarray(chosen) == 0)


def test_a_joint_that_must_not_move_counts_as_a_jump_only_where_it_does() -> None:
    q = jnp.zeros((2, 2, 4)).at[:, :, 1].set(0.1 * jnp.arange(2)[:, None]).at[:, 0, 0].set(jnp.array([0.1, 0.2]))
    none = jnp.zeros((2, 2))
    given = q, none > 0, none, none, jnp.array([0.0, 1, 1, 1]), jnp.asarray(5)
    chosen, _ = jax.jit(lambda *given: shortest_path(crane().topology, *given, None))(*given)
    assert chosen.tolist() == [1, 1]


def test_a_bound_of_zero_that_is_kept_is_not_passed() -> None:
    none, bound = jnp.zeros((1, 3, 4)), jnp.array([0.0, 0.2, 1, 1])

    @jax.jit
    def seen() -> tuple[Any, Any]:
        distances = barrier.distances(none, none - bound, none + bound, none == 0, none + 1)
        begun = barrier.begun(distances)
        return barrier.passed(distances), barrier.slopes(begun, distances, jnp.zeros(()))

    passed, slopes = seen()
    assert passed == 0
    assert all(np.isfinite(x).all() for x in slopes)


def test_block_tridiagonal_systems_are_solved_as_dense_ones() -> None:
    rng = np.random.default_rng(0)
    blocks, size = 6, 3
    factor = np.tril(np.triu(np.kron(np.tri(blocks), np.ones((size, size))), -2 * size + 1) * rng.normal(size=(18, 18)))
    # The product of a factor with one block below the diagonal and its transpose has one block beside the diagonal.
    for i, j in itertools.product(range(blocks), repeat=2):
        if i - j > 1:
            factor[i * size : (i + 1) * size, j * size : (j + 1) * size] = 0
    dense, right = factor @ factor.T + np.eye(18), rng.normal(size=18)
    tiles = dense.reshape(blocks, size, blocks, size).swapaxes(1, 2)
    diagonal = np.stack([tiles[i, i] for i in range(blocks)])
    upper = np.stack([tiles[i, i + 1] if i + 1 < blocks else np.full((size, size), 7.0) for i in range(blocks)])
    given = [jnp.asarray(x) for x in (diagonal, upper, right.reshape(blocks, size))]
    x = jax.jit(solve_block_tridiagonal)(*given)
    again = jax.jit(lambda a, b, c: solve_factorized(factorize_block_tridiagonal(a, b), c))(*given)
    for found in (x, again):
        assert np.allclose(np.ravel(found), np.linalg.solve(dense, right), atol=1e-10)


def test_online_motions_do_not_jump() -> None:
    motion = track(problem(), crane().q_home, DT, {"tip": poses(points()[:5, 4])})
    assert motion.jumps == 0 and dataclasses.replace(motion).jumped.shape == (5,)


def test_waypoints_that_shapes_are_too_near_to_are_told_from_those_out_of_reach() -> None:
    ball = """<mujoco><worldbody><body><joint name="x" type="slide" axis="1 0 0" range="-1 1"/>
      <geom name="ball" size=".1" mass="1"/><site name="tip"/></body></worldbody></mujoco>"""
    robot = jaxik.load_robot(ball, geometry="model")
    limit = CollisionLimit(World(spheres=Spheres([[0.5, 0, 0]], 0.1)), margin=0.01)
    at = np.array([[-0.3, 0, 0], [0.25, 0, 0], [0.45, 0, 0], [-0.3, 0.2, 0]])
    tip = FrameTask(robot.frame("tip"), jaxlie.SE3.from_translation(jnp.asarray(at)), orientation_cost=None)
    problem = Problem(robot, {"tip": tip}, (ConfigurationLimit(), limit))
    q = jnp.asarray(at[None, :, :1], float)
    status = jax.jit(status_of)(problem, q, jnp.zeros((1, 4), bool))
    assert status.tolist() == [[Status.CONVERGED, Status.CONVERGED, Status.COLLIDES, Status.STALLED]]
    # Half-way from -0.6 to 0.9 is apart; over time (4, 2, 1).
    motions = jnp.array([[-0.3, -0.6, 0.9, 0.95], [-0.3, 0.29, -0.3, 0.29]]).T[:, :, None]
    meets, pair = jax.jit(meetings)(problem, motions)
    assert meets.T.tolist() == [[False, True, False], [False, False, False]] and not pair.any()
