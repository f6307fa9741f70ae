"""Inequalities as equalities: distance - slack = 0, with one non-negative coordinate for each slack.

A slack is a slide joint without a body, with limits from zero up, after the robot's own joints: bounds, active sets and
levels then treat inequalities like all other coordinates.
"""

import dataclasses

import jax.numpy as jnp

from jaxik.kinematics.topology import Joint, JointType, intern
from jaxik.robot.robot import Robot


def with_slack(robot: Robot, count: int) -> Robot:
    """The robot with slides that move nothing, after its own joints, limited to [0, inf)."""
    if not count:
        return robot
    topology = robot.topology
    slides = tuple(Joint(f"slack {i}", JointType.SLIDE, 0, topology.nq + i, topology.nv + i) for i in range(count))
    fields = {field.name: getattr(topology, field.name) for field in dataclasses.fields(topology)}
    fields["joints"] = (*topology.joints, *slides)

    def longer(name: str, value: float, rank: int = 1) -> dict[str, jnp.ndarray]:
        """A leaf with one more entry for each slide, along its first core axis; of keyframes along the last."""
        x = getattr(robot, name)
        axis = x.ndim - 1 if name == "keyframes" else x.ndim - rank
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return {name: jnp.concatenate([x, jnp.full(shape, value, x.dtype)], axis)}

    return dataclasses.replace(
        robot,
        topology=intern(*fields.values()),
        **longer("joint_anchor", 0.0, 2),
        **longer("joint_axis", 1.0, 2),
        **longer("limit_lower", 0.0),
        **longer("limit_upper", jnp.inf),
        **longer("velocity_limit", jnp.inf),
        **longer("armature", 0.0),
        **longer("qpos0", 0.0),
        **longer("q_home", 0.0),
        **longer("keyframes", 0.0, 2),
    )
