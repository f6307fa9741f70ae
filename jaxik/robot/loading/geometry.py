"""The shapes of a compiled model, and the pairs of them that can collide, as MuJoCo filters them."""

import copy
from collections.abc import Iterator
from itertools import combinations
from typing import Literal, get_args

import jax.numpy as jnp
import mujoco
import numpy as np

from jaxik.collision.mesh_hulls import hull_vertices, padded
from jaxik.core.errors import LoadError
from jaxik.kinematics.geometry import ALWAYS, CONSTANT, FIXED, NEVER, DroppedPair, Geometry
from jaxik.robot.loading.hulls import Shape, as_capsule, as_hull, as_sphere
from jaxik.robot.loading.nearest_approach import nearest_approaches

_KINDS = {
    int(mujoco.mjtGeom.mjGEOM_SPHERE): "sphere",
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): "capsule",
    int(mujoco.mjtGeom.mjGEOM_BOX): "box",
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): "cylinder",
    int(mujoco.mjtGeom.mjGEOM_ELLIPSOID): "ellipsoid",
    int(mujoco.mjtGeom.mjGEOM_PLANE): "plane",
}
_MESH = int(mujoco.mjtGeom.mjGEOM_MESH)

Source = Literal["model", "hull", "capsule", "sphere"]
"""What stands for a mesh: nothing, its convex hull, or a capsule or a sphere around that."""
SOURCES: tuple[Source, ...] = get_args(Source)

# Random configurations that decide which pairs never and which always touch.
SAMPLES = 10_000
# Never: nearer than twice this [m] in none of the samples, nor where their distance is lowered from some of them.
SAMPLING_GAP = 0.01
# A distance that changes by less than this [m] in all samples is the same wherever joints are, as of a base and a first
# link that turns on it: MuJoCo's own is exact to a hundredth of that.
SAME = 1e-4
# Of slides longer than this [m] samples may miss what is as large as a hand.
FAR = 2.0
# What is farther apart at home [m] is below no usual margin.
NEAR_HOME = 0.1


def read_geometry(model: mujoco.MjModel, name: str, source: Source, samples: np.ndarray, home: np.ndarray) -> Geometry:
    """The shapes that take part in collisions, with their pairs.

    Args:
      model: it is not modified.
      name: what errors call it.
      source: what stands for meshes.
      samples (n, nq): random configurations, which decide which pairs never and which always touch.
      home (nq,): the home configuration.

    Raises:
      LoadError: if the model has none.
    """
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    known = {*_KINDS, _MESH} if source != "model" else {*_KINDS}
    chosen = [int(g) for g in np.flatnonzero(collides) if int(model.geom_type[g]) in known]
    if not chosen:
        raise LoadError(f"{name} has no shape that collides: {_nothing(model, collides)}")
    names = _names(model, chosen)
    shapes = [_shape(model, g, source) for g in chosen]
    pairs, dropped = _filtered(model, chosen, names)
    pairs, sampled = _sampled(model, chosen, names, pairs, samples)
    dtype = jnp.result_type(float)
    return Geometry(
        names=names,
        bodies=tuple(int(model.geom_bodyid[g]) for g in chosen),
        kinds=tuple(shape.kind for shape in shapes),
        pairs=tuple(pairs),
        home=tuple(_near_home(model, chosen, shapes, pairs, home)),
        dropped=(*dropped, *sampled),
        lost=_lost(model, np.flatnonzero(collides), known),
        fits=tuple(f"{n}: {x.grown:.2f}" for n, x in zip(names, shapes, strict=True) if x.grown is not None),
        position=jnp.asarray(np.stack([shape.position for shape in shapes]), dtype),
        quaternion=jnp.asarray(np.stack([shape.quaternion for shape in shapes]), dtype),
        size=jnp.asarray(np.stack([shape.size for shape in shapes]), dtype),
        corners=jnp.asarray(padded([shape.corners for shape in shapes if shape.corners is not None]), dtype),
    )


def _shape(model: mujoco.MjModel, g: int, source: Source) -> Shape:
    """A shape in its body's axes."""
    if model.geom_type[g] != _MESH:
        kind = _KINDS[int(model.geom_type[g])]
        return Shape(kind, model.geom_pos[g], model.geom_quat[g], model.geom_size[g])
    vertices = hull_vertices(model, int(model.geom_dataid[g]))
    fitted = {"hull": as_hull, "capsule": as_capsule, "sphere": as_sphere}[source](vertices)
    return fitted.moved(model.geom_pos[g], model.geom_quat[g])


def _nothing(model: mujoco.MjModel, collides: np.ndarray) -> str:
    if (model.geom_type[collides] == _MESH).any():
        return 'only meshes have a contype; geometry="hull" takes their convex hulls'
    return "no sphere, capsule, box, cylinder, ellipsoid or plane has a contype"


def _names(model: mujoco.MjModel, chosen: list[int]) -> tuple[str, ...]:
    """Their own names, else that of the body with a number."""
    counts: dict[int, int] = {}
    names = []
    for g in chosen:
        body = int(model.geom_bodyid[g])
        number = counts[body] = counts.get(body, -1) + 1
        names.append(model.geom(g).name or f"{model.body(body).name}/{number}")
    return tuple(names)


def _lost(model: mujoco.MjModel, collides: np.ndarray, known: set[int]) -> tuple[str, ...]:
    """Shapes that collide and are of no kind here."""
    lost = [g for g in collides if int(model.geom_type[g]) not in known]
    kinds = {int(model.geom_type[g]): mujoco.mjtGeom(model.geom_type[g]).name[7:].lower() for g in lost}
    return tuple(
        f"{kind} shapes of bodies "
        + ", ".join(sorted({model.body(model.geom_bodyid[g]).name for g in lost if model.geom_type[g] == number}))
        for number, kind in kinds.items()
    )


def _filtered(
    model: mujoco.MjModel, chosen: list[int], names: tuple[str, ...]
) -> tuple[list[tuple[int, int]], list[DroppedPair]]:
    """MuJoCo's filter: same weld, parent and child, contype and conaffinity, <exclude>; <pair> overrides them."""
    forced = {frozenset(map(int, x)) for x in zip(model.pair_geom1, model.pair_geom2, strict=True)}
    excluded = {frozenset((int(s) >> 16, int(s) & 0xFFFF)) for s in model.exclude_signature}
    kept, dropped = [], []
    for i, j in combinations(range(len(chosen)), 2):
        bodies = [int(model.geom_bodyid[chosen[k]]) for k in (i, j)]
        welds = [int(model.body_weldid[body]) for body in bodies]
        fixed = welds[0] == welds[1]
        if fixed and (welds[0] or bodies[0] == bodies[1]):
            continue
        reason = None if frozenset((chosen[i], chosen[j])) in forced else _reason(model, chosen[i], chosen[j], excluded)
        if not fixed and reason is None:
            kept.append((i, j))
        elif not fixed or reason is None:  # both on the world, as long as no root is freed
            dropped.append(DroppedPair(names[i], names[j], reason or FIXED))
    return kept, dropped


def _reason(model: mujoco.MjModel, a: int, b: int, excluded: set[frozenset[int]]) -> str | None:
    """Why MuJoCo leaves out a pair of geoms, if it does."""
    bodies = int(model.geom_bodyid[a]), int(model.geom_bodyid[b])
    welds = model.body_weldid[bodies[0]], model.body_weldid[bodies[1]]
    above = [model.body_weldid[model.body_parentid[w]] for w in welds]
    # Not of what is fixed to the world: MuJoCo keeps a base and its first link.
    if welds[0] != 0 and welds[1] != 0 and (welds[0] == above[1] or welds[1] == above[0]):
        return "parent and child"
    if frozenset(bodies) in excluded:
        return "excluded by the model"
    kinds, affinities = model.geom_contype, model.geom_conaffinity
    if not (kinds[a] & affinities[b] or kinds[b] & affinities[a]):
        return "contype and conaffinity"
    if model.geom_type[a] == model.geom_type[b] == mujoco.mjtGeom.mjGEOM_PLANE:
        return "two planes"
    return None


def _sampled(
    model: mujoco.MjModel,
    chosen: list[int],
    names: tuple[str, ...],
    pairs: list[tuple[int, int]],
    samples: np.ndarray,
) -> tuple[list[tuple[int, int]], list[DroppedPair]]:
    """Leave out pairs that touch in every sample, never come near, or are always as near: no limit changes these."""
    if not pairs:
        return pairs, []
    near, touching, change = _counts(model, chosen, pairs, samples)
    anywhere = np.array([_put_anywhere(model, chosen, pair) for pair in pairs])
    never = _never_near(model, chosen, pairs, (near == 0) & ~anywhere, samples)
    kept, dropped = [], []
    for k, pair in enumerate(pairs):
        reason = None
        if touching[k] == len(samples):
            reason = f"{ALWAYS} of {len(samples)} samples"
        elif near[k] == len(samples) and change[k] < SAME:
            reason = f"{CONSTANT} in all of {len(samples)} samples"
        elif never[k]:
            reason = f"{NEVER} than {2 * SAMPLING_GAP} m in {len(samples)} samples, nor on the way down from them"
        if reason is None or anywhere[k]:
            kept.append(pair)
        else:
            dropped.append(DroppedPair(names[pair[0]], names[pair[1]], reason))
    return kept, dropped


def _never_near(
    model: mujoco.MjModel, chosen: list[int], pairs: list[tuple[int, int]], asked: np.ndarray, samples: np.ndarray
) -> np.ndarray:
    """Which of the pairs `asked` (p,), which are near in no sample, get near nowhere."""
    far, bodies = _far_joints(model), [int(model.geom_bodyid[g]) for g in chosen]
    # Of what goes far without the other samples say nothing.
    never = asked & np.array([far[bodies[i]] == far[bodies[j]] for i, j in pairs])
    geoms = [(chosen[pairs[k][0]], chosen[pairs[k][1]]) for k in np.flatnonzero(never)]
    never[never] = nearest_approaches(model, geoms, samples, 2 * SAMPLING_GAP) >= 2 * SAMPLING_GAP
    return never


def _put_anywhere(model: mujoco.MjModel, chosen: list[int], pair: tuple[int, int]) -> bool:
    """Whether one of a pair is on a mocap body, which is put anywhere later on."""
    return any(model.body_mocapid[model.body_rootid[model.geom_bodyid[chosen[i]]]] >= 0 for i in pair)


def _far_joints(model: mujoco.MjModel) -> list[frozenset[int]]:
    """Of each body, the joints above it that go far: samples are within a metre of home, or too far apart."""
    free, slide = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)
    kinds, (lower, upper) = model.jnt_type, model.jnt_range.T
    far = (kinds == free) | ((kinds == slide) & ~(model.jnt_limited.astype(bool) & (upper - lower <= FAR)))
    found = [frozenset[int]()]
    for body in range(1, model.nbody):
        first = model.body_jntadr[body]
        own = (j for j in range(first, first + model.body_jntnum[body]) if far[j])
        found.append(found[model.body_parentid[body]].union(own))
    return found


def _counts(
    model: mujoco.MjModel, chosen: list[int], pairs: list[tuple[int, int]], samples: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In how many samples (n, nq) each pair is near, in how many it touches, and by how much its distance changes [m].

    By MuJoCo's collision detection; the change is of the samples in which it is near.
    """
    model = copy.copy(model)  # it may be the caller's own
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_OVERRIDE
    model.opt.disableflags &= ~(mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    model.opt.o_margin = 2 * SAMPLING_GAP
    data = mujoco.MjData(model)
    row = np.full((model.ngeom, model.ngeom), len(pairs))
    for k, (i, j) in enumerate(pairs):
        row[chosen[i], chosen[j]] = row[chosen[j], chosen[i]] = k
    near, touching = np.zeros((2, len(pairs) + 1), int)
    least, most = np.full(len(pairs) + 1, np.inf), np.full(len(pairs) + 1, -np.inf)
    for q in samples:
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        found = row[data.contact.geom[:, 0], data.contact.geom[:, 1]]
        near[np.unique(found)] += 1
        touching[np.unique(found[data.contact.dist < 0])] += 1
        distance = np.full(len(pairs) + 1, np.inf)
        np.minimum.at(distance, found, data.contact.dist)
        least, most = np.minimum(least, distance), np.where(np.isfinite(distance), np.maximum(most, distance), most)
    return near[:-1], touching[:-1], np.where(near > 0, most - least, 0)[:-1]


def _near_home(
    model: mujoco.MjModel, chosen: list[int], shapes: list[Shape], pairs: list[tuple[int, int]], home: np.ndarray
) -> Iterator[tuple[int, int, float]]:
    """The pairs that are near at home, and their distances [m], by MuJoCo: exact where they are apart."""
    model = copy.copy(model)
    for g, shape in zip(chosen, shapes, strict=True):
        if model.geom_type[g] == _MESH and shape.kind != "hull":
            model.geom_type[g] = next(number for number, kind in _KINDS.items() if kind == shape.kind)
            model.geom_pos[g], model.geom_quat[g] = shape.position, shape.quaternion
            model.geom_size[g] = shape.size
    data = mujoco.MjData(model)
    data.qpos[:] = home
    mujoco.mj_kinematics(model, data)
    for i, j in pairs:
        distance = mujoco.mj_geomDistance(model, data, chosen[i], chosen[j], NEAR_HOME, None)
        if distance < NEAR_HOME:
            yield i, j, float(distance)
