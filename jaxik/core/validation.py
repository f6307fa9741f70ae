"""Checks of arguments on the host; each returns arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError

# An error shows arrays of so many entries.
FEW = 8


def as_array(value: Any) -> jax.Array:
    """What `jnp.asarray` makes of numbers.

    Raises:
      OverflowError: for Python's whole numbers that are too large for JAX's.
    """
    return _placed(_known(value, floating=False))


def array(name: str, value: Any) -> jax.Array:
    """`value` as an array of floating numbers."""
    return _placed(_floating(name, value))


def number(name: str, value: Any) -> jax.Array:
    """`value` as an array without negative entries."""
    return _placed(_not_negative(name, value))


def of_rows(name: str, value: Any) -> jax.Array:
    """`value` as an array without negative entries, a number of all rows as (1,).

    So stacked problems have (batch, 1): (batch,) would be one number a row.
    """
    value = _not_negative(name, value)
    return _placed(value if value.ndim else value[None])


def positive(name: str, value: Any) -> jax.Array:
    """`value` as an array of finite numbers above zero."""
    value = _floating(name, value)
    if not isinstance(value, Tracer) and not (good := (np.asarray(value) > 0) & np.isfinite(value)).all():
        raise JaxikError(f"{name} is above zero and finite, not {first_bad(value, good)}")
    return _placed(value)


def vector(name: str, value: Any, length: int) -> jax.Array:
    """`value` as an array (*batch, length)."""
    value = array(name, value)
    if value.shape[-1:] != (length,):
        raise JaxikError(f"{name} has shape (*batch, {length}), not {value.shape}")
    return value


def first_bad(value: Any, good: np.ndarray) -> str:
    """An array in an error: all of a few entries, of more the first that is not good, and where it is."""
    value = np.asarray(value)
    if value.size <= FEW:
        return repr(value)
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    return f"{value[where]} at {where} of an array of shape {value.shape}"


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise JaxikError(f"{name} is one of {', '.join(allowed)}, not {value!r}")


def option(name: str, value: Any, dtype: Any, least: int = 0) -> jax.Array:
    """A solver option: a number, or an array (*batch,), that is not negative, or not below `least`."""
    if not any(isinstance(x, Tracer) for x in jax.tree.leaves(value)):
        _check_option(name, value, dtype)
    try:
        array = _cast(value, dtype)
    except (TypeError, ValueError, OverflowError):
        raise JaxikError(f"{name} is a number, or an array (*batch,) of them, not {value!r}") from None
    if isinstance(array, Tracer):
        return array
    known = np.asarray(array)  # in a `jit`, a comparison of an array from outside is a tracer
    if not (known >= 0).all():
        raise JaxikError(f"{name} must not be negative or NaN: {value!r}")
    if not (known >= least).all():
        raise JaxikError(f"{name} is a count from {least} on, not {value!r}")
    return _placed(array)


def flags(what: str, value: Any) -> jax.Array:
    """`value` as bool; of numbers 0 and 1 alone are flags.

    Args:
      what: says what is allowed, as the beginning of an error.
    """
    given = None if isinstance(value, Tracer) else np.asarray(value)
    if given is not None and not (given.dtype.kind in "biuf" and np.isin(given, (0, 1)).all()):
        raise JaxikError(f"{what}, not {value!r}")
    return jnp.asarray(value, bool)


def _cast(value: Any, dtype: Any) -> "np.ndarray | jax.Array":
    """As `jnp.asarray(value, dtype)`, on the host where that is possible."""
    if not any(isinstance(x, jax.Array) for x in jax.tree.leaves(value)):
        known = np.asarray(value)
        if known.dtype.kind in "biuf":
            return known.astype(jax.dtypes.canonicalize_dtype(dtype))
    return jnp.asarray(value, dtype)


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


def _known(value: Any, floating: bool) -> "np.ndarray | jax.Array":
    """Numbers as NumPy's, where nothing of JAX is among them, in a type that JAX has; or as floating ones.

    Checks and changes of shape cost microseconds there, and on an array of JAX's a tenth of a millisecond and a program
    for each shape.
    """
    if isinstance(value, jax.Array):
        return value
    if any(isinstance(x, jax.Array) for x in jax.tree.leaves(value)):
        return jnp.asarray(value)
    known = np.asarray(value)
    if known.dtype.kind not in "biufc":
        return jnp.asarray(value)
    dtype = known.dtype
    if (floating and dtype.kind in "biu") or dtype == np.longdouble:
        dtype = np.dtype(float)
    dtype = jax.dtypes.canonicalize_dtype(dtype.newbyteorder("="))
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite
        # A copy, as JAX may keep NumPy's memory; of what was given, as `known.astype` would wrap whole numbers around.
        return np.array(value, dtype)


def _floating(name: str, value: Any) -> "np.ndarray | jax.Array":
    """Floating numbers, of a type of their own: 1.0, 2 and an array in its place are one program."""
    try:
        value = _known(value, floating=True)
    except (TypeError, ValueError, OverflowError):
        raise JaxikError(f"{name} is a number or an array of numbers, not {value!r}") from None
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise JaxikError(f"{name} is real, not {value!r}")
    if not isinstance(value, jax.Array):
        return value
    floating = jnp.issubdtype(value.dtype, jnp.floating)
    return value if floating and not value.weak_type else jnp.asarray(value, value.dtype if floating else float)


def _not_negative(name: str, value: Any) -> "np.ndarray | jax.Array":
    value = _floating(name, value)
    if not isinstance(value, Tracer) and not (good := np.asarray(value) >= 0).all():
        raise JaxikError(f"{name} must not be negative or NaN: {first_bad(value, good)}")
    return value


def _placed(value: "np.ndarray | jax.Array") -> jax.Array:
    """As an array of JAX's."""
    if isinstance(value, jax.Array):
        return value
    if value.size > 1:
        return jnp.asarray(value, value.dtype)
    # In half the time, but by a program for each shape: one for numbers, one for numbers of all rows.
    with jax.transfer_guard_host_to_device("allow"):  # it is what was asked for
        return jnp.asarray(value)
