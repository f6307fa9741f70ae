"""Checks of arguments on the host; each returns arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError


def as_array(value: Any, floating: bool = False) -> jax.Array:
    """What `jnp.asarray` makes of numbers, or of them as floating ones.

    By NumPy: `jnp.asarray` would compile a program for each shape.

    Raises:
      OverflowError: for Python's whole numbers that are too large for JAX's, if they are not to be floating.
    """
    if any(isinstance(x, jax.Array) for x in jax.tree.leaves(value)):
        return jnp.asarray(value)
    known = np.asarray(value)
    if known.dtype.kind not in "biufc":
        return jnp.asarray(value)
    whole = known.dtype.kind in "biu"
    dtype = jax.dtypes.canonicalize_dtype(float if floating and whole else known.dtype)
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite
        # A copy, as JAX may keep NumPy's memory; of what was given, as `known.astype` would wrap whole numbers around.
        return jnp.asarray(np.array(value, dtype), dtype)


def array(name: str, value: Any) -> jax.Array:
    """`value` as an array of floating numbers."""
    try:
        value = as_array(value, floating=True)
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


def of_rows(value: jax.Array) -> jax.Array:
    """A number of all rows as (1,), so that stacked problems have (batch, 1): (batch,) would be one number a row."""
    return value if value.ndim else value[None]


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


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise JaxikError(f"{name} is one of {', '.join(allowed)}, not {value!r}")


def option(name: str, value: Any, dtype: Any, least: int = 0) -> jax.Array:
    """A solver option: a number, or an array (*batch,), that is not negative, or not below `least`."""
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
