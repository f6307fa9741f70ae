"""What a robot looks like: shapes and meshes of its model, that no kinematics reads."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
    """A surface of triangles about the middle of its box; each is itself alone, as a key too.

    Attributes:
      vertices (n, 3) [m], faces (m, 3): indices of vertices, counterclockwise from outside.
    """

    vertices: np.ndarray
    faces: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Visual:
    """Shapes of a model, each on a body; none, where nobody asked for them.

    All are equal: no program depends on what a robot looks like, so it compiles once for a robot with and without.
    A robot that a jitted function returns looks as the one for which that was compiled.

    Attributes:
      body (n,): index of the body that carries each.
      kind (n,): MuJoCo's number of the kind (mjtGeom).
      size (n, 3) [m]: as MuJoCo has it; of a mesh half the edges of its box.
      position (n, 3) [m], quaternion (n, 4) wxyz: in the body's axes.
      color (n, 4): RGBA in [0, 1].
      meshes: of each its `Mesh`, or None.
      bare: indices of bodies whose shapes could not be read.
    """

    body: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    kind: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    size: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 3)))
    position: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 3)))
    quaternion: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 4)))
    color: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 4)))
    meshes: tuple[Mesh | None, ...] = ()
    bare: tuple[int, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Visual)

    def __hash__(self) -> int:
        return 0


UNSEEN = Visual()
