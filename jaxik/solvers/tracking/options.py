"""Options of `track`."""

from typing import Any

import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields, static
from jaxik.qp_solver import QPOptions
from jaxik.solvers.differential.step import DAMPING


@pytree
class TrackOptions:
    """Options of `track`, traced by JAX but for `continuous`, so changing them never recompiles.

    Args:
      damping: (*batch,), on every degree of freedom, as of `step`.
      feed_forward: (*batch,), in [0, 1]: how much of a target's own motion is followed at once. With 1, a gain below 1
        says how fast errors shrink, and a target that moves is followed without lag; with 0 the gain applies to the
        target's motion as well, which lags, and smooths targets that jump. With a gain of 1 it makes no difference.
      qp_options: `QPOptions` of the quadratic program of each step.
      continuous: as of `step`: whether a `CollisionLimit` holds between steps as well; static.

    Raises:
      JaxikError: for a wrong type or a number out of range.
    """

    damping: Any = leaf(0, default=DAMPING)
    feed_forward: Any = leaf(0, default=1.0)
    qp_options: QPOptions | None = leaf(default=None)
    continuous: bool = static(default=False)

    def __post_init__(self) -> None:
        share = validation.number("feed_forward", self.feed_forward)
        if not isinstance(share, Tracer) and (np.asarray(share) > 1).any():
            raise JaxikError(f"feed_forward is in [0, 1], not {np.asarray(share)!r}")
        if self.qp_options is not None and not isinstance(self.qp_options, QPOptions):
            raise JaxikError(f"qp_options is a jaxik.QPOptions, not {type(self.qp_options).__name__}")
        if not isinstance(self.continuous, bool):
            raise JaxikError(f"continuous is True or False, not {self.continuous!r}")
        set_fields(self, damping=validation.number("damping", self.damping), feed_forward=share)
