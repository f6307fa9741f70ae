"""Shapes as triangles."""

from typing import NamedTuple

import numpy as np

from jaxik.kinematics.visual import Mesh
from jaxik.pictures.shapes import CAPSULE, CYLINDER, ELLIPSOID, MESH, SPHERE, Shapes


class Part(NamedTuple):
    """All triangles of the links, or of the joints, of a body.

    Attributes:
      body: its index.
      is_joint: whether they stand for joints.
      vertices (n, 3) [m], in the body's axes; faces (m, 3).
    """

    body: int
    is_joint: bool
    vertices: np.ndarray
    faces: np.ndarray


def parts(shapes: Shapes, corners: int) -> list[Part]:
    """The shapes of each body in one; `corners` around a circle."""
    found = []
    for body, is_joint in sorted(set(zip(shapes.body.tolist(), shapes.is_joint.tolist(), strict=True))):
        vertices, faces, count = [], [], 0
        for index in np.flatnonzero((shapes.body == body) & (shapes.is_joint == is_joint)):
            points, triangles = mesh(shapes, int(index), corners)
            vertices.append(points @ shapes.rotation[index].T + shapes.position[index])
            faces.append(triangles + count)
            count += len(points)
        found.append(Part(body, is_joint, np.concatenate(vertices), np.concatenate(faces)))
    return found


def mesh(shapes: Shapes, index: int, corners: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (n, 3) [m] and triangles (m, 3), counterclockwise from outside, of a shape about its own origin.

    Args:
      shapes: of a robot.
      index: of one of them.
      corners: around a circle.
    """
    kind, (a, b, _) = shapes.kind[index], shapes.size[index]
    if kind == MESH:
        own: Mesh = shapes.mesh[index]
        return own.vertices, own.faces
    quarter = np.linspace(0, np.pi / 2, corners // 4 + 1)
    if kind in (SPHERE, CAPSULE):
        half = b if kind == CAPSULE else 0.0
        lower = np.stack([a * np.sin(quarter), -half - a * np.cos(quarter)], axis=1)
        return _turned(np.concatenate([lower, lower[::-1] * (1, -1)]), corners)
    if kind == ELLIPSOID:
        half_turn = np.linspace(0, np.pi, corners // 2 + 1)
        vertices, faces = _turned(np.stack([np.sin(half_turn), -np.cos(half_turn)], axis=1), corners)
        return vertices * shapes.size[index], faces
    if kind == CYLINDER:
        # The edges are there twice: their normals are not rounded off.
        return _turned(np.array([[0, -b], [a, -b], [a, -b], [a, b], [a, b], [0, b]]), corners)
    return _box(shapes.size[index])


def _turned(profile: np.ndarray, corners: int) -> tuple[np.ndarray, np.ndarray]:
    """The surface of a profile (n, 2), distance from the z axis and height, that is turned about it."""
    angle = 2 * np.pi * np.arange(corners) / corners
    around = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rings = np.concatenate(
        [profile[:, None, :1] * around, np.broadcast_to(profile[:, None, 1:], (len(profile), corners, 1))], axis=2
    )
    ring, this = np.divmod(np.arange((len(profile) - 1) * corners), corners)
    at, beside = ring * corners + this, ring * corners + (this + 1) % corners
    above, across = at + corners, beside + corners
    faces = np.concatenate([np.stack([at, beside, across], axis=1), np.stack([at, across, above], axis=1)])
    vertices = rings.reshape(-1, 3)
    x, y, z = vertices[faces].transpose(1, 0, 2)
    doubled_area = np.linalg.norm(np.cross(y - x, z - x), axis=1)
    return vertices, faces[doubled_area > 1e-9 * doubled_area.max()]


def _box(half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    vertices, faces = [], []
    for axis in range(3):
        for side in (-1.0, 1.0):
            across, up = np.eye(3)[(axis + 1) % 3], np.eye(3)[(axis + 2) % 3] * side
            corners = [side * np.eye(3)[axis] + s * across + t * up for s, t in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
            start = len(vertices)
            vertices += corners
            faces += [(start, start + 1, start + 2), (start, start + 2, start + 3)]
    return np.array(vertices) * half, np.array(faces)
