"""`retarget`: a recorded motion as one of a robot, within its limits."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

from jaxik.core.errors import JaxikError, unknown_name
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.topology import subtree
from jaxik.problem.problem import Problem
from jaxik.results.track import Track
from jaxik.retargeting.contacts import planted
from jaxik.retargeting.hidden import chosen, held, seen
from jaxik.retargeting.link_map import LinkMap, checked_poses, position_of
from jaxik.robot.robot import Robot
from jaxik.solvers.tracking.options import TrackOptions
from jaxik.solvers.tracking.track import steps_of, track
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.posture import PostureTask

# The name of the posture among the tasks: no body may have it.
POSTURE = "posture"
POSITION_COST, ORIENTATION_COST = 1.0, 0.3
# Steps towards the first poses, ahead of the motion: a humanoid's 15 links settle in four where speeds are free, and a
# `solve` instead would be another program, of half a minute to compile.
LEAD_IN = 60
# Of steps of a robot that reaches a metre: where targets stretch an arm, full steps overshoot, and it shakes for ever.
# Jacobians shrink with the robot: with as much fingers would be 5 mm behind.
DAMPING = 1e-2


def retarget(
    robot: Robot,
    links: LinkMap,
    poses: Mapping[str, Any],
    dt: Any,
    *,
    contacts: Mapping[str, Any] | None = None,
    position_cost: Any = POSITION_COST,
    orientation_cost: Any = ORIENTATION_COST,
    posture_cost: Any = 0.003,
    limits: Any = None,
    q0: Any = None,
    options: TrackOptions | None = None,
) -> Track:
    """Follow a recorded motion.

    From `links.rest`, at the place of the first poses, 60 steps lead to these; then `track` follows, one step for each
    moment. Many recordings are one batch; shorter ones are filled up with their last pose. It is differentiable with
    respect to everything that `track` is, scales and offsets of the map among it.

    A body whose pose is not finite has no rows at these moments, and others are followed on; those that hang on a root
    that moves, with its last pose. On one that does not move all hang.

    Args:
      robot: the robot.
      links: which frame follows which body, from `match`.
      poses: name of a body to its poses over time, z up [m]: `jaxlie.SE3` (T, *batch), or positions (T, *batch, 3).
      dt: time from one pose to the next [s].
      contacts: name of a body to a mask (T, *batch) of when it stands: its position then stays, see `planted`.
      position_cost, orientation_cost: of the `FrameTask` of each body: for all, or name of a body to its own, others
        as by default. None for `orientation_cost`: only positions are followed.
      posture_cost: of the `PostureTask` that keeps near `links.rest` what nothing else moves.
      limits: as of `Problem`; those that `track` knows.
      q0: configuration (*batch, nq) before the first step, where the motion is to begin at once.
      options: of `track`; None: a damping of 1e-2 for a robot of a metre, by the square of its size, which keeps what
        bodies hold weakly from shaking.

    Returns:
      The motion, whose `q` (T, *batch, nq) has a configuration for each pose; `residuals` say by body how far its frame
      is from where the map wants it, NaN where the body is not seen. Its `status` does not: tolerances are infinite.

    Raises:
      JaxikError: for unknown bodies, and as `LinkMap.targets`, `planted` and `track` do.
    """
    if not isinstance(links, LinkMap):
        raise JaxikError(f"links is a LinkMap, from jaxik.retargeting.match; not {type(links).__name__}")
    frames = dict(links.frames)
    if POSTURE in frames:
        raise JaxikError(f"no body is called {POSTURE!r}: that is the name of the posture among the tasks")
    rest = {name: robot.frame_pose(links.rest, frame) for name, frame in frames.items()}
    targets, known = _targets(links, poses, contacts, rest)
    positions = _costs("position_cost", position_cost, POSITION_COST, frames)
    orientations = _costs("orientation_cost", orientation_cost, ORIENTATION_COST, frames)
    tasks: dict[str, Any] = {POSTURE: PostureTask(links.rest, cost=posture_cost)}
    for name, target in targets.items():
        oriented = orientations[name] if isinstance(target, jaxlie.SE3) else None
        first = jax.tree.map(lambda x: x[0], target)
        # Proportions differ: no pose is one to be within a tolerance of, and a robot at rest is not stuck.
        tasks[name] = FrameTask(
            frames[name], first, positions[name], oriented, position_tolerance=jnp.inf, orientation_tolerance=jnp.inf
        )
    problem = Problem(robot, tasks, limits)
    options = TrackOptions(damping=_damping(rest)) if options is None else options
    if q0 is not None:
        return _marked(track(problem, q0, dt, _fields(targets, known, 0), options=options), known)
    start = links.rest
    if links.base is None:
        start = _placed(robot, links, rest, {name: tasks[name].target for name in targets}, known)
    motion = track(problem, start, dt, _fields(targets, known, LEAD_IN), options=options)
    return _marked(steps_of(motion, LEAD_IN, None), known)


def _targets(
    links: LinkMap, poses: Any, contacts: Any, rest: Mapping[str, jaxlie.SE3]
) -> tuple[dict[str, Any], dict[str, jax.Array]]:
    """By body where its frame is to be, finite at all times, and when that is known (T, *batch)."""
    poses = checked_poses(poses, dict(links.frames))
    _check_times(poses, links)
    root, origin = poses[links.root], jnp.zeros(3)
    if links.base is None:
        # Others hang on a root that moves: they are followed on while it is hidden.
        poses[links.root] = held(root)
        origin = jnp.asarray(links.scale[links.root])[..., None] * jnp.nan_to_num(position_of(poses[links.root]))
    targets = links.targets(poses)
    if links.base is None:
        targets[links.root] = chosen(seen(root), targets[links.root], jnp.nan)
    if contacts is not None and not isinstance(contacts, Mapping):
        raise JaxikError(f"contacts is a dict from body to mask, not {type(contacts).__name__}")
    for name, mask in (contacts or {}).items():
        if name not in targets:
            raise unknown_name("body", name, targets)
        targets[name] = planted(targets[name], mask)
    return _finite(targets, origin, rest)


def _damping(rest: Mapping[str, jaxlie.SE3]) -> jax.Array:
    """The damping () of steps of a robot of that size."""
    here = jnp.stack([pose.translation() for pose in rest.values()])
    return DAMPING * jnp.max(jnp.sum((here - jnp.mean(here, axis=0)) ** 2, axis=-1))


@jax.jit
def _finite(
    targets: dict[str, Any], origin: jax.Array, rest: Mapping[str, jaxlie.SE3]
) -> tuple[dict[str, Any], dict[str, jax.Array]]:
    """Targets that are finite at all times, held relative to an origin (T, *batch, 3), and when they are known."""

    def moved(pose: Any, way: jax.Array) -> Any:
        return jax.tree.map(lambda x: x + jnp.zeros_like(x).at[..., -3:].set(way), pose)

    found, known = {}, {name: seen(target) for name, target in targets.items()}
    for name, target in targets.items():
        there = chosen(known[name], target, moved(held(moved(target, -origin)), origin))
        own = rest[name] if isinstance(target, jaxlie.SE3) else rest[name].translation()
        found[name] = chosen(jnp.any(known[name], axis=0), there, own)
    return found, known


@functools.partial(jax.jit, static_argnums=2)
def _fields(targets: dict[str, Any], known: dict[str, jax.Array], ahead: int) -> dict[str, dict[str, Any]]:
    """What `track` sets over time, after so many steps towards the first of it: who is not seen has no rows."""

    def led_in(x: jax.Array, first: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.broadcast_to(first, (ahead, *x.shape[1:])), x])

    found = {}
    for name, target in targets.items():
        mask = jnp.broadcast_to(known[name][..., None], (*known[name].shape, 6))
        mask = led_in(mask, jnp.any(mask, axis=0)).astype(jax.tree.leaves(target)[0].dtype)
        found[name] = {"target": jax.tree.map(lambda x: led_in(x, x[0]), target), "mask": mask}
    return found


@jax.jit
def _marked(motion: Track, known: dict[str, jax.Array]) -> Track:
    """The motion, whose residuals are NaN where nothing is known of a body."""

    def marked(residual: jax.Array, known: jax.Array) -> jax.Array:
        between = residual.ndim - 1 - known.ndim  # batch axes that the recording does not have
        known = known.reshape(known.shape[0], *(1,) * between, *known.shape[1:], 1)
        return jnp.where(known, residual, jnp.nan)

    residuals = {
        name: jax.tree.map(lambda x, name=name: marked(x, known[name]), motion.residuals[name]) for name in known
    }
    return dataclasses.replace(motion, residuals=motion.residuals | residuals)


def _costs(name: str, value: Any, default: float, frames: Mapping[str, Frame]) -> dict[str, Any]:
    """The cost of each body."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(frames, value)
    for body in value:
        if body not in frames:
            raise unknown_name(f"body in {name}", str(body), frames)
    return {body: value.get(body, default) for body in frames}


def _check_times(poses: Mapping[str, Any], links: LinkMap) -> None:
    """Raise an error where bodies have other times or batches than the root."""
    shapes = {name: position_of(pose).shape[:-1] for name, pose in poses.items()}
    for name, shape in shapes.items():
        if shape != shapes[links.root] or not shape or not shape[0]:
            raise JaxikError(
                f"poses have one shape (T, *batch), of one time or more: {name!r} has {shape}, {links.root!r} "
                f"{shapes[links.root]}"
            )


def _placed(
    robot: Robot, links: LinkMap, rest: Mapping[str, jaxlie.SE3], targets: Mapping[str, Any], known: Mapping[str, Any]
) -> jax.Array:
    """The map's configuration, in which frames are at `rest`, moved as a whole to where its root is first (*batch)."""
    q, topology, target = links.rest, robot.topology, targets[links.root]
    body = topology.frame_body(dict(links.frames)[links.root])
    free = [topology.joints[i] for i in topology.free_joints]
    joint = next((joint for joint in free if body in subtree(topology, joint.body)), None)
    if joint is None:
        return q
    here, at = rest[links.root], slice(joint.q_index, joint.q_index + 7)
    turn = target.rotation() @ here.rotation().inverse()
    if links.root not in links.offset:
        # As all bodies that are ever seen are turned about the vertical axis.
        spans = [
            (
                rest[name].translation() - here.translation(),
                chosen(jnp.any(known[name], axis=0), there.translation() - target.translation(), 0),
            )
            for name, there in targets.items()
        ]
        sine = sum(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0] for a, b in spans)
        cosine = sum(a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] for a, b in spans)
        turn = jaxlie.SO3.from_z_radians(jnp.arctan2(sine, cosine))
    to = jaxlie.SE3.from_rotation_and_translation(turn, target.translation() - turn @ here.translation())
    moved = to @ jaxlie.SE3(jnp.concatenate([q[at][3:], q[at][:3]]))
    pose = jnp.concatenate([moved.translation(), moved.rotation().wxyz], axis=-1)
    moved_q = jnp.broadcast_to(q, (*pose.shape[:-1], q.shape[-1]))
    return moved_q.at[..., at].set(pose)
