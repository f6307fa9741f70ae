"""Batching with the mapped axis last.

`jax.vmap` puts the batch axis first wherever operands differ, which leaves the fastest-varying axis of every array at
3 or 6 entries: nothing for a SIMD unit or a warp to work on. `lanes` maps a function of one element over the *last*
axis of every array instead, so that all arithmetic runs along contiguous lanes, and turns the tiny contractions of
kinematics into multiply-and-add over lanes in the place of a library call per 3x3 matrix.

The function is traced once, per element, to a jaxpr, and the jaxpr is evaluated with a lane axis behind each mapped
value. Primitives without a rule of their own go through `jax.vmap`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex_core

# Contractions up to this many terms are unrolled into one chain of multiply-adds. Longer ones are a loop over terms: a
# chain would be fused into, and recomputed for, each of its consumers, and a product with a reduction goes through
# memory (6 x 7 times 7 x 6 over 256 lanes: 120 us so, 8 us by the loop).
UNROLLED_TERMS = 3


class Lane(NamedTuple):
    """A value inside the evaluation: an array and whether its last axis is the lane axis."""

    value: jax.Array
    mapped: bool


def lanes(function: Callable[..., Any], mapped: Any, size: int) -> Callable[..., Any]:
    """Map `function` over the last axis of its arguments.

    Args:
      function: takes and returns pytrees of arrays, of one element.
      mapped: a tuple of pytrees of bool, prefixes of the arguments: which leaves carry a trailing lane axis.
      size: number of lanes.

    Returns:
      A function of the same arguments, mapped leaves with the lane axis last; every output leaf carries a lane axis.
    """
    return lambda *args: jax.tree.map(
        lambda out: _with_lanes(out, size), _mapped(function, mapped, size, args), is_leaf=_is_lane
    )


def lanes_where_needed(function: Callable[..., Any], mapped: Any, size: int) -> Callable[..., tuple[Any, Any]]:
    """Like `lanes`, but outputs that do not depend on a mapped argument stay without a lane axis.

    Returns:
      A function that gives the outputs, and a pytree of bool of their structure: which of them carry a lane axis.
    """

    def partly(*args: Any) -> tuple[Any, Any]:
        out = _mapped(function, mapped, size, args)
        values = jax.tree.map(lambda x: jnp.asarray(x.value), out, is_leaf=_is_lane)
        return values, jax.tree.map(lambda x: x.mapped, out, is_leaf=_is_lane)

    return partly


def _is_lane(x: Any) -> bool:
    return isinstance(x, Lane)


def _mapped(function: Callable[..., Any], mapped: Any, size: int, args: tuple[Any, ...]) -> Any:
    leaves, treedef = jax.tree.flatten(args)
    flags = jax.tree.leaves(_broadcast_prefix(mapped, args))
    element = [_element_shape(x, m) for x, m in zip(leaves, flags, strict=True)]
    trace = jax.make_jaxpr(lambda *xs: function(*jax.tree.unflatten(treedef, xs)), return_shape=True)
    closed, shape = trace(*element)
    outputs = _evaluate(closed, [Lane(jnp.asarray(x), m) for x, m in zip(leaves, flags, strict=True)], size)
    return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def _broadcast_prefix(prefix: Any, tree: Any) -> Any:
    return jax.tree.map(lambda flag, sub: jax.tree.map(lambda _: flag, sub), prefix, tree)


def _element_shape(x: Any, mapped: bool) -> jax.ShapeDtypeStruct:
    shape = np.shape(x)
    return jax.ShapeDtypeStruct(shape[:-1] if mapped else shape, jnp.result_type(x))


def _with_lanes(x: Lane, size: int) -> jax.Array:
    if x.mapped:
        return x.value
    value = jnp.asarray(x.value)
    return lax.broadcast_in_dim(value, (*value.shape, size), tuple(range(value.ndim)))


def _evaluate(closed: jex_core.ClosedJaxpr, args: Sequence[Lane], size: int) -> list[Lane]:
    jaxpr = closed.jaxpr
    env: dict[Any, Lane] = {}

    def read(atom: Any) -> Lane:
        return Lane(atom.val, False) if isinstance(atom, jex_core.Literal) else env[atom]

    for var, const in zip(jaxpr.constvars, closed.consts, strict=True):
        env[var] = Lane(const, False)
    for var, arg in zip(jaxpr.invars, args, strict=True):
        env[var] = arg
    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        for var, out in zip(eqn.outvars, _apply(eqn, inputs, size), strict=True):
            env[var] = out
    return [read(atom) for atom in jaxpr.outvars]


def _apply(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    name = eqn.primitive.name
    inner = _inlined(eqn)
    if inner is not None:
        return _evaluate(inner, inputs, size)
    if not any(x.mapped for x in inputs):
        return [Lane(x, False) for x in _bind(eqn, eqn.params, [x.value for x in inputs])]
    if name in ELEMENTWISE:
        return [Lane(x, True) for x in _bind(eqn, eqn.params, _aligned(eqn, inputs, size))]
    if name in RULES:
        outputs = RULES[name](eqn, inputs, size)
        if outputs is not None:
            return outputs
    return _by_vmap(eqn, inputs)


def _inlined(eqn: Any) -> jex_core.ClosedJaxpr | None:
    """The body of a call that means no more than its body."""
    if eqn.primitive.name not in CALLS:
        return None
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        body = eqn.params.get(key)
        if body is not None:
            return body if isinstance(body, jex_core.ClosedJaxpr) else jex_core.ClosedJaxpr(body, ())
    return None


def _bind(eqn: Any, params: dict[str, Any], values: Sequence[Any]) -> list[Any]:
    # A custom call carries its derivative rule along.
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
    return list(out) if eqn.primitive.multiple_results else [out]


def _by_vmap(eqn: Any, inputs: list[Lane]) -> list[Lane]:
    axes = tuple(-1 if x.mapped else None for x in inputs)
    function = jax.vmap(lambda *xs: _bind(eqn, eqn.params, xs), in_axes=axes, out_axes=-1)
    return [Lane(x, True) for x in function(*(x.value for x in inputs))]


def _aligned(eqn: Any, inputs: list[Lane], size: int) -> list[jax.Array]:
    """Operands of an elementwise primitive, all of the result's shape."""
    shape = (*eqn.outvars[0].aval.shape, size)
    return [_broadcast(x, shape) for x in inputs]


def _broadcast(x: Lane, shape: tuple[int, ...]) -> jax.Array:
    """Give `x` (core shape equal to `shape[:-1]`, or scalar) the full `shape`."""
    value = jnp.asarray(x.value)
    core = value.ndim - x.mapped
    axes = (*range(core), *((len(shape) - 1,) if x.mapped else ()))
    return value if value.shape == shape else lax.broadcast_in_dim(value, shape, axes)


def _all_mapped(inputs: Sequence[Lane], size: int) -> list[jax.Array]:
    return [_with_lanes(x, size) for x in inputs]


def _with_params(eqn: Any, values: Sequence[Any], **changes: Any) -> list[Lane]:
    return [Lane(x, True) for x in _bind(eqn, {**eqn.params, **changes}, values)]


# --- rules: primitive -> outputs, or None to leave it to vmap -----------------------------------------------------


def _same_axes(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    return _with_params(eqn, _all_mapped(inputs, size))


def _broadcast_in_dim(eqn: Any, inputs: list[Lane], size: int) -> list[Lane] | None:
    if len(inputs) > 1:
        return None
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    return [Lane(lax.broadcast_in_dim(inputs[0].value, (*shape, size), (*axes, len(shape))), True)]


def _reshape(eqn: Any, inputs: list[Lane], size: int) -> list[Lane] | None:
    if len(inputs) > 1 or eqn.params.get("dimensions") is not None:
        return None
    return [Lane(lax.reshape(inputs[0].value, (*eqn.params["new_sizes"], size)), True)]


def _transpose(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    permutation = eqn.params["permutation"]
    return [Lane(lax.transpose(inputs[0].value, (*permutation, len(permutation))), True)]


def _slice(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    p = eqn.params
    strides = None if p["strides"] is None else (*p["strides"], 1)
    return [Lane(lax.slice(inputs[0].value, (*p["start_indices"], 0), (*p["limit_indices"], size), strides), True)]


def _dynamic_slice(eqn: Any, inputs: list[Lane], size: int) -> list[Lane] | None:
    operand, *starts = inputs
    if any(s.mapped for s in starts):
        return None
    zero = jnp.zeros((), jnp.result_type(starts[0].value)) if starts else 0
    sizes = (*eqn.params["slice_sizes"], size)
    return [Lane(lax.dynamic_slice(operand.value, [*(s.value for s in starts), zero], sizes), True)]


def _dynamic_update_slice(eqn: Any, inputs: list[Lane], size: int) -> list[Lane] | None:
    operand, update, *starts = inputs
    if any(s.mapped for s in starts):
        return None
    zero = jnp.zeros((), jnp.result_type(starts[0].value)) if starts else 0
    values = _all_mapped((operand, update), size)
    return [Lane(lax.dynamic_update_slice(*values, [*(s.value for s in starts), zero]), True)]


def _pad(eqn: Any, inputs: list[Lane], size: int) -> list[Lane] | None:
    operand, value = inputs
    if value.mapped:
        return None
    return [Lane(lax.pad(operand.value, value.value, (*eqn.params["padding_config"], (0, 0, 0))), True)]


def _gather(eqn: Any, inputs: list[Lane], size: int) -> list[Lane] | None:
    operand, indices = inputs
    if indices.mapped:
        return None
    p = eqn.params
    numbers = p["dimension_numbers"]
    numbers = numbers._replace(offset_dims=(*numbers.offset_dims, len(eqn.outvars[0].aval.shape)))
    return _with_params(
        eqn, [operand.value, indices.value], dimension_numbers=numbers, slice_sizes=(*p["slice_sizes"], size)
    )


def _scatter(eqn: Any, inputs: list[Lane], size: int) -> list[Lane] | None:
    operand, indices, updates = inputs
    if indices.mapped:
        return None
    numbers = eqn.params["dimension_numbers"]
    numbers = numbers._replace(
        update_window_dims=(*numbers.update_window_dims, len(eqn.invars[2].aval.shape)),
    )
    operand_value, update_value = _all_mapped((operand, updates), size)
    return _with_params(eqn, [operand_value, indices.value, update_value], dimension_numbers=numbers)


def _dot_general(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    """A contraction as multiply-and-add: exact float32 on every device, and no library call per matrix."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    lhs, rhs = (x.value if x.mapped else jnp.asarray(x.value)[..., None] for x in inputs)
    dtype = eqn.outvars[0].aval.dtype
    lhs_free = [i for i in range(lhs.ndim - 1) if i not in (*lhs_contract, *lhs_batch)]
    rhs_free = [i for i in range(rhs.ndim - 1) if i not in (*rhs_contract, *rhs_batch)]
    lhs = lax.transpose(lhs, (*lhs_contract, *lhs_batch, *lhs_free, lhs.ndim - 1))
    rhs = lax.transpose(rhs, (*rhs_contract, *rhs_batch, *rhs_free, rhs.ndim - 1))
    lhs, rhs = lhs.astype(dtype), rhs.astype(dtype)
    contract, batch = len(lhs_contract), len(lhs_batch)
    terms = int(np.prod(lhs.shape[:contract]))
    lhs = lhs.reshape(terms, *lhs.shape[contract:-1], *(1,) * len(rhs_free), lhs.shape[-1])
    shared, own = rhs.shape[contract : contract + batch], rhs.shape[contract + batch :]
    rhs = rhs.reshape(terms, *shared, *(1,) * len(lhs_free), *own)
    if 0 < terms <= UNROLLED_TERMS:
        total = lhs[0] * rhs[0]
        for k in range(1, terms):
            total = total + lhs[k] * rhs[k]
    else:
        start = jnp.zeros(np.broadcast_shapes(lhs.shape[1:], rhs.shape[1:]), dtype)
        total, _ = lax.scan(lambda acc, term: (acc + term[0] * term[1], None), start, (lhs, rhs))
    return [Lane(total, True)]


def _scan(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    p = eqn.params
    n_consts, n_carry = p["num_consts"], p["num_carry"]
    consts, carry, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]

    def body(carry_values: list[jax.Array], x_values: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        step = [Lane(c, True) for c in carry_values]
        step_xs = [Lane(x, m.mapped) for x, m in zip(x_values, xs, strict=True)]
        out = _all_mapped(_evaluate(p["jaxpr"], [*consts, *step, *step_xs], size), size)
        return out[:n_carry], out[n_carry:]

    last, stacked = lax.scan(
        body,
        _all_mapped(carry, size),
        [x.value for x in xs],
        length=p["length"],
        reverse=p["reverse"],
        unroll=p["unroll"],
    )
    return [Lane(x, True) for x in (*last, *stacked)]


def _while(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    p = eqn.params
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    cond_consts, body_consts, init = inputs[:n_cond], inputs[n_cond : n_cond + n_body], inputs[n_cond + n_body :]

    def running(carry: list[jax.Array]) -> jax.Array:
        (out,) = _evaluate(p["cond_jaxpr"], [*cond_consts, *(Lane(c, True) for c in carry)], size)
        return _with_lanes(out, size)

    def body(carry: list[jax.Array]) -> list[jax.Array]:
        new = _all_mapped(_evaluate(p["body_jaxpr"], [*body_consts, *(Lane(c, True) for c in carry)], size), size)
        alive = running(carry)
        return [jnp.where(alive, n, c) for n, c in zip(new, carry, strict=True)]

    return [Lane(x, True) for x in lax.while_loop(lambda c: jnp.any(running(c)), body, _all_mapped(init, size))]


def _custom_jvp(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    """The body over lanes; where derivatives are taken of it, the custom rule over lanes."""
    differentiable = [jnp.issubdtype(jnp.result_type(x.value), jnp.inexact) for x in inputs]

    @jax.custom_jvp
    def call(*values: jax.Array) -> list[jax.Array]:
        lanes_in = [Lane(v, x.mapped) for v, x in zip(values, inputs, strict=True)]
        return _all_mapped(_evaluate(eqn.params["call_jaxpr"], lanes_in, size), size)

    def element_jvp(values: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
        rest = iter(tangents)
        every = [
            next(rest) if d else np.zeros(v.shape, jax.dtypes.float0)
            for v, d in zip(values, differentiable, strict=True)
        ]
        return jax.jvp(lambda *xs: _bind(eqn, eqn.params, xs), values, every)

    @call.defjvp
    def rule(values: Any, tangents: Any) -> tuple[list[jax.Array], list[jax.Array]]:
        mapped = [x.mapped for x in inputs]
        wanted = [t for t, d in zip(tangents, differentiable, strict=True) if d]
        flags = [m for m, d in zip(mapped, differentiable, strict=True) if d]
        return lanes(element_jvp, (mapped, flags), size)(list(values), wanted)

    return [Lane(x, True) for x in call(*(x.value for x in inputs))]


def _cond(eqn: Any, inputs: list[Lane], size: int) -> list[Lane]:
    index, *operands = inputs
    branches = eqn.params["branches"]

    def branch(closed: jex_core.ClosedJaxpr) -> Callable[..., list[jax.Array]]:
        return lambda *xs: _all_mapped(
            _evaluate(closed, [Lane(x, o.mapped) for x, o in zip(xs, operands, strict=True)], size), size
        )

    values = [x.value for x in operands]
    if not index.mapped:
        return [Lane(x, True) for x in lax.switch(index.value, [branch(b) for b in branches], *values)]
    # A branch that no lane takes is not run at all; its outputs are never looked at.
    which = jnp.clip(index.value.astype(jnp.int32), 0, len(branches) - 1)
    chosen = [jnp.zeros((*v.aval.shape, size), v.aval.dtype) for v in eqn.outvars]
    for i, closed in enumerate(branches):
        taken = which == i
        run = branch(closed)
        chosen = lax.cond(
            jnp.any(taken),
            lambda old, *xs, run=run, taken=taken: [jnp.where(taken, n, o) for n, o in zip(run(*xs), old, strict=True)],
            lambda old, *xs: old,
            chosen,
            *values,
        )
    return [Lane(x, True) for x in chosen]


CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint"})  # fmt: skip

ELEMENTWISE = frozenset(
    """abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp conj convert_element_type copy copy_p cos cosh
    digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p logistic
    lt max min mul ne neg nextafter not or population_count pow real reduce_precision rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh
    xor""".split()
)

RULES: dict[str, Callable[[Any, list[Lane], int], list[Lane] | None]] = {
    **dict.fromkeys(
        "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin cumsum cumprod "
        "cummax cummin cumlogsumexp concatenate rev squeeze sort split optimization_barrier".split(),
        _same_axes,
    ),
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
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_jvp_call": _custom_jvp,
}
