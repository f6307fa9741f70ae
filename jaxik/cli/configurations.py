"""Read configurations by name, by joint, or as numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxik.cli.poses import Units
from jaxik.cli.section import Place, Section, preview, read_numbers
from jaxik.core.errors import unknown_name
from jaxik.kinematics.topology import Joint, JointType
from jaxik.robot.robot import Robot

NAMED = ("home", "mid-range")


def read_configuration(
    value: Any, place: Place, robot: Robot, units: Units, *, what: str = "configuration", more: tuple[str, ...] = ()
) -> np.ndarray:
    """Read a configuration (nq,): home, mid-range, a keyframe, {joint: value} with the rest as at home, or nq numbers.

    Args:
      what: the thing that errors are about.
      more: names that are read elsewhere, and stand in errors only.
    """
    if value == "home":
        return np.asarray(robot.q_home)
    if value == "mid-range":
        return mid_range(robot)
    if isinstance(value, str):
        if value not in robot.topology.keyframes:
            with place.blamed():
                raise unknown_name(what, value, (*NAMED, *more, *robot.topology.keyframes))
        return np.asarray(robot.keyframe(value))
    if isinstance(value, dict):
        return _by_joint(Section(value, place), robot, units)
    if not isinstance(value, list):
        names = ", ".join((*NAMED, *more))
        place.fail(f"is {names}, a keyframe, values by joint, or {robot.nq} numbers; not {preview(value)}")
    q = _finite(read_numbers(value, (robot.nq,), place), place)
    for joint in robot.topology.joints:
        q[list(joint.q_indices)] *= coordinate_factors(joint, units)
    return q


def mid_range(robot: Robot) -> np.ndarray:
    """The middle of the joint limits (nq,); without limits as at home, like balls and free joints; couplings hold."""
    with np.errstate(invalid="ignore"):  # there is no middle of two infinite limits
        middle = (np.asarray(robot.limit_lower) + np.asarray(robot.limit_upper)) / 2
    driven = {each.follower for each in robot.topology.couplings}
    moving = [j for j in robot.topology.scalar_joints if np.isfinite(middle[j]) and j not in driven]
    return np.array(robot.configuration({robot.topology.joints[j].name: middle[j] for j in moving}))


def named_joint(robot: Robot, name: str, place: Place) -> Joint:
    """Look up a joint; an unknown name is an error at `place`."""
    with place.blamed():
        return robot.topology.joints[robot.topology.joint_index(name)]


def coordinate_factors(joint: Joint, units: Units) -> Any:
    """The SI factor of each coordinate of a joint; 1 for quaternions."""
    return {
        JointType.HINGE: units.angle,
        JointType.SLIDE: units.length,
        JointType.BALL: 1.0,
        JointType.FREE: np.array([units.length] * 3 + [1.0] * 4),
    }[joint.type]


def rate_factors(robot: Robot, units: Units) -> np.ndarray:
    """The SI factor of each degree of freedom (nv,)."""
    of_type = {
        JointType.HINGE: [units.angle],
        JointType.SLIDE: [units.length],
        JointType.BALL: [units.angle] * 3,
        JointType.FREE: [units.length] * 3 + [units.angle] * 3,
    }
    return np.array([factor for joint in robot.topology.joints for factor in of_type[joint.type]])


def of_one_unit(value: float, factors: Iterable[float], place: Place) -> float:
    """Convert one number to SI whose unit is that of several quantities; an error where their units differ."""
    distinct = set(factors)
    if value and len(distinct) > 1:
        place.fail("is of angles and lengths alike: give it where the units are rad and m")
    return value * (distinct.pop() if len(distinct) == 1 else 1.0)


def _finite(values: np.ndarray, place: Place) -> np.ndarray:
    if not np.isfinite(values).all():
        place.fail(f"holds finite numbers, not {preview(values.tolist())}")
    return values


def _by_joint(section: Section, robot: Robot, units: Units) -> np.ndarray:
    values = {}
    for name in section.values:
        joint = named_joint(robot, name, section.place)
        shape = () if joint.type.nq == 1 else (joint.type.nq,)
        value = np.ravel(_finite(read_numbers(section.get(name), shape, section.at(name)), section.at(name)))
        values[name] = value * coordinate_factors(joint, units)
    return np.array(robot.configuration(values))
