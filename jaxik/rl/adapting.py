"""Pose actions on environments that others wrote: of gymnasium, and pure ones as Brax and MuJoCo Playground have."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxik.core.errors import JaxikError
from jaxik.rl.pose_action import ActionInfo, ActionState, PoseAction, facts_of, with_fresh

# Where the state of an environment keeps what pose actions hand on.
KEY = "pose_action"


def wrap_vector_env(
    env: Any,
    act: PoseAction,
    *,
    measured: Callable[[Any], Any] | None = None,
    command: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """A gymnasium vector environment whose actions are those of `act`, on one whose actions are joint targets.

    Targets start anew where an environment resets, whichever autoreset mode it has. An action with an entry
    that is not finite holds, and with it what passes through, which is zero before an episode's first action.
    `info["pose_action"]` has arrays for penalties: status, limited, held, position_error/NAME, orientation_error/NAME.

    Args:
      env: gymnasium.vector.VectorEnv.
      act: its robot is that of the environment.
      measured: environment -> configurations (num_envs, nq); None: the first nq numbers of `data.qpos` of each, which
        environments on C MuJoCo have.
      command: joint targets (num_envs, nq) and what passes through (num_envs, k) -> the actions of `env`; None: both,
        one after the other.

    Returns:
      A gymnasium.vector.VectorWrapper.

    Raises:
      JaxikError: if gymnasium is not installed.
    """
    try:
        from jaxik.rl.gymnasium_wrapper import PoseActionVectorEnv
    except ImportError:
        raise JaxikError('vector environments need gymnasium: pip install "jaxik[rl]"') from None
    return PoseActionVectorEnv(env, act, measured, command)


class PoseActionEnv:
    """A pure environment with pose actions, on one with joint targets: `reset(rng) -> state`, `step(state, action)`.

    For environments of Brax and MuJoCo Playground, and others whose states have `done`, `info` (a dict) and `replace`.
    It goes inside their wrappers, as the environment itself would: `wrap_for_training(PoseActionEnv(env, act))`. What
    actions hand on is in `state.info["pose_action"]`, with the arrays for penalties that `wrap_vector_env` names. A new
    episode takes new targets from where its arm is: after `done`, and where `info["steps"]`, which wrappers count, has
    fallen since the last step.

    Args:
      env: the environment; whatever is asked of this one besides is asked of it.
      act: its robot is that of the environment.
      measured: state -> configuration (*batch, nq); None: the first nq numbers of `state.data.qpos` (Playground) or
        `state.pipeline_state.q` (Brax).
      command: joint target (*batch, nq) and what passes through (*batch, k) -> the action of `env`; None: both, one
        after the other.
    """

    def __init__(
        self,
        env: Any,
        act: PoseAction,
        *,
        measured: Callable[[Any], Any] | None = None,
        command: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Keep them; nothing is reset."""
        self.env, self.act = env, act
        self._measured = measured or (lambda state: _position(state, act.robot.nq))
        self._command = command or (lambda q, passthrough: jnp.concatenate([q, passthrough], axis=-1))

    @property
    def action_size(self) -> int:
        return self.act.size

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def __getattr__(self, name: str) -> Any:
        # Before `__init__`, as where a copy is unpickled, there is no environment to ask.
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, rng: jax.Array) -> Any:
        """The first state, with targets where its arm is."""
        state = self.env.reset(rng)
        # More than any count: the first step takes targets from where its arm is by then.
        steps = jnp.full(jnp.shape(state.done), jnp.inf, jnp.float32)
        kept = {"state": self.act.reset(self._measured(state)), "done": jnp.zeros_like(state.done), "steps": steps}
        return state.replace(info={**state.info, KEY: kept | self._facts(kept["state"])})

    def step(self, state: Any, action: Any) -> Any:
        """Move the targets by an action (*batch, act.size), and step with the joint targets."""
        kept, q = state.info[KEY], self._measured(state)
        # Not where it is zero: all substeps of a repeated action see one count, and some environments leave it there.
        steps = jnp.asarray(state.info.get("steps", kept["steps"]), jnp.float32)
        fresh = (kept["done"] > 0) | (steps < kept["steps"])
        before = with_fresh(fresh, self.act.reset(q), kept["state"])
        told, after, how = self.act(before, q, action)
        # What the environment looks at is as it would be without this one.
        inner = state.replace(info={name: x for name, x in state.info.items() if name != KEY})
        following = self.env.step(inner, self._command(told, how.passthrough))
        own = {"state": after, "done": following.done, "steps": steps} | facts_of(how)
        return following.replace(info={**following.info, KEY: own})

    def _facts(self, state: ActionState) -> dict[str, Any]:
        """What steps say of actions, before the first."""
        none = jnp.zeros(state.q.shape[:-1], state.q.dtype)
        errors = {name: none for name, _ in self.act.frames}
        known = {"position_error": errors, "orientation_error": errors, "velocity": none, "passthrough": none}
        return facts_of(ActionInfo(status=none.astype(jnp.int32), limited=none.astype(bool), **known))


def _position(state: Any, nq: int) -> Any:
    for holder, field in (("data", "qpos"), ("pipeline_state", "q")):
        if hasattr(state, holder):
            return getattr(getattr(state, holder), field)[..., :nq]
    raise JaxikError("where is the configuration in its states? say measured=lambda state: ...")
