"""Equations of a jaxpr that repeat others.

Tasks ask for residual, Jacobian and error one by one, which share most of their work: a third of the equations of a
step are repetitions, and each derivative repeats them again, which costs time at every stage of compilation. Backwards
no compiler finds them: there, what is computed twice is pulled at twice.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxik.numerics.custom_rules import PURE_RULES

# Numbers in a constant that is compared with others by what it holds: pairs of shapes are such lists, written down anew
# by residual, Jacobian and error.
SMALL_CONSTANT = 2**13
# Types whose values are compared as they are; of floats, 0 equals -0. To a primitive 1 and True mean the same.
PLAIN = frozenset((int, str, bool, type(None)))


def equation_key(eqn: Any, values: Sequence[Any]) -> Any:
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
    return (place, _structure(body.jaxpr)) if place in PURE_RULES and not body.consts else (id(rule), id(body))


def _structure(jaxpr: Jaxpr) -> Any:
    """Equal for jaxprs that compute the same by the same equations; a tenth of the time that printing them takes."""
    number = {variable: i for i, variable in enumerate((*jaxpr.constvars, *jaxpr.invars))}

    def operand(x: Any) -> Any:
        return (x.aval, _comparable_value(x.val)) if isinstance(x, Literal) else number[x]

    equations = []
    for eqn in jaxpr.eqns:
        inputs = tuple(map(operand, eqn.invars))
        number |= {variable: len(number) + i for i, variable in enumerate(eqn.outvars)}
        rule = _own_rule(eqn) if eqn.primitive.name == "custom_jvp_call" else _written(tuple(eqn.params.items()))
        equations.append((eqn.primitive, rule, inputs))
    shapes = tuple(variable.aval for variable in jaxpr.invars)
    return shapes, tuple(equations), tuple(map(operand, jaxpr.outvars))


def _written(param: Any) -> Any:
    if isinstance(param, ClosedJaxpr):
        return _structure(param.jaxpr), tuple(map(id, param.consts))
    if isinstance(param, Jaxpr):
        return _structure(param)
    if type(param) is tuple:
        return tuple(map(_written, param))
    return param if type(param) in PLAIN else (type(param), repr(param))


def _comparable(param: Any) -> Any:
    if isinstance(param, tuple):
        return tuple(map(_comparable, param))
    if type(param) in PLAIN:
        return param
    return (type(param), repr(param)) if isinstance(param, float) else (object, id(param))


def _comparable_value(value: Any) -> Any:
    """The content of small constants, each of which is an array of its own wherever it is written down."""
    unknown = isinstance(value, Tracer) or (
        isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    )
    if unknown or np.size(value) > SMALL_CONSTANT:
        return id(value)
    array = np.asarray(value)
    return type(value), array.dtype, array.shape, array.tobytes()
