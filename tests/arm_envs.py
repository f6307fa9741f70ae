"""Environments of our own on a bundled arm: position actuators on C MuJoCo, and joints that follow, purely, in JAX."""

import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

import jaxik
from jaxik.robot.loading.catalog import find_by_name

DT = 0.02


def model_of(robot: jaxik.Robot) -> Any:
    """A bundled arm on position actuators, gravity compensated."""
    spec = mujoco.MjSpec.from_file(str(find_by_name(robot.topology.name)))
    for body in spec.bodies[1:]:
        body.gravcomp = 1
    for joint in robot.topology.joints:
        # Stiff: the arm is where it is told a step later.
        spec.add_actuator(trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint.name).set_to_position(kp=20000, kv=600)
    spec.option.timestep, spec.option.integrator = DT / 4, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return spec.compile()


class ArmEnv(VectorEnv):
    """Arms that go to joint targets, from near home; an episode ends after so many steps."""

    def __init__(self, robot: jaxik.Robot, num_envs: int, length: int, mode: AutoresetMode) -> None:
        self.num_envs, self.length, self.robot = num_envs, length, robot
        self.metadata = {"autoreset_mode": mode}
        space = gymnasium.spaces.Box(-7, 7, (robot.nq,))
        self.single_observation_space = self.single_action_space = space
        self.observation_space = self.action_space = gymnasium.vector.utils.batch_space(space, num_envs)
        self.model = model_of(robot)
        self.datas = [mujoco.MjData(self.model) for _ in range(num_envs)]
        self.steps, self.random = np.zeros(num_envs, int), np.random.default_rng(0)
        self.ends = np.zeros(num_envs, bool)

    def get_attr(self, name: str) -> Any:
        assert name == "data"
        return self.datas

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for i in np.flatnonzero(mask):
            self._begin(i)
        return self._observed(), {}

    def step(self, actions: Any) -> Any:
        again = self.ends & (self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP)
        for i, data in enumerate(self.datas):
            if again[i]:
                self._begin(i)
                continue
            data.ctrl[:] = actions[i, : self.robot.nq]
            mujoco.mj_step(self.model, data, nstep=4)
            self.steps[i] += 1
        self.ends = self.steps >= self.length
        truncated = self.ends.copy()
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(self.ends):
                self._begin(i)
        return self._observed(), np.zeros(self.num_envs), np.zeros(self.num_envs, bool), truncated, {}

    def tips(self) -> np.ndarray:
        return np.stack([data.site("tcp").xpos.copy() for data in self.datas])

    def _begin(self, i: int) -> None:
        data = self.datas[i]
        mujoco.mj_resetData(self.model, data)
        data.qpos[:] = np.asarray(self.robot.q_home) + self.random.uniform(-0.3, 0.3, self.robot.nq)
        data.ctrl[:] = data.qpos
        mujoco.mj_forward(self.model, data)
        self.steps[i] = 0

    def _observed(self) -> np.ndarray:
        return np.stack([data.qpos for data in self.datas]).astype(np.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Of a pure environment, with the fields that Brax and Playground have."""

    data: Any
    obs: jax.Array
    done: jax.Array
    info: dict[str, Any]

    def replace(self, **changes: Any) -> "State":
        return dataclasses.replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Data:
    qpos: jax.Array


class PureArm:
    """An arm whose joints go half of the way to their targets in a step; it ends where its first joint is above 1."""

    def __init__(self, robot: jaxik.Robot) -> None:
        self.robot, self.action_size, self.unwrapped = robot, robot.nq, self

    def reset(self, rng: jax.Array) -> State:
        q = self.robot.q_home + jax.random.uniform(rng, (self.robot.nq,), minval=-0.3, maxval=0.3)
        return State(Data(q), q, jnp.zeros(()), {"told": q})

    def step(self, state: State, action: jax.Array) -> State:
        q = state.data.qpos + 0.5 * (action - state.data.qpos)
        done = (q[0] > 1).astype(float)
        return state.replace(data=Data(q), obs=q, done=done, info={**state.info, "told": action})


class AutoReset:
    """What Brax's wrappers do: end an episode after so many steps, and put its first state in the place of the next.

    Episodes end outside of the environment that is wrapped, which does not see it.
    """

    def __init__(self, env: Any, length: int) -> None:
        self.env, self.length = env, length

    def reset(self, rng: jax.Array) -> State:
        state = self.env.reset(rng)
        return state.replace(info={**state.info, "steps": jnp.zeros(()), "first": state.data})

    def step(self, state: State, action: jax.Array) -> State:
        following = self.env.step(state.replace(done=jnp.zeros(())), action)
        steps = state.info["steps"] + 1
        done = jnp.where(steps >= self.length, 1.0, following.done)
        data = jax.tree.map(lambda a, b: jnp.where(done > 0, a, b), following.info["first"], following.data)
        info = {**following.info, "steps": jnp.where(done > 0, 0, steps)}
        return following.replace(data=data, obs=data.qpos, done=done, info=info)
