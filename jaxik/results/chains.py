"""Independent chains of a solution: which goals, joints and closures hang together, and how each chain ended."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Part(NamedTuple):
    """Rows of a task's residual, from the first to behind the last; None: all of them."""

    task: str
    rows: tuple[int, int] | None


class Chain(NamedTuple):
    """What hangs together: names of goals, joints and closures, and its parts of the residuals."""

    goals: tuple[str, ...]
    joints: tuple[str, ...]
    closures: tuple[str, ...]
    parts: tuple[Part, ...]


class Chains(NamedTuple):
    """Chains of which none shares a moving joint with another, by their first joint.

    They are those of everything that may hold: a closure that is switched off joins what it would. What limits on
    frames and distances, and step rules that diverge, have to say is in the status of the solution alone.

    Attributes:
      status (*batch, n): of `Status`, int32. An unreachable goal, or a closure that cannot close, is that of its chain.
      residual (*batch, n): Euclidean norm over all rows of its goals and closures [m and rad together].
      goals, joints, closures: for each chain, their names. A posture is a goal of every chain that has joints of it.
    """

    status: jax.Array
    residual: jax.Array
    goals: tuple[tuple[str, ...], ...]
    joints: tuple[tuple[str, ...], ...]
    closures: tuple[tuple[str, ...], ...]


def chains(parts: tuple[Chain, ...], status: jax.Array, residuals: dict[str, Any]) -> Chains:
    """The chains of a solution, from their statuses (*batch, n) and the residuals of its tasks."""
    batch = status.shape[:-1]

    def square(part: Part) -> jax.Array:
        leaves = jax.tree.leaves(residuals[part.task])
        rows = leaves if part.rows is None else [leaves[0][..., slice(*part.rows)]]
        return sum((jnp.sum(x * x, axis=tuple(range(len(batch), x.ndim))) for x in rows), jnp.zeros(batch))

    norms = [jnp.sqrt(sum(map(square, chain.parts), jnp.zeros(batch))) for chain in parts]
    total = jnp.stack(norms, axis=-1) if norms else jnp.zeros((*batch, 0))
    names = ([getattr(chain, field) for chain in parts] for field in ("goals", "joints", "closures"))
    return Chains(status, total, *map(tuple, names))


def chains_of(stored: Any) -> tuple[Chain, ...]:
    """The chains that a file has as lists."""
    return tuple(
        Chain(
            tuple(goals),
            tuple(joints),
            tuple(closures),
            tuple(Part(task, rows if rows is None else (rows[0], rows[1])) for task, rows in parts),
        )
        for goals, joints, closures, parts in stored
    )
