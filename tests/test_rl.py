"""Pose actions: they move frames as they say, stay inside limits whatever they are, and do not drift."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np
import pytest
from tables import exhaustive

import jaxik
from jaxik.rl import ActionState, PoseAction
from jaxik.rl.pose_action import _acted
from jaxik.robot.loading.catalog import find_by_name

SMALL = {"translation": 0.002, "rotation": 0.01}


@functools.cache
def robot_of(name: str) -> jaxik.Robot:
    robot = jaxik.load_robot(name.removesuffix(" on its side"))
    if name.endswith("on its side"):
        side = jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.from_y_radians(jnp.pi / 2), jnp.array([0.0, 0, 1]))
        robot = robot.with_base(side)
    return robot


def followed(act: PoseAction, q: Any, actions: Any) -> tuple[jax.Array, Any]:
    """Joint targets and infos of actions (T, ...) one after the other, the arm going where it is told."""

    def one(carry: tuple[ActionState, jax.Array], action: jax.Array) -> Any:
        q, state, info = act(*carry, action)
        return (state, q), (q, info)

    return jax.lax.scan(one, (act.reset(q), q), actions)[1]


@pytest.mark.parametrize(("name", "axes", "reference"), [
    pytest.param("panda", "world", "target", marks=exhaustive),
    pytest.param("panda", "frame", "measured", marks=exhaustive),
    ("ur5e on its side", "base", "target"),
    pytest.param("ur5e on its side", "world", "measured", marks=exhaustive),
])  # fmt: skip
def test_a_constant_action_moves_the_frame_by_so_much_and_by_nothing_else(name: str, axes: str, reference: str) -> None:
    robot = robot_of(name)
    base = {"base": robot.frame_names["body"][1]} if axes == "base" else {}
    act = PoseAction(robot, {"tip": "tcp"}, axes=axes, reference=reference, **base, **SMALL)
    start = robot.frame_pose(robot.q_home, "tcp")
    turn = {"world": jaxlie.SO3.identity(), "frame": start.rotation()}.get(axes)
    if turn is None:
        turn = robot.frame_pose(robot.q_home, base["base"]).rotation()
    # Along and about each of the six axes in turn, 30 steps, all in one batch.
    actions = jnp.broadcast_to(jnp.eye(6), (30, 6, 6))
    q, info = followed(act, jnp.tile(robot.q_home, (6, 1)), actions)
    assert (info.status == jaxik.Status.CONVERGED).all() and not info.limited.any()
    end = robot.frame_pose(q[-1], "tcp")
    moved = turn.inverse() @ (end.translation() - start.translation())
    turned = turn.inverse() @ (end.rotation() @ start.rotation().inverse()).log()
    expected = np.vstack([0.06 * np.eye(3), np.zeros((3, 3))]), np.vstack([np.zeros((3, 3)), 0.3 * np.eye(3)])
    np.testing.assert_allclose(moved, expected[0], atol=6e-4)
    np.testing.assert_allclose(turned, expected[1], atol=3e-3)


@exhaustive
def test_two_arms_have_an_action_each_and_the_rest_passes_through() -> None:
    robot = robot_of("dual_arm")
    act = PoseAction(robot, {"left": "left_tcp", "right": "right_tcp"}, rotation=None, translation=0.002, passthrough=2)
    assert (act.size, act.width) == (8, 3)
    action = jnp.array([0, 0, 1.0, 0, 1.0, 0, 0.25, -0.5])
    q, info = followed(act, robot.q_home, jnp.tile(action, (20, 1)))
    np.testing.assert_array_equal(info.passthrough[-1], action[6:])
    for frame, way in (("left_tcp", [0, 0, 0.04]), ("right_tcp", [0, 0.04, 0])):
        start, end = (robot.frame_pose(x, frame) for x in (robot.q_home, q[-1]))
        np.testing.assert_allclose(end.translation() - start.translation(), way, atol=5e-4)
        assert float(jnp.linalg.norm((start.rotation().inverse() @ end.rotation()).log())) < 2e-3


def test_an_absolute_action_is_a_pose_in_the_axes_of_the_base() -> None:
    robot = robot_of("ur5e on its side")
    act = PoseAction(robot, {"tip": "tcp"}, mode="absolute", axes="base", base="base", lead=(1.0, 3.0))
    near = robot.q_home + 0.2
    pose = robot.frame_pose(robot.q_home, "base").inverse() @ robot.frame_pose(near, "tcp")
    action = jnp.concatenate([pose.translation(), pose.rotation().log()])
    q, info = followed(act, robot.q_home, jnp.tile(action, (80, 1)))
    reached = robot.frame_pose(q[-1], "tcp").inverse() @ robot.frame_pose(near, "tcp")
    assert float(jnp.abs(reached.log()).max()) < 1e-3 and float(info.position_error["tip"][-1]) < 1e-3


@pytest.mark.parametrize(("name", "reference"), [
    pytest.param("panda", "target", marks=exhaustive),
    ("ur5e on its side", "measured"),
    pytest.param("dual_arm", "target", marks=exhaustive),
])  # fmt: skip
def test_random_actions_never_leave_joint_or_speed_limits(name: str, reference: str) -> None:
    robot = robot_of(name)
    frames = {"left": "left_tcp", "right": "right_tcp"} if name == "dual_arm" else {"tip": "tcp"}
    act = PoseAction(robot, frames, reference=reference, translation=0.1, rotation=0.5, lead=(0.5, 2.0))
    count, steps = 64, 40
    actions = 3 * np.asarray(jax.random.normal(jax.random.key(1), (steps, count, act.size)))
    # Some hold one action, which drives them to the border of what they reach; some are NaN.
    actions[:, ::2] = actions[:1, ::2]
    bad = np.asarray(jax.random.uniform(jax.random.key(2), (steps, count))) < 0.05
    actions[bad] = np.nan
    q0 = robot.sample(jax.random.key(0), (count,))
    q, info = jax.device_get(followed(act, q0, actions))
    assert np.isfinite(q).all()
    scalar = [j.q_index for j in robot.topology.joints]
    lower, upper = np.asarray(robot.limit_lower), np.asarray(robot.limit_upper)
    assert (q[..., scalar] >= lower).all() and (q[..., scalar] <= upper).all()
    speed = np.abs(np.diff(np.concatenate([q0[None], q]), axis=0)) / act.dt
    assert (speed <= np.asarray(robot.velocity_limit) * (1 + 1e-9)).all()
    assert ((info.status == jaxik.Status.NONFINITE) == bad).all()
    assert set(np.unique(info.status)) <= {jaxik.Status.CONVERGED, jaxik.Status.NONFINITE}
    assert info.limited.mean() > 0.02


def test_a_nan_action_holds_and_a_nan_measurement_does_not_spread() -> None:
    robot = robot_of("ur5e")
    act = PoseAction(robot, {"tip": "tcp"})
    state = act.reset(robot.q_home)
    q, held, info = act(state, robot.q_home, jnp.nan * jnp.ones(6))  # `full` is weak, for which it compiles anew
    assert info.status == jaxik.Status.NONFINITE
    np.testing.assert_array_equal(held.targets["tip"].wxyz_xyz, state.targets["tip"].wxyz_xyz)
    np.testing.assert_allclose(q, robot.q_home, atol=1e-9)
    q, _, info = act(state, robot.q_home * jnp.nan, jnp.ones(6))
    assert info.status == jaxik.Status.NONFINITE and jnp.isfinite(q).all()


@functools.cache
def floating() -> PoseAction:
    """Three numbers move the tip of an arm on a floating base; one more passes through."""
    robot = robot_of("ur5e").with_free_root()
    return PoseAction(robot, {"tip": "tcp"}, rotation=None, translation=0.005, passthrough=1)


def test_what_passes_through_is_clipped_and_held_with_the_target_where_anything_is_not_finite() -> None:
    act, nan = floating(), jnp.nan
    q = jnp.tile(act.robot.q_home, (4, 1))
    bad = jnp.array([[0.5, 0, 0, nan], [nan, 0, 0, 0.7], [nan, 0, 0, jnp.inf], [0.5, 0, 0, 50.0]])
    _, state, info = act(act.reset(q), q, bad)
    np.testing.assert_array_equal(info.passthrough[:, 0], [0, 0, 0, 1])
    _, state, _ = act(state, q, -0.25 * jnp.ones((4, 4)))
    _, held, info = act(state, q, bad)
    np.testing.assert_array_equal(info.passthrough[:, 0], [-0.25, -0.25, -0.25, 1])
    assert info.status.tolist() == 3 * [jaxik.Status.NONFINITE] + [jaxik.Status.CONVERGED]
    poses = held.targets["tip"].wxyz_xyz, state.targets["tip"].wxyz_xyz
    np.testing.assert_array_equal(poses[0][:3], poses[1][:3])
    _, _, info = act(held, q * nan, jnp.ones((4, 4)))
    np.testing.assert_array_equal(info.passthrough[:, 0], [-0.25, -0.25, -0.25, 1])


def test_joints_alone_move_a_frame_and_make_up_for_a_floating_base_that_drifts() -> None:
    act = floating()
    q = jnp.tile(act.robot.q_home, (4, 1))
    start, state = act.robot.frame_pose(q, "tcp").translation(), act.reset(q)
    drift = 1e-3 * jnp.array([0, 1.0, -1, 2])  # of the base along y, in each of 20 actions
    for _ in range(20):
        told, state, info = act(state, q, jnp.tile(jnp.array([1.0, 0, 0, 0]), (4, 1)))
        np.testing.assert_array_equal(told[:, :7], q[:, :7])
        q = told.at[:, 1].add(drift)
    moved = act.robot.frame_pose(q, "tcp").translation() - start
    # What the base drifts after the last action is not made up for yet.
    expected = jnp.stack([jnp.full(4, 0.1), drift, jnp.zeros(4)], axis=1)
    np.testing.assert_allclose(moved, expected, atol=2e-3)
    assert info.position_error["tip"].max() < 2e-3 and not info.limited.any()


def test_which_degrees_of_freedom_actions_move_can_be_said_and_recompiles_nothing() -> None:
    act, nv = floating(), floating().robot.nv
    q = jnp.tile(act.robot.q_home, (4, 1))
    state, action = act.reset(q), jnp.tile(jnp.array([1.0, 0, 0, 0]), (4, 1))
    act(state, q, action)
    programs = _acted._cache_size()
    sagged = q.at[:, 7:].add(-0.01)
    for held in (6, 7):
        told, _, info = dataclasses.replace(act, dof_mask=(jnp.arange(nv) > 5) & (jnp.arange(nv) != held))(
            state, sagged, action
        )
        np.testing.assert_array_equal(told[:, held + 1], sagged[:, held + 1])
        assert jnp.abs(told - q)[:, 7:].max() < 0.011 and not info.limited.any()
        assert ((jnp.abs(info.velocity) > 0).any(axis=0) == act.dof_mask.at[held].set(False)).all()
    told, _, _ = dataclasses.replace(act, dof_mask=jnp.arange(nv) < 3)(state, sagged, action)
    np.testing.assert_array_equal(told[:, 3:], sagged[:, 3:])
    assert jnp.abs(told - sagged)[:, :3].max() > 1e-3
    assert _acted._cache_size() == programs


def test_each_of_a_batch_may_have_degrees_of_freedom_of_its_own_to_move() -> None:
    act = floating()
    q, joints = jnp.tile(act.robot.q_home, (4, 1)), jnp.arange(act.robot.nv) > 5
    masks = jnp.stack([joints, joints, ~joints, 0 * joints])
    told, _, _ = dataclasses.replace(act, dof_mask=masks)(act.reset(q), q, jnp.tile(jnp.array([1.0, 0, 0, 0]), (4, 1)))
    moved = [((told - q)[:, part] != 0).any(axis=1).tolist() for part in (slice(7), slice(7, None))]
    assert moved == [[False, False, True, False], [True, True, False, False]]


def test_a_robot_that_only_floats_asks_what_actions_move() -> None:
    body = jaxik.load_robot(
        '<mujoco><worldbody><body name="box"><freejoint/><geom size="1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(jaxik.JaxikError, match=r"free joints alone, which no action moves unless dof_mask, \(6,\)"):
        PoseAction(body, {"box": "box"})
    assert PoseAction(body, {"box": "box"}, dof_mask=jnp.ones(6)).dof_mask.all()


def test_a_nan_action_adds_nothing_to_derivatives_that_elements_share() -> None:
    robot = robot_of("ur5e")
    act = PoseAction(robot, {"tip": "tcp"})

    @jax.jit
    @jax.grad
    def slope(bias: jax.Array, actions: jax.Array) -> jax.Array:
        q, _, info = act(act.reset(jnp.broadcast_to(robot.q_home, (2, robot.nq))), robot.q_home, actions + bias)
        return jnp.sum(q * q) + jnp.sum(info.position_error["tip"])

    actions = jnp.full((2, 6), 0.3)
    both, one = slope(jnp.zeros(6), actions), slope(jnp.zeros(6), actions.at[1, 0].set(jnp.nan))
    np.testing.assert_allclose(one, both / 2, atol=1e-9)


def test_a_target_leads_an_arm_that_is_held_by_no_more_than_its_leash() -> None:
    robot = robot_of("ur5e")
    act = PoseAction(robot, {"tip": "tcp"}, lead=(0.05, 0.2))
    state, start = act.reset(robot.q_home), robot.frame_pose(robot.q_home, "tcp")
    for _ in range(20):
        _, state, _ = act(state, robot.q_home, jnp.array([1.0, 0, 0, 0, 0, 1.0]))
    gap = start.inverse() @ state.targets["tip"]
    np.testing.assert_allclose(jnp.linalg.norm(gap.translation()), 0.05, rtol=1e-9)
    np.testing.assert_allclose(jnp.linalg.norm(gap.rotation().log()), 0.2, rtol=1e-9)


@pytest.mark.parametrize(
    "small", [{"translation": 0.001}, {"translation": 0.0}, {"rotation": 0.001}, {"rotation": 0.0}]
)
def test_a_constant_sag_does_not_drag_the_target_however_small_actions_are(small: dict[str, float]) -> None:
    robot = robot_of("double_pendulum")
    act = PoseAction(robot, {"tip": "tcp"}, **small)
    state = start = act.reset(robot.q_home + 0.5)
    for _ in range(5):
        _, state, _ = act(state, state.q - 0.02, jnp.zeros(6))
    np.testing.assert_array_equal(state.targets["tip"].wxyz_xyz, start.targets["tip"].wxyz_xyz)


@exhaustive
def test_gravity_does_not_make_a_target_drift() -> None:
    """C MuJoCo, position actuators that sag: actions of zero for 1,000 steps; from the measured pose the arm sinks."""
    robot = robot_of("panda")
    spec = mujoco.MjSpec.from_file(str(find_by_name("panda")))
    for joint in robot.topology.joints:
        actuator = spec.add_actuator(trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint.name)
        actuator.set_to_position(kp=800, kv=80)
    spec.option.timestep, spec.option.integrator = 0.005, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    sunk = {}
    for reference in ("target", "measured"):
        act = PoseAction(robot, {"tip": "tcp"}, reference=reference)
        acted = jax.jit(act.__call__)
        data = mujoco.MjData(model)
        data.qpos[:], data.ctrl[:] = robot.q_home, robot.q_home
        state, heights = act.reset(robot.q_home), []
        for control in range(1000):
            q, state, _ = acted(state, data.qpos.copy(), np.zeros(6))
            data.ctrl[:] = q
            mujoco.mj_step(model, data, nstep=4)
            if control >= 100:
                heights.append(data.site("tcp").xpos.copy())
        sunk[reference] = np.linalg.norm(heights[-1] - heights[0])
        assert acted._cache_size() == 1
    assert sunk["target"] < 1e-3
    assert sunk["measured"] > 0.05


def test_gradients_by_the_action_are_those_of_central_differences() -> None:
    robot = robot_of("ur5e")
    act = PoseAction(robot, {"tip": "tcp"})
    state, action = act.reset(robot.q_home), jnp.array([0.3, -0.2, 0.5, 0.1, 0.4, -0.6])

    def told(action: jax.Array) -> jax.Array:
        return act(state, robot.q_home, action)[0]

    derivative, h = jax.jit(jax.jacfwd(told)), 1e-6
    expected = np.stack([(told(action + h * e) - told(action - h * e)) / (2 * h) for e in np.eye(6)], axis=1)
    np.testing.assert_allclose(derivative(action), expected, atol=1e-7)
    # An action of zero is where norms have no derivative of their own.
    assert jnp.isfinite(derivative(jnp.zeros(6))).all()


@exhaustive
def test_batches_are_what_vmap_makes_of_one() -> None:
    robot = robot_of("ur5e")
    act = PoseAction(robot, {"tip": "tcp"})
    q0, actions = robot.sample(jax.random.key(0), (5,)), jax.random.normal(jax.random.key(1), (5, 6))
    together = act(act.reset(q0), q0, actions)
    mapped = jax.vmap(lambda q, a: act(act.reset(q), q, a))(q0, actions)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), together, mapped)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"frames": {"tip": "tpc"}}, "did you mean 'tcp'"),
    ({"frames": {}}, "frames is a dict"),
    ({"mode": "relative"}, "mode"),
    ({"axes": "base"}, "base is a frame of the robot where axes is"),
    ({"mode": "absolute", "axes": "frame"}, "not of the frame itself"),
    ({"lead": 0.1}, "lead has shape"),
    ({"lead": (-1, 1)}, "lead must not be negative or NaN"),
    ({"lead": (jnp.nan, 1)}, "lead must not be negative or NaN"),
    ({"translation": -0.02}, "translation must not be negative"),
    ({"translation": "far"}, "translation is a number"),
    ({"translation": (0.02, 0.02, 0.01)}, r"translation is one number, not of shape \(3,\)"),
    ({"rotation": -0.1}, "rotation must not be negative"),
    ({"posture_cost": -1}, "posture_cost must not be negative"),
    ({"dt": 0}, "dt is above zero"),
    ({"dt": -1}, "dt is above zero"),
    ({"damping": -1}, "damping must not be negative"),
    ({"limits": jaxik.ConfigurationLimit()}, "limits is a tuple such as"),
    ({"limits": (1,)}, "limits is a tuple of limits"),
    ({"passthrough": -1}, "passthrough is a count"),
    ({"posture": jnp.zeros(3)}, "posture"),
    ({"dof_mask": [True, False]}, r"dof_mask has shape \(\*batch, nv\) with nv = 6, not \(2,\)"),
])  # fmt: skip
def test_a_wrong_term_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(jaxik.JaxikError, match=said):
        PoseAction(robot_of("ur5e"), **({"frames": {"tip": "tcp"}} | wrong))


def test_a_term_may_be_changed_as_a_dataclass() -> None:
    act = PoseAction(robot_of("panda"), {"tip": "tcp"})
    other = dataclasses.replace(act, robot=robot_of("panda").astype(jnp.float32), translation=0.5)
    assert other.frames == act.frames and other.translation == 0.5


def test_a_wrong_action_is_refused() -> None:
    act = PoseAction(robot_of("ur5e"), {"tip": "tcp"})
    with pytest.raises(jaxik.JaxikError, match=r"the action has shape \(\*batch, 6\), not \(7,\)"):
        act(act.reset(robot_of("ur5e").q_home), robot_of("ur5e").q_home, jnp.zeros(7))
