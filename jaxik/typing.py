"""Array types of the public API."""

from typing import Any

from jax import Array
from jaxtyping import Bool, Float, Int

Scalar = Float[Array, "*batch"]
Configuration = Float[Array, "*batch nq"]
Tangent = Float[Array, "*batch nv"]
Vector3 = Float[Array, "*batch 3"]
FrameJacobian = Float[Array, "*batch 6 nv"]
Flags = Bool[Array, "*batch"]
Counts = Int[Array, "*batch"]
PyTree = Any
