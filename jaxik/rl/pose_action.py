"""`PoseAction`: an action in [-1, 1] moves target poses of frames; one step of differential IK gives joint targets."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.core import validation
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import given_dict, leaf, pytree, set_fields, static
from jaxik.core.status import Status
from jaxik.kinematics.frames import Frame
from jaxik.kinematics.reduced import movable
from jaxik.kinematics.topology import Topology, dofs_of_entries
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.limits.velocity import VelocityLimit
from jaxik.numerics.linalg import norm
from jaxik.problem.arguments import configuration
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot
from jaxik.solvers.differential.step import DAMPING, step
from jaxik.tasks.frame import FrameTask
from jaxik.tasks.posture import PostureTask

MODES, AXES, REFERENCES = ("delta", "absolute"), ("world", "frame", "base"), ("target", "measured")
# The name of the posture among the tasks: no frame may have it.
POSTURE = "posture"
# A displacement this near a limit [rad or m] was held by it.
HELD = 1e-6
# How many full actions a target may lead the arm by. Position actuators of damping / stiffness = 0.1 s, as MuJoCo
# Menagerie's Panda has, lag five actions of 20 ms behind, and sag: at five the arm would move slower than it is asked.
LEAD = 10.0
# At least so far [m], [rad], however small the actions: an arm that sags by less does not drag its target along.
LEAST_LEAD = (0.1, 0.5)


@pytree
class ActionState:
    """What one action hands on to the next.

    Attributes:
      q (*batch, nq): the joint target that was given last.
      targets: name of a frame to its target pose in the world (*batch,).
      passthrough (*batch, k): what passed through last; zero at `reset`.
    """

    q: jax.Array = leaf(1)
    targets: dict[str, jaxlie.SE3] = leaf(1)
    passthrough: jax.Array = leaf(1)


@pytree
class ActionInfo:
    """How an action went, with the batch axes in front.

    Attributes:
      status (*batch,): of `Status`: that of the step; NONFINITE where an entry of the action, or of the measured q, is
        not finite: targets, and what passes through, are held.
      position_error, orientation_error: name of a frame to how far the joint target leaves it from its target pose
        (*batch,) [m], [rad].
      limited (*batch,): whether a joint limit or a speed limit held the step.
      velocity (*batch, nv): of the step [rad/s, m/s].
      passthrough (*batch, k): the last entries of the action, clipped to [-1, 1], for a gripper.
    """

    status: jax.Array = leaf(0)
    position_error: dict[str, jax.Array] = leaf(0)
    orientation_error: dict[str, jax.Array] = leaf(0)
    limited: jax.Array = leaf(0)
    velocity: jax.Array = leaf(1)
    passthrough: jax.Array = leaf(1)


@pytree
class PoseAction:
    """Actions that move frames: `state = act.reset(q)`, then `q_target, state, info = act(state, q, action)`.

    Pure, for any batch: under `jit`, `vmap`, `scan` and `grad`. An action has three or six numbers for each frame in
    [-1, 1], a translation and a rotation vector, then those that pass through. The joint target keeps to the joint
    limits and, from one to the next, to the speed limits, whatever the action.

    Args:
      robot: the robot.
      frames: name to frame; two for two arms. Actions have them in this order.
      mode: "delta": the action, scaled, moves the target; "absolute": it is the target, a position [m] and a rotation
        vector [rad], neither scaled nor clipped; what passes through is in [-1, 1] all the same.
      translation, rotation: what an action of 1 moves [m], [rad], a number each. `rotation` None: actions have no
        rotation, and the orientation at `reset` is held.
      axes: of the action: "world"; "frame": the target's own; "base": those of the frame `base`.
      reference: "target": actions add up on the last target, so that gravity or contact cannot make it drift, and the
        joint target goes on from the last one; "measured": each action starts from where the arm is.
      lead: how far a target may be from where the arm is, (2,) [m], [rad]; None: ten full actions, and at least 0.1 m
        and 0.5 rad. What sags by more drags its target along.
      posture: configuration (nq,) to which a redundant arm tends; None: `q_home`.
      posture_cost: of that, small against the frames' 1: it moves the tip by 10 um a step and rad.
      limits: as of `Problem`; None: joint limits, and the robot's speed limits where it has some.
      dt: duration of an action [s].
      damping: as of `step`.
      passthrough: how many entries at the end of an action are handed on in `info.passthrough`.
      base: the frame whose axes are meant, where `axes` is "base".
      dof_mask: as of `Problem`: which degrees of freedom actions move; None: all but those of free joints, as of a
        floating base, since no actuator moves them. The others are where they are measured, whatever `reference` is.

    Raises:
      JaxikError: for unknown frames and words, wrong limits, and numbers of the wrong shape or sign.
    """

    robot: Robot = leaf()
    frames: Any = static()
    mode: str = static(default="delta", kw_only=True)
    translation: Any = leaf(0, default=0.02, kw_only=True)
    rotation: Any = leaf(0, default=0.1, kw_only=True)
    axes: str = static(default="world", kw_only=True)
    reference: str = static(default="target", kw_only=True)
    lead: Any = leaf(1, default=None, kw_only=True)
    posture: Any = leaf(1, default=None, kw_only=True)
    posture_cost: Any = leaf(0, default=3e-3, kw_only=True)
    limits: Any = leaf(default=None, kw_only=True)
    dt: Any = leaf(0, default=0.02, kw_only=True)
    damping: Any = leaf(0, default=DAMPING, kw_only=True)
    passthrough: int = static(default=0, kw_only=True)
    base: Any = static(default=None, kw_only=True)
    dof_mask: Any = leaf(1, default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.robot, Robot):
            raise JaxikError(f"robot is a jaxik.Robot, not {type(self.robot).__name__}")
        validation.one_of("mode", self.mode, MODES)
        validation.one_of("axes", self.axes, AXES)
        validation.one_of("reference", self.reference, REFERENCES)
        frames = given_dict(self.frames)
        if not isinstance(frames, Mapping) or not frames or POSTURE in frames:
            raise JaxikError(f'frames is a dict from name to frame, {{"tip": "tcp"}}, without the name {POSTURE!r}')
        if self.mode == "absolute" and self.axes == "frame":
            raise JaxikError('an absolute target is in the axes of the "world" or the "base", not of the frame itself')
        if (self.axes == "base") != (self.base is not None):
            raise JaxikError('base is a frame of the robot where axes is "base", and only there')
        if isinstance(self.passthrough, bool) or not isinstance(self.passthrough, int) or self.passthrough < 0:
            raise JaxikError(f"passthrough is a count of entries, from 0 on, not {self.passthrough!r}")
        robot, translation = self.robot, _step_size("translation", self.translation)
        rotation = None if self.rotation is None else _step_size("rotation", self.rotation)
        if self.lead is None:
            full = jnp.stack([translation, jnp.full_like(translation, 0.1) if rotation is None else rotation])
            lead = jnp.maximum(LEAD * full, jnp.asarray(LEAST_LEAD, full.dtype))
        elif (lead := validation.number("lead", self.lead)).shape[-1:] != (2,):
            raise JaxikError(f"lead has shape (2,), [m] and [rad], not {lead.shape}")
        posture = robot.q_home if self.posture is None else configuration("posture", self.posture, robot)
        limits = self.limits
        if limits is None:
            speeds = (VelocityLimit(),) if np.isfinite(np.asarray(robot.velocity_limit)).any() else ()
            limits = (ConfigurationLimit(), *speeds)
        dof_mask = _actuated(robot.topology) if self.dof_mask is None else self.dof_mask
        asked = Problem(robot, {POSTURE: PostureTask(posture)}, limits, dof_mask=dof_mask)  # raises for what is neither
        set_fields(
            self,
            translation=translation,
            rotation=rotation,
            posture_cost=validation.number("posture_cost", self.posture_cost),
            dt=validation.positive("dt", self.dt),
            damping=validation.number("damping", self.damping),
            frames=tuple((name, robot.frame(frame)) for name, frame in frames.items()),
            base=None if self.base is None else robot.frame(self.base),
            lead=lead,
            posture=posture,
            limits=asked.limits,
            dof_mask=asked.dof_mask,
        )

    @property
    def width(self) -> int:
        """Numbers of one frame in an action."""
        return 3 if self.rotation is None else 6

    @property
    def size(self) -> int:
        """Numbers of an action."""
        return self.width * len(self.frames) + self.passthrough

    def reset(self, q: Any) -> ActionState:
        """The state at configurations (*batch, nq): targets where the frames are."""
        q = configuration("q", q, self.robot)
        targets = {name: self.robot.frame_pose(q, frame) for name, frame in self.frames}
        return ActionState(q, targets, jnp.zeros((*q.shape[:-1], self.passthrough), q.dtype))

    def __call__(self, state: ActionState, q: Any, action: Any) -> tuple[jax.Array, ActionState, ActionInfo]:
        """Take an action.

        Args:
          state: of `reset`, or of the action before.
          q: measured configuration (*batch, nq).
          action (*batch, size).

        Returns:
          The joint target (*batch, nq), the next state and how it went.

        Raises:
          JaxikError: for wrong shapes; on the host, before tracing.
        """
        q, action = configuration("q", q, self.robot), jnp.asarray(action)
        if action.shape[-1:] != (self.size,):
            raise JaxikError(f"the action has shape (*batch, {self.size}), not {action.shape}")
        return _acted(self, state, q, action)


def facts_of(info: ActionInfo) -> dict[str, jax.Array]:
    """How actions went, as arrays (*batch,) by name, as environments report it."""
    errors = {"position_error": info.position_error, "orientation_error": info.orientation_error}
    found = {f"{part}/{name}": x for part, own in errors.items() for name, x in own.items()}
    return found | {"status": info.status, "limited": info.limited, "held": info.status == Status.NONFINITE}


def with_fresh(fresh: jax.Array, new: ActionState, old: ActionState) -> ActionState:
    """The new state where `fresh` (*batch,), else the old one."""
    return jax.tree.map(
        lambda a, b: jnp.where(fresh.reshape(*fresh.shape, *(1,) * (a.ndim - fresh.ndim)), a, b), new, old
    )


def _step_size(name: str, value: Any) -> jax.Array:
    value = validation.number(name, value)
    if value.ndim:
        raise JaxikError(f"{name} is one number, not of shape {value.shape}")
    return value


def _actuated(topology: Topology) -> np.ndarray | None:
    """The mask (nv,) of degrees of freedom that are none of a free joint's; None where there is no such joint."""
    if not topology.free_joints:
        return None
    free = [dof for joint in topology.free_joints for dof in topology.joints[joint].v_indices]
    mask = ~np.isin(np.arange(topology.nv), free)
    if not mask.any():
        raise JaxikError(
            f"{topology.name} has free joints alone, which no action moves unless dof_mask, "
            f"({topology.nv},) of bool, says so"
        )
    return mask


@jax.jit
def _acted(
    act: PoseAction, state: ActionState, q: jax.Array, action: jax.Array
) -> tuple[jax.Array, ActionState, ActionInfo]:
    count = act.width * len(act.frames)
    action = action.astype(q.dtype)
    sound = jnp.isfinite(action).all(axis=-1) & jnp.isfinite(q).all(axis=-1)
    q = jnp.where(jnp.isfinite(q).all(axis=-1, keepdims=True), q, state.q)
    # Held targets do not read it; its NaN would come back in the derivatives of what is multiplied by it.
    action = jnp.where(sound[..., None], action, 0)
    passthrough = jnp.where(sound[..., None], jnp.clip(action[..., count:], -1, 1), state.passthrough)
    targets = {
        name: _moved(act, state.targets[name], q, frame, action[..., i * act.width : (i + 1) * act.width], sound)
        for i, (name, frame) in enumerate(act.frames)
    }
    tasks: dict[str, Any] = {name: FrameTask(frame, targets[name]) for name, frame in act.frames}
    tasks[POSTURE] = PostureTask(act.posture, cost=act.posture_cost)
    topology = act.robot.topology
    moves = jnp.ones((), bool) if act.dof_mask is None else movable(topology, act.dof_mask)
    start = q
    if act.reference == "target":
        # What actions do not move, as a floating base, is nowhere but where it is measured.
        goes_on = moves if act.dof_mask is None else moves[..., np.array(dofs_of_entries(topology))]
        start = jnp.where(goes_on, state.q, q)
    problem = Problem(act.robot, tasks, act.limits, dof_mask=act.dof_mask)
    taken = step(problem, start, act.dt, damping=act.damping)
    reached = {name: act.robot.frame_pose(taken.q, frame).inverse() @ targets[name] for name, frame in act.frames}
    margins = jnp.minimum(taken.limit_margins["lower"], taken.limit_margins["upper"])
    info = ActionInfo(
        status=jnp.where(sound, taken.status, Status.NONFINITE),
        position_error={name: norm(pose.translation()) for name, pose in reached.items()},
        orientation_error={name: norm(pose.rotation().log()) for name, pose in reached.items()},
        limited=(moves & (margins < HELD)).any(axis=-1),
        velocity=taken.velocity,
        passthrough=passthrough,
    )
    return taken.q, ActionState(taken.q, targets, passthrough), info


def _moved(
    act: PoseAction, target: jaxlie.SE3, q: jax.Array, frame: Frame, move: jax.Array, sound: jax.Array
) -> jaxlie.SE3:
    """The next target pose of a frame: at most `lead` from where the arm has it."""
    measured = act.robot.frame_pose(q, frame)
    last = target if act.reference == "target" else measured
    if act.reference == "measured" and act.rotation is None:
        # Nothing turns it: the orientation of the reset stays what is asked for.
        last = jaxlie.SE3.from_rotation_and_translation(target.rotation(), measured.translation())
    axes = jaxlie.SO3.identity() if act.base is None else act.robot.frame_pose(q, act.base).rotation()
    wanted = _absolute(act, target, q, move) if act.mode == "absolute" else _shifted(act, last, axes, move)
    lead = act.lead.astype(q.dtype)
    gap = wanted.translation() - measured.translation()
    turn = (measured.rotation().inverse() @ wanted.rotation()).log()
    leashed = jaxlie.SE3.from_rotation_and_translation(
        measured.rotation() @ jaxlie.SO3.exp(_shortened(turn, lead[..., 1])),
        measured.translation() + _shortened(gap, lead[..., 0]),
    )
    # A leash that is loose leaves the target as it is, to the last bit.
    loose = (norm(gap) <= lead[..., 0]) & (norm(turn) <= lead[..., 1])
    pose = jnp.where(loose[..., None], wanted.wxyz_xyz, leashed.wxyz_xyz)
    return jaxlie.SE3(jnp.where(sound[..., None], pose, target.wxyz_xyz))


def _shifted(act: PoseAction, last: jaxlie.SE3, axes: jaxlie.SO3, move: jax.Array) -> jaxlie.SE3:
    """A pose, moved by an action of deltas in its axes."""
    move = jnp.clip(move, -1, 1)
    shift = jnp.asarray(act.translation, move.dtype)[..., None] * move[..., :3]
    turn = 0 * shift if act.rotation is None else jnp.asarray(act.rotation, move.dtype)[..., None] * move[..., 3:]
    rotation = last.rotation()
    if act.axes == "frame":
        return jaxlie.SE3.from_rotation_and_translation(
            rotation @ jaxlie.SO3.exp(turn), last.translation() + rotation @ shift
        )
    return jaxlie.SE3.from_rotation_and_translation(
        (jaxlie.SO3.exp(axes @ turn) @ rotation).normalize(), last.translation() + axes @ shift
    )


def _absolute(act: PoseAction, target: jaxlie.SE3, q: jax.Array, move: jax.Array) -> jaxlie.SE3:
    """The pose that an action of a pose asks for."""
    held = jaxlie.SE3.from_rotation_and_translation(target.rotation(), move[..., :3])
    if act.base is None:
        return held if act.rotation is None else _pose(move)
    base = act.robot.frame_pose(q, act.base)
    if act.rotation is None:
        return jaxlie.SE3.from_rotation_and_translation(target.rotation(), base @ move[..., :3])
    return base @ _pose(move)


def _pose(move: jax.Array) -> jaxlie.SE3:
    return jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.exp(move[..., 3:]), move[..., :3])


def _shortened(vector: jax.Array, most: jax.Array) -> jax.Array:
    """The vector (*batch, 3), no longer than `most`."""
    return vector * jnp.minimum(1, most / jnp.maximum(norm(vector), jnp.finfo(vector.dtype).tiny))[..., None]
