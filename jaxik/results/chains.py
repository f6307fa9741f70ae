"""Independent chains of a solution: which goals, joints and closures hang together, and how each chain ended."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Part(NamedTuple):
    """Rows of a task's residual, from the first to one past the last; None: all of them."""

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

    Closures that may be switched join nothing in this list; those of one `label` are one chain, with one status and
    residual. Where nothing of a chain is on, it is CONVERGED. What limits on frames and distances, step rules that
    diverge, and tasks that no joint moves have to say is in the status of the solution alone.

    Attributes:
      status (*batch, n): of `Status`, int32. An unreachable goal, a closure that cannot close, or a target that is NaN
        is that of its chain; a start that is NaN, and a target of chains that are solved together, of all of these.
      residual (*batch, n): Euclidean norm over all rows of its goals and closures [m and rad together].
      iterations (*batch, n): steps taken, int32. Chains that are alike, in all but numbers, are solved as problems of
        their own, side by side: at all priorities, and by `search` from starts of their own. Those that a switched
        closure may join count as one there. Chains that are like no other are solved together: at the highest
        priority `solve` works on each by itself; lower priorities take all together, as do tasks behind constraints
        all that are not met along with these, a search, and step rules without an acceptance test. All chains are
        solved together where frames of one move with joints of another, where a trace is recorded, or several
        solutions are asked for, and with tasks that read joints (but postures) or centres of mass, or of classes of
        your own; and as one with what is Elastic, limits on frames or distances, or a task that no joint moves.
      label (*batch, n): the place of the first chain that is one with it, by the closures that are on; int32.
      goals, joints, closures: for each chain, their names. A posture is a goal of every chain that has joints of it, a
        closure that may be switched is one of every chain that it may join.
    """

    status: jax.Array
    residual: jax.Array
    iterations: jax.Array
    label: jax.Array
    goals: tuple[tuple[str, ...], ...]
    joints: tuple[tuple[str, ...], ...]
    closures: tuple[tuple[str, ...], ...]


def chains(
    parts: tuple[Chain, ...], status: jax.Array, iterations: Any, label: jax.Array | None, residuals: dict[str, Any]
) -> Chains:
    """The chains of a solution, from their fields (*batch, n) and the residuals of its tasks."""
    batch = status.shape[:-1]

    def square(part: Part) -> jax.Array:
        leaves = jax.tree.leaves(residuals[part.task])
        rows = leaves if part.rows is None else [leaves[0][..., slice(*part.rows)]]
        return sum((jnp.sum(x * x, axis=tuple(range(len(batch), x.ndim))) for x in rows), jnp.zeros(batch))

    squares = [sum(map(square, chain.parts), jnp.zeros(batch)) for chain in parts]
    total = jnp.stack(squares, axis=-1) if squares else jnp.zeros((*batch, 0))
    if label is None:
        label = jnp.broadcast_to(jnp.arange(total.shape[-1], dtype=jnp.int32), total.shape)
    else:
        one = label[..., :, None] == label[..., None, :]
        total = jnp.sum(jnp.where(one, total[..., None, :], 0), axis=-1)
    names = ([getattr(chain, field) for chain in parts] for field in ("goals", "joints", "closures"))
    return Chains(status, jnp.sqrt(total), iterations, label, *map(tuple, names))


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
