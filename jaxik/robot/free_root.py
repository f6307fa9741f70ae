"""A free joint for a robot whose root is fixed to the world."""

import dataclasses
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.kinematics.equality import Equality
from jaxik.kinematics.geometry import ALWAYS, CONSTANT, FIXED, NEVER
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import Joint, JointType, Topology, changed, subtree

Model = TypeVar("Model", bound=RobotModel)


def with_free_root(robot: Model, body: str | None, name: str) -> Model:
    """See `Robot.with_free_root`."""
    topology = robot.topology
    root = _root(topology, body)
    if name in topology.joint_names:
        raise JaxikError(f"{robot.name} has a joint {name!r} already: choose another name")
    at = sum(joint.body < root for joint in topology.joints)
    before = topology.joints[:at]
    q_at, v_at = (sum(sizes) for sizes in ([j.type.nq for j in before], [j.type.nv for j in before]))
    free = Joint(name, JointType.FREE, root, q_at, v_at)
    after = [dataclasses.replace(j, q_index=j.q_index + 7, v_index=j.v_index + 6) for j in topology.joints[at:]]
    leaves = _freed(robot, root, at, q_at, v_at)
    geometry = robot.geometry
    if geometry is not None:
        geometry = geometry.with_moved(subtree(topology, root), (NEVER, ALWAYS, CONSTANT, FIXED))
    return dataclasses.replace(
        robot,
        topology=changed(
            topology,
            joints=(*before, free, *after),
            equalities=tuple(_moved(equality, at) for equality in topology.equalities),
            tendons=tuple(dataclasses.replace(t, joints=_shifted(t.joints, at)) for t in topology.tendons),
        ),
        geometry=geometry,
        **leaves,
    )


@partial(jax.jit, static_argnums=(1, 2, 3, 4), inline=True)
def _freed(robot: RobotModel, root: int, at: int, q_at: int, v_at: int) -> dict[str, jax.Array]:
    """Leaves with a free joint of the root, before those that stand at these indices."""
    pose = jnp.concatenate([robot.body_position[..., root, :], robot.body_quaternion[..., root, :]], axis=-1)
    axis = jnp.array([0.0, 0.0, 1.0])
    joints = {"limit_lower": -jnp.inf, "limit_upper": jnp.inf}
    rates = {"velocity_limit": jnp.inf, "armature": 0.0}
    rows = {"joint_anchor": 0 * axis, "joint_axis": axis}
    leaves = {field: _inserted(getattr(robot, field), at, jnp.full(1, x), -1) for field, x in joints.items()}
    leaves |= {field: _inserted(getattr(robot, field), v_at, jnp.full(6, x), -1) for field, x in rates.items()}
    leaves |= {field: _inserted(getattr(robot, field), at, x[None], -2) for field, x in rows.items()}
    leaves |= {field: _inserted(getattr(robot, field), q_at, pose, -1) for field in ("qpos0", "q_home")}
    return leaves | {"keyframes": _inserted(robot.keyframes, q_at, pose[..., None, :], -1)}


def _root(topology: Topology, body: str | None) -> int:
    """The body that hangs on the world."""
    hanging = [b for b, parent in enumerate(topology.body_parents) if b and not parent]
    roots = [b for b in hanging if b not in topology.mocap_bodies]
    moving = [b for b in roots if any(topology.body_joints[below] for below in subtree(topology, b))]
    if body is not None:
        roots = [b for b in roots if topology.body_names[b] == topology.body_names[topology.body_index(body)]]
    elif len(moving) == 1:
        roots = moving
    names = [topology.body_names[b] for b in hanging]
    if len(roots) != 1:
        raise JaxikError(f"{topology.name}: say which body is the root, of those that hang on the world: {names}")
    (root,) = roots
    if topology.body_joints[root]:
        joint = topology.joints[topology.body_joints[root][0]].name
        raise JaxikError(f"{topology.body_names[root]!r} of {topology.name} moves already, by its joint {joint!r}")
    return root


def _inserted(x: jax.Array, at: int, more: Any, axis: int) -> jax.Array:
    """`x` with entries before those at `at`; both may have batch axes."""
    more = jnp.asarray(more, x.dtype)
    own = -axis
    batch = np.broadcast_shapes(x.shape[:-own], more.shape[: more.ndim - own])
    x, more = (jnp.broadcast_to(part, (*batch, *part.shape[part.ndim - own :])) for part in (x, more))
    first, last = jnp.split(x, [at], axis=axis)
    return jnp.concatenate([first, more, last], axis=axis)


def _moved(equality: Equality, at: int) -> Equality:
    return (
        dataclasses.replace(equality, members=_shifted(equality.members, at)) if equality.kind == "joint" else equality
    )


def _shifted(joints: tuple[int, ...], at: int) -> tuple[int, ...]:
    return tuple(joint + (joint >= at) for joint in joints)
