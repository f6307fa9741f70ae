"""Where the time of one step at a time goes: the shortest calls of ever longer beginnings of it, on the host's clock.

Each beginning is a program of its own with the step's arguments and results as small, so that differences between them
are what is added. Calls of one program come in bursts, as a control loop makes them: in turn with others, each would
find its data and code gone from the caches.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jaxik

ROUNDS, BURST = 40, 50


def account(
    problem: Callable[[Any], jaxik.Problem], step: Callable[..., Any], q: jax.Array, given: Any, dt: float
) -> dict[str, float]:
    """Microseconds up to and with each part of a step, for one robot.

    Args:
      problem: what is given -> the problem.
      step: q, given -> velocity and status.
      q, given: of one element.
      dt: of the step [s].
    """

    def dispatch(q: jax.Array, given: Any) -> Any:
        return 2 * q, jnp.int32(0)

    def kinematics(q: jax.Array, given: Any) -> Any:
        asked = problem(given)
        frames = dict.fromkeys(frame for task in asked.tasks.values() for frame in task.frames)
        roots = dict.fromkeys(root for task in asked.tasks.values() for root in task.subtrees)
        kin = asked.robot.kinematics(q, frames, roots)
        seen = [(kin.transform(frame), kin.jacobian_world_aligned(frame)) for frame in frames]
        return _sum(q, seen, [(kin.center_of_mass(root), kin.center_of_mass_jacobian(root)) for root in roots])

    def linearize(q: jax.Array, given: Any) -> Any:
        model = jaxik.linearize(problem(given), q, dt)
        return _sum(q, model.H, model.c, model.lower, model.upper)

    parts = {"dispatch": dispatch, "kinematics": kinematics, "linearize": linearize, "step": step}
    # What a part has no use for would not be passed to it.
    compiled = {name: jax.jit(part, keep_unused=True) for name, part in parts.items()}
    shortest = dict.fromkeys(parts, float("inf"))
    for part in compiled.values():
        jax.block_until_ready(part(q, given))
    for _ in range(ROUNDS):
        for name, part in compiled.items():
            for _ in range(BURST):
                begin = time.perf_counter()
                jax.block_until_ready(part(q, given))
                shortest[name] = min(shortest[name], time.perf_counter() - begin)
    return {name: round(1e6 * seconds, 1) for name, seconds in shortest.items()}


def _sum(q: jax.Array, *found: Any) -> Any:
    """As many results as a step has, for which everything that was found is needed."""
    return q + sum(jnp.sum(x) for x in jax.tree.leaves(found)), jnp.int32(0)
