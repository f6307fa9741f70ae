"""Closed chains that others published, loaded as they are: solved, and their loops judged by C MuJoCo."""

import jax
import jax.numpy as jnp
import jaxlie
import models
import mujoco
import numpy as np
import pytest

import jaxik

POSES = 32
pytestmark = pytest.mark.exhaustive


def assert_closed(model: mujoco.MjModel, q: np.ndarray) -> None:
    """C MuJoCo's own residuals of all equality constraints that are active."""
    data = mujoco.MjData(model)
    for row in q:
        data.qpos[:] = row
        mujoco.mj_forward(model, data)
        held = data.efc_type[: data.nefc] == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        assert held.sum() == data.ne and np.abs(data.efc_pos[: data.nefc][held]).max() < 1e-8


def test_the_head_of_reachy_mini_reaches_poses_on_its_six_legs() -> None:
    robot = jaxik.load_robot(models.require("reachy_mini"))
    shift, turn = np.split(np.random.default_rng(0).uniform(-1, 1, (POSES, 6)), 2, axis=1)
    home = robot.frame_pose(robot.q_home, "head")
    rotation = jaxlie.SO3.exp(jnp.asarray(0.15 * turn)) @ home.rotation()
    target = jaxlie.SE3.from_rotation_and_translation(rotation, home.translation() + 0.008 * shift)
    found = jaxik.solve(jaxik.Problem(robot, {"head": jaxik.FrameTask(robot.frame("head"), target)}))
    assert np.mean(found.status == jaxik.Status.CONVERGED) == 1.0
    assert bool(jnp.all(robot.check_limits(found.q)))
    assert_closed(models.reference_model("reachy_mini"), np.asarray(found.q))


def test_the_pads_of_a_robotiq_gripper_close_alike_by_its_linkages() -> None:
    robot = jaxik.load_robot(models.require("robotiq_2f85"))
    driver = int(robot.v_indices("right_driver_joint")[0])
    angles = jnp.linspace(0.0, 0.8, POSES)
    wanted = jnp.tile(robot.q_home, (POSES, 1)).at[:, driver].set(angles)
    drive = jaxik.PostureTask(wanted, cost=jnp.zeros(robot.nv).at[driver].set(1.0), tolerance=1e-6)
    # By the frames of the pads as well, so that all linkages move.
    along = jaxik.RelativeFrameTask(
        robot.frame("right_pad"), robot.frame("left_pad"), jaxlie.SE3.identity(), mask=jnp.zeros(6)
    )
    found = jaxik.solve(jaxik.Problem(robot, {"drive": drive, "pads": along}))
    assert np.all(found.status == jaxik.Status.CONVERGED)
    assert_closed(models.reference_model("robotiq_2f85"), np.asarray(found.q))
    right, left = (robot.frame_pose(found.q, f"{side}_pad").translation() for side in ("right", "left"))
    gap = np.linalg.norm(right - left, axis=-1)
    np.testing.assert_allclose(np.asarray(right)[:, 2], np.asarray(left)[:, 2], atol=1e-6)
    # Its fingers may bend besides, against springs, which kinematics do not know.
    assert np.all(np.diff(gap) < 0) and gap[0] - gap[-1] > 0.05


def test_an_arm_carries_a_gripper_whose_loops_are_closed() -> None:
    # A loop that is closed to rounding was called one that nothing closes: the arm stood still, INFEASIBLE.
    robot = jaxik.load_robot(models.require("gym_hil_panda"))
    q0 = robot.configuration({"joint2": -0.3, "joint4": -2.0, "joint6": 1.8})
    shift = jaxlie.SE3.from_translation(jnp.array([0.1, 0.1, -0.1]))
    task = jaxik.FrameTask(robot.frame("pinch"), shift @ robot.frame_pose(q0, "pinch"), gain=0.1)
    driver = robot.v_indices("right_driver_joint")
    closing = robot.configuration({"right_driver_joint": 0.5}, base=q0)
    drive = jaxik.PostureTask(closing, cost=jnp.zeros(robot.nv).at[driver].set(0.1))
    limits = (jaxik.ConfigurationLimit(), jaxik.VelocityLimit(2.0))

    def body(q: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        result = jaxik.step(jaxik.Problem(robot, {"grip": task, "drive": drive}, limits), q, 0.01)
        return result.q, result.status

    q, status = jax.jit(lambda q: jax.lax.scan(body, q, length=150))(q0)
    assert not np.any(status == jaxik.Status.INFEASIBLE)
    np.testing.assert_allclose(robot.frame_pose(q, "pinch").translation(), task.target.translation(), atol=1e-6)
