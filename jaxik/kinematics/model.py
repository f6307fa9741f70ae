"""What a robot is: a pytree of lengths, axes, limits and masses over a static topology, and how to change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.core.pytree import leaf, pytree, static
from jaxik.kinematics.added_shape import with_row, with_shape
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.geometry import NEVER, Geometry, geometry_of
from jaxik.kinematics.topology import Topology, changed, subtree
from jaxik.kinematics.visual import UNSEEN, Visual


@pytree
class RobotModel:
    """The leaves of a `Robot` over its static topology; each may have leading batch axes.

    Attributes:
      topology: bodies, joints and frames by name.
      body_position (nbody, 3) [m], body_quaternion (nbody, 4) wxyz: pose of each body in its parent, at zero joint
        motion; of a mocap body in the world.
      body_mass (nbody,) [kg], body_center (nbody, 3) [m]: mass and centre of mass in the body's axes.
      body_inertia (nbody, 3, 3) [kg m^2]: about the centre of mass, in the body's axes.
      joint_anchor (njoint, 3) [m], joint_axis (njoint, 3): in the body's axes.
      limit_lower, limit_upper (njoint,) [rad or m]: infinite where there is none; a ball's upper limit is its total
        angle; a free joint has none.
      velocity_limit (nv,) [rad/s or m/s]: infinite where none is known.
      armature (nv,) [kg m^2 or kg]: inertia of the motors, added to the diagonal of the mass matrix.
      qpos0 (nq,): MuJoCo's qpos0, at which hinges and slides have no motion.
      q_home (nq,): the keyframe "home", else `qpos0` moved inside the limits, and joints that others drive where their
        couplings have them; `q_home_origin` says which.
      keyframes (nkey, nq): named configurations of the model.
      site_position, site_quaternion, geom_position, geom_quaternion: frames on their bodies.
      equality_data (nequality, 14): the numbers of each equality constraint, MuJoCo's then three zeros. Connect
        of bodies: the anchor in each. Weld: the anchor in the second body, then position, quaternion wxyz and torque
        scale of the second body in the first. Joint and tendon: the polynomial, constant first. Anchors and poses that
        MuJoCo derives from qpos0 were derived from the model as it was loaded. Closure: a point in the second frame,
        one in the first, and the axes there, a quaternion wxyz each.
      tendon_coefficients (nweight,): weights of the joint coordinates or distances that tendons add up.
      tendon_reference (ntendon,): length at qpos0, from which the polynomials of tendon equalities count.
      equality_active (nequality,): 1 where an equality constraint holds, 0 where it is switched off, as
        `Robot.with_active` sets it; None: all that are active in the topology hold.
      geometry: the shapes that distances are taken of; None where none were asked for.
      visual: what it looks like, for pictures; no leaf, and empty where it was not asked for.
    """

    topology: Topology = static()
    body_position: jax.Array = leaf(2)
    body_quaternion: jax.Array = leaf(2)
    body_mass: jax.Array = leaf(1)
    body_center: jax.Array = leaf(2)
    body_inertia: jax.Array = leaf(3)
    joint_anchor: jax.Array = leaf(2)
    joint_axis: jax.Array = leaf(2)
    limit_lower: jax.Array = leaf(1)
    limit_upper: jax.Array = leaf(1)
    velocity_limit: jax.Array = leaf(1)
    armature: jax.Array = leaf(1)
    qpos0: jax.Array = leaf(1)
    q_home: jax.Array = leaf(1)
    keyframes: jax.Array = leaf(2)
    site_position: jax.Array = leaf(2)
    site_quaternion: jax.Array = leaf(2)
    geom_position: jax.Array = leaf(2)
    geom_quaternion: jax.Array = leaf(2)
    equality_data: jax.Array = leaf(2)
    tendon_coefficients: jax.Array = leaf(1)
    tendon_reference: jax.Array = leaf(1)
    equality_active: jax.Array | None = leaf(1, default=None)
    geometry: Geometry | None = leaf(default=None)
    visual: Visual = static(default=UNSEEN)

    # --- names and sizes ---------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.topology.name

    @property
    def nq(self) -> int:
        """Length of a configuration."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Degrees of freedom: length of a tangent."""
        return self.topology.nv

    @property
    def joint_names(self) -> tuple[str, ...]:
        return self.topology.joint_names

    @property
    def frame_names(self) -> dict[str, tuple[str, ...]]:
        """Names of all frames, by kind."""
        return {kind: tuple(n for n, _ in frames if n) for kind, frames in self.topology.carriers.items()}

    @property
    def coupling_coefficients(self) -> jax.Array:
        """Polynomial (*batch, ncoupling, 5) of each of `topology.couplings`, constant first."""
        rows = [e.index for e in self.topology.equalities if e.active and e.kind == "joint"]
        return self.equality_data[..., np.array(rows, int), :5]

    def frame(self, name: str | Frame, kind: str | None = None) -> Frame:
        """The site, body or geom of that name; `kind` says which where a name is ambiguous.

        Raises:
          UnknownNameError: if there is none; lists the near names.
          JaxikError: if several kinds have the name and `kind` is not given.
        """
        if isinstance(name, Frame):
            self.topology.check_frame(name)
            return name
        if not isinstance(name, str):
            raise JaxikError(f"a frame is given by its name or as a Frame, not {name!r}")
        return self.topology.frame(name, kind)

    def q_indices(self, joint: str) -> np.ndarray:
        """Where the coordinates of a joint stand in a configuration: 1, 4 (ball) or 7 (free); `q[..., indices]`."""
        return np.array(self.topology.joints[self.topology.joint_index(joint)].q_indices)

    def v_indices(self, joint: str) -> np.ndarray:
        """Where the degrees of freedom of a joint stand in a tangent: 1, 3 (ball) or 6 (free); `v[..., indices]`."""
        return np.array(self.topology.joints[self.topology.joint_index(joint)].v_indices)

    def keyframe(self, name: str) -> jax.Array:
        """The model's named configuration (nq,)."""
        if name not in self.topology.keyframes:
            raise unknown_name("keyframe", name, self.topology.keyframes)
        return self.keyframes[..., self.topology.keyframes.index(name), :]

    # --- changes -----------------------------------------------------------------------------------------------

    def with_frame(self, name: str, body: str | Frame, pose: jaxlie.SE3) -> Self:
        """A robot with one more site: a tool point or grasp frame, fixed to `body` at `pose` in its axes.

        Raises:
          JaxikError: if a site has that name already.
          UnknownNameError: if there is no such body.
        """
        if name in self.frame_names["site"]:
            raise JaxikError(f"{self.name} has a site {name!r} already: choose another name")
        if isinstance(body, Frame) and body.kind != "body":
            raise JaxikError(f"a frame is fixed to a body, not to the {body.kind} {body.name!r}")
        _check_pose(pose)
        index = body.index if isinstance(body, Frame) else self.topology.body_index(body)
        parameters = jnp.asarray(pose.wxyz_xyz, self.site_position.dtype)
        return dataclasses.replace(
            self,
            topology=changed(self.topology, sites=(*self.topology.sites, (name, index))),
            site_position=with_row(self.site_position, parameters[..., 4:]),
            site_quaternion=with_row(self.site_quaternion, parameters[..., :4]),
        )

    def with_shape(
        self,
        name: str,
        body: str,
        kind: str,
        size: Any,
        pose: jaxlie.SE3 | None = None,
        touching: str | Sequence[str] = (),
    ) -> Self:
        """A robot with one more shape fixed to `body`, as of an object that its hand holds; kept apart as its others.

        Args:
          name: of the shape.
          body: that carries it.
          kind: "sphere", "capsule", "box", "cylinder" or "ellipsoid".
          size: [m], (*batch, ...) MuJoCo's: radius; radius and half length along z; three half sizes.
          pose: in the body's axes, with batch axes or none; None for its origin.
          touching: body or bodies that it may touch, such as fingers. What does not move against it is never looked at.

        Raises:
          JaxikError: for a robot without shapes, a name that is taken or stands for obstacles, another kind, and a size
            of another length.
          UnknownNameError: if there is no such body.
        """
        if pose is not None:
            _check_pose(pose)
        at = jaxlie.SE3.identity() if pose is None else pose
        geometry = with_shape(
            self.topology,
            geometry_of(self.name, self.geometry),
            name,
            self.topology.body_index(body),
            kind,
            size,
            at.wxyz_xyz,
            [self.topology.body_index(other) for other in ((touching,) if isinstance(touching, str) else touching)],
        )
        return dataclasses.replace(self, geometry=geometry)

    def with_base(self, pose: jaxlie.SE3) -> Self:
        """The robot mounted at `pose` in the world: all bodies that hang on the world move with it.

        Mocap bodies, whose poses are set from outside, bodies with a free joint, whose poses are in the configuration,
        and frames fixed to the world itself stay.

        Raises:
          JaxikError: if all joints hang on free bases.
        """
        _check_pose(pose)
        topology = self.topology
        free = {topology.joints[j].body for j in topology.free_joints}
        roots = [
            body
            for body, parent in enumerate(topology.body_parents)
            if body and parent == 0 and body not in topology.mocap_bodies and body not in free
        ]
        mounted = {body for root in roots for body in subtree(topology, root)}
        if free and not any(joint.body in mounted for joint in topology.joints):
            raise JaxikError(f"{self.name} has a free base: its pose is in the configuration, set it there")
        position, quaternion = _mounted(self.body_position, self.body_quaternion, pose, tuple(roots))
        geometry = None if self.geometry is None else self.geometry.with_moved(mounted, (NEVER,))
        return dataclasses.replace(self, body_position=position, body_quaternion=quaternion, geometry=geometry)

    def astype(self, dtype: Any) -> Self:
        """All leaves cast to `dtype`; limits are rounded inward, so what is inside them stays inside in float64."""
        dtype = jnp.dtype(dtype)
        if all(jnp.result_type(x) == dtype for x in jax.tree.leaves(self)):
            return self
        return jax.tree.unflatten(jax.tree.structure(self), _cast(self, dtype))


# One program each: operation by operation they are 25 at a first call.
@partial(jax.jit, static_argnums=1, inline=True)
def _cast(robot: Any, dtype: Any) -> list[jax.Array]:
    """Leaves: of a robot, a program would return the looks of the one that it was compiled for."""
    lower, upper = round_inward(robot.limit_lower, robot.limit_upper, dtype)
    robot = jax.tree.map(lambda x: jnp.asarray(x, dtype), robot)
    return jax.tree.leaves(dataclasses.replace(robot, limit_lower=lower, limit_upper=upper))


@partial(jax.jit, static_argnums=3, inline=True)
def _mounted(
    position: jax.Array, quaternion: jax.Array, pose: jaxlie.SE3, roots: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """Positions (*batch, nbody, 3) and quaternions (*batch, nbody, 4) of bodies, the roots moved by a pose."""
    pose = jaxlie.SE3(jnp.asarray(pose.wxyz_xyz, position.dtype)[..., None, :])
    bodies = np.broadcast_shapes(quaternion.shape[:-1], position.shape[:-1])
    own = [jnp.broadcast_to(x, (*bodies, x.shape[-1])) for x in (quaternion, position)]
    places = np.array(roots, int)
    moved = (pose @ jaxlie.SE3(jnp.concatenate(own, axis=-1)[..., places, :])).wxyz_xyz
    position, quaternion = (jnp.broadcast_to(x, (*moved.shape[:-2], *x.shape[-2:])) for x in (position, quaternion))
    return position.at[..., places, :].set(moved[..., 4:]), quaternion.at[..., places, :].set(moved[..., :4])


def _check_pose(pose: Any) -> None:
    if not isinstance(pose, jaxlie.SE3):
        raise JaxikError(f"pose is a jaxlie.SE3, not {type(pose).__name__}; jaxlie.SE3.from_translation makes one")
    if not isinstance(pose.wxyz_xyz, Tracer) and not np.isfinite(np.asarray(pose.wxyz_xyz)).all():
        raise JaxikError(f"pose is finite, not {np.asarray(pose.wxyz_xyz).tolist()}")


def round_inward(lower: Any, upper: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Cast limits so that no rounding widens them; derivatives pass straight through.

    Where no value of the new type lies between two limits, both become the nearest one.
    """
    lower, upper = (jnp.asarray(x, jnp.result_type(jnp.asarray(x), float)) for x in (lower, upper))
    low, high = lower.astype(dtype), upper.astype(dtype)
    stop = jax.lax.stop_gradient
    up = jnp.where(stop(_rounded(lower, dtype) < lower), jnp.nextafter(stop(low), jnp.inf), stop(low))
    down = jnp.where(stop(_rounded(upper, dtype) > upper), jnp.nextafter(stop(high), -jnp.inf), stop(high))
    empty = up > down
    nearest = stop(lower / 2 + upper / 2).astype(dtype)
    shift_low = jnp.where(jnp.isfinite(low), jnp.where(empty, nearest, up) - stop(low), 0)
    shift_high = jnp.where(jnp.isfinite(high), jnp.where(empty, nearest, down) - stop(high), 0)
    return low + shift_low, high + shift_high


def _rounded(x: jax.Array, dtype: Any) -> jax.Array:
    """What casting to a type makes of a number, in the number's own type.

    Not by a cast and a cast back: on a GPU XLA removes both.
    """
    to = jnp.finfo(dtype)
    return jax.lax.reduce_precision(x, to.nexp, to.nmant)


def inward32(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 limits inside the float64 ones; where none lies between two limits, the nearest."""
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    up = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
    down = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    with np.errstate(invalid="ignore"):  # no middle between two infinite limits, nor need of one
        nearest = ((low + high) / 2).astype(np.float32)
    empty = up > down
    return np.where(empty, nearest, up), np.where(empty, nearest, down)
