"""Derivatives of what an iteration found, from what it found: the iteration itself is not differentiated."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.batching import batch_shape
from jaxik.solvers.batch import run_batch
from jaxik.solvers.linear import linear_of_each, moving, of_each, replaced, with_tangents
from jaxik.solvers.loop import Method
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
    structure: list[Any] = []

    @jax.custom_jvp
    def run(*leaves: Any) -> list[Any]:
        # Where a derivative is taken, JAX states that there is no mesh, elsewhere nothing: as one, it is traced once.
        with jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh()):
            answer = _run(method, treedef, tuple(flat), *leaves)
        structure[:] = [jax.tree.structure(answer)]
        return jax.tree.leaves(answer)

    def void(answer: Any, condition: Any) -> jax.Array:
        """Whether elements have no derivative."""
        kinds = [kind == Derivative.NONE for _, kind in how.judged(answer, condition)]
        return functools.reduce(jnp.logical_or, kinds)

    def rule(leaves: Any, tangents: Any) -> Any:
        given = jax.tree.unflatten(treedef, leaves)
        found = run(*leaves)
        answer = jax.tree.unflatten(structure[0], found)
        answer_ranks = jax.tree.map(lambda x: x.ndim - len(shape), answer)
        condition = of_each(
            lambda *xs: how.assess(xs[:-1], xs[-1]),
            (*given, answer),
            (*ranks, answer_ranks),
            lambda *found: void(*found[-2:]),
        )
        known = given, answer, condition
        known_ranks = ranks, answer_ranks, jax.tree.map(lambda x: x.ndim - len(shape), condition)
        active, inside = moving(tangents), jax.tree.structure(known)

        def tangent(at: Any, linear: Any) -> list[jax.Array]:
            given, answer, condition = jax.tree.unflatten(inside, at)
            flat = jax.tree.leaves(given)

            def along(function: Callable[..., Any], *pairs: tuple[Any, Any]) -> Any:
                def moved(values: list[Any], *others: Any) -> Any:
                    return function(jax.tree.unflatten(treedef, replaced(flat, active, values)), *others)

                values = [flat[i] for i in active], *(x for x, _ in pairs)
                return jax.jvp(moved, values, (list(linear), *(dx for _, dx in pairs)))[1]

            return jax.tree.leaves(how.moves(given, answer, condition, along))

        numbered = jax.tree.unflatten(structure[0], range(len(found)))
        for place, value in how.judged(numbered, condition):
            found[place] = value
        places = jax.tree.leaves(how.smooth(numbered)) if active else []
        moves: list[Any] = []
        if active:
            by = [tangents[i] for i in active], [flat[i] for i in active]
            moves = linear_of_each(tangent, void(answer, condition), known, known_ranks, *by)
        return found, with_tangents(found, places, moves)

    run.defjvp(rule, symbolic_zeros=True)
    found = run(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(structure[0], found)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _run(method: Method, treedef: Any, ranks: tuple[int, ...], *leaves: Any) -> Any:
    return run_batch(method, jax.tree.unflatten(treedef, leaves), jax.tree.unflatten(treedef, ranks))
