"""Simplify the meshes of bundled arms: `python docs/meshes/simplify.py panda path/to/panda.xml`.

Needs `pip install fast-simplification scipy`. Writes jaxik/robot/bundled/meshes/NAME.npz, and prints how far the
simplified surfaces are off the model's. Sources and licences: jaxik/robot/bundled/meshes/README.md.
"""

import dataclasses
import sys
from pathlib import Path

import fast_simplification
import mujoco
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

import jaxik
from jaxik.kinematics.visual import Mesh
from jaxik.pictures.simplify import clustered

BUNDLED = Path(jaxik.__file__).parent / "robot" / "bundled"
# Triangles of a whole arm, and the fewest of one mesh.
FACES, FEWEST = 8000, 700
# How many times too many triangles are clustered further.
ROUGH = 2
# Pieces smaller than this [m] are left out: screws, letters.
SMALL = 0.03
# Groups of shapes that are drawn and do not collide.
VISUAL = 1, 2
# Vertices closer than this [m] are one.
WELD = 1e-4
# One unit of a stored vertex [m].
UNIT = 2e-5


def placed(robot, model):
    """Bodies of the bundled arm that carry those of the model, and base-to-base rotation and translation.

    Joints correspond in their order. Axes are compared at a bent configuration.
    """
    ours = mujoco.MjModel.from_xml_path(str(BUNDLED / f"{robot}.xml"))
    hinges = [j for j in range(ours.njnt) if ours.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE]
    data, other = mujoco.MjData(ours), mujoco.MjData(model)
    data.qpos[:] = 0
    other.qpos[:] = 0
    bent = np.linspace(0.3, 1.1, len(hinges))
    data.qpos[ours.jnt_qposadr[hinges]] = bent
    other.qpos[model.jnt_qposadr[: len(hinges)]] = bent
    mujoco.mj_kinematics(ours, data)
    mujoco.mj_kinematics(model, other)
    axes = data.xanchor[hinges], data.xaxis[hinges]
    theirs = other.xanchor[: len(hinges)], other.xaxis[: len(hinges)]
    u, _, v = np.linalg.svd(theirs[1].T @ axes[1])  # Kabsch: their axes onto ours
    turn = (u @ np.diag([1, 1, np.linalg.det(u @ v)]) @ v).T
    # The shift that brings each of their anchors nearest to our axis; along it they may lie anywhere.
    project = [np.eye(3) - np.outer(a, a) for a in axes[1]]
    gaps = [p @ (a - turn @ b) for p, a, b in zip(project, axes[0], theirs[0], strict=True)]
    shift = np.linalg.lstsq(np.concatenate(project), np.concatenate(gaps), rcond=None)[0]
    off = [np.linalg.norm(p @ (a - turn @ b - shift)) for p, a, b in zip(project, axes[0], theirs[0], strict=True)]
    tilt = np.abs(theirs[1] @ turn.T - axes[1]).max()
    print(f"{robot}: axes off by {max(off) * 1e3:.2f} mm and {tilt:.1e}")
    assert max(off) < 2e-3 and tilt < 2e-3, (off, tilt)
    first = [int(ours.jnt_bodyid[j]) for j in hinges]
    base = int(ours.body_parentid[first[0]])
    return ours, data, other, [base, *first], turn, shift


def seen(model):
    """Shapes that show an arm: meshes in the visual groups."""
    return [
        g
        for g in range(model.ngeom)
        if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH and model.geom_group[g] in VISUAL
    ]


def carrier(model, body, joints):
    """Which joint moves a body: 0 none, k the k-th; None beyond the arm's joints."""
    while body:
        if model.body_jntnum[body]:
            joint = int(model.body_jntadr[body])
            return joint + 1 if joint < joints else None
        body = int(model.body_parentid[body])
    return 0


def main(name: str, path: str) -> None:
    model = mujoco.MjModel.from_xml_path(path)
    ours, data, other, bodies, turn, shift = placed(name, model)
    parts = []
    for g in seen(model):
        joint = carrier(model, int(model.geom_bodyid[g]), len(bodies) - 1)
        if joint is None or (joint == len(bodies) - 1 and model.body_jntnum[model.geom_bodyid[g]] == 0):
            continue  # what is mounted on the flange
        mesh = model.geom_dataid[g]
        v0, f0 = model.mesh_vertadr[mesh], model.mesh_faceadr[mesh]
        vertices = model.mesh_vert[v0 : v0 + model.mesh_vertnum[mesh]].astype(float)
        faces = model.mesh_face[f0 : f0 + model.mesh_facenum[mesh]]
        # Into the world, into our world, into our body.
        spot = vertices @ other.geom_xmat[g].reshape(3, 3).T + other.geom_xpos[g]
        spot = spot @ turn.T + shift
        body = bodies[joint]
        local = (spot - data.xpos[body]) @ data.xmat[body].reshape(3, 3)
        color = model.geom_rgba[g] if model.geom_matid[g] < 0 else model.mat_rgba[model.geom_matid[g]]
        local, faces = without_small_pieces(*welded(local, faces))
        if len(faces):
            parts.append((body, np.round(color, 3), local, faces))
    parts = merged(parts)
    area = np.array([triangle_areas(v, f).sum() for _, _, v, f in parts])
    # A curved small part needs more triangles for its area than a large one.
    share = np.sqrt(area) / np.sqrt(area).sum()
    stored = []
    for (body, color, vertices, faces), part in zip(parts, share, strict=True):
        count = int(FACES * part)
        if max(count, FEWEST) < len(faces):
            small, kept = fast_simplification.simplify(
                vertices.astype(np.float32), faces.astype(np.int32), target_count=count, agg=3
            )
            if len(kept) > ROUGH * count:  # pieces that hang together badly: cubes instead of edges
                cell = np.sqrt(2 * triangle_areas(vertices, faces).sum() / count) / 2
                small, kept = dataclasses.astuple(clustered(Mesh(small, kept), cell))
        else:
            small, kept = vertices, faces
        stored.append((body, color, small, kept))
        near = cKDTree(sampled(small, kept, 60000)).query(sampled(vertices, faces, 8000))[0]
        most = f"{np.quantile(near, 0.95) * 1e3:.1f} at 95 %, {near.max() * 1e3:.1f} at most"
        counts = f"{len(faces):7d} -> {len(kept):5d}"
        print(f"  {ours.body(body).name:28s} {counts}, off by {near.mean() * 1e3:.1f} mm in the mean, {most}")
    write(name, ours, stored)


def merged(parts):
    """One mesh for each body and colour."""
    found = {}
    for body, color, vertices, faces in parts:
        found.setdefault((body, tuple(color)), []).append((vertices, faces))
    for (body, color), meshes in found.items():
        starts = np.cumsum([0, *(len(v) for v, _ in meshes)])
        joined = np.concatenate([f + s for (_, f), s in zip(meshes, starts[:-1], strict=True)])
        found[body, color] = body, color, np.concatenate([v for v, _ in meshes]), joined
    return [*found.values()]


def welded(vertices, faces):
    """Vertices that coincide become one, so that triangles hang together."""
    _, first, index = np.unique(
        np.round(vertices / WELD).astype(np.int64), axis=0, return_index=True, return_inverse=True
    )
    faces = index.reshape(-1)[faces]
    a, b, c = faces.T
    return vertices[first], faces[(a != b) & (b != c) & (c != a)]


def without_small_pieces(vertices, faces):
    edges = np.concatenate([faces[:, :2], faces[:, 1:]])
    graph = coo_matrix((np.ones(len(edges)), edges.T), shape=(len(vertices), len(vertices)))
    count, piece = connected_components(graph, directed=False)
    size = np.zeros(count)
    for column in vertices.T:
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(low, piece, column)
        np.maximum.at(high, piece, column)
        size = np.maximum(size, high - low)
    faces = faces[size[piece[faces[:, 0]]] >= SMALL]
    used, faces = np.unique(faces, return_inverse=True)
    return vertices[used], faces.reshape(-1, 3)


def triangle_areas(vertices, faces):
    a, b, c = vertices[faces].transpose(1, 0, 2)
    return np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2


def sampled(vertices, faces, count):
    """Points spread evenly on a surface."""
    rng = np.random.default_rng(0)
    areas = triangle_areas(vertices, faces)
    chosen = rng.choice(len(faces), count, p=areas / areas.sum())
    u, v = rng.random((2, count, 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    a, b, c = vertices[faces[chosen]].transpose(1, 0, 2)
    return a + u * (b - a) + v * (c - a)


def write(name, ours, parts) -> None:
    middle = [(v.min(axis=0) + v.max(axis=0)) / 2 for _, _, v, _ in parts]
    whole = [np.round((v - m) / UNIT) for (_, _, v, _), m in zip(parts, middle, strict=True)]
    assert max(np.abs(v).max() for v in whole) < 2**15 and max(len(v) for v in whole) < 2**16
    file = BUNDLED / "meshes" / f"{name}.npz"
    np.savez_compressed(
        file,
        body=np.array([ours.body(body).name for body, _, _, _ in parts]),
        color=np.array([color for _, color, _, _ in parts], np.float32),
        position=np.array(middle, np.float32),
        vertex_count=np.array([len(v) for v in whole], np.int32),
        face_count=np.array([len(f) for _, _, _, f in parts], np.int32),
        vertices=np.concatenate(whole).astype(np.int16),
        faces=np.concatenate([f for _, _, _, f in parts]).astype(np.uint16),
    )
    print(f"{file}: {sum(len(f) for _, _, _, f in parts)} triangles, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
