"""Which frame of a robot follows which body of a recording, and where that body's poses are for the robot."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jax.core import Tracer

from jaxik.core import validation
from jaxik.core.errors import JaxikError, unknown_name
from jaxik.core.pytree import given_dict, leaf, pytree, set_fields, static
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.topology import WORLD, last_joint
from jaxik.numerics.lie import MINIMUM_NORM
from jaxik.problem.arguments import configuration
from jaxik.retargeting.hidden import chosen, seen
from jaxik.robot.robot import Robot

# A recording that is turned from the robot by more than this [rad] does not show the same pose.
ALIKE = 0.8


@pytree
class LinkMap:
    """Which frame follows which body, and the proportions of the robot to what was recorded.

    A body's position about the root's is scaled, its orientation stays, and the offset leads from there to the frame.
    The root's own position is scaled about the origin, so that a small robot makes small steps; where the robot's root
    does not move, as that of an arm or a hand, poses count relative to the recorded root.

    Args:
      frames: name of a body to the frame that follows it; static.
      root: the body about which positions are scaled; static.
      scale: name of a body to its factor ().
      offset: name of a body to the pose of its frame in its own axes, `jaxlie.SE3`; of those that are points there is
        none.
      rest (nq,): a configuration of the robot, where motions are looked for first.
      base: pose of the frame of a root that does not move; None: it moves.

    Raises:
      JaxikError: for a root that is no body, and scales of others.
    """

    frames: Any = static()
    root: str = static()
    scale: dict[str, Any] = leaf(0)
    offset: dict[str, jaxlie.SE3] = leaf(1)
    rest: Any = leaf(1)
    base: jaxlie.SE3 | None = leaf(1, default=None)

    def __post_init__(self) -> None:
        frames = given_dict(self.frames)
        if not isinstance(frames, Mapping) or not all(isinstance(frame, Frame) for frame in frames.values()):
            raise JaxikError("frames is a dict from body to frame, each from robot.frame(name)")
        if self.root not in frames:
            raise unknown_name("body", self.root, frames)
        if {*self.scale} != {*frames} or not {*self.offset} <= {*frames}:
            raise JaxikError(f"scale has a number for each body, and offset no others: {', '.join(frames)}")
        scale = {name: validation.positive(f"scale[{name!r}]", value) for name, value in self.scale.items()}
        set_fields(self, frames=tuple(frames.items()), scale=scale, offset=dict(self.offset))

    def targets(self, poses: Mapping[str, Any]) -> dict[str, Any]:
        """Where the frames are to be.

        Args:
          poses: name of a body to its poses in the world, with any batch axes, `jaxlie.SE3`, or to its positions
            (*batch, 3) [m] where no orientation is known. Others than those of the map are left out.

        Returns:
          Name of a body to target poses or positions of its frame, with the same axes; NaN where the body, or the root,
          is not finite.

        Raises:
          JaxikError: for a body that is missing, and for poses where the map has points or the other way round.
        """
        poses = checked_poses(poses, dict(self.frames))
        for name, pose in poses.items():
            if isinstance(pose, jaxlie.SE3) != (name in self.offset):
                raise JaxikError(
                    f"poses[{name!r}] is a jaxlie.SE3 where the map has an offset for it, else positions (*batch, 3)"
                )
        return _carried(self, poses)


@jax.jit
def _carried(links: LinkMap, poses: dict[str, Any]) -> dict[str, Any]:
    """As `LinkMap.targets`, of poses that were checked."""
    known = {name: seen(pose) for name, pose in poses.items()}
    # NaN times a derivative of zero would be NaN: it is put back in the end.
    home = {name: jaxlie.SE3.identity() if name in links.offset else jnp.zeros(3) for name in poses}
    poses = {name: chosen(known[name], pose, home[name]) for name, pose in poses.items()}
    root = poses[links.root]
    start, turn = position_of(root), None
    origin = jnp.asarray(links.scale[links.root])[..., None] * start
    if links.base is not None:
        axes = root.rotation() @ links.offset[links.root].rotation()
        turn, origin = links.base.rotation() @ axes.inverse(), links.base.translation()
    found = {}
    for name, pose in poses.items():
        if name == links.root and links.base is not None:
            continue
        way = position_of(pose) - start
        target = origin + jnp.asarray(links.scale[name])[..., None] * (way if turn is None else turn @ way)
        if name in links.offset:
            rotation = pose.rotation() if turn is None else turn @ pose.rotation()
            target = jaxlie.SE3.from_rotation_and_translation(rotation, target) @ links.offset[name]
        found[name] = chosen(known[name] & known[links.root], target, jnp.nan)
    return found


def match(
    robot: Robot, frames: Mapping[str, Any], q: Any, poses: Mapping[str, Any], *, root: str, feet: tuple[str, ...] = ()
) -> LinkMap:
    """The map that leads from the poses of a recording in one moment to a configuration that looks alike.

    Both face the same way, as a robot with its arms spread along y and a person who does so.

    Each body's scale is its distance from the root, the robot's to the recording's. That of the feet and of the root is
    the ratio of the root's heights above the lowest foot: what stands on the ground then does so for the robot. Without
    feet the root's is that of heights above z = 0.

    Args:
      robot: the robot.
      frames: name of a body to the frame, or its name, that is to follow it.
      q (nq,): the configuration.
      poses: name of a body to its pose in that moment, z up [m]: `jaxlie.SE3`, or its position (3,).
      root: the body about which positions are scaled, as pelvis, torso or wrist.
      feet: bodies that stand on the ground.

    Raises:
      JaxikError: for unknown names, wrong shapes, a root that is not above the ground, a recording that faces another
        way or is in another unit, and a root that the robot cannot move of which only the position is given. On the
        host: a map that is learned is changed by `dataclasses.replace`.
    """
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((robot, q, poses))):
        raise JaxikError("match works on the host: call it before jit, and change scale and offset of what it returns")
    if isinstance(feet, str):
        raise JaxikError(f"feet is a tuple of bodies, not {feet!r}")
    q = configuration("q", q, robot)
    if q.ndim != 1:
        raise JaxikError(f"q is one configuration, of shape ({robot.nq},), not {q.shape}")
    followed = {name: robot.frame(frame) for name, frame in frames.items()}
    poses = checked_poses(poses, followed)
    for name in (root, *feet):
        if name not in followed:
            raise unknown_name("body", name, followed)
    for name in followed:
        if jnp.ndim(position_of(poses[name])) != 1:
            raise JaxikError(
                f"poses[{name!r}] is that of one moment, not of shape {position_of(poses[name]).shape[:-1]}"
            )
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(poses[name])):
            raise JaxikError(f"poses[{name!r}] is not finite: choose a moment in which all bodies are seen")
    own = {name: robot.frame_pose(q, frame) for name, frame in followed.items()}
    moves = last_joint(robot.topology, robot.topology.frame_body(followed[root])) != WORLD
    base = None if moves else own[root]
    scale = _scales({name: pose.translation() for name, pose in own.items()}, poses, root, feet, base is not None)
    _check_alike(robot, own, poses, root, scale)
    offset = {name: jaxlie.SE3.identity() for name in followed if isinstance(poses[name], jaxlie.SE3)}
    if base is not None:
        offset[root] = jaxlie.SE3.from_rotation(_rotation(root, poses[root]).inverse() @ base.rotation())
    there = LinkMap(followed, root, scale, offset, q, base).targets(poses)
    offset |= {name: there[name].inverse() @ own[name] for name in offset if name in there}
    return LinkMap(followed, root, scale, offset, q, base)


def _scales(
    own: dict[str, jax.Array], poses: Mapping[str, Any], root: str, feet: tuple[str, ...], fixed: bool
) -> dict[str, jax.Array]:
    """The scale of each body, of positions (3,) of frames and the poses of a recording."""
    given = {name: position_of(poses[name]) for name in own}
    heights = [x[root][2] - (min(x[foot][2] for foot in feet) if feet else 0) for x in (own, given)]
    if not fixed and not (heights[0] > 0 and heights[1] > 0):
        above = f"feet ({', '.join(feet)})" if feet else "ground (z = 0; or name the feet)"
        raise JaxikError(
            f"the root {root!r} is above the {above}, z up: the robot's by {heights[0]:.3g} m, the recorded one's "
            f"by {heights[1]:.3g} m"
        )
    grounded = jnp.ones(()) if fixed else heights[0] / heights[1]
    scale = {}
    for name in own:
        ours, theirs = (jnp.linalg.norm(x[name] - x[root]) for x in (own, given))
        apart = (theirs > MINIMUM_NORM) & (ours > MINIMUM_NORM)
        scale[name] = grounded if name in (root, *feet) or not apart else ours / theirs
    return scale


def _check_alike(
    robot: Robot, own: dict[str, jaxlie.SE3], poses: Mapping[str, Any], root: str, scale: dict[str, jax.Array]
) -> None:
    """Raise an error where bodies are in other directions from the root than frames are, or in another unit."""
    about = [np.stack([np.asarray(position_of(x[name]) - position_of(x[root])) for name in own]) for x in (own, poses)]
    strange = [name for name, x in scale.items() if not 0.05 < x < 20]
    if strange:
        raise JaxikError(f"scale[{strange[0]!r}] is {scale[strange[0]]:.3g}: are the recording's lengths in metres?")
    # The turn that brings the directions together best (Kabsch); of those that leave it open, the least.
    moment = about[0].T @ about[1]
    left, sizes, right = np.linalg.svd(moment + 1e-3 * np.trace(abs(moment)) * np.eye(3))
    turn = left @ np.diag([1, 1, np.sign(np.linalg.det(left @ right))]) @ right
    vector = np.asarray(jaxlie.SO3.from_matrix(jnp.asarray(turn)).log())
    if sizes[0] and np.linalg.norm(vector) > ALIKE:
        raise JaxikError(
            f"the recording looks another way than {robot.name}: turned by the rotation vector {np.round(vector, 2)} "
            f"[rad] its bodies would be where the frames are from {root!r}. Turn all of its poses likewise, z up; "
            "or, where it looks the right way, q is not the pose recorded there: give that, or choose another moment"
        )


def checked_poses(poses: Any, frames: Mapping[str, Frame]) -> dict[str, Any]:
    """The poses or positions of the bodies that frames follow.

    Raises:
      JaxikError: for what is none.
    """
    if not isinstance(poses, Mapping):
        raise JaxikError(f"poses is a dict from body to poses, not {type(poses).__name__}")
    for name in frames:
        if name not in poses:
            raise unknown_name("body", name, poses)
        if not isinstance(poses[name], jaxlie.SE3) and jnp.shape(poses[name])[-1:] != (3,):
            raise JaxikError(
                f"poses[{name!r}] is a jaxlie.SE3, or positions (*batch, 3) [m], not {type(poses[name]).__name__} of "
                f"shape {jnp.shape(poses[name])}"
            )
    return {name: x if isinstance(x := poses[name], jaxlie.SE3) else jnp.asarray(x) for name in frames}


def position_of(pose: Any) -> jax.Array:
    """The positions (*batch, 3) of poses, or of points."""
    return pose.translation() if isinstance(pose, jaxlie.SE3) else jnp.asarray(pose)


def _rotation(name: str, pose: Any) -> jaxlie.SO3:
    if not isinstance(pose, jaxlie.SE3):
        raise JaxikError(f"the robot's root stays: {name!r} is given with its orientation, as a jaxlie.SE3")
    return pose.rotation()
