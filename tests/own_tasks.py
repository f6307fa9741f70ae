"""Tasks as a user writes them, one `residual` each, and robots small enough to solve in many forms."""

from typing import Any

import jax
import jax.numpy as jnp

import jaxik
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.frames import Frame
from jaxik.robot.robot import Robot

PLANAR = """
<mujoco model="planar"><compiler angle="radian" autolimits="true"/><worldbody>
  <body name="upper"><joint name="first" axis="0 0 1" range="-0.3 0.3"/>
    <inertial pos="0.5 0 0" mass="1" diaginertia="1 1 1"/>
    <body name="lower" pos="1 0 0"><joint name="second" axis="0 0 1" range="-2.5 2.5"/>
      <inertial pos="0.35 0 0" mass="1" diaginertia="1 1 1"/><site name="tip" pos="0.7 0 0"/>
</body></body></worldbody></mujoco>"""

# Every joint type, with and without limits, on one way from the world to the tip.
MIXED = """
<mujoco model="mixed"><compiler angle="radian" autolimits="true"/><worldbody>
  <body name="base" pos="0 0 0.5"><freejoint name="free"/>
    <inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/>
    <body name="shoulder" pos="0.1 0 0.1"><joint name="ball" type="ball" range="0 0.8"/>
      <inertial pos="0.1 0 0" mass="1" diaginertia="1 1 1"/>
      <body name="rail" pos="0.2 0 0"><joint name="slide" type="slide" axis="1 1 0" range="-0.1 0.25"/>
        <inertial pos="0 0.1 0" mass="1" diaginertia="1 1 1"/>
        <body name="upper" pos="0.3 0 0"><joint name="hinge" axis="0 1 0" pos="0.02 0 0" range="-0.5 0.9"/>
          <inertial pos="0.1 0 0" mass="1" diaginertia="1 1 1"/>
          <body name="lower" pos="0.3 0 0"><joint name="still" axis="1 0 1" range="0.2 0.3"/>
            <joint name="endless" axis="0 1 1"/>
            <inertial pos="0.1 0 0" mass="1" diaginertia="1 1 1"/>
            <body name="wrist" pos="0.2 0 0"><joint name="loose" type="ball"/>
              <inertial pos="0.1 0 0" mass="1" diaginertia="1 1 1"/>
              <site name="tip" pos="0.1 0.05 0" quat="1 0.2 0 0.4"/></body></body></body></body></body></body>
  <body name="other" pos="0 1 0"><joint name="lone" type="slide" axis="0 0 1"/>
    <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><site name="elsewhere"/></body>
</worldbody></mujoco>"""


@jaxik.pytree
class Height(jaxik.Task):
    """The height of a frame."""

    frame: Frame = jaxik.static()
    height: Any = jaxik.leaf()
    tolerance: Any = jaxik.leaf(default=1e-6)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return kin.pose(self.frame).translation()[2] - self.height


@jaxik.pytree
class Center(jaxik.Task):
    """The centre of mass of a subtree; no tolerance, so that it ends at stationarity."""

    root: int = jaxik.static()
    target: Any = jaxik.leaf(1)
    cost: Any = jaxik.leaf(default=1.0)

    @property
    def subtrees(self) -> tuple[int, ...]:
        return (self.root,)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return kin.center_of_mass(self.root) - self.target


@jaxik.pytree
class Apart(jaxik.Task):
    """The distance between two frames, and how much one looks along the other: two leaves, two frames."""

    frames: tuple[Frame, ...] = jaxik.static()
    distance: Any = jaxik.leaf()
    cost: Any = jaxik.leaf(default=1.0)

    def residual(self, robot: Robot, kin: Kinematics) -> dict[str, jax.Array]:
        one, other = (kin.transform(frame) for frame in self.frames)
        gap = other.position - one.position
        return {
            "distance": jnp.sqrt(gap @ gap) - self.distance,
            "along": jnp.stack([one.rotation[:, 0] @ other.rotation[:, 1], jnp.sin(gap[0]) * other.rotation[2, 2]]),
        }


@jaxik.pytree
class Joint(jaxik.Task):
    """A joint coordinate, bent so that its second derivative counts."""

    index: int = jaxik.static()
    value: Any = jaxik.leaf()
    tolerance: Any = jaxik.leaf(default=None)

    def residual(self, robot: Robot, kin: Kinematics) -> jax.Array:
        return jnp.sinh(kin.q[self.index] - self.value)
