"""Limits of one step together: a step has something to do wherever it starts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from limit_rows import DT, UNOPTIMISED, frames_of, mixed, planar
from scipy.optimize import linprog
from tables import mostly_exhaustive

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    FreeJointVelocityLimit,
    Limit,
    Motion,
    PositionLimit,
    VelocityLimit,
)
from jaxik.limits.combine import merged_bounds, merged_rows
from jaxik.robot.robot import Robot


def dofs(*joints: str) -> list[int]:
    return [v for joint in joints for v in mixed().v_indices(joint)]


@jax.jit
def bounds_at(robot: Robot, limits: Sequence[Limit], q: Any, motion: Motion) -> Any:
    return merged_bounds(limits, robot, robot.kinematics(q, frames_of(limits)), motion)


@jax.jit
def rows_at(robot: Robot, limits: Sequence[Limit], q: Any, motion: Motion) -> tuple[jax.Array, jax.Array]:
    """The merged rows and their right-hand sides."""
    kin = robot.kinematics(q, frames_of(limits))
    matrix, most, *_ = merged_rows(limits, robot, kin, motion, merged_bounds(limits, robot, kin, motion)) or ()
    return matrix, most


def box_at(robot: Robot, limits: Sequence[Limit], q: Any, motion: Motion) -> np.ndarray:
    return np.stack(bounds_at(robot, limits, q, motion))


def test_a_shorter_step_may_go_as_near_to_a_limit_but_not_as_far() -> None:
    limits, q = (ConfigurationLimit(gain=1.0), VelocityLimit(1.0)), jnp.array([0.295, 0.0])
    np.testing.assert_allclose(box_at(planar(), limits, q, Motion(0.02)), [[-0.02, -0.02], [0.005, 0.02]])
    np.testing.assert_allclose(box_at(planar(), limits, q, Motion(0.01)), [[-0.01, -0.01], [0.005, 0.01]])


def test_outside_its_limits_a_joint_comes_back_at_the_speed_that_it_is_allowed() -> None:
    limits = (ConfigurationLimit(), VelocityLimit(1.0))
    q, dt = jnp.array([0.3 + 0.5, 0.0]), 0.1
    for _ in range(4):
        lower, upper = box_at(planar(), limits, q, Motion(dt))
        np.testing.assert_array_equal([lower[0], upper[0]], [-dt, -dt])
        q = q + jnp.array([lower[0], 0.0])
    np.testing.assert_allclose(box_at(planar(), limits, q, Motion(dt))[:, 0], [-dt, -0.95 * dt])


def test_the_order_of_the_limits_does_not_matter() -> None:
    limits = [ConfigurationLimit(), AccelerationLimit(3.0), VelocityLimit(1.0)]
    q, motion = jnp.array([0.9, -2.6]), Motion(DT, np.array([0.3, -0.2]))
    want = box_at(planar(), limits, q, motion)
    np.testing.assert_array_equal(box_at(planar(), limits[::-1], q, motion), want)
    # Both are outside, and move further out: they stop, though they brake faster than they may.
    np.testing.assert_array_equal(want, 0)


def test_a_joint_outside_its_limits_speeds_up_no_faster_than_it_may() -> None:
    limits = (ConfigurationLimit(), AccelerationLimit(3.0), VelocityLimit(1.0))
    q, velocity, speeds = jnp.array([0.8, 0.0]), 0.0, []
    for _ in range(8):
        lower, upper = box_at(planar(), limits, q, Motion(0.1, np.array([velocity, 0.0])))
        assert lower[0] == upper[0]
        velocity = upper[0] / 0.1
        speeds.append(velocity)
        q = q.at[0].add(upper[0])
        if q[0] < 0.4:
            break
    np.testing.assert_allclose(speeds, [-0.3, -0.6, -0.9, -1.0, -1.0, -1.0][: len(speeds)], atol=1e-12)
    assert len(speeds) > 4


def test_a_fast_joint_stops_at_its_limit() -> None:
    limits = (ConfigurationLimit(gain=1.0), AccelerationLimit(10.0), VelocityLimit(1.5))
    q, velocity = -1.0, 0.0
    for _ in range(250):
        _, upper = box_at(planar(), limits, jnp.array([0.0, q]), Motion(0.01, np.array([0.0, velocity])))
        assert upper[1] <= 1.5 * 0.01
        assert upper[1] / 0.01 - velocity <= 10.0 * 0.01 + 1e-12
        velocity, q = upper[1] / 0.01, q + upper[1]
        assert q <= 2.5 + 1e-15
    assert q == pytest.approx(2.5, abs=1e-12)


def test_rows_without_a_bound_are_zero() -> None:
    robot = mixed()
    limits = (
        ConfigurationLimit(),
        FreeJointVelocityLimit(max_linear_velocity=[0.1, np.inf, 0.1]),
        PositionLimit(robot.frame("tip"), [0, 0, 1], np.inf),
    )
    matrix, most = map(np.asarray, rows_at(robot, limits, robot.sample(jax.random.key(0)), Motion(DT)))
    assert matrix.shape == (2 + 6 + 1, robot.nv)
    assert np.isfinite(matrix).all() and np.isfinite(most).all()
    unbounded = [1, 3, 6, 8]  # the ball "loose", the base along y, the half space
    np.testing.assert_array_equal(np.flatnonzero(~matrix.any(axis=1)), unbounded)
    np.testing.assert_array_equal(most[jnp.array(unbounded)], 1)


def test_limits_without_rows_have_none() -> None:
    robot = planar()
    kin, motion = robot.kinematics(robot.q_home), Motion(DT)
    limits = (ConfigurationLimit(), VelocityLimit(1.0))
    assert merged_rows(limits, robot, kin, motion, merged_bounds(limits, robot, kin, motion)) is None
    np.testing.assert_array_equal(box_at(robot, (), robot.q_home, motion), [[-np.inf] * 2, [np.inf] * 2])


FLOOR = np.array([0.3, 0.2, -1.0])
BEHIND: dict[str, tuple[Callable[[], Sequence[Limit]], bool]] = {
    "joints and base": (
        lambda: [
            VelocityLimit(0.5),
            FreeJointVelocityLimit(max_linear_velocity=[0.1, 0.2, 0.3], max_angular_velocity=0.4),
        ],
        True,
    ),
    "a base that only turns slowly": (
        lambda: [VelocityLimit(0.5), FreeJointVelocityLimit(max_angular_velocity=0.4)],
        False,
    ),
    "a base that stands still": (
        lambda: [VelocityLimit(0.5), FreeJointVelocityLimit(max_linear_velocity=0.0, max_angular_velocity=0.0)],
        True,
    ),
    "joints alone": (lambda: [VelocityLimit(0.5)], False),
    "a base bounded one way": (
        lambda: [
            VelocityLimit(0.5),
            FreeJointVelocityLimit(max_linear_velocity=[0.1, np.inf, 0.3], max_angular_velocity=0.4),
        ],
        False,
    ),
}


@pytest.mark.parametrize("case", mostly_exhaustive(BEHIND, ["joints and base", "a base bounded one way"]))
def test_a_frame_behind_a_plane_comes_back_as_fast_as_all_limits_allow(case: str) -> None:
    limits, bounded = BEHIND[case][0](), BEHIND[case][1]
    robot = mixed()
    frame = robot.frame("tip")
    limits = [PositionLimit(frame, FLOOR, -20.0), *limits]
    q = robot.sample(jax.random.key(7))
    motion = Motion(DT)
    lower, upper = box_at(robot, limits, q, motion)
    matrix, most = jax.device_get(rows_at(robot, limits, q, motion))
    wanted = 0.95 * limits[0].distance(robot, robot.kinematics(q, (frame,)))  # type: ignore[attr-defined]
    assert wanted < -10
    if not bounded:
        np.testing.assert_allclose(most[0], wanted, rtol=1e-12)
        return
    best = linprog(matrix[0], A_ub=matrix[1:], b_ub=most[1:], bounds=np.stack([lower, upper], 1))
    assert best.status == 0
    np.testing.assert_allclose(most[0], best.fun, rtol=1e-9)
    assert most[0] < 0


def test_held_degrees_of_freedom_do_not_count_on_the_way_back() -> None:
    robot = mixed()
    frame = robot.frame("tip")
    limits = [PositionLimit(frame, FLOOR, -20.0), FreeJointVelocityLimit(max_linear_velocity=0.5)]

    @jax.jit
    def right(still: jax.Array) -> jax.Array:
        kin = robot.kinematics(robot.q_home, (frame,))
        _, most, *_ = merged_rows(limits, robot, kin, Motion(DT), (still, still)) or ()
        return most

    assert right(jnp.zeros(robot.nv))[0] == 0


# --- anything at all -----------------------------------------------------------------------------------------------

COUNT = 64


def every_limit(robot: Robot, tuned: dict[str, Any]) -> tuple[Limit, ...]:
    return (
        PositionLimit(robot.frame("tip"), tuned["normal"], tuned["offset"]),
        ConfigurationLimit(gain=tuned["gain"], margin=tuned["margin"]),
        AccelerationLimit({"hinge": tuned["acceleration"], "ball": 5.0, "endless": jnp.inf, "slide": 1.0}),
        VelocityLimit({"hinge": tuned["speed"], "slide": tuned["speed"], "ball": [0.5, 1.0, jnp.inf]}),
        FreeJointVelocityLimit(max_linear_velocity=tuned["speed"], max_angular_velocity=[1.0, jnp.inf, tuned["speed"]]),
    )


def anywhere(dtype: Any) -> dict[str, Any]:
    """Inside and far outside all limits, exactly on them, balls that have not turned, at rest and fast."""
    rng, robot = np.random.default_rng(5), mixed()
    q = np.array(robot.sample(jax.random.key(6), (COUNT,))) * rng.choice([1.0, 4.0], (COUNT, 1))
    q[:4] = np.asarray(robot.configuration({"ball": [1, 0, 0, 0], "hinge": 0.9, "slide": -0.1, "still": 0.3}))
    q[4] = np.asarray(robot.configuration({"ball": [0, 1, 0, 0], "loose": [0, 0, 0, 0]}))
    given = {
        "q": q,
        "previous": rng.standard_normal((COUNT, robot.nv)) * rng.choice([0.0, 1.0, 30.0], (COUNT, 1)),
        "dt": rng.choice([1e-3, 0.02, 1.0], COUNT),
        "gain": rng.uniform(0.1, 1.0, COUNT),
        "margin": rng.choice([0.0, 0.03], COUNT),
        "acceleration": rng.uniform(0.1, 20.0, COUNT),
        "speed": rng.choice([0.0, 0.7, np.inf], COUNT),
        "normal": rng.standard_normal((COUNT, 3)),
        "offset": rng.uniform(-3.0, 3.0, COUNT),
    }
    return {name: jnp.asarray(value, dtype) for name, value in given.items()}


def merged(robot: Robot, given: dict[str, Any]) -> Any:
    limits = every_limit(robot, given)
    kin = robot.kinematics(given["q"], frames_of(limits))
    motion = Motion(given["dt"], given["previous"])
    box = merged_bounds(limits, robot, kin, motion)
    matrix, most, *_ = merged_rows(limits, robot, kin, motion, box) or ()
    return box, (matrix, most)


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float64, np.float32], [np.float32]))
def test_wherever_a_step_starts_it_has_something_to_do(dtype: Any) -> None:
    robot, given = mixed(), anywhere(dtype)
    program = jax.jit(jax.vmap(partial(merged, robot)), compiler_options=UNOPTIMISED)
    (lower, upper), (matrix, most) = jax.device_get(program(given))
    assert {x.dtype for x in (lower, upper, matrix, most)} == {np.dtype(dtype)}
    assert (lower <= upper).all()
    assert (lower < np.inf).all() and (upper > -np.inf).all()
    assert np.isfinite(matrix).all() and np.isfinite(most).all()
    fastest = np.asarray(given["dt"] * given["speed"])[:, None]
    hinge = dofs("hinge", "slide")
    assert (np.abs(np.stack([lower, upper])[:, :, hinge]) <= fastest).all()
    end = np.where(matrix > 0, lower[:, None], upper[:, None])
    with np.errstate(invalid="ignore"):
        least = np.where(matrix == 0, 0, matrix * end).sum(2)
    assert (least <= most + 1e-6 * np.abs(most)).all()


def test_derivatives_are_finite_wherever_a_step_starts() -> None:
    robot, given = mixed(), anywhere(np.float64)
    given["speed"] = jnp.where(given["speed"] == 0, 0.1, given["speed"])

    def finite_sum(robot: Robot, given: dict[str, Any]) -> jax.Array:
        box, rows = merged(robot, given)
        return sum((jnp.sum(jnp.where(jnp.isfinite(x), x, 0)) for x in (*box, *rows)), jnp.zeros(()))

    def gradients(given: dict[str, Any]) -> Any:
        tangents = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), 0.5, 0.0), (robot, given))
        pushed = jax.jvp(merged, (robot, given), tangents)[1]
        return jax.grad(finite_sum, argnums=(0, 1))(robot, given), pushed

    found = jax.jit(jax.vmap(gradients), compiler_options=UNOPTIMISED)(given)
    for path, value in jax.tree_util.tree_leaves_with_path(found):
        assert np.isfinite(value).all(), jax.tree_util.keystr(path)


def test_on_its_limit_a_joint_has_the_derivative_of_its_bound() -> None:
    robot = planar()

    def upper(q: jax.Array) -> jax.Array:
        limits = (VelocityLimit(1.0), ConfigurationLimit(gain=0.5))
        return merged_bounds(limits, robot, robot.kinematics(q), Motion(DT))[1]

    np.testing.assert_allclose(jax.jit(jax.jacfwd(upper))(jnp.array([0.3, 0.0])), [[-0.5, 0.0], [0.0, 0.0]], atol=1e-15)


def test_what_is_tuned_does_not_recompile() -> None:
    robot, traces = mixed(), []

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def boxes(limits: tuple[Limit, ...], dt: jax.Array) -> Any:
        traces.append(1)
        kin = robot.kinematics(robot.q_home, frames_of(limits))
        return merged_bounds(limits, robot, kin, Motion(dt))

    limits = every_limit(robot, {name: value[7] for name, value in anywhere(np.float64).items()})
    for speed in (1, 2.5, np.array(3.0)):
        faster = (VelocityLimit({"hinge": speed, "slide": 1.0, "ball": [0.5, 1.0, 2]}), *limits[:3])
        np.testing.assert_allclose(boxes(faster, 0.1)[1][dofs("endless")[0]], np.inf)
    assert len(traces) == 1


@jaxik.pytree
class NoTurn(Limit):
    """A limit as a user writes it: the base does not turn about its x axis."""

    def bounds(self, robot: Robot, kin: Any, motion: Motion) -> tuple[jax.Array, jax.Array]:
        reach = jnp.where(jnp.arange(robot.nv) == 3, 0.0, jnp.inf)
        return -reach, reach


def test_a_limit_of_ones_own_is_one_method() -> None:
    robot = mixed()
    task = jaxik.PostureTask(robot.q_home)
    problem = jaxik.Problem(robot, {"rest": task}, limits=(NoTurn(), ConfigurationLimit()))
    assert problem.limits is not None
    lower, upper = box_at(robot, problem.limits, robot.q_home, Motion(DT))
    assert lower[3] == upper[3] == 0
    assert np.isinf(upper[4])
