"""Which derivative rules close over nothing: calls of their functions with equal operands compute the same."""

from collections.abc import Callable
from typing import Any, TypeVar

Rule = TypeVar("Rule", bound=Callable[..., Any])

# Name, file and line of each, as JAX names a function in a jaxpr.
PURE_RULES: set[str] = set()


def pure_rule(rule: Rule) -> Rule:
    """Register a rule of a `jax.custom_jvp` that closes over nothing; put it below `@function.defjvp`."""
    code = rule.__code__
    PURE_RULES.add(f"{rule.__name__} at {code.co_filename}:{code.co_firstlineno}")
    return rule
