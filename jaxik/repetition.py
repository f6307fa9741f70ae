"""Equations of a jaxpr that repeat others.

Tasks ask for residual, Jacobian and error one by one, which share most of their work: a third of the equations of a
step are repetitions, and each derivative repeats them again, which costs time at every stage of compilation. Backwards
no compiler finds them: there, what is computed twice is pulled at twice.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal
from jax.interpreters.partial_eval import dce_jaxpr

# Calls that mean no more than their body.
CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
# Modules whose derivative rules close over nothing.
OPEN_RULES = tuple(f" at {Path(__file__).parent / name}:" for name in ("kept.py", "lie.py", "trigonometry.py"))
# Numbers in a constant that is compared with others by what it holds.
SMALL_CONSTANT = 64


def without_repetitions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function, calls inlined, which computes nothing twice, and nothing that is not asked for.

    Of the derivative of a Panda's solution by its target, 683 equations of 3,082 are left.
    """
    found = jax.make_jaxpr(lambda *args: _evaluate(closed, args, {}))(*closed.in_avals)
    jaxpr, _ = dce_jaxpr(found.jaxpr, [True] * len(found.out_avals), instantiate=True)
    return ClosedJaxpr(jaxpr, found.consts)


def _evaluate(closed: ClosedJaxpr, args: Sequence[Any], known: dict[Any, tuple[Any, list[Any]]]) -> list[Any]:
    """Evaluate a jaxpr; what is known holds the inputs as well, as `identity` asks, and `closed` the equations."""
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else env[atom]

    for eqn in closed.jaxpr.eqns:
        inputs, body = [read(atom) for atom in eqn.invars], inlined(eqn)
        if body is not None:
            outputs = _evaluate(body, inputs, known)
        else:
            key = identity(eqn, inputs)
            if key not in known:
                known[key] = inputs, bind(eqn, eqn.params, inputs)
            _, outputs = known[key]
        env.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]


def bind(eqn: Any, params: dict[str, Any], values: Sequence[Any]) -> list[Any]:
    """What an equation's primitive gives for other values; a custom call carries its derivative rule along."""
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
    return list(out) if eqn.primitive.multiple_results else [out]


def inlined(eqn: Any) -> ClosedJaxpr | None:
    """The body of a call that means no more than its body."""
    if eqn.primitive.name not in CALLS:
        return None
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        body = eqn.params.get(key)
        if body is not None:
            return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())
    return None


def identity(eqn: Any, values: Sequence[Any]) -> Any:
    """Equal for equations that compute the same; of parameters that cannot be compared, the same object is.

    It holds as long as equation and values are kept: an object that is gone leaves its identity to another. What has an
    effect, such as a print, happens as often as it is written.
    """
    if eqn.effects:
        return object()
    inputs = tuple(map(_comparable_value, values))
    if eqn.primitive.name == "custom_jvp_call":
        return eqn.primitive, _own_rule(eqn), inputs
    return eqn.primitive, tuple((name, _comparable(eqn.params[name])) for name in sorted(eqn.params)), inputs


def _own_rule(eqn: Any) -> Any:
    """What a function with a derivative rule is; of a rule that may close over anything, itself."""
    rule, body = eqn.params["jvp_jaxpr_fun"], eqn.params["call_jaxpr"]
    place = rule.debug_info.func_src_info or ""
    known = any(module in place for module in OPEN_RULES) and not body.consts
    return (place, str(body)) if known else (id(rule), id(body))


def _comparable(param: Any) -> Any:
    if isinstance(param, tuple):
        return tuple(map(_comparable, param))
    return repr(param) if isinstance(param, int | float | str | bool | None) else str(id(param))


def _comparable_value(value: Any) -> Any:
    """The content of small constants, each of which is an array of its own wherever it is written down."""
    known = not isinstance(value, Tracer) and not jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key)
    if not known or np.size(value) > SMALL_CONSTANT:
        return id(value)
    array = np.asarray(value)
    return type(value), array.dtype, array.shape, array.tobytes()
