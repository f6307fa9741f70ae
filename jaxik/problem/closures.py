"""Values that a class of tasks closes over: what is traced there is neither batched nor differentiated."""

import inspect
from collections.abc import Iterator
from typing import Any

import jax
from jax.core import Tracer


def traced_closure(own: type) -> str | None:
    """The name of a traced value that a method of a class, written inside a traced function, closes over."""
    if own.__module__.startswith("jaxik."):
        return None
    for function in _functions(own):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                held = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if any(isinstance(x, Tracer) for x in jax.tree.leaves(held)):
                return name
    return None


def _functions(own: type) -> Iterator[Any]:
    for member in (member for base in own.__mro__ for member in vars(base).values()):
        getter = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(getter):
            yield inspect.unwrap(getter)
