"""Joints for a robot whose root is fixed to the world: a free one, or those of a base that drives on a floor."""

import dataclasses
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.kinematics.geometry import ALWAYS, CONSTANT, FIXED, NEVER
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import Joint, JointType, Topology, changed, subtree

Model = TypeVar("Model", bound=RobotModel)
# By what is added to the root's name, as of a planar joint of a URDF: the type, and the axis in the world.
Joints = tuple[tuple[str, JointType, tuple[float, float, float]], ...]
FREE: Joints = (("", JointType.FREE, (0.0, 0.0, 1.0)),)
PLANAR: Joints = (
    ("_TX", JointType.SLIDE, (1.0, 0.0, 0.0)),
    ("_TY", JointType.SLIDE, (0.0, 1.0, 0.0)),
    ("_RZ", JointType.HINGE, (0.0, 0.0, 1.0)),
)


def with_root_joints(robot: Model, body: str | None, name: str, joints: Joints) -> Model:
    """See `Robot.with_free_root` and `Robot.with_planar_root`."""
    topology = robot.topology
    root = _root(topology, body)
    at = sum(joint.body < root for joint in topology.joints)
    before = topology.joints[:at]
    q_at, v_at = start = sum(j.type.nq for j in before), sum(j.type.nv for j in before)
    added = []
    for ending, kind, _ in joints:
        if name + ending in topology.joint_names:
            raise JaxikError(f"{robot.name} has a joint {name + ending!r} already: choose another name")
        added.append(Joint(name + ending, kind, root, q_at, v_at))
        q_at, v_at = q_at + kind.nq, v_at + kind.nv
    nq, nv = q_at - start[0], v_at - start[1]
    after = [dataclasses.replace(j, q_index=j.q_index + nq, v_index=j.v_index + nv) for j in topology.joints[at:]]
    leaves = _freed(robot, root, at, *start, joints)
    geometry = robot.geometry
    if geometry is not None:
        geometry = geometry.with_moved(subtree(topology, root), (NEVER, ALWAYS, CONSTANT, FIXED))
    shifted = partial(_shifted, at=at, by=len(joints))
    return dataclasses.replace(
        robot,
        topology=changed(
            topology,
            joints=(*before, *added, *after),
            equalities=tuple(
                dataclasses.replace(each, members=shifted(each.members)) if each.kind == "joint" else each
                for each in topology.equalities
            ),
            tendons=tuple(dataclasses.replace(each, joints=shifted(each.joints)) for each in topology.tendons),
        ),
        geometry=geometry,
        **leaves,
    )


@partial(jax.jit, static_argnums=(1, 2, 3, 4, 5), inline=True)
def _freed(robot: RobotModel, root: int, at: int, q_at: int, v_at: int, joints: Joints) -> dict[str, jax.Array]:
    """Leaves with joints of the root, before those that stand at these indices."""
    position, quaternion = robot.body_position[..., root, :], robot.body_quaternion[..., root, :]
    to_body = jaxlie.SO3(quaternion).inverse()
    axes = [jnp.asarray(axis, quaternion.dtype) for _, _, axis in joints]
    axes = axes if joints == FREE else [to_body.apply(axis) for axis in axes]
    pose = jnp.concatenate([position, quaternion], axis=-1)
    q = pose if joints == FREE else jnp.zeros(len(joints))
    count, nv = len(joints), sum(kind.nv for _, kind, _ in joints)
    of_joints = {"limit_lower": -jnp.inf, "limit_upper": jnp.inf}
    of_dofs = {"velocity_limit": jnp.inf, "armature": 0.0}
    rows = {"joint_anchor": jnp.zeros((count, 3)), "joint_axis": jnp.stack(axes, axis=-2)}
    leaves = {field: _inserted(getattr(robot, field), at, jnp.full(count, x), -1) for field, x in of_joints.items()}
    leaves |= {field: _inserted(getattr(robot, field), v_at, jnp.full(nv, x), -1) for field, x in of_dofs.items()}
    leaves |= {field: _inserted(getattr(robot, field), at, x, -2) for field, x in rows.items()}
    leaves |= {field: _inserted(getattr(robot, field), q_at, q, -1) for field in ("qpos0", "q_home")}
    return leaves | {"keyframes": _inserted(robot.keyframes, q_at, q[..., None, :], -1)}


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


def _shifted(joints: tuple[int, ...], at: int, by: int) -> tuple[int, ...]:
    return tuple(joint + by * (joint >= at) for joint in joints)
