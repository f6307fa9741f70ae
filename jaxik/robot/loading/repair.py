"""Compile an `MjSpec` whose assets or inertias are broken, by leaving out what kinematics does not need.

Reductions are tried in turn, the mildest first, each on top of the ones before it; the first model that compiles is
taken. A model that compiles as it is, is not touched.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np

from jaxik.core.errors import LoadError
from jaxik.robot.loading.visual import SHOWN

# Enough for MuJoCo (it asks for more than 1e-15), and too little to move a centre of mass: 1e-9 kg beside 1 kg at 1 m
# moves it by a nanometre.
_BOUND = 1e-9
# How many of a shape's sizes have to be positive; one less where its length comes from two end points.
_SIZES = {
    mujoco.mjtGeom.mjGEOM_SPHERE: 1,
    mujoco.mjtGeom.mjGEOM_CAPSULE: 2,
    mujoco.mjtGeom.mjGEOM_CYLINDER: 2,
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: 3,
    mujoco.mjtGeom.mjGEOM_BOX: 3,
}


class Reduced(NamedTuple):
    """A model that compiled.

    Attributes:
        model: the model.
        dropped: one sentence for each kind of thing that was left out or repaired.
        bare: names of bodies that lost their meshes and have no other shape to be seen.
    """

    model: mujoco.MjModel
    dropped: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


def compile_kinematics(spec: mujoco.MjSpec, where: str) -> Reduced:
    """Compile a spec, reduced as little as possible.

    Args:
        spec: the specification; it is not modified.
        where: what the error message calls the model (a path or a name).

    Raises:
        LoadError: the model does not compile even when reduced to its kinematics; with MuJoCo's message.
    """
    reductions: tuple[Callable[[mujoco.MjSpec], list[str]], ...] = (
        lambda _: [],
        _repair_inertias,
        _drop_empty_shapes,
        lambda reduced: _drop_assets(reduced, _is_missing),
        lambda reduced: _drop_assets(reduced, lambda *_: True),
        _drop_dynamics,
    )
    message = ""
    for count in range(1, len(reductions) + 1):
        reduced = spec.copy()
        dropped = [sentence for reduction in reductions[:count] for sentence in reduction(reduced)]
        try:
            with quiet_mujoco():
                model = reduced.compile()
        except ValueError as error:
            message = str(error)
            continue
        bare: list[str] = []
        if count > 1:
            bare = _bare(spec, model)
            moved = range(1, model.nbody)
            light = [model.body(i).name for i in moved if model.body_jntnum[i] and model.body_mass[i] == _BOUND]
            dropped += _sentence("bodies without mass", light)
        return Reduced(model, tuple(dropped), tuple(bare))
    raise LoadError(f"{where}: MuJoCo cannot compile this model: {tidy(message)}")


def _bare(spec: mujoco.MjSpec, model: mujoco.MjModel) -> list[str]:
    """Names of the bodies that lost their meshes, and have no other shape that is seen."""
    seen = set(model.geom_bodyid[np.isin(model.geom_group, SHOWN)])
    return [
        body.name
        for index, body in enumerate(spec.bodies)
        if index not in seen and any(geom.meshname and geom.group in SHOWN for geom in body.geoms)
    ]


@contextlib.contextmanager
def quiet_mujoco() -> Iterator[None]:
    """Keep MuJoCo's warnings off the terminal and out of the MUJOCO_LOG.TXT that it writes to the working folder."""
    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(previous)


def tidy(message: str) -> str:
    """MuJoCo's error message on one line."""
    return ", ".join(line.strip() for line in message.splitlines() if line.strip())


def summarise(names: list[str]) -> str:
    """At most five names, file names without their folders, and how many more there are."""
    # Without an ending it is no file: shapes without names, and their pairs, are called "l3/0 - l5/0".
    shown = list(dict.fromkeys(Path(x).name if Path(x).suffix and "://" not in x else x for x in names))
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def _sentence(what: str, names: list[str]) -> list[str]:
    return [f"{what}: {summarise(names)}"] if names else []


def _repair_inertias(spec: mujoco.MjSpec) -> list[str]:
    """Make every inertia one that MuJoCo accepts; masses and centres of mass stay, which is all kinematics reads."""
    spec.compiler.boundmass = spec.compiler.boundinertia = _BOUND
    spec.compiler.balanceinertia = True
    repaired = []
    for body in spec.bodies[1:]:
        if not body.explicitinertial:
            continue
        moments = _principal_moments(body)
        finite = np.all(np.isfinite(moments)) and np.isfinite(body.mass)
        possible = finite and body.mass >= 0 and moments[0] >= 0 and moments[0] + moments[1] >= moments[2] * (1 - 1e-6)
        if possible:
            continue
        repaired.append(body.name)
        body.fullinertia = [np.nan, 0, 0, 0, 0, 0]
        body.inertia = [max(float(np.abs(moments).max()), _BOUND) if finite else _BOUND] * 3
        body.mass = body.mass if np.isfinite(body.mass) and body.mass > 0 else _BOUND
    return _sentence("impossible inertias of bodies", repaired)


def _principal_moments(body: mujoco.MjsBody) -> np.ndarray:
    if np.isnan(body.fullinertia[0]):
        return np.sort(body.inertia)
    xx, yy, zz, xy, xz, yz = body.fullinertia
    if not np.all(np.isfinite(body.fullinertia)):
        return np.full(3, np.nan)
    return np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _drop_empty_shapes(spec: mujoco.MjSpec) -> list[str]:
    """Delete primitive shapes of no size, which URDF files hold as placeholders and MuJoCo refuses."""
    empty = []
    for geom in spec.geoms:
        used = 0 if geom.meshname else _SIZES.get(geom.type, 0)
        if any(size <= 0 for size in geom.size[: used - 1 if np.isfinite(geom.fromto[0]) else used]):
            empty.append(geom)
    bodies = [geom.parent.name for geom in empty]
    return _sentence("shapes of no size, of bodies", bodies) + _drop_geoms(spec, empty)


def _is_missing(spec: mujoco.MjSpec, folder: str, file: str) -> bool:
    """Whether an asset's file is neither beside the model nor among the assets given with the spec."""
    if not file or file in spec.assets or Path(file).name in spec.assets:
        return False
    name = Path(file).name if spec.strippath else file
    return not (Path(spec.modelfiledir) / folder / name).is_file()


def _drop_assets(spec: mujoco.MjSpec, unwanted: Callable[[mujoco.MjSpec, str, str], bool]) -> list[str]:
    """Delete the assets whose file is unwanted, and all that refers to them."""
    meshes = [m for m in spec.meshes if m.file and unwanted(spec, spec.meshdir, m.file)]
    fields = [h for h in spec.hfields if h.file and unwanted(spec, spec.meshdir, h.file)]
    skins = [s for s in spec.skins if s.file and unwanted(spec, spec.meshdir, s.file)]
    textures = [
        t for t in spec.textures if any(f and unwanted(spec, spec.texturedir, f) for f in (t.file, *t.cubefiles))
    ]
    dropped = [
        *_sentence("meshes", [m.file for m in meshes]),
        *_sentence("height fields", [h.file for h in fields]),
        *_sentence("skins", [s.file for s in skins]),
        *_sentence("textures", [f for t in textures for f in (t.file, *t.cubefiles) if f]),
    ]
    lost_meshes, lost_fields = {_asset_name(m) for m in meshes}, {_asset_name(h) for h in fields}
    dropped += _drop_geoms(spec, [g for g in spec.geoms if g.meshname in lost_meshes or g.hfieldname in lost_fields])

    painted = {_asset_name(t) for t in textures}
    known = set()
    for material in list(spec.materials):
        if painted.intersection(material.textures):
            spec.delete(material)
        else:
            known.add(material.name)
    for owner in (*spec.geoms, *spec.sites, *spec.skins, *spec.tendons, *spec.flexes):
        if owner.material and owner.material not in known:
            owner.material = ""
    for asset in (*meshes, *fields, *skins, *textures):
        spec.delete(asset)
    return dropped


def _asset_name(asset: mujoco.MjsMesh | mujoco.MjsHField | mujoco.MjsTexture) -> str:
    return asset.name or Path(asset.file).stem


def _drop_geoms(spec: mujoco.MjSpec, geoms: list[mujoco.MjsGeom]) -> list[str]:
    """Delete geoms with the tendons, pairs and sensors that name them; tell which bodies lose mass."""
    names = {g.name for g in geoms if g.name}
    from_geoms = spec.compiler.inertiafromgeom
    light = []
    for geom in geoms:
        weightless = geom.mass == 0 or (np.isnan(geom.mass) and geom.density == 0)
        computed = from_geoms == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE or (
            from_geoms == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_AUTO and not geom.parent.explicitinertial
        )
        if computed and not weightless and geom.parent.name != "world":
            light.append(geom.parent.name)
    _drop_tendons(spec, names)
    for pair in [p for p in spec.pairs if names & {p.geomname1, p.geomname2}]:
        spec.delete(pair)
    for sensor in [s for s in spec.sensors if names & {s.objname, s.refname}]:
        spec.delete(sensor)
    for geom in geoms:
        spec.delete(geom)
    return _sentence("mass that came from these shapes, of bodies", light)


def _drop_tendons(spec: mujoco.MjSpec, geom_names: set[str]) -> None:
    """Delete the tendons that wrap around one of the geoms, and the equalities between tendons that lose one."""
    wraps = (mujoco.mjtWrap.mjWRAP_SPHERE, mujoco.mjtWrap.mjWRAP_CYLINDER)
    cut = [t for t in spec.tendons if any(w.type in wraps and w.target.name in geom_names for w in t.path)]
    cut_names = {t.name for t in cut}
    for equality in list(spec.equalities):
        if equality.type == mujoco.mjtEq.mjEQ_TENDON and cut_names & {equality.name1, equality.name2}:
            spec.delete(equality)
    for tendon in cut:
        spec.delete(tendon)


def _drop_dynamics(spec: mujoco.MjSpec) -> list[str]:
    """Delete what moves or measures the robot: it may refer to something that a reduction took away."""
    dropped = []
    for what, elements in (
        ("actuators", spec.actuators),
        ("sensors", spec.sensors),
        ("contact pairs", spec.pairs),
        ("contact exclusions", spec.excludes),
        ("skins", spec.skins),
        ("flexes", spec.flexes),
    ):
        elements = list(elements)
        if elements:
            dropped.append(f"{len(elements)} {what}")
        for element in elements:
            spec.delete(element)
    for key in spec.keys:
        key.act, key.ctrl = [], []
    return dropped
