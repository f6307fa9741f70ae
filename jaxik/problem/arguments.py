"""What every verb does with its arguments before anything else."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.errors import JaxikError
from jaxik.core.pytree import cast
from jaxik.core.validation import as_array
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot


def check_problem(problem: Any) -> None:
    """Raise a JaxikError for what is no problem."""
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise JaxikError(f'problem is a jaxik.Problem, not {kind}; write Problem(robot, {{"tip": FrameTask(...)}})')


def configuration(name: str, q: Any, robot: Robot) -> jax.Array:
    """A configuration (*batch, nq) in float32 or float64; of other types, bfloat16 too, in the robot's precision.

    Raises:
      JaxikError: for what is none; says what `name` is.
    """
    try:
        q = as_array(q)
    except (TypeError, ValueError):
        raise JaxikError(f"{name} is an array (*batch, nq), not {q!r}") from None
    if jnp.issubdtype(q.dtype, jnp.complexfloating):
        raise JaxikError(f"{name} is real, not {q.dtype}")
    if q.dtype not in (jnp.float32, jnp.float64):
        q = q.astype(robot.q_home.dtype)
    if q.shape[-1:] != (robot.nq,):
        raise JaxikError(f"{name} has shape (*batch, nq) with nq = {robot.nq}, not {q.shape}")
    return q


def cast_problem(problem: Problem, dtype: Any) -> Problem:
    """Every floating leaf in the dtype of the configuration; joint limits rounded inward."""
    robot = problem.robot.astype(dtype)
    rest = cast((problem.tasks, problem.limits, problem.constraints), dtype)
    return jax.tree.unflatten(jax.tree.structure(problem), jax.tree.leaves((robot, *rest, problem.dof_mask)))


def random_key(key: Any) -> jax.Array:
    """A typed key of `jax.random`, or a batch of them."""
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    if getattr(key, "dtype", None) == jnp.uint32 and np.shape(key)[-1:] == (2,):
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise JaxikError(f"key is a key of jax.random, jax.random.key(0), or a batch of them; not {key!r}")


def keys_of_places(key: jax.Array, place: jax.Array) -> jax.Array:
    """A key for each element, by its place in the batch."""
    return jax.vmap(lambda at: jax.random.fold_in(key, at))(place.reshape(-1)).reshape(place.shape)
