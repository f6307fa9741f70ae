"""Derivatives of what an iteration found, from what it found: the iteration itself is not differentiated."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching import batch_shape
from jaxik.solvers.batch import run_batch
from jaxik.solvers.linear import linear_of_each, moving, replaced, tangents_of_each, with_tangents
from jaxik.solvers.loop import Method, once
from jaxik.status import Derivative

# Of a function of one element's arguments, and of pairs of further values and tangents: its derivative along both.
Along = Callable[..., Any]


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
    moves: Callable[[tuple[Any, ...], Any, Any, Along], Any]
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
    structures: list[Any] = []

    def found_by(leaves: Sequence[Any]) -> Any:
        # Where a derivative is taken, JAX states that there is no mesh, elsewhere nothing: as one, it is traced once.
        with jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh()):
            return _run(method, treedef, tuple(flat), *leaves)

    @jax.custom_jvp
    def run(*leaves: Any) -> list[Any]:
        answer = found_by(leaves)
        structures[:] = [jax.tree.structure(answer)]
        return jax.tree.leaves(answer)

    def assess(*arguments: Any) -> Any:
        return how.assess(arguments[:-1], arguments[-1])

    def own_ranks(found: Any) -> Any:
        return jax.tree.map(lambda x: x.ndim - len(shape), found)

    @jax.custom_jvp
    def judged(*leaves: Any) -> tuple[list[Any], list[Any]]:
        """The answers, and what their derivatives need to know: once for derivatives of all orders."""
        answer = found_by(leaves)
        known = (*jax.tree.unflatten(treedef, leaves), answer), (*ranks, own_ranks(answer))
        condition = run_batch(once(assess), *known)
        structures[:] = jax.tree.structure(answer), jax.tree.structure(condition)
        found = jax.tree.leaves(answer)
        for place, value in how.judged(jax.tree.unflatten(structures[0], range(len(found))), condition):
            found[place] = value
        return found, jax.tree.leaves(condition)

    def void(answer: Any, condition: Any) -> jax.Array:
        """Whether elements have no derivative."""
        kinds = [kind == Derivative.NONE for _, kind in how.judged(answer, condition)]
        return functools.reduce(jnp.logical_or, kinds)

    def smooth_places(found: Sequence[Any]) -> list[int]:
        return jax.tree.leaves(how.smooth(jax.tree.unflatten(structures[0], range(len(found)))))

    def moves(known: tuple[Any, Any, Any], tangents: Sequence[Any]) -> list[jax.Array]:
        """Tangents of the smooth leaves of the answers."""
        _, answer, condition = known
        active, inside = moving(tangents), jax.tree.structure(known)
        if not active:
            return []

        def tangent(at: Any, linear: Any) -> list[jax.Array]:
            given, answer, condition = jax.tree.unflatten(inside, at)
            leaves = jax.tree.leaves(given)

            def along(function: Callable[..., Any], *pairs: tuple[Any, Any]) -> Any:
                def moved(values: list[Any], *others: Any) -> Any:
                    return function(jax.tree.unflatten(treedef, replaced(leaves, active, values)), *others)

                values = [leaves[i] for i in active], *(x for x, _ in pairs)
                return jax.jvp(moved, values, (list(linear), *(dx for _, dx in pairs)))[1]

            return jax.tree.leaves(how.moves(given, answer, condition, along))

        by = [tangents[i] for i in active], [flat[i] for i in active]
        known_ranks = ranks, own_ranks(answer), own_ranks(condition)
        return linear_of_each(tangent, void(answer, condition), known, known_ranks, *by)

    def all_known(leaves: Sequence[Any], found: Sequence[Any], condition: Sequence[Any]) -> tuple[Any, Any, Any]:
        values = leaves, found, condition
        return tuple(map(jax.tree.unflatten, (treedef, *structures), values))  # type: ignore[return-value]

    def rule(leaves: Any, tangents: Any) -> Any:
        found, condition = judged(*leaves)
        moved = moves(all_known(leaves, found, condition), tangents)
        return found, with_tangents(found, smooth_places(found) if moved else [], moved)

    def judged_rule(leaves: Any, tangents: Any) -> Any:
        found, condition = judged(*leaves)
        known = all_known(leaves, found, condition)
        places, moved = smooth_places(found), moves(known, tangents)
        given, answer, assessed = known
        at, at_ranks = (*given, answer), (*ranks, own_ranks(answer))
        along = dict(zip((len(leaves) + i for i in places), moved, strict=True)) if moved else {}
        along |= {i: tangents[i] for i in moving(tangents)}
        smooth, bent = tangents_of_each(assess, at, at_ranks, assessed, along, void(answer, assessed))
        return (found, condition), (
            with_tangents(found, places if moved else [], moved),
            with_tangents(condition, smooth, bent),
        )

    run.defjvp(rule, symbolic_zeros=True)
    judged.defjvp(judged_rule, symbolic_zeros=True)
    found = run(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(structures[0], found)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _run(method: Method, treedef: Any, ranks: tuple[int, ...], *leaves: Any) -> Any:
    return run_batch(method, jax.tree.unflatten(treedef, leaves), jax.tree.unflatten(treedef, ranks))
