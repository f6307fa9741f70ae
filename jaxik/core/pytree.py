"""Frozen dataclasses that are JAX pytrees: topology in the tree structure, everything that is tuned in leaves."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A field that belongs to the tree structure: hashable, and a change of it recompiles."""
    return dataclasses.field(**kwargs, metadata={"static": True})


def leaf(rank: int = 0, **kwargs: Any) -> Any:
    """A traced field whose value for one element has `rank` axes; whatever leads them is batch."""
    return dataclasses.field(**kwargs, metadata={"rank": rank})


@dataclass_transform(frozen_default=True, field_specifiers=(static, leaf, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and register it as a pytree.

    Fields made by `static` are part of the structure, all others are children. Unlike
    `jax.tree_util.register_dataclass`, rebuilding an instance from its leaves does not run `__post_init__`, so a
    constructor may validate its arguments: inside transformations leaves can be tracers, axes or sentinels.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False, repr="__repr__" not in cls.__dict__)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    for field in fields:
        # A field may stand for an inherited property, which has no setter: a task's `frames`.
        if isinstance(getattr(cls, field.name, None), property):
            setattr(cls, field.name, None)
    statics = tuple(f.name for f in fields if f.metadata.get("static"))
    children = tuple(f.name for f in fields if not f.metadata.get("static"))

    def flatten_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        keyed = [(jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in children]
        return keyed, tuple(getattr(tree, name) for name in statics)

    def flatten(tree: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(tree, name) for name in children], tuple(getattr(tree, name) for name in statics)

    def unflatten(aux: tuple[Any, ...], values: Any) -> Any:
        tree = object.__new__(cls)
        for name, value in zip(statics, aux, strict=True):
            object.__setattr__(tree, name, value)
        for name, value in zip(children, values, strict=True):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def set_fields(tree: Any, **values: Any) -> None:
    """Replace fields of a frozen instance that nobody else holds yet: in its `__post_init__`, or of a fresh copy."""
    for name, value in values.items():
        object.__setattr__(tree, name, value)


def given_dict(value: Any) -> Any:
    """A dict again where it is the pairs that a static field keeps of one, as `dataclasses.replace` hands them on."""
    pairs = isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
    return dict(value) if pairs else value


def core_ranks(tree: Any, rank: int = 0) -> Any:
    """The number of axes that each leaf of `tree` has for one element, as a pytree of the same structure.

    Fields declare theirs with `leaf(rank=...)`; a jaxlie group has 1; what stands in neither has `rank`.
    """
    return jax.tree.unflatten(jax.tree.structure(tree), list(_ranks(tree, rank)))


def _ranks(tree: Any, rank: int) -> Iterator[int]:
    """The ranks of the leaves, in their order."""
    if tree is None:
        return
    if isinstance(tree, jax.Array | np.ndarray | float):
        yield rank
    elif (fields := _leaf_fields(type(tree))) is not None:
        for name, own in fields:
            yield from _ranks(getattr(tree, name), rank if own is None else own)
    elif isinstance(tree, jaxlie.MatrixLieGroup):
        yield from (1 for _ in jax.tree.leaves(tree))
    elif isinstance(tree, Mapping | list | tuple) and not hasattr(tree, "_fields"):
        for child in jax.tree.leaves(tree, is_leaf=lambda x: x is not tree):
            # What JAX does not know as a pytree is one leaf.
            yield from _ranks(child, rank) if child is not tree else (rank,)
    else:
        yield from (rank for _ in jax.tree.leaves(tree))


@cache
def _leaf_fields(cls: type) -> tuple[tuple[str, int | None], ...] | None:
    """Names and ranks of the traced fields of a dataclass, None where a field says none; None of other classes."""
    if not dataclasses.is_dataclass(cls) or issubclass(cls, jaxlie.MatrixLieGroup):
        return None
    fields = [f for f in dataclasses.fields(cls) if not f.metadata.get("static")]
    return tuple((f.name, f.metadata.get("rank")) for f in fields)


def shapes_of_one(function: Callable[[Any], Any], tree: Any) -> Any:
    """The shapes of what a function returns for one element of `tree`, whose leaves may have batch axes in front."""

    def of_one(x: Any, rank: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(jnp.shape(x)[max(jnp.ndim(x) - rank, 0) :], jnp.result_type(x))

    return jax.eval_shape(function, jax.tree.map(of_one, tree, core_ranks(tree)))


def cast(tree: Any, dtype: Any) -> Any:
    """Every floating leaf in one dtype."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x, tree)
