"""C MuJoCo as the oracle of kinematics: what it says of a batch of configurations."""

import copy

import mujoco
import numpy as np

from jaxik.kinematics.frames import Frame

JACOBIANS = {"body": mujoco.mj_jacBody, "site": mujoco.mj_jacSite, "geom": mujoco.mj_jacGeom}


def exact(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy without MuJoCo's short cut, which takes frames within 1e-6 of their body's or its inertia's for those."""
    model = copy.deepcopy(model)
    for same in (model.body_sameframe, model.geom_sameframe, model.site_sameframe):
        same[:] = mujoco.mjtSameFrame.mjSAMEFRAME_NONE
    return model


def evaluated(model: mujoco.MjModel, qpos: np.ndarray, mocap: np.ndarray | None = None) -> mujoco.MjData:
    """Kinematics and centres of mass at `qpos` (nq,), with mocap poses (nmocap, 7) of position and wxyz."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    if mocap is not None:
        data.mocap_pos[:], data.mocap_quat[:] = mocap[:, :3], mocap[:, 3:]
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    return data


def frame_pose(data: mujoco.MjData, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Rotation (3, 3) and position (3,) of a frame in the world."""
    positions = {"body": data.xpos, "site": data.site_xpos, "geom": data.geom_xpos}
    rotations = {"body": data.xmat, "site": data.site_xmat, "geom": data.geom_xmat}
    return rotations[frame.kind][frame.index].reshape(3, 3).copy(), positions[frame.kind][frame.index].copy()


def frame_jacobian(model: mujoco.MjModel, data: mujoco.MjData, frame: Frame) -> np.ndarray:
    """Jacobian (6, nv) of a frame: velocity of its origin and angular velocity, in world axes."""
    linear, angular = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    JACOBIANS[frame.kind](model, data, linear, angular, frame.index)
    return np.vstack([linear, angular])


def com_jacobian(model: mujoco.MjModel, data: mujoco.MjData, root: int) -> np.ndarray:
    """Jacobian (3, nv) of the centre of mass of the subtree that starts at body `root`."""
    jacobian = np.zeros((3, model.nv))
    mujoco.mj_jacSubtreeCom(model, data, jacobian, root)
    return jacobian


def integrate(model: mujoco.MjModel, qpos: np.ndarray, dq: np.ndarray) -> np.ndarray:
    moved = qpos.copy()
    mujoco.mj_integratePos(model, moved, dq, 1.0)
    return moved


def difference(model: mujoco.MjModel, q_from: np.ndarray, q_to: np.ndarray) -> np.ndarray:
    dq = np.zeros(model.nv)
    mujoco.mj_differentiatePos(model, dq, 1.0, q_from, q_to)
    return dq
