"""Linear functions of each element, over any batch and any nesting of `vmap`, forwards and backwards.

Derivatives of what a batch of elements does are taken of one element, and the result is run over the batch as the
elements themselves are: JAX would differentiate the loop over lanes instead, and keep what every one of its operations
computed.
"""

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
from jaxik.batching.method import single_pass
from jaxik.batching.run import lengthened, run_batch, run_elements, unfolded
from jaxik.batching.trailing_vmap import without_repetitions

# Of one element: what it is linear at, and what it is linear in, to what comes of that.
Linear = Callable[[Sequence[Any], Sequence[Any]], list[jax.Array]]


def linear_of_each(
    function: Linear, void: jax.Array, at: Any, at_ranks: Any, linear: Any, linear_ranks: Any
) -> list[jax.Array]:
    """Apply a function that is linear in some of its arguments to each element of a batch.

    Args:
      function: of one element, in jax.numpy; given flat leaves, `linear` last, it returns a list of arrays.
      void: bool, whether an element has no derivative: what comes of it is zero, forwards and backwards, and what it is
        linear at may be NaN.
      at, linear: pytrees of arrays with leading batch axes that broadcast, with those of `void`.
      at_ranks, linear_ranks: the core rank of every leaf.

    Returns:
      The arrays, with the common batch axes in front.
    """
    batch = fold((void, at, linear), (0, at_ranks, linear_ranks))
    count = 1 + len(jax.tree.leaves(at))

    def valid(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        return function(at[1:], linear)

    found = _bound(valid, count, batch.leaves, tuple(batch.mapped))
    return [unfolded(x, batch) for x in found]


def _bound(function: Linear, count: int, leaves: Sequence[Any], mapped: tuple[bool, ...]) -> list[jax.Array]:
    """The primitive, of a function that is traced here, once. The first leaf says which elements are void."""
    with jax.default_matmul_precision("highest"):
        traced = jax.make_jaxpr(lambda *leaves: function(leaves[:count], leaves[count:]))(*_elements(leaves, mapped))
        jaxpr = without_repetitions(traced)
    return _linear.bind(*leaves, jaxpr=jaxpr, count=count, mapped=mapped)


def of_each(function: Callable[..., Any], arguments: tuple[Any, ...], ranks: tuple[Any, ...]) -> Any:
    """Apply a function to each element of a batch, so that it can be differentiated, again and again.

    Args:
      function: of one element, in jax.numpy.
      arguments: pytrees of arrays with leading batch axes that broadcast.
      ranks: the core rank of every leaf of the arguments.
    """
    treedef = jax.tree.structure(arguments)
    shapes: list[Any] = []

    @jax.custom_jvp
    def run(*leaves: Any) -> list[Any]:
        found = run_batch(single_pass(function), jax.tree.unflatten(treedef, leaves), ranks)
        shapes[:] = [jax.tree.structure(found)]
        return jax.tree.leaves(found)

    def rule(leaves: Any, tangents: Any) -> Any:
        found = run(*leaves)
        given = jax.tree.unflatten(treedef, leaves)
        along = {i: tangents[i] for i in moving(tangents)}
        return found, with_tangents(found, *tangents_of_each(function, given, ranks, found, along))

    run.defjvp(rule, symbolic_zeros=True)
    found = run(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(shapes[0], found)


def tangents_of_each(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    ranks: tuple[Any, ...],
    found: Any,
    along: dict[int, jax.Array],
    void: Any = False,
) -> tuple[list[int], list[jax.Array]]:
    """How what a function finds for each element moves with its arguments.

    Args:
      function, arguments, ranks: as of `of_each`.
      found: what it finds.
      along: tangents of those leaves of the arguments, by number, that have one.
      void: (*batch,), whether an element does not move, whatever its derivatives are.

    Returns:
      Which leaves of what is found move, by number, and their tangents.
    """
    leaves, treedef = jax.tree.flatten(arguments)
    flat, active = jax.tree.leaves(ranks), sorted(along)
    smooth = [i for i, x in enumerate(jax.tree.leaves(found)) if jnp.issubdtype(x.dtype, jnp.floating)]

    def tangent(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        def chosen(*values: Any) -> list[Any]:
            out = jax.tree.leaves(function(*jax.tree.unflatten(treedef, replaced(at, active, values))))
            return [out[i] for i in smooth]

        return jax.jvp(chosen, [at[i] for i in active], list(linear))[1]

    if not active:
        return [], []
    by = [along[i] for i in active], [flat[i] for i in active]
    return smooth, linear_of_each(tangent, jnp.asarray(void), leaves, flat, *by)


def moving(tangents: Sequence[Any]) -> list[int]:
    """Which of the tangents that a rule is given are not zero."""
    return [i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero) and t.dtype != jax.dtypes.float0]


def replaced(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """The leaves with those at some places replaced."""
    new = list(leaves)
    for place, value in zip(places, values, strict=True):
        new[place] = value
    return new


def with_tangents(leaves: Sequence[Any], places: Sequence[int], tangents: Sequence[Any]) -> list[Any]:
    """A tangent for each leaf: those given at some places, elsewhere zero."""
    none: list[Any] = [jnp.zeros(x.shape, jax.dtypes.float0 if _discrete(x) else x.dtype) for x in leaves]
    return replaced(none, places, tangents)


def _discrete(x: Any) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.inexact)


_linear = Primitive("linear_of_each")
_linear.multiple_results = True


def _evaluate(*leaves: Any, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> list[jax.Array]:
    def valid(void: jax.Array, *leaves: Any) -> list[jax.Array]:
        return [jnp.where(void, 0, x) for x in jaxpr_as_fun(jaxpr)(void, *leaves)]

    return run_elements(single_pass(valid), leaves, mapped, jax.tree.structure(leaves))


def _shapes(*leaves: Any, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> list[Any]:
    size = [x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m][:1]
    return [ShapedArray((*size, *x.shape), x.dtype) for x in jaxpr.out_avals]


def _elements(leaves: Sequence[Any], mapped: Sequence[bool]) -> list[jax.ShapeDtypeStruct]:
    # A constant may arrive as a plain number.
    shapes = [np.shape(x)[1:] if m else np.shape(x) for x, m in zip(leaves, mapped, strict=True)]
    return [jax.ShapeDtypeStruct(shape, jnp.result_type(x)) for shape, x in zip(shapes, leaves, strict=True)]


def _differentiated(primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> Any:
    found = _linear.bind(*primals, jaxpr=jaxpr, count=count, mapped=mapped)
    active = [
        i for i in _read(jaxpr) if not isinstance(tangents[i], ad.Zero) and tangents[i].dtype != jax.dtypes.float0
    ]
    total: list[Any] = []
    for along in ([i for i in active if i >= count], [i for i in active if i < count]):
        if not along:
            continue
        straight = along[0] >= count
        at = primals[:count] if straight else primals
        function = _partly(jaxpr, count, along) if straight else _derivative(jaxpr, along)
        moves = [tangents[i] for i in along]
        moved = _bound(function, len(at), [*at, *moves], (*mapped[: len(at)], *(mapped[i] for i in along)))
        total = [t + m for t, m in zip(total, moved, strict=True)] if total else moved
    return found, total or [jnp.zeros_like(x) for x in found]


def _read(jaxpr: ClosedJaxpr) -> list[int]:
    """Which leaves a function reads: of a whole robot's, less than half."""
    read = {id(x) for eqn in jaxpr.jaxpr.eqns for x in eqn.invars} | {id(x) for x in jaxpr.jaxpr.outvars}
    return [i for i, x in enumerate(jaxpr.jaxpr.invars) if id(x) in read]


def _partly(jaxpr: ClosedJaxpr, count: int, along: Sequence[int]) -> Linear:
    """The function of some of what it is linear in, the rest zero."""

    def straight(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        leaves = [*at, *(jnp.zeros(x.shape, x.dtype) for x in jaxpr.in_avals[count:])]
        return jaxpr_as_fun(jaxpr)(*replaced(leaves, along, linear))

    return straight


def _derivative(jaxpr: ClosedJaxpr, along: Sequence[int]) -> Linear:
    """The function's derivative by some of what it is linear at."""

    def bent(at: Sequence[Any], linear: Sequence[Any]) -> list[jax.Array]:
        def moved(*values: Any) -> list[jax.Array]:
            return jaxpr_as_fun(jaxpr)(*replaced(at, along, values))

        return jax.jvp(moved, [at[i] for i in along], list(linear))[1]

    return bent


def _transposed(cts: Any, *leaves: Any, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> list[Any]:
    asked = [i for i in _read(jaxpr) if ad.is_undefined_primal(leaves[i])]
    given = [i for i, ct in enumerate(cts) if not isinstance(ct, ad.Zero)]
    out: list[Any] = [None] * len(leaves)
    if not given or not asked:
        return out

    def back(at: Sequence[Any], pulls: Sequence[Any]) -> list[jax.Array]:
        def forth(linear: list[Any]) -> list[jax.Array]:
            found = _partly(jaxpr, count, asked)(at, linear)
            return [found[i] for i in given]

        shapes = [jax.ShapeDtypeStruct(jaxpr.in_avals[i].shape, jaxpr.in_avals[i].dtype) for i in asked]
        (pulled,) = jax.linear_transpose(forth, shapes)(list(pulls))
        return pulled

    whole = any(mapped)
    pulls = [cts[i] for i in given]
    pulled = _bound(back, count, [*leaves[:count], *pulls], (*mapped[:count], *[whole] * len(given)))
    for i, x in zip(asked, pulled, strict=True):
        # What all elements share is pulled by each of them.
        out[i] = jnp.sum(x, axis=0) if whole and not mapped[i] else x
    return out


def _batched(leaves: Any, axes: Any, *, jaxpr: ClosedJaxpr, count: int, mapped: tuple[bool, ...]) -> Any:
    outer = [axis is not None for axis in axes]
    leaves = [jnp.moveaxis(x, axis, 0) if new else x for x, axis, new in zip(leaves, axes, outer, strict=True)]
    axis_size = next(x.shape[0] for x, new in zip(leaves, outer, strict=True) if new)
    together = tuple(m or new for m, new in zip(mapped, outer, strict=True))
    sizes = [x.shape[new] for x, m, new in zip(leaves, mapped, outer, strict=True) if m]
    if sizes:
        leaves = lengthened(leaves, mapped, outer, axis_size, sizes[0])
    found = _linear.bind(*leaves, jaxpr=jaxpr, count=count, mapped=together)
    if sizes:
        found = [x.reshape(axis_size, sizes[0], *x.shape[1:]) for x in found]
    return found, [0] * len(found)


_linear.def_impl(lambda *leaves, **params: jax.jit(lambda *leaves: _evaluate(*leaves, **params))(*leaves))
_linear.def_abstract_eval(_shapes)
ad.primitive_jvps[_linear] = _differentiated
ad.primitive_transposes[_linear] = _transposed
batching.primitive_batchers[_linear] = _batched
mlir.register_lowering(_linear, mlir.lower_fun(_evaluate, multiple_results=True))
