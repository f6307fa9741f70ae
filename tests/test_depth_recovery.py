"""Shapes that overlap and push each other: a step raises the least distance, and never asks for what cannot be."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog
from tables import exhaustive, mostly_exhaustive

import jaxik
from jaxik.limits.combine import MergedRows
from jaxik.qp_solver import Program
from jaxik.solvers.differential.limit_recovery import Demands, at_scale, minimise_at_largest_scale

COUNT, SIZE, GAIN, MARGIN = 300, 3, 0.9, 0.005


@cache
def demands() -> dict[str, np.ndarray]:
    """Rows of pairs 0.15 m deep to 0.05 m apart, in half of all two nearly opposite; boxes of 1 to 100 mrad."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(COUNT, 6, SIZE)) * 0.3
    matrix[::2, 1] = -matrix[::2, 0] + 10.0 ** rng.uniform(-7, -2, (COUNT // 2, 1)) * rng.normal(size=(COUNT // 2, 3))
    distance = rng.uniform(-0.15, 0.05, (COUNT, 6))
    return {"matrix": matrix, "distance": distance, "reach": 10.0 ** rng.uniform(-3, -1, COUNT)}


@jax.jit
def recovered(matrix: jax.Array, distance: jax.Array, reach: jax.Array) -> Any:
    def one(matrix: jax.Array, distance: jax.Array, reach: jax.Array) -> Any:
        right, size = GAIN * (distance - MARGIN), distance.shape
        least = -reach * jnp.sum(jnp.abs(matrix), axis=1)
        rows = MergedRows(matrix, right, np.ones(size, bool), jnp.full(size, GAIN * MARGIN, right.dtype), least)
        asked = Demands((jnp.full(SIZE, -reach), jnp.full(SIZE, reach)), rows, None)
        program = Program(jnp.eye(SIZE, dtype=right.dtype), jnp.zeros(SIZE, right.dtype), *asked.box, matrix, right)
        scale, _ = minimise_at_largest_scale(program, asked, None, None)
        return scale, at_scale(program, asked, scale).h

    return jax.vmap(one)(matrix, distance, reach)


def asked(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    scale, right = recovered(*(jnp.asarray(x, dtype) for x in demands().values()))
    return np.asarray(scale, float), np.asarray(right, float)


def program(i: int, right: np.ndarray, column: np.ndarray | None = None) -> Any:
    """The largest scale with rows, or with no column for one whether there is a displacement, by HiGHS."""
    matrix, reach = demands()["matrix"][i], demands()["reach"][i]
    box = [(-reach, reach)] * SIZE
    if column is None:
        return linprog(np.zeros(SIZE), matrix, right, bounds=box)
    return linprog([*np.zeros(SIZE), -1.0], np.column_stack([matrix, column]), right + column, bounds=[*box, (0, 1)])


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float64, np.float32], [np.float64]))
def test_what_is_asked_is_possible_and_nine_tenths_of_the_most(dtype: Any) -> None:
    scale, right = asked(dtype)
    most = np.empty(COUNT)
    for i in range(COUNT):
        assert program(i, right[i] + 1e-6).status == 0, i
        original = GAIN * (demands()["distance"][i] - MARGIN)
        deepest, apart = max(-original.min(), 0), demands()["distance"][i] >= 0
        column = np.where(original < 0, np.where(apart, min(deepest, GAIN * MARGIN), deepest), 0)
        most[i] = -program(i, original, column).fun
    assert (scale <= most * 0.9 + 2e-3).mean() > 0.8 and (scale > 0.8 * most - 2e-3).mean() > 0.97
    assert np.mean(scale < 1) > 0.5


def test_what_is_apart_stays_apart_and_nothing_gets_deeper_than_the_deepest() -> None:
    _, right = asked(np.float64)
    distance = demands()["distance"]
    reached = distance - right / GAIN  # by what the rows allow
    assert (reached[distance >= 0] > -1e-9).all()
    deepest = np.minimum(distance.min(axis=1), 0)
    assert (reached >= deepest[:, None] - 1e-9).all()


@exhaustive
def test_overlapping_starts_come_out_at_a_limited_speed_and_no_step_is_infeasible() -> None:
    """Of 1000 random starts among balls, 0.19 m deep at most; and across a thin plate, where some stay pierced."""
    from test_collision_limit import arm, world
    from test_sweep import plate

    def walk(world: jaxik.World, q: jax.Array, targets: Any) -> Any:
        tip = jaxik.FrameTask(arm().frame("tip"), targets, orientation_cost=None)
        limits = jaxik.ConfigurationLimit(), jaxik.VelocityLimit(3.0), jaxik.CollisionLimit(world)
        problem = jaxik.Problem(arm(), {"tip": tip}, limits=limits)

        def one(q: jax.Array, _: None) -> Any:
            result = jaxik.step(problem, q, 0.05, damping=1e-3)
            return result.q, (result.status, result.clearance)

        return jax.lax.scan(one, q, length=200)[1]

    q = arm().sample(jax.random.key(0), 1000).astype(jnp.float32)
    targets = arm().frame_pose(arm().sample(jax.random.key(1), 1000), "tip").translation().astype(jnp.float32)
    for place, free in ((world(), 0.99), (plate(), 0.87)):
        before = np.asarray(arm().clearance(q, place))
        status, clearance = jax.device_get(jax.jit(walk)(place, q, targets))
        overlaps, came_out = clearance < -1e-6, np.diff(np.concatenate([before[None], clearance]), axis=0)
        # TIMEOUT where the quadratic program is not solved; what comes out by 1e-6 m is either, by rounding to float32.
        unsolved = status == jaxik.Status.TIMEOUT
        assert (unsolved | (status == jaxik.Status.COLLIDES))[overlaps & (came_out < 5e-7)].all()
        assert (unsolved | (status == jaxik.Status.CONVERGED))[~overlaps | (came_out > 2e-6)].all()
        assert (overlaps & (came_out < 5e-7)).any() and unsolved.mean() < 2e-3
        depth = np.minimum(np.concatenate([before[None], clearance]), 0)
        assert (status != jaxik.Status.INFEASIBLE).all() and np.diff(depth, axis=0).min() > -1e-6
        assert (before < -0.1).any() and np.mean(clearance[-1][before < 0] >= 0) > free
