"""Limits of one step, one by one: what they allow."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from limit_rows import DT, UNOPTIMISED, mixed, planar

import jaxik
from jaxik import (
    AccelerationLimit,
    ConfigurationLimit,
    FreeJointVelocityLimit,
    Motion,
    PositionLimit,
    VelocityLimit,
)
from jaxik.kinematics.manifold import ball_angle, integrate
from jaxik.robot.robot import Robot


def dofs(*joints: str) -> list[int]:
    return [v for joint in joints for v in mixed().v_indices(joint)]


# --- configuration -------------------------------------------------------------------------------------------------


def test_a_step_may_use_its_share_of_the_way_to_a_limit() -> None:
    robot, limit = planar(), ConfigurationLimit(gain=0.5, margin=0.1)
    lower, upper = limit.bounds(robot, robot.kinematics(jnp.array([0.1, 2.3])), Motion(DT))
    np.testing.assert_allclose(lower, [0.5 * (-0.2 - 0.1), 0.5 * (-2.4 - 2.3)], atol=1e-15)
    np.testing.assert_allclose(upper, [0.5 * (0.2 - 0.1), 0.5 * (2.4 - 2.3)], atol=1e-15)


def test_joints_without_limits_have_no_bounds() -> None:
    robot = mixed()
    lower, upper = jax.jit(lambda q: ConfigurationLimit().bounds(robot, robot.kinematics(q), Motion(DT)))(robot.q_home)
    limited = np.zeros(robot.nv, bool)
    limited[dofs("slide", "hinge", "still")] = True
    np.testing.assert_array_equal(np.isfinite(lower), limited)
    np.testing.assert_array_equal(np.isfinite(upper), limited)


def test_a_saturating_step_of_a_ball_lands_on_its_limit() -> None:
    robot, axis = mixed(), np.array([2.0, -1.0, 0.5]) / np.sqrt(5.25)
    at = robot.topology.ball_joints.index(robot.topology.joint_index("ball"))

    @jax.jit
    @jax.vmap
    def stepped(q: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrix, most = ConfigurationLimit(gain=1.0).inequalities(robot, robot.kinematics(q), Motion(DT)) or ()
        reached = integrate(robot.topology, q, matrix[at] * most[at])
        return matrix[at, dofs("ball")], ball_angle(reached[jnp.array(robot.q_indices("ball"))])

    half = np.array([0.1, 0.5, 0.799, 1.3])[:, None] / 2  # the last one from outside
    ball = np.concatenate([np.cos(half), np.sin(half) * axis], axis=1)
    normals, angles = stepped(robot.configuration({"ball": np.concatenate([ball, -ball])}))
    np.testing.assert_allclose(normals, np.tile(axis, (8, 1)), atol=1e-12)
    np.testing.assert_allclose(angles, 0.8, atol=1e-9)


def test_a_ball_that_has_not_turned_may_turn_any_way() -> None:
    robot = mixed()

    @jax.jit
    @jax.vmap
    def rows(q: jax.Array) -> Any:
        return ConfigurationLimit(gain=1.0).inequalities(robot, robot.kinematics(q), Motion(DT))

    matrix, most = rows(robot.configuration({"ball": np.array([[1.0, 0, 0, 0], [1, 1e-10, 0, 0]])}))
    np.testing.assert_array_equal(matrix[:, 0], 0)
    np.testing.assert_allclose(most, [[0.8, np.inf]] * 2)


# --- velocity and acceleration -------------------------------------------------------------------------------------

NV = mixed().nv


def expected(values: dict[str, Any]) -> np.ndarray:
    """A number for each degree of freedom of the named joints, infinite elsewhere."""
    full = np.full(NV, np.inf)
    for joint, value in values.items():
        full[dofs(joint)] = value
    return full


def own(limits: dict[str, float]) -> Robot:
    return dataclasses.replace(mixed(), velocity_limit=jnp.asarray(expected(limits)))


EVERY = {joint: 1.5 for joint in mixed().joint_names if joint != "free"}
PER_RATE = np.where(np.arange(NV) < 6, np.inf, np.arange(NV) / 5)
SPEEDS: dict[str, tuple[VelocityLimit, Robot, np.ndarray, np.ndarray]] = {
    "the robot's own": (
        VelocityLimit(),
        own({"slide": 0.2, "hinge": 3.0}),
        expected({"slide": 0.2, "hinge": 3.0}),
        expected({"slide": 0.2, "hinge": 3.0}),
    ),
    "a number": (VelocityLimit(1.5), mixed(), expected(EVERY), expected(EVERY)),
    "a number in a batch of one axis": (VelocityLimit([1.5]), mixed(), expected(EVERY), expected(EVERY)),
    "each rate": (VelocityLimit(PER_RATE), mixed(), PER_RATE, PER_RATE),
    "by name": (
        VelocityLimit({"hinge": 2.0, "ball": [1.0, 2.0, 3.0], "loose": 0.5}),
        mixed(),
        expected({"hinge": 2.0, "ball": [1.0, 2.0, 3.0], "loose": 0.5}),
        expected({"hinge": 2.0, "ball": [1.0, 2.0, 3.0], "loose": 0.5}),
    ),
    "one way slower": (
        VelocityLimit(2.0, -0.5),
        mixed(),
        expected(dict.fromkeys(EVERY, 2.0)),
        expected(dict.fromkeys(EVERY, 0.5)),
    ),
    "one way slower by name": (
        VelocityLimit({"hinge": 2.0, "slide": 1.0}, {"hinge": -0.5, "still": -0.1}),
        mixed(),
        expected({"hinge": 2.0, "slide": 1.0}),
        expected({"hinge": 0.5, "slide": 1.0, "still": 0.1}),
    ),
    "its own, but slower backwards": (
        VelocityLimit(min_velocity={"hinge": -0.5}),
        own({"hinge": 2.0, "slide": 1.0}),
        expected({"hinge": 2.0, "slide": 1.0}),
        expected({"hinge": 0.5, "slide": 1.0}),
    ),
}


@pytest.mark.parametrize("case", SPEEDS)
@pytest.mark.parametrize("dt", [DT, DT / 2])
def test_velocities_are_bounded_both_ways(case: str, dt: float) -> None:
    limit, robot, forwards, backwards = SPEEDS[case]
    lower, upper = limit.bounds(robot, robot.kinematics(robot.q_home), Motion(dt))
    np.testing.assert_allclose(upper, dt * forwards, rtol=1e-15)
    np.testing.assert_allclose(lower, -dt * backwards, rtol=1e-15)


def test_acceleration_is_bounded_from_the_velocity_before() -> None:
    robot, limit = planar(), AccelerationLimit({"second": 4.0})
    kin = robot.kinematics(jnp.zeros(2))
    for previous, around in ((None, 0.0), (np.array([9.0, 0.5]), 0.5)):
        lower, upper = limit.bounds(robot, kin, Motion(DT, previous))
        np.testing.assert_allclose(lower, [-np.inf, (around - 4.0 * DT) * DT], atol=1e-15)
        np.testing.assert_allclose(upper, [np.inf, (around + 4.0 * DT) * DT], atol=1e-15)


def test_a_joint_is_slow_enough_to_stop_before_its_limit() -> None:
    robot, limit = planar(), AccelerationLimit(4.0)
    kin = robot.kinematics(jnp.array([0.3 - 0.02, 2.6]))
    _, upper = limit.bounds(robot, kin, Motion(DT, np.array([0.39, 0.03])))
    # Five steps, the last of 0.8 mm and each other of 1.6 mm more. One outside must not move on, but may come to rest.
    np.testing.assert_allclose(upper, [0.02 / 5 + 2 * 0.0016, 0.0], atol=1e-15)
    _, upper = limit.bounds(robot, kin, Motion(DT, np.array([1.0, 1.0])))
    # Too fast to do so: it brakes as hard as it may.
    np.testing.assert_allclose(upper, [(1.0 - 4.0 * DT) * DT] * 2, atol=1e-15)
    kin = robot.kinematics(jnp.array([-0.28, -2.6]))
    for previous, want in (([-0.39, -0.03], [-0.0072, 0.0]), ([-1.0, -1.0], [(4.0 * DT - 1.0) * DT] * 2)):
        lower, _ = limit.bounds(robot, kin, Motion(DT, np.array(previous)))
        np.testing.assert_allclose(lower, want, atol=1e-15)


# --- free joints ---------------------------------------------------------------------------------------------------


def turned_base() -> Any:
    """The mixed robot's base turned a quarter about z: its x axis is the world's y axis."""
    half = np.sqrt(0.5)
    return mixed().configuration({"free": [0, 0, 1, half, 0, 0, half]})


def test_a_free_joint_is_bounded_in_the_axes_of_its_body() -> None:
    robot, limit = (
        mixed(),
        FreeJointVelocityLimit(max_linear_velocity=[0.1, 0.2, 0.3], max_angular_velocity=[1.0, 2.0, 3.0]),
    )
    kin, motion = robot.kinematics(turned_base()), Motion(DT)
    matrix, most = limit.inequalities(robot, kin, motion) or ()
    np.testing.assert_allclose(most, DT * np.array([0.1, 0.2, 0.3] * 2), rtol=1e-15)
    np.testing.assert_allclose(matrix[:3, :3], [[0, 1, 0], [-1, 0, 0], [0, 0, 1]], atol=1e-15)
    np.testing.assert_array_equal(matrix[3:], -matrix[:3])
    np.testing.assert_array_equal(matrix[:, 3:], 0)
    lower, upper = limit.bounds(robot, kin, motion) or ()
    np.testing.assert_allclose(upper[:6], [np.inf] * 3 + [DT, 2 * DT, 3 * DT], rtol=1e-15)
    assert np.isinf(upper[6:]).all()
    np.testing.assert_array_equal(lower, -upper)


def test_one_half_of_a_free_joint_and_one_number() -> None:
    robot, motion = mixed(), Motion(DT)
    kin = robot.kinematics(turned_base())
    linear, angular = (
        FreeJointVelocityLimit("free", max_linear_velocity=0.4),
        FreeJointVelocityLimit("free", max_angular_velocity=0.4),
    )
    assert linear.bounds(robot, kin, motion) is None
    assert angular.inequalities(robot, kin, motion) is None
    for one, three in (
        (linear, FreeJointVelocityLimit(max_linear_velocity=[0.4] * 3)),
        (angular, FreeJointVelocityLimit(max_angular_velocity=[0.4] * 3)),
    ):
        jax.tree.map(np.testing.assert_array_equal, one.bounds(robot, kin, motion), three.bounds(robot, kin, motion))
        jax.tree.map(
            np.testing.assert_array_equal, one.inequalities(robot, kin, motion), three.inequalities(robot, kin, motion)
        )


# --- half spaces ---------------------------------------------------------------------------------------------------


def test_a_half_space_has_the_derivatives_of_its_distance() -> None:
    robot, normal = mixed(), np.array([0.5, -2.0, 1.0])
    limit = PositionLimit(robot.frame("tip"), normal, 0.4, gain=0.7)

    @partial(jax.jit, compiler_options=UNOPTIMISED)
    def all_of(q: jax.Array) -> Any:
        def distance(dq: jax.Array) -> jax.Array:
            return limit.distance(robot, robot.kinematics(integrate(robot.topology, q, dq), limit.frames))

        kin, zero = robot.kinematics(q, limit.frames), jnp.zeros(robot.nv)
        bent = limit.task.second_derivative(robot, kin, jnp.ones(()))
        derivatives = distance(zero), jax.jacfwd(distance)(zero), jax.hessian(distance)(zero)
        return limit.inequalities(robot, kin, Motion(DT)), bent, derivatives

    q = robot.sample(jax.random.key(4))
    (matrix, most), bent, (value, slope, curvature) = all_of(q)
    position = robot.frame_pose(q, "tip").translation()
    np.testing.assert_allclose(value, 0.4 - normal @ position / np.linalg.norm(normal), atol=1e-14)
    np.testing.assert_allclose(most, [0.7 * value], atol=1e-15)
    np.testing.assert_allclose(matrix, -slope[None], atol=1e-13)
    np.testing.assert_allclose(bent, curvature, atol=1e-12)
    assert np.abs(bent).max() > 0.01


def test_rows_of_a_task_limit_are_those_of_half_spaces() -> None:
    robot = mixed()
    tip, q = robot.frame("tip"), robot.sample(jax.random.key(4))
    point = jaxik.FrameTask(tip, np.array([0.1, 0.2, 0.3]), orientation_cost=None, axes="world")
    limit = jaxik.TaskLimit(point, upper=[0.05, np.inf, np.inf], lower=[np.inf * -1, -0.06, np.inf * -1], gain=0.7)
    # The residual is what is left to the point: an upper bound of it is a lower one of the position.
    half = [
        PositionLimit(tip, [-1.0, 0, 0], 0.05 - 0.1, gain=0.7),
        PositionLimit(tip, [0, 1.0, 0], 0.2 + 0.06, gain=0.7),
    ]

    @jax.jit
    def rows(q: jax.Array) -> Any:
        kin = robot.kinematics(q, (tip,))
        return [each.inequalities(robot, kin, Motion(DT)) for each in (limit, *half)]

    (matrix, most), *planes = jax.device_get(rows(q))
    for row, (slope, left) in zip((3, 1), planes, strict=True):
        np.testing.assert_allclose(matrix[row], slope[0], atol=1e-14)
        np.testing.assert_allclose(most[row], left[0], atol=1e-14)
    assert np.isinf(most[np.array([0, 2, 4, 5])]).all() and (matrix[np.array([0, 2, 4, 5])] == 0).all()
