"""What a compiled model draws, as MuJoCo's viewer shows it."""

import mujoco
import numpy as np

from jaxik.kinematics.topology import Topology
from jaxik.kinematics.visual import Mesh, Visual

# Groups of shapes that MuJoCo's viewer shows at first; models keep what collides in others.
SHOWN = 0, 1, 2
# The group into which MuJoCo puts the <visual> shapes of a URDF; <collision> shapes are in group 0.
URDF_VISUAL = 1
_PRIMITIVES = (
    mujoco.mjtGeom.mjGEOM_SPHERE,
    mujoco.mjtGeom.mjGEOM_CAPSULE,
    mujoco.mjtGeom.mjGEOM_ELLIPSOID,
    mujoco.mjtGeom.mjGEOM_CYLINDER,
    mujoco.mjtGeom.mjGEOM_BOX,
)
_MESH = int(mujoco.mjtGeom.mjGEOM_MESH)
# MuJoCo's colour of a shape that has none of its own; there its material's counts.
_UNPAINTED = np.array([0.5, 0.5, 0.5, 1.0], np.float32)


def read_visual(model: mujoco.MjModel, topology: Topology, is_urdf: bool, bare: tuple[str, ...]) -> Visual:
    """The shapes that are seen; planes, height fields and textures are left out.

    Args:
      model: it is not modified.
      topology: of its robot.
      is_urdf: whether the <visual> shapes of a link stand for its <collision> shapes.
      bare: names of bodies whose shapes were left out, as their files cannot be read.
    """
    chosen = _shown(model, is_urdf)
    read = {i: _read_mesh(model, i) for i in np.unique(model.geom_dataid[chosen[model.geom_type[chosen] == _MESH]])}
    size, position = model.geom_size[chosen].copy(), model.geom_pos[chosen].copy()
    meshes: list[Mesh | None] = []
    for row, g in enumerate(chosen):
        if model.geom_type[g] != _MESH:
            meshes.append(None)
            continue
        mesh, middle = read[model.geom_dataid[g]]
        meshes.append(mesh)
        turned = np.empty(3)
        mujoco.mju_rotVecQuat(turned, middle, model.geom_quat[g])
        position[row] += turned
        size[row] = np.abs(mesh.vertices).max(axis=0)
    bodies = dict(zip(topology.body_names, range(model.nbody), strict=True))
    return Visual(
        body=model.geom_bodyid[chosen].astype(int),
        kind=model.geom_type[chosen].astype(int),
        size=size,
        position=position,
        quaternion=model.geom_quat[chosen].copy(),
        color=_colors(model, chosen),
        meshes=tuple(meshes),
        bare=tuple(sorted(bodies[name] for name in bare if name in bodies)),
    )


def _shown(model: mujoco.MjModel, is_urdf: bool) -> np.ndarray:
    """Indices of the shapes that are seen."""
    group, body = model.geom_group, model.geom_bodyid
    seen = np.isin(group, SHOWN) & np.isin(model.geom_type, [*map(int, _PRIMITIVES), _MESH])
    seen &= _colors(model, np.arange(model.ngeom))[:, 3] > 0
    if is_urdf:
        visual = seen & (group == URDF_VISUAL)
        seen = visual | (seen & ~np.isin(body, body[visual]))
    return np.flatnonzero(seen)


def _colors(model: mujoco.MjModel, chosen: np.ndarray) -> np.ndarray:
    """RGBA (n, 4) of shapes: their own, else their material's."""
    own, material = model.geom_rgba[chosen], model.geom_matid[chosen]
    painted = (material >= 0) & (own == _UNPAINTED).all(axis=1)
    color = own.astype(float)
    color[painted] = model.mat_rgba[material[painted]]
    return color


def _read_mesh(model: mujoco.MjModel, index: int) -> tuple[Mesh, np.ndarray]:
    """A mesh, about the middle (3,) [m] of its box."""
    vertex, face = model.mesh_vertadr[index], model.mesh_faceadr[index]
    vertices = model.mesh_vert[vertex : vertex + model.mesh_vertnum[index]]
    middle = (vertices.min(axis=0) + vertices.max(axis=0)).astype(float) / 2
    faces = model.mesh_face[face : face + model.mesh_facenum[index]].copy()
    return Mesh((vertices - middle).astype(np.float32), faces), middle
