"""What the constructors of tasks accept: each checks one kind of argument on the host and returns it as arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.errors import JaxikError
from jaxik.lie import MINIMUM_NORM
from jaxik.pytree import set_fields
from jaxik.robot.topology import Frame


def array(name: str, value: Any) -> jax.Array:
    """`value` as an array of floating numbers."""
    try:
        value = jnp.asarray(value)
    except (TypeError, ValueError):
        raise JaxikError(f"{name} is a number or an array of numbers, not {value!r}") from None
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise JaxikError(f"{name} is real, not {value!r}")
    # A number becomes an array of a type of its own: 1.0, 2 and an array in its place are one program.
    return jnp.asarray(value, value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else float)


def number(name: str, value: Any) -> jax.Array:
    """`value` as an array without negative entries."""
    value = array(name, value)
    if not isinstance(value, Tracer) and not (np.asarray(value) >= 0).all():
        raise JaxikError(f"{name} must not be negative or NaN: {np.asarray(value)!r}")
    return value


def positive(name: str, value: Any) -> jax.Array:
    """`value` as an array of finite numbers above zero."""
    value = array(name, value)
    if not isinstance(value, Tracer) and not ((np.asarray(value) > 0) & np.isfinite(value)).all():
        raise JaxikError(f"{name} is above zero and finite, not {np.asarray(value)!r}")
    return value


def vector(name: str, value: Any, length: int) -> jax.Array:
    """`value` as an array (*batch, length)."""
    value = array(name, value)
    if value.shape[-1:] != (length,):
        raise JaxikError(f"{name} has shape (*batch, {length}), not {value.shape}")
    return value


def direction(name: str, value: Any) -> jax.Array:
    """`value` as vectors (*batch, 3) that point somewhere, of any length."""
    value = vector(name, value, 3)
    if not isinstance(value, Tracer) and not (np.linalg.norm(np.asarray(value), axis=-1) > MINIMUM_NORM).all():
        raise JaxikError(f"{name} is a direction, of any length but zero: {np.asarray(value)!r}")
    return value


def cost(name: str, value: Any, rows: int) -> jax.Array:
    """The cost of `rows` rows: a number, or (*batch, rows), or (*batch, 1)."""
    value = array(name, value)
    if value.ndim and value.shape[-1] not in (1, rows):
        raise JaxikError(f"{name} is a number, (*batch, {rows}), or (*batch, 1) for isotropic costs; not {value.shape}")
    return number(name, value)


def frame(name: str, value: Any) -> Frame:
    if not isinstance(value, Frame):
        raise JaxikError(f"{name} is a Frame, from robot.frame(name); not {value!r}")
    return value


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise JaxikError(f"{name} is one of {', '.join(allowed)}, not {value!r}")


def pose(target: Any, position_only: bool) -> jaxlie.SE3:
    """A target pose; where `position_only`, positions (*batch, 3) are one as well."""
    if isinstance(target, jaxlie.SE3):
        if np.shape(target.wxyz_xyz)[-1:] != (7,):
            raise JaxikError(f"target holds wxyz and xyz, (*batch, 7), not {np.shape(target.wxyz_xyz)}")
        return target
    if position_only and hasattr(target, "__len__") and np.shape(target)[-1:] == (3,):
        position = jnp.asarray(target, jnp.result_type(float, jnp.asarray(target).dtype))
        identity = jnp.broadcast_to(jnp.asarray([1, 0, 0, 0], position.dtype), (*position.shape[:-1], 4))
        return jaxlie.SE3(jnp.concatenate([identity, position], axis=-1))
    given = f"an array of shape {np.shape(target)}" if hasattr(target, "shape") else type(target).__name__
    raise JaxikError(
        f"target is a jaxlie.SE3, or a position (*batch, 3) where orientation_cost=None; not {given}. "
        "From arrays: jaxlie.SE3(jnp.concatenate([wxyz, xyz], axis=-1)), or jaxlie.SE3.from_rotation(...)"
    )


def mask(value: Any) -> Any:
    """Weights in [0, 1] on six rows, or None."""
    if value is None:
        return None
    value = number("mask", value)
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
    set_fields(task, gain=number("gain", task.gain), lm_damping=number("lm_damping", task.lm_damping))
    if task.tolerance is not None:
        set_fields(task, tolerance=number("tolerance", task.tolerance))


def option(name: str, value: Any, dtype: Any, least: int = 0) -> jax.Array:
    """A number of a solver's, or an array of them (*batch,), that is not negative, or not below `least`."""
    if not any(isinstance(x, Tracer) for x in jax.tree.leaves(value)):
        _check_option(name, value, dtype)
    try:
        array = jnp.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError):
        raise JaxikError(f"{name} is a number, or an array (*batch,) of them, not {value!r}") from None
    if isinstance(array, Tracer):
        return array
    known = np.asarray(array)  # in a `jit`, a comparison of an array from outside is a tracer
    if not (known >= 0).all():
        raise JaxikError(f"{name} must not be negative or NaN: {value!r}")
    if not (known >= least).all():
        raise JaxikError(f"{name} is a count from {least} on, not {value!r}")
    return array


def _check_option(name: str, value: Any, dtype: Any) -> None:
    """Raise for text and flags, and for counts that are no whole numbers or too large."""
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):
        return  # as an array of JAX it is named
    if given.dtype.kind in "bcSU":
        raise JaxikError(f"{name} is a number, or an array (*batch,) of them, not {value!r}")
    most = np.iinfo(np.int32).max
    counts = jnp.issubdtype(dtype, jnp.integer) and given.dtype != object
    if counts and not ((np.floor(given) == given) & (np.abs(given) <= most)).all():
        raise JaxikError(f"{name} is a whole number up to {most}, not {value!r}")
