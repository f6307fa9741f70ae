"""Options of `plan_motion`."""

import operator
from typing import Any

import jax.numpy as jnp

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static


@pytree
class PlanningOptions:
    """Options of `plan_motion`; all but `nodes` are traced by JAX, so changing them never recompiles.

    Args:
      max_attempts: so many attempts are made, at most, from 1 on, each with samples of its own (*batch,).
      max_looks: in each at most so many configurations are looked at (*batch,).
      reach: how far a tree grows at once (*batch,), as the root of the sum of squares over joints [rad, m].
      shortcuts: how many times a path is tried to be shortened (*batch,).
      nodes: of each of two trees, where an attempt ends as well; static.

    Raises:
      JaxikError: for what is no number, or is out of range.
    """

    max_attempts: Any = leaf(0, default=8)
    max_looks: Any = leaf(0, default=4000)
    reach: Any = leaf(0, default=1.5)
    shortcuts: Any = leaf(0, default=16)
    nodes: int = static(default=256)

    def __post_init__(self) -> None:
        try:
            nodes = operator.index(self.nodes)
        except TypeError:
            nodes = 0
        if nodes < 8 or isinstance(self.nodes, bool):
            raise JaxikError(f"nodes is a count from 8 on, known before jit, not {self.nodes!r}")
        set_fields(
            self,
            max_attempts=validation.option("max_attempts", self.max_attempts, jnp.int32, least=1),
            max_looks=validation.option("max_looks", self.max_looks, jnp.int32),
            reach=validation.positive("reach", self.reach),
            shortcuts=validation.option("shortcuts", self.shortcuts, jnp.int32),
            nodes=nodes,
        )
