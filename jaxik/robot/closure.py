"""One more closed loop: two frames of a robot that are held together."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError, unknown_name
from jaxik.kinematics.added_shape import with_row
from jaxik.kinematics.equality import CLOSURES, DIRECTIONS, Equality
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.topology import changed, last_joint

Model = TypeVar("Model", bound=RobotModel)
# Kinds that look at the axis.
AXIAL = ("universal", "hinge", "cylinder", "slide")


def with_closure(
    robot: Model,
    name: str,
    frames: tuple[Frame, Frame],
    kind: str | Sequence[str],
    axis: Any,
    poses: Sequence[jaxlie.SE3] | None,
) -> Model:
    """See `Robot.with_closure`.

    Args:
      poses: of the frames (*batch), where the closure is held; None: where they coincide.
    """
    topology = robot.topology
    if name in {e.name for e in topology.equalities}:
        raise JaxikError(f"{robot.name} has an equality constraint {name!r} already: choose another name")
    bodies = tuple(topology.frame_body(frame) for frame in frames)
    if last_joint(topology, bodies[0]) == last_joint(topology, bodies[1]):
        raise JaxikError(
            f"closure {name!r}: {frames[0].name!r} and {frames[1].name!r} are of one rigid body; close a loop between "
            "frames that joints move against each other"
        )
    directions = _directions(kind)
    quaternion = _along(axis if isinstance(kind, str) and kind in AXIAL else (0.0, 0.0, 1.0))
    held = jaxlie.SE3(jnp.concatenate([quaternion, jnp.zeros_like(quaternion[..., :3])], axis=-1))
    there = held if poses is None else poses[0].inverse() @ poses[1] @ held
    row = (held.translation(), there.translation(), held.rotation().wxyz, there.rotation().wxyz)
    batch = jnp.broadcast_shapes(*(x.shape[:-1] for x in row))
    numbers = jnp.concatenate([jnp.broadcast_to(x, (*batch, x.shape[-1])) for x in row], axis=-1)
    closure = Equality(name, len(topology.equalities), "closure", True, frames, (), bodies, directions)
    active = robot.equality_active
    return dataclasses.replace(
        robot,
        topology=changed(topology, equalities=(*topology.equalities, closure)),
        equality_data=with_row(robot.equality_data, numbers),
        equality_active=None if active is None else _with_one(active),
    )


def _with_one(active: jax.Array) -> jax.Array:
    """One more that holds, after those of `equality_active`."""
    return jnp.pad(active, [(0, 0)] * (active.ndim - 1) + [(0, 1)], constant_values=1)


def _directions(kind: str | Sequence[str]) -> tuple[int, ...]:
    if isinstance(kind, str) and kind in CLOSURES:
        return CLOSURES[kind]
    given = (kind,) if isinstance(kind, str) else tuple(kind)
    for direction in given:
        if direction not in DIRECTIONS:
            raise unknown_name("kind of closure, or direction", str(direction), (*CLOSURES, *DIRECTIONS))
    if not given:
        raise JaxikError(f"a closure holds one direction at least, of {', '.join(DIRECTIONS)}")
    return tuple(sorted({DIRECTIONS.index(direction) for direction in given}))


def _along(axis: Any) -> jax.Array:
    """The quaternion (*batch, 4) of the least rotation that takes z to an axis (*batch, 3)."""
    axis = validation.vector("axis", axis, 3)
    if not isinstance(axis, Tracer) and not (np.linalg.norm(np.asarray(axis), axis=-1) > 0).all():
        raise JaxikError(f"axis is a direction (*batch, 3), not {np.asarray(axis)!r}")
    return _turning(axis)


@partial(jax.jit, inline=True)
def _turning(axis: jax.Array) -> jax.Array:
    x, y, z = jnp.moveaxis(axis / jnp.linalg.norm(axis, axis=-1, keepdims=True), -1, 0)
    # Half a turn about x where the axis is -z, which no cross product tells.
    flips = z < -1 + 1e-7
    real = jnp.where(flips, 0.0, jnp.sqrt(jnp.maximum((1 + z) / 2, 1e-12)))
    twice = 2 * jnp.where(flips, 1.0, real)
    return jnp.stack([real, jnp.where(flips, 1.0, -y / twice), jnp.where(flips, 0.0, x / twice), 0 * z], axis=-1)
