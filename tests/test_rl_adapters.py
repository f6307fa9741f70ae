"""Pose actions on environments that others write: arms move, and targets start anew where an episode begins."""

import functools
import re
from typing import Any

import arm_envs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import jaxik
from jaxik.rl import PoseAction, PoseActionEnv, wrap_vector_env

COUNT = 4


@functools.cache
def robot() -> jaxik.Robot:
    return jaxik.load_robot("ur5e")


@functools.cache
def action() -> PoseAction:
    return PoseAction(robot(), {"tip": "tcp"}, translation=0.01, rotation=0.05, dt=arm_envs.DT)


def test_constant_actions_move_arms_on_c_mujoco_by_what_they_ask() -> None:
    inner = arm_envs.ArmEnv(robot(), COUNT, 1000, AutoresetMode.NEXT_STEP)
    env = wrap_vector_env(inner, action())
    assert env.action_space.shape == (COUNT, 6) and env.single_action_space.high.tolist() == [1.0] * 6
    observation, _ = env.reset()
    assert observation.shape == (COUNT, 6)
    asked, start = np.tile([0.2, -0.3, 0.1, 0, 0, 0], (COUNT, 1)), inner.tips()
    for _ in range(20):
        *_, info = env.step(asked)
    # The arms lag behind by a step or two.
    env.step(0 * asked)
    np.testing.assert_allclose(inner.tips() - start, 20 * 0.01 * asked[:, :3], atol=2e-3)
    facts = info["pose_action"]
    assert facts["status"].shape == (COUNT,) and not facts["held"].any() and facts["position_error/tip"].max() < 1e-3
    told, tips = inner.datas[0].ctrl.copy(), inner.tips()
    *_, info = env.step(np.full((COUNT, 6), np.nan))
    assert info["pose_action"]["held"].all() and np.abs(inner.datas[0].ctrl - told).max() < 1e-3
    assert np.abs(inner.tips() - tips).max() < 2e-3


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_targets_start_anew_where_an_environment_resets(mode: AutoresetMode) -> None:
    """Else the joint target would be where the last episode ended, some 0.3 rad away."""
    inner = arm_envs.ArmEnv(robot(), COUNT, 5, mode)
    env = wrap_vector_env(inner, action())
    env.reset()
    inner.steps[:] = [0, 1, 2, 3]
    began, away = 0, []
    for _ in range(14):
        *_, truncated, _ = env.step(np.zeros((COUNT, 6)))
        if mode is AutoresetMode.DISABLED and truncated.any():
            env.reset(options={"reset_mask": truncated})
        began += int(truncated.sum())
        away.append(max(np.abs(data.ctrl - data.qpos).max() for data in inner.datas))
    assert began >= 8 and max(away) < 0.01


def test_an_environment_that_is_not_reset_is_refused() -> None:
    env = wrap_vector_env(arm_envs.ArmEnv(robot(), COUNT, 5, AutoresetMode.NEXT_STEP), action())
    with pytest.raises(jaxik.JaxikError, match="reset the environments"):
        env.step(np.zeros((COUNT, 6)))


@pytest.mark.parametrize("shape", [(6,), (1, 6), (COUNT + 1, 6), (COUNT, 7)])
def test_actions_of_another_shape_than_the_environments_are_refused(shape: tuple[int, ...]) -> None:
    env = wrap_vector_env(arm_envs.ArmEnv(robot(), COUNT, 5, AutoresetMode.NEXT_STEP), action())
    env.reset()
    with pytest.raises(jaxik.JaxikError, match=r"\(num_envs, size\) = \(4, 6\), not " + re.escape(str(shape))):
        env.step(np.zeros(shape))


@functools.cache
def run() -> Any:
    """40 steps of one action, of a batch of pure arms in episodes of 12 steps that a wrapper ends: one program."""
    env = arm_envs.AutoReset(PoseActionEnv(arm_envs.PureArm(robot()), action()), length=12)

    def one(rng: jax.Array, joint: jax.Array, asked: jax.Array) -> Any:
        """The first joint starts where it is said, unless that is NaN."""
        first = env.reset(rng)
        data = arm_envs.Data(first.data.qpos.at[0].set(jnp.where(jnp.isnan(joint), first.data.qpos[0], joint)))
        first = first.replace(data=data, info={**first.info, "first": data})

        def advance(state: Any, _: None) -> Any:
            following = env.step(state, asked)
            return following, (state.data.qpos, following.info["told"], following.done, following.info["pose_action"])

        return jax.lax.scan(advance, first, length=40)[1]

    return jax.jit(jax.vmap(one, in_axes=(0, 0, None)))


def test_a_pure_environment_runs_under_vmap_and_scan_and_moves_as_asked() -> None:
    asked = jnp.array([0.2, -0.3, 0.1, 0, 0, 0])
    q, told, done, info = run()(jax.random.split(jax.random.key(0), 8), jnp.full(8, jnp.nan), asked)
    tips = [robot().frame_pose(x, "tcp").translation() for x in (q[:, 0], told[:, 10])]
    np.testing.assert_allclose(tips[1] - tips[0], np.tile(11 * 0.01 * asked[:3], (8, 1)), atol=1e-4)
    assert info["status"].shape == (8, 40) and not info["limited"].any() and info["position_error/tip"].max() < 1e-3
    assert info["orientation_error/tip"].max() < 1e-2 and not info["held"].any()
    assert done.sum(axis=1).tolist() == [3] * 8


def test_targets_of_a_pure_environment_start_anew_after_its_end_and_after_that_of_a_wrapper() -> None:
    joint, asked = jnp.where(jnp.arange(8) < 4, 0.9, jnp.nan), jnp.array([0, 1.0, 0, 0, 0, 0])
    q, told, done, _ = run()(jax.random.split(jax.random.key(0), 8), joint, asked)
    # Of some the first joint goes beyond 1, which ends an episode from within.
    assert done.sum(axis=1).min() >= 3 and done.sum(axis=1).max() > 3
    # Joints follow half of the way: targets are at most two steps of the fastest joint ahead.
    assert np.abs(told - q).max() < 0.15


def test_targets_go_on_in_a_repeated_action_and_start_anew_where_the_count_has_fallen() -> None:
    env, asked = PoseActionEnv(arm_envs.PureArm(robot()), action()), jnp.array([1.0, 0, 0, 0, 0, 0])
    state = env.reset(jax.random.key(0))
    leads = []
    for count in (0, 0, 1, 1, 0, 0):
        state, q = state.replace(info={**state.info, "steps": jnp.asarray(float(count))}), state.data.qpos
        state = env.step(state, asked)
        target = state.info["pose_action"]["state"].targets["tip"].translation()
        leads.append((target - robot().frame_pose(q, "tcp").translation())[0])
    # One action ahead where they are fresh; else the lag of the arm, half of what was ahead, comes on top.
    np.testing.assert_allclose(leads, 0.01 * np.array([1, 1.5, 1.75, 1.875, 1, 1.5]), atol=2e-4)


def test_where_the_configuration_is_can_be_said() -> None:
    env = PoseActionEnv(arm_envs.PureArm(robot()), action(), measured=lambda state: state.obs)
    assert env.action_size == 6 and env.robot is robot() and env.unwrapped is env.env
    assert jax.eval_shape(env.reset, jax.random.key(0)).info["pose_action"]["state"].q.shape == (6,)
    strange = PoseActionEnv(arm_envs.PureArm(robot()), action())
    with pytest.raises(jaxik.JaxikError, match="say measured=lambda state"):
        strange._measured(object())
