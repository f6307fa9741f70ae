"""A batch of any size through programs of few sizes, so that one more size compiles next to nothing.

A first `solve` takes 4 to 13 s, and a notebook asks for 1,000 elements, then for 1,024, then for those that are left.
Outside of transformations batches are padded to a power of two; how many elements there are is data.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from jaxik.batching.broadcast import batch_shape, fold
from jaxik.batching.devices import cores_for, mesh_of
from jaxik.batching.method import WIDTH


def at_any_size(
    program: Callable[..., Any], arguments: tuple[Any, ...], ranks: tuple[Any, ...], *, skips: bool = True
) -> Any:
    """The results of a compiled program of a batch.

    Under transformations, and where elements are spread over devices of the caller's choice, it runs as it is.

    Args:
      program: takes the arguments; its results have the batch axes in front.
      arguments: pytrees of arrays with leading batch axes that broadcast.
      ranks: the core rank of every leaf of the arguments.
      skips: whether the program takes `present` of `run_batch`, too, by name, and leaves out what is padding. Else it
        works on that as well: there is an eighth at most.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shape, own = batch_shape(arguments, ranks), jax.tree.leaves(ranks)
    count = math.prod(shape)
    if not shape or not count or any(isinstance(x, Tracer) for x in leaves):
        return program(*arguments)
    cores = cores_for(count) if skips else 1
    if cores == 1 and any(isinstance(x, jax.Array) and len(x.sharding.device_set) > 1 for x in leaves):
        return program(*arguments)
    size = cores * padded_size(-(-count // cores), by_halves=skips)
    if shape == (size,) and cores == 1:
        return program(*arguments, present=np.ones(size, bool)) if skips else program(*arguments)
    wide = [i for i, (x, rank) in enumerate(zip(leaves, own, strict=True)) if np.ndim(x) > rank]
    padded, present = _padded(shape, size, cores, tuple(own[i] for i in wide), [leaves[i] for i in wide])
    for i, x in zip(wide, padded, strict=True):
        leaves[i] = x
    padded_arguments = jax.tree.unflatten(structure, leaves)
    results = program(*padded_arguments, present=present) if skips else program(*padded_arguments)
    return _unpadded(shape, cores, results)


def padded_size(count: int, by_halves: bool) -> int:
    """To how many elements so many are padded: a power of two or up to an eighth more, at least a core's lanes."""
    unit = 1 << (count - 1).bit_length() if by_halves else 1 << max((count - 1).bit_length() - 4, 7)
    return max(WIDTH, -(-count // unit) * unit)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _padded(
    shape: tuple[int, ...], size: int, cores: int, ranks: tuple[int, ...], leaves: Sequence[Any]
) -> tuple[list[jax.Array], jax.Array]:
    """Arrays (*shape, *core) as (size, *core), and the mask (size,) of what was given: of each core's share the first.

    Padding is a copy of an element.
    """
    count = math.prod(shape)
    share, place = -(-count // cores), jnp.arange(size) % (size // cores)
    element = jnp.arange(size) // (size // cores) * share + place
    present = (place < share) & (element < count)
    batch = fold(leaves, ranks)
    spread = [x[jnp.minimum(element, count - 1)] if m else x for x, m in zip(batch.leaves, batch.mapped, strict=True)]
    if cores == 1:
        return spread, present
    on_cores = NamedSharding(mesh_of(cores), PartitionSpec("cores"))
    there = [
        jax.lax.with_sharding_constraint(x, on_cores) if m else x for x, m in zip(spread, batch.mapped, strict=True)
    ]
    return there, jax.lax.with_sharding_constraint(present, on_cores)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _unpadded(shape: tuple[int, ...], cores: int, results: Any) -> Any:
    """Results (size, ...) as (*shape, ...)."""
    count = math.prod(shape)
    share = -(-count // cores)

    def cut(x: jax.Array) -> jax.Array:
        of_cores = x.reshape(cores, x.shape[0] // cores, *x.shape[1:])[:, :share]
        return of_cores.reshape(cores * share, *x.shape[1:])[:count].reshape(*shape, *x.shape[1:])

    return jax.tree.map(cut, results)
