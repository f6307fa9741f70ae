"""Parts of residuals by name and unit: "tip/position" [m]."""

from collections.abc import Mapping
from typing import Any

import jax


def parts(tree: Any) -> dict[str, Any]:
    """Every leaf of a pytree by the keys that lead to it, joined by "/"."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}


def nested(named: Mapping[str, Any]) -> dict[str, Any]:
    """Nest parts again into dicts of dicts: the inverse of `parts`."""
    tree: dict[str, Any] = {}
    for name, leaf in named.items():
        *folders, last = name.split("/")
        inner = tree
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[last] = leaf
    return tree


def part_units(tasks: Mapping[str, Any], residuals: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The unit of each part of the residuals (task name to what the task reports), as pairs; "" where unknown."""
    pairs = []
    for name, residual in residuals.items():
        units = parts(tasks[name].unit)
        for part in parts(residual):
            pairs.append((f"{name}/{part}" if part else name, units.get(part, units.get("", ""))))
    return tuple(sorted(pairs))
