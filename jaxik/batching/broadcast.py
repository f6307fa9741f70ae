"""Leading batch axes outside, one element inside: from arrays with batch axes in front to lanes and back."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.batching.trailing_vmap import vmap_last
from jaxik.core.errors import JaxikError


class Batch(NamedTuple):
    """The leaves of some arguments, each with all batch axes folded into one leading axis, or with none.

    Attributes:
      shape: the common batch shape.
      leaves: arrays of shape (prod(shape), *core) where mapped, else (*core).
      mapped: for each leaf, whether it has the batch axis.
    """

    shape: tuple[int, ...]
    leaves: list[Any]
    mapped: list[bool]


def _own_shapes(tree: Any, ranks: Any) -> list[tuple[int, ...]]:
    """The leading batch axes of each leaf."""
    ranked = zip(jax.tree.leaves(tree), jax.tree.leaves(ranks), strict=True)
    every = ((x.shape if hasattr(x, "shape") else np.shape(x), rank) for x, rank in ranked)
    return [shape[: max(len(shape) - rank, 0)] for shape, rank in every]


def batch_shape(tree: Any, ranks: Any) -> tuple[int, ...]:
    """The batch shape that the leaves of `tree` share by broadcasting.

    Args:
      tree: pytree of arrays (*batch, *core).
      ranks: pytree of the same structure with the core rank of each leaf.

    Raises:
      JaxikError: if the batch shapes do not broadcast; names each leaf with its shape; and for sizes that are symbols.
    """
    shapes = _own_shapes(tree, ranks)
    if symbols := [str(n) for shape in shapes for n in shape if not isinstance(n, int)]:
        raise JaxikError(
            f"a batch of symbolic size {symbols[0]}: how elements share lanes follows from how many there are. "
            "Export programs of a fixed size each, and fill smaller batches up"
        )
    if len(different := {shape for shape in shapes if shape}) <= 1:
        return next(iter(different), ())
    try:
        return tuple(np.broadcast_shapes(*different))
    except ValueError:
        given = ", ".join(
            f"{jax.tree_util.keystr(path, simple=True, separator='.')}: {tuple(np.shape(x))} of which batch {s}"
            for (path, x), s in zip(jax.tree_util.tree_flatten_with_path(tree)[0], shapes, strict=True)
            if s
        )
        raise JaxikError(
            f"the leading batch axes do not broadcast: {given}. Give each array the same leading axes, or none"
        ) from None


def fold(tree: Any, ranks: Any) -> Batch:
    """Fold the batch axes that the leaves of `tree` share by broadcasting into one leading axis.

    Args, Raises: as for `batch_shape`; and `JaxikError` inside a `shard_map` that checks what varies over its mesh.
    """
    shape = batch_shape(tree, ranks)
    if any(map(_varies, jax.tree.leaves(tree))):
        raise JaxikError(
            "inside a jax.shard_map jaxik needs check_vma=False: it puts together what varies and what does not"
        )
    folded, mapped = [], []
    for x, own in zip(jax.tree.leaves(tree), _own_shapes(tree, ranks), strict=True):
        core = tuple(np.shape(x))[len(own) :]
        if not own:
            folded.append(x)
            mapped.append(False)
        elif math.prod(own) == 1 and math.prod(shape) != 1:
            folded.append(jnp.reshape(x, core))
            mapped.append(False)
        else:
            folded.append(jnp.reshape(jnp.broadcast_to(x, (*shape, *core)), (math.prod(shape), *core)))
            mapped.append(True)
    return Batch(shape, folded, mapped)


def _varies(x: Any) -> bool:
    """Whether a `shard_map` checks how `x` varies over its mesh; JAX has renamed what says so."""
    kind = jax.typeof(x)
    return bool(getattr(kind, "vma", ()) or getattr(getattr(kind, "manual_axis_type", None), "varying", ()))


def over_batch(function: Callable[..., Any], args: dict[str, Any], ranks: dict[str, Any]) -> Any:
    """Apply a function of one element over the leading batch axes of its arguments.

    Products are taken at full precision: the default of some devices has 1e-3 of relative error in float32.

    Args:
      function: takes `args` of one element as keywords, returns a pytree of arrays.
      args: pytrees of arrays with leading batch axes that broadcast, by the name that errors give them.
      ranks: the core rank of every leaf of `args`.

    Returns:
      The outputs with the common batch axes in front.

    Raises:
      JaxikError: if the batch axes do not broadcast.
    """
    batch = fold(args, ranks)
    treedef = jax.tree.structure(args)
    size = math.prod(batch.shape)
    with_last = [jnp.moveaxis(x, 0, -1) if m else x for x, m in zip(batch.leaves, batch.mapped, strict=True)]
    mapped = jax.tree.unflatten(treedef, batch.mapped)
    with jax.default_matmul_precision("highest"):
        if not batch.shape:
            return function(**args)
        out = vmap_last(lambda element: function(**element), (mapped,), size)(jax.tree.unflatten(treedef, with_last))
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0).reshape(*batch.shape, *x.shape[:-1]), out)


def filled(x: jax.Array, count: int) -> jax.Array:
    """`x` (n, ...), its last element repeated until there are so many."""
    missing = count - x.shape[0]
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))]) if missing else x
