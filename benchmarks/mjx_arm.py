"""An environment on MJX: a bundled arm on position actuators, under gravity, reaches for points; a ball is in its way.

Pure, with the methods and states of MuJoCo Playground, so that its wrappers and Brax's take it: actions are joint
targets. Shapes are primitives; the links of the hand, the ball and the floor collide.
"""

import dataclasses
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

import jaxik
from jaxik.robot.loading.catalog import find_by_name

# As Playground's environments on Panda have them.
CONTROL_DT, SUBSTEPS = 0.02, 4
GAIN, DAMPING = 4500.0, 450.0
# XLA's fusion emitters compute MJX's kinematics again in each consumer: one step of 8 Pandas takes seconds. jaxlib 0.11
# has no others, and wants none of MJX's operations fused.
COMPILER_OPTIONS: dict[str, str | bool] = (
    {"xla_cpu_use_fusion_emitters": False}
    if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)
    else {"xla_disable_hlo_passes": "fusion"}
)
RADIUS = 0.04  # [m] of the ball


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The fields that states have in Playground."""

    data: mjx.Data
    obs: jax.Array
    reward: jax.Array
    done: jax.Array
    metrics: dict[str, jax.Array]
    info: dict[str, Any]

    def replace(self, **changes: Any) -> "State":
        return dataclasses.replace(self, **changes)


def model_of(robot: jaxik.Robot) -> mujoco.MjModel:
    """A bundled arm on position actuators, with a floor and a ball."""
    spec = mujoco.MjSpec.from_file(str(find_by_name(robot.topology.name)))
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    for geom in spec.site("tcp").parent.geoms:
        geom.conaffinity = 1
    for joint in robot.topology.joints:
        actuator = spec.add_actuator(trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint.name)
        actuator.set_to_position(kp=GAIN, kv=DAMPING)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=0, conaffinity=1)
    ball = spec.worldbody.add_body(name="ball", pos=[0.5, 0, RADIUS])
    ball.add_freejoint()
    ball.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[RADIUS, 0, 0], mass=0.1, contype=1, conaffinity=1)
    spec.option.timestep, spec.option.integrator = CONTROL_DT / SUBSTEPS, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.iterations, spec.option.ls_iterations = 5, 8
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    return spec.compile()


class MjxArm:
    """One arm, from near home; an episode ends where numbers do."""

    def __init__(self, robot: jaxik.Robot) -> None:
        """Put the model on the device."""
        self.robot, self.mj_model = robot, model_of(robot)
        self.mjx_model = mjx.put_model(self.mj_model)
        self.action_size = self.mj_model.nu

    @property
    def unwrapped(self) -> "MjxArm":
        return self

    def reset(self, rng: jax.Array) -> State:
        """An arm at rest near home, and a goal near where its tip is."""
        rng_arm, rng_goal = jax.random.split(rng)
        nq, data = self.robot.nq, mjx.make_data(self.mjx_model)
        q = self.robot.q_home + jax.random.uniform(rng_arm, (nq,), minval=-0.1, maxval=0.1)
        data = data.replace(qpos=jnp.asarray(self.mj_model.qpos0).at[:nq].set(q), ctrl=q)
        goal = self._tip(data) + jax.random.uniform(rng_goal, (3,), minval=-0.2, maxval=0.2)
        zero = jnp.zeros(())
        return State(data, self._observed(data, goal), zero, zero, {"distance": zero}, {"goal": goal})

    def step(self, state: State, action: jax.Array) -> State:
        """A control step with joint targets (nu,)."""
        data = state.data.replace(ctrl=action)
        data = jax.lax.fori_loop(0, SUBSTEPS, lambda _, data: mjx.step(self.mjx_model, data), data)
        goal = state.info["goal"]
        distance = jnp.linalg.norm(self._tip(data) - goal)
        done = (~jnp.isfinite(data.qpos).all()).astype(float)
        return state.replace(
            data=data,
            obs=self._observed(data, goal),
            reward=jnp.exp(-10 * distance),
            done=done,
            metrics={"distance": distance},
        )

    def _tip(self, data: mjx.Data) -> jax.Array:
        return self.robot.frame_pose(data.qpos[: self.robot.nq], "tcp").translation()

    def _observed(self, data: mjx.Data, goal: jax.Array) -> jax.Array:
        return jnp.concatenate([data.qpos, data.qvel, self._tip(data), goal])
