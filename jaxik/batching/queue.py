"""A batch as a stream of elements through a fixed number of lanes."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxik.batching.broadcast import filled
from jaxik.batching.devices import lanes_for
from jaxik.batching.method import STEPS, Method, Phase, in_rounds, row_of
from jaxik.batching.scheduler import Slots, after_conclusion, is_working, next_to_conclude, refill, slots_for
from jaxik.batching.trailing_vmap import PerElement, is_unbatched, vmap_last, vmap_last_where_mapped
from jaxik.numerics.fusion import materialize

# The share of the elements at work, one in so many, that wait before all lanes take other ones. Searches of 4,096 and
# 10,000 Pandas take 25.9 and 55.5 ms so on one core, 27.3 and 56.9 with an eighth; `solve` is as fast with both.
REFILL_FRACTION = 5


class _Elements:
    """The arguments of N elements, and the contexts of any few of them, lane axis last.

    Attributes:
      count: N.
      differs: for each leaf of the context, whether it differs from element to element.
      one: shapes of one element's context.
    """

    def __init__(self, method: Method, leaves: list[jax.Array], mapped: tuple[bool, ...], treedef: Any) -> None:
        self.count = next(x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m)
        self._leaves, self._mapped = leaves, mapped
        self._given = [x for x, m in zip(leaves, mapped, strict=True) if m]
        self._prepare = PerElement(lambda *leaves: method.prepare(*jax.tree.unflatten(treedef, leaves)))
        known: dict[Any, Any] = {}
        context, differs = self._load(self._gathered(jnp.arange(method.width)), known)
        self._known = is_unbatched(known)
        self._shared, self._structure = jax.tree.flatten(context)
        self.differs = jax.tree.unflatten(self._structure, differs)
        self.one = jax.tree.map(
            lambda x, d: jax.ShapeDtypeStruct(x.shape[:-1] if d else x.shape, x.dtype), context, self.differs
        )

    def _load(self, given: list[jax.Array], known: dict[Any, Any]) -> tuple[Any, list[bool]]:
        """The contexts of elements of which `given` are the mapped arguments, lane axis last."""
        # XLA would turn or gather them again in each consumer.
        parts = iter(materialize(x) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in given)
        leaves = [next(parts) if m else x for x, m in zip(self._leaves, self._mapped, strict=True)]
        size = given[0].shape[-1]
        context, differs = vmap_last_where_mapped(self._prepare, self._mapped, size, known)(*leaves)
        return context, jax.tree.leaves(differs)

    def _gathered(self, which: jax.Array) -> list[jax.Array]:
        return _lanes_of(self._given, self.clipped(which))

    def clipped(self, which: jax.Array) -> jax.Array:
        return jnp.minimum(which, self.count - 1)

    def own(self, which: jax.Array) -> list[jax.Array]:
        """What differs between the contexts of some elements."""
        return self._differing(self._gathered(which))

    def _differing(self, given: list[jax.Array]) -> list[jax.Array]:
        context, differs = self._load(given, dict(self._known))
        return [x for x, d in zip(jax.tree.leaves(context), differs, strict=True) if d]

    def blockwise(self, width: int, function: Callable[..., Any], *results: Any) -> Any:
        """Apply a function of contexts and results (N, ...), on lanes, to all elements in blocks.

        What one such call leaves is laid out as the next one wants it, which XLA sees where N is a multiple of the
        width: nothing is turned in between.
        """
        blocks = math.ceil(self.count / width)

        def cut(x: jax.Array) -> jax.Array:
            return jnp.moveaxis(filled(x, blocks * width).reshape(blocks, width, *x.shape[1:]), 1, -1)

        def block(parts: tuple[list[jax.Array], Any]) -> Any:
            given, results = parts
            return function(self.context(self._differing(given)), *results)

        out = lax.map(block, jax.tree.map(cut, (self._given, results)))
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 1).reshape(blocks * width, *x.shape[1:-1])[: self.count], out)

    def context(self, own: list[jax.Array]) -> Any:
        """The contexts of which `own` is what differs."""
        parts, differs = iter(own), jax.tree.leaves(self.differs)
        leaves = [next(parts) if d else x for x, d in zip(self._shared, differs, strict=True)]
        return jax.tree.unflatten(self._structure, leaves)


def stream(method: Method, leaves: list[jax.Array], mapped: tuple[bool, ...], treedef: Any) -> Any:
    """Work on many elements, some at a time; a lane whose element has ended takes the next one.

    So hardly an element waits for a slower neighbour, and the shapes do not depend on the batch. Lanes that have ended
    wait until a fifth of the elements at work do.

    Args:
      method: what is done with each element.
      leaves: of the arguments; mapped ones have a leading axis of N elements.
      mapped: which.
      treedef: structure of the arguments.

    Returns:
      The answers, with a leading axis N.
    """
    if any(m and x.shape[0] == 0 for x, m in zip(leaves, mapped, strict=True)):
        one = [jnp.zeros((1, *x.shape[1:]), x.dtype) if m else x for x, m in zip(leaves, mapped, strict=True)]
        answers = jax.eval_shape(lambda: stream(method, one, mapped, treedef))
        return jax.tree.map(lambda x: jnp.zeros((0, *x.shape[1:]), x.dtype), answers)
    count = next(x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m)
    phases = tuple(phase._replace(width=lanes_for(phase.width, count)) for phase in method.phases)
    method = method._replace(width=lanes_for(method.width, count), phases=phases)
    elements = _Elements(method, leaves, mapped, treedef)
    packing = _Packing(jax.eval_shape(method.start, elements.one))
    start = vmap_last(lambda context: packing.pack(method.start(context)), (elements.differs,), method.width)
    results, record = elements.blockwise(method.width, start), None
    if method.record is not None:
        record = elements.blockwise(method.width, vmap_last(method.record, (elements.differs,), method.width))
    for phase in method.phases:
        results, record = in_rounds(phase, functools.partial(_run_phase, phase, elements, packing), results, record)
    answer = vmap_last(
        lambda context, packed, record: method.finalize(context, packing.unpack(packed), record),
        (elements.differs, True, True),
        method.width,
    )
    return elements.blockwise(method.width, answer, results, record)


def _lanes_of(results: Any, which: jax.Array) -> Any:
    return jax.tree.map(lambda x: jnp.moveaxis(x[which], 0, -1), results)


class _Packing:
    """Results as one vector of numbers and one of counts and flags: two arrays to gather and scatter, not a dozen."""

    def __init__(self, shapes: Any) -> None:
        leaves, self._structure = jax.tree.flatten(shapes)
        self._leaves = leaves
        self._number = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]

    def pack(self, result: Any) -> tuple[jax.Array, jax.Array]:
        leaves = list(zip(jax.tree.leaves(result), self._number, strict=True))
        numbers = [jnp.ravel(x) for x, number in leaves if number]
        counts = [jnp.ravel(x).astype(jnp.int32) for x, number in leaves if not number]
        none = jnp.zeros(0, jnp.int32)
        return (jnp.concatenate(numbers) if numbers else none), jnp.concatenate([none, *counts])

    def unpack(self, packed: tuple[jax.Array, jax.Array]) -> Any:
        places, leaves = [0, 0], []
        for x, number in zip(self._leaves, self._number, strict=True):
            kind = 0 if number else 1
            end = places[kind] + x.size
            leaves.append(packed[kind][places[kind] : end].reshape(x.shape).astype(x.dtype))
            places[kind] = end
        return jax.tree.unflatten(self._structure, leaves)


def stable_partition(wanted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Indices (N,) of what is wanted, in their order, then of the rest; and of how many something is wanted.

    Sorted, 4,096 would take 0.75 ms for each phase.
    """
    index, ahead = jnp.arange(wanted.size, dtype=jnp.int32), jnp.cumsum(wanted, dtype=jnp.int32)
    total = ahead[-1]
    place = jnp.where(wanted, ahead - 1, total + index - ahead)
    return jnp.zeros_like(place).at[place].set(index, unique_indices=True), total


def _run_phase(phase: Phase, elements: _Elements, packing: _Packing, results: Any, record: Any) -> tuple[Any, Any]:
    count, width = elements.count, phase.width
    active = phase.active
    if active is None:
        order, total = jnp.arange(count, dtype=jnp.int32), jnp.asarray(count, jnp.int32)
    else:
        order, total = stable_partition(jax.vmap(lambda packed: active(packing.unpack(packed)))(results))

    def start(context: Any, packed: Any, number: jax.Array) -> Any:
        return phase.init(context, packing.unpack(packed), number)

    def conclude_one(context: Any, packed: Any, state: Any) -> tuple[Any, jax.Array]:
        result, again = phase.conclude(context, packing.unpack(packed), state)
        return packing.pack(result), again & phase.attempts

    init = vmap_last(start, (elements.differs, True, True), width)
    step = vmap_last(phase.step, (elements.differs, True), width)
    has_ended = vmap_last(phase.ended, (True,), width)
    conclude = vmap_last(conclude_one, (elements.differs, True, True), width)
    record_row = None if phase.record_row is None else vmap_last(phase.record_row, (True, True), width)

    def elements_at(slots: Slots) -> jax.Array:
        """The element of each lane; any other one where a lane has none."""
        return order[elements.clipped(slots.queue_index[slots.slot])]

    def written(slots: Slots, mask: jax.Array) -> jax.Array:
        """The elements to write to: those of lanes in `mask`, else an index out of range, which a write drops."""
        return jnp.where(mask, elements_at(slots), count)

    def take(slots: Slots) -> tuple[list[jax.Array], Any]:
        """Contexts and first states of what the lanes are to work on."""
        which = elements_at(slots)
        own = elements.own(which)
        return own, init(elements.context(own), _lanes_of(results, which), slots.attempt)

    def work(slots: Slots, own: list[jax.Array], state: Any, record: Any) -> tuple[Slots, Any, Any]:
        """Steps until enough lanes have ended to be worth the taking of others."""
        context, head = elements.context(own), next_to_conclude(slots)
        worth_it = jnp.maximum(jnp.sum(head) // REFILL_FRACTION, 1)
        none_left = (slots.next_in_queue >= total) & (not phase.attempts)

        def going(carry: tuple[Any, ...]) -> jax.Array:
            done, *_ = carry
            return (none_left | (jnp.sum(done & head) < worth_it)) & ~jnp.all(done)

        def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            done, before, record = carry
            state = jax.tree.map(lambda new, old: jnp.where(done, old, new), step(context, before), before)
            if record is not None and record_row is not None:
                row, place = record_row(before, state)
                mask = written(slots, ~done)
                record = record.at[mask, row_of(place, record)].set(jnp.moveaxis(row, -1, 0), mode="drop")
            return done | has_ended(state), state, record

        with jax.named_scope(STEPS):
            done, state, record = lax.while_loop(going, advance, (slots.done, state, record))
        return slots._replace(done=done), state, record

    def concluded(slots: Slots, own: list[jax.Array], state: Any, results: Any) -> tuple[Slots, Any]:
        """Conclude attempts that have ended, those of an element in their order."""
        context = elements.context(own)

        def due(slots: Slots) -> jax.Array:
            return slots.done & next_to_conclude(slots)

        def advance(carry: tuple[Slots, Any]) -> tuple[Slots, Any]:
            slots, results = carry
            mask = due(slots)
            result, again = conclude(context, _lanes_of(results, elements_at(slots)), state)
            place = written(slots, mask)
            results = jax.tree.map(
                lambda x, new: x.at[place].set(jnp.moveaxis(new, -1, 0), mode="drop"), results, result
            )
            return after_conclusion(slots, mask, again), results

        return lax.while_loop(lambda carry: jnp.any(due(carry[0])), advance, (slots, results))

    def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        slots, own, state, results, record = carry
        slots, state, record = work(slots, own, state, record)
        slots, results = concluded(slots, own, state, results)
        slots, fresh = refill(slots, total, phase.attempts)
        own, state = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), take(slots), (own, state))
        return slots, own, state, results, record

    # To take inside the loop alone would be one copy of it less, but `solve` took 80 ms so where it took 50.
    first = slots_for(width, total)
    carry = lax.while_loop(lambda carry: jnp.any(is_working(carry[0])), advance, (first, *take(first), results, record))
    return carry[3], carry[4]
