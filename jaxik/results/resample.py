"""A motion at another rate: the quadratic B-spline of its configurations."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.kinematics.manifold import integrate
from jaxik.kinematics.topology import Topology

# Of a number of steps that is whole but for the rounding of dt, in float32.
ROUNDING = 1e-6
# Share of the largest velocity: of the one before the start rounding leaves as much in float32.
AT_REST = 1e-5


class Resampled(NamedTuple):
    """A motion of n steps.

    Attributes:
      q, velocity, acceleration: as of the motion that was sampled.
      step (n,): the step that each is in.
      before, after, share (n,): the steps whose velocities it is between, -1 for the rest before the first one, and its
        share of the way to the later one.
    """

    q: jax.Array
    velocity: jax.Array
    acceleration: jax.Array
    step: np.ndarray
    before: np.ndarray
    after: np.ndarray
    share: jax.Array


def resampled(
    topology: Topology, q: jax.Array, velocity: jax.Array, acceleration: jax.Array, dt: float, new_dt: float
) -> Resampled:
    """Sample the spline of configurations (T, *batch, nq), reached at velocities (T, *batch, nv), every `new_dt`.

    The velocity of a step is reached in its middle. From rest the first one is at the end of half a step more: at once
    it would take dt / new_dt times the acceleration.

    Raises:
      JaxikError: if that is longer than the motion.
    """
    steps, before = q.shape[0], velocity[:1] - acceleration[:1] * dt
    from_rest = bool(jnp.max(jnp.abs(before), initial=0) <= AT_REST * jnp.max(jnp.abs(velocity), initial=0))
    duration = (steps + from_rest / 2) * dt
    if not steps or np.floor(duration / new_dt * (1 + ROUNDING)) < 1:
        raise JaxikError(f"dt is {new_dt:g} s, longer than the whole motion of {steps * dt:g} s")
    # The last step ends where the motion does, and waits there where dt does not divide its duration.
    count = int(np.ceil(duration / new_dt * (1 - ROUNDING)))
    # Counts steps from the start of the motion.
    place = np.minimum(np.arange(1, count + 1) * new_dt / dt - from_rest / 2, steps)
    knot = np.floor(place + 0.5).astype(int)
    share = jnp.asarray(place + 0.5 - knot, q.dtype)
    first, second = np.maximum(knot - 1, -1 if from_rest else 0), np.minimum(knot, steps - 1)
    step = np.clip(np.ceil(place * (1 - ROUNDING)).astype(int) - 1, 0, steps - 1)
    along, blended, change = _sampled(topology, q, (1 - from_rest) * velocity[:1], velocity, dt, knot, share)
    return Resampled(along, blended, change, step, first, second, share)


@partial(jax.jit, static_argnums=0)  # op by op it was some 150 small programs
def _sampled(
    topology: Topology, q: jax.Array, begin: jax.Array, velocity: jax.Array, dt: Any, knot: Any, share: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Configurations, velocities and accelerations at a share (n,) of the way between the middles of two steps."""
    share = share.reshape(-1, *(1,) * (q.ndim - 1))
    velocities = jnp.concatenate([begin, velocity, velocity[-1:]])
    before, after = velocities[knot], velocities[knot + 1]
    moved = jnp.vectorize(lambda q, dq: integrate(topology, q, dq), signature="(q),(v)->(q)")
    start, end = moved(q[:1], -dt * velocity[:1]), moved(q[-1:], dt * velocity[-1:])
    # One more configuration at both ends.
    points = jnp.concatenate([moved(start, -dt * begin), start, q, end])
    near = points[knot + 1]
    along = moved(moved(near, -((1 - share) ** 2) / 2 * dt * before), share**2 / 2 * dt * after)
    around = jnp.stack([points[knot], near, points[knot + 2]])
    scalar = np.zeros(topology.nq, bool)
    scalar[[topology.joints[j].q_index for j in topology.scalar_joints]] = True
    # Rounding must not take a joint past a limit that its neighbours keep.
    along = jnp.where(scalar, jnp.clip(along, around.min(axis=0), around.max(axis=0)), along)
    return along, (1 - share) * before + share * after, (after - before) / dt
