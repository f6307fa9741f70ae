"""Derivatives through `track` against central differences, forward and reverse."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from derivatives import PLANAR
from tables import mostly_exhaustive

import jaxik
from jaxik import AccelerationLimit, ConfigurationLimit, FrameTask, PostureTask, Problem, VelocityLimit, track
from jaxik.solvers.tracking.targets import aimed_ahead

STEPS = 5


def start() -> dict[str, Any]:
    """Two planar arms, of which one saturates, whose targets move."""
    robot, q0 = PLANAR, jnp.array([[0.1, 0.4], [0.6, 1.2]])
    shift = jnp.zeros((STEPS, 2, 3)).at[..., 1].set(0.01 * jnp.arange(1, STEPS + 1)[:, None] * jnp.array([1.0, 8.0]))
    return {
        "targets": robot.frame_pose(q0, "tip").translation() + shift,
        "q0": q0 + 0.01,
        "velocity": 0.1 * jnp.ones(2),
        # Not weak, as an asarray of a number is: moved by a step they would be compiled once more.
        "cost": jnp.full((), 0.05, float),
        "gain": jnp.full((), 0.6, float),
        "fast": jnp.full((), 1.8, float),
        "body_position": robot.body_position,
    }


def run(at: dict[str, Any]) -> jaxik.Track:
    robot = dataclasses.replace(PLANAR, body_position=at["body_position"])
    aim: Any = jnp.zeros(3)
    tasks = {
        "tip": FrameTask(robot.frame("tip"), aim, orientation_cost=None, gain=at["gain"]),
        "rest": PostureTask(robot.q_home, at["cost"]),
    }
    limits = (ConfigurationLimit(), VelocityLimit(at["fast"]), AccelerationLimit(60.0))
    asked, targets = Problem(robot, tasks, limits), {"tip": at["targets"]}
    return track(asked, at["q0"], 0.02, targets, velocity=at["velocity"])


def value(at: dict[str, Any]) -> tuple[jax.Array, jaxik.Track]:
    found = run(at)
    sums = jnp.sum(jnp.sin(found.q)), jnp.sum(found.velocity**2), jnp.sum(found.residuals["tip"]["position"])
    return sum(sums), found


def reverse(at: Any, along: Any) -> Any:
    (total, found), slopes = jax.value_and_grad(value, has_aux=True)(at)
    return total, sum(jnp.vdot(g, along[name]) for name, g in slopes.items()), found


# The value, its derivative along a direction, and the track.
GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "reverse": reverse,
    "forward": lambda at, along: jax.jvp(value, (at,), (along,), has_aux=True),
}


@pytest.mark.parametrize("mode", mostly_exhaustive(GRADIENTS, ["reverse"]))
def test_derivatives_are_those_of_the_loop(mode: str) -> None:
    at, program = start(), jax.jit(GRADIENTS[mode])
    keys = dict(zip(at, jax.random.split(jax.random.key(1), len(at)), strict=True))
    along = {name: 0.1 * jax.random.normal(keys[name], x.shape) for name, x in at.items()}
    _, slope, found = program(at, along)
    assert 0.99 < float(jnp.max(found.peak_speed)) < 1.01 and float(jnp.max(found.peak_acceleration)) > 0.5
    ahead, behind = (program(jax.tree.map(lambda x, d, h=h: x + h * d, at, along), along)[0] for h in (1e-6, -1e-6))
    assert np.isclose(slope, (ahead - behind) / 2e-6, rtol=1e-5)


@jax.jit
def slope_of_what_is_aimed_at(bad: jax.Array) -> Any:
    """By a shift of two poses, of which the first has a bad rotation, of the square of the other; and the poses."""
    poses = PLANAR.frame_pose(jnp.array([[0.1, 0.4], [0.6, 1.2]]), "tip").wxyz_xyz
    asked = Problem(PLANAR, {"tip": FrameTask(PLANAR.frame("tip"), jaxlie.SE3(poses), gain=0.5)})

    def aim(shift: jax.Array) -> jax.Array:
        now = jaxlie.SE3(poses.at[0, :4].set(bad).at[:, 4:].add(shift))
        aims = aimed_ahead(asked, {"tip": {"target": jaxlie.SE3(poses)}}, {"tip": {"target": now}}, jnp.asarray(1.0))
        return jnp.sum(aims["tip"]["target"].wxyz_xyz[1] ** 2)

    return jax.grad(aim)(jnp.zeros(3)), poses


@pytest.mark.parametrize("bad", [np.nan, 0.0, np.inf])
def test_a_target_that_is_none_leaves_the_derivatives_of_others_alone(bad: float) -> None:
    """A rotation that is none in one element, where a gain below 1 aims ahead of what moves."""
    slope, poses = slope_of_what_is_aimed_at(np.asarray(bad))
    np.testing.assert_allclose(slope, 4 * np.asarray(poses[1, 4:]), atol=1e-9)
