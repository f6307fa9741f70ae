"""Robots and obstacles that differ from row to row, and what was drawn of them, so that they can be made again."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.collision.world import World
from jaxik.core.errors import JaxikError
from jaxik.core.pytree import set_fields
from jaxik.kinematics.topology import JointType
from jaxik.problem.problem import Problem
from jaxik.robot.robot import Robot

# Obstacles that are moved, and their fields that hold positions, as the last three numbers.
MOVED = {
    "spheres": ("center",),
    "capsules": ("start", "end"),
    "boxes": ("pose",),
    "cylinders": ("pose",),
    "ellipsoids": ("pose",),
}
# Name of what is drawn to its unit and meaning.
MEANINGS = {
    "link_scale": ("", "of each body, the factor of its offset from its parent"),
    "tool_shift": ("m", "of each site, how far it is moved, in the axes of its body"),
    "joint_limits": ("rad or m", "of each joint, lower and upper limit"),
    "base_pose": ("1, m", "where the robot is mounted, quaternion wxyz, then position"),
    "obstacle_shift": ("m", "of each obstacle, how far it is moved, in world axes: " + ", ".join(MOVED)),
}


@dataclasses.dataclass(frozen=True)
class Randomize:
    """What of a robot and of its obstacles is drawn for each row of a dataset, uniformly: `Plan(randomize=...)`.

    What was drawn is stored with each row, and `apply(problem, rows)` makes the problems of rows again. Shapes of links
    keep their size, masses and closed loops their numbers: where links of a loop are drawn, it may no longer close.

    Args:
      link_lengths: (least, most): factors of the offsets of bodies from their parents, of each its own.
      tool_offset: [m], or (3,): sites are moved by at most this, along each axis of their body.
      joint_limits: (least, most), of 0 to 1: shares of the ways from `q_home` to the limits of hinges and slides, of
        each limit its own.
      base_position: [m], or (3,): the mount is moved by at most this, along each axis of the world.
      base_rotation: [rad]: and turned by at most this, about any axis.
      obstacles: [m], or (3,): spheres, capsules, boxes, cylinders and ellipsoids that limits and tasks keep away from
        are moved by at most this, along each axis of the world. Worlds of as many of each are moved alike, as the same
        world of a `CollisionLimit` and of a `ClearanceTask`.

    Raises:
      JaxikError: for numbers out of range, and where nothing is drawn.
    """

    link_lengths: Any = None
    tool_offset: Any = None
    joint_limits: Any = None
    base_position: Any = None
    base_rotation: float | None = None
    obstacles: Any = None

    def __post_init__(self) -> None:
        if all(getattr(self, field.name) is None for field in dataclasses.fields(self)):
            names = ", ".join(field.name for field in dataclasses.fields(self))
            raise JaxikError(f"randomize draws nothing: give it one of {names}")
        for name, most in (("link_lengths", np.inf), ("joint_limits", 1.0)):
            said = "(least, most), above 0" + ("" if most == np.inf else f" to {most:g}")
            self._store(name, (2,), lambda x, most=most: 0 < x[0] <= x[1] <= most, said)
        for name in ("tool_offset", "base_position", "obstacles"):
            self._store(name, (3,), lambda x: min(x) >= 0, "a distance [m] or (3,), at least 0")
        self._store("base_rotation", (), lambda x: 0 <= x <= np.pi, "an angle from 0 to pi [rad]")

    def _store(self, name: str, shape: tuple[int, ...], allowed: Any, said: str) -> None:
        """Keep an argument as plain numbers of this shape."""
        if (given := getattr(self, name)) is None:
            return
        try:
            pair = shape == (2,) and np.shape(given) != (2,)
            value = None if pair else np.broadcast_to(np.asarray(given, float), shape).tolist()
        except (TypeError, ValueError):
            value = None
        if value is None or not np.isfinite(value).all() or not allowed(value):
            raise JaxikError(f"{name} is {said}, not {given!r}")
        object.__setattr__(self, name, tuple(value) if isinstance(value, list) else value)

    def __call__(self, problem: Problem, key: jax.Array) -> tuple[Problem, dict[str, jax.Array]]:
        """The problem of one row, and what was drawn of it."""
        drawn = self.draw(problem, key)
        return self.apply(problem, drawn), drawn

    def check(self, problem: Problem) -> None:
        """Raise an error where the problem has nothing of what is drawn."""
        if self.tool_offset is not None and not len(problem.robot.site_position):
            raise JaxikError(f"randomize: tool_offset moves sites, of which {problem.robot.name} has none")
        if self.obstacles is not None and not _obstacle_count(problem):
            raise JaxikError(
                f"randomize: obstacles: no limit or task keeps away from {', '.join(MOVED)}: add such a world"
            )

    def draw(self, problem: Problem, key: jax.Array) -> dict[str, jax.Array]:
        """What is random of one row, by the names of `MEANINGS`; JAX traces it."""
        self.check(problem)
        robot, found = problem.robot, {}
        dtype, keys = robot.q_home.dtype, jax.random.split(key, 6)

        def within(key: jax.Array, shape: tuple[int, ...], most: Any) -> jax.Array:
            return jax.random.uniform(key, shape, dtype, -1, 1) * jnp.asarray(most, dtype)

        if self.link_lengths is not None:
            found["link_scale"] = jax.random.uniform(keys[0], (len(robot.body_position),), dtype, *self.link_lengths)
        if self.tool_offset is not None:
            found["tool_shift"] = within(keys[1], robot.site_position.shape, self.tool_offset)
        if self.joint_limits is not None:
            shares = jax.random.uniform(keys[2], (len(robot.limit_lower), 2), dtype, *self.joint_limits)
            found["joint_limits"] = _limits(robot, shares)
        if self.base_position is not None or self.base_rotation is not None:
            turn, axis = jax.random.uniform(keys[3], dtype=dtype), jax.random.normal(keys[4], (3,), dtype)
            vector = axis / jnp.linalg.norm(axis) * turn * (self.base_rotation or 0.0)
            shift = within(jax.random.fold_in(keys[3], 1), (3,), self.base_position or 0.0)
            found["base_pose"] = jnp.concatenate([jaxlie.SO3.exp(vector).wxyz, shift])
        if self.obstacles is not None:
            found["obstacle_shift"] = within(keys[5], (_obstacle_count(problem), 3), self.obstacles)
        return found

    def apply(self, problem: Problem, drawn: Mapping[str, Any]) -> Problem:
        """The problem with what was drawn, of one row or of many: arrays may have batch axes in front."""
        robot = problem.robot
        values = {name: jnp.asarray(drawn[name], robot.q_home.dtype) for name in MEANINGS if name in drawn}
        if "link_scale" in values:
            hangs = np.array([parent == 0 for parent in robot.topology.body_parents])  # its offset is the mount's
            scale = jnp.where(hangs, 1, values["link_scale"])[..., None]
            robot = dataclasses.replace(robot, body_position=robot.body_position * scale)
        if "tool_shift" in values:
            robot = dataclasses.replace(robot, site_position=robot.site_position + values["tool_shift"])
        if "joint_limits" in values:
            lower, upper = values["joint_limits"][..., 0], values["joint_limits"][..., 1]
            robot = dataclasses.replace(robot, limit_lower=lower, limit_upper=upper)
        if "base_pose" in values:
            robot = robot.with_base(jaxlie.SE3(values["base_pose"]))
        if "obstacle_shift" in values:
            problem = _with_shifted(problem, values["obstacle_shift"])
        return _with(problem, robot=robot)


def _limits(robot: Robot, shares: jax.Array) -> jax.Array:
    """Lower and upper limits (njoint, 2), of hinges and slides at these shares of the ways from home."""
    joints = robot.topology.joints
    ranged = np.array([joint.type in (JointType.HINGE, JointType.SLIDE) for joint in joints])
    home = robot.q_home[np.array([joint.q_index for joint in joints])]
    limits = jnp.stack([robot.limit_lower, robot.limit_upper], axis=1)
    tightened = home[:, None] + shares * (limits - home[:, None])
    return jnp.where(ranged[:, None] & jnp.isfinite(limits), tightened, limits)


def _is_world(x: Any) -> bool:
    return isinstance(x, World)


def _counts(world: World) -> tuple[tuple[str, int], ...]:
    """Kinds of its obstacles that are moved, and how many of each there are."""
    there = [(kind, getattr(world, kind)) for kind in MOVED]
    return tuple((kind, getattr(x, MOVED[kind][0]).shape[-2]) for kind, x in there if x is not None)


def _worlds(problem: Problem) -> list[tuple[tuple[str, int], ...]]:
    """What is moved of the worlds of limits and tasks, those that are moved alike once."""
    return list(dict.fromkeys(_counts(x) for x in jax.tree.leaves(problem, is_leaf=_is_world) if _is_world(x)))


def _obstacle_count(problem: Problem) -> int:
    return sum(count for world in _worlds(problem) for _, count in world)


def _with_shifted(problem: Problem, shift: jax.Array) -> Problem:
    """The problem with its obstacles moved by shift (*batch, n, 3), those of one world after the other."""
    ends = np.cumsum([sum(count for _, count in world) for world in _worlds(problem)])
    starts = dict(zip(_worlds(problem), (0, *ends.tolist()), strict=False))

    def shifted(x: Any) -> Any:
        if not _is_world(x):
            return x
        start = starts[_counts(x)]
        for kind, count in _counts(x):
            own, shapes = shift[..., start : start + count, :], getattr(x, kind)
            x = _with(x, **{kind: _with(shapes, **{f: _shifted(getattr(shapes, f), own) for f in MOVED[kind]})})
            start += count
        return x

    return jax.tree.map(shifted, problem, is_leaf=_is_world)


def _with(tree: Any, **fields: Any) -> Any:
    """The same with other fields; what is not named stays the same array, shared by all rows."""
    tree = copy.copy(tree)
    set_fields(tree, **fields)
    return tree


def _shifted(place: jax.Array, shift: jax.Array) -> jax.Array:
    """Positions (*batch, n, 3), or poses (*batch, n, 7), moved."""
    whole = jnp.concatenate([jnp.zeros((*shift.shape[:-1], place.shape[-1] - 3), shift.dtype), shift], axis=-1)
    return place + whole
