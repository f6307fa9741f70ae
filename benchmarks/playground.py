"""MuJoCo Playground's `PandaPickCubeCartesian`, with pose actions in the place of its own inverse kinematics of Panda.

Random walks of the tip in that environment's workspace, without physics: how often there is no solution, how far the
tip ends from where it is told to be, and how fast the joint targets are. Playground fetches MuJoCo Menagerie itself.
"""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

import jaxik
from benchmarks.mjx_arm import COMPILER_OPTIONS
from jaxik.rl import ActionState, PoseAction

WALKS, STEPS = 500, 400
# Of the tip in that environment [m].
LOWER, UPPER = (0.25, -0.32, 0.02), (0.77, 0.32, 0.5)


def run() -> dict[str, Any]:
    """Walks in y and z, as that environment has them, and in all three."""
    if importlib.util.find_spec("mujoco_playground") is None:
        return {"absent": "not installed", "passed": True}
    robot, found = jaxik.load_robot("panda"), {}
    for name, env in environments(robot).items():
        for axes in ("yz", "xyz"):
            found[f"{name}, {axes}"] = walked(env, robot, axes)
    own = [row for name, row in found.items() if name.startswith("pose actions")]
    passed = all(row["no_solution"] < 1e-4 and row["largest_speed_share"] < 1.0001 for row in own)
    return {**found, "passed": passed}


def environments(robot: jaxik.Robot) -> dict[str, Any]:
    """As it is, and with pose actions."""
    from mujoco_playground._src.manipulation.franka_emika_panda.pick_cartesian import (  # pyright: ignore
        PandaPickCubeCartesian,
    )

    class PickCube(PandaPickCubeCartesian):
        """The same for any robot: not a word of Panda's lengths."""

        act = PoseAction(robot, {"tip": "tcp"}, mode="absolute", rotation=None, dt=0.05)

        def _move_tip(self, position: Any, rotation: Any, ctrl: Any, action: Any) -> tuple[Any, Any, Any]:
            """Joint targets and the finger's, where the tip is told to be, and whether that went wrong."""
            q = ctrl[: robot.nq]
            last = jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.from_matrix(rotation), position)
            goal = position + self._config.action_scale * action[:3]
            goal = jnp.clip(goal, jnp.array(LOWER), jnp.array(UPPER))
            q, state, info = self.act(ActionState(q, {"tip": last}, jnp.zeros(0)), q, goal)
            ctrl = jnp.append(q, ctrl[robot.nq] + jnp.where(action[3] < 0, -0.02, 0.02))
            return ctrl, state.targets["tip"].translation(), info.status != jaxik.Status.CONVERGED

    jax_alone = {"impl": "jax"}
    return {
        "its own": PandaPickCubeCartesian(config_overrides=jax_alone),
        "pose actions": PickCube(config_overrides=jax_alone),
    }


def walked(env: Any, robot: jaxik.Robot, axes: str) -> dict[str, Any]:
    """Walks of random steps, each with a direction of its own."""
    rotation, start = env._start_tip_transform[:3, :3], (jnp.asarray(env._init_ctrl), env._start_tip_transform[:3, 3])

    def walk(key: jax.Array) -> Any:
        step_key, way_key = jax.random.split(key)
        step, way = jax.random.normal(step_key, (STEPS, 4)), jax.random.normal(way_key, (4,))
        actions = jnp.clip(0.6 * step + 0.8 * way, -1, 1)
        actions = actions if axes == "xyz" else actions.at[:, 0].set(0)

        def one(carry: Any, action: jax.Array) -> Any:
            ctrl, position = carry
            told, position, wrong = env._move_tip(position, rotation, ctrl, action)
            told = jnp.clip(told, env._lowers, env._uppers)
            tip = robot.frame_pose(told[: robot.nq], "tcp").translation()
            return (told, position), (wrong, jnp.linalg.norm(tip - position), (told - ctrl)[: robot.nq])

        return jax.lax.scan(one, start, actions)[1]

    keys = jax.random.split(jax.random.key(0), WALKS)
    wrong, gap, way = map(np.asarray, jax.jit(jax.vmap(walk), compiler_options=COMPILER_OPTIONS)(keys))
    speed = np.abs(way) / env._config.ctrl_dt / np.asarray(robot.velocity_limit)
    return {
        "no_solution": float(wrong.mean()),
        "gap_mm_50_95_100": np.quantile(1e3 * gap, [0.5, 0.95, 1]).round(2).tolist(),
        "largest_speed_share": float(speed.max()),
    }
