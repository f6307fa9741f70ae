"""How much of limits on speeds, accelerations and jerks a motion uses."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxik.kinematics.motion import Motion
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.base import Limit
from jaxik.limits.jerk import JerkLimit
from jaxik.limits.per_joint import on_rates
from jaxik.limits.velocity import VelocityLimit
from jaxik.robot.robot import Robot


def shares_of(
    limits: Sequence[Limit], robot: Robot, velocity: jax.Array, acceleration: jax.Array, jerk: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The largest speed, acceleration and jerk () of a joint, relative to limits on them; zero without any."""
    share = jnp.zeros((), velocity.dtype)
    speeds, accelerations, jerks = [share], [share], [share]
    for limit in limits:
        if isinstance(limit, VelocityLimit):
            lower, upper = limit.bounds(robot, None, Motion(jnp.ones((), velocity.dtype)))  # type: ignore[arg-type]
            speeds.append(_largest_share(velocity, jnp.where(velocity < 0, lower, upper)))
        elif isinstance(limit, AccelerationLimit):
            accelerations.append(_largest_share(acceleration, on_rates(robot, limit.max_acceleration, jnp.inf)))
        elif isinstance(limit, JerkLimit):
            jerks.append(_largest_share(jerk, on_rates(robot, limit.max_jerk, jnp.inf)))
    return tuple(jnp.max(jnp.stack(shares)) for shares in (speeds, accelerations, jerks))  # type: ignore[return-value]


def _largest_share(value: jax.Array, limit: jax.Array) -> jax.Array:
    """The largest share () that values (nv,) have of their limits, which may be infinite; zero where nothing moves."""
    moves = value != 0
    return jnp.max(jnp.where(moves, jnp.abs(value) / jnp.where(moves, jnp.abs(limit), 1), 0), initial=0)
