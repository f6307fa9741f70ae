"""Which attempt of which element each lane works on.

Elements wait in a queue. Where they make several attempts, one after the other until one is good enough, a few slow
elements would be left in the end on lanes that are idle otherwise: lanes for which no element is left begin attempts
that an element may need next. What comes of attempts is concluded in their order, so that an element ends as it would
alone. Nothing here is as long as the queue: what a loop carries and reads after writing is copied in each turn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.numerics.indexing import entries, with_entries

# More attempts than anyone makes: nothing is left to do for the element, or there is none.
ALL_MADE = 2**31 - 1


class Slots(NamedTuple):
    """What W lanes work on. Each lane takes elements from the queue to its own slot, and may work for other slots.

    Lanes work for other slots only when the queue is empty, so that a lane that takes an element has its slot to
    itself. No two lanes make the same attempt, and some lane makes the first one of each element that was
    not concluded.

    Attributes:
      queue_index (W,): by slot, where its element stands in the queue.
      begun, concluded (W,): by slot, how many attempts of its element were begun, and how many were concluded;
        `ALL_MADE` where no more are wanted.
      slot, attempt (W,): by lane, for which slot it works, and the number of the attempt, from 0 on.
      done (W,): by lane, whether it has nothing to do: its attempt has ended, or there is none.
      next_in_queue (): the first index in the queue that no lane had yet.
    """

    queue_index: jax.Array
    begun: jax.Array
    concluded: jax.Array
    slot: jax.Array
    attempt: jax.Array
    done: jax.Array
    next_in_queue: jax.Array


def slots_for(width: int, total: jax.Array) -> Slots:
    """The first `width` of `total` () elements at their first attempts."""
    lane = jnp.arange(width, dtype=jnp.int32)
    none, empty = jnp.zeros_like(lane), lane >= total
    concluded = jnp.where(empty, ALL_MADE, 0).astype(jnp.int32)
    return Slots(lane, none + 1, concluded, lane, none, empty, jnp.asarray(width, jnp.int32))


def is_working(slots: Slots) -> jax.Array:
    """The slots (W,) whose element is not done."""
    return slots.concluded < ALL_MADE


def next_to_conclude(slots: Slots) -> jax.Array:
    """The lanes (W,) with the first attempt of their element that was not concluded yet."""
    return slots.attempt == entries(slots.concluded, slots.slot)


def after_conclusion(slots: Slots, ended: jax.Array, again: jax.Array) -> Slots:
    """The attempts of lanes `ended` (W,) were concluded; `again` (W,) where another one is wanted."""
    concluded = jnp.where(again, slots.attempt + 1, ALL_MADE)
    return slots._replace(concluded=with_entries(slots.concluded, _written(slots, ended), concluded))


def refill(slots: Slots, total: jax.Array, attempts: bool) -> tuple[Slots, jax.Array]:
    """Lanes whose attempt was concluded, or is not wanted any more, take another one.

    An element that no lane works on goes on where it was concluded; then come elements that wait, then, where elements
    make several `attempts`, those that elements at work may need.

    Returns:
      The slots, and the lanes (W,) with new attempts.
    """
    concluded, begun = entries(slots.concluded, slots.slot), entries(slots.begun, slots.slot)
    goes_on = (slots.attempt == concluded - 1) & (begun == concluded)
    free = (slots.attempt < concluded) & ~goes_on
    turn = slots.next_in_queue + jnp.cumsum(free, dtype=jnp.int32) - 1
    # Their slots are their own: no lane works for another while elements wait.
    new = free & (turn < total)
    slots = slots._replace(
        queue_index=jnp.where(new, turn, slots.queue_index),
        begun=jnp.where(new, 1, slots.begun),
        concluded=jnp.where(new, 0, slots.concluded),
        attempt=jnp.where(new, 0, jnp.where(goes_on, concluded, slots.attempt)),
        done=(slots.done | free) & ~(new | goes_on),
        next_in_queue=slots.next_in_queue + jnp.sum(new, dtype=jnp.int32),
    )
    if not attempts:
        return slots, new
    slots = _with_begun(slots, goes_on)
    idle = free & ~new
    useful = jnp.any(idle) & jnp.any(is_working(slots))
    slots, helping = lax.cond(useful, _speculate, lambda slots, _: (slots, jnp.zeros_like(idle)), slots, idle)
    return slots, new | goes_on | helping


def _speculate(slots: Slots, idle: jax.Array) -> tuple[Slots, jax.Array]:
    """All idle lanes (W,) begin the next attempts of elements at work, as many for each."""
    working, width = is_working(slots), slots.slot.shape[0]
    many = jnp.sum(working, dtype=jnp.int32)
    queue_index = jnp.where(working, jnp.cumsum(working, dtype=jnp.int32) - 1, width)
    listed = with_entries(jnp.zeros_like(slots.slot), queue_index, jnp.arange(width, dtype=jnp.int32))
    number = jnp.cumsum(idle, dtype=jnp.int32) - 1
    slot = jnp.where(idle, entries(listed, number % many), slots.slot)
    attempt = jnp.where(idle, entries(slots.begun, slot) + number // many, slots.attempt)
    slots = slots._replace(slot=slot, attempt=attempt, done=slots.done & ~idle)
    return _with_begun(slots, idle), idle


def _with_begun(slots: Slots, fresh: jax.Array) -> Slots:
    begun = slots.begun.at[_written(slots, fresh)].add(1, mode="drop", wrap_negative_indices=False)
    return slots._replace(begun=begun)


def _written(slots: Slots, mask: jax.Array) -> jax.Array:
    """The slots of lanes in `mask` (W,); of the others an index out of range, which a write drops."""
    return jnp.where(mask, slots.slot, slots.slot.shape[0])
