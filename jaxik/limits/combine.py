"""Merge all limits of a problem into one box and one set of rows, feasible wherever a step starts.

Bounds that contain zero are feasible together. Some demand motion: a joint outside its limits has to come back, a fast
one cannot stop at once. Such a demand is met as far as all other bounds allow, and if two of them contradict each other
the joint stands still: it is stopped harder than its acceleration limit rather than run past its limit. One that starts
outside its limits comes back at the speed that it is allowed, where mink and pink find no solution.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxik.core.pytree import cast
from jaxik.kinematics.forward import Kinematics
from jaxik.kinematics.motion import Motion
from jaxik.limits.acceleration import AccelerationLimit
from jaxik.limits.base import Bounds, Limit, Rows, lowest, without_noise
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.jerk import JerkLimit
from jaxik.limits.per_joint import on_rates
from jaxik.limits.velocity import VelocityLimit
from jaxik.numerics.fusion import materialize
from jaxik.robot.robot import Robot


def merged_bounds(limits: Sequence[Limit], robot: Robot, kin: Kinematics, motion: Motion) -> Bounds:
    """The box (nv,) of displacements that the limits allow; never empty, infinite where there is no limit.

    Args:
      robot: the problem's, with its own limits.
      kin: evaluated with the frames of the limits; its dtype decides.
    """
    dtype = kin.q.dtype
    robot, motion = robot.astype(dtype), cast(motion, dtype)
    limits = [cast(limit, dtype) for limit in limits]
    gained = _without_gain(limits, robot)
    asked = [(limit, context_of(limit, gained, robot)) for limit in gained if not isinstance(limit, JerkLimit)]
    boxes = [box for limit, (own, *more) in asked if (box := limit.bounds(own, kin, motion, *more)) is not None]
    lower, upper = _intersection(boxes + _jerk_bounds(limits, robot, kin, motion), robot.nv, dtype)
    return jnp.minimum(lower, jnp.maximum(upper, 0)), jnp.maximum(upper, jnp.minimum(lower, 0))


def _intersection(boxes: Sequence[Bounds], size: int, dtype: Any) -> Bounds:
    lower, upper = jnp.full(size, -jnp.inf, dtype), jnp.full(size, jnp.inf, dtype)
    for low, high in boxes:
        lower, upper = jnp.maximum(lower, low), jnp.minimum(upper, high)
    return lower, upper


def _jerk_bounds(limits: Sequence[Limit], robot: Robot, kin: Kinematics, motion: Motion) -> list[Bounds]:
    """The boxes of jerk limits, which look at all other limits on joints."""
    jerks = [limit for limit in limits if isinstance(limit, JerkLimit)]
    if not jerks:
        return []
    fastest = [limit.bounds(robot, kin, motion) for limit in limits if isinstance(limit, VelocityLimit)]
    speeds = _intersection(fastest, robot.nv, kin.q.dtype)
    changes = [limit.largest_change(robot, motion) for limit in limits if isinstance(limit, AccelerationLimit)]
    change, stops = functools.reduce(jnp.minimum, changes, jnp.inf), tightened(limits, robot)
    return [limit.bounds(stops, kin, motion, speeds, change) for limit in jerks]


def _without_gain(limits: Sequence[Limit], robot: Robot) -> list[Limit]:
    """The limits, where jerk limits slow joints down and the gain of others is not needed."""
    jerks = [on_rates(robot, limit.max_jerk, jnp.inf) for limit in limits if isinstance(limit, JerkLimit)]
    if not jerks:
        return [*limits]
    free = jnp.isinf(functools.reduce(jnp.minimum, jerks))
    return [
        dataclasses.replace(limit, gain=jnp.where(free, limit.gain, 1))
        if isinstance(limit, ConfigurationLimit)
        else limit
        for limit in limits
    ]


Choices = tuple[Any, ...]


class MergedRows(NamedTuple):
    """Rows of all limits, in their order.

    Attributes:
      matrix, right: G (k, nv) and h (k,) with `G dq <= h`.
      by_depth (k,): static, which are of distances, `Limit.beyond_contact`.
      beyond (k,): what these demand beyond contact; zero of others.
      least (k,): the least h that a row alone allows.
      choices: of each limit its `Limit.choice`.
    """

    matrix: jax.Array
    right: jax.Array
    by_depth: np.ndarray
    beyond: jax.Array
    least: jax.Array
    choices: Choices = ()


def merged_rows(
    limits: Sequence[Limit],
    robot: Robot,
    kin: Kinematics,
    motion: Motion,
    box: Bounds,
    choices: Choices | None = None,
) -> MergedRows | None:
    """The rows of all limits; None where they have none.

    Each row is relaxed until the box and the limits' own rows allow it: h is at least the minimum of G dq over these.
    That concerns rows of a frame outside its half space, which then demand the fastest way back; those of distances are
    left as they are: a step relaxes them (`limit_recovery`). Rows without a bound are zero, with h = 1.

    Args:
      robot, kin: as for `merged_bounds`.
      box: bounds of each degree of freedom (nv,), from `merged_bounds`.
      choices: of each limit its `Limit.choice`; None to let them choose.
    """
    dtype = kin.q.dtype
    robot, motion = robot.astype(dtype), cast(motion, dtype)
    limits = [cast(limit, dtype) for limit in limits]
    if choices is None:
        choices = tuple(limit.choice(robot, kin) for limit in limits)
    with jax.default_matmul_precision("highest"):
        asked = [
            (limit, rows_of(limit, limits, robot, kin, motion, c)) for limit, c in zip(limits, choices, strict=True)
        ]
        parts = [(*part, limit.beyond_contact(motion)) for limit, part in asked if part is not None]
        if not parts:
            return None
        matrix, most = (jnp.concatenate(x) for x in list(zip(*parts, strict=True))[:2])
        by_depth = np.concatenate([np.full(h.shape, x is not None) for _, h, x in parts])
        beyond = jnp.concatenate([jnp.full(h.shape, 0 if x is None else x, dtype) for _, h, x in parts])
        # Else each of a program's kernels that reads them would compute them again.
        matrix, most = materialize(without_noise(matrix)), materialize(most)
        free = jnp.isinf(box[0]) & jnp.isinf(box[1])
        minima, left = jnp.zeros_like(most), jnp.where(free, matrix, 0)
        for limit in limits:
            if (part := limit.lower_bound_of_rows(robot, kin, motion, left)) is not None:
                minima, left = minima + part[0], part[1]
        minima = materialize(minima + lowest(jnp.where(free, left, matrix), *box))
        none = jnp.isinf(most) & (most > 0)
        right = jnp.where(none, 1, jnp.where((minima > most) & ~by_depth, minima, most))
        return MergedRows(jnp.where(none[:, None], 0, matrix), right, by_depth, beyond, minima, choices)


def rows_of(
    limit: Limit, limits: Sequence[Limit], robot: Robot, kin: Kinematics, motion: Motion, choice: Any
) -> Rows | None:
    """The rows of one limit of several, those of its `Limit.choice`."""
    own, *more = context_of(limit, limits, robot)
    chosen = {} if choice is None else {"choice": choice}
    return limit.inequalities(own, kin, motion, *more, **chosen)


def held_rows(limits: Sequence[Limit], robot: Robot, kin: Kinematics, motion: Motion, choices: Choices) -> jax.Array:
    """Which rows (k,) of `merged_rows` derivatives take for given in part."""
    masks = [jnp.zeros(0, bool)]
    for limit, choice in zip(limits, choices, strict=True):
        rows = jax.eval_shape(functools.partial(rows_of, limit, limits, robot, kin, motion, choice))
        if rows is not None:
            held = limit.held_rows(robot, kin, choice)
            masks.append(jnp.zeros(rows[1].shape, bool) if held is None else held)
    return jnp.concatenate(masks)


def tightened(limits: Sequence[Limit], robot: Robot) -> Robot:
    """The robot with the joint limits that all limits keep."""
    # Without those that leave the limits alone: of two that are equal, a derivative would be half of each.
    each = [r for limit in limits if (r := limit.tightened(robot)) is not robot] or [robot]
    upper = functools.reduce(jnp.minimum, (r.limit_upper for r in each))
    lower = functools.reduce(jnp.maximum, (r.limit_lower for r in each))
    return dataclasses.replace(robot, limit_lower=jnp.where(lower > upper, upper, lower), limit_upper=upper)


def context_of(limit: Limit, limits: Sequence[Limit], robot: Robot) -> tuple[Any, ...]:
    """The robot that a limit looks at; for one of accelerations that which all keep, and the share of the way to it."""
    if not isinstance(limit, AccelerationLimit):
        return (robot,)
    gains = [other.gain for other in limits if isinstance(other, ConfigurationLimit)]
    return tightened(limits, robot), functools.reduce(jnp.minimum, gains, 1.0)


def looking_at_distances(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """The limits whose distances are looked at again where a step or a solution arrives."""
    return tuple(limit for limit in limits if type(limit).distances is not Limit.distances)


def merged_distances(limits: Sequence[Limit], robot: Robot, kin: Kinematics) -> jax.Array:
    """The signed distances (p,) of all limits, in their order.

    Args:
      limits: from `looking_at_distances`, one at least.
      kin: evaluated with the frames of the limits.
    """
    return jnp.concatenate([d for limit in limits if (d := limit.distances(robot, kin)) is not None])


def merged_pair_names(limits: Sequence[Limit], robot: Robot) -> tuple[tuple[str, str], ...]:
    """What each of `merged_distances` is between (p,); nothing where a limit does not say."""
    each = [limit.pair_names(robot) for limit in limits]
    return tuple(itertools.chain(*each)) if all(each) else ()


class Looks(NamedTuple):
    """What all limits find on the way of a step.

    Attributes:
      seen: what the next look of each limit needs.
      distance (p,): as of `merged_distances`.
    """

    seen: tuple[Any, ...]
    distance: jax.Array


def merged_look(
    limits: Sequence[Limit], robot: Robot, kin: Kinematics, displacement: jax.Array | None, before: Looks | None
) -> tuple[Looks, jax.Array]:
    """Look at the distances of all limits; and whether all that were positive stayed so (p,) since the look before."""
    each = [None] * len(limits) if before is None else before.seen
    found = [limit.look(robot, kin, displacement, seen) for limit, seen in zip(limits, each, strict=True)]
    seen, distances, free = zip(*found, strict=True)
    return Looks(seen, jnp.concatenate(distances)), jnp.concatenate(free)
