"""What yields where it cannot be held, along a motion: a target out of reach and back, files, rows of motions."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from elastic_arm import BENT, arm, reaching, start, tip_at
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import AccelerationLimit, ConfigurationLimit, Elastic, FrameTask, PostureTask, Problem, Status, VelocityLimit
from jaxik.datasets.rows import RowSolver
from jaxik.results.npz import targets_of


@functools.cache
def loop() -> Any:
    """A loop of 5 s in which the target goes out of reach of the arm and comes back within 4 s."""

    @functools.partial(jax.jit, static_argnums=1)
    def run(dt: Any, steps: int, away: Any) -> jaxik.Track:
        phase = jnp.minimum((jnp.arange(steps) + 1) * dt / 4.0, 1)
        share = 0.5 * (1 - jnp.cos(2 * jnp.pi * phase))
        places = start() + away * share[:, None] * start() / np.linalg.norm(start())
        rest = {"rest": PostureTask(BENT, cost=0.1, gain=5 * dt)}
        aim = Elastic(tip_at(start(), gain=5 * dt), singular_value=0.2)
        limits = ConfigurationLimit(), VelocityLimit(2.0)
        targets = {"tip": jaxlie.SE3.from_translation(places)}
        return jaxik.track(Problem(arm(), rest, limits, {"tip": aim}), BENT, dt, targets)

    return run


def test_a_target_out_of_reach_and_back_makes_the_arm_yield_and_recover() -> None:
    steps = 500
    track = loop()(5.0 / steps, steps, 0.35)
    assert np.all(np.asarray(track.status) != Status.INFEASIBLE)
    assert "; yielded tip/position 0." in repr(track)
    misses = np.linalg.norm(np.asarray(track.yielded["tip"]["position"]), axis=1)
    assert misses.shape == (steps,) and misses[0] == 0 and misses[2 * steps // 5] > 0
    away = np.linalg.norm(np.asarray(track.residuals["tip"]["position"]), axis=-1)
    # 1.384 m from the base, of which the arm reaches 1.2.
    np.testing.assert_allclose(np.max(away), np.linalg.norm(start()) + 0.35 - 1.2, atol=2e-4)
    # The target is in reach again after 3.03 s, and at rest after 4 s.
    assert np.max(away[int(3.04 / 0.01) :]) < 0.012 and away[400] < 2e-3 and away[-1] < 1e-4


@functools.cache
def jumps() -> Any:
    """The largest change of a velocity from step to step, for targets that go 5, 34, 100 and 300 mm out of reach."""

    @jax.jit
    def found(dt: Any, steps: Any, gain: Any, acceleration: Any) -> Any:
        way = 1.2 - np.linalg.norm(start()) + np.array([[0.005], [0.034], [0.1], [0.3]])
        rest = {"rest": PostureTask(BENT, cost=0.1, gain=5 * dt)}
        limits = ConfigurationLimit(), VelocityLimit(2.0), AccelerationLimit(acceleration)
        aim = Elastic(tip_at(start(), gain=gain), singular_value=0.2)
        problem = Problem(arm(), rest, limits, {"tip": aim})

        def target(k: Any) -> Any:
            share = 0.5 * (1 - jnp.cos(2 * jnp.pi * jnp.minimum(k * dt / 6, 1)))
            return {"tip": jaxlie.SE3.from_translation((1 + share * way / np.linalg.norm(start())) * start())}

        def step(k: Any, carry: Any) -> Any:
            state, jumps, failed = carry
            after = jaxik.track_step(problem, state, dt, target(k + 1))
            jumps = jnp.maximum(jumps, jnp.max(jnp.abs(after.velocity - state.velocity), axis=1))
            return after, jumps, failed | (after.status == Status.INFEASIBLE)

        begin = jaxik.track_start(problem, jnp.tile(BENT, (4, 1)), target(0))
        return jax.lax.fori_loop(0, steps, step, (begin, jnp.zeros(4), jnp.zeros(4, bool)))

    return found


@exhaustive
@pytest.mark.parametrize("numbers", [(700, 1400), (1400, 3500, 7000)], ids=str)
def test_velocities_change_by_less_in_shorter_steps_as_targets_leave_reach_and_return(numbers: tuple[int, ...]) -> None:
    """From 10 ms on; to 1 ms."""
    every = []
    for steps in numbers:
        state, largest, failed = jumps()(7.0 / steps, steps, 35.0 / steps, 1e6)
        assert not np.any(failed) and np.max(np.abs(state.residuals["tip"]["position"])) < 1e-3
        every.append(np.asarray(largest))
        assert np.all(largest < 7.0 / steps * np.array([6, 8, 12, 20])), every
    for (coarse, before), (fine, after) in itertools.pairwise(zip(numbers, every, strict=True)):
        assert np.all(after < 0.6 ** np.log2(fine / coarse) * before), every


@pytest.mark.parametrize("numbers", mostly_exhaustive([(350, 700), (350, 1400)], [(350, 700)]), ids=str)
def test_an_acceleration_limit_bounds_the_jumps_of_a_constraint_of_gain_1_in_steps_of_any_length(
    numbers: tuple[int, ...],
) -> None:
    """Without it they are as large as the speed limit allows, however short the steps."""
    for steps in numbers:
        dt = 7.0 / steps
        _, largest, failed = jumps()(dt, steps, 1.0, 10.0)
        assert not np.any(failed) and np.max(largest) <= 10.0 * dt * (1 + 1e-9)
    assert np.max(jumps()(7.0 / 350, 350, 1.0, 1e6)[1]) > 1


@exhaustive
def test_a_loop_of_single_steps_is_the_track_and_files_keep_what_yields(tmp_path: Any) -> None:
    problem, steps = reaching(np.zeros((2, 3)), penalty=10.0), 3
    ways = np.array([[0.001, 0, 0], [0.2, 0, 0]]) * np.arange(1, steps + 1)[:, None, None]
    targets = jaxlie.SE3.from_translation(jnp.asarray(start() + ways))
    whole = jaxik.track(problem, BENT, 0.01, {"tip": targets})
    state = jaxik.track_start(problem, BENT, {"tip": jax.tree.map(lambda x: x[0], targets)})
    np.testing.assert_array_equal(state.yielded["tip"]["position"], np.zeros((2, 3)))
    for k in range(steps):
        state = jaxik.track_step(problem, state, 0.01, {"tip": jax.tree.map(lambda x, k=k: x[k], targets)})
        np.testing.assert_allclose(state.yielded["tip"]["position"], whole.yielded["tip"]["position"][k], atol=1e-12)
    assert np.all(np.asarray(whole.yielded["tip"]["position"])[:, 0] == 0)
    assert "targets/tip/position" in targets_of(problem.constraints or {}, (2,))
    jaxik.save(tmp_path / "track.npz", whole)
    again = jaxik.load(tmp_path / "track.npz")
    np.testing.assert_array_equal(again.yielded["tip"]["position"], whole.yielded["tip"]["position"])
    assert not whole.resample(0.004).yielded


def test_rows_of_motions_have_the_units_of_what_yields() -> None:
    robot = arm()
    turn = FrameTask.from_configuration(robot, robot.q_home, "tip", position_cost=None)
    problem = Problem(robot, {"turn": turn}, constraints={"tip": Elastic(tip_at(start()))})
    plan = jaxik.Plan(problem, 4, trajectories=jaxik.Trajectories(3, 0.05, waypoints=1))
    columns = RowSolver(plan, 4).columns()
    assert columns["residuals/tip/position"].shape == (3,) and columns["residuals/tip/position"].unit == "m"
