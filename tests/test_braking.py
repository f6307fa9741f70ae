"""Joints brake for their limits in discrete time: no harder than they may, not later, and not sooner than they need."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik import AccelerationLimit, ConfigurationLimit, Motion, PostureTask, Problem, Track, VelocityLimit, track
from jaxik.limits.acceleration import stopping_displacement
from jaxik.limits.combine import merged_bounds
from jaxik.robot.robot import Robot

JOINTS = """
<mujoco><compiler angle="radian" autolimits="true"/><worldbody>
  <body><joint name="hinge" axis="0 0 1" range="-1 1.3"/><geom size=".1" mass="1"/>
    <body pos="1 0 0"><joint name="slide" type="slide" axis="0 0 1" range="-.4 .5"/><geom size=".1" mass="1"/></body>
  </body>
  <body pos="0 1 0"><joint name="ball" type="ball" range="0 1.2"/><geom size=".1" mass="1"/></body>
</worldbody></mujoco>
"""
ACCELERATION = {"hinge": 10.0, "slide": 3.0, "ball": 12.0}
MOST = np.array([10.0, 3.0, 12.0, 12.0, 12.0])
DTS = np.array([0.002, 0.01, 0.05])
GAINS = np.array([0.95, 1.0, 0.4])
MARGINS = (0.0, 0.1)
AXES = (1.0, -1.0, 1.0), (2.0, -1.0, 0.5)
STEPS = 600


stopping = jax.jit(stopping_displacement)


@cache
def robot() -> Robot:
    return jaxik.load_robot(JOINTS)


def asked(gain: Any, margin: Any) -> Problem:
    """As fast as limits allow, or at a speed that leaves the braking to the end."""
    limits = (ConfigurationLimit(gain, margin), VelocityLimit(4.0), AccelerationLimit(ACCELERATION))
    return Problem(robot(), {"rest": PostureTask(robot().q_home)}, limits)


def posture(sign: Any, axis: Any) -> jax.Array:
    """Beyond all limits: the ball turned by 3 rad about an axis."""
    axis = jnp.asarray(axis)
    ball = jaxlie.SO3.exp(sign * 3 * axis / jnp.linalg.norm(axis)).wxyz
    return jnp.concatenate([sign * jnp.array([5.0, 5.0]), ball])


@cache
def approaches() -> Track:
    """For each margin, duration, gain, axis of the ball and direction (2, 3, 3, 2, 2): joints go to their limits."""
    target = jnp.stack([jnp.stack([posture(sign, axis) for sign in (1.0, -1.0)]) for axis in AXES])
    margin, dt, gain = (x[..., None, None] for x in np.ix_(MARGINS, DTS, GAINS))
    targets = {"rest": jnp.broadcast_to(target, (STEPS, *target.shape))}
    return track(asked(gain, margin), robot().q_home, dt, targets)


def approached(name: str, margin: float = 0.0, axis: int = 0) -> np.ndarray:
    """What a track says of each duration, gain and direction (STEPS, 3, 3, 2, n)."""
    return np.asarray(getattr(approaches(), name))[:, MARGINS.index(margin), :, :, axis]


def limits_with(margin: float) -> tuple[np.ndarray, np.ndarray, float]:
    lower, upper = np.asarray(robot().limit_lower), np.asarray(robot().limit_upper)
    return lower[:2] + margin, upper[:2] - margin, float(upper[2]) - margin


@pytest.mark.parametrize("margin", MARGINS)
def test_no_step_of_an_approach_brakes_harder_than_it_may(margin: float) -> None:
    change = np.abs(approached("acceleration", margin)).max(axis=0)
    assert np.all(change <= MOST * (1 + 1e-9))


@pytest.mark.parametrize("margin", MARGINS)
def test_limits_are_reached_and_never_passed(margin: float) -> None:
    lower, upper, angle = limits_with(margin)
    q = approached("q", margin)
    assert np.all((q[..., :2] >= lower) & (q[..., :2] <= upper))
    assert np.all(q[-1, :, :, 0, :2] == upper) and np.all(q[-1, :, :, 1, :2] == lower)
    turned = 2 * np.arctan2(np.linalg.norm(q[..., 3:], axis=-1), np.abs(q[..., 2]))
    assert np.all(turned <= angle + 1e-12) and np.allclose(turned[-1], angle, atol=1e-9)


def test_a_ball_that_turns_about_changing_axes_is_stopped_harder_but_not_as_by_a_wall() -> None:
    """Its rates reach their accelerations one after the other. Without foresight it was stopped 123 times as hard."""
    change, q = np.abs(approached("acceleration", axis=1)).max(axis=0) / MOST, approached("q", axis=1)
    assert np.all(change[..., :2] <= 1 + 1e-9) and np.all(change < 15)
    turned = 2 * np.arctan2(np.linalg.norm(q[..., 3:], axis=-1), np.abs(q[..., 2]))
    assert np.all(turned <= 1.2 + 1e-12) and np.allclose(turned[-1], 1.2, atol=1e-6)


def test_nothing_brakes_sooner_than_it_needs() -> None:
    """On its way every joint speeds up, keeps its speed or brakes, each as hard as it may, but for a few steps."""
    acceleration, velocity = (np.abs(approached(name)[..., :2]) for name in ("acceleration", "velocity"))
    acceleration = acceleration / MOST[:2]
    idle = (acceleration < 1 - 1e-9) & (velocity > 1e-9) & (velocity < 4 - 1e-9)
    assert np.all(idle[:, :, 1].sum(axis=0) <= 2)  # of gain 1


def test_a_continuous_law_would_brake_too_hard_and_this_is_less() -> None:
    d = np.linspace(1e-6, 1, 1000)
    for dt in DTS:
        exact = stopping(np.full(1000, 10.0 * dt**2), d, 1.0) / dt
        assert np.all(exact < np.sqrt(20 * d)) and np.all(exact > np.sqrt(20 * d) - 10 * dt)


@pytest.mark.parametrize("gain", [1.0, 0.95, 0.3])
def test_the_law_is_the_fastest_from_which_a_joint_can_stop(gain: float) -> None:
    """Braking as hard as it may from that speed keeps the share of the distance; from any higher one it does not."""
    unit, distances = 1.0, np.concatenate([np.linspace(1e-3, 30, 500), [1, 3, 6, 10, gain, 1 + gain]])
    allowed = np.asarray(stopping(np.full(506, unit), distances, gain))

    def keeps(x: np.ndarray) -> np.ndarray:
        left, kept = distances.copy(), np.ones(506, bool)
        while np.any(x > 0):
            kept &= x <= gain * left * (1 + 1e-12) + 1e-12
            left, x = left - x, np.maximum(x - unit, 0)
        return kept

    assert np.all(keeps(allowed)) and not np.any(keeps(allowed * (1 + 1e-6) + 1e-9))


@exhaustive
def test_random_targets_corner_no_joint() -> None:
    """Targets that flip at every step, or stay for some: 64,000 steps, none infeasible or out of its limits."""
    rng = np.random.default_rng(0)
    hold = rng.integers(1, 60, (500, 128))
    which = np.minimum(np.cumsum(rng.random((500, 128)) < 1 / hold, axis=0), 499)
    target = rng.uniform(-4, 4, (500, 128, 2))[which, np.arange(128)]
    ball = np.broadcast_to(np.eye(4)[0], (500, 128, 4))
    dt, gain = rng.choice(DTS, 128), rng.choice(GAINS, 128)
    found = track(asked(gain, 0.0), robot().q_home, dt, {"rest": np.concatenate([target, ball], axis=-1)})
    assert np.all(np.abs(found.acceleration).max(axis=(0, 1)) <= MOST * (1 + 1e-9))
    assert np.all(robot().check_limits(found.q)) and np.all(found.status == jaxik.Status.CONVERGED)
    assert np.abs(found.acceleration[..., :2]).max() > 9.99


def test_a_ball_that_turns_freely_keeps_the_speed_that_it_may_have() -> None:
    free = AccelerationLimit({"hinge": 10.0})

    @jax.jit
    def bounding(q: jax.Array) -> Any:
        kin, motion = robot().kinematics(q), Motion(0.01)
        return free.inequalities(robot(), kin, motion), merged_bounds((free,), robot(), kin, motion)

    rows, (lower, upper) = jax.device_get(bounding(robot().q_home))
    assert rows is None or np.all(np.isinf(rows[1]))
    assert np.all(np.isinf(lower[2:])) and np.all(np.isinf(upper[2:]))
