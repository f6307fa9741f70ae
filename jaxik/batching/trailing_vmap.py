"""Batching with the mapped axis last.

`jax.vmap` puts the batch axis first wherever operands differ, which leaves the fastest-varying axis of every array at
3 or 6 entries: nothing for a SIMD unit or a warp to work on. `vmap_last` maps a function of one element over the *last*
axis of every array instead, so that all arithmetic runs along contiguous lanes, and turns the tiny contractions of
kinematics into multiply-and-add over lanes in the place of a library call per 3x3 matrix.

The function is traced once, per element, to a jaxpr, and the jaxpr is evaluated with a lane axis last in each mapped
value. Primitives without a rule of their own go through `jax.vmap`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex_core
from jax.interpreters.partial_eval import dce_jaxpr

from jaxik.batching import devices
from jaxik.batching.deduplicate import equation_key
from jaxik.batching.larger_operands import with_operands_compared
from jaxik.batching.primitive_rules import ELEMENTWISE, RULES, Batched, aligned, all_batched, bind, by_vmap, with_lanes

# Loops of up to so many turns are written out on an accelerator, where a turn is a kernel or more. With contractions
# written out too, an H200 takes 8 ms for `solve` of 1,000 Pandas, 40 before.
WRITTEN_OUT = 16


class PerElement:
    """A function of one element, traced once for all numbers of lanes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Of a function that takes and returns pytrees of arrays."""
        self._function = function
        self._traces: dict[Any, tuple[jex_core.ClosedJaxpr, Any]] = {}

    def trace(self, treedef: Any, leaves: Sequence[jax.ShapeDtypeStruct]) -> tuple[jex_core.ClosedJaxpr, Any]:
        """The jaxpr for arguments of these shapes, and the structure of what it returns."""
        key = treedef, tuple((x.shape, x.dtype) for x in leaves)
        if key not in self._traces:
            flat = jax.make_jaxpr(lambda *xs: self._function(*jax.tree.unflatten(treedef, xs)), return_shape=True)
            closed, shape = flat(*leaves)
            self._traces[key] = closed, jax.tree.structure(shape)
        return self._traces[key]

    def shapes(self, *arguments: Any) -> Any:
        """The shapes of what it returns for arguments of such shapes."""
        leaves, treedef = jax.tree.flatten(arguments)
        closed, structure = self.trace(treedef, leaves)
        return jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in closed.out_avals])

    def constants(self, *arguments: Any) -> list[Any]:
        """By leaf of what it returns for arguments of such shapes: its value where none of them changes it, or None."""
        leaves, treedef = jax.tree.flatten(arguments)
        closed, _ = self.trace(treedef, leaves)
        known = set(closed.jaxpr.constvars)
        for eqn in closed.jaxpr.eqns:
            if not eqn.effects and all(isinstance(x, jex_core.Literal) or x in known for x in eqn.invars):
                known.update(eqn.outvars)
        found = [isinstance(x, jex_core.Literal) or x in known for x in closed.jaxpr.outvars]
        part, _ = dce_jaxpr(closed.jaxpr, found, instantiate=False)
        values = iter(jex_core.jaxpr_as_fun(jex_core.ClosedJaxpr(part, closed.consts))())
        return [next(values) if constant else None for constant in found]


def vmap_last(function: Callable[..., Any] | PerElement, mapped: Any, size: int) -> Callable[..., Any]:
    """Map `function` over the last axis of its arguments.

    Args:
      function: takes and returns pytrees of arrays, of one element.
      mapped: a tuple of pytrees of bool, prefixes of the arguments: which leaves carry a trailing lane axis.
      size: number of lanes.

    Returns:
      A function of the same arguments, mapped leaves with the lane axis last; every output leaf carries a lane axis.
    """
    element = function if isinstance(function, PerElement) else PerElement(function)
    return lambda *args: jax.tree.map(
        lambda out: with_lanes(out, size), _mapped(element, mapped, size, args), is_leaf=_is_lane
    )


def vmap_last_where_mapped(
    function: Callable[..., Any] | PerElement, mapped: Any, size: int, known: "dict[Any, _Known] | None" = None
) -> Callable[..., tuple[Any, Any]]:
    """Like `vmap_last`, but outputs that do not depend on a mapped argument stay without a lane axis.

    Args:
      known: what an earlier call with the same arguments found, filled by this one: `is_unbatched` of it can be
        given again where the mapped arguments differ.

    Returns:
      A function that gives the outputs, and a pytree of bool of their structure: which of them carry a lane axis.
    """
    element = function if isinstance(function, PerElement) else PerElement(function)

    def partly(*args: Any) -> tuple[Any, Any]:
        out = _mapped(element, mapped, size, args, known)
        values = jax.tree.map(lambda x: jnp.asarray(x.value), out, is_leaf=_is_lane)
        return values, jax.tree.map(lambda x: x.mapped, out, is_leaf=_is_lane)

    return partly


def is_unbatched(known: "dict[Any, _Known]") -> "dict[Any, _Known]":
    """What does not depend on a mapped argument."""
    return {key: value for key, value in known.items() if not any(x.mapped for x in value.inputs)}


def without_repetitions(closed: jex_core.ClosedJaxpr) -> jex_core.ClosedJaxpr:
    """The same function, calls inlined, which computes nothing twice, and nothing that is not asked for.

    It is evaluated with nothing mapped. Of the derivative of a Panda's solution by its target, 683 equations of 3,082
    are left. In these, the operands of maxima and minima are compared with each other.
    """

    def run(*args: Any) -> list[Any]:
        return [x.value for x in _evaluate(closed, [Batched(x, False) for x in args], 1)]

    found = jax.make_jaxpr(run)(*closed.in_avals)
    jaxpr, _ = dce_jaxpr(with_operands_compared(found.jaxpr), [True] * len(found.out_avals), instantiate=True)
    return jex_core.ClosedJaxpr(jaxpr, found.consts)


def _is_lane(x: Any) -> bool:
    return isinstance(x, Batched)


def _mapped(element: PerElement, mapped: Any, size: int, args: tuple[Any, ...], known: Any = None) -> Any:
    leaves, treedef = jax.tree.flatten(args)
    flags = jax.tree.leaves(_broadcast_prefix(mapped, args))
    shapes = [_element_shape(x, m) for x, m in zip(leaves, flags, strict=True)]
    closed, structure = element.trace(treedef, shapes)
    outputs = _evaluate(closed, [Batched(jnp.asarray(x), m) for x, m in zip(leaves, flags, strict=True)], size, known)
    return jax.tree.unflatten(structure, outputs)


def _broadcast_prefix(prefix: Any, tree: Any) -> Any:
    return jax.tree.map(lambda flag, sub: jax.tree.map(lambda _: flag, sub), prefix, tree)


def _element_shape(x: Any, mapped: bool) -> jax.ShapeDtypeStruct:
    shape = np.shape(x)
    return jax.ShapeDtypeStruct(shape[:-1] if mapped else shape, jnp.result_type(x))


def _evaluate(
    closed: jex_core.ClosedJaxpr, args: Sequence[Batched], size: int, known: "dict[Any, _Known] | None" = None
) -> list[Batched]:
    """Evaluate a jaxpr; what was computed before, also in a call around this one, is not computed again."""
    jaxpr = closed.jaxpr
    env: dict[Any, Batched] = {}
    known = {} if known is None else known

    def read(atom: Any) -> Batched:
        return Batched(atom.val, False) if isinstance(atom, jex_core.Literal) else env[atom]

    for var, const in zip(jaxpr.constvars, closed.consts, strict=True):
        env[var] = Batched(const, False)
    for var, arg in zip(jaxpr.invars, args, strict=True):
        env[var] = arg
    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        key = equation_key(eqn, [x.value for x in inputs]), tuple(x.mapped for x in inputs)
        if key not in known:
            known[key] = _Known(eqn, inputs, _apply(eqn, inputs, size, known))
        for var, out in zip(eqn.outvars, known[key].outputs, strict=True):
            env[var] = out
    return [read(atom) for atom in jaxpr.outvars]


class _Known(NamedTuple):
    """What was evaluated. Equation and inputs are kept alive, so that their identities stay their own."""

    eqn: Any
    inputs: list[Batched]
    outputs: list[Batched]


def _apply(eqn: Any, inputs: list[Batched], size: int, known: Any) -> list[Batched]:
    name = eqn.primitive.name
    inner = _inlined(eqn)
    if inner is not None:
        return _evaluate(inner, inputs, size, known)
    if not any(x.mapped for x in inputs):
        return [Batched(x, False) for x in bind(eqn, eqn.params, [x.value for x in inputs])]
    if name in ELEMENTWISE:
        return [Batched(x, True) for x in bind(eqn, eqn.params, aligned(eqn, inputs, size))]
    if name in CONTROL:
        return CONTROL[name](eqn, inputs, size)
    if name in RULES:
        outputs = RULES[name](eqn, inputs, size)
        if outputs is not None:
            return outputs
    return by_vmap(eqn, inputs)


def _inlined(eqn: Any) -> jex_core.ClosedJaxpr | None:
    """The body of a call that means no more than its body."""
    if eqn.primitive.name not in CALLS:
        return None
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        body = eqn.params.get(key)
        if body is not None:
            return body if isinstance(body, jex_core.ClosedJaxpr) else jex_core.ClosedJaxpr(body, ())
    return None


def _scan(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    p = eqn.params
    n_consts, n_carry = _scan_counts(p)
    consts, carry, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]

    def body(carry_values: list[jax.Array], x_values: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        step = [Batched(c, True) for c in carry_values]
        step_xs = [Batched(x, m.mapped) for x, m in zip(x_values, xs, strict=True)]
        out = all_batched(_evaluate(p["jaxpr"], [*consts, *step, *step_xs], size), size)
        return out[:n_carry], out[n_carry:]

    last, stacked = lax.scan(
        body,
        all_batched(carry, size),
        [x.value for x in xs],
        length=p["length"],
        reverse=p["reverse"],
        unroll=max(1, p["length"]) if devices.accelerated() and p["length"] <= WRITTEN_OUT else p["unroll"],
    )
    return [Batched(x, True) for x in (*last, *stacked)]


def _scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many operands of a `scan` are constants, and how many are carried."""
    if "ft_in" in params:  # JAX 0.11 and newer: trees of constants, carries and elements
        consts, carry, _ = map(len, params["ft_in"].unpack())
        return consts, carry
    return params["num_consts"], params["num_carry"]


def _while(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    p = eqn.params
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    cond_consts, body_consts, init = inputs[:n_cond], inputs[n_cond : n_cond + n_body], inputs[n_cond + n_body :]

    def running(carry: list[jax.Array]) -> jax.Array:
        (out,) = _evaluate(p["cond_jaxpr"], [*cond_consts, *(Batched(c, True) for c in carry)], size)
        return with_lanes(out, size)

    def body(carry: list[jax.Array]) -> list[jax.Array]:
        new = all_batched(_evaluate(p["body_jaxpr"], [*body_consts, *(Batched(c, True) for c in carry)], size), size)
        alive = running(carry)
        return [jnp.where(alive, n, c) for n, c in zip(new, carry, strict=True)]

    return [Batched(x, True) for x in lax.while_loop(lambda c: jnp.any(running(c)), body, all_batched(init, size))]


def _custom_jvp(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    """The body over lanes; where derivatives are taken of it, the custom rule over lanes."""
    differentiable = [jnp.issubdtype(jnp.result_type(x.value), jnp.inexact) for x in inputs]

    @jax.custom_jvp
    def call(*values: jax.Array) -> list[jax.Array]:
        lanes_in = [Batched(v, x.mapped) for v, x in zip(values, inputs, strict=True)]
        return all_batched(_evaluate(eqn.params["call_jaxpr"], lanes_in, size), size)

    def element_jvp(values: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
        rest = iter(tangents)
        every = [
            next(rest) if d else np.zeros(v.shape, jax.dtypes.float0)
            for v, d in zip(values, differentiable, strict=True)
        ]
        return jax.jvp(lambda *xs: bind(eqn, eqn.params, xs), values, every)

    @call.defjvp
    def rule(values: Any, tangents: Any) -> tuple[list[jax.Array], list[jax.Array]]:
        mapped = [x.mapped for x in inputs]
        wanted = [t for t, d in zip(tangents, differentiable, strict=True) if d]
        flags = [m for m, d in zip(mapped, differentiable, strict=True) if d]
        return vmap_last(element_jvp, (mapped, flags), size)(list(values), wanted)

    return [Batched(x, True) for x in call(*(x.value for x in inputs))]


def _cond(eqn: Any, inputs: list[Batched], size: int) -> list[Batched]:
    index, *operands = inputs
    branches = eqn.params["branches"]

    def branch(closed: jex_core.ClosedJaxpr) -> Callable[..., list[jax.Array]]:
        return lambda *xs: all_batched(
            _evaluate(closed, [Batched(x, o.mapped) for x, o in zip(xs, operands, strict=True)], size), size
        )

    values = [x.value for x in operands]
    if not index.mapped:
        return [Batched(x, True) for x in lax.switch(index.value, [branch(b) for b in branches], *values)]
    # A branch that no lane takes is not run at all; its outputs are never looked at.
    which = jnp.clip(index.value.astype(jnp.int32), 0, len(branches) - 1)
    # One that computes nothing is what the others are chosen over.
    still = next((i for i, closed in enumerate(branches) if not closed.eqns), None)
    if still is None:
        chosen = [jnp.zeros((*v.aval.shape, size), v.aval.dtype) for v in eqn.outvars]
    else:
        chosen = branch(branches[still])(*values)
    for i, closed in enumerate(branches):
        if i == still:
            continue
        taken = which == i
        run = branch(closed)
        chosen = lax.cond(
            jnp.any(taken),
            lambda old, *xs, run=run, taken=taken: [jnp.where(taken, n, o) for n, o in zip(run(*xs), old, strict=True)],
            lambda old, *xs: old,
            chosen,
            *values,
        )
    return [Batched(x, True) for x in chosen]


CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})

CONTROL: dict[str, Callable[[Any, list[Batched], int], list[Batched]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_jvp_call": _custom_jvp,
}
