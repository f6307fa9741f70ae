"""Derivatives of `difference(q0, q)` along `integrate(q, dq)`: the identity, but for a block at each quaternion.

Where q = q0 exp(w) moves to q exp(u), w moves by C u with C = I + [w]/2 + k [w]^2, the right Jacobian of the log: the
transpose of the left one, A in `jaxik.numerics.rotation_log`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxik.kinematics.manifold import quaternion_places
from jaxik.kinematics.topology import JointType, Topology
from jaxik.numerics import lie
from jaxik.numerics.linalg import static_gather
from jaxik.numerics.rotation_log import left_jacobian, log_jacobian_slope, log_of_quaternion


class Turns(NamedTuple):
    """The rotations between two configurations, one for each of n quaternions.

    Attributes:
      places: where each starts in the tangent; static.
      vectors (n, 3) [rad]: from the first configuration to the second.
      k, k1 (n,): see `RotationLog`.
      jacobians (n, 3, 3): derivatives of the vectors by the rotation rates of the second.
    """

    places: tuple[int, ...]
    vectors: jax.Array
    k: jax.Array
    k1: jax.Array
    jacobians: jax.Array


def turns(topology: Topology, q_from: jax.Array, q_to: jax.Array, *, free_joints: bool = True) -> Turns:
    """The rotations of ball joints, and of free joints where asked, from one configuration (nq,) to another."""
    balls = {topology.joints[j].v_index for j in topology.ball_joints}
    chosen = [(at, rate) for at, rate in quaternion_places(topology) if free_joints or rate in balls]
    if not chosen:
        none = jnp.zeros((0, 3), q_to.dtype)
        return Turns((), none, none[:, 0], none[:, 0], jnp.zeros((0, 3, 3), q_to.dtype))

    def turn(start: jax.Array, end: jax.Array) -> tuple[jax.Array, ...]:
        between = lie.quaternion_product(lie.conjugate(lie.normalized(start)), lie.normalized(end))
        log = log_of_quaternion(between)
        return log.vector, log.k, log.k1, left_jacobian(log).T

    entries = [at + i for at, _ in chosen for i in range(4)]
    starts, ends = (static_gather(q, entries).reshape(-1, 4) for q in (q_from, q_to))
    return Turns(tuple(rate for _, rate in chosen), *jax.vmap(turn)(starts, ends))


def bending(turned: Turns, force: jax.Array) -> jax.Array:
    """`force` (nv,) on the difference, times its second derivative: (n, 3, 3), symmetric, one for each rotation."""

    def bend(h: jax.Array, w: jax.Array, k: jax.Array, k1: jax.Array, c: jax.Array) -> jax.Array:
        # The second derivative of h . w is that of (A h) . u as w moves by C u.
        bent = log_jacobian_slope(h, w, k, k1, 1.0) @ c
        return (bent + bent.T) / 2

    pulled = static_gather(force, [place + i for place in turned.places for i in range(3)]).reshape(-1, 3)
    return jax.vmap(bend)(pulled, turned.vectors, turned.k, turned.k1, turned.jacobians)


def difference_jacobian(topology: Topology, turned: Turns) -> jax.Array:
    """Derivative (nv, nv) of the difference that has these turns, of all quaternions."""
    rates = {place + i for place in turned.places for i in range(3)}
    plain = jnp.asarray([float(dof not in rates) for dof in range(topology.nv)], turned.vectors.dtype)
    return with_blocks(jnp.diag(plain), turned.places, turned.jacobians)


def with_blocks(matrix: jax.Array, places: tuple[int, ...], blocks: jax.Array) -> jax.Array:
    """`matrix` (nv, nv) with blocks (n, 3, 3) added on its diagonal, the i-th starting at `places[i]`."""
    for place, block in zip(places, blocks, strict=True):
        after = matrix.shape[0] - place - 3
        matrix = matrix + jnp.pad(block, ((place, after), (place, after)))
    return matrix


def free_rates(topology: Topology) -> list[int]:
    """The degrees of freedom that belong to free joints."""
    return [v for joint in topology.joints if joint.type is JointType.FREE for v in joint.v_indices]
