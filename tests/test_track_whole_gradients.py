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
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    DerivativeStatus,
    FrameTask,
    JerkLimit,
    PostureTask,
    Problem,
    Status,
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
def robot(dtype: str) -> jaxik.Robot:
    return jaxik.load_robot(mujoco.MjModel.from_xml_string(PLANAR)).astype(dtype)


@cache
def start() -> dict[str, Any]:
    """A path, limits that are active on it, and a start in motion."""
    t = np.linspace(0, 1, STEPS)[:, None]
    size = np.array([0.175, 0.14, -0.21])
    q = np.array([0.2, 0.9, 0.8]) + size * np.sin(2 * np.pi * t * np.array([1.0, 1.2, 0.8]))
    at = {
        "targets": robot("float64").frame_pose(jnp.asarray(q), "tip").translation(),
        "q0": jnp.asarray(q[0]),
        "velocity": jnp.asarray((q[1] - q[0]) / DT),
        "dt": jnp.asarray(DT),
        "limits": jnp.array([1.143, 22.7, 751.0]),
        "cost": jnp.asarray(0.3),
        "rest": jnp.array([0.1, 0.8, 0.6]),
        "body_position": robot("float64").body_position,
    }
    return {name: jnp.asarray(x) for name, x in at.items()}


def run(at: dict[str, Any]) -> jaxik.Track:
    """From a start that is chosen where none is given."""
    place = at["body_position"]
    changed = dataclasses.replace(robot(str(place.dtype)), body_position=place)
    tasks = {
        "tip": FrameTask(changed.frame("tip"), jaxlie.SE3.identity(), orientation_cost=None),
        "rest": PostureTask(at["rest"], at["cost"][..., None], priority=1),
    }
    fast, accelerated, jerk = jnp.split(at["limits"], 3, axis=-1)
    limits = (ConfigurationLimit(), VelocityLimit(fast), AccelerationLimit(accelerated), JerkLimit(jerk))
    options = WholePathOptions(candidates=32, smoothing_steps=200, smoothing_tolerance=1e-10)
    points = jnp.moveaxis(at["targets"], -2, 0)
    asked, targets = Problem(changed, tasks, limits), {"tip": jaxlie.SE3.from_translation(points)}
    return track(asked, at.get("q0"), at["dt"], targets, velocity=at.get("velocity"), mode="whole", options=options)


def values(at: dict[str, Any]) -> tuple[jax.Array, jaxik.Track]:
    """A number of each motion of a batch."""
    motion = run(at)
    return jnp.sum(jnp.sin(motion.q), (0, -1)) + 0.01 * jnp.sum(motion.velocity**2, (0, -1)), motion


def total(at: dict[str, Any]) -> tuple[jax.Array, Any]:
    found, motion = values(at)
    return jnp.sum(found), (found, motion)


gradient = jax.jit(jax.grad(total, has_aux=True))


@cache
def along() -> dict[str, jax.Array]:
    """A direction in which the path stays in the plane."""
    keys = jax.random.split(jax.random.key(1), len(start()))
    drawn = {n: 0.1 * jax.random.normal(k, x.shape) for k, (n, x) in zip(keys, start().items(), strict=True)}
    drawn["targets"] = 0.01 * drawn["targets"].at[:, 2].set(0)
    drawn["body_position"] = 1e-3 * drawn["body_position"].at[:, 2].set(0)
    return drawn | {"dt": 0.01 * drawn["dt"], "q0": 0.01 * drawn["q0"], "velocity": 0.1 * drawn["velocity"]}


@cache
def by_name(given: bool, mode: str) -> tuple[dict[str, float], dict[str, float], jaxik.Track]:
    """Derivatives along the direction of each argument, central differences, and the motion: one batch for all."""
    names = [name for name in start() if given or name not in ("q0", "velocity")]
    # One row as it is for each argument, then a step each ahead, and back.
    steps = np.concatenate([np.zeros((len(names),) * 2), *(h * np.eye(len(names)) for h in (1e-4, -1e-4))])
    spread = lambda x, h: h.reshape(-1, *(1,) * x.ndim) * x  # noqa: E731
    at = {n: start()[n] + spread(along()[n], h) for n, h in zip(names, steps.T, strict=True)}
    if mode == "reverse":
        slopes, (found, motion) = gradient(at)
        ours = {n: float(jnp.vdot(slopes[n][0], along()[n])) for n in names}
    else:
        own = np.concatenate([np.eye(len(names)), np.zeros((2 * len(names), len(names)))])
        tangents = {n: spread(along()[n], h) for n, h in zip(names, own.T, strict=True)}
        found, changes, motion = jax.jit(lambda a, t: jax.jvp(values, (a,), (t,), has_aux=True))(at, tangents)
        ours = dict(zip(names, np.asarray(changes).tolist(), strict=False))
    _, ahead, back = np.asarray(found).reshape(3, -1)
    return ours, dict(zip(names, (ahead - back) / 2e-4, strict=True)), motion


@pytest.mark.parametrize("mode", mostly_exhaustive(("reverse", "forward"), ["reverse"]))
@pytest.mark.parametrize("given", mostly_exhaustive((True, False), [True]))
def test_derivatives_are_those_of_the_motion(mode: str, given: bool) -> None:
    """From a start that is given, where rows of limits on jerk and of waypoints nearly depend on each other; or not."""
    ours, differences, motion = by_name(given, mode)
    active = [np.asarray(x)[:, 0] > 0.9949 for x in (motion.speed_share, motion.acceleration_share, motion.jerk_share)]
    assert motion.check().jumps.sum() == 0 and any(x.any() for x in active) and not all(x.all() for x in active)
    assert (motion.derivative_status == DerivativeStatus.EXACT).all()
    for name, found in ours.items():
        assert found == pytest.approx(differences[name], rel=1e-6, abs=1e-6), name


def test_a_start_that_is_no_number_leaves_the_derivatives_of_others_alone() -> None:
    count = 3 * len(start())
    # Of NumPy: tiled by JAX, numbers of Python stay weak, for which the gradient would be compiled once more.
    at = {name: np.tile(np.asarray(x), (count, *(1,) * x.ndim)) for name, x in start().items()}
    at["q0"][0, 1] = np.nan
    slopes, (_, motion) = gradient(at)
    assert np.isfinite(motion.q).all()
    assert set(np.asarray(motion.status[:, 0]).tolist()) == {Status.NONFINITE}
    assert (np.asarray(motion.status)[:, 1:] == Status.CONVERGED).all()
    assert (np.asarray(motion.derivative_status[:, 0]) == DerivativeStatus.UNAVAILABLE).all()
    for name, slope in slopes.items():
        # Velocities are displacements by dt, whatever these are.
        assert np.isfinite(slope).all() and np.any(np.asarray(slope[1])), name
        assert name == "dt" or not np.any(np.asarray(slope[0])), name


@exhaustive
def test_single_precision_has_the_motion_and_the_derivatives_of_double() -> None:
    ours, _, motion = by_name(True, "reverse")
    robot("float32")
    with jax.enable_x64(False):
        at = {name: jnp.asarray(np.asarray(x)[None], jnp.float32) for name, x in start().items()}
        slopes, (_, found) = jax.jit(jax.grad(total, has_aux=True))(at)
    assert found.q.dtype == jnp.float32 and (found.derivative_status == DerivativeStatus.EXACT).all()
    # Arguments are rounded to 6e-8, of which joints make up to 2e-6.
    np.testing.assert_allclose(found.q[:, 0], motion.q[:, 0], atol=1e-5)
    for name, expected in ours.items():
        mine = np.vdot(np.asarray(slopes[name][0], float), along()[name])
        assert mine == pytest.approx(expected, rel=1e-3, abs=1e-4), name
