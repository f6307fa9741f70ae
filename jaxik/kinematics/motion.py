"""Duration of, and what came before, one differential-IK step, for velocity tasks and limits."""

from typing import Any

import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import leaf, pytree, set_fields


@pytree
class Motion:
    """The context of one differential-IK step.

    Args:
      dt: duration (*batch,) [s].
      previous_velocity: of the step before, (*batch, nv) [rad/s, m/s], in MuJoCo's tangent; None: at rest.
      previous_acceleration: the change of velocity to it, by dt, (*batch, nv) [rad/s^2, m/s^2]; None: zero.

    Raises:
      JaxikError: if dt is not positive.
    """

    dt: Any = leaf(0)
    previous_velocity: Any = leaf(1, default=None)
    previous_acceleration: Any = leaf(1, default=None)

    def __post_init__(self) -> None:
        dt = validation.array("dt", self.dt)
        if not isinstance(dt, Tracer) and not (np.asarray(dt) > 0).all():
            raise JaxikError(f"dt is a positive duration [s], not {np.asarray(dt)!r}")
        set_fields(self, dt=dt)
        for name in ("previous_velocity", "previous_acceleration"):
            if (value := getattr(self, name)) is not None:
                set_fields(self, **{name: validation.array(name, value)})
