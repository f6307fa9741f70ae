"""A function computed in double precision, whatever precision JAX is set to, as a primitive.

Inside of `jax.enable_x64` a function is traced in double precision wherever it is called. But rules of JAX that see its
operations later, as they are batched, transposed or lowered, make constants of the precision that is set then. A
primitive keeps its operations together, and has them seen in double precision only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from jaxik.core.pytree import cast


def in_double(function: Callable[..., Any], *arguments: Any, linear: tuple[Any, ...] = ()) -> Any:
    """`function(*arguments, *linear)` of pytrees of arrays, whose floating leaves come to it as float64.

    Args:
      function: in jax.numpy. What it returns may be float64, for another function in double precision.
      arguments: it has no derivative by these.
      linear: it is linear in these, and has derivatives by them alone, forwards and backwards.
    """
    leaves, structure = jax.tree.flatten((arguments, linear))
    shapes: list[Any] = []

    def flat(*leaves: Any) -> list[jax.Array]:
        arguments, linear = jax.tree.unflatten(structure, cast(leaves, jnp.float64))
        results = function(*arguments, *linear)
        shapes[:] = [jax.tree.structure(results)]
        return jax.tree.leaves(results)

    count = len(jax.tree.leaves(arguments))
    results = _bound(flat, leaves, count)
    return jax.tree.unflatten(shapes[0], results)


_double = Primitive("in_double")
_double.multiple_results = True


def _bound(function: Callable[..., list[jax.Array]], leaves: Sequence[Any], count: int) -> list[jax.Array]:
    """Trace a function of flat leaves, linear in those after the first `count`, and bind the primitive to it."""
    given = [jax.ShapeDtypeStruct(np.shape(x), jnp.result_type(x)) for x in leaves]
    with jax.enable_x64(True):
        jaxpr = jax.make_jaxpr(function)(*given)
    return _double.bind(*leaves, jaxpr=jaxpr, count=count)


def _evaluate(*leaves: Any, jaxpr: ClosedJaxpr, count: int) -> list[jax.Array]:
    with jax.enable_x64(True):
        return jax.jit(jaxpr_as_fun(jaxpr))(*leaves)


def _jvp(primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, count: int) -> Any:
    if not all(isinstance(t, ad.Zero) or t.dtype == jax.dtypes.float0 for t in tangents[:count]):
        raise NotImplementedError("in_double has derivatives by its linear arguments alone")
    results = _double.bind(*primals, jaxpr=jaxpr, count=count)
    along = [ad.instantiate_zeros(t) for t in tangents[count:]]
    return results, _double.bind(*primals[:count], *along, jaxpr=jaxpr, count=count)


def _transpose(cts: Any, *leaves: Any, jaxpr: ClosedJaxpr, count: int) -> list[Any]:
    nonzero = [i for i, ct in enumerate(cts) if not isinstance(ct, ad.Zero)]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jaxpr.in_avals[count:]]

    def transposed(*leaves: Any) -> list[jax.Array]:
        def forward(*linear: jax.Array) -> list[jax.Array]:
            results = jaxpr_as_fun(jaxpr)(*leaves[:count], *linear)
            return [results[i] for i in nonzero]

        return list(jax.linear_transpose(forward, *shapes)(list(leaves[count:])))

    cotangents = _bound(transposed, [*leaves[:count], *(cts[i] for i in nonzero)], count)
    return [*[None] * count, *cotangents]


def _batch(leaves: Any, axes: Any, *, jaxpr: ClosedJaxpr, count: int) -> Any:
    size = next(x.shape[axis] for x, axis in zip(leaves, axes, strict=True) if axis is not None)
    mapped = jax.vmap(jaxpr_as_fun(jaxpr), in_axes=tuple(axes), axis_size=size)
    results = _bound(mapped, leaves, count)
    return results, [0] * len(results)


def _lowered(ctx: mlir.LoweringRuleContext, *leaves: Any, jaxpr: ClosedJaxpr, count: int) -> Any:
    with jax.enable_x64(True):
        return mlir.lower_fun(jaxpr_as_fun(jaxpr), multiple_results=True)(ctx, *leaves)


_double.def_impl(_evaluate)
_double.def_abstract_eval(lambda *leaves, jaxpr, count: jaxpr.out_avals)
ad.primitive_jvps[_double] = _jvp
ad.primitive_transposes[_double] = _transpose
batching.primitive_batchers[_double] = _batch
mlir.register_lowering(_double, _lowered)
