"""Joints under jerk limits: no step breaks one, limits are reached at rest, and nothing corners a joint."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    JerkLimit,
    Motion,
    PostureTask,
    Problem,
    Track,
    VelocityLimit,
    track,
)
from jaxik.limits.combine import merged_bounds
from jaxik.robot.robot import Robot

JOINTS = """
<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
  <body><joint name="hinge" axis="0 0 1" range="-1 1.3"/><geom size=".1" mass="1"/>
    <body pos="1 0 0"><joint name="slide" type="slide" axis="0 0 1" range="-.4 .5"/><geom size=".1" mass="1"/></body>
  </body>
</worldbody></mujoco>
"""
SPEED, ACCELERATION, JERK = 2.0, 10.0, 100.0
DTS = np.array([0.002, 0.01, 0.05])


@cache
def robot() -> Robot:
    return jaxik.load_robot(JOINTS)


def asked(speed: Any = SPEED, acceleration: Any = ACCELERATION, jerk: Any = JERK) -> Problem:
    limits = (ConfigurationLimit(), VelocityLimit(speed), AccelerationLimit(acceleration), JerkLimit(jerk))
    return Problem(robot(), {"rest": PostureTask(robot().q_home)}, limits)


def followed(problem: Problem, joints: Any, dt: Any) -> Track:
    """Hinge and slide go to targets (T, *batch, 2)."""
    return track(problem, robot().q_home, dt, {"rest": joints})


def jerks(found: Track) -> np.ndarray:
    before = np.concatenate([0 * found.acceleration[:1], found.acceleration[:-1]])
    return np.abs(np.asarray(found.acceleration) - before) / np.asarray(found.dt)[..., None]


def test_a_start_as_gentle_as_it_must_be_is_no_rest() -> None:
    """Of a few nanometres in a step, on the way to a target that has a tolerance."""
    limits = (ConfigurationLimit(), AccelerationLimit(ACCELERATION), JerkLimit(20.0))
    rest = PostureTask(robot().q_home, tolerance=1e-3)
    found = track(Problem(robot(), {"rest": rest}, limits), robot().q_home, 0.001, {"rest": np.full((20, 2), 0.4)})
    assert np.abs(found.velocity[3]).max() * 0.001 < 1e-6
    np.testing.assert_array_equal(found.status, jaxik.Status.CONVERGED)


@cache
def approached() -> Track:
    """To both limits, from the middle: for each duration and direction (3, 2), and 3 seconds of it at least."""
    return followed(asked(), np.broadcast_to([[5.0, 5.0], [-5.0, -5.0]], (1500, 3, 2, 2)), DTS[:, None])


def test_no_step_of_an_approach_breaks_a_limit() -> None:
    found = approached()
    assert np.all(found.status == jaxik.Status.CONVERGED) and np.all(robot().check_limits(found.q))
    assert np.max(jerks(found)) <= JERK * (1 + 1e-6)
    np.testing.assert_allclose(found.peak_jerk, jerks(found).max(axis=(0, -1)) / JERK)
    assert np.max(found.peak_jerk) > 0.999
    assert np.max(found.peak_acceleration) <= 1 + 1e-9 and np.max(found.peak_speed) <= 1 + 1e-9
    # The hinge has room for its largest speed and acceleration, as seven segments have them.
    assert np.all(np.abs(found.velocity[..., 0]).max(axis=0) > SPEED * (1 - 1e-9))
    assert np.all(found.velocity[..., 0].min(axis=0)[:, 0] > -0.01) and np.all(found.peak_acceleration > 0.999)


def test_limits_are_reached_as_soon_as_seven_segments_do_and_stay_reached() -> None:
    found, both = approached(), np.stack([robot().limit_upper[:2], robot().limit_lower[:2]])
    np.testing.assert_allclose(found.q[-1, :, :, :2], np.broadcast_to(both, (3, 2, 2)), atol=1e-9)
    distance = np.abs(both[:, 0] - 0)
    # Ramps of acceleration a / j, of speed a / j + v / a, whose distance is v times half of that, twice.
    ramp = ACCELERATION / JERK + SPEED / ACCELERATION
    best = 2 * ramp + (distance - SPEED * ramp) / SPEED
    away = np.abs(np.asarray(found.q[..., 0]) - both[:, 0]) > 1e-3
    arrival = np.argmin(away, axis=0) * DTS[:, None]
    assert np.all(arrival < best + 2 * DTS[:, None]) and np.all(arrival > best - 0.05 - 3 * DTS[:, None])


STARTS = np.array([[1.35, -0.45], [2.5, 0.52], [-1.5, 1.0]])
RANDOM, OUTSIDE, FAST = slice(0, 64), slice(64, 67), 67


@cache
def tracked() -> Track:
    """In one batch random targets and limits, starts outside of joint limits, and one that is too fast to stop.

    Random targets flip at every step, or stay for some. Those of starts outside are in the middle, where they are, and
    beyond the other end.
    """
    rng = np.random.default_rng(0)
    steps, count = 400, 64
    hold = rng.integers(1, 60, (steps, count))
    which = np.minimum(np.cumsum(rng.random((steps, count)) < 1 / hold, axis=0), steps - 1)
    target = rng.uniform(-4, 4, (steps, count, 2))[which, np.arange(count)]
    others = np.array([[0.0, 0.0], STARTS[1], -3 * np.sign(STARTS[2]), [5.0, 0.0]])
    target = np.concatenate([target, np.broadcast_to(others, (steps, 4, 2))], axis=1)
    usual = np.repeat([[SPEED], [ACCELERATION], [JERK]], 4, axis=1)
    limits = np.concatenate([10 ** rng.uniform(-1, 1, (2, count)), 10 ** rng.uniform(0, 3.5, (1, count))])
    limits = np.concatenate([limits, usual], axis=1)[..., None]
    dt = np.append(rng.choice(DTS, count), [0.01] * 4)
    q0, velocity = np.zeros((count + 4, 2)), np.zeros((count + 4, 2))
    q0[:count], q0[OUTSIDE], q0[FAST], velocity[FAST, 0] = robot().q_home, STARTS, robot().q_home, SPEED
    q0[FAST, 0] = 1.2
    return track(asked(*limits), q0, dt, {"rest": target}, velocity=velocity)


def test_random_targets_corner_no_joint() -> None:
    """Every step keeps the limits."""
    found = tracked()
    assert np.all(found.status[:, RANDOM] == jaxik.Status.CONVERGED)
    assert np.all(robot().check_limits(found.q[:, RANDOM]))
    speed, acceleration, jerk = (
        np.asarray(x)[RANDOM] for x in (found.peak_speed, found.peak_acceleration, found.peak_jerk)
    )
    assert speed.max() <= 1 + 1e-9 and acceleration.max() <= 1 + 1e-6
    assert jerk.max() <= 1 + 1e-6 and np.median(jerk) > 0.99


@exhaustive
def test_only_joints_that_have_one_are_limited_and_they_need_no_other_limit() -> None:
    limits = (ConfigurationLimit(), JerkLimit({"hinge": JERK}))
    problem = Problem(robot(), {"rest": PostureTask(robot().q_home)}, limits)
    found = followed(problem, np.full((300, 2), 5.0), 0.01)
    jerk = jerks(found)
    assert jerk[:, 0].max() <= JERK * (1 + 1e-6) and jerk[:, 1].max() > 1e5
    np.testing.assert_allclose(found.q[-1, :2], robot().limit_upper[:2], atol=1e-6)


def test_a_start_that_is_too_fast_keeps_the_joint_limits() -> None:
    found = tracked()
    assert np.all(robot().check_limits(found.q[:, FAST])) and float(found.peak_jerk[FAST]) > 2
    assert found.q[-1, FAST, 0] == pytest.approx(1.3, abs=1e-6)


def test_joints_outside_their_limits_come_back_within_the_others() -> None:
    found = tracked()
    for peak in (found.peak_jerk, found.peak_acceleration, found.peak_speed):
        assert np.max(peak[OUTSIDE]) <= 1 + 1e-6
    assert np.all(found.status[:, OUTSIDE] == jaxik.Status.CONVERGED)
    assert not np.any(robot().check_limits(STARTS)) and np.all(robot().check_limits(found.q[-1, OUTSIDE]))


def test_one_step_knows_the_acceleration_before_on_balls_too() -> None:
    ball = """<mujoco><worldbody><body><joint type="ball"/><geom size=".1" mass="1"/></body></worldbody></mujoco>"""
    model = jaxik.load_robot(ball)
    limits = (AccelerationLimit(ACCELERATION), JerkLimit(JERK))
    problem = Problem(model, {"rest": PostureTask(np.array([0.7, 0.7, -0.1, 0.1]))}, limits)
    velocity, acceleration = jnp.array([0.5, 0.1, 0.0]), jnp.array([3.0, -2.0, 0.0])
    found = jaxik.step(problem, model.q_home, 0.01, previous_velocity=velocity, previous_acceleration=acceleration)
    np.testing.assert_allclose((found.velocity - velocity) / 0.01, [4.0, -3.0, 1.0], rtol=1e-9)
    with pytest.raises(jaxik.JaxikError, match="previous_acceleration has shape"):
        jaxik.step(problem, model.q_home, 0.01, previous_acceleration=jnp.zeros(2))


def test_bounds_have_the_derivatives_of_differences() -> None:
    """By where a joint is, how it moves, the jerk and the speed; where it brakes, or only one of them bounds it."""
    kin_of = robot().kinematics

    def bounds(x: jax.Array) -> jax.Array:
        limits = (ConfigurationLimit(), VelocityLimit(x[4]), AccelerationLimit(ACCELERATION), JerkLimit(x[3]))
        q = robot().q_home.at[0].set(x[0])
        motion = Motion(0.01, jnp.zeros(2).at[0].set(x[1]), jnp.zeros(2).at[0].set(x[2]))
        return jnp.stack([bound[0] for bound in merged_bounds(limits, robot(), kin_of(q), motion)])

    low, high = np.array([[-1, -1.5, -9, 60, 1.5], [1.3, 1.5, 9, 200, 2.0]])
    x = np.random.default_rng(0).uniform(low, high, (1000, 5))
    moved, derivative = jax.jit(jax.vmap(jax.vmap(bounds))), jax.jit(jax.vmap(jax.jacfwd(bounds)))(x)
    numeric = []
    for h in (1e-8, 4e-8):
        ahead, behind = (np.asarray(moved(x[:, None] + sign * h * np.eye(5))) for sign in (1, -1))
        numeric.append((ahead - behind).mT / (2 * h))
    # Others are at a kink, such as where braking takes one step more.
    smooth = np.all(np.abs(numeric[0] - numeric[1]) < 1e-4, axis=(1, 2))
    assert smooth.mean() > 0.995
    np.testing.assert_allclose(derivative[smooth], numeric[0][smooth], atol=1e-5)


def test_mistakes_are_told() -> None:
    with pytest.raises(jaxik.JaxikError, match="max_jerk is above zero"):
        JerkLimit(0.0)
    with pytest.raises(jaxik.JaxikError, match="wheel"):
        Problem(robot(), {"rest": PostureTask(robot().q_home)}, (JerkLimit({"wheel": 1.0}),))
