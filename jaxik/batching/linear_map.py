"""Linear functions of each element of a batch, as a primitive with derivative, transpose and batching rules.

A batch is differentiated element by element: the derivative of the function of one element is run over the batch as the
function itself is. JAX would differentiate the loop over lanes instead, and store the result of each of its operations.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from jaxik.batching.broadcast import fold
from jaxik.batching.method import WIDTH, single_pass
from jaxik.batching.run import lengthened, run_batch, run_elements, unfolded
from jaxik.batching.sharding import explicit_sharding
from jaxik.batching.trailing_vmap import without_repetitions

# `function(at, linear)` of one element: flat leaves of the point, and of the arguments that it is linear in.
Linear = Callable[[Sequence[Any], Sequence[Any]], list[jax.Array]]


def linear_of_each(
    function: Linear, invalid: jax.Array, at: Any, at_ranks: Any, linear: Any, linear_ranks: Any
) -> list[jax.Array]:
    """Apply a function that is linear in some of its arguments to each element of a batch.

    Args:
      function: of one element, in jax.numpy; given flat leaves, `linear` last, it returns a list of arrays.
      invalid: mask of elements without a derivative: their results are zero, forwards and backwards, and their `at` may
        be NaN.
      at, linear: pytrees of arrays with leading batch axes that broadcast, with those of `invalid`.
      at_ranks, linear_ranks: the core rank of every leaf.

    Returns:
      The arrays, with the common batch axes in front.
    """
    batch = fold((invalid, at, linear), (0, at_ranks, linear_ranks))
    count = 1 + len(jax.tree.leaves(at))

    def valid(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        return function(at[1:], linear)

    results = _bound(valid, count, batch.leaves, tuple(batch.mapped))
    return [unfolded(x, batch) for x in results]


def _bound(function: Linear, count: int, leaves: Sequence[Any], mapped: tuple[bool, ...]) -> list[jax.Array]:
    """Trace a function once and bind the primitive to it; its first leaf is the mask of invalid elements."""
    # Its equations would keep the mesh that is set here, and then not run on shards, where axes are manual.
    with jax.default_matmul_precision("highest"), jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
        traced = jax.make_jaxpr(lambda *leaves: function(leaves[:count], leaves[count:]))(*_elements(leaves, mapped))
        jaxpr = without_repetitions(traced)
    return _linear.bind(*leaves, jaxpr=jaxpr, count=count, mapped=mapped)


def of_each(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    ranks: tuple[Any, ...],
    width: int = WIDTH,
    present: jax.Array | None = None,
) -> Any:
    """Apply a function to each element of a batch, with derivatives of all orders.

    Args:
      function: of one element, in jax.numpy.
      arguments: pytrees of arrays with leading batch axes that broadcast.
      ranks: the core rank of every leaf of the arguments.
      width: how many elements are worked on side by side.
      present: as of `run_batch`; with it there are no derivatives.
    """
    if present is not None:
        return run_batch(single_pass(function, width), arguments, ranks, present)
    treedef = jax.tree.structure(arguments)
    shapes: list[Any] = []

    @jax.custom_jvp
    def run(*leaves: Any) -> list[Any]:
        results = run_batch(single_pass(function, width), jax.tree.unflatten(treedef, leaves), ranks)
        shapes[:] = [jax.tree.structure(results)]
        return jax.tree.leaves(results)

    def rule(leaves: Any, tangents: Any) -> Any:
        results = run(*leaves)
        nonzero = jax.tree.unflatten(treedef, leaves)
        along = {i: tangents[i] for i in moving(tangents)}
        return results, with_tangents(results, *tangents_of_each(function, nonzero, ranks, results, along))

    run.defjvp(rule, symbolic_zeros=True)
    results = run(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(shapes[0], results)


def tangents_of_each(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    ranks: tuple[Any, ...],
    results: Any,
    along: dict[int, jax.Array],
    invalid: Any = False,
) -> tuple[list[int], list[jax.Array]]:
    """Tangents of a function of each element.

    Args:
      function, arguments, ranks: as in `of_each`.
      results: its results.
      along: tangents of leaves of the arguments, by index; the others are zero.
      invalid: mask (*batch,) of elements whose tangents are zero.

    Returns:
      Indices of the leaves of the results that have tangents, and the tangents.
    """
    leaves, treedef = jax.tree.flatten(arguments)
    flat, active = jax.tree.leaves(ranks), sorted(along)
    differentiable = [i for i, x in enumerate(jax.tree.leaves(results)) if jnp.issubdtype(x.dtype, jnp.floating)]

    def tangent(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        def chosen(*values: Any) -> list[Any]:
            out = jax.tree.leaves(function(*jax.tree.unflatten(treedef, replaced(at, active, values))))
            return [out[i] for i in differentiable]

        return jax.jvp(chosen, [at[i] for i in active], list(linear))[1]

    if not active:
        return [], []
    by = [along[i] for i in active], [flat[i] for i in active]
    return differentiable, linear_of_each(tangent, jnp.asarray(invalid), leaves, flat, *by)


def moving(tangents: Sequence[Any]) -> list[int]:
    """Indices of the tangents of a rule that are not symbolic zeros."""
    return [i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero) and t.dtype != jax.dtypes.float0]


def replaced(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Replace the leaves at some indices."""
    new = list(leaves)
    for place, value in zip(places, values, strict=True):
        new[place] = value
    return new


def with_tangents(leaves: Sequence[Any], places: Sequence[int], tangents: Sequence[Any]) -> list[Any]:
    """A tangent for each leaf, zero except at some indices."""
    none = [SymbolicZero(jax.typeof(x).to_tangent_aval()) for x in leaves]
    return replaced(none, places, tangents)


_linear = Primitive("linear_of_each")
_linear.multiple_results = True


def _evaluate(
    *leaves: Any, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...], devices_known: bool = True
) -> list[jax.Array]:
    def valid(invalid: jax.Array, *leaves: Any) -> list[jax.Array]:
        return [jnp.where(invalid, 0, x) for x in jaxpr_as_fun(jaxpr)(invalid, *leaves)]

    return run_elements(single_pass(valid), leaves, mapped, jax.tree.structure(leaves), devices_known=devices_known)


def _shapes(*leaves: Any, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> list[Any]:
    size = [x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m][:1]
    spread = explicit_sharding(leaves, mapped) if size else None
    return [ShapedArray((*size, *x.shape), x.dtype, sharding=spread) for x in jaxpr.out_avals]


def _elements(leaves: Sequence[Any], mapped: Sequence[bool]) -> list[jax.ShapeDtypeStruct]:
    # A constant may arrive as a plain number.
    shapes = [np.shape(x)[1:] if m else np.shape(x) for x, m in zip(leaves, mapped, strict=True)]
    return [jax.ShapeDtypeStruct(shape, jnp.result_type(x)) for shape, x in zip(shapes, leaves, strict=True)]


def _jvp(primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> Any:
    results = _linear.bind(*primals, jaxpr=jaxpr, count=count, mapped=mapped)
    active = [
        i
        for i in _leaves_read(jaxpr)
        if not isinstance(tangents[i], ad.Zero) and tangents[i].dtype != jax.dtypes.float0
    ]
    total: list[Any] = []
    for along in ([i for i in active if i >= count], [i for i in active if i < count]):
        if not along:
            continue
        restricted = along[0] >= count
        at = primals[:count] if restricted else primals
        function = _restricted(jaxpr, count, along) if restricted else _derivative(jaxpr, along)
        directions = [tangents[i] for i in along]
        part = _bound(function, len(at), [*at, *directions], (*mapped[: len(at)], *(mapped[i] for i in along)))
        total = [t + m for t, m in zip(total, part, strict=True)] if total else part
    return results, total or [jnp.zeros_like(x) for x in results]


def _leaves_read(jaxpr: ClosedJaxpr) -> list[int]:
    """Indices of the leaves that a function reads: less than half of those of a whole robot."""
    read = {id(x) for eqn in jaxpr.jaxpr.eqns for x in eqn.invars} | {id(x) for x in jaxpr.jaxpr.outvars}
    return [i for i, x in enumerate(jaxpr.jaxpr.invars) if id(x) in read]


def _restricted(jaxpr: ClosedJaxpr, count: int, along: Sequence[int]) -> Linear:
    """Restrict the function to some of its linear arguments, with the others zero."""

    def restricted(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        leaves = [*at, *(jnp.zeros(x.shape, x.dtype) for x in jaxpr.in_avals[count:])]
        return jaxpr_as_fun(jaxpr)(*replaced(leaves, along, linear))

    return restricted


def _derivative(jaxpr: ClosedJaxpr, along: Sequence[int]) -> Linear:
    """The derivative of the function by some leaves of its point."""

    def derivative(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        def part(*values: Any) -> list[jax.Array]:
            return jaxpr_as_fun(jaxpr)(*replaced(at, along, values))

        return jax.jvp(part, [at[i] for i in along], list(linear))[1]

    return derivative


def _transpose(cts: Any, *leaves: Any, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> list[Any]:
    requested = [i for i in _leaves_read(jaxpr) if ad.is_undefined_primal(leaves[i])]
    nonzero = [i for i, ct in enumerate(cts) if not isinstance(ct, ad.Zero)]
    out: list[Any] = [None] * len(leaves)
    if not nonzero or not requested:
        return out

    def transposed(at: Sequence[Any], cotangents: Sequence[Any]) -> list[jax.Array]:
        def forward(linear: list[Any]) -> list[jax.Array]:
            results = _restricted(jaxpr, count, requested)(at, linear)
            return [results[i] for i in nonzero]

        shapes = [jax.ShapeDtypeStruct(jaxpr.in_avals[i].shape, jaxpr.in_avals[i].dtype) for i in requested]
        (input_cotangents,) = jax.linear_transpose(forward, shapes)(list(cotangents))
        return input_cotangents

    whole = any(mapped)
    cotangents = [cts[i] for i in nonzero]
    input_cotangents = _bound(
        transposed, count, [*leaves[:count], *cotangents], (*mapped[:count], *[whole] * len(nonzero))
    )
    for i, x in zip(requested, input_cotangents, strict=True):
        # The cotangent of a shared leaf is the sum over all elements.
        out[i] = jnp.sum(x, axis=0) if whole and not mapped[i] else x
    return out


def _batch(leaves: Any, axes: Any, *, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> Any:
    outer = [axis is not None for axis in axes]
    leaves = [jnp.moveaxis(x, axis, 0) if new else x for x, axis, new in zip(leaves, axes, outer, strict=True)]
    axis_size = next(x.shape[0] for x, new in zip(leaves, outer, strict=True) if new)
    mapped_now = tuple(m or new for m, new in zip(mapped, outer, strict=True))
    sizes = [x.shape[new] for x, m, new in zip(leaves, mapped, outer, strict=True) if m]
    if sizes:
        leaves = lengthened(leaves, mapped, outer, axis_size, sizes[0])
    results = _linear.bind(*leaves, jaxpr=jaxpr, count=count, mapped=mapped_now)
    if sizes:
        results = [x.reshape(axis_size, sizes[0], *x.shape[1:]) for x in results]
    return results, [0] * len(results)


def _lowered(ctx: mlir.LoweringRuleContext, *leaves: Any, **params: Any) -> Any:
    # Outside of jit JAX lowers a derivative alone, for whatever devices: then it cannot be shared out.
    context = ctx.module_context.axis_context
    devices_known = getattr(context, "device_assignment", None) is not None
    lowering = mlir.lower_fun(functools.partial(_evaluate, devices_known=devices_known), multiple_results=True)
    return lowering(ctx, *leaves, **params)


_linear.def_impl(lambda *leaves, **params: jax.jit(lambda *leaves: _evaluate(*leaves, **params))(*leaves))
_linear.def_abstract_eval(_shapes)
ad.primitive_jvps[_linear] = _jvp
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
mlir.register_lowering(_linear, _lowered)
