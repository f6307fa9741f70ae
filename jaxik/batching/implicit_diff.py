"""Derivatives of an iteration's result by the implicit function theorem: the iteration itself is not differentiated."""

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

# `jvp_of(function, *pairs)`: the derivative of a function of one element's arguments, and of further values that the
# pairs give with their tangents, along both.
Jvp = Callable[..., Any]


class Sensitivity(NamedTuple):
    """How to differentiate the result of a method by its arguments, written for one element.

    Attributes:
      linearize_at: arguments, result -> condition: what all derivatives there share, such as inverted Hessians.
      tangent: arguments, result, condition, jvp_of -> tangents of the differentiable leaves of the result, in the
        structure of `differentiable`; linear in what `jvp_of` returns.
      differentiable: result -> its leaves that have a tangent.
      status_fields: result, condition -> pairs of a `derivative_status` leaf of the result, and its value from the
        condition.
    """

    linearize_at: Callable[[tuple[Any, ...], Any], Any]
    tangent: Callable[[tuple[Any, ...], Any, Any, Jvp], Any]
    differentiable: Callable[[Any], Any]
    status_fields: Callable[[Any, Any], list[tuple[Any, jax.Array]]]


def run_differentiable(
    method: Method,
    arguments: tuple[Any, ...],
    ranks: tuple[Any, ...],
    sensitivity: Sensitivity,
    present: jax.Array | None = None,
) -> Any:
    """Run `method` over the batch axes of its arguments, as `run_batch` does, with derivatives of all orders.

    The rule is the implicit function theorem at the result: no iterate is stored, and the iteration is not run again.
    The rule calls the function that it belongs to, so that it can be differentiated itself.

    Args:
      method: made once for all calls; it is traced once for arguments of one kind.
      present: as of `run_batch`; with it there are no derivatives.
    """
    if present is not None:
        return run_batch(method, arguments, ranks, present)
    return _DifferentiableRun(method, arguments, ranks, sensitivity).run(arguments)


class _DifferentiableRun:
    """One differentiable call: the static structure of arguments, result and condition, and the derivative rules."""

    def __init__(
        self, method: Method, arguments: tuple[Any, ...], ranks: tuple[Any, ...], sensitivity: Sensitivity
    ) -> None:
        self.method = method
        self.sensitivity = sensitivity
        self.ranks = ranks
        self.flat_ranks = tuple(jax.tree.leaves(ranks))
        self.argument_structure = jax.tree.structure(arguments)
        self.batch_ndim = len(batch_shape(arguments, ranks))
        # Known once the result and the condition have been traced.
        self.result_structure: Any = None
        self.condition_structure: Any = None

    def run(self, arguments: tuple[Any, ...]) -> Any:
        @jax.custom_jvp
        def value(*leaves: Any) -> list[Any]:
            return jax.tree.leaves(self.result(leaves))

        @jax.custom_jvp
        def value_and_condition(*leaves: Any) -> tuple[list[Any], list[Any]]:
            return self.result_and_condition(leaves)

        def value_jvp(leaves: Any, tangents: Any) -> Any:
            result, condition = value_and_condition(*leaves)
            return result, with_tangents(
                result, *self.result_tangents(self.unflatten(leaves, result, condition), tangents)
            )

        def value_and_condition_jvp(leaves: Any, tangents: Any) -> Any:
            result, condition = value_and_condition(*leaves)
            return (result, condition), self.all_tangents(leaves, result, condition, tangents)

        value.defjvp(value_jvp, symbolic_zeros=True)
        value_and_condition.defjvp(value_and_condition_jvp, symbolic_zeros=True)
        leaves = value(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(self.result_structure, leaves)

    def result(self, leaves: Sequence[Any]) -> Any:
        # Where a derivative is taken, JAX states that there is no mesh, elsewhere nothing: as one, it is traced once.
        with jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh()):
            result = _run(self.method, self.argument_structure, self.flat_ranks, *leaves)
        self.result_structure = jax.tree.structure(result)
        return result

    def result_and_condition(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Leaves of the result and of the condition; evaluated once for derivatives of all orders."""
        result = self.result(leaves)
        inputs = (*jax.tree.unflatten(self.argument_structure, leaves), result)
        condition = run_batch(single_pass(self.linearize), inputs, (*self.ranks, self.ranks_of(result)))
        self.condition_structure = jax.tree.structure(condition)
        result_leaves = jax.tree.leaves(result)
        for index, value in self.sensitivity.status_fields(_leaf_numbers(self.result_structure), condition):
            result_leaves[index] = value
        return result_leaves, jax.tree.leaves(condition)

    def linearize(self, *inputs: Any) -> Any:
        return self.sensitivity.linearize_at(inputs[:-1], inputs[-1])

    def ranks_of(self, tree: Any) -> Any:
        return jax.tree.map(lambda x: x.ndim - self.batch_ndim, tree)

    def unflatten(self, leaves: Sequence[Any], result: Sequence[Any], condition: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Arguments, result and condition."""
        unflatten = jax.tree.unflatten
        return (
            unflatten(self.argument_structure, leaves),
            unflatten(self.result_structure, result),
            unflatten(self.condition_structure, condition),
        )

    def invalid(self, result: Any, condition: Any) -> jax.Array:
        """The mask (*batch,) of elements without a derivative."""
        statuses = [
            status == DerivativeStatus.UNAVAILABLE for _, status in self.sensitivity.status_fields(result, condition)
        ]
        return functools.reduce(jnp.logical_or, statuses)

    def result_tangents(self, at: tuple[Any, Any, Any], tangents: Sequence[Any]) -> tuple[list[int], list[jax.Array]]:
        """Indices and tangents of the leaves of the result that have one."""
        active, structure = moving(tangents), jax.tree.structure(at)
        if not active:
            return [], []

        def tangent(at: Any, linear: Any) -> list[jax.Array]:
            arguments, result, condition = jax.tree.unflatten(structure, at)
            jvp_of = self.jvp_of(jax.tree.leaves(arguments), active, linear)
            return jax.tree.leaves(self.sensitivity.tangent(arguments, result, condition, jvp_of))

        _, result, condition = at
        inputs = [tangents[i] for i in active], [self.flat_ranks[i] for i in active]
        at_ranks = self.ranks, self.ranks_of(result), self.ranks_of(condition)
        indices = jax.tree.leaves(self.sensitivity.differentiable(_leaf_numbers(self.result_structure)))
        return indices, linear_of_each(tangent, self.invalid(result, condition), at, at_ranks, *inputs)

    def jvp_of(self, leaves: list[Any], active: list[int], linear: Any) -> Jvp:
        """The `Jvp` of one element along the tangents `linear` of the leaves `active`."""

        def jvp_of(function: Callable[..., Any], *pairs: tuple[Any, Any]) -> Any:
            def of_active(values: list[Any], *others: Any) -> Any:
                return function(jax.tree.unflatten(self.argument_structure, replaced(leaves, active, values)), *others)

            values = [leaves[i] for i in active], *(x for x, _ in pairs)
            return jax.jvp(of_active, values, (list(linear), *(dx for _, dx in pairs)))[1]

        return jvp_of

    def all_tangents(self, leaves: Any, result: Any, condition: Any, tangents: Any) -> tuple[Any, Any]:
        """Tangents of result and condition, for second derivatives."""
        arguments, result_tree, condition_tree = at = self.unflatten(leaves, result, condition)
        indices, moved = self.result_tangents(at, tangents)
        inputs = {i: tangents[i] for i in moving(tangents)}
        inputs |= {len(leaves) + index: tangent for index, tangent in zip(indices, moved, strict=True)}
        condition_tangents = tangents_of_each(
            self.linearize,
            (*arguments, result_tree),
            (*self.ranks, self.ranks_of(result_tree)),
            condition_tree,
            inputs,
            self.invalid(result_tree, condition_tree),
        )
        return with_tangents(result, indices, moved), with_tangents(condition, *condition_tangents)


def _leaf_numbers(structure: Any) -> Any:
    """A tree of this structure whose leaves are their own indices."""
    return jax.tree.unflatten(structure, range(structure.num_leaves))


@functools.partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _run(method: Method, structure: Any, ranks: tuple[int, ...], *leaves: Any) -> Any:
    return run_batch(method, jax.tree.unflatten(structure, leaves), jax.tree.unflatten(structure, ranks))
