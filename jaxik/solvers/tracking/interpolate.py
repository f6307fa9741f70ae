"""`interpolate`: a smooth path through waypoints, at any times."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.kinematics import manifold
from jaxik.kinematics.topology import Topology
from jaxik.numerics import lie
from jaxik.problem.arguments import configuration
from jaxik.robot.robot import Robot


def interpolate(waypoints: Any, times: Any, at: Any, *, robot: Robot | None = None) -> Any:
    """A path through waypoints: at rest at both ends, its velocity continuous and its acceleration bounded.

    Between two waypoints it is a cubic (Hermite); its velocity at a waypoint is the mean of those of the two straight
    ways, each weighted with the time of the other. Joint space is safer: there a joint that turns around does so at the
    waypoint, and never leaves the range of its waypoints, so that it keeps its limits (Fritsch and Carlson, 1980; balls
    and free joints take the mean). Rotations turn about axes of the moving frame (Kim, Kim and Shin, "A General
    Construction Scheme for Unit Quaternion Curves", 1995). Before the first and after the last time it rests there.
    Differentiable by all arrays.

    Args:
      waypoints: jaxlie.SE3 (n, *batch), points (n, *batch, d), or, with `robot`, configurations (n, *batch, nq).
      times: when it passes them (n,), increasing [s].
      at: the times to evaluate (T,) or (), [s].
      robot: whose configurations these are; joints go the way of `robot.difference`, no whole turns.

    Returns:
      Poses, points or configurations with the axis of `at` in front: (T, *batch, ...), targets of `track`.

    Raises:
      JaxikError: for wrong shapes, fewer than two waypoints, or times that do not increase.
    """
    if isinstance(waypoints, jaxlie.SE3):
        return jaxlie.SE3(_through("poses", *_checked(jnp.asarray(waypoints.wxyz_xyz), times, at)))
    if robot is not None:
        return _through(robot.topology, *_checked(configuration("waypoints", waypoints, robot), times, at))
    return _through("points", *_checked(validation.array("waypoints", waypoints), times, at))


class _Space(NamedTuple):
    """What waypoints are, of one element.

    Attributes:
      move: point, displacement -> point.
      way: two points -> the displacement from one to the other.
      tangent: velocities before and after a waypoint, durations before and after -> the velocity there.
    """

    move: Callable[[jax.Array, jax.Array], jax.Array]
    way: Callable[[jax.Array, jax.Array], jax.Array]
    tangent: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def _space_of(kind: str | Topology) -> _Space:
    if kind == "poses":
        return _Space(_move_pose, _way_of_pose, _mean)
    if isinstance(kind, str):
        return _Space(jnp.add, lambda x, y: y - x, _mean)
    scalar = np.zeros(kind.nv, bool)
    scalar[[kind.joints[j].v_index for j in kind.scalar_joints]] = True
    return _Space(
        functools.partial(manifold.integrate, kind),
        functools.partial(manifold.difference, kind),
        lambda *parts: jnp.where(scalar, _without_overshoot(*parts), _mean(*parts)),
    )


@functools.partial(jax.jit, static_argnums=0)
def _through(kind: str | Topology, path: jax.Array, times: jax.Array, at: jax.Array) -> jax.Array:
    """The path (*at, *batch, d) through waypoints (n, *batch, d): "poses", "points", or a robot's configurations."""
    space = _space_of(kind)
    move, way = (jnp.vectorize(f, signature="(d),(v)->(e)") for f in (space.move, space.way))
    aligned = lambda x: x.reshape(-1, *(1,) * (path.ndim - 1))  # noqa: E731
    durations = aligned(jnp.diff(times))
    straight = way(path[:-1], path[1:]) / durations
    inner = space.tangent(straight[:-1], straight[1:], durations[:-1], durations[1:])
    rest = jnp.zeros_like(straight[:1])
    velocity = jnp.concatenate([rest, inner, rest])

    k = jnp.clip(jnp.searchsorted(times, at, side="right") - 1, 0, times.size - 2).reshape(-1)
    u = jnp.clip((aligned(at) - aligned(times[k])) / durations[k], 0, 1)
    # Three displacements one after the other, of which the first and the last set the velocities at the ends.
    leave, arrive = velocity[k] * durations[k] / 3, velocity[k + 1] * durations[k] / 3
    middle = way(move(path[k], leave), move(path[k + 1], -arrive))
    found = move(path[k], (1 - (1 - u) ** 3) * leave)
    found = move(found, (3 - 2 * u) * u**2 * middle)
    found = move(found, u**3 * arrive)
    return found.reshape(*at.shape, *found.shape[1:])


def _checked(path: jax.Array, times: Any, at: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    times = validation.array("times", times).astype(path.dtype)
    at = validation.array("at", at).astype(path.dtype)
    if path.ndim < 2 or path.shape[0] < 2 or times.shape != path.shape[:1]:
        raise JaxikError(f"waypoints (n, *batch, d) and times (n,) are two or more, not {path.shape} and {times.shape}")
    if not isinstance(times, Tracer) and not (np.diff(np.asarray(times, float)) > 0).all():
        raise JaxikError(f"times increase from waypoint to waypoint, not {np.asarray(times)!r}")
    if at.ndim > 1:
        raise JaxikError(f"at is a time or (T,) times, not of shape {at.shape}")
    return path, times, at


def _mean(before: jax.Array, after: jax.Array, duration_before: jax.Array, duration_after: jax.Array) -> jax.Array:
    return (duration_after * before + duration_before * after) / (duration_before + duration_after)


def _without_overshoot(
    before: jax.Array, after: jax.Array, duration_before: jax.Array, duration_after: jax.Array
) -> jax.Array:
    """The weighted harmonic mean of two velocities of one sign, else zero: the cubics stay between their waypoints."""
    same = before * after > 0
    w, v = 2 * duration_after + duration_before, duration_after + 2 * duration_before
    return jnp.where(same, (w + v) / (w / jnp.where(same, before, 1) + v / jnp.where(same, after, 1)), 0)


def _move_pose(pose: jax.Array, twist: jax.Array) -> jax.Array:
    """Move a pose (7,) wxyz, xyz by a displacement in the world and a turn about its own axes (6,)."""
    turned = lie.quaternion_product(lie.normalized(pose[:4]), lie.exp_quaternion(twist[3:]))
    return jnp.concatenate([lie.normalized(turned), pose[4:] + twist[:3]])


def _way_of_pose(pose: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.concatenate([other[4:] - pose[4:], lie.quaternion_difference(pose[:4], other[:4])])
