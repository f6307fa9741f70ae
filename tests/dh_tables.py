"""Denavit-Hartenberg tables of arms, as their makers print them.

Franka: Franka Control Interface documentation. Universal Robots: "DH parameters for calculations of kinematics and
dynamics". KUKA: the data sheet's lengths. Kinova: user guide of Gen3. UFACTORY: "Kinematic and dynamic parameters of
xArm 7", which has both conventions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

HALF, PI = np.pi / 2, np.pi


def homogeneous(rotation: np.ndarray, position: Sequence[float] | np.ndarray) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation.reshape(3, 3), position
    return pose


def screw(axis: int, angle: float, offset: float) -> np.ndarray:
    """Turn about an axis (0 is x) and shift along it."""
    pose, i, j = np.eye(4), (axis + 1) % 3, (axis + 2) % 3
    pose[[i, j, i, j], [i, j, j, i]] = np.cos(angle), np.cos(angle), -np.sin(angle), np.sin(angle)
    pose[axis, 3] = offset
    return pose


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of alpha [rad], a [m], d [m] and, where it is not zero, the offset of theta [rad]."""

    rows: Sequence[Sequence[float]]
    modified: bool  # Craig's convention, not the classic one
    base: np.ndarray = field(default_factory=lambda: np.eye(4))

    def frames(self, q: np.ndarray) -> list[np.ndarray]:
        """Poses of the frames that the rows end in."""
        pose, poses = self.base, []
        for (alpha, a, d, *offset), angle in zip(self.rows, q, strict=True):
            x, z = screw(0, alpha, a), screw(2, angle + sum(offset), d)
            pose = pose @ (x @ z if self.modified else z @ x)
            poses.append(pose)
        return poses


FRANKA = Table(
    [
        (0, 0, 0.333),
        (-HALF, 0, 0),
        (HALF, 0, 0.316),
        (HALF, 0.0825, 0),
        (-HALF, -0.0825, 0.384),
        (HALF, 0, 0),
        (HALF, 0.088, 0),
    ],
    modified=True,
)
UR_BASE = screw(2, PI, 0)  # the files set the frame of UR's documents half a turn from the world's, as UR's URDF does
UR5E = Table(
    [(HALF, 0, 0.1625), (0, -0.425, 0), (0, -0.3922, 0), (HALF, 0, 0.1333), (-HALF, 0, 0.0997), (0, 0, 0.0996)],
    modified=False,
    base=UR_BASE,
)
UR10E = Table(
    [(HALF, 0, 0.1807), (0, -0.6127, 0), (0, -0.57155, 0), (HALF, 0, 0.17415), (-HALF, 0, 0.11985), (0, 0, 0.11655)],
    modified=False,
    base=UR_BASE,
)
IIWA14 = Table(
    [(-HALF, 0, 0.36), (HALF, 0, 0), (HALF, 0, 0.42), (-HALF, 0, 0), (-HALF, 0, 0.4), (HALF, 0, 0), (0, 0, 0.126)],
    modified=False,
)
GEN3 = Table(
    [
        (HALF, 0, -(0.1564 + 0.1284)),
        (HALF, 0, -(0.0054 + 0.0064), PI),
        (HALF, 0, -(0.2104 + 0.2104), PI),
        (HALF, 0, -(0.0064 + 0.0064), PI),
        (HALF, 0, -(0.2084 + 0.1059), PI),
        (HALF, 0, 0, PI),
        (PI, 0, -(0.1059 + 0.0615), PI),
    ],
    modified=False,
    base=screw(0, PI, 0),
)
XARM7 = Table(
    [
        (0, 0, 0.267),
        (-HALF, 0, 0),
        (HALF, 0, 0.293),
        (HALF, 0.0525, 0),
        (HALF, 0.0775, 0.3425),
        (HALF, 0, 0),
        (-HALF, 0.076, 0.097),
    ],
    modified=True,
)
XARM7_CLASSIC = Table(
    [
        (-HALF, 0, 0.267),
        (HALF, 0, 0),
        (HALF, 0.0525, 0.293),
        (HALF, 0.0775, 0),
        (HALF, 0, 0.3425),
        (-HALF, 0.076, 0),
        (0, 0, 0.097),
    ],
    modified=False,
)
