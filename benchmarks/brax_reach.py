"""Brax's own PPO trains a UR5e to reach for points by pose actions of three numbers; its wrappers are around them.

Joints go half of the way to their targets in a step: no physics, so that it takes a minute. Gate: at the end of an
episode the tip of a trained arm is a third as far from its goal as that of one that starts to train, or nearer.
"""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp

import jaxik
from benchmarks.timing import Clock
from jaxik.rl import PoseAction, PoseActionEnv

STEPS, LENGTH, ENVIRONMENTS = 300_000, 50, 256
BETTER = 3.0
AWAY = 0.2  # [m] of goals from where the tip begins, along each axis


def run(steps: int = STEPS) -> dict[str, Any]:
    """The distance at the end of episodes [m], as training goes on."""
    if importlib.util.find_spec("brax") is None:
        return {"absent": "not installed", "passed": True}
    from brax.training.agents.ppo import train as ppo  # pyright: ignore[reportMissingImports]

    # Brax 0.14 asks for it, JAX 0.10 has it no more.
    jax.device_put_replicated = lambda tree, devices: jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)

    robot, distances, clock = jaxik.load_robot("ur5e"), {}, Clock()
    env = PoseActionEnv(reach(robot), PoseAction(robot, {"tip": "tcp"}, rotation=None))

    def told(count: int, metrics: Any) -> None:
        # Evaluation adds a metric up over an episode.
        distances[count] = round(float(metrics["eval/episode_distance"]) / LENGTH, 4)

    ppo.train(
        environment=env, num_timesteps=steps, episode_length=LENGTH, num_envs=ENVIRONMENTS, num_evals=4, seed=0,
        num_eval_envs=128, learning_rate=1e-3, entropy_cost=1e-3, discounting=0.95, unroll_length=10, batch_size=64,
        num_minibatches=8, num_updates_per_batch=4, normalize_observations=True, progress_fn=told,
    )  # fmt: skip
    first, last = min(distances), max(distances)
    seconds, processor = clock.read()
    return {
        "distance_m": distances,
        "seconds": round(seconds, 1),
        "processor_s": round(processor, 1),
        "passed": distances[first] >= BETTER * distances[last],
    }


def reach(robot: jaxik.Robot) -> Any:
    """An environment of Brax whose actions are joint targets."""
    from brax.envs.base import Env, State  # pyright: ignore[reportMissingImports]
    from flax import struct  # pyright: ignore[reportMissingImports]

    class Arm(struct.PyTreeNode):
        q: jax.Array

    class Reach(Env):
        """Goals are near where the tip begins."""

        observation_size, action_size, backend = robot.nq + 6, robot.nq, "none"

        def reset(self, rng: jax.Array) -> State:
            rng_arm, rng_goal = jax.random.split(rng)
            q = robot.q_home + jax.random.uniform(rng_arm, (robot.nq,), minval=-0.1, maxval=0.1)
            goal = tip(q) + jax.random.uniform(rng_goal, (3,), minval=-AWAY, maxval=AWAY)
            zero = jnp.zeros(())
            return State(Arm(q), observed(q, goal), zero, zero, {"distance": zero}, {"goal": goal})

        def step(self, state: State, action: jax.Array) -> State:
            q, goal = state.pipeline_state.q, state.info["goal"]
            q += 0.5 * (action - q)
            distance = jnp.linalg.norm(tip(q) - goal)
            return state.replace(
                pipeline_state=Arm(q),
                obs=observed(q, goal),
                reward=-distance,
                metrics={**state.metrics, "distance": distance},
            )

    def tip(q: jax.Array) -> jax.Array:
        return robot.frame_pose(q, "tcp").translation()

    def observed(q: jax.Array, goal: jax.Array) -> jax.Array:
        return jnp.concatenate([q, tip(q), goal])

    return Reach()
