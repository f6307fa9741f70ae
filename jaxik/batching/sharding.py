"""Elements that are spread over devices stay there, and so do their results: each device works through its own."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import NamedSharding, PartitionSpec

# The axis of elements in the rule for the partitioner.
ELEMENTS = "elements"


def on_shards(
    function: Callable[..., Any], leaves: Sequence[Any], mapped: Sequence[bool], devices_known: bool = True
) -> Any:
    """The results of `function`, worked out by each device for the elements that it has.

    XLA knows no way to divide a loop over lanes that take elements from one queue: it would gather all elements on each
    device. Here it learns that elements are independent. With one device, and in a `shard_map`, nothing is added to the
    program.

    Args:
      function: leaves -> a pytree of arrays with a leading axis of N elements.
      leaves: mapped ones have that axis, too.
      devices_known: False where JAX lowers for whatever devices: then only types can say how elements are spread.
    """
    if jax.device_count() == 1 or jax.sharding.get_abstract_mesh().manual_axes:
        return function(*leaves)
    if (spread := explicit_sharding([jax.typeof(x) for x in leaves], mapped)) is not None:
        return _on_explicit_shards(function, leaves, mapped, spread)
    if not devices_known:
        return function(*leaves)
    x64, precision = jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    whole, shapes = jax.make_jaxpr(function, return_shape=True)(*leaves)
    # What partitions takes no constants: they are arguments, which all devices have.
    consts = [*whole.consts, _fingerprint(whole, leaves)]
    count, has_axis = len(consts), (*(False for _ in consts), *mapped)

    def evaluated(*arrays: Any) -> list[Any]:
        return jaxpr_as_fun(ClosedJaxpr(whole.jaxpr, arrays[: count - 1]))(*arrays[count:])

    def of_one_device(*arrays: Any) -> list[Any]:
        # It is traced when XLA compiles, where what was set around the call is no longer so.
        with jax.enable_x64(x64), jax.default_matmul_precision(precision):
            return jax.tree.leaves(function(*arrays[count:]))

    def divided(mesh: Any, arguments: Any, results: Any) -> Any:
        # Where no argument of the program is spread, JAX names no mesh here, and its shardings have no spec.
        specs = [getattr(x.sharding, "spec", None) for x, m in zip(arguments, has_axis, strict=True) if m]
        axes = next((spec[0] for spec in specs if spec), None)
        share = tuple(NamedSharding(mesh, PartitionSpec(axes) if m else PartitionSpec()) for m in has_axis)
        return mesh, of_one_device, [NamedSharding(mesh, PartitionSpec(axes)) for _ in results], share

    def rule(mesh: Any, operands: Any, results: Any) -> SdyShardingRule:
        return _rule([x.rank for x in operands], [x.rank for x in results], has_axis)

    partitioned = custom_partitioning(evaluated)
    partitioned.def_partition(divided, sharding_rule=rule)
    return jax.tree.unflatten(jax.tree.structure(shapes), partitioned(*consts, *leaves))


def _fingerprint(whole: ClosedJaxpr, leaves: Sequence[Any]) -> np.ndarray:
    """Numbers that differ where programs do, as an argument of what is partitioned.

    All that a module says of it is the address of a function, which the key of the compilation cache leaves out where
    it is to be found again: without these numbers, programs of equal arguments and results would have one key.
    """
    if not jax.config.jax_remove_custom_partitioning_ptr_from_cache_key:  # type: ignore[attr-defined]
        return np.zeros(8, np.uint32)
    shapes = [jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.result_type(x)) for x in (*whole.consts, *leaves)]
    count = len(whole.consts)
    program = jax.jit(lambda *own: jaxpr_as_fun(ClosedJaxpr(whole.jaxpr, own[:count]))(*own[count:]))
    return np.frombuffer(hashlib.sha256(program.lower(*shapes).as_text().encode()).digest(), np.uint32)


def _rule(operands: list[int], results: list[int], mapped: Sequence[bool]) -> SdyShardingRule:
    """That operands and results share the axis of elements; all other axes are whole on each device."""
    others: list[str] = []

    def mapping(rank: int, has_elements: bool) -> ArrayMapping:
        own = [f"whole{len(others) + i}" for i in range(rank - has_elements)]
        others.extend(own)
        return ArrayMapping(*([ELEMENTS] if has_elements else []), *own)

    inputs = tuple(mapping(rank, m) for rank, m in zip(operands, mapped, strict=True))
    outputs = tuple(mapping(rank, True) for rank in results)
    return SdyShardingRule(inputs, outputs, need_replication_factors=tuple(others))


def explicit_sharding(types: Sequence[Any], mapped: Sequence[bool]) -> NamedSharding | None:
    """How the axis of elements is spread, where the types of arrays, `jax.typeof`, say so."""
    shardings = [x.sharding for x in types]
    mesh = next((x.mesh for x in shardings if not x.mesh.empty and x.mesh.explicit_axes), None)
    if mesh is None:
        return None
    specs = [x.spec for x, m in zip(shardings, mapped, strict=True) if m]
    return NamedSharding(mesh, PartitionSpec(next((spec[0] for spec in specs if spec and spec[0] is not None), None)))


def _on_explicit_shards(
    function: Callable[..., Any], leaves: Sequence[Any], mapped: Sequence[bool], spread: NamedSharding
) -> Any:
    wanted = tuple(spread.spec if m else PartitionSpec() for m in mapped)
    moved = [jax.sharding.reshard(x, NamedSharding(spread.mesh, own)) for x, own in zip(leaves, wanted, strict=True)]
    return jax.shard_map(function, mesh=spread.mesh, in_specs=wanted, out_specs=spread.spec, check_vma=False)(*moved)
