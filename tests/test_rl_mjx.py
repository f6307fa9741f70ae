"""Pose actions on an environment on MJX: under gravity the arm moves as asked, in one program."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tables import exhaustive

import jaxik
from benchmarks.mjx_arm import COMPILER_OPTIONS, RADIUS, MjxArm
from jaxik.rl import PoseAction, PoseActionEnv

STEPS = 60
# Along x and along z, nothing, and NaN from halfway.
ASKED = np.array([[1.0, 0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0, 0], [0] * 6, [0] * 6])


@functools.cache
def run() -> Any:
    """Tips, balls and facts of environments that act."""
    robot = jaxik.load_robot("ur5e")
    env = PoseActionEnv(MjxArm(robot), PoseAction(robot, {"tip": "tcp"}, translation=0.004, rotation=0.05))
    reset = jax.jit(jax.vmap(env.reset), compiler_options=COMPILER_OPTIONS)
    step = jax.jit(jax.vmap(env.step), compiler_options=COMPILER_OPTIONS)
    state = reset(jax.random.split(jax.random.key(0), len(ASKED)))
    tips, balls, facts = [], [], []
    for number in range(STEPS):
        action = jnp.asarray(ASKED).at[3].set(jnp.nan if number > STEPS // 2 else 0)
        state = step(state, action)
        tips.append(robot.frame_pose(state.data.qpos[:, : robot.nq], "tcp").translation())
        balls.append(state.data.qpos[:, robot.nq : robot.nq + 3])
        facts.append(state.info["pose_action"])
    assert step._cache_size() == 1 and not state.done.any()
    return np.stack(tips), np.stack(balls), jax.tree.map(lambda *x: np.stack(x), *facts)


@exhaustive
def test_an_arm_on_mjx_moves_by_what_is_asked_and_by_nothing_else() -> None:
    tips, balls, facts = run()
    # It sags at first, and follows at a distance then: the same one at both ends.
    moved = tips[50] - tips[30]
    np.testing.assert_allclose(moved, 20 * 0.004 * ASKED[:, :3], atol=1e-3)
    assert facts["status"][:, :3].max() == jaxik.Status.CONVERGED and not facts["limited"].any()
    assert facts["held"][-1].tolist() == [False, False, False, True]
    np.testing.assert_allclose(balls[-1, :, 2], RADIUS, atol=2e-3)
