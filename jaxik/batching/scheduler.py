"""Which attempt of which element each lane works on.

Elements wait in a queue. Where they make several attempts, one after the other until one is good enough, a few slow
elements would be left in the end on lanes that are idle otherwise: lanes for which no element is left begin attempts
that an element may need next. What comes of attempts is judged in their order, so that an element ends as it would
alone. Nothing here is as long as the queue: what a loop carries and reads after writing is copied in each turn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# More attempts than anyone makes: nothing is left to do for the element, or there is none.
DONE = 2**31 - 1


class Slots(NamedTuple):
    """What W lanes work on. Each lane takes elements from the queue to its own seat, and may work for other seats.

    Lanes work for other seats only when the queue is empty, so that a lane that takes an element has its seat to
    itself. No two lanes make the same attempt, and some lane makes the first one of each element that was not judged.

    Attributes:
      place (W,): by seat, where its element stands in the queue.
      begun, judged (W,): by seat, how many attempts of its element were begun, and how many were judged; `DONE` where
        no more are wanted.
      seat, attempt (W,): by lane, for which seat it works, and the number of the attempt, from 0 on.
      over (W,): by lane, whether it has nothing to do: its attempt has ended, or there is none.
      following (): the first place in the queue that no lane had yet.
    """

    place: jax.Array
    begun: jax.Array
    judged: jax.Array
    seat: jax.Array
    attempt: jax.Array
    over: jax.Array
    following: jax.Array


def slots_for(width: int, total: jax.Array) -> Slots:
    """The first `width` of `total` () elements at their first attempts."""
    lane = jnp.arange(width, dtype=jnp.int32)
    none, empty = jnp.zeros_like(lane), lane >= total
    judged = jnp.where(empty, DONE, 0).astype(jnp.int32)
    return Slots(lane, none + 1, judged, lane, none, empty, jnp.asarray(width, jnp.int32))


def is_working(seats: Slots) -> jax.Array:
    """The seats (W,) whose element is not done."""
    return seats.judged < DONE


def next_to_conclude(seats: Slots) -> jax.Array:
    """The lanes (W,) with the first attempt of their element that was not judged yet."""
    return seats.attempt == seats.judged[seats.seat]


def after_conclusion(seats: Slots, due: jax.Array, again: jax.Array) -> Slots:
    """The attempts of lanes `due` (W,) were judged; `again` (W,) where another one is wanted."""
    judged = jnp.where(again, seats.attempt + 1, DONE)
    return seats._replace(judged=seats.judged.at[_written(seats, due)].set(judged, mode="drop"))


def refill(seats: Slots, total: jax.Array, attempts: bool) -> tuple[Slots, jax.Array]:
    """Lanes whose attempt was judged, or is not wanted any more, take another one.

    An element that no lane works on goes on where it was judged; then come elements that wait, then, where elements
    make several `attempts`, those that elements at work may need.

    Returns:
      The seats, and the lanes (W,) with new attempts.
    """
    judged, begun = seats.judged[seats.seat], seats.begun[seats.seat]
    goes_on = (seats.attempt == judged - 1) & (begun == judged)
    free = (seats.attempt < judged) & ~goes_on
    turn = seats.following + jnp.cumsum(free, dtype=jnp.int32) - 1
    # Their seats are their own: no lane works for another while elements wait.
    new = free & (turn < total)
    seats = seats._replace(
        place=jnp.where(new, turn, seats.place),
        begun=jnp.where(new, 1, seats.begun),
        judged=jnp.where(new, 0, seats.judged),
        attempt=jnp.where(new, 0, jnp.where(goes_on, judged, seats.attempt)),
        over=(seats.over | free) & ~(new | goes_on),
        following=seats.following + jnp.sum(new, dtype=jnp.int32),
    )
    if not attempts:
        return seats, new
    seats = _with_begun(seats, goes_on)
    idle = free & ~new
    useful = jnp.any(idle) & jnp.any(is_working(seats))
    seats, helping = lax.cond(useful, _speculate, lambda seats, _: (seats, jnp.zeros_like(idle)), seats, idle)
    return seats, new | goes_on | helping


def _speculate(seats: Slots, idle: jax.Array) -> tuple[Slots, jax.Array]:
    """All idle lanes (W,) begin the next attempts of elements at work, as many for each."""
    working, width = is_working(seats), seats.seat.shape[0]
    many = jnp.sum(working, dtype=jnp.int32)
    place = jnp.where(working, jnp.cumsum(working, dtype=jnp.int32) - 1, width)
    listed = jnp.zeros_like(seats.seat).at[place].set(jnp.arange(width, dtype=jnp.int32), mode="drop")
    number = jnp.cumsum(idle, dtype=jnp.int32) - 1
    seat = jnp.where(idle, listed[number % many], seats.seat)
    attempt = jnp.where(idle, seats.begun[seat] + number // many, seats.attempt)
    seats = seats._replace(seat=seat, attempt=attempt, over=seats.over & ~idle)
    return _with_begun(seats, idle), idle


def _with_begun(seats: Slots, fresh: jax.Array) -> Slots:
    return seats._replace(begun=seats.begun.at[_written(seats, fresh)].add(1, mode="drop"))


def _written(seats: Slots, here: jax.Array) -> jax.Array:
    """The seats of lanes `here` (W,), of the others one that does not exist, so that nothing is written."""
    return jnp.where(here, seats.seat, seats.seat.shape[0])
