"""Relaxed steps: some that raise the cost, where rows differ widely in their weights.

A small posture beside a pose is minimised along a narrow, curved valley, in which a step as long as the model asks for
leaves the pose by its square, and the next one takes that back. Where each step has to lower the cost they are a
thousandth of a radian: from home 45 % of Pandas with a posture of cost 1e-3 took 100 steps and were not there, and now
3 %, in 23 steps of 60. So steps go on for a while from points of higher cost, and back to the best one if nothing comes
of it: the watchdog technique (Chamberlain, Powell, Lemarechal, Pedersen 1982; Nocedal, Wright, Numerical Optimization,
section 15.6).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.formulation import Formulation, Rows, count_rows, hard_constraints
from jaxik.solvers.nonlinear.hard_constraint import clearances

# At most so many relaxed steps in a row. With 3 and 20 as many elements end within 1 %.
RELAXED = 10
# The first of them is taken where damping, relative to the largest diagonal entry of the model, is less: with more no
# valley is followed. Searches that reach none of their targets take 1.05 times the steps, and 1.2 times with any.
LITTLE_DAMPING = 1e-3


class Watchdog(NamedTuple):
    """Where the next step starts, which relaxed steps may have left the best configuration for.

    Attributes:
      q (nq,), model: the configuration, and the rows there.
      relaxed (): how many relaxed steps led there.
      helped (): whether any have led to a lower cost so far.
    """

    q: jax.Array
    model: Rows
    relaxed: jax.Array
    helped: jax.Array


def least_damping(dtype: Any) -> Any:
    """Less than elsewhere: in float32 ten roundings are as much as what a cost of 1e-3 adds to the model."""
    return 3 * jnp.finfo(dtype).eps


def start(prepared: Formulation, q: jax.Array, model: Any, level: Level) -> Watchdog | None:
    """Before the first step from `q` (nq,); None where all rows may vanish, and where constraints or distances hold.

    Tasks of one kind mostly weigh alike: searches for poses alone would take 1.07 to 1.3 times as long. Beside
    constraints and distances steps may start again on other rows (`levenberg_marquardt.restarted`), which leaves no
    base for relaxed ones.
    """
    tasks = prepared.problem.tasks
    if hard_constraints(prepared.problem) or clearances(prepared.problem):
        return None
    if count_rows(prepared, level) <= len(prepared.moving.own) and len({type(tasks[name]) for name in level}) < 2:
        return None
    return Watchdog(q, model, jnp.zeros((), jnp.int32), jnp.zeros((), bool))


def cost(watchdog: Watchdog) -> jax.Array:
    """The cost () where the next step starts."""
    return 0.5 * jnp.sum(watchdog.model.residual * watchdog.model.residual)


def goes_on(watchdog: Watchdog, damping: jax.Array, size: jax.Array, last: jax.Array) -> jax.Array:
    """Whether a step that raises the cost is taken (): the first with little damping, further ones if steps shrink.

    Args:
      damping (): of the step, relative to the largest diagonal entry of the scaled model.
      size, last (): largest entry of the step, and of the one before it.
    """
    shrinks = jnp.where(watchdog.relaxed > 0, size < last, damping < LITTLE_DAMPING)
    return shrinks & (watchdog.relaxed < RELAXED)


def advance(
    watchdog: Watchdog,
    accepted: jax.Array,
    relaxed: jax.Array | bool,
    there: tuple[jax.Array, Any],
    best: tuple[jax.Array, Any],
) -> Watchdog:
    """After a step that was accepted (), relaxed (), or neither, from which it goes back to the best.

    `there`, `best`: configuration (nq,) and model at the trial point, and at the best so far.
    """
    q, model = jax.tree.map(lambda new, old: jnp.where(accepted | relaxed, new, old), there, best)
    helped = watchdog.helped | (accepted & (watchdog.relaxed > 0))
    return Watchdog(q, model, jnp.where(relaxed, watchdog.relaxed + 1, 0), helped)
