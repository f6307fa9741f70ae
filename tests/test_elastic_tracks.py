"""What yields where it cannot be held, along a motion: a target out of reach and back, files, rows of motions."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from elastic_arm import BENT, arm, reaching, start, tip_at
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik import ConfigurationLimit, Elastic, FrameTask, PostureTask, Problem, Status, VelocityLimit
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


@pytest.mark.parametrize("numbers", mostly_exhaustive([(500,), (500, 5000)], [(500,)]), ids=str)
def test_a_target_out_of_reach_and_back_makes_the_arm_yield_and_recover_without_chatter(
    numbers: tuple[int, ...],
) -> None:
    """Both ways: velocities change by less in shorter steps, or little where the demand changes its sign."""
    out, both = [], []
    for steps in numbers:
        track = loop()(5.0 / steps, steps, 0.35)
        assert np.all(np.asarray(track.status) != Status.INFEASIBLE)
        assert "; yielded tip/position 0." in repr(track)
        misses = np.linalg.norm(np.asarray(track.yielded["tip"]["position"]), axis=1)
        assert misses.shape == (steps,) and misses[0] == 0 and misses[2 * steps // 5] > 0
        away = np.linalg.norm(np.asarray(track.residuals["tip"]["position"]), axis=-1)
        # 1.384 m from the base, of which the arm reaches 1.2.
        np.testing.assert_allclose(np.max(away), np.linalg.norm(start()) + 0.35 - 1.2, atol=2e-4)
        # It lags on the way back; half a second and a second after the target's return:
        assert away[int(0.9 * steps)] < 0.01 and away[-1] < 1e-3
        jumps = np.max(np.abs(np.diff(np.asarray(track.velocity), axis=0)), axis=1)
        out.append(np.max(jumps[: int(0.52 * steps)]))
        both.append(np.max(jumps))
    assert out[0] < 0.15 and both[0] < 0.3, (out, both)
    if len(numbers) > 1:
        assert out[1] < 0.2 * out[0] and both[1] < 0.1, (out, both)


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
