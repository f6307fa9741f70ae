"""What an iterative method is, written for one element, and how it works on a single one."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# Lanes side by side where all elements are at work. Narrower, the fixed cost of an operation shows; wider, the last
# elements have more idle neighbours: 1.48, 1.70 and 1.64 M Panda steps/s of `solve` at 64, 128 and 256 on one core, and
# of `search`, for 10,000 targets, 1.44, 1.61 and 1.09 M.
WIDTH = 128
# Numbers that a core's L2 cache holds beside all else.
CACHED = 2**17

# What the loops over steps are called in compiled programs, and so in profiles of them.
STEPS = "steps"


class Phase(NamedTuple):
    """An iterative method, written for one element.

    Attributes:
      active: result so far -> bool: whether the element goes through this phase; None: every element does.
      init: context, result before the phase, number of the attempt -> state, which has not ended. Cheap: a step may be
        the first to evaluate anything.
      step: context, state -> state.
      ended: state -> bool: nothing is left to do. What a step makes of such a state is not looked at.
      conclude: context, result so far, state -> the result so far, and, where there are several attempts, whether
        another one is wanted.
      attempts: whether an element makes several attempts, from 0 on, until no other is wanted.
      record_row: states before and after a step -> its row (k,) in the record of the element, and the index of that
        row; below 0 where it leaves none.
      repeated: whether elements go through it until it is active for none. What differs from round to round follows
        from the result before it.
    """

    active: Callable[[Any], jax.Array] | None
    init: Callable[[Any, Any, jax.Array], Any]
    step: Callable[[Any, Any], Any]
    ended: Callable[[Any], jax.Array]
    conclude: Callable[[Any, Any, Any], tuple[Any, jax.Array]]
    attempts: bool = False
    record_row: Callable[[Any, Any], tuple[jax.Array, jax.Array]] | None = None
    repeated: bool = False


class Method(NamedTuple):
    """Phases that an element goes through in turn, written for one element.

    Attributes:
      prepare: arguments -> context: what stays the same while the element is worked on.
      start: context -> the result before the first phase.
      phases: in order; an element skips those that do not want it.
      finalize: context, last result, record -> what is returned.
      record: context -> the record (T, k) before the first step, which `record_row` fills; rows beyond T are dropped.
        None: nothing is recorded, and the record is None.
      width: lanes side by side, as many in all phases: XLA compiles a kernel once, and phases share most of theirs.
    """

    prepare: Callable[..., Any]
    start: Callable[[Any], Any]
    phases: tuple[Phase, ...]
    finalize: Callable[[Any, Any, Any], Any]
    record: Callable[[Any], jax.Array] | None = None
    width: int = WIDTH


def lanes_that_fit(numbers: int) -> int:
    """Lanes side by side that fit a cache, of elements with a matrix of so many numbers.

    Quadratic programs of 41 variables: 18,000 a second of 64 lanes, 7,000 of 256.
    """
    return max(32, min(WIDTH, 1 << max(CACHED // max(numbers, 1), 1).bit_length() - 1))


def single_pass(function: Callable[..., Any], width: int = WIDTH) -> Method:
    """The method of an element that is done in one go: arguments -> result."""
    return Method(
        prepare=lambda *arguments: arguments,
        start=lambda arguments: (),
        phases=(),
        finalize=lambda arguments, nothing, record: function(*arguments),
        width=width,
    )


def iterate(method: Method, *arguments: Any) -> Any:
    """Work on one element until it has ended."""
    context = method.prepare(*arguments)
    result = method.start(context)
    record = None if method.record is None else method.record(context)
    for phase in method.phases:
        result, record = in_rounds(phase, functools.partial(_round, phase, context), phase.active, result, record)
    return method.finalize(context, result, record)


def in_rounds(
    phase: Phase,
    once: Callable[[Any, Any], tuple[Any, Any]],
    wanted: Callable[[Any], jax.Array] | None,
    result: Any,
    record: Any,
) -> tuple[Any, Any]:
    """The results and the record after a phase, or all rounds of it: `once` makes one, while they are `wanted`."""
    if not phase.repeated or wanted is None:
        return once(result, record)
    return lax.while_loop(lambda found: wanted(found[0]), lambda found: once(*found), (result, record))


def _round(phase: Phase, context: Any, result: Any, record: Any) -> tuple[Any, Any]:
    def work(found: Any) -> Any:
        return _attempts(phase, context, *found)

    if phase.active is None:
        return work((result, record))
    return lax.cond(phase.active(result), work, lambda found: found, (result, record))


def _attempts(phase: Phase, context: Any, before: Any, record: Any) -> tuple[Any, Any]:
    """One attempt, or one after the other until no other is wanted."""

    def advance(carry: Any) -> Any:
        state, record = carry
        following = phase.step(context, state)
        if record is not None and phase.record_row is not None:
            row, place = phase.record_row(state, following)
            record = record.at[row_of(place, record)].set(row, mode="drop")
        return following, record

    def attempt(carry: Any) -> Any:
        result, record, number, _ = carry
        first = phase.init(context, before, number)
        with jax.named_scope(STEPS):
            state, record = lax.while_loop(lambda carry: ~phase.ended(carry[0]), advance, (first, record))
        result, again = phase.conclude(context, result, state)
        return result, record, number + 1, again

    carry = before, record, jnp.zeros((), jnp.int32), jnp.ones((), bool)
    carry = lax.while_loop(lambda carry: carry[3], attempt, carry) if phase.attempts else attempt(carry)
    return carry[0], carry[1]


def row_of(place: jax.Array, record: jax.Array) -> jax.Array:
    """Below 0 would count from the end; beyond the end, a write is dropped."""
    return jnp.where(place < 0, record.shape[-2], place)
