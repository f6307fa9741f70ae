"""Paths through waypoints: they pass them, are smooth, rest at both ends, and keep joint limits."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import own_tasks
import pytest
from tables import mostly_exhaustive

import jaxik
from jaxik import interpolate

TIMES = np.array([0.0, 0.4, 1.5, 1.8, 3.0])
H = 1e-4
# Each end, a little inside, and outside.
ENDS = [np.array([0.0, H, -1000 * H]), np.array([3.0, 3.0 - H, 3.0 + 1000 * H])]
STEADY = np.arange(-0.1, 3.1, 1e-3)


def points() -> jax.Array:
    return jax.random.normal(jax.random.key(0), (5, 2, 3))


@jax.jit
def poses() -> jaxlie.SE3:
    turns = jaxlie.SO3.exp(jax.random.normal(jax.random.key(1), (5, 2, 3)))
    return jaxlie.SE3.from_rotation_and_translation(turns, points())


def configurations() -> jax.Array:
    return jaxik.load_robot(own_tasks.MIXED).sample(jax.random.key(2), (5, 2))


@jax.jit
def way_of_poses(a: Any, b: Any) -> Any:
    turn = (jaxlie.SO3(a.wxyz_xyz[..., :4]).inverse() @ jaxlie.SO3(b.wxyz_xyz[..., :4])).log()
    return jnp.concatenate([b.wxyz_xyz[..., 4:] - a.wxyz_xyz[..., 4:], turn], axis=-1)


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "points": (points, lambda a, b: b - a),
    "poses": (poses, way_of_poses),
    "configurations": (configurations, lambda a, b: jaxik.load_robot(own_tasks.MIXED).difference(a, b)),
}


@cache
def way(case: str) -> Any:
    """At all times that tests look at, by one program."""
    robot = jaxik.load_robot(own_tasks.MIXED) if case == "configurations" else None
    return interpolate(CASES[case][0](), TIMES, jnp.concatenate([TIMES, *ENDS, STEADY]), robot=robot)


def along(case: str, first: int, last: int) -> Any:
    """The rows of `way` from one to another."""
    return jax.tree.map(lambda x: x[first:last], way(case))


def difference(case: str, a: Any, b: Any) -> np.ndarray:
    return np.asarray(CASES[case][1](a, b))


@pytest.mark.parametrize("case", CASES)
def test_it_passes_its_waypoints_rests_at_the_ends_and_stays_there(case: str) -> None:
    assert np.allclose(difference(case, along(case, 0, 5), CASES[case][0]()), 0, atol=1e-9)
    for first in (5, 8):
        end, inside, outside = (along(case, k, k + 1) for k in range(first, first + 3))
        assert np.abs(difference(case, end, inside)).max() < 100 * H**2
        assert np.allclose(difference(case, end, outside), 0, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_its_velocity_is_continuous_and_its_acceleration_bounded(case: str) -> None:
    count = 11 + len(STEADY)
    velocity = difference(case, along(case, 11, count - 1), along(case, 12, count)) / 1e-3
    # The fastest way between two waypoints is 0.3 s long: a jump of velocity would be of the size of its speed.
    assert np.abs(np.diff(velocity, axis=0)).max() < 0.05 * np.abs(velocity).max()


def test_joints_never_leave_the_range_of_their_waypoints_and_turn_around_at_one() -> None:
    robot = jaxik.load_robot("panda")
    lower, upper = np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)
    path = np.where(np.random.default_rng(0).random((5, 7)) < 0.5, lower, upper)
    q = np.asarray(interpolate(path, TIMES, np.linspace(0, 3, 500), robot=robot))
    assert np.all((q >= lower - 1e-12) & (q <= upper + 1e-12))
    path[:, 0] = 1.0
    flat = interpolate(path, TIMES, np.linspace(0, 3, 500), robot=robot)
    assert np.all(np.asarray(flat)[:, 0] == 1.0)


@pytest.mark.parametrize("case", mostly_exhaustive(CASES, ["points", "poses"]))
def test_it_is_differentiable_by_waypoints_and_times(case: str) -> None:
    robot = jaxik.load_robot(own_tasks.MIXED) if case == "configurations" else None
    waypoints = CASES[case][0]()
    leaves, structure = jax.tree.flatten(waypoints)
    along_way = jax.random.normal(jax.random.key(5), leaves[0].shape)

    @jax.jit
    @jax.value_and_grad
    def value(s: Any) -> Any:
        moved = jax.tree.unflatten(structure, [leaves[0] + s * along_way])
        found = interpolate(moved, TIMES + s * 0.1 * np.arange(5), jnp.array([0.3, 0.9, 1.7]), robot=robot)
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(found))

    assert np.isclose(value(0.0)[1], (value(1e-6)[0] - value(-1e-6)[0]) / 2e-6, rtol=1e-6)


def test_one_time_has_no_axis() -> None:
    assert interpolate(points(), TIMES, 0.7).shape == (2, 3)
    assert np.allclose(interpolate(points(), TIMES, 0.7), interpolate(points(), TIMES, jnp.array([0.7]))[0])


@pytest.mark.parametrize(
    ("waypoints", "times", "at", "said"),
    [
        (jnp.zeros((1, 3)), [0.0], 0.0, "two or more"),
        (jnp.zeros((3, 3)), [0.0, 1.0], 0.0, "two or more"),
        (jnp.zeros((2, 3)), [1.0, 1.0], 0.0, "times increase"),
        (jnp.zeros((2, 3)), [0.0, 1.0], jnp.zeros((2, 2)), "at is a time"),
    ],
)
def test_a_mistake_is_told(waypoints: Any, times: Any, at: Any, said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        interpolate(waypoints, times, at)
