"""Relaxed steps: some that raise the cost, where rows differ widely in their weights.

A small posture beside a pose is minimised along a narrow, curved valley, in which a step as long as the model asks for
leaves the pose by its square. Where each step has to lower the cost they are a thousandth of a radian: from home 45 %
of Pandas with a posture of cost 1e-3 took 100 steps and were not there, and now 1 %, in 21 steps of 60. So steps go on
for a while from points of higher cost, and back to the best one if nothing comes of it: the watchdog technique
(Chamberlain, Powell, Lemarechal, Pedersen 1982; Nocedal, Wright, Numerical Optimization, section 15.6).

There are two ways to go on, and where nothing came of one the next time is the other's. Steps minimise the cost, as
Gauss-Newton's do first, which takes most problems the fewest; or they go to the rows that the first one's model
promised, as Newton's do first, and take back the square of the step and not the step, as second-order corrections do
(section 15.5). Poses with a
manipulability of cost 0.01 end in 36 steps and not 49, and 9 % of them in a TIMEOUT and not 28 %. A humanoid's poses
would take 1.3 times the steps if all corrected.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxik.problem.problem import Level
from jaxik.solvers.nonlinear.formulation import Formulation, count_rows, hard_constraints
from jaxik.solvers.nonlinear.hard_constraint import clearances

# At most so many relaxed steps in a row, each at most this share of the one before it: where they minimise the cost,
# and where they correct.
MINIMISE, CORRECT = (10, 1.0), (4, 0.7)
# The first of them is taken where damping, relative to the largest diagonal entry of the model, is less: with more no
# valley is followed. Searches that reach none of their targets take 1.05 times the steps, and 1.2 times with any.
LITTLE_DAMPING = 1e-3


class Watchdog(NamedTuple):
    """Where the next step starts, which relaxed steps may have left the best configuration for.

    Attributes:
      q (nq,), model: the configuration, and the rows there.
      relaxed (): how many relaxed steps led there.
      helped (): whether any have led to a lower cost so far.
      aim: what the next step aims at: the residual or gradient that the first of them promised, or 0.
      size (): largest entry of the step that led there.
      corrects (): whether relaxed steps go to what was promised.
    """

    q: jax.Array
    model: Any
    relaxed: jax.Array
    helped: jax.Array
    aim: jax.Array
    size: jax.Array
    corrects: jax.Array


def least_damping(dtype: Any) -> Any:
    """Less than elsewhere: in float32 ten roundings are as much as what a cost of 1e-3 adds to the model."""
    return 3 * jnp.finfo(dtype).eps


def start(prepared: Formulation, q: jax.Array, model: Any, level: Level, corrects: bool) -> Watchdog | None:
    """Before the first step from `q` (nq,); None where all rows may vanish, and where constraints or distances hold.

    `corrects`: whether the first relaxed steps correct.

    Tasks of one kind mostly weigh alike: searches for poses alone would take 1.07 to 1.3 times as long. Beside
    constraints and distances steps may start again on other rows (`levenberg_marquardt.restarted`), which leaves no
    base for relaxed ones.
    """
    tasks = prepared.problem.tasks
    if hard_constraints(prepared.problem) or clearances(prepared.problem):
        return None
    if count_rows(prepared, level) <= len(prepared.moving.own) and len({type(tasks[name]) for name in level}) < 2:
        return None
    none, no, infinite = jnp.zeros((), jnp.int32), jnp.zeros((), bool), jnp.full((), jnp.inf, q.dtype)
    return Watchdog(q, model, none, no, jnp.zeros_like(model[0]), infinite, jnp.full((), corrects))


def aimed(watchdog: Watchdog) -> Any:
    """The model where the next step starts, less its aim."""
    first, *others = watchdog.model
    return type(watchdog.model)(first - watchdog.aim, *others)


def is_relaxed(watchdog: Watchdog | None) -> jax.Array:
    """Whether a relaxed step led to where the next one starts ()."""
    return jnp.zeros((), bool) if watchdog is None else watchdog.relaxed > 0


def corrects(watchdog: Watchdog) -> jax.Array:
    """Whether the next step is a correction ()."""
    return watchdog.corrects & (watchdog.relaxed > 0)


def goes_on(watchdog: Watchdog | None, damping: jax.Array, displacement: jax.Array) -> jax.Array:
    """Whether a step that raises the cost is taken (): the first with little damping, further ones if steps shrink.

    Args:
      damping (): of the step, relative to the largest diagonal entry of the scaled model.
      displacement (n,): the step.
    """
    if watchdog is None:
        return jnp.zeros((), bool)
    size = jnp.max(jnp.abs(displacement))
    most, shrink = (jnp.where(watchdog.corrects, *which) for which in zip(CORRECT, MINIMISE, strict=True))
    shrinks = jnp.where(watchdog.relaxed > 0, size < shrink * watchdog.size, damping < LITTLE_DAMPING)
    return shrinks & (watchdog.relaxed < most)


def advance(
    watchdog: Watchdog,
    accepted: jax.Array,
    relaxed: jax.Array | bool,
    there: tuple[jax.Array, Any],
    best: tuple[jax.Array, Any],
    promised: jax.Array,
    displacement: jax.Array,
) -> Watchdog:
    """After a step that was accepted (), relaxed (), or neither, from which it goes back to the best.

    `there`, `best`: configuration (nq,) and model at the trial point, and at the best so far. `promised`: the first
    field of the model after the step `displacement` (n,), according to the model before it.
    """
    q, model = jax.tree.map(lambda new, old: jnp.where(accepted | relaxed, new, old), there, best)
    helped = watchdog.helped | (accepted & (watchdog.relaxed > 0))
    first = relaxed & (watchdog.relaxed == 0)
    aim = jnp.where(first & watchdog.corrects, promised, jnp.where(relaxed, watchdog.aim, 0))
    failed = (watchdog.relaxed > 0) & ~(accepted | relaxed)
    size = jnp.max(jnp.abs(displacement))
    count = jnp.where(relaxed, watchdog.relaxed + 1, 0)
    return Watchdog(q, model, count, helped, aim, size, watchdog.corrects ^ failed)
