"""The configuration space: samples and limits. Integration is tested against C MuJoCo with the kinematics."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import exhaustive

from jaxik.core.errors import JaxikError, JaxikWarning
from jaxik.kinematics.manifold import scalar_coordinates, tangent_bounds
from jaxik.kinematics.model import round_inward
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

JOINTS = """<mujoco><compiler angle="radian"/><worldbody>
<body><freejoint name="free"/><geom size=".1"/></body>
<body><joint name="turn" type="hinge" axis="0 0 1"/><geom size=".1"/>
 <body><joint name="elbow" type="hinge" range="0.1 0.7"/><geom size=".1"/>
  <body><joint name="rail" type="slide" range="-0.3 -0.1"/><geom size=".1"/>
   <body><joint name="drift" type="slide"/><geom size=".1"/>
    <body><joint name="wrist" type="ball" range="0 0.8"/><geom size=".1"/>
     <body><joint name="loose" type="ball"/><geom size=".1"/></body></body></body></body></body></body>
</worldbody></mujoco>"""
DTYPES = pytest.mark.parametrize(
    "dtype", [pytest.param(np.float64, marks=exhaustive, id="float64"), pytest.param(np.float32, id="float32")]
)


@cache
def robot() -> Robot:
    return load_robot(JOINTS)


@cache
def samples(dtype: Any) -> dict[str, np.ndarray]:
    q = robot().astype(dtype).sample(jax.random.key(0), (20_000,), unlimited_range=2.0)
    assert q.dtype == dtype
    q = np.asarray(q, float)
    return {name: q[:, list(robot().q_indices(name))] for name in robot().joint_names}


def angles(quaternions: np.ndarray) -> np.ndarray:
    return 2 * np.arctan2(np.linalg.norm(quaternions[:, 1:], axis=1), np.abs(quaternions[:, 0]))


def assert_uniform(values: np.ndarray, low: float, high: float) -> None:
    """Every moment up to the fourth within five standard errors, about 0.005."""
    unit = (values - low) / (high - low)
    for power in (1, 2, 3, 4):
        assert abs((unit**power).mean() - 1 / (power + 1)) < 5 * 0.3 / np.sqrt(len(values))


@DTYPES
def test_samples_are_uniform_inside_the_limits(dtype: Any) -> None:
    drawn = samples(dtype)
    for name, low, high in (("elbow", 0.1, 0.7), ("rail", -0.3, -0.1)):
        assert ((drawn[name] >= low) & (drawn[name] <= high)).all()  # in float64, whatever they were drawn in
        assert_uniform(drawn[name], low, high)
    top = float(dtype(np.pi))
    assert ((drawn["turn"] > -top) & (drawn["turn"] <= top)).all()
    assert_uniform(drawn["turn"], -np.pi, np.pi)
    for values in (drawn["drift"], *drawn["free"][:, :3].T):
        assert (np.abs(values) <= 2).all()
        assert_uniform(values, -2, 2)


@DTYPES
@pytest.mark.parametrize("joint", ["free", "loose"])
def test_rotations_without_limits_are_uniform(joint: str, dtype: Any) -> None:
    quaternions = samples(dtype)[joint][:, -4:]
    count = len(quaternions)
    np.testing.assert_allclose(np.linalg.norm(quaternions, axis=1), 1, atol=4 * np.finfo(dtype).eps)
    # Uniform on the sphere S3: mean 0, E[q q'] = I/4 (variance 1/24 on the diagonal), E[q_i^4] = 1/8.
    assert np.abs(quaternions.mean(0)).max() < 5 * 0.5 / np.sqrt(count)
    assert np.abs(quaternions.T @ quaternions / count - np.eye(4) / 4).max() < 5 * 0.21 / np.sqrt(count)
    assert np.abs((quaternions**4).mean(0) - 1 / 8).max() < 5 * 0.17 / np.sqrt(count)


@DTYPES
def test_limited_balls_are_uniform_in_angle_and_axis(dtype: Any) -> None:
    quaternions = samples(dtype)["wrist"]
    turned = angles(quaternions)
    assert turned.max() <= 0.8 + (1e-6 if dtype == np.float32 else 1e-12)
    assert_uniform(turned, 0, 0.8)
    axes = quaternions[:, 1:] / np.linalg.norm(quaternions[:, 1:], axis=1, keepdims=True)
    assert np.abs(axes.mean(0)).max() < 5 * 0.58 / np.sqrt(len(axes))


def test_the_same_key_gives_the_same_sample_and_another_key_another() -> None:
    key = jax.random.key(3)
    first = robot().sample(key, (4,))
    np.testing.assert_array_equal(first, robot().sample(key, 4))
    np.testing.assert_array_equal(first, jax.jit(lambda robot, key: robot.sample(key, (4,)))(robot(), key))
    assert (first != robot().sample(jax.random.key(4), (4,))).any(axis=1).all()
    assert len(np.unique(np.asarray(first)[:, 0])) == 4
    assert robot().sample(key).shape == (robot().nq,)
    assert robot().sample(key, (2, 3)).shape == (2, 3, robot().nq)


def test_samples_of_batched_robots_keep_to_the_limits_of_each() -> None:
    elbow = robot().topology.joint_index("elbow")
    upper = jnp.broadcast_to(robot().limit_upper, (3, 7)).at[:, elbow].set(jnp.array([0.2, 0.3, 0.4]))
    q = dataclasses.replace(robot(), limit_upper=upper).sample(jax.random.key(0), (500, 3))
    drawn = np.asarray(q[..., robot().q_indices("elbow")[0]]).max(0)
    assert (drawn <= [0.2, 0.3, 0.4]).all() and (drawn > [0.19, 0.29, 0.39]).all()
    with pytest.raises(JaxikError, match=r"shape \(4,\) does not broadcast with the robot's batch axes \(3,\)$"):
        dataclasses.replace(robot(), limit_upper=upper).sample(jax.random.key(0), (4,))


def inside(**changes: Any) -> jax.Array:
    middle = {"elbow": 0.4, "rail": -0.2, "drift": 50.0, "turn": -20.0, "wrist": [1.0, 0, 0, 0]}
    return robot().configuration({**middle, **changes})


def half_angle(angle: float) -> list[float]:
    return [-np.cos(angle / 2), 0.0, -np.sin(angle / 2), 0.0]  # the negative of the usual one, the same rotation


EXCESS = [
    ({}, None, 0.0),
    ({"elbow": 0.7, "rail": -0.3}, None, 0.0),
    ({"elbow": 0.75}, "elbow", 0.05),
    ({"elbow": 0.0}, "elbow", 0.1),
    ({"rail": 0.4}, "rail", 0.5),
    ({"wrist": half_angle(0.8)}, None, 0.0),
    ({"wrist": half_angle(1.0)}, "wrist", 0.2),
    ({"wrist": [0.0, 3.0, 0.0, 0.0]}, "wrist", np.pi - 0.8),
    ({"loose": [0.0, 3.0, 0.0, 0.0]}, None, 0.0),
]


@pytest.mark.parametrize(("changes", "joint", "amount"), EXCESS)
def test_excess_is_measured_and_clamped_away(changes: dict[str, Any], joint: str | None, amount: float) -> None:
    q = inside(**changes)
    want = [amount if name == joint else 0.0 for name in robot().joint_names]
    np.testing.assert_allclose(robot().limit_excess(q), want, atol=1e-12)
    assert robot().check_limits(q, 1e-12) == (joint is None)
    assert robot().check_limits(q, amount + 1e-6)
    clamped = robot().clamp(q)
    assert robot().check_limits(clamped, 1e-12)
    assert np.linalg.norm(robot().difference(q, clamped)) == pytest.approx(amount, abs=1e-12)


def test_limits_are_those_of_batches_and_a_nan_is_outside() -> None:
    q = jnp.stack([inside(), inside(elbow=2.0), inside(elbow=np.nan)])
    np.testing.assert_array_equal(robot().check_limits(q), [True, False, False])
    np.testing.assert_allclose(robot().clamp(q)[:2, robot().q_indices("elbow")[0]], [0.4, 0.7])


def test_bounds_stand_at_the_degrees_of_freedom_of_hinges_and_slides() -> None:
    lower, upper = map(np.asarray, tangent_bounds(robot()))
    q = inside()
    coordinates = np.asarray(scalar_coordinates(robot().topology, q))
    for name in robot().joint_names:
        at = list(robot().v_indices(name))
        expected = {"elbow": (0.1, 0.7, 0.4), "rail": (-0.3, -0.1, -0.2)}.get(name, (-np.inf, np.inf, None))
        assert (lower[at] == expected[0]).all() and (upper[at] == expected[1]).all()
        if expected[2] is not None:
            assert coordinates[at[0]] == expected[2]


# --- limits in float32 ---------------------------------------------------------------------------------------------


def test_float32_limits_lie_inside_the_float64_ones() -> None:
    rng = np.random.default_rng(0)
    low = np.concatenate([rng.uniform(-4, 4, 500), [0.0, -np.inf, 1.0, -np.pi, 1e-30]])
    high = low + np.concatenate([rng.uniform(0.01, 2, 500), [1.0, 5.0, np.inf, 2 * np.pi, 1.0]])
    high[501] = 5.0
    compiled = jax.jit(lambda a, b: round_inward(a, b, np.float32))
    for lower, upper in (round_inward(low, high, jnp.float32), compiled(low, high)):
        assert lower.dtype == upper.dtype == np.float32
        lower, upper = np.asarray(lower, float), np.asarray(upper, float)
        assert (lower >= low).all() and (upper <= high).all()
        bounded = np.isfinite(low) & np.isfinite(high)
        # One unit in the last place at most.
        assert (np.abs(lower[bounded] - low[bounded]) <= 1.2e-7 * np.abs(low[bounded])).all()
        assert (np.abs(upper[bounded] - high[bounded]) <= 1.2e-7 * np.abs(high[bounded])).all()
        np.testing.assert_array_equal(np.isinf(lower), np.isinf(low))
        np.testing.assert_array_equal(np.isinf(upper), np.isinf(high))
    # On a GPU XLA removes a cast and the cast back, no CPU does: so they are looked for in the program.
    program = str(jax.make_jaxpr(lambda a, b: round_inward(a, b, jnp.float32))(low, high))
    assert "new_dtype=float64" not in program and "reduce_precision" in program
    exact = round_inward(low, high, jnp.float64)
    np.testing.assert_array_equal(exact[0], low)
    np.testing.assert_array_equal(exact[1], high)


def test_limits_that_are_integers_become_floats_inside_them() -> None:
    lower, upper = round_inward(np.array([-1, 2**24 + 1]), np.array([2, 2**24 + 3]), jnp.float32)
    assert lower.dtype == upper.dtype == np.float32
    np.testing.assert_array_equal(lower, [-1, 2**24 + 2])
    np.testing.assert_array_equal(upper, [2, 2**24 + 2])


def test_rounding_of_limits_passes_derivatives_straight_through() -> None:
    slopes_at = jax.jit(jax.jacrev(lambda a, b: round_inward(a, b, jnp.float32), argnums=(0, 1)))
    for low, high in ((0.1, 0.7), (0.1, 0.1 + 1e-12), (-np.inf, np.inf), (0.5, 0.5)):
        slopes = slopes_at(low, high)
        np.testing.assert_array_equal(slopes, np.eye(2))


def test_the_dtype_of_the_configuration_decides() -> None:
    q32, q64 = np.asarray(inside(elbow=2.0), np.float32), np.asarray(inside(elbow=2.0))
    frame = robot().frame("body7", "body")
    for q in (q32, q64):
        results = {
            "frame_pose": robot().frame_pose(q, frame).wxyz_xyz,
            "integrate": robot().integrate(q, np.zeros(robot().nv, np.float64)),
            "clamp": robot().clamp(q),
        }
        assert {name: x.dtype for name, x in results.items()} == dict.fromkeys(results, q.dtype)
    assert float(robot().clamp(q32)[robot().q_indices("elbow")[0]]) <= 0.7
    mixed = dataclasses.replace(robot(), body_mass=robot().body_mass.astype(np.float32))
    assert {x.dtype for x in jax.tree.leaves(mixed.astype(np.float32))} == {np.dtype(np.float32)}
    assert {x.dtype for x in jax.tree.leaves(mixed.astype(np.float64))} == {np.dtype(np.float64)}


def narrow(low: float, high: float) -> str:
    return (
        f'<mujoco><compiler angle="radian"/><worldbody><body><joint name="stiff" range="{low!r} {high!r}"/>'
        '<geom size=".1"/></body></worldbody></mujoco>'
    )


def test_a_range_without_a_float32_becomes_the_nearest_one_and_is_said() -> None:
    low, high = 0.1, 0.1 + 1e-10
    with jax.enable_x64(False):
        with pytest.warns(JaxikWarning, match="no float32 lies between the limits of stiff"):
            stiff = load_robot(narrow(low, high))
        assert stiff.limit_lower.dtype == np.float32
        assert stiff.limit_lower == stiff.limit_upper == stiff.q_home == np.float32(0.1)
        plain = load_robot(JOINTS)  # without a warning
        elbow = plain.topology.joint_index("elbow")
        assert float(plain.limit_lower[elbow]) >= 0.1 and float(plain.limit_upper[elbow]) <= 0.7
        q = plain.sample(jax.random.key(1), (1000,))
        assert q.dtype == np.float32
    lower, upper = round_inward(low, high, jnp.float32)
    assert lower == upper == np.float32(0.1)
