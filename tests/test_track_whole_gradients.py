"""Derivatives of whole paths against central differences, with limits active in some steps."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from tables import mostly_exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    DerivativeStatus,
    FrameTask,
    JerkLimit,
    PostureTask,
    Problem,
    VelocityLimit,
    WholePathOptions,
    track,
)

# A planar arm with one joint more than a point needs.
PLANAR = """<mujoco><compiler angle="degree" autolimits="true"/><worldbody><body>
  <joint name="a" axis="0 0 1" range="-170 170"/><geom size=".05"/>
  <body pos=".5 0 0"><joint name="b" axis="0 0 1" range="-150 150"/><geom size=".05"/>
    <body pos=".4 0 0"><joint name="c" axis="0 0 1" range="-150 70"/><geom size=".05"/>
        <site name="tip" pos=".3 0 0"/></body></body></body></worldbody></mujoco>"""
STEPS, DT = 24, 0.05


@cache
def robot() -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(PLANAR))


@cache
def start() -> dict[str, Any]:
    """A path, limits that are active on it, and a start in motion."""
    t = np.linspace(0, 1, STEPS)[:, None]
    size = np.array([0.175, 0.14, -0.21])
    q = np.array([0.2, 0.9, 0.8]) + size * np.sin(2 * np.pi * t * np.array([1.0, 1.2, 0.8]))
    at = {
        "targets": robot().frame_pose(jnp.asarray(q), "tip").translation(),
        "q0": jnp.asarray(q[0]),
        "velocity": jnp.asarray((q[1] - q[0]) / DT),
        "dt": jnp.asarray(DT),
        "limits": jnp.array([1.143, 22.7, 751.0]),
        "cost": jnp.asarray(0.3),
        "rest": jnp.array([0.1, 0.8, 0.6]),
        "body_position": robot().body_position,
    }
    return {name: jnp.asarray(x) for name, x in at.items()}


def run(at: dict[str, Any]) -> jaxik.Track:
    changed = dataclasses.replace(robot(), body_position=at["body_position"])
    tasks = {
        "tip": FrameTask(changed.frame("tip"), jaxlie.SE3.identity(), orientation_cost=None),
        "rest": PostureTask(at["rest"], at["cost"], priority=1),
    }
    fast, accelerated, jerk = at["limits"]
    limits = (ConfigurationLimit(), VelocityLimit(fast), AccelerationLimit(accelerated), JerkLimit(jerk))
    options = WholePathOptions(candidates=8, smoothing_steps=200, smoothing_tolerance=1e-10)
    asked, targets = Problem(changed, tasks, limits), {"tip": jaxlie.SE3.from_translation(at["targets"])}
    return track(asked, at["q0"], at["dt"], targets, velocity=at["velocity"], mode="whole", options=options)


def value(at: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
    motion = run(at)
    return jnp.sum(jnp.sin(motion.q)) + 0.01 * jnp.sum(motion.velocity**2), motion.derivative_status


@cache
def along() -> dict[str, jax.Array]:
    """A direction in which the path stays in the plane."""
    keys = jax.random.split(jax.random.key(1), len(start()))
    drawn = {n: 0.1 * jax.random.normal(k, x.shape) for k, (n, x) in zip(keys, start().items(), strict=True)}
    drawn["targets"] = 0.01 * drawn["targets"].at[:, 2].set(0)
    drawn["body_position"] = drawn["body_position"].at[:, 2].set(0)
    return drawn | {"dt": 0.1 * drawn["dt"], "q0": 0.01 * drawn["q0"]}


@cache
def by_name(mode: str) -> tuple[dict[str, float], np.ndarray]:
    """Derivatives along the direction of each argument, and statuses."""
    if mode == "reverse":
        found, status = jax.jit(jax.grad(value, has_aux=True))(start())
        return {n: float(jnp.vdot(found[n], along()[n])) for n in found}, np.asarray(status)

    def of_direction(direction: Any) -> Any:
        return jax.jvp(lambda at: value(at)[0], (start(),), (direction,))[1]

    directions = [{n: x * (n == name) for n, x in along().items()} for name in start()]
    found = jax.jit(jax.vmap(of_direction))(jax.tree.map(lambda *xs: jnp.stack(xs), *directions))
    return dict(zip(start(), map(float, found), strict=True)), np.zeros(STEPS)


@pytest.mark.exhaustive
@pytest.mark.xfail(reason="3 % off from a start that is given, which derivative_status says is APPROXIMATE")
@pytest.mark.parametrize("mode", mostly_exhaustive({"reverse": None, "forward": None}, ["reverse"]))
def test_derivatives_are_those_of_the_motion(mode: str) -> None:
    found, status = by_name(mode)
    motion = jax.jit(run)
    at = motion(start())
    active = [np.asarray(x) > 0.9949 for x in (at.speed_share, at.acceleration_share, at.jerk_share)]
    assert at.check().jumps == 0 and any(x.any() for x in active) and not all(x.all() for x in active)
    assert (status == DerivativeStatus.APPROXIMATE).all()

    def of(h: float, name: str) -> float:
        at = start() | {name: start()[name] + h * along()[name]}
        return float(jnp.sum(jnp.sin((m := motion(at)).q)) + 0.01 * jnp.sum(m.velocity**2))

    for name in start():
        assert found[name] == pytest.approx((of(1e-4, name) - of(-1e-4, name)) / 2e-4, rel=1e-6, abs=1e-6), name
