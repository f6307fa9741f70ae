"""What the constructors of tasks accept: frames, targets, costs, masks and priorities."""

from typing import Any

import jax
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import set_fields
from jaxik.kinematics.frames import Frame
from jaxik.numerics.lie import MINIMUM_NORM, poses_at


def direction(name: str, value: Any) -> jax.Array:
    """`value` as vectors (*batch, 3) that point somewhere, of any length."""
    value = validation.vector(name, value, 3)
    if not isinstance(value, Tracer) and not (np.linalg.norm(np.asarray(value), axis=-1) > MINIMUM_NORM).all():
        raise JaxikError(f"{name} is a direction, of any length but zero: {np.asarray(value)!r}")
    return value


def cost(name: str, value: Any, rows: int) -> jax.Array:
    """The cost of `rows` rows: a number, or (*batch, rows), or (*batch, 1)."""
    value = validation.of_rows(name, value)
    if value.shape[-1] not in (1, rows):
        raise JaxikError(f"{name} is a number, (*batch, {rows}), or (*batch, 1) for isotropic costs; not {value.shape}")
    return value


def frame(name: str, value: Any) -> Frame:
    if not isinstance(value, Frame):
        raise JaxikError(f"{name} is a Frame, from robot.frame(name); not {value!r}")
    return value


def pose(target: Any, position_only: bool, orientation_only: bool = False) -> jaxlie.SE3:
    """A target pose; positions (*batch, 3) are one where `position_only`, rotations where `orientation_only`."""
    if isinstance(target, jaxlie.SE3):
        if np.shape(target.wxyz_xyz)[-1:] != (7,):
            raise JaxikError(f"target holds wxyz and xyz, (*batch, 7), not {np.shape(target.wxyz_xyz)}")
        return target
    if position_only and hasattr(target, "__len__") and np.shape(target)[-1:] == (3,):
        return jaxlie.SE3(poses_at(validation.array("target", target)))
    if orientation_only and isinstance(target, jaxlie.SO3):
        return jaxlie.SE3.from_rotation(target)
    # Other libraries have a class of this name as well.
    kind = f"{type(target).__module__.split('.')[0]}.{type(target).__name__}".removeprefix("builtins.")
    given = f"an array of shape {np.shape(target)}" if hasattr(target, "shape") else kind
    raise JaxikError(
        f"target is a jaxlie.SE3, a position (*batch, 3) where orientation_cost=None, or a jaxlie.SO3 where "
        f"position_cost=None; not {given}. "
        "From arrays: jaxlie.SE3(jnp.concatenate([wxyz, xyz], axis=-1)), or jaxlie.SE3.from_matrix(matrix)"
    )


def mask(value: Any) -> Any:
    """Weights in [0, 1] on six rows, or None."""
    if value is None:
        return None
    value = validation.number("mask", value)
    if value.shape[-1:] != (6,):
        raise JaxikError(f"mask has shape (*batch, 6), linear rows first; not {value.shape}")
    if not isinstance(value, Tracer) and (np.asarray(value) > 1).any():
        raise JaxikError(f"mask is bool or weights in [0, 1], not {np.asarray(value)!r}")
    return value


def priority(value: Any) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
        raise JaxikError(f"priority is an int, 0 the highest, not {value!r}")


def set_common(task: Any) -> None:
    """Check and set what every task has: gain, LM damping, tolerance and priority."""
    priority(task.priority)
    set_fields(
        task, gain=validation.number("gain", task.gain), lm_damping=validation.number("lm_damping", task.lm_damping)
    )
    if task.tolerance is not None:
        set_fields(task, tolerance=validation.number("tolerance", task.tolerance))
