"""Keep joints inside their limits."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxik.errors import JaxikError
from jaxik.pytree import leaf, pytree, set_fields
from jaxik.robot.model import Robot


@pytree
class ConfigurationLimit:
    """Keep every joint inside its limits, which are the robot's.

    Args:
      gain: the share of the distance to a limit that one step of differential IK may use; `solve` ignores it.
      margin: distance to keep from the limits (*batch,) [rad or m].

    Raises:
      JaxikError: if the gain is outside (0, 1] or the margin is negative.
    """

    gain: Any = leaf(0, default=0.95)
    margin: Any = leaf(0, default=0.0)

    def __post_init__(self) -> None:
        gain, margin = jnp.asarray(self.gain, float), jnp.asarray(self.margin, float)
        if not isinstance(gain, Tracer) and not ((np.asarray(gain) > 0) & (np.asarray(gain) <= 1)).all():
            raise JaxikError(f"gain is in (0, 1], not {self.gain}")
        if not isinstance(margin, Tracer) and not ((np.asarray(margin) >= 0) & np.isfinite(margin)).all():
            raise JaxikError(f"margin is a finite distance to keep from the limits, not negative: {self.margin}")
        set_fields(self, gain=gain, margin=margin)

    def narrowed(self, robot: Robot) -> Robot:
        """The robot with its limits drawn in by the margin; joints that have no room left keep their middle."""
        lower, upper = robot.limit_lower, robot.limit_upper
        # A margin that turns out to be NaN under jit must not reach the configuration.
        margin = jnp.nan_to_num(jnp.asarray(self.margin, upper.dtype))
        ball = jnp.asarray([i in robot.topology.ball_joints for i in range(len(robot.topology.joints))], bool)
        middle = jnp.where(ball, jnp.maximum(upper - margin, 0), (lower + upper) / 2)
        low, high = jnp.where(ball, lower, lower + margin), upper - margin
        empty = low > high
        return _with_limits(
            robot, jnp.where(empty, jnp.where(ball, lower, middle), low), jnp.where(empty, middle, high)
        )


def unlimited(robot: Robot) -> Robot:
    """The robot without limits."""
    infinite = jnp.full_like(robot.limit_upper, jnp.inf)
    return _with_limits(robot, -infinite, infinite)


def _with_limits(robot: Robot, lower: jax.Array, upper: jax.Array) -> Robot:
    return dataclasses.replace(robot, limit_lower=lower, limit_upper=upper)
