"""What C MuJoCo says of one configuration in float64: a second opinion on jaxik's own kinematics."""

import mujoco
import numpy as np


def site_pose(model: mujoco.MjModel, q: np.ndarray, site: str) -> np.ndarray:
    """The pose (7,), wxyz_xyz, of a site in the world at a configuration (nq,) [m]."""
    data, index, pose = mujoco.MjData(model), model.site(site).id, np.zeros(7)
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    mujoco.mju_mat2Quat(pose[:4], data.site_xmat[index])
    pose[4:] = data.site_xpos[index]
    return pose


def pose_error(pose: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """Distance [m] and angle [rad] between two poses (7,), wxyz_xyz."""
    turn = np.zeros(3)
    mujoco.mju_subQuat(turn, target[:4], pose[:4])
    return float(np.linalg.norm(pose[4:] - target[4:])), float(np.linalg.norm(turn))


def joints_outside(model: mujoco.MjModel, q: np.ndarray) -> list[str]:
    """Names of the hinges and slides that a configuration (nq,) has outside the limits of the model."""
    scalar = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    # As an enum: `in` compares MuJoCo's with what it is given, and they do not equal integers of numpy.
    limited = [j for j in range(model.njnt) if model.jnt_limited[j] and mujoco.mjtJoint(model.jnt_type[j]) in scalar]
    value = {j: q[model.jnt_qposadr[j]] for j in limited}
    return [model.joint(j).name for j, x in value.items() if not model.jnt_range[j, 0] <= x <= model.jnt_range[j, 1]]
