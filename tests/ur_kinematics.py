"""Closed-form inverse kinematics of a UR5e: up to eight configurations a pose, shoulder, wrist and elbow either way.

Andersen, Kinematics of a UR5, Aalborg University, 2018; lengths from Universal Robots' table in `dh_tables`.
"""

from typing import NamedTuple

import numpy as np
from dh_tables import UR5E, UR_BASE, screw

import jaxik

(D1, _, _, D4, D5, D6), (A2, A3) = [row[2] for row in UR5E.rows], [UR5E.rows[joint][1] for joint in (1, 2)]


class Branches(NamedTuple):
    """What closed form finds.

    Attributes:
      q (n, 8, 6): angles in [-pi, pi) [rad], all inside the limits, which are at +-2 pi and for the elbow at +-pi.
      exists (n, 8): whether there is such a configuration.
      room (n, 8): half of what a branch differs by from the next one in the joint that tells them apart, shoulder,
        wrist or elbow [rad]: zero where two of them merge; NaN where it does not exist.
    """

    q: np.ndarray
    exists: np.ndarray
    room: np.ndarray


def branches(tool: np.ndarray) -> Branches:
    """All configurations that bring the tool of a UR5e to poses (n, 4, 4) in the world."""
    tool = np.linalg.inv(UR_BASE) @ tool
    signs = np.array([[shoulder, wrist, elbow] for shoulder in (1, -1) for wrist in (1, -1) for elbow in (1, -1)])
    shoulder, wrist, elbow = signs.T
    with np.errstate(invalid="ignore"):  # NaN is what does not exist
        q, angles = _solved(tool[:, None], shoulder, wrist, elbow)
    room = np.min([np.minimum(angle, np.pi - angle) for angle in angles], axis=0)
    return Branches(wrapped(q), np.isfinite(q).all(-1), room)


def found(closed: Branches, solution: jaxik.Solution, apart: float) -> np.ndarray:
    """(n, 8) of bool: whether one of the solutions (n, k) is a branch, up to whole turns and `apart` [rad].

    So much may lie between them, for a tenth of a millimetre and of a degree move joints that far near singularities.
    """
    away = np.abs(wrapped(closed.q[:, :, None] - np.asarray(solution.q, float)[:, None])).max(-1)
    return (np.where(np.asarray(solution.converged)[:, None], away, np.inf) <= apart).any(-1)


def _solved(tool: np.ndarray, shoulder: np.ndarray, wrist: np.ndarray, elbow: np.ndarray) -> tuple[np.ndarray, list]:
    """Angles (n, 8, 6) and, of shoulder, wrist and elbow, the angle (n, 8) in [0, pi] of which either sign is taken."""
    center = tool[..., :3, 3] - D6 * tool[..., :3, 2]
    side = np.arccos(D4 / np.hypot(center[..., 0], center[..., 1]))
    first = np.arctan2(center[..., 1], center[..., 0]) + shoulder * side + np.pi / 2
    sine, cosine = np.sin(first), np.cos(first)
    tilt = np.arccos((tool[..., 0, 3] * sine - tool[..., 1, 3] * cosine - D4) / D6)
    fifth = wrist * tilt
    back = np.swapaxes(tool[..., :3, :3], -1, -2)
    sixth = np.arctan2(
        (-back[..., 1, 0] * sine + back[..., 1, 1] * cosine) / np.sin(fifth),
        (back[..., 0, 0] * sine - back[..., 0, 1] * cosine) / np.sin(fifth),
    )
    arm = np.linalg.inv(link(0, first)) @ tool @ np.linalg.inv(link(4, fifth) @ link(5, sixth))
    x, y = arm[..., 0, 3], arm[..., 1, 3]
    bent = np.arccos((x * x + y * y - A2 * A2 - A3 * A3) / (2 * A2 * A3))
    third = elbow * bent
    second = np.arctan2(y, x) - np.arctan2(A3 * np.sin(third), A2 + A3 * np.cos(third))
    fourth = np.arctan2(arm[..., 1, 0], arm[..., 0, 0]) - second - third
    q = np.stack(np.broadcast_arrays(first, second, third, fourth, fifth, sixth), axis=-1)
    return q, np.broadcast_arrays(side, tilt, bent)


def link(joint: int, angle: np.ndarray) -> np.ndarray:
    """Poses (*batch, 4, 4) of the frame behind a joint in the one before it, for angles (*batch,)."""
    alpha, a, d = UR5E.rows[joint]
    sine, cosine, zero = np.sin(angle), np.cos(angle), np.zeros_like(angle)
    turn = np.stack([cosine, -sine, zero, zero, sine, cosine, zero, zero], axis=-1).reshape(*np.shape(angle), 2, 4)
    rest = np.broadcast_to(np.array([[0, 0, 1, d], [0, 0, 0, 1.0]]), turn.shape)
    return np.concatenate([turn, rest], axis=-2) @ screw(0, alpha, a)


def wrapped(angle: np.ndarray) -> np.ndarray:
    """Angles in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi
