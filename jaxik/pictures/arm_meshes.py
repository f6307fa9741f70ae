"""Surfaces of the bundled arms, simplified from published meshes; sources and licences lie beside the files."""

import functools
from typing import NamedTuple

import numpy as np

from jaxik.kinematics.visual import Mesh
from jaxik.robot.loading.catalog import bundled_meshes

# Robots with another robot's arms: the arm's name, what stands before the names of its bodies, bodies of other names.
_ARMS = {
    "dual_arm": (("panda", "left_", {}), ("panda", "right_", {})),
    "mobile_manipulator": (("ur5e", "", {"base": "arm_base"}),),
}
# One unit of a stored vertex [m].
_UNIT = 2e-5


class Surface(NamedTuple):
    """A mesh on a body.

    Attributes:
      body: the body's name.
      mesh: about the middle of its box.
      position (3,) [m]: of that middle, in the body's axes, which are the mesh's.
      color (4,): RGBA in [0, 1].
    """

    body: str
    mesh: Mesh
    position: np.ndarray
    color: np.ndarray


def arm_surfaces(name: str) -> tuple[Surface, ...]:
    """Meshes of a bundled robot's arms; none, where it has no arm with published ones."""
    arms = _ARMS.get(name, ((name, "", {}),))
    return tuple(
        surface._replace(body=before + renamed.get(surface.body, surface.body))
        for arm, before, renamed in arms
        for surface in _read(arm)
    )


@functools.cache
def _read(arm: str) -> tuple[Surface, ...]:
    file = bundled_meshes(arm)
    if file is None:
        return ()
    with np.load(file) as stored:
        columns = {key: stored[key] for key in stored.files}
    vertices = np.split(columns["vertices"].astype(np.float32) * np.float32(_UNIT), _ends(columns["vertex_count"]))
    faces = np.split(columns["faces"].astype(np.int32), _ends(columns["face_count"]))
    meshes = [Mesh(*pair) for pair in zip(vertices, faces, strict=True)]
    rows = zip(columns["body"].tolist(), meshes, columns["position"], columns["color"], strict=True)
    return tuple(Surface(*row) for row in rows)


def _ends(counts: np.ndarray) -> np.ndarray:
    return np.cumsum(counts)[:-1]
