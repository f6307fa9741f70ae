"""The elements of a batch as lanes take them: any few at a time, lane axis last."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import filled
from jaxik.batching.method import Method
from jaxik.batching.trailing_vmap import PerElement, is_unbatched, vmap_last, vmap_last_where_mapped
from jaxik.numerics.fusion import materialize
from jaxik.numerics.indexing import entries, entry, with_entry


class Elements:
    """The arguments of N elements, and the contexts of any few of them, lane axis last.

    Attributes:
      count: N.
      total: how many are worked on, the first ones: N, or a number () that is known when the program runs.
      width: lanes side by side.
      differs: for each leaf of the context, whether it differs from element to element.
      one: shapes of one element's context.
    """

    def __init__(
        self,
        method: Method,
        leaves: list[jax.Array],
        mapped: tuple[bool, ...],
        treedef: Any,
        total: jax.Array | None = None,
    ) -> None:
        """Of arguments with this structure, of which mapped ones have a leading axis of N elements."""
        self.count = next(x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m)
        self.total = self.count if total is None else total
        self.width = method.width
        self._leaves, self._mapped = leaves, mapped
        self._given = [x for x, m in zip(leaves, mapped, strict=True) if m]
        self._prepare = PerElement(lambda *leaves: method.prepare(*jax.tree.unflatten(treedef, leaves)))
        known: dict[Any, Any] = {}
        context, differs = self._load(self._gathered(jnp.arange(method.width)), known)
        self._known = is_unbatched(known)
        self._shared, self._structure = jax.tree.flatten(context)
        self.differs = jax.tree.unflatten(self._structure, differs)
        self.one = jax.tree.map(
            lambda x, d: jax.ShapeDtypeStruct(x.shape[:-1] if d else x.shape, x.dtype), context, self.differs
        )

    def _load(self, given: list[jax.Array], known: dict[Any, Any]) -> tuple[Any, list[bool]]:
        """The contexts of elements of which `given` are the mapped arguments, lane axis last."""
        # XLA would turn or gather them again in each consumer.
        parts = iter(materialize(x) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in given)
        leaves = [next(parts) if m else x for x, m in zip(self._leaves, self._mapped, strict=True)]
        size = given[0].shape[-1]
        context, differs = vmap_last_where_mapped(self._prepare, self._mapped, size, known)(*leaves)
        return context, jax.tree.leaves(differs)

    def _gathered(self, which: jax.Array) -> list[jax.Array]:
        return lanes_of(self._given, self.clipped(which))

    def clipped(self, which: jax.Array) -> jax.Array:
        return jnp.minimum(which, self.count - 1)

    def own(self, which: jax.Array) -> list[jax.Array]:
        """What differs between the contexts of some elements."""
        return self._differing(self._gathered(which))

    def _differing(self, given: list[jax.Array]) -> list[jax.Array]:
        context, differs = self._load(given, dict(self._known))
        return [x for x, d in zip(jax.tree.leaves(context), differs, strict=True) if d]

    def blockwise(self, function: Callable[..., Any], *results: Any) -> Any:
        """Apply a function of one context and its results to all elements, results (N, ...), in blocks of lanes.

        Blocks without an element that is worked on give zeros. What is the same for all elements, whatever they are
        given, is not written block by block: of what `step` returns for bounds alone, a sixth. What one such call
        leaves is laid out as the next one wants it, which XLA sees where N is a multiple of the width: nothing is
        turned in between.
        """
        width = self.width
        blocks = math.ceil(self.count / width)
        element, mapped = PerElement(function), (self.differs, *(True for _ in results))
        of_lanes = vmap_last(element, mapped, width)

        def cut(x: jax.Array) -> jax.Array:
            return jnp.moveaxis(filled(x, blocks * width).reshape(blocks, width, *x.shape[1:]), 1, -1)

        parts = jax.tree.map(cut, (self._given, results))

        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), results)
        shapes, structure = jax.tree.flatten(element.shapes(self.one, *one))
        constants = element.constants(self.one, *one)

        def block(i: jax.Array, out: list[jax.Array]) -> list[jax.Array]:
            given, results = jax.tree.map(lambda x: entry(x, i), parts)
            found = jax.tree.leaves(of_lanes(self.context(self._differing(given)), *results))
            varying = [x for x, constant in zip(found, constants, strict=True) if constant is None]
            return [with_entry(x, i, new) for x, new in zip(out, varying, strict=True)]

        empty = [
            jnp.zeros((blocks, *x.shape, width), x.dtype)
            for x, constant in zip(shapes, constants, strict=True)
            if constant is None
        ]
        out = iter(lax.fori_loop(0, (self.total + width - 1) // width, block, empty))

        def turned(x: jax.Array, shape: Any) -> jax.Array:
            return jnp.moveaxis(x, -1, 1).reshape(blocks * width, *shape.shape)[: self.count]

        def of_elements(constant: Any, shape: Any) -> jax.Array:
            if constant is not None:
                return jnp.broadcast_to(constant, (self.count, *shape.shape))
            x = next(out)
            if x.dtype == bool:
                # XLA turns 4,096 by 14 bits one by one, in 102 us; as bytes in 30.
                return turned(x.astype(jnp.int8), shape) != 0
            return turned(x, shape)

        return jax.tree.unflatten(structure, map(of_elements, constants, shapes))

    def context(self, own: list[jax.Array]) -> Any:
        """The contexts of which `own` is what differs."""
        parts, differs = iter(own), jax.tree.leaves(self.differs)
        leaves = [next(parts) if d else x for x, d in zip(self._shared, differs, strict=True)]
        return jax.tree.unflatten(self._structure, leaves)


def lanes_of(results: Any, which: jax.Array) -> Any:
    """Rows `which` (W,) of results (N, ...), lane axis last."""
    return jax.tree.map(lambda x: jnp.moveaxis(entries(x, which), 0, -1), results)


class Packing:
    """Results as one vector of numbers and one of counts and flags: two arrays to gather and scatter, not a dozen."""

    def __init__(self, shapes: Any) -> None:
        """Of results with such leaves."""
        leaves, self._structure = jax.tree.flatten(shapes)
        self._leaves = leaves
        self._number = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]

    def pack(self, result: Any) -> tuple[jax.Array, jax.Array]:
        leaves = list(zip(jax.tree.leaves(result), self._number, strict=True))
        numbers = [jnp.ravel(x) for x, number in leaves if number]
        counts = [jnp.ravel(x).astype(jnp.int32) for x, number in leaves if not number]
        none = jnp.zeros(0, jnp.int32)
        return (jnp.concatenate(numbers) if numbers else none), jnp.concatenate([none, *counts])

    def unpack(self, packed: tuple[jax.Array, jax.Array]) -> Any:
        places, leaves = [0, 0], []
        for x, number in zip(self._leaves, self._number, strict=True):
            kind = 0 if number else 1
            end = places[kind] + x.size
            leaves.append(packed[kind][places[kind] : end].reshape(x.shape).astype(x.dtype))
            places[kind] = end
        return jax.tree.unflatten(self._structure, leaves)
