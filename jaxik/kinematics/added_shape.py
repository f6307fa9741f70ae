"""One more shape on a body, as of an object that a hand holds."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.kinematics.geometry import FIXED, OBSTACLE_KINDS, OBSTACLES, DroppedPair, Geometry
from jaxik.kinematics.topology import WORLD, Topology, last_joint

# How many numbers the size of each kind has.
SIZES = {"sphere": 1, "capsule": 2, "box": 3, "cylinder": 2, "ellipsoid": 3}


def with_shape(
    topology: Topology,
    geometry: Geometry,
    name: str,
    body: int,
    kind: str,
    size: Any,
    pose: jax.Array,
    touching: Sequence[int],
) -> Geometry:
    """See `RobotModel.with_shape`.

    Args:
      body: that carries it; touching: those it may touch.
      pose: (*batch, 7), wxyz before xyz, in the body's axes.
    """
    validation.one_of("kind", kind, tuple(SIZES))
    obstacle = name.split("/")[0] in (OBSTACLES, *OBSTACLE_KINDS)
    if not name or obstacle or name in topology.body_names:
        why = "is empty" if not name else "stands for obstacles" if obstacle else "is that of a body"
        raise JaxikError(f"the name {name!r} of a shape {why}, where pairs are named: choose another name")
    if name in geometry.names:
        raise JaxikError(f"{topology.name} has a shape {name!r} already: choose another name")
    numbers = jnp.atleast_1d(validation.positive("size", size))
    if numbers.shape[-1] != SIZES[kind]:
        raise JaxikError(f"the size of a {kind} has {SIZES[kind]} numbers (*batch, {SIZES[kind]}), not {numbers.shape}")
    padded = jnp.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, 3 - SIZES[kind])])
    at, kept, dropped = len(geometry.names), [], []
    for i, other in enumerate(geometry.bodies):
        if other in touching:
            dropped.append(DroppedPair(geometry.names[i], name, "may touch"))
        elif last_joint(topology, other) != last_joint(topology, body):
            kept.append((i, at))
        elif other != body and last_joint(topology, body) == WORLD:
            dropped.append(DroppedPair(geometry.names[i], name, FIXED))
    return dataclasses.replace(
        geometry,
        names=(*geometry.names, name),
        bodies=(*geometry.bodies, body),
        kinds=(*geometry.kinds, kind),
        pairs=(*geometry.pairs, *kept),
        dropped=(*geometry.dropped, *dropped),
        position=with_row(geometry.position, pose[..., 4:]),
        quaternion=with_row(geometry.quaternion, pose[..., :4]),
        size=with_row(geometry.size, padded),
    )


@partial(jax.jit, inline=True)
def with_row(stack: jax.Array, row: jax.Array) -> jax.Array:
    """One more row (*batch, k) after those of a stack (*batch, n, k)."""
    batch = np.broadcast_shapes(stack.shape[:-2], row.shape[:-1])
    row = jnp.broadcast_to(row, (*batch, row.shape[-1])).astype(stack.dtype)
    return jnp.concatenate([jnp.broadcast_to(stack, (*batch, *stack.shape[-2:])), row[..., None, :]], axis=-2)
