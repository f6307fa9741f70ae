"""What belongs to each of several independent chains: blocks of rows and columns, and what is put together of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.numerics.linalg import PAD, static_gather
from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.box import Box
from jaxik.solvers.nonlinear.chains import Group, Item, items_of, joined
from jaxik.solvers.nonlinear.formulation import Formulation, row_spans
from jaxik.solvers.nonlinear.hard_constraint import clearances


class Split(NamedTuple):
    """What belongs to each of k chains.

    Attributes:
      groups: degrees of freedom.
      items: tasks and constraints.
      columns (k, c): coordinates of the box; PAD after the last.
    """

    groups: tuple[Group, ...]
    items: tuple[tuple[Item, ...], ...]
    columns: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """k."""
        return len(self.groups)


def split_of(prepared: Formulation) -> Split | None:
    """The chains of a problem; None where there is one, or where limits on distances may join them.

    Nor where no joint moves a task: its cost is of no chain.
    """
    items = items_of(prepared)
    if prepared.slack or clearances(prepared.problem) or not all(item.dofs for item in items):
        return None
    groups = joined(prepared, items)
    # Joints that a posture alone asks for.
    if rest := frozenset(dof for item in items for dof in item.dofs).difference(*groups):
        groups.append(rest)
    if len(groups) < 2:
        return None
    own = [[i for i, dof in enumerate(prepared.moving.own) if dof in group] for group in groups]
    return Split(
        tuple(groups), tuple(tuple(item for item in items if item.dofs & group) for group in groups), _filled(own)
    )


def _filled(lists: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    most = max(map(len, lists))
    return tuple(tuple(places + [PAD] * (most - len(places))) for places in lists)


def rows_of(prepared: Formulation, split: Split, level: Level) -> tuple[tuple[int, ...], ...]:
    """Of each chain its rows (k, r) among those of a level; PAD after the last."""
    spans = row_spans(prepared, level)
    parts = [[item.part for item in items if item.part.task in level] for items in split.items]
    return _filled([[i for p in own for i in spans[p.task][slice(*(p.rows or (None,)))]] for own in parts])


def by_columns(split: Split, x: jax.Array) -> jax.Array:
    """Entries (n,) of the box's coordinates by chains (k, c)."""
    return blocks(x, split.columns)


def blocks(x: jax.Array, places: tuple[tuple[int, ...], ...]) -> jax.Array:
    """Rows of `x` (m, ...) by chains (k, r, ...), zeros for PAD."""
    taken = static_gather(x, [i for own in places for i in own])
    return taken.reshape(len(places), -1, *x.shape[1:])


def matrices(x: jax.Array, columns: tuple[tuple[int, ...], ...]) -> jax.Array:
    """Of rows (k, r, n) of each chain, its own columns (k, r, c)."""
    return jnp.stack([static_gather(x[i], own, axis=-1) for i, own in enumerate(columns)])


def box_of(split: Split, limits: Box) -> Box:
    """Bounds by chains; its axes and slopes are of the whole."""
    none = jnp.zeros((split.size, 0), limits.lower.dtype)
    return Box(by_columns(split, limits.lower), by_columns(split, limits.upper), (), none, None)


def together(split: Split, prepared: Formulation, x: jax.Array) -> jax.Array:
    """Entries by chains (k, c) as one vector (n,), zeros where no chain has one."""
    place = {i: at for at, i in enumerate(i for own in split.columns for i in own) if i != PAD}
    return static_gather(x.reshape(-1), [place.get(i, PAD) for i in range(len(prepared.moving.own))])


def spread(split: Split, tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (split.size, *jnp.shape(x))), tree)


def merged_configuration(prepared: Formulation, split: Split, q: jax.Array) -> jax.Array:
    """Of the configurations (k, nq) of chains, each joint's of its own chain."""
    own = np.zeros(q.shape, bool)
    for joint in prepared.robot.topology.joints:
        chain = next((i for i, group in enumerate(split.groups) if joint.v_index in group), 0)
        own[chain, list(joint.q_indices)] = True
    return jnp.sum(jnp.where(own, q, 0), axis=0)


def merged_errors(split: Split, reported: dict[str, Any]) -> dict[str, Any]:
    """Of what tasks report by chains (k, ...), each row by its own chain."""
    chains: dict[str, list[tuple[int, Item]]] = {}
    for chain, items in enumerate(split.items):
        for item in items:
            chains.setdefault(item.part.task, []).append((chain, item))
    merged = {}
    for name, error in reported.items():
        owners = chains.get(name, [])
        if not owners or owners[0][1].part.rows is None:
            chain = owners[0][0] if owners else 0
            merged[name] = jax.tree.map(lambda x, chain=chain: x[chain], error)
            continue
        own = np.zeros(error.shape, bool)
        own[0] = True
        for chain, item in owners:
            own[:, slice(*item.part.rows)] = False  # type: ignore[misc]
            own[chain, slice(*item.part.rows)] = True  # type: ignore[misc]
        merged[name] = jnp.sum(jnp.where(own, error, 0), axis=0)
    return merged
