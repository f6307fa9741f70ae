"""Frames that stay where they stand, as the feet of what walks."""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.model import RobotModel
from jaxik.kinematics.schedule import plan
from jaxik.robot import batched
from jaxik.robot.closure import with_closure
from jaxik.robot.switching import with_active

Model = TypeVar("Model", bound=RobotModel)


def pinned(robot: Model, q: jax.Array, frames: Sequence[Frame], active: Any, kind: str | Sequence[str]) -> Model:
    """See `Robot.pinned`."""
    mask = active if isinstance(active, Tracer) else np.asarray(active)
    if mask.dtype.kind not in "biuf":
        raise JaxikError(f"active is True, False, or (*batch, {len(frames)}) of them, one a frame, not {active!r}")
    mask = jnp.asarray(mask)
    if not frames or mask.shape[-1:] not in ((), (len(frames),)):
        raise JaxikError(f"active is True, False, or (*batch, {len(frames)}), one a frame, not of shape {mask.shape}")
    mask = jnp.broadcast_to(mask, (*mask.shape[:-1], len(frames)))
    world = robot.frame("world", "body")
    # One evaluation for all of them.
    seen = batched.on_robots(batched.poses, plan(robot.topology, tuple(frames)), robot, q)
    fixed = robot
    for i, frame in enumerate(frames):
        # The second frame's origin is the point that is held.
        poses = jaxlie.SE3.identity(), jaxlie.SE3(seen[..., i, :])
        fixed = with_closure(fixed, frame.name, (world, frame), kind, (0.0, 0.0, 1.0), poses)
    return with_active(fixed, {frame.name: mask[..., i] for i, frame in enumerate(frames)})
