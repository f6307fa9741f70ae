"""The pose of a body of which points are known: optical markers, or key points of a hand's palm."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core.errors import JaxikError
from jaxik.retargeting.hidden import chosen, seen

# Smallest ratio of how wide reference points are, across the line nearest them, to how long: float32 turns about it no
# better than by its rounding, over this.
SLENDER = 1e-3


def rigid_pose(points: Any, reference: Any) -> jaxlie.SE3:
    """The pose that moves reference points onto measured ones, as well as it can: least squares of their distances.

    It turns and never mirrors, nor scales. Where measured points are on one line, the turn about that is anyone's, and
    derivatives are not finite.

    Args:
      points (*batch, K, 3): as measured [m]; a moment in which any is not finite has a pose that is NaN.
      reference (K, 3): the same points in the body's own axes [m], three or more, not on one line.

    Returns:
      The pose of the body (*batch,): `pose @ reference` is near `points`.

    Raises:
      JaxikError: for shapes, and reference points that are not finite or on one line.
    """
    points, reference = jnp.asarray(points), jnp.asarray(reference)
    if reference.ndim != 2 or reference.shape[0] < 3 or reference.shape[-1] != 3:
        raise JaxikError(f"reference is three points or more, of shape (K, 3), not {reference.shape}")
    if points.shape[-2:] != reference.shape:
        raise JaxikError(f"points has shape (*batch, {reference.shape[0]}, 3), as reference has, not {points.shape}")
    if not isinstance(reference, Tracer):
        given = np.asarray(reference, float)
        if not np.isfinite(given).all():
            raise JaxikError(f"reference is not finite: {given}. Take a moment in which all of its points are seen")
        sizes = np.linalg.svd(given - given.mean(axis=0), compute_uv=False)
        if sizes[1] <= SLENDER * sizes[0]:
            raise JaxikError(f"the points of reference are on one line, and leave the turn about it open: {given}")
    return _fitted(points, reference)


@jax.jit
def _fitted(points: jax.Array, reference: jax.Array) -> jaxlie.SE3:
    known = jnp.all(seen(points), axis=-1)
    # NaN times a derivative of zero would be NaN.
    there = jnp.where(known[..., None, None], points, reference)
    centers = jnp.mean(reference, axis=0), jnp.mean(there, axis=-2)
    a, b = reference - centers[0], there - centers[1][..., None, :]
    # Horn (1987): of all turns, as unit quaternions, the best has the largest q' N q.
    moment = jnp.einsum("ki,...kj->...ij", a, b, precision="highest")
    trace = jnp.trace(moment, axis1=-2, axis2=-1)[..., None, None]
    about = jnp.sum(jnp.cross(a, b), axis=-2)[..., None]
    symmetric = moment + moment.mT - trace * jnp.eye(3, dtype=moment.dtype)
    rows = jnp.concatenate([trace, about.mT], axis=-1), jnp.concatenate([about, symmetric], axis=-1)
    rotation = jaxlie.SO3(_largest(jnp.concatenate(rows, axis=-2)))
    pose = jaxlie.SE3.from_rotation_and_translation(rotation, centers[1] - rotation @ centers[0])
    return chosen(known, pose, jnp.nan)


@jax.custom_jvp
def _largest(matrix: jax.Array) -> jax.Array:
    """The unit vector (*batch, 4) of the largest eigenvalue of symmetric matrices (*batch, 4, 4), its first not < 0."""
    vector = jnp.linalg.eigh(matrix)[1][..., -1]
    return jnp.where(vector[..., :1] < 0, -vector, vector)


@_largest.defjvp
def _largest_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """That of `eigh` divides by the gaps between all eigenvalues; of symmetric clusters the smaller ones have none."""
    (matrix,), (change,) = primals, tangents
    vector = _largest(matrix)
    with jax.default_matmul_precision("highest"):
        column = vector[..., None]
        turned = change @ column
        turned = turned - column * (column.mT @ turned)
        value = column.mT @ matrix @ column
        # Invertible by what is added along the vector, where `turned` is zero.
        gaps = value * (jnp.eye(4, dtype=matrix.dtype) + column @ column.mT) - matrix
        return vector, jnp.linalg.solve(gaps, turned)[..., 0]
