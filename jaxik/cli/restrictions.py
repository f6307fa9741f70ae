"""What a solution has to keep to: limits, equality constraints, joints that stay as they are."""

import numpy as np

from jaxik.cli import fields
from jaxik.cli.configurations import named_joint, of_one_unit
from jaxik.cli.fields import Source
from jaxik.cli.poses import Units
from jaxik.cli.section import Section
from jaxik.limits.configuration import ConfigurationLimit
from jaxik.robot.model import Robot
from jaxik.robot.topology import JointType
from jaxik.tasks.base import Task


def read_limits(root: Section, robot: Robot, units: Units) -> tuple[ConfigurationLimit, ...] | None:
    """The limits under the key `limits`: the robot's, None, by default and with a margin; none at all for `[]`."""
    if "limits" not in root:
        return None
    if root.get("limits") == []:
        return ()
    section = root.section("limits")
    section.allow("margin")
    limited = [joint for joint in robot.topology.joints if joint.type is not JointType.FREE]
    factors = [units.length if joint.type is JointType.SLIDE else units.angle for joint in limited]
    margin = of_one_unit(section.number("margin"), factors, section.at("margin"))
    return (ConfigurationLimit(margin=margin),)


def read_constraints(root: Section) -> dict[str, Task] | None:
    """None for the model's own joint couplings and equality constraints; {} to let them go."""
    if "constraints" not in root:
        return None
    if root.get("constraints") != {}:
        root.at("constraints").fail("is {}, which lets the model's couplings and constraints go, or left out")
    return {}


def read_frozen(root: Section, source: Source) -> np.ndarray | None:
    """Which degrees of freedom move (nv,): not those of the joints under the key `freeze`; None: all."""
    if "freeze" not in root:
        return None
    moves = np.ones(source.robot.nv, bool)
    for name in fields.joints(root, "freeze", source):
        moves[list(named_joint(source.robot, name, root.at("freeze")).v_indices)] = False
    return moves
