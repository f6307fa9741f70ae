"""Where solving starts."""

import warnings
from typing import Any

import jax
import numpy as np

from jaxik.cli.poses import Units
from jaxik.cli.section import Section, read_numbers, shown
from jaxik.errors import JaxikWarning, unknown_name
from jaxik.robot.model import Robot
from jaxik.robot.topology import Joint, JointType

NAMED = ("home", "mid-range", "sample")


def read_start(root: Section, robot: Robot, units: Units, seed: int, count: int) -> np.ndarray:
    """The start under the key `start`: (nq,), or (count, nq) where it is sampled; the robot's `q_home` by default."""
    value, place = root.get("start", "home"), root.at("start")
    if value == "home":
        return np.asarray(robot.q_home)
    if value == "mid-range":
        return mid_range(robot)
    if value == "sample":
        # Not the key of the targets: from there they would be solved already.
        return np.asarray(robot.sample(jax.random.fold_in(jax.random.key(seed), 1), (count,)))
    if isinstance(value, str):
        if value not in robot.topology.keyframes:
            with place.blamed():
                raise unknown_name("start", value, (*NAMED, *robot.topology.keyframes))
        return np.asarray(robot.keyframe(value))
    if isinstance(value, list):
        q = read_numbers(value, (robot.nq,), place)
        for joint in robot.topology.joints:
            q[list(joint.q_indices)] *= _factors(joint, units)
    elif isinstance(value, dict):
        q = _by_joint(Section(value, place), robot, units)
    else:
        place.fail(f"is {', '.join(NAMED)}, a keyframe, values by joint, or {robot.nq} numbers; not {shown(value)}")
    _say_outside(robot, q)
    return q


def mid_range(robot: Robot) -> np.ndarray:
    """The middle of the limits (nq,); joints without limits, balls and free joints as at home."""
    q = np.array(robot.q_home)
    for j in robot.topology.scalar_joints:
        middle = (robot.limit_lower[j] + robot.limit_upper[j]) / 2
        if np.isfinite(middle):
            q[robot.topology.joints[j].q_index] = middle
    return q


def _by_joint(section: Section, robot: Robot, units: Units) -> np.ndarray:
    q = np.array(robot.q_home)
    for name in section.values:
        with section.place.blamed():
            joint = robot.topology.joints[robot.topology.joint_index(name)]
        shape = () if joint.type.nq == 1 else (joint.type.nq,)
        value = np.ravel(read_numbers(section.get(name), shape, section.at(name)))
        q[list(joint.q_indices)] = value * _factors(joint, units)
    return q


def _factors(joint: Joint, units: Units) -> Any:
    """To radians and metres, for each coordinate of a joint; quaternions have no unit."""
    return {
        JointType.HINGE: units.angle,
        JointType.SLIDE: units.length,
        JointType.BALL: 1.0,
        JointType.FREE: np.array([units.length] * 3 + [1.0] * 4),
    }[joint.type]


def _say_outside(robot: Robot, q: np.ndarray) -> None:
    joints = [robot.topology.joints[j] for j in robot.topology.scalar_joints]
    at = [joint.q_index for joint in joints]
    order = list(robot.topology.scalar_joints)
    outside = (q[at] < np.asarray(robot.limit_lower)[order]) | (q[at] > np.asarray(robot.limit_upper)[order])
    if outside.any():
        names = ", ".join(joint.name for joint, out in zip(joints, outside, strict=True) if out)
        warnings.warn(f"the start is outside the limits of {names}: it is moved inside", JaxikWarning, stacklevel=2)
