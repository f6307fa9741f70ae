"""Limits by a rate in 1/s, as barriers have it: the same motion at any dt; and two frames that stay apart."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive
from test_collision_limit import arm

import jaxik
from jaxik.core.errors import JaxikError
from jaxik.kinematics.motion import Motion

# Behind a plane, nearer to the base than is allowed, in a ball.
TARGETS = np.array([[0.7, 0, 0.9], [0.15, 0, 0.7], [0.55, 0, 0.75]])
STARTS = np.array([[-0.3, 0.4, 0.3], [0.9, 0.9, 0.5], [0.2, 0.4, 0.3]])
OFFSET, APART, BALL = (0.45, np.inf, np.inf), (0.0, 0.6, 0.0), ([0.55, 0, 0.75], 0.06)
SECONDS = 1.0


def barriers() -> tuple[Any, ...]:
    ball = jaxik.Spheres([BALL[0]], BALL[1], np.array([[False], [False], [True]]))
    tip, base = arm().frame("tip"), arm().frame("base")
    return (
        jaxik.PositionLimit(tip, [1.0, 0, 0], OFFSET, rate=4.0),
        jaxik.DistanceLimit(tip, base, APART, rate=4.0),
        jaxik.CollisionLimit(jaxik.World(spheres=ball), pairs=[("hand", "world")], margin=0.01, rate=4.0),
    )


@jax.jit
def _after(q: jax.Array, dt: jax.Array, steps: jax.Array) -> jax.Array:
    gain = 1 - jnp.exp(-3 * dt)
    tip = jaxik.FrameTask(arm().frame("tip"), TARGETS, orientation_cost=None, gain=gain)
    problem = jaxik.Problem(arm(), {"tip": tip}, limits=(jaxik.ConfigurationLimit(1.0), *barriers()))
    return jax.lax.fori_loop(0, steps, lambda _, q: jaxik.step(problem, q, dt, damping=1e-3).q, q)


@cache
def path(steps_a_second: int) -> np.ndarray:
    """Configurations (10, 3, nq) of the three at each tenth of a second."""
    arm()  # loaded before anything is traced
    q, found = jnp.asarray(STARTS), []
    for _ in range(10):
        q = _after(q, jnp.asarray(1 / steps_a_second), jnp.asarray(steps_a_second // 10))
        found.append(np.asarray(q))
    return np.stack(found)


def test_with_a_rate_the_motion_is_the_same_at_a_tenth_of_the_dt() -> None:
    coarse, fine = path(50), path(500)
    length = np.abs(fine[-1] - STARTS).max(axis=-1)
    assert (np.abs(coarse - fine).max(axis=(0, 2)) < 0.05 * length).all() and (length > 0.2).all()


def test_barriers_hold_and_are_reached() -> None:
    tip = np.asarray(arm().frame_pose(path(500), "tip").translation())
    left = np.stack(
        [
            OFFSET[0] - tip[:, 0, 0],
            np.linalg.norm(tip[:, 1] - [0, 0, 0.25], axis=-1) - APART[1],
            np.asarray(arm().clearance(path(500)[:, 2], jaxik.World(spheres=jaxik.Spheres(*([x] for x in BALL)))))
            - 0.01,
        ]
    )
    assert (left > -1e-3).all() and (left[:, -1] < 0.05).all()


def test_the_row_of_a_distance_is_its_derivative() -> None:
    robot, limit = arm(), jaxik.DistanceLimit(arm().frame("tip"), arm().frame("upper", kind="body"), 0.3, gain=0.5)

    def rows(q: jax.Array) -> Any:
        return limit.inequalities(robot, robot.kinematics(q, limit.frames), Motion(0.1))

    def left(q: jax.Array) -> float:
        tip, upper = (np.asarray(robot.frame_pose(q, frame).translation()) for frame in limit.frames)
        return float(np.linalg.norm(tip - upper)) - 0.3

    q, step = jnp.asarray([0.3, 1.0, -0.4]), 1e-6
    matrix, right = rows(q)
    differences = [(left(q + step * x) - left(q - step * x)) / (2 * step) for x in np.eye(3)]
    np.testing.assert_allclose(matrix, [-np.array(differences)], atol=1e-8)
    np.testing.assert_allclose(right, [0.5 * left(q)], atol=1e-12)


@exhaustive
def test_solve_keeps_a_distance() -> None:
    robot, limit = arm(), jaxik.DistanceLimit(arm().frame("tip"), arm().frame("upper", kind="body"), 0.3)
    q = jnp.asarray([0.3, 1.0, -0.4])
    near = jaxik.FrameTask(robot.frame("tip"), robot.frame_pose(q, limit.second).translation(), orientation_cost=None)
    found = jaxik.solve(jaxik.Problem(robot, {"tip": near}, limits=(jaxik.ConfigurationLimit(), limit)), q)
    tip, upper = (np.asarray(robot.frame_pose(found.q, frame).translation()) for frame in limit.frames)
    assert np.linalg.norm(tip - upper) == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jaxik.PositionLimit(arm().frame("tip"), [1.0, 0, 0], 0.0, rate=0), "rate is above zero"),
        (lambda: jaxik.DistanceLimit(arm().frame("tip"), arm().frame("tip"), 0.1), "nothing is between them"),
        (lambda: jaxik.DistanceLimit("tip", arm().frame("tip"), 0.1), "first is a Frame"),  # type: ignore[arg-type]
        (lambda: jaxik.DistanceLimit(arm().frame("base"), arm().frame("tip"), -0.1), "distance must not be negative"),
        (lambda: jaxik.DistanceLimit(arm().frame("base"), arm().frame("tip"), 0.1, rate=-1), "rate is above zero"),
    ],
)
def test_mistakes_are_told_in_a_line(make: Any, words: str) -> None:
    with pytest.raises(JaxikError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)
