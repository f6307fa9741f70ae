"""How each array primitive of JAX carries a trailing lane axis."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxik.batching import devices
from jaxik.numerics.fusion import materialize

# Contractions up to this many terms are unrolled into one chain of multiply-adds. Longer ones are a loop over terms: a
# chain would be fused into, and recomputed for, each of its consumers, and a product with a reduction goes through
# memory (6 x 7 times 7 x 6 over 256 lanes: 120 us so, 8 us by the loop).
UNROLLED_TERMS = 3
# On an accelerator each turn of a loop is a kernel or more, of 2 us at the least: there only long ones are loops.
UNROLLED_ON_ACCELERATORS = 64
# Such a loop adds up to so many terms a turn: a humanoid's step takes 34 us so, 40 with one, 35 with eight.
TERMS_A_TURN = 4
# Longer axes are left to XLA.
UNROLLED_REDUCTION = 16


class Batched(NamedTuple):
    """A value inside the evaluation: an array and whether its last axis is the lane axis."""

    value: jax.Array
    mapped: bool


def with_lanes(x: Batched, size: int) -> jax.Array:
    if x.mapped:
        return x.value
    value = jnp.asarray(x.value)
    return lax.broadcast_in_dim(value, (*value.shape, size), tuple(range(value.ndim)))


def bind(eqn: Any, params: dict[str, Any], values: Sequence[Any]) -> list[Any]:
    # A custom call carries its derivative rule along.
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
    return list(out) if eqn.primitive.multiple_results else [out]


def by_vmap(eqn: Any, inputs: list[Batched]) -> list[Batched]:
    axes = tuple(-1 if x.mapped else None for x in inputs)
    function = jax.vmap(lambda *xs: bind(eqn, eqn.params, xs), in_axes=axes, out_axes=-1)
    return [Batched(x, True) for x in function(*(x.value for x in inputs))]


def aligned(eqn: Any, inputs: list[Batched], size: int) -> list[jax.Array]:
    """Operands of an elementwise primitive, all of the result's shape."""
    shape = (*eqn.outvars[0].aval.shape, size)
    return [_broadcast(x, shape) for x in inputs]


def _broadcast(x: Batched, shape: tuple[int, ...]) -> jax.Array:
    """Give `x` (core shape equal to `shape[:-1]`, or scalar) the full `shape`."""
    value = x.value if isinstance(x.value, jax.Array) else jnp.asarray(x.value)
    if value.shape == shape:
        return value
    axes = (*range(value.ndim - x.mapped), *((len(shape) - 1,) if x.mapped else ()))
    return lax.broadcast_in_dim(value, shape, axes)


def all_batched(inputs: Sequence[Batched], size: int) -> list[jax.Array]:
    return [with_lanes(x, size) for x in inputs]


def with_params(eqn: Any, values: Sequence[Any], **changes: Any) -> list[Batched]:
    return [Batched(x, True) for x in bind(eqn, {**eqn.params, **changes}, values)]


def _same_axes(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    return with_params(eqn, all_batched(inputs, size))


def _broadcast_in_dim(eqn: Any, inputs: list[Batched], size: int) -> list[Batched] | None:
    if len(inputs) > 1:
        return None
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    return [Batched(lax.broadcast_in_dim(inputs[0].value, (*shape, size), (*axes, len(shape))), True)]


def _reshape(eqn: Any, inputs: list[Batched], size: int) -> list[Batched] | None:
    if len(inputs) > 1 or eqn.params.get("dimensions") is not None:
        return None
    return [Batched(lax.reshape(inputs[0].value, (*eqn.params["new_sizes"], size)), True)]


def _transpose(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    permutation = eqn.params["permutation"]
    return [Batched(lax.transpose(inputs[0].value, (*permutation, len(permutation))), True)]


def _slice(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    p = eqn.params
    strides = None if p["strides"] is None else (*p["strides"], 1)
    return [Batched(lax.slice(inputs[0].value, (*p["start_indices"], 0), (*p["limit_indices"], size), strides), True)]


def _dynamic_slice(eqn: Any, inputs: list[Batched], size: int) -> list[Batched] | None:
    operand, *starts = inputs
    if any(s.mapped for s in starts):
        return None
    zero = jnp.zeros((), jnp.result_type(starts[0].value)) if starts else 0
    sizes, place = (*eqn.params["slice_sizes"], size), [*(s.value for s in starts), zero]
    return [Batched(lax.dynamic_slice(operand.value, place, sizes, allow_negative_indices=False), True)]


def _dynamic_update_slice(eqn: Any, inputs: list[Batched], size: int) -> list[Batched] | None:
    operand, update, *starts = inputs
    if any(s.mapped for s in starts):
        return None
    zero = jnp.zeros((), jnp.result_type(starts[0].value)) if starts else 0
    operand_value, update_value = all_batched((operand, update), size)
    place = [*(s.value for s in starts), zero]
    updated = lax.dynamic_update_slice(operand_value, update_value, place, allow_negative_indices=False)
    return [Batched(updated, True)]


def _pad(eqn: Any, inputs: list[Batched], size: int) -> list[Batched] | None:
    operand, value = inputs
    if value.mapped:
        return None
    return [Batched(lax.pad(operand.value, value.value, (*eqn.params["padding_config"], (0, 0, 0))), True)]


def _gather(eqn: Any, inputs: list[Batched], size: int) -> list[Batched] | None:
    operand, indices = inputs
    if indices.mapped:
        return None
    p = eqn.params
    numbers = p["dimension_numbers"]
    numbers = numbers._replace(offset_dims=(*numbers.offset_dims, len(eqn.outvars[0].aval.shape)))
    return with_params(
        eqn, [operand.value, indices.value], dimension_numbers=numbers, slice_sizes=(*p["slice_sizes"], size)
    )


def _scatter(eqn: Any, inputs: list[Batched], size: int) -> list[Batched] | None:
    operand, indices, updates = inputs
    if indices.mapped:
        return None
    numbers = eqn.params["dimension_numbers"]
    numbers = numbers._replace(
        update_window_dims=(*numbers.update_window_dims, len(eqn.invars[2].aval.shape)),
    )
    operand_value, update_value = all_batched((operand, updates), size)
    return with_params(eqn, [operand_value, indices.value, update_value], dimension_numbers=numbers)


def _dot_general(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    """A contraction as multiply-and-add: exact float32 on every device, and no library call per matrix."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    dtype = eqn.outvars[0].aval.dtype
    values = [x.value if x.mapped else lax.expand_dims(jnp.asarray(x.value), (-1,)) for x in inputs]
    lhs, rhs = (lax.convert_element_type(x, dtype) for x in values)
    terms = int(np.prod([lhs.shape[i] for i in lhs_contract]))
    free = [lhs.ndim - 1 - len(lhs_contract) - len(lhs_batch), rhs.ndim - 1 - len(rhs_contract) - len(rhs_batch)]
    shape = (*eqn.outvars[0].aval.shape, size)

    def factor(x: jax.Array, contract: Sequence[int], batch: Sequence[int], k: Any, before: int) -> jax.Array:
        """Term k of `x`, over all of the result's axes: its batch axes, `before` others, its free axes, its lanes."""
        rest = [i for i in range(x.ndim - 1) if i not in (*contract, *batch)]
        order = [*batch, *rest]
        for axis in reversed(contract):
            digit, k = (k, 0) if axis == contract[0] else (k % x.shape[axis], k // x.shape[axis])
            x = _entry(x, digit, axis)
        alone = [1] * len(shape)
        for i, axis in enumerate(order):
            alone[i if i < len(batch) else i + before] = x.shape[axis]
        alone[-1] = x.shape[-1]
        if order != sorted(order):
            x = lax.transpose(x, (*order, *contract, x.ndim - 1))
        return lax.broadcast_in_dim(lax.reshape(x, alone), shape, range(len(shape)))

    def product(k: Any) -> jax.Array:
        return lax.mul(factor(lhs, lhs_contract, lhs_batch, k, 0), factor(rhs, rhs_contract, rhs_batch, k, free[0]))

    if not terms:
        return [Batched(jnp.zeros(shape, dtype), True)]
    if not any(free) and not lhs_batch:
        left, right = (
            jnp.moveaxis(x, axes, range(len(axes))) for x, axes in ((lhs, lhs_contract), (rhs, rhs_contract))
        )
        return [Batched(jnp.sum(left * right, axis=tuple(range(len(lhs_contract)))), True)]
    if terms <= (UNROLLED_ON_ACCELERATORS if devices.accelerated() else UNROLLED_TERMS):
        return [Batched(functools.reduce(lax.add, map(product, range(terms))), True)]
    # Each turn takes its terms where they stand: handed over as the inputs of a scan, both factors were copied first.
    turns = max(2, -(-(terms - 1) // TERMS_A_TURN))
    share = (terms - 1) // turns
    first = terms - turns * share

    def add(turn: Any, total: jax.Array) -> jax.Array:
        for k in range(share):
            total = lax.add(total, product(first + turn * share + k))
        return total

    # The first terms stand outside of the loop: XLA would compute their factors again for each entry of the result.
    if all(free) and jnp.issubdtype(dtype, jnp.floating):
        lhs, rhs = (materialize(x) if i.mapped else x for x, i in zip((lhs, rhs), inputs, strict=True))
    start = functools.reduce(lax.add, map(product, range(first)))
    return [Batched(lax.fori_loop(0, turns, add, start), True)]


def _entry(x: jax.Array, index: Any, axis: int) -> jax.Array:
    """An entry of an axis, which stays."""
    if not isinstance(index, int):
        return lax.dynamic_index_in_dim(x, index, axis, allow_negative_indices=False)
    return lax.slice_in_dim(x, index, index + 1, axis=axis)


def _reduce(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    """Of matrices, entry by entry: XLA hands large reductions to a library, for 5 us a call."""
    left, axes = inputs[0].value, sorted(eqn.params["axes"])
    while axes and left.ndim > 2 and 1 <= left.shape[axes[-1]] <= UNROLLED_REDUCTION:
        axis = axes.pop()
        entries = (lax.index_in_dim(left, k, axis, keepdims=False) for k in range(left.shape[axis]))
        left = functools.reduce(REDUCED_BY[eqn.primitive.name], entries)
    return with_params(eqn, [left], axes=tuple(axes)) if axes else [Batched(left, True)]


REDUCED_BY: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "reduce_sum": lax.add,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
}

ELEMENTWISE = frozenset(
    """abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp conj convert_element_type copy copy_p cos cosh
    digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p logistic
    lt max min mul ne neg nextafter not or population_count pow real reduce_precision rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh
    xor""".split()
)

# Primitive -> outputs, or None to leave it to vmap.
RULES: dict[str, Callable[[Any, list[Batched], int], list[Batched] | None]] = {
    **dict.fromkeys(
        "reduce_prod reduce_and reduce_or reduce_xor argmax argmin cumsum cumprod "
        "cummax cummin cumlogsumexp concatenate stack unstack rev squeeze sort split optimization_barrier".split(),
        _same_axes,
    ),
    **dict.fromkeys(REDUCED_BY, _reduce),
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter,
    "scatter_add": _scatter,
    "dot_general": _dot_general,
}
