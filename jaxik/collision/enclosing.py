"""A capsule around each shape of a robot, for bounds that need no more than that."""

import jax
import jax.numpy as jnp

from jaxik.collision.segments import Segment
from jaxik.kinematics.geometry import Geometry
from jaxik.numerics import lie
from jaxik.numerics.vectors import from_array


def enclosing_capsules(geometry: Geometry, rotation: jax.Array, position: jax.Array) -> tuple[Segment, jax.Array]:
    """Segments (n,) in the world and radii (n,) of capsules around all shapes; of planes, which none encloses, points.

    Spheres and capsules are their own; boxes and hulls are in one along the longest axis of their box.

    Args:
      rotation (n, 3, 3), position (n, 3): of the bodies that carry the shapes.
    """
    dtype = position.dtype
    own = jax.vmap(lie.quaternion_to_matrix)(geometry.quaternion.astype(dtype))
    half, radius = _halves_and_radii(geometry, dtype)
    center = position + jnp.einsum("nij,nj->ni", rotation, geometry.position.astype(dtype))
    along = jnp.einsum("nij,njk,nk->ni", rotation, own, half)
    return Segment(from_array(center), from_array(along)), radius


def _halves_and_radii(geometry: Geometry, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """Half a segment (n, 3) in each shape's axes, and the radius (n,) around it."""
    size = geometry.size.astype(dtype)
    a, b, c = size[:, 0], size[:, 1], size[:, 2]
    zero = jnp.zeros_like(a)
    longest = jnp.argmax(size, axis=1)
    middle, least = a + b + c - jnp.max(size, axis=1) - jnp.min(size, axis=1), jnp.min(size, axis=1)
    of_kind = {
        "sphere": (zero, zero, zero, a),
        "capsule": (zero, zero, b, a),
        "cylinder": (zero, zero, b, a),
        "plane": (zero, zero, zero, zero),
    }
    x, y, z = (jnp.where(longest == i, size[:, i], 0) for i in range(3))
    # An ellipsoid is thinner than its largest cross section everywhere, a box has corners.
    of_kind["ellipsoid"] = (x, y, z, middle)
    of_kind["box"] = of_kind["hull"] = (x, y, z, jnp.sqrt(middle**2 + least**2))
    rows = [jnp.stack([x[i] for x in of_kind[kind]]) for i, kind in enumerate(geometry.kinds)]
    found = jnp.stack(rows)
    return found[:, :3], found[:, 3]
