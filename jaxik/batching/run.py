"""Any leading batch axes and any nesting of `vmap` become one stream of elements."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jax.sharding import PartitionSpec

from jaxik.batching.broadcast import Batch, filled, fold
from jaxik.batching.devices import cores_for, mesh_of, say_idle
from jaxik.batching.method import Method, iterate
from jaxik.batching.queue import stream
from jaxik.batching.sharding import on_shards
from jaxik.batching.small_products import with_sums
from jaxik.batching.uncollected import uncollected
from jaxik.numerics.alone import alone


def run_batch(
    method: Method, arguments: tuple[Any, ...], ranks: tuple[Any, ...], present: jax.Array | None = None
) -> Any:
    """Run `method` over the batch axes of its arguments.

    No batch axis runs as it is, with the least latency. All others run as one stream, so that an element's result
    depends neither on the size of the batch nor on its neighbours; a `vmap` around the call lengthens the stream.

    Args:
      method: what is done with each element.
      arguments: pytrees of arrays with leading batch axes that broadcast.
      ranks: the core rank of every leaf of the arguments.
      present: (*batch,) of bool, all that are True first: which elements are worked on. None: all of them.

    Returns:
      The results, with the common batch axes in front.
    """
    batch = fold((arguments, present), (ranks, None if present is None else 0))
    # The default precision of some devices has 1e-3 of relative error in float32.
    with jax.default_matmul_precision("highest"):
        results = run_elements(
            method, batch.leaves, tuple(batch.mapped), jax.tree.structure(arguments), has_present=present is not None
        )
    return unfolded(results, batch)


def unfolded(results: Any, batch: Batch) -> Any:
    """Results of the elements of a batch, with its axes in front."""
    if any(batch.mapped):
        return jax.tree.map(lambda x: x.reshape(*batch.shape, *x.shape[1:]), results)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*batch.shape, *x.shape)), results)


def run_elements(
    method: Method,
    leaves: Sequence[Any],
    mapped: tuple[bool, ...],
    treedef: Any,
    *,
    has_present: bool = False,
    devices_known: bool = True,
) -> Any:
    """Run `method` over the leading axis of those leaves of its arguments that have one.

    Args:
      has_present: whether one more leaf, the last one, says which elements are worked on.
      devices_known: see `on_shards`.
    """
    folding = _folding(method, mapped, treedef, has_present, devices_known)
    count = next((x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m), 1)
    cores = cores_for(count) if any(mapped) else 1
    if not has_present:  # else how many elements there are was known before
        say_idle(count)
    # Values that are known run at once, which may take long.
    with uncollected() if any(isinstance(x, Tracer) for x in leaves) else nullcontext():
        return folding(*leaves) if cores == 1 else _shared_out(folding, leaves, mapped, cores)


def _shared_out(folding: Any, given: Sequence[Any], mapped: tuple[bool, ...], cores: int) -> Any:
    """The results of `folding`, each core working on its share of the elements."""
    count = next(x.shape[0] for x, m in zip(given, mapped, strict=True) if m)
    share = -(-count // cores)

    leaves = [filled(x, share * cores) if m else x for x, m in zip(given, mapped, strict=True)]
    specs = tuple(PartitionSpec("cores") if m else PartitionSpec() for m in mapped)
    run = jax.shard_map(folding, mesh=mesh_of(cores), in_specs=specs, out_specs=PartitionSpec("cores"), check_vma=False)
    return jax.tree.map(lambda x: x[:count], run(*leaves))


def _folding(method: Method, mapped: tuple[bool, ...], treedef: Any, has_present: bool, devices_known: bool) -> Any:
    """The method over leaves of which the mapped ones have one leading axis; under `vmap`, over a longer one."""
    arguments = treedef.num_leaves

    def work_through(*leaves: Any) -> Any:
        present = leaves[arguments] if has_present else None
        return stream(method, list(leaves[:arguments]), mapped[:arguments], treedef, present)

    @custom_vmap
    def run(*leaves: Any) -> Any:
        if any(mapped):
            with alone(False):
                return on_shards(work_through, leaves, mapped, devices_known)
        with alone():
            return with_sums(lambda *own: iterate(method, *jax.tree.unflatten(treedef, own)))(*leaves)

    @run.def_vmap
    def lengthen(axis_size: int, in_batched: list[bool], *leaves: Any) -> Any:
        if not any(in_batched):
            results = run(*leaves)
            return results, jax.tree.map(lambda _: False, results)
        size = next((x.shape[b] for x, m, b in zip(leaves, mapped, in_batched, strict=True) if m), None)
        now_mapped = tuple(m or b for m, b in zip(mapped, in_batched, strict=True))
        if size is None:
            results = _folding(method, now_mapped, treedef, has_present, devices_known)(*leaves)
            return results, jax.tree.map(lambda _: True, results)
        folded = lengthened(leaves, mapped, in_batched, axis_size, size)
        results = _folding(method, now_mapped, treedef, has_present, devices_known)(*folded)
        results = jax.tree.map(lambda x: x.reshape(axis_size, size, *x.shape[1:]), results)
        return results, jax.tree.map(lambda _: True, results)

    return run


def lengthened(
    leaves: Sequence[Any], mapped: Sequence[bool], outer: Sequence[bool], axis_size: int, size: int
) -> list[Any]:
    """Leaves with a leading axis for elements, where mapped, behind one of `vmap`, where outer: both made one axis."""
    folded = []
    for x, was, new in zip(leaves, mapped, outer, strict=True):
        if was or new:
            core = x.shape[was + new :]
            x = x if new else x[None]
            x = x if was else x[:, None]
            x = jnp.broadcast_to(x, (axis_size, size, *core)).reshape(axis_size * size, *core)
        folded.append(x)
    return folded
