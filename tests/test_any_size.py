"""Outside of transformations batches of any size share programs, and their elements' results do not know of it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fresh import run
from own_tasks import PLANAR
from searches import PLANE, planar
from tables import exhaustive

import jaxik
from jaxik.batching import any_size
from jaxik.batching.any_size import padded_size

BAR = '<geom type="capsule" size="0.05" fromto="0 0 0 {} 0 0"/>'
SHAPED = jaxik.load_robot(
    f"""<mujoco model="shaped"><worldbody>
      <body><joint axis="0 0 1"/>{BAR.format(1)}
        <body pos="1 0 0"><joint axis="0 0 1"/>{BAR.format(1)}
          <body pos="1 0 0"><joint axis="0 0 1"/>{BAR.format(0.5)}</body></body></body>
    </worldbody></mujoco>""",
    geometry="model",
)
Q = PLANE.sample(jax.random.key(0), (12,))
GOALS = PLANE.frame_pose(Q, "tip").translation()
KEY = jax.random.key(1)
TWICE = jaxik.SearchOptions(solutions=2)

# What each does with targets (*batch, 3) and configurations (*batch, 2).
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda goal, q: jaxik.solve(planar(goal), q),
    "solve from one start": lambda goal, q: jaxik.solve(planar(goal)),
    "search": lambda goal, q: jaxik.search(planar(goal), KEY),
    "search of several": lambda goal, q: jaxik.search(planar(goal), KEY, options=TWICE),
    "step": lambda goal, q: jaxik.step(planar(goal), q, 0.01),
    "linearize": lambda goal, q: jaxik.linearize(planar(goal), q, 0.01),
    "qp": lambda goal, q: jaxik.qp(jnp.eye(3), goal, lower=-0.5, upper=0.5),
    "pose": lambda goal, q: PLANE.frame_pose(q, "tip"),
    "clearance": lambda goal, q: SHAPED.clearance(jnp.concatenate([q, goal[..., :1]], axis=-1)),
}
SLOW = {"solve from one start", "search of several", "linearize", "qp"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[exhaustive] * (name in SLOW)) for name in CALLS])
def test_a_batch_of_another_size_compiles_no_program_of_its_own(name: str, caplog: pytest.LogCaptureFixture) -> None:
    call = CALLS[name]
    many = jax.device_get(call(GOALS, Q))
    with caplog.at_level("WARNING"), jax.log_compiles():
        jax.jit(lambda: jnp.zeros(()))()
        few = call(GOALS[:5], Q[:5])
        grid = call(GOALS.reshape(2, 6, 3), Q.reshape(2, 6, 2))
    assert "Compiling jit(<lambda>)" in caplog.text  # so it would be seen
    for program in ("_solve", "_search", "stepped", "_linearized", "_qp", "_compiled"):
        assert f"Compiling jit({program}" not in caplog.text
    for few_leaf, grid_leaf, leaf in zip(*map(jax.tree.leaves, (few, grid, many)), strict=True):
        np.testing.assert_array_equal(few_leaf, leaf[:5])
        np.testing.assert_array_equal(np.reshape(grid_leaf, leaf.shape), leaf)


def test_switches_for_debugging_find_nothing() -> None:
    """Numbers that are none in what pads a batch, and arithmetic that only `jit` knows."""
    with jax.debug_nans(True):
        assert np.isfinite(jaxik.solve(planar(GOALS)).cost).all()
    with jax.disable_jit():
        assert np.isfinite(jaxik.step(planar(GOALS[0]), Q[0], 0.01).velocity).all()


STARTS = """
import jax, jaxik, numpy as np, jax.numpy as jnp
{}
robot = jaxik.load_robot('''{}''')
goal = jnp.tile(jnp.array([1.4, 0.5, 0.0]), (300, 1))
options = jaxik.SearchOptions(num_candidates=2)

def problem(goal):
    return jaxik.Problem(robot, {{"tip": jaxik.FrameTask(robot.frame("tip"), goal, orientation_cost=None)}})

for key in jax.random.key(0), jax.random.key(0)[None]:
    search = lambda goal: jaxik.search(problem(goal), key, options=options)
    traced, eager = jax.jit(search)(goal), search(goal)
    np.testing.assert_allclose(eager.q, traced.q, atol=1e-4)
    np.testing.assert_allclose(search(goal[:270]).q, eager.q[:270], atol=1e-4)
    np.testing.assert_allclose(search(goal[:5]).q, eager.q[:5], atol=1e-4)
few = eager.q[:5]  # on several devices where elements are shared out
assert jaxik.solve(problem(goal[:5]), few).q.shape == few.shape
assert len(jaxik.solve(problem(goal[:5])).q.sharding.device_set) == 1
"""


@exhaustive
@pytest.mark.parametrize("setting", ["", "jaxik.use_all_cores()"])
def test_elements_search_from_the_same_starts_in_batches_of_any_size(setting: str) -> None:
    """Which candidate wins depends on its starts; with one key for all, and with one in a batch of its own."""
    done = run("-c", STARTS.format(setting, PLANAR))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("count", "to_power_of_two", "size"),
    [(1, True, 256), (257, True, 512), (256, True, 256), (5000, True, 8192), (5000, False, 5120), (257, False, 512)],
)
def test_sizes_are_few_and_hold_the_batch(count: int, to_power_of_two: bool, size: int) -> None:
    assert padded_size(count, to_power_of_two=to_power_of_two) == size


def test_robots_of_a_batch_are_padded_with_it() -> None:
    raised = jnp.arange(4.0)[:, None, None] * jnp.ones((4, *PLANE.body_position.shape))
    robots = dataclasses.replace(PLANE, body_position=PLANE.body_position + raised)
    together = robots.frame_pose(Q[:4], "tip").translation()
    for i in range(4):
        one = dataclasses.replace(PLANE, body_position=robots.body_position[i])
        np.testing.assert_allclose(together[i], one.frame_pose(Q[i], "tip").translation(), atol=1e-12)


def test_a_sample_is_the_start_of_a_larger_one() -> None:
    np.testing.assert_array_equal(PLANE.sample(KEY, (7,)), PLANE.sample(KEY, (300,))[:7])
    np.testing.assert_array_equal(PLANE.sample(KEY, (2, 3)).reshape(6, 2), PLANE.sample(KEY, 6))


def test_large_batches_of_samples_are_not_worth_a_word_and_those_of_solves_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a robot with its shapes takes 10,000 samples: it would warn, once, of what nobody asked for."""
    said: list[int] = []
    monkeypatch.setattr(any_size, "say_idle", said.append)
    PLANE.sample(KEY, 5000)
    assert not said
    jaxik.solve(planar(GOALS[:12]))
    assert said == [12]
