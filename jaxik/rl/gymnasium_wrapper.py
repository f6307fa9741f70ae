"""A vector environment of gymnasium with pose actions; imported where it is asked for."""

from collections.abc import Callable
from typing import Any

import gymnasium  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper  # pyright: ignore[reportMissingImports]

from jaxik.core.errors import JaxikError
from jaxik.rl.pose_action import ActionState, PoseAction, facts_of, with_fresh

Measured = Callable[[VectorEnv], np.ndarray]
Command = Callable[[np.ndarray, np.ndarray], np.ndarray]


class PoseActionVectorEnv(VectorWrapper):
    """See `jaxik.rl.wrap_vector_env`."""

    def __init__(self, env: VectorEnv, act: PoseAction, measured: Measured | None, command: Command | None) -> None:
        """Know the spaces; nothing is reset."""
        super().__init__(env)
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._act, self._resets_in_step = act, mode is AutoresetMode.SAME_STEP
        self._measured = measured or _positions(act)
        self._command = command or (lambda q, passthrough: np.concatenate([q, passthrough], axis=-1))
        bound = np.ones(act.size, np.float32) * (np.inf if act.mode == "absolute" else 1)
        bound[act.size - act.passthrough :] = 1
        self.single_action_space = gymnasium.spaces.Box(-bound, bound, dtype=np.float32)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, env.num_envs)
        self._state: ActionState | None = None
        self._done = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset environments, all or those of `options["reset_mask"]`, and their targets."""
        observation, info = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        fresh = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask, bool)
        self._restart(fresh)
        self._done = self._done & ~fresh
        return observation, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Move the targets by actions (num_envs, act.size), and step with the joint targets."""
        if self._state is None:
            raise JaxikError("reset the environments before the first step")
        actions, shape = np.asarray(actions), (self.num_envs, self._act.size)
        if actions.shape != shape:
            raise JaxikError(f"the actions have shape (num_envs, size) = {shape}, not {actions.shape}")
        # Where an environment resets in its next step, that one takes no action: the target stays as it is.
        actions = np.where(self._done[:, None], 0, actions)
        q, self._state, how = self._act(self._state, jnp.asarray(self._measured(self.env)), jnp.asarray(actions))
        given = self._command(np.asarray(q), np.asarray(how.passthrough))
        observation, reward, terminated, truncated, info = self.env.step(given)
        done = np.asarray(terminated | truncated)
        fresh = done if self._resets_in_step else self._done
        if fresh.any():
            self._restart(fresh)
        self._done = done & (not self._resets_in_step)
        facts = {name: np.asarray(x) for name, x in facts_of(how).items()}
        return observation, reward, terminated, truncated, {**info, "pose_action": facts}

    def _restart(self, fresh: np.ndarray) -> None:
        """Take new targets from where the arms of some environments are."""
        state = self._act.reset(jnp.asarray(self._measured(self.env)))
        self._state = state if self._state is None else with_fresh(jnp.asarray(fresh), state, self._state)


def _positions(act: PoseAction) -> Measured:
    """Configurations of environments on C MuJoCo: the first coordinates of their `data.qpos`."""

    def positions(env: VectorEnv) -> np.ndarray:
        found = env.get_attr("data") if hasattr(env, "get_attr") else env.unwrapped.data  # pyright: ignore
        return np.stack([data.qpos[: act.robot.nq] for data in found])

    return positions
