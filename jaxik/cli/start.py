"""Read the starting configurations."""

import warnings

import jax
import numpy as np

from jaxik.cli.configurations import read_configuration
from jaxik.cli.poses import Units
from jaxik.cli.section import Section
from jaxik.core.errors import JaxikWarning
from jaxik.robot.robot import Robot

# Numbers that are written down are rounded [rad, m].
ROUNDING = 1e-6


def read_start(
    root: Section, robot: Robot, units: Units, seed: int, count: int, *, searches: bool
) -> np.ndarray | None:
    """Read the key `start`: (nq,), or (count, nq) if sampled.

    By default the robot's `q_home`, or None where a search begins as it does by default.
    """
    if searches and "start" not in root:
        return None
    value = root.get("start", "home")
    if value == "sample":
        # Not the key of the targets: from there they would be solved already.
        return np.asarray(robot.sample(jax.random.fold_in(jax.random.key(seed), 1), (count,)))
    q = read_configuration(value, root.at("start"), robot, units, what="start", more=("sample",))
    _say_outside(robot, q)
    return q


def _say_outside(robot: Robot, q: np.ndarray) -> None:
    joints = [robot.topology.joints[j] for j in robot.topology.scalar_joints]
    at = [joint.q_index for joint in joints]
    order = list(robot.topology.scalar_joints)
    below, above = np.asarray(robot.limit_lower)[order] - q[at], q[at] - np.asarray(robot.limit_upper)[order]
    outside = np.maximum(below, above) > ROUNDING
    if outside.any():
        names = ", ".join(joint.name for joint, out in zip(joints, outside, strict=True) if out)
        warnings.warn(f"the start is outside the limits of {names}: it is moved inside", JaxikWarning, stacklevel=2)
