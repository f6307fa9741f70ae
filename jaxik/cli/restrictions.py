"""What a solution has to keep to: limits, equality constraints, joints that stay as they are."""

import numpy as np

from jaxik.cli import fields
from jaxik.cli.configurations import named_joint
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
    return (ConfigurationLimit(margin=section.number("margin") * _margin_unit(section, robot, units)),)


def _margin_unit(section: Section, robot: Robot, units: Units) -> float:
    """One number is the margin of hinges and slides alike: a robot that has both needs units that agree."""
    factors = {units.length if joint.type is JointType.SLIDE else units.angle for joint in robot.topology.joints}
    if len(factors) > 1:
        section.at("margin").fail("is of angles and lengths alike: give it where the units are rad and m")
    return factors.pop() if factors else 1.0


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
