"""What C MuJoCo says of one configuration in float64: a second opinion on jaxik's own kinematics."""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mujoco
import numpy as np

from jaxik.core.errors import LoadError
from jaxik.robot.loading.sources import read_source


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
    value = {j: q[model.jnt_qposadr[j]] for j in _limited_scalars(model)}
    return [model.joint(j).name for j, x in value.items() if not model.jnt_range[j, 0] <= x <= model.jnt_range[j, 1]]


def _limited_scalars(model: mujoco.MjModel) -> list[int]:
    """Hinges and slides that have limits."""
    return [j for j in _scalars(model) if model.jnt_limited[j]]


def _scalars(model: mujoco.MjModel) -> list[int]:
    """Hinges and slides."""
    scalar = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    # As an enum: `in` compares MuJoCo's with what it is given, and they do not equal integers of numpy.
    return [j for j in range(model.njnt) if mujoco.mjtJoint(model.jnt_type[j]) in scalar]


_FREE = mujoco.mjtJoint.mjJNT_FREE
NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})


class Reference:
    """Poses of frames and joint limits of a model, by C MuJoCo in float64.

    What `jaxik.Randomize` drew of a robot is set in the compiled model, for each row anew.

    Args:
      source: as of `load_robot`.
    """

    def __init__(self, source: Any) -> None:
        """Compile the model."""
        self._own = read_source(source).model
        self._model = copy.copy(self._own)
        # MuJoCo remembers which frames are those of their bodies, and does not look at where they are set to.
        self._model.site_sameframe[:] = mujoco.mjtSameFrame.mjSAMEFRAME_NONE
        self._data = mujoco.MjData(self._model)

    def poses(self, q: np.ndarray, kind: str, name: str, drawn: Mapping[str, np.ndarray] = NOTHING) -> np.ndarray:
        """Poses (n, 7), wxyz_xyz, of a body, site or geom at configurations (n, nq).

        Args:
          q: the configurations.
          kind: of the frame.
          name: of the frame.
          drawn: link_scale (n, nbody), tool_shift (n, nsite, 3) and base_pose (n, 7) of the robot of each.

        Raises:
          LoadError: if the model has no such frame, or another number of coordinates.
        """
        if q.shape[1] != self._model.nq:
            raise LoadError(f"the model has {self._model.nq} coordinates, the rows have {q.shape[1]}")
        try:
            index = getattr(self._model, kind)(name).id
        except KeyError:
            raise LoadError(f"the model has no {kind} {name!r}") from None
        data, found = self._data, np.empty((len(q), 7))
        matrix, origin = ((data.xmat, data.xpos) if kind == "body" else (
            getattr(data, f"{kind}_xmat"), getattr(data, f"{kind}_xpos")
        ))  # fmt: skip
        for number, (row, pose) in enumerate(zip(q, found, strict=True)):
            if drawn:
                self._change({part: values[number] for part, values in drawn.items()})
            data.qpos[:] = row
            mujoco.mj_kinematics(self._model, data)
            mujoco.mju_mat2Quat(pose[:4], matrix[index])
            pose[4:] = origin[index]
        return found

    def _change(self, drawn: Mapping[str, np.ndarray]) -> None:
        """Make the model that of one row."""
        model, own = self._model, self._own
        if "link_scale" in drawn:
            hung = own.body_parentid > 0
            model.body_pos[hung] = own.body_pos[hung] * drawn["link_scale"][hung, None]
        if "tool_shift" in drawn:
            model.site_pos[:] = own.site_pos + drawn["tool_shift"]
        if "base_pose" in drawn:
            turn, shift = np.split(drawn["base_pose"].astype(float), [4])
            for body in _mounted(own):
                place = own.body_pos[body], own.body_quat[body]
                mujoco.mju_mulPose(model.body_pos[body], model.body_quat[body], shift, turn, *place)

    def velocities(self, q: np.ndarray, following: np.ndarray, dt: float) -> np.ndarray:
        """Velocities (n, nv) that lead from configurations (n, nq) to following ones in dt [rad/s, m/s]."""
        found = np.empty((len(q), self._model.nv))
        for before, after, velocity in zip(q, following, found, strict=True):
            mujoco.mj_differentiatePos(self._model, velocity, dt, before, after)
        return found

    def outside(self, q: np.ndarray, drawn: Mapping[str, np.ndarray] = NOTHING) -> np.ndarray:
        """Which configurations (n, nq) have a joint outside its limits, by joint_limits (n, njoint, 2) where drawn."""
        model = self._model
        limited = _limited_scalars(model)
        bounds = model.jnt_range[None]
        if "joint_limits" in drawn:  # infinite where there are none
            limited, bounds = _scalars(model), drawn["joint_limits"]
        at, bounds = model.jnt_qposadr[limited], bounds[:, limited]
        return ~np.all((bounds[..., 0] <= q[:, at]) & (q[:, at] <= bounds[..., 1]), axis=1)


def _mounted(model: mujoco.MjModel) -> list[int]:
    """The bodies on the world that a mount carries: not those that are free, or set from outside."""
    free = {int(model.jnt_bodyid[j]) for j in range(model.njnt) if mujoco.mjtJoint(model.jnt_type[j]) == _FREE}
    on_world = np.flatnonzero((model.body_parentid == 0) & (model.body_mocapid < 0)).tolist()
    return [body for body in on_world if body and body not in free]
