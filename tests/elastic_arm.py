"""A planar arm of three joints whose tip is given more than it can do."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import mujoco
import numpy as np

import jaxik
from jaxik import ConfigurationLimit, Elastic, FrameTask, PostureTask, Problem, VelocityLimit

ARM = """<mujoco model="arm"><compiler angle="radian" autolimits="true"/><worldbody>
<body name="upper"><joint name="first" axis="0 0 1" range="-3 3"/>
  <inertial pos="0.2 0 0" mass="1" diaginertia="1 1 1"/>
  <body name="middle" pos="0.5 0 0"><joint name="second" axis="0 0 1" range="-3 3"/>
    <inertial pos="0.2 0 0" mass="1" diaginertia="1 1 1"/>
    <body name="lower" pos="0.4 0 0"><joint name="third" axis="0 0 1" range="-3 3"/>
      <inertial pos="0.2 0 0" mass="1" diaginertia="1 1 1"/><site name="tip" pos="0.3 0 0"/>
</body></body></body></worldbody></mujoco>"""
BENT = np.array([0.5, -0.8, -0.5])
# A little, too far, and too far aside.
WAYS = np.array([[0.001, 0.0, 0], [0.2, 0.0, 0], [0.001, 0.3, 0]])


@functools.cache
def arm() -> Any:
    with jax.ensure_compile_time_eval():
        return jaxik.load_robot(ARM)


def tip_at(position: Any, **fields: Any) -> FrameTask:
    return FrameTask(arm().frame("tip"), jaxlie.SE3.from_translation(jnp.asarray(position)), 1.0, None, **fields)


@functools.cache
def start() -> np.ndarray:
    """Where the tip is, by C MuJoCo: inside of a trace JAX would evaluate it operation by operation."""
    model = mujoco.MjModel.from_xml_string(ARM)
    data = mujoco.MjData(model)
    data.qpos[:] = BENT
    mujoco.mj_kinematics(model, data)
    return data.site("tip").xpos.copy()


def reaching(demand: Any = None, **elastic: Any) -> Problem:
    """A tip that is to go some way in a step, below a speed; three elements: a little, too far, and too far aside."""
    ways = WAYS if demand is None else demand
    rest = {"rest": PostureTask(BENT, cost=0.1)}
    tip = tip_at(start() + ways)
    limits = ConfigurationLimit(), VelocityLimit(1.0)
    return Problem(arm(), rest, limits, {"tip": Elastic(tip, **elastic) if elastic else tip})
