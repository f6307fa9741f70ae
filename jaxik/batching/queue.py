"""A batch as a stream of elements through a fixed number of lanes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.devices import lanes_for
from jaxik.batching.elements import Elements, Packing, lanes_of
from jaxik.batching.method import STEPS, Method, Phase, in_rounds, row_of
from jaxik.batching.scheduler import Slots, after_conclusion, is_working, next_to_conclude, refill, slots_for
from jaxik.batching.trailing_vmap import vmap_last
from jaxik.numerics.indexing import entries, with_entries

# The share of the elements at work, one in so many, that wait before all lanes take other ones. Searches of 4,096 and
# 10,000 Pandas take 25.9 and 55.5 ms so on one core, 27.3 and 56.9 with an eighth; `solve` is as fast with both.
REFILL_FRACTION = 5


def stream(
    method: Method,
    leaves: list[jax.Array],
    mapped: tuple[bool, ...],
    treedef: Any,
    present: jax.Array | None = None,
) -> Any:
    """Work on many elements, some at a time; a lane whose element has ended takes the next one.

    So hardly an element waits for a slower neighbour, and the shapes do not depend on the batch. Lanes that have ended
    wait until a fifth of the elements at work do.

    Args:
      method: what is done with each element.
      leaves: of the arguments; mapped ones have a leading axis of N elements.
      mapped: which.
      treedef: structure of the arguments.
      present: (N,) of bool, all that are True first: which elements are worked on. None: all of them.

    Returns:
      The results, with a leading axis N; of elements that are not worked on whatever stands there.
    """
    if any(m and x.shape[0] == 0 for x, m in zip(leaves, mapped, strict=True)):
        one = [jnp.zeros((1, *x.shape[1:]), x.dtype) if m else x for x, m in zip(leaves, mapped, strict=True)]
        results = jax.eval_shape(lambda: stream(method, one, mapped, treedef))
        return jax.tree.map(lambda x: jnp.zeros((0, *x.shape[1:]), x.dtype), results)
    count = next(x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m)
    method = method._replace(width=lanes_for(method.width, count))
    total = None if present is None else jnp.sum(present, dtype=jnp.int32)
    elements = Elements(method, leaves, mapped, treedef, total)
    packing = Packing(jax.eval_shape(method.start, elements.one))
    results, record = elements.blockwise(lambda context: packing.pack(method.start(context))), None
    if method.record is not None:
        record = elements.blockwise(method.record)
    for phase in method.phases:
        once = functools.partial(_run_phase, phase, elements, packing)
        wanted = functools.partial(_any, phase, elements, packing)
        results, record = in_rounds(phase, once, wanted, results, record)
    return elements.blockwise(
        lambda context, packed, record: method.finalize(context, packing.unpack(packed), record), results, record
    )


def stable_partition(wanted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Indices (N,) of what is wanted, in their order, then of the rest; and of how many something is wanted.

    Sorted, 4,096 would take 0.75 ms for each phase.
    """
    index, ahead = jnp.arange(wanted.size, dtype=jnp.int32), jnp.cumsum(wanted, dtype=jnp.int32)
    total = ahead[-1]
    place = jnp.where(wanted, ahead - 1, total + index - ahead)
    return jnp.zeros_like(place).at[place].set(index, unique_indices=True), total


def _any(phase: Phase, elements: Elements, packing: Packing, results: Any) -> jax.Array:
    """Whether a phase is active for any element."""
    return jnp.any(_active(phase, elements, packing, results))


def _active(phase: Phase, elements: Elements, packing: Packing, results: Any) -> jax.Array:
    """Whether a phase is active, for each element (N,)."""
    active = phase.active
    assert active is not None
    wanted = jax.vmap(lambda packed: active(packing.unpack(packed)))(results)
    return wanted if isinstance(elements.total, int) else wanted & (jnp.arange(elements.count) < elements.total)


class _PhaseRun:
    """One phase of all elements that it is active for, on lanes."""

    def __init__(self, phase: Phase, elements: Elements, packing: Packing, results: Any) -> None:
        self.phase, self.elements, self.packing = phase, elements, packing
        count = elements.count
        if phase.active is None:
            order, total = jnp.arange(count, dtype=jnp.int32), jnp.asarray(elements.total, jnp.int32)
        else:
            order, total = stable_partition(_active(phase, elements, packing, results))
        self.order, self.total = order, total
        differs, width = elements.differs, elements.width
        self.init = vmap_last(self._init_one, (differs, True, True), width)
        self.step = vmap_last(phase.step, (differs, True), width)
        self.has_ended = vmap_last(phase.ended, (True,), width)
        self.conclude = vmap_last(self._conclude_one, (differs, True, True), width)
        self.record_row = None if phase.record_row is None else vmap_last(phase.record_row, (True, True), width)

    def _init_one(self, context: Any, packed: Any, number: jax.Array) -> Any:
        return self.phase.init(context, self.packing.unpack(packed), number)

    def _conclude_one(self, context: Any, packed: Any, state: Any) -> tuple[Any, jax.Array]:
        result, again = self.phase.conclude(context, self.packing.unpack(packed), state)
        return self.packing.pack(result), again & self.phase.attempts

    def elements_at(self, slots: Slots) -> jax.Array:
        """The element of each lane; any other one where a lane has none."""
        return entries(self.order, self.elements.clipped(entries(slots.queue_index, slots.slot)))

    def written(self, slots: Slots, mask: jax.Array) -> jax.Array:
        """The elements to write to: those of lanes in `mask`, else an index out of range, which a write drops."""
        return jnp.where(mask, self.elements_at(slots), self.elements.count)

    def take(self, slots: Slots, results: Any) -> tuple[list[jax.Array], Any]:
        """Contexts and first states of what the lanes are to work on."""
        which = self.elements_at(slots)
        own = self.elements.own(which)
        return own, self.init(self.elements.context(own), lanes_of(results, which), slots.attempt)

    def work(self, slots: Slots, own: list[jax.Array], state: Any, record: Any) -> tuple[Slots, Any, Any]:
        """Steps until enough lanes have ended to be worth the taking of others."""
        context, head = self.elements.context(own), next_to_conclude(slots)
        worth_it = jnp.maximum(jnp.sum(head) // REFILL_FRACTION, 1)
        none_left = (slots.next_in_queue >= self.total) & (not self.phase.attempts)

        def going(carry: tuple[Any, ...]) -> jax.Array:
            done, *_ = carry
            return (none_left | (jnp.sum(done & head) < worth_it)) & ~jnp.all(done)

        def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            done, before, record = carry
            state = jax.tree.map(lambda new, old: jnp.where(done, old, new), self.step(context, before), before)
            if record is not None and self.record_row is not None:
                row, place = self.record_row(before, state)
                mask = self.written(slots, ~done)
                record = record.at[mask, row_of(place, record)].set(jnp.moveaxis(row, -1, 0), mode="drop")
            return done | self.has_ended(state), state, record

        with jax.named_scope(STEPS):
            done, state, record = lax.while_loop(going, advance, (slots.done, state, record))
        return slots._replace(done=done), state, record

    def concluded(self, slots: Slots, own: list[jax.Array], state: Any, results: Any) -> tuple[Slots, Any]:
        """Conclude attempts that have ended, those of an element in their order."""
        context = self.elements.context(own)

        def due(slots: Slots) -> jax.Array:
            return slots.done & next_to_conclude(slots)

        def advance(carry: tuple[Slots, Any]) -> tuple[Slots, Any]:
            slots, results = carry
            mask = due(slots)
            result, again = self.conclude(context, lanes_of(results, self.elements_at(slots)), state)
            place = self.written(slots, mask)
            results = jax.tree.map(lambda x, new: with_entries(x, place, jnp.moveaxis(new, -1, 0)), results, result)
            return after_conclusion(slots, mask, again), results

        return lax.while_loop(lambda carry: jnp.any(due(carry[0])), advance, (slots, results))


def _run_phase(phase: Phase, elements: Elements, packing: Packing, results: Any, record: Any) -> tuple[Any, Any]:
    """Results and records (N, ...) of all elements after a phase."""
    run = _PhaseRun(phase, elements, packing, results)

    def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        slots, own, state, before, record = carry
        slots, state, record = run.work(slots, own, state, record)
        slots, after = run.concluded(slots, own, state, before)
        slots, fresh = refill(slots, run.total, phase.attempts)
        taken = run.take(slots, results)
        own, state = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), taken, (own, state))
        return slots, own, state, after, record

    # To take inside the loop alone would be one copy of it less, but `solve` took 80 ms so where it took 50.
    first = slots_for(elements.width, run.total)
    carry = first, *run.take(first, results), results, record
    carry = lax.while_loop(lambda carry: jnp.any(is_working(carry[0])), advance, carry)
    return carry[3], carry[4]
