"""`search` as users compile it: what is reached how often, and the same whatever else is in the batch."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import pytest
from searches import PLANE, arm, check_found, errors, found, planar, planar_targets
from tables import exhaustive

import jaxik
from jaxik import FrameTask, Problem, SearchOptions, Status, search
from jaxik.batching import devices


@exhaustive
@pytest.mark.parametrize("name", ["panda", "ur5e"])
def test_every_pose_of_an_arm_is_found_inside_its_limits(name: str) -> None:
    check_found(name)


@exhaustive
def test_stretched_elbows_are_found_where_they_can_be_polished() -> None:
    """Most attempts end in a curved valley there, within tolerance, but a tenth of a millimetre off."""
    robot = jaxik.load_robot("gen3")
    elbow = jnp.linspace(-0.03, 0.03, 128)
    q = robot.sample(jax.random.key(3), (128,)).at[:, 3].set(elbow).astype(np.float32)
    target = robot.frame_pose(q, robot.frame("tcp"))
    solution = search(Problem(robot, {"tip": FrameTask(robot.frame("tcp"), target)}), jax.random.key(1), starts=q[0])
    position, angle = errors("gen3", solution.q, target)
    assert np.mean((position < 1e-5) & (angle < 1e-5)) >= 0.9  # with the first attempt that met the tolerances: 0.7
    assert solution.num_starts.mean() < 4  # those that stay rough take 8


@exhaustive
def test_an_element_does_not_depend_on_its_batch() -> None:
    targets, whole = planar_targets(), found()
    few = search(planar(targets[:3]), jax.random.key(0))
    np.testing.assert_array_equal(few.q, whole.q[:3])
    backwards = search(planar(targets[::-1]), keys_of_elements()[::-1])
    np.testing.assert_array_equal(backwards.q, whole.q[::-1])
    # From home the third is met at once; where several starts are made, the key shows.
    other = search(planar(targets), jax.random.key(1))
    assert (other.iterations != whole.iterations).any()


def of_a_panda(which: np.ndarray, far: np.ndarray, lost: np.ndarray) -> tuple[Problem, Any]:
    """Poses, some shifted out of reach, some that are not finite; and where to start."""
    robot, target, _ = arm("panda")
    poses = target.wxyz_xyz[: len(far), :].at[far, 4:].add(4.0).at[lost].set(jnp.nan)
    task = FrameTask(robot.frame("tcp"), jaxlie.SE3(poses[which]))
    return Problem(robot, {"tip": task}), robot.q_home.astype(np.float32)


def of_the_planar_arm(which: np.ndarray, far: np.ndarray, lost: np.ndarray) -> tuple[Problem, Any]:
    q = PLANE.sample(jax.random.key(7), far.shape)
    places = PLANE.frame_pose(q, "tip").translation().at[far].add(4.0).at[lost].set(jnp.nan)
    return planar(places[which]), None


@pytest.mark.parametrize(
    ("problem", "others"),
    [
        (of_the_planar_arm, "all"),
        pytest.param(of_the_planar_arm, "few", marks=exhaustive),
        pytest.param(of_a_panda, "all", marks=exhaustive),
        pytest.param(of_a_panda, "few", marks=exhaustive),
    ],
)
def test_an_element_does_not_depend_on_who_else_needs_its_lanes(problem: Any, others: str) -> None:
    """More than a core has lanes for; every third out of reach, every tenth not a number, effort of many kinds."""
    count = 150
    far, lost = np.arange(count) % 3 == 0, np.arange(count) % 10 == 0
    most = jnp.asarray([1, 2, 9, 20, 60])[jnp.arange(count) % 5]
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0), i))(jnp.arange(count))

    def some(which: np.ndarray) -> jaxik.Solution:
        asked, start = problem(which, far, lost)
        options = SearchOptions(max_starts=most[which])
        return jax.device_get(search(asked, keys[which], starts=start, options=options))

    whole = some(np.arange(count))
    assert {Status.CONVERGED, Status.STALLED, Status.NONFINITE} <= set(whole.status.tolist())
    assert (whole.num_starts <= most).all()
    stalled = np.flatnonzero(far & ~lost)
    np.testing.assert_array_equal(whole.num_starts[stalled], most[stalled])
    for which in [np.random.default_rng(0).permutation(count)] if others == "all" else [np.arange(7), stalled[:7]]:
        found = some(which)
        for name in ("q", "status", "iterations", "num_starts", "cost"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[which], err_msg=name)


def keys_of_elements() -> jax.Array:
    return jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0), i))(jnp.arange(6))


@exhaustive
def test_it_folds_under_vmap() -> None:
    """A key of an element of its own is folded with its place in the batch: the first."""
    mapped = jax.vmap(lambda target, key: search(planar(target), key[None]))(planar_targets(), keys_of_elements())
    np.testing.assert_array_equal(mapped.q[:, 0], found().q)


@exhaustive
def test_it_traces_under_jit_and_folds_under_two_vmaps_and_takes_a_key_of_numbers() -> None:
    targets, whole, keys = planar_targets(), found(), keys_of_elements()
    jitted = jax.jit(lambda targets, keys: search(planar(targets), keys))(targets, keys)
    np.testing.assert_array_equal(jitted.q, whole.q)
    legacy = search(planar(targets), jax.random.PRNGKey(0))
    np.testing.assert_array_equal(legacy.q, whole.q)
    nested = jax.vmap(jax.vmap(lambda target, key: search(planar(target), key[None])))
    pairs = nested(targets.reshape(2, 3, 3), keys.reshape(2, 3))
    np.testing.assert_array_equal(pairs.q.reshape(6, 2), whole.q)


@exhaustive
def test_a_million_targets_take_less_than_half_a_kilobyte_each() -> None:
    run = jax.jit(lambda targets: search(planar(targets), jax.random.key(0)))
    memory = run.lower(jax.ShapeDtypeStruct((10**6, 3), np.float64)).compile().memory_analysis()
    used = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
    assert 1e8 < used < 5e8


@exhaustive
def test_wider_lanes_of_an_accelerator_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found()
    monkeypatch.setattr(devices, "accelerated", lambda: True)
    assert devices.lanes_for(128, 10**6) == 65536 and devices.lanes_for(128, 3000) == 4096
    jax.clear_caches()
    wide = search(planar(jnp.tile(planar_targets(), (100, 1))), jax.random.key(0))
    np.testing.assert_array_equal(wide.status[:6], whole.status)
    np.testing.assert_allclose(wide.q[:4], whole.q[:4], atol=1e-9)
    jax.clear_caches()
