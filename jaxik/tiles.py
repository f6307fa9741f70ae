"""Verbs over batches: any leading axes and any nesting of `vmap` become tiles of one fixed width."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxik.batching import fold
from jaxik.lanes import lanes

# Lanes per tile. Narrower, the fixed cost of a step's operations shows; wider, a tile no longer fits the L2 cache:
# 1.44, 1.57, 1.61 and 1.44 M Panda steps/s at 128, 256, 512 and 1024 on one core. Of equals the one that wastes less.
TILE = 256


def in_tiles(function: Callable[..., Any], arguments: tuple[Any, ...], *ranks: Any) -> Any:
    """Apply a function of one element over the batch axes of its arguments.

    A batch of no axes runs as it is. All others run in tiles of TILE lanes, so that an element's answer depends
    neither on the size of the batch nor on its neighbours; a `vmap` around the call adds to the batch.

    Args:
      function: of one element; takes `arguments`, returns a pytree of arrays.
      arguments: pytrees of arrays with leading batch axes that broadcast.
      ranks: for each argument, the core rank of every leaf.

    Returns:
      The outputs with the common batch axes in front.
    """
    batch = fold(arguments, ranks)
    treedef = jax.tree.structure(arguments)
    run = _folding(lambda *leaves: function(*jax.tree.unflatten(treedef, leaves)), tuple(batch.mapped))
    outputs = run(*batch.leaves)
    if not any(batch.mapped) and batch.shape:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*batch.shape, *x.shape)), outputs)
    return jax.tree.map(lambda x: x.reshape(*batch.shape, *x.shape[bool(batch.shape) :]), outputs)


def _folding(element: Callable[..., Any], mapped: tuple[bool, ...]) -> Callable[..., Any]:
    """`element` over leaves of which the mapped ones have one leading batch axis; under `vmap`, over a longer one."""

    @custom_vmap
    def run(*leaves: Any) -> Any:
        return _tiled(element, leaves, mapped) if any(mapped) else element(*leaves)

    @run.def_vmap
    def fold_axis(axis_size: int, in_batched: list[bool], *leaves: Any) -> Any:
        size = next((x.shape[b] for x, m, b in zip(leaves, mapped, in_batched, strict=True) if m), None)
        folded = []
        for x, has_axis, is_new in zip(leaves, mapped, in_batched, strict=True):
            core = x.shape[has_axis + is_new :]
            if not has_axis and not is_new:
                folded.append(x)
                continue
            if size is not None:
                x = x if is_new else x[None]
                x = x if has_axis else x[:, None]
                x = jnp.broadcast_to(x, (axis_size, size, *core)).reshape(axis_size * size, *core)
            folded.append(x)
        now_mapped = tuple(m or b for m, b in zip(mapped, in_batched, strict=True))
        outputs = _folding(element, now_mapped)(*folded)
        if size is not None:
            outputs = jax.tree.map(lambda x: x.reshape(axis_size, size, *x.shape[1:]), outputs)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return run


def _tiled(element: Callable[..., Any], leaves: tuple[Any, ...], mapped: tuple[bool, ...]) -> Any:
    size = next(x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m)
    tiles = max(math.ceil(size / TILE), 1)
    # Lanes beyond the batch repeat its last element, and so never run longer than it.
    rows = jnp.minimum(jnp.arange(tiles * TILE), size - 1)
    cut = [jnp.moveaxis(x[rows].reshape(tiles, TILE, *x.shape[1:]), 1, -1) for x, m in zip(leaves, mapped, strict=True) if m]

    def one_tile(parts: list[Any]) -> Any:
        remaining = iter(parts)
        return lanes(element, mapped, TILE)(
            *(next(remaining) if m else x for x, m in zip(leaves, mapped, strict=True))
        )

    outputs = lax.map(one_tile, cut)
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 1).reshape(tiles * TILE, *x.shape[1:-1])[:size], outputs)
