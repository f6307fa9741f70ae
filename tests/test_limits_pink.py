"""Limits are those of pink where tangents coincide: its own classes run beside ours."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np
import pink
import pinocchio
import pytest
from limit_rows import BUNDLED, DT, agree, finite_rows, jaxik_robot
from pink.limits import FloatingBaseVelocityLimit
from tables import mostly_exhaustive

import jaxik
from jaxik.kinematics.topology import JointType
from jaxik.limits.base import Limit
from jaxik.robot.robot import Robot

COUNT = 3
INERTIA = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
JOINTS = (
    ("turn", "continuous", "0 0 1", 'effort="1" velocity="3"'),
    ("lift", "prismatic", "0 0 1", 'effort="1" velocity="0.4" lower="-0.1" upper="0.7"'),
    ("shoulder", "revolute", "0 1 0", 'effort="1" velocity="2" lower="-1.2" upper="0.5"'),
    ("reach", "prismatic", "1 0 0", 'effort="1" velocity="0.3" lower="0" upper="0.3"'),
    ("wrist", "revolute", "1 0 0", 'effort="1" velocity="5" lower="-2" upper="2"'),
)
FLOATING = (
    '<link name="world"/><joint name="root_joint" type="floating"><parent link="world"/><child link="base"/></joint>'
)


def arm_urdf(world: str) -> str:
    parents = ("base", *(name for name, *_ in JOINTS))
    parts = [
        f'<link name="{name}">INERTIA</link><joint name="{name}_joint" type="{kind}"><parent link="{parent}"/>'
        f'<child link="{name}"/><origin xyz="0.1 0 0.2" rpy="0.1 0.2 0"/><axis xyz="{axis}"/><limit {limit}/></joint>'
        for parent, (name, kind, axis, limit) in zip(parents, JOINTS, strict=False)
    ]
    urdf = f'<robot name="arm">{world}<link name="base">INERTIA</link>{"".join(parts)}</robot>'
    return urdf.replace("INERTIA", INERTIA)


class Pair(NamedTuple):
    """A robot in both libraries: entries of pink's tangent that stand for ours, body twist for the free joint."""

    robot: Robot
    model: Any
    order: list[int]


PINK_ROBOTS = ("panda", "ur5e", "xarm7", "iiwa14", "arm", "floating arm", "quadruped", "wheeled_biped")


def pair(name: str, folder: Path) -> Pair:
    if name.endswith("arm"):
        floating = name.startswith("floating")
        root = (pinocchio.JointModelFreeFlyer(),) if floating else ()
        model = pinocchio.buildModelFromXML(arm_urdf(""), *root)
        robot = jaxik_robot(arm_urdf(FLOATING if floating else ""))
    else:
        # pink knows a floating base by the name "root_joint".
        file = folder / f"{name}.xml"
        file.write_text(
            (BUNDLED / file.name).read_text().replace('freejoint name="root"', 'freejoint name="root_joint"')
        )
        model = pinocchio.buildModelFromMJCF(str(file))
        robot = jaxik_robot(str(file))
    order = []
    for joint in robot.topology.joints:
        start = model.joints[model.getJointId(joint.name)].idx_v
        order += range(start, start + joint.type.nv)
    return Pair(robot, model, order)


def pink_configuration(both: Pair, q: np.ndarray) -> pink.Configuration:
    theirs = pinocchio.neutral(both.model)
    for joint in both.robot.topology.joints:
        place = both.model.joints[both.model.getJointId(joint.name)]
        value = q[joint.q_index : joint.q_index + joint.type.nq]
        if joint.type is JointType.FREE:
            value = np.concatenate([value[:3], value[4:], value[3:4]])
        elif place.nq == 2:
            value = np.array([np.cos(value[0]), np.sin(value[0])])
        theirs[place.idx_q : place.idx_q + place.nq] = value
    return pink.Configuration(both.model, both.model.createData(), theirs)


def in_our_tangent(both: Pair, q: np.ndarray, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """pink's rows on our tangent: its free joint's linear rates are in body axes, ours in world axes."""
    matrix = np.array(rows[0][:, both.order])
    for j in both.robot.topology.free_joints:
        joint = both.robot.topology.joints[j]
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, q[joint.q_index + 3 : joint.q_index + 7])
        columns = slice(joint.v_index, joint.v_index + 3)
        matrix[:, columns] = matrix[:, columns] @ rotation.reshape(3, 3).T
    return matrix, rows[1]


@pytest.mark.parametrize("name", mostly_exhaustive(PINK_ROBOTS, ["arm", "floating arm", "wheeled_biped"]))
def test_limits_are_those_of_pink(name: str, tmp_path: Path) -> None:
    both = pair(name, tmp_path)
    robot, model = both.robot, both.model
    rng = np.random.default_rng(2)
    free = [v for j in robot.topology.free_joints for v in robot.topology.joints[j].v_indices]
    fast, hard = rng.uniform(0.2, 3.0, robot.nv), rng.uniform(5.0, 20.0, robot.nv)
    fast[free] = hard[free] = np.inf
    previous = rng.uniform(-0.1, 0.1, (COUNT, robot.nv))
    theirs_fast, theirs_hard, moving = (np.zeros(model.nv) for _ in range(3))
    theirs_fast[both.order], theirs_hard[both.order] = fast, hard
    accelerating = pink.limits.AccelerationLimit(model, theirs_hard)
    pairs: list[tuple[Limit, Any]] = [
        (jaxik.ConfigurationLimit(gain=0.5), pink.limits.ConfigurationLimit(model)),
        (jaxik.VelocityLimit(fast), pink.limits.VelocityLimit(model, theirs_fast)),
        (jaxik.AccelerationLimit(hard), accelerating),
    ]
    if name.endswith("arm"):  # limits of their own, which both read from the URDF
        pairs.append((jaxik.VelocityLimit(), pink.limits.VelocityLimit(model)))
    if free:
        twist = FloatingBaseVelocityLimit(model, None, [0.3, 0.4, 0.5], 0.6)
        pairs.append(
            (jaxik.FreeJointVelocityLimit(max_linear_velocity=[0.3, 0.4, 0.5], max_angular_velocity=0.6), twist)
        )
    # Nearer to its limits a joint brakes in whole steps, which pink's law does not.
    far = jaxik.ConfigurationLimit(margin=0.1).tightened(robot)
    q_in = np.asarray(far.clamp(robot.sample(jax.random.key(3), (COUNT,))))
    ours = finite_rows(robot, [limit for limit, _ in pairs], q_in, previous)
    for i, q in enumerate(q_in):
        configuration = pink_configuration(both, q)
        moving[both.order] = previous[i]
        accelerating.set_last_integration(moving, DT)
        for (limit, theirs), rows in zip(pairs, ours, strict=True):
            got = theirs.compute_qp_inequalities(configuration, DT)
            matrix, most = in_our_tangent(both, q, got)
            assert np.isfinite(most).all(), type(limit)
            agree(rows[i], (matrix, most))


def test_outside_its_limits_pink_has_no_number_for_the_braking_distance(tmp_path: Path) -> None:
    both = pair("panda", tmp_path)
    q = np.asarray(both.robot.q_home) + 4.0
    with np.errstate(invalid="ignore"):
        _, theirs = pink.limits.AccelerationLimit(both.model, np.full(7, 10.0)).compute_qp_inequalities(
            pink_configuration(both, q), DT
        )
    assert np.isnan(theirs).any()
    ((_, ours),) = finite_rows(both.robot, [jaxik.AccelerationLimit(10.0)], q[None])[0]
    assert ours.shape == (14,)
    lower = np.asarray(both.robot.limit_lower)
    np.testing.assert_allclose(ours[:7], 0.0, atol=1e-15)  # at rest, outside: it may not move further out
    np.testing.assert_allclose(ours[7:], np.minimum(10.0 * DT**2, DT * np.sqrt(20.0 * (q - lower))), atol=1e-15)
