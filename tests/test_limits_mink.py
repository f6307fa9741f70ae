"""Limits are those of mink: its own classes run beside ours on hinges, slides, balls and free joints."""

from functools import cache

import jax.numpy as jnp
import mink
import mujoco
import numpy as np
import own_tasks
import pytest
import random_trees
from limit_rows import BUNDLED, DT, agree, finite_rows, jaxik_robot
from tables import mostly_exhaustive

import jaxik
from jaxik.kinematics.topology import JointType
from jaxik.limits.base import Limit
from jaxik.limits.combine import merged_bounds

COUNT = 3
MUJOCO_MODELS: dict[str, str] = {
    **{f"tree {seed}": random_trees.random_tree(seed) for seed in range(3)},
    "mixed": own_tasks.MIXED,
    "panda": str(BUNDLED / "panda.xml"),
    "humanoid": str(BUNDLED / "humanoid.xml"),
    "mobile manipulator": str(BUNDLED / "mobile_manipulator.xml"),
}


@cache
def mujoco_model(name: str) -> mujoco.MjModel:
    source = MUJOCO_MODELS[name]
    return mujoco.MjModel.from_xml_path(source) if source.endswith(".xml") else mujoco.MjModel.from_xml_string(source)


def qpos_within_and_without(model: mujoco.MjModel, rng: np.random.Generator) -> np.ndarray:
    """Configurations (COUNT, nq), the last one far from what the limits allow."""
    inside = np.stack([random_trees.random_qpos(model, rng) for _ in range(COUNT)])
    outside = rng.standard_normal(model.nq) * 2
    mujoco.mj_normalizeQuat(model, outside)
    inside[-1] = outside
    return inside


@pytest.mark.parametrize("name", mostly_exhaustive(MUJOCO_MODELS, ["tree 0", "mixed", "panda"]))
def test_limits_are_those_of_mink(name: str) -> None:
    model, robot = mujoco_model(name), jaxik_robot(MUJOCO_MODELS[name])
    rng = np.random.default_rng(1)
    joints = [joint for joint in robot.topology.joints if joint.type is not JointType.FREE]
    fast = {joint.name: rng.uniform(0.1, 3.0, joint.type.nv) for joint in joints if rng.random() < 0.8}
    pairs: list[tuple[Limit, mink.Limit]] = [
        (jaxik.ConfigurationLimit(), mink.ConfigurationLimit(model)),
        (jaxik.ConfigurationLimit(gain=0.4), mink.ConfigurationLimit(model, gain=0.4)),
        (jaxik.VelocityLimit(fast), mink.VelocityLimit(model, fast)),
    ]
    if not name.startswith("tree"):  # mink lets a margin cross the limits of joints 1e-9 rad wide
        margin = mink.ConfigurationLimit(model, min_distance_from_limits=0.02)
        pairs.append((jaxik.ConfigurationLimit(margin=0.02), margin))
    for j in robot.topology.free_joints:
        joint = robot.topology.joints[j].name
        linear, angular = rng.uniform(0.1, 1.0, (2, 3))
        pairs += [
            (
                jaxik.FreeJointVelocityLimit(joint, max_linear_velocity=linear, max_angular_velocity=angular),
                mink.FreeJointVelocityLimit(model, linear, angular, joint),
            ),
            (
                jaxik.FreeJointVelocityLimit(joint, max_linear_velocity=0.7),
                mink.FreeJointVelocityLimit(model, max_linear_velocity=0.7, joint_name=joint),
            ),
            (
                jaxik.FreeJointVelocityLimit(joint, max_angular_velocity=0.3),
                mink.FreeJointVelocityLimit(model, max_angular_velocity=0.3, joint_name=joint),
            ),
        ]
    qs = qpos_within_and_without(model, rng)
    configuration = mink.Configuration(model)
    ours = finite_rows(robot, [limit for limit, _ in pairs], qs)
    for i, q in enumerate(qs):
        configuration.update(q)
        for (_, theirs), rows in zip(pairs, ours, strict=True):
            agree(rows[i], theirs.compute_qp_inequalities(configuration, DT))


def test_the_models_have_every_kind_of_joint() -> None:
    kinds = [joint.type for name in MUJOCO_MODELS for joint in jaxik_robot(MUJOCO_MODELS[name]).topology.joints]
    assert set(kinds) == set(JointType)


def test_outside_its_limits_mink_contradicts_a_velocity_limit() -> None:
    robot = jaxik_robot(MUJOCO_MODELS["panda"])
    limits = (jaxik.ConfigurationLimit(), jaxik.VelocityLimit(1.0))
    q = np.asarray(robot.q_home).copy()
    q[0] = float(robot.limit_upper[0]) + 0.5
    model = mujoco_model("panda")
    configuration = mink.Configuration(model, q)
    theirs = mink.ConfigurationLimit(model).compute_qp_inequalities(configuration, DT)
    slowest = mink.VelocityLimit(model, {"joint1": 1.0}).compute_qp_inequalities(configuration, DT)
    assert theirs.h is not None and slowest.h is not None
    assert theirs.h[0] < -slowest.h[1]  # dq_0 <= -0.475 and dq_0 >= -0.02
    kin = robot.kinematics(q)
    lower, upper = merged_bounds(limits, robot, kin, jaxik.Motion(DT))
    np.testing.assert_array_equal(jnp.stack([lower[0], upper[0]]), [-DT, -DT])
