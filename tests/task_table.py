"""Robots of every joint type, and every task on each of them, with its target taken from a configuration."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
import random_trees

import jaxik
from jaxik import (
    AxisAlignTask,
    ComTask,
    FrameTask,
    JointCouplingTask,
    LinearHolonomicTask,
    LookAtTask,
    ManipulabilityTask,
    OmniwheelTask,
    PostureTask,
    RelativeFrameTask,
    RollingTask,
    Task,
)
from jaxik.robot.robot import Robot

# Trees whose "tip" and "other" hang on branches that share a joint and have joints of their own.
TREES: dict[str, dict[str, Any]] = {
    "hinge": {"seed": 15, "n_bodies": 5, "stacks": (("hinge",), ("hinge", "hinge")), "free_bodies": 0},
    "slide": {"seed": 15, "n_bodies": 5, "stacks": (("slide",), ("slide", "slide")), "free_bodies": 0},
    "ball": {"seed": 9, "n_bodies": 4, "stacks": (("ball",), ("hinge", "ball"), ("slide",)), "free_bodies": 0},
    "free": {"seed": 21, "n_bodies": 4, "stacks": (("hinge",), ()), "free_bodies": 2},
}
CARRIERS = {
    "hinge": ("body4", "body1"),
    "slide": ("body4", "body1"),
    "ball": ("body3", "body1"),
    "free": ("body0", "body2"),
}
# Rows that the joints of each tree move in: a manipulability of the others is always zero.
MASKS = {"hinge": [1, 0, 1, 0, 0, 1], "slide": [1, 0, 1, 0, 0, 0], "ball": [0, 1, 1, 1, 0, 1], "free": [1] * 6}
POSE_COSTS = {"position_cost": [2.0, 0.5, 1.0], "orientation_cost": 0.3}
AXIS = [0.2, -2.0, 0.5]
TILT = jax.jit(jaxlie.SO3.exp)(np.array([0.3, -0.4, 0.2]))


def pose(turn: Any, position: Any) -> jaxlie.SE3:
    return jaxlie.SE3.from_rotation_and_translation(
        jaxlie.SO3.exp(jnp.asarray(turn, float)), jnp.asarray(position, float)
    )


@cache
def robot_of(name: str) -> Robot:
    """A tree with the frames "tip" and "other", off their bodies; "other" is a floor that lies well below."""
    tree = dict(TREES[name])
    tip, other = CARRIERS[name]
    robot = jaxik.load_robot(random_trees.random_tree(tree.pop("seed"), **tree))
    robot = robot.with_frame("tip", tip, pose([0.4, -0.3, 1.1], [0.1, 0.2, -0.05]))
    return robot.with_frame("other", other, pose(TILT.log(), TILT @ jnp.array([0.1, 0.2, -4.0])))


def scalar_joints(robot: Robot) -> tuple[str, ...]:
    return tuple(robot.joint_names[j] for j in robot.topology.scalar_joints)


def moving_body(robot: Robot) -> str:
    """The body of the first joint: the root of a subtree that is not the whole model."""
    return robot.topology.body_names[robot.topology.joints[0].body]


def matrix(robot: Robot) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, robot.nv))


# Each builder takes the robot, its name in TREES and the configuration that the task should find itself fulfilled at.
TASKS: dict[str, Callable[[Robot, str, Any], Task]] = {
    "frame": lambda r, _, q: FrameTask.from_configuration(r, q, "tip", **POSE_COSTS),
    "relative": lambda r, _, q: RelativeFrameTask.from_configuration(r, q, "tip", "other", **POSE_COSTS),
    "relative position": lambda r, _, q: RelativeFrameTask.from_configuration(
        r, q, "tip", "other", orientation_cost=None, position_cost=[1.0, 2.0, 0.0]
    ),
    "relative orientation": lambda r, _, q: RelativeFrameTask.from_configuration(
        r, q, "tip", "other", position_cost=None, mask=[1, 1, 1, 1, 0.5, 0]
    ),
    "relative to the world": lambda r, _, q: RelativeFrameTask.from_configuration(r, q, "tip", "world"),
    "com": lambda r, _, q: ComTask.from_configuration(r, q, cost=[1.0, 2.0, 0.5]),
    "com of a subtree": lambda r, _, q: ComTask.from_configuration(r, q, moving_body(r)),
    "posture": lambda r, _, q: PostureTask.from_configuration(r, q, cost=0.7),
    "posture, free joints too": lambda r, _, q: PostureTask.from_configuration(
        r, q, cost=np.linspace(0.5, 2, r.nv), free_joints=True
    ),
    "look at": lambda r, _, q: LookAtTask.from_configuration(r, q, "tip", AXIS, cost=2.0),
    "axis align": lambda r, _, q: AxisAlignTask.from_configuration(r, q, "tip", AXIS, cost=2.0),
    "coupling": lambda r, _, q: JointCouplingTask.from_configuration(
        r, q, scalar_joints(r)[-2:], [1.0, -0.5][: len(scalar_joints(r))], cost=3.0
    ),
    "holonomic": lambda r, _, q: LinearHolonomicTask.from_configuration(r, q, matrix(r), cost=[0.5, 2.0]),
    "rolling": lambda r, _, q: RollingTask.from_configuration(r, q, "tip", "other", cost=[1.0, 2.0, 3.0]),
    "omniwheel": lambda r, _, q: OmniwheelTask.from_configuration(r, q, "tip", "other"),
    "omniwheel with an axle": lambda r, _, q: OmniwheelTask.from_configuration(r, q, "tip", "other", axle=AXIS),
    "manipulability": lambda r, name, q: ManipulabilityTask.from_configuration(r, q, "tip", MASKS[name], cost=2.0),
    "manipulability, world axes": lambda r, name, q: ManipulabilityTask.from_configuration(
        r, q, "tip", MASKS[name], axes="world"
    ),
}
# Tasks with rows on the motion, which are no derivative of a residual; they have a test of their own.
SLIPPING = ("rolling", "omniwheel", "omniwheel with an axle")
# EqualityConstraintTask is not here: what it asks for is the model's, and these trees ask nothing; test_equality.py has
# every kind of constraint, between every type of joint.
# The default differentiates by poses and q, and a manipulability is of a Jacobian: that task writes its own.
WITHOUT_DEFAULT = ("manipulability", "manipulability, world axes")


def tasks_at(name: str, q: Any) -> dict[str, Task]:
    robot = robot_of(name)
    return {kind: build(robot, name, q) for kind, build in TASKS.items()}
