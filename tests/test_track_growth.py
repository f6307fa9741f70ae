"""Derivatives through many steps of `track` that stay bounded, say so, and take little memory."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik import DerivativeStatus, FrameTask, JaxikError, Problem, TrackOptions

ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
<body><joint name="first" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
  <body pos="0.5 0 0"><joint name="second" axis="0 0 1" range="-3 3"/><geom size="0.1"/>
    <site name="tip" pos="0.5 0 0"/></body></body></worldbody></mujoco>"""
COUNT, STEPS, LIMIT = 256, 60, 100.0


@functools.cache
def arm() -> Any:
    with jax.ensure_compile_time_eval():
        return jaxik.load_robot(ARM)


def track_of(targets: Any, q0: Any, limit: Any) -> jaxik.Track:
    aim = FrameTask(arm().frame("tip"), jaxlie.SE3.identity(), 1.0, None)
    moving = {"tip": jaxlie.SE3.from_translation(targets)}
    return jaxik.track(Problem(arm(), {"tip": aim}), q0, 0.02, moving, options=TrackOptions(growth_limit=limit))


@functools.cache
def lines() -> tuple[Any, Any]:
    """Between random places, in reach and out of it: (T, n, 3) and starts (n, 2)."""
    rng = np.random.default_rng(0)
    angle, away = rng.uniform(-np.pi, np.pi, (2, COUNT)), rng.uniform(0.2, 1.2, (2, COUNT))
    ends = np.stack([away * np.cos(angle), away * np.sin(angle), 0 * angle], axis=-1)
    share = np.linspace(0, 1, STEPS + 1)[1:, None, None]
    return ends[0] + share * (ends[1] - ends[0]), rng.uniform(-2, 2, (COUNT, 2))


@functools.cache
def differentiated(limit: float) -> Any:
    """The gradient of where the arms end, by targets and starts, and the track."""
    return jax.tree.map(np.asarray, _gradient()(*lines(), limit))


@functools.cache
def _gradient() -> Any:
    def end(targets: Any, q0: Any, limit: Any) -> Any:
        found = track_of(targets, q0, limit)
        return jnp.sum(found.q[-1]), found

    return jax.jit(jax.grad(end, argnums=(0, 1), has_aux=True))


def largest(gradient: Any) -> np.ndarray:
    """Of each arm (n,)."""
    return np.maximum(np.max(np.abs(gradient[0]), axis=(0, 2)), np.max(np.abs(gradient[1]), axis=1))


@exhaustive
def test_derivatives_stay_bounded_and_the_motion_is_the_same() -> None:
    free, kept = differentiated(1e300), differentiated(LIMIT)
    assert np.max(largest(free[0])) > 1e3 * LIMIT
    # A target's own step comes on top of the perturbation that is followed.
    assert np.max(largest(kept[0])) < 10 * LIMIT
    np.testing.assert_array_equal(kept[1].q, free[1].q)


@exhaustive
def test_what_is_shortened_is_approximate_from_there_on_and_the_rest_is_exact() -> None:
    free, kept = differentiated(1e300), differentiated(LIMIT)
    cut = kept[1].derivative_status == DerivativeStatus.APPROXIMATE
    assert 0.05 < np.mean(cut[-1]) < 0.95 and not np.any(free[1].derivative_status == DerivativeStatus.APPROXIMATE)
    assert np.all(np.diff(cut.astype(int), axis=0) >= 0)
    whole = ~cut[-1]
    for one, other in zip(kept[0], free[0], strict=True):
        one, other = (x[..., whole, :] for x in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@exhaustive
def test_a_loop_of_single_steps_is_limited_as_the_track_is() -> None:
    """Of arms that are shortened and of arms that are not."""
    targets, q0 = lines()
    kept = differentiated(LIMIT)
    cut = kept[1].derivative_status[-1] == DerivativeStatus.APPROXIMATE
    some = np.concatenate([np.flatnonzero(cut)[:4], np.flatnonzero(~cut)[:4]])
    aim = FrameTask(arm().frame("tip"), jaxlie.SE3.identity(), 1.0, None)
    problem, options = Problem(arm(), {"tip": aim}), TrackOptions(growth_limit=LIMIT)

    def end(targets: Any, q0: Any) -> Any:
        def step(state: Any, target: Any) -> Any:
            values = {"tip": jaxlie.SE3.from_translation(target)}
            return jaxik.track_step(problem, state, 0.02, values, options=options), None

        first = {"tip": jaxlie.SE3.from_translation(targets[0])}
        last = jax.lax.scan(step, jaxik.track_start(problem, q0, first), targets)[0]
        return jnp.sum(last.q), last.derivative_status

    gradient, status = jax.jit(jax.grad(end, argnums=(0, 1), has_aux=True))(targets[:, some], q0[some])
    np.testing.assert_array_equal(status, kept[1].derivative_status[-1][some])
    for one, other in zip(gradient, kept[0], strict=True):
        np.testing.assert_allclose(one, other[..., some, :], rtol=1e-6, atol=1e-9)


@exhaustive
def test_forward_derivatives_are_those_of_reverse_mode() -> None:
    targets, q0 = lines()
    kept = differentiated(LIMIT)[0]
    rng = np.random.default_rng(1)
    motion = rng.normal(size=targets.shape), rng.normal(size=q0.shape)
    run = lambda targets, q0: jnp.sum(track_of(targets, q0, LIMIT).q[-1], axis=-1)  # noqa: E731
    found = jax.jit(lambda *moves: jax.jvp(run, (jnp.asarray(targets), jnp.asarray(q0)), moves)[1])(*motion)
    expected = np.sum(kept[0] * motion[0], axis=(0, 2)) + np.sum(kept[1] * motion[1], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.max(np.abs(expected)))


@exhaustive
def test_a_gradient_of_ten_times_as_many_steps_takes_less_than_four_times_the_memory() -> None:
    def memory(steps: int) -> int:
        def end(q0: Any) -> Any:
            aim = FrameTask(arm().frame("tip"), jaxlie.SE3.from_translation(jnp.array([0.5, 0.5, 0])), 1.0, None)
            return jnp.sum(jaxik.track(Problem(arm(), {"tip": aim}), q0, 0.01, {}, num_steps=steps).q[-1])

        compiled = jax.jit(jax.grad(end)).lower(jnp.zeros((8, 2))).compile()
        analysis: Any = compiled.memory_analysis()
        return analysis.temp_size_in_bytes

    assert memory(10_000) < 4 * memory(1_000)


def test_a_limit_is_above_zero() -> None:
    with pytest.raises(JaxikError, match="growth_limit is above zero"):
        TrackOptions(growth_limit=0.0)


def test_a_state_without_growth_is_refused_where_growth_is_limited() -> None:
    problem = Problem(arm(), {"tip": FrameTask(arm().frame("tip"), jaxlie.SE3.identity(), 1.0, None)})
    state = dataclasses.replace(jaxik.track_start(problem, jnp.zeros(2)), growth=None)
    with pytest.raises(JaxikError, match="growth_limit is of states with `growth`"):
        jaxik.track_step(problem, state, 0.01, options=TrackOptions(growth_limit=LIMIT))
    with pytest.raises(JaxikError, match=r"state\.q has shape"):
        jaxik.track_step(problem, dataclasses.replace(state, q=jnp.zeros(3)), 0.01)
