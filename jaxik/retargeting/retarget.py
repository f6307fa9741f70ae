"""`retarget`: a recorded motion as one of a robot, within its limits."""

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
from jaxik.retargeting.link_map import LinkMap, position_of
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
      is from where the map wants it.

    Raises:
      JaxikError: for unknown bodies, and as `LinkMap.targets`, `planted` and `track` do.
    """
    if not isinstance(links, LinkMap):
        raise JaxikError(f"links is a LinkMap, from jaxik.retargeting.match; not {type(links).__name__}")
    _check_times(poses, links)
    frames, targets = dict(links.frames), links.targets(poses)
    if POSTURE in frames:
        raise JaxikError(f"no body is called {POSTURE!r}: that is the name of the posture among the tasks")
    if contacts is not None and not isinstance(contacts, Mapping):
        raise JaxikError(f"contacts is a dict from body to mask, not {type(contacts).__name__}")
    for name, mask in (contacts or {}).items():
        if name not in targets:
            raise unknown_name("body", name, targets)
        targets[name] = planted(targets[name], mask)
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
    rest = {name: robot.frame_pose(links.rest, frame) for name, frame in frames.items()}
    options = TrackOptions(damping=_damping(rest)) if options is None else options
    if q0 is not None:
        return track(problem, q0, dt, targets, options=options)
    firsts = {name: tasks[name].target for name in targets}
    start = links.rest if links.base is not None else _placed(robot, links, rest, firsts)
    return steps_of(track(problem, start, dt, jax.tree.map(_led_in, targets), options=options), LEAD_IN, None)


def _damping(rest: Mapping[str, jaxlie.SE3]) -> jax.Array:
    """The damping () of steps of a robot of that size."""
    here = jnp.stack([pose.translation() for pose in rest.values()])
    return DAMPING * jnp.max(jnp.sum((here - jnp.mean(here, axis=0)) ** 2, axis=-1))


def _led_in(target: jax.Array) -> jax.Array:
    """Targets (T, ...) after as many of the first one as lead there."""
    return jnp.concatenate([jnp.broadcast_to(target[:1], (LEAD_IN, *target.shape[1:])), target])


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
    if not isinstance(poses, Mapping) or links.root not in poses:
        return  # `targets` says so
    shapes = {name: position_of(poses[name]).shape[:-1] for name, _ in links.frames if name in poses}
    for name, shape in shapes.items():
        if shape != shapes[links.root] or not shape or not shape[0]:
            raise JaxikError(
                f"poses have one shape (T, *batch), of one time or more: {name!r} has {shape}, {links.root!r} "
                f"{shapes[links.root]}"
            )


def _placed(
    robot: Robot, links: LinkMap, rest: Mapping[str, jaxlie.SE3], targets: Mapping[str, jaxlie.SE3]
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
        # As all bodies are turned about the vertical axis.
        spans = [
            (rest[name].translation() - here.translation(), there.translation() - target.translation())
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
