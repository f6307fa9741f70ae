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
      max_looks: so many configurations are looked at, at most, for each motion (*batch,).
      reach: how far a tree grows at once (*batch,), as the root of the sum of squares over joints [rad, m].
      shortcuts: how many times a path is tried to be shortened (*batch,).
      nodes: of each of two trees; when one is full both begin again, with other samples; static.

    Raises:
      JaxikError: for what is no number, or is out of range.
    """

    max_looks: Any = leaf(0, default=10_000)
    reach: Any = leaf(0, default=1.5)
    shortcuts: Any = leaf(0, default=16)
    nodes: int = static(default=128)

    def __post_init__(self) -> None:
        try:
            nodes = operator.index(self.nodes)
        except TypeError:
            nodes = 0
        if nodes < 2 or isinstance(self.nodes, bool):
            raise JaxikError(f"nodes is a count from 2 on, known before jit, not {self.nodes!r}")
        set_fields(
            self,
            max_looks=validation.option("max_looks", self.max_looks, jnp.int32),
            reach=validation.positive("reach", self.reach),
            shortcuts=validation.option("shortcuts", self.shortcuts, jnp.int32),
            nodes=nodes,
        )
