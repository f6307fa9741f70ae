"""Derivatives of what an iteration found, from what it found: the iteration itself is not differentiated."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching.broadcast import batch_shape
from jaxik.batching.linear_map import linear_of_each, moving, replaced, tangents_of_each, with_tangents
from jaxik.batching.method import Method, single_pass
from jaxik.batching.run import run_batch
from jaxik.core.status import DerivativeStatus

# Of a function of one element's arguments, and of pairs of further values and tangents: its derivative along both.
Jvp = Callable[..., Any]


class Sensitivity(NamedTuple):
    """How the answers of a method move with its arguments, written for one element.

    Attributes:
      assess: arguments, answer -> condition: what the derivative needs to know of the answer, whatever it is taken by.
      moves: arguments, answer, condition, along -> the tangents of those leaves of the answer that have one, in the
        structure that `smooth` gives; linear in what `along` returns.
      smooth: answer -> the leaves of it that have a tangent.
      judged: answer, condition -> pairs of a leaf of the answer that says what a derivative is worth, and the value
        that it has where the answer is differentiated.
    """

    assess: Callable[[tuple[Any, ...], Any], Any]
    moves: Callable[[tuple[Any, ...], Any, Any, Jvp], Any]
    smooth: Callable[[Any], Any]
    judged: Callable[[Any, Any], list[tuple[Any, jax.Array]]]


def run_differentiable(method: Method, arguments: tuple[Any, ...], ranks: tuple[Any, ...], how: Sensitivity) -> Any:
    """Run `method` over the batch axes of its arguments, as `run_batch` does, with derivatives.

    By the implicit function theorem at the answer: nothing of the iteration is kept, and it is not run again. The rule
    calls what it is the rule of, so that it can be differentiated itself.

    Args:
      method: one that is made once and for all: what it does is traced once for arguments of one kind.
    """
    treedef, flat = jax.tree.structure(arguments), jax.tree.leaves(ranks)
    shape = batch_shape(arguments, ranks)
    # Structures of answer and condition, known once each has been found.
    of_answer: list[Any] = []
    of_condition: list[Any] = []

    def found_by(leaves: Sequence[Any]) -> Any:
        # Where a derivative is taken, JAX states that there is no mesh, elsewhere nothing: as one, it is traced once.
        with jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh()):
            answer = _run(method, treedef, tuple(flat), *leaves)
        of_answer[:] = [jax.tree.structure(answer)]
        return answer

    def own_ranks(found: Any) -> Any:
        return jax.tree.map(lambda x: x.ndim - len(shape), found)

    def assess(*given: Any) -> Any:
        return how.assess(given[:-1], given[-1])

    @jax.custom_jvp
    def run(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(found_by(leaves))

    @jax.custom_jvp
    def run_and_assess(*leaves: Any) -> tuple[list[Any], list[Any]]:
        """Answer and condition, once for derivatives of all orders."""
        answer = found_by(leaves)
        given = (*jax.tree.unflatten(treedef, leaves), answer)
        condition = run_batch(single_pass(assess), given, (*ranks, own_ranks(answer)))
        of_condition[:] = [jax.tree.structure(condition)]
        found = jax.tree.leaves(answer)
        for place, value in how.judged(_numbered(of_answer[0]), condition):
            found[place] = value
        return found, jax.tree.leaves(condition)

    def known(leaves: Sequence[Any], found: Sequence[Any], condition: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Arguments, answer and condition."""
        unflatten = jax.tree.unflatten
        return unflatten(treedef, leaves), unflatten(of_answer[0], found), unflatten(of_condition[0], condition)

    def void(answer: Any, condition: Any) -> jax.Array:
        """Whether elements have no derivative."""
        kinds = [kind == DerivativeStatus.UNAVAILABLE for _, kind in how.judged(answer, condition)]
        return functools.reduce(jnp.logical_or, kinds)

    def moves(at: tuple[Any, Any, Any], tangents: Sequence[Any]) -> tuple[list[int], list[jax.Array]]:
        """Which leaves of the answer move, by number, and their tangents."""
        active, inside = moving(tangents), jax.tree.structure(at)
        if not active:
            return [], []

        def tangent(at: Any, linear: Any) -> list[jax.Array]:
            given, answer, condition = jax.tree.unflatten(inside, at)
            leaves = jax.tree.leaves(given)

            def along(function: Callable[..., Any], *pairs: tuple[Any, Any]) -> Any:
                def moved(values: list[Any], *others: Any) -> Any:
                    return function(jax.tree.unflatten(treedef, replaced(leaves, active, values)), *others)

                values = [leaves[i] for i in active], *(x for x, _ in pairs)
                return jax.jvp(moved, values, (list(linear), *(dx for _, dx in pairs)))[1]

            return jax.tree.leaves(how.moves(given, answer, condition, along))

        _, answer, condition = at
        by = [tangents[i] for i in active], [flat[i] for i in active]
        at_ranks = ranks, own_ranks(answer), own_ranks(condition)
        places = jax.tree.leaves(how.smooth(_numbered(of_answer[0])))
        return places, linear_of_each(tangent, void(answer, condition), at, at_ranks, *by)

    def moved_answer(leaves: Any, tangents: Any) -> Any:
        found, condition = run_and_assess(*leaves)
        return found, with_tangents(found, *moves(known(leaves, found, condition), tangents))

    def moved_answer_and_condition(leaves: Any, tangents: Any) -> Any:
        found, condition = run_and_assess(*leaves)
        given, answer, assessed = at = known(leaves, found, condition)
        places, moved = moves(at, tangents)
        along = {i: tangents[i] for i in moving(tangents)}
        along |= {len(leaves) + place: tangent for place, tangent in zip(places, moved, strict=True)}
        bent = tangents_of_each(
            assess, (*given, answer), (*ranks, own_ranks(answer)), assessed, along, void(answer, assessed)
        )
        return (found, condition), (with_tangents(found, places, moved), with_tangents(condition, *bent))

    run.defjvp(moved_answer, symbolic_zeros=True)
    run_and_assess.defjvp(moved_answer_and_condition, symbolic_zeros=True)
    found = run(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(of_answer[0], found)


def _numbered(structure: Any) -> Any:
    """The numbers of the leaves in their places."""
    return jax.tree.unflatten(structure, range(structure.num_leaves))


@functools.partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _run(method: Method, treedef: Any, ranks: tuple[int, ...], *leaves: Any) -> Any:
    return run_batch(method, jax.tree.unflatten(treedef, leaves), jax.tree.unflatten(treedef, ranks))
