"""What C MuJoCo finds at returned configurations, in float64: errors, joint limits and couplings."""

import dataclasses
from typing import Any

import mujoco
import numpy as np


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Of n configurations.

    Attributes:
      position (n,), angle (n,): the largest distance of a frame from its target [m, rad]; infinite where a
        configuration is not finite.
      outside (n,): of bool; some joint is outside the limits of the model.
      coupling (n,): how far the model's equality constraints are from being met.
    """

    position: np.ndarray
    angle: np.ndarray
    outside: np.ndarray
    coupling: np.ndarray

    def within(self, position: float, angle: float) -> np.ndarray:
        """(n,) of bool: at the targets, inside the limits, and couplings no further off than the frames may be."""
        return (self.position <= position) & (self.angle <= angle) & ~self.outside & (self.coupling <= angle)


def judged(model: Any, q: Any, wanted: dict[str, Any], orientation: bool = True) -> Verdict:
    """Judge configurations (n, nq) by where they bring sites, whose targets (n, 7) are wxyz_xyz."""
    q = np.asarray(q, np.float64)
    targets = {model.site(name).id: np.asarray(target, np.float64) for name, target in wanted.items()}
    data = mujoco.MjData(model)
    position, angle, coupling = np.zeros(len(q)), np.zeros(len(q)), np.zeros(len(q))
    for i, configuration in enumerate(q):
        if not np.isfinite(configuration).all():
            position[i] = angle[i] = coupling[i] = np.inf
            continue
        data.qpos[:] = configuration
        mujoco.mj_kinematics(model, data)
        for site, target in targets.items():
            position[i] = max(position[i], np.linalg.norm(data.site_xpos[site] - target[i, 4:]))
            angle[i] = max(angle[i], _angle(target[i, :4], data.site_xmat[site])) if orientation else 0.0
        if model.neq:
            mujoco.mj_comPos(model, data)
            mujoco.mj_makeConstraint(model, data)
            rows = data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY
            coupling[i] = np.abs(data.efc_pos[rows]).max(initial=0.0)
    return Verdict(position, angle, _outside(model, q), coupling)


def least_distances(model: mujoco.MjModel, path: np.ndarray, pairs: set[frozenset[str]]) -> np.ndarray:
    """The least distance (n,) [m] of contacts between pairs at configurations (n, nq), zero where there is none."""
    data, least = mujoco.MjData(model), np.zeros(len(path))
    looked_at = np.zeros((model.ngeom, model.ngeom), bool)
    for pair in pairs:
        first, second = (model.geom(name).id for name in pair)
        looked_at[first, second] = looked_at[second, first] = True
    for i, q in enumerate(path):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        counts = looked_at[data.contact.geom[:, 0], data.contact.geom[:, 1]]
        least[i] = data.contact.dist[counts].min(initial=0.0)
    return least


def poses(model: Any, q: Any, site: str) -> np.ndarray:
    """The poses (n, 7), wxyz_xyz, of a site at configurations (n, nq)."""
    data, index, found = mujoco.MjData(model), model.site(site).id, np.zeros((len(q), 7))
    for i, configuration in enumerate(q):
        data.qpos[:] = configuration
        mujoco.mj_kinematics(model, data)
        mujoco.mju_mat2Quat(found[i, :4], data.site_xmat[index])
        found[i, 4:] = data.site_xpos[index]
    return found


def _angle(wanted: np.ndarray, rotation: np.ndarray) -> float:
    reached, difference = np.zeros(4), np.zeros(3)
    mujoco.mju_mat2Quat(reached, rotation)
    mujoco.mju_subQuat(difference, wanted / np.linalg.norm(wanted), reached)
    return float(np.linalg.norm(difference))


def _outside(model: Any, q: np.ndarray) -> np.ndarray:
    """(n,) of bool. The bundled robots limit no ball joints."""
    joints = model.jnt_limited.astype(bool)
    value = q[:, model.jnt_qposadr[joints]]
    return ((value < model.jnt_range[joints, 0]) | (value > model.jnt_range[joints, 1])).any(axis=1)
