"""A batch of any size through programs of few sizes, so that one more size compiles next to nothing.

A first `solve` takes 4 to 13 s, and a notebook asks for 1,000 elements, then for 1,024, then for those that are left.
Outside of transformations batches are padded to a power of two; how many elements there are is data. What it costs: two
programs that copy, of 0.3 s to compile for each size, and a millisecond a call; a power of two needs none.
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
from jaxik.batching.devices import cores_for, mesh_of, most_for_one_core, say_idle
from jaxik.batching.method import WIDTH

# No batch is padded to fewer elements: two blocks of lanes. In a loop over one block XLA fuses what writes its results
# with what computes them, and residuals round otherwise than in larger batches.
LEAST = 2 * WIDTH
# Up to so many elements all programs are padded to a power of two, those too that work on the padding: poses of 4,096
# arms take 1 ms.
QUICK = 4096


def at_any_size(
    program: Callable[..., Any], arguments: dict[str, Any], ranks: dict[str, Any], *, takes_present: bool = True
) -> Any:
    """The results of a compiled program of a batch.

    Where an argument is traced, and where elements are spread over devices of the caller's choice, it runs as it is.

    Args:
      program: takes the arguments in their order; its results have the batch axes in front.
      arguments: pytrees of arrays with leading batch axes that broadcast, by the name that errors give them.
      ranks: the core rank of every leaf of the arguments.
      takes_present: whether the program takes `present` of `run_batch`, too, by name, and leaves out what is padding.
        Else it works on that as well: beyond `QUICK` elements there is an eighth at most.

    Raises:
      JaxikError: if the batch axes do not broadcast; out here, as `jit` adds lines of its own to errors.
    """
    shape, values = batch_shape(arguments, ranks), tuple(arguments.values())
    leaves, structure = jax.tree.flatten(values)
    count = math.prod(shape)
    if not shape or not count or any(isinstance(x, Tracer) for x in leaves):
        return program(*values)
    cores, one_core = (cores_for(count), most_for_one_core()) if takes_present else (1, math.inf)
    if jax.device_count() > 1 and any(isinstance(x, jax.Array) and len(x.sharding.device_set) > 1 for x in leaves):
        if cores == 1 and one_core == math.inf:
            return program(*values)
        if cores == 1:  # part of what was shared out
            leaves = jax.device_put(leaves, jax.devices("cpu")[0])
    size = cores * padded_size(-(-count // cores), to_power_of_two=takes_present)
    if cores == 1:
        size = int(min(size, one_core))
    if takes_present:  # poses and samples are over in a moment on one core
        say_idle(count)

    def run(leaves: list[Any], present: Any) -> Any:
        there = {"present": present} if takes_present else {}
        return program(*jax.tree.unflatten(structure, leaves), **there)

    if shape == (size,) and cores == 1:
        return run(leaves, np.ones(size, bool))
    own = jax.tree.leaves(tuple(ranks[name] for name in arguments))
    wide = [i for i, (x, rank) in enumerate(zip(leaves, own, strict=True)) if np.ndim(x) > rank]
    padded, present = _padded(shape, size, cores, tuple(own[i] for i in wide), [leaves[i] for i in wide])
    for i, x in zip(wide, padded, strict=True):
        leaves[i] = x
    return _unpadded(shape, cores, run(leaves, present))


def padded_size(count: int, *, to_power_of_two: bool) -> int:
    """To how many elements so many are padded: a power of two or, if not so and beyond `QUICK`, an eighth more."""
    octave = 1 << (count - 1).bit_length()
    unit = octave if to_power_of_two or count <= QUICK else octave // 16
    return max(LEAST, -(-count // unit) * unit)


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
