"""Rebuild a `mujoco.MjModel` from an `mjx.Model`, which keeps the arrays and names of the model it was put from.

MJX has no way back to the host. The tree, joints, sites, geoms, equalities, tendons, keyframes and numerics are built
again with `MjSpec`, in the same order, and then every array that kinematics reads is copied, so it is as exact as MJX
keeps it: float32, about 1e-7 m, unless `jax_enable_x64` was set when the model was put.
Actuators, sensors, cameras, lights and the vertices of meshes are not carried over.
"""

from typing import Any

import mujoco
import numpy as np

from jaxik.core.errors import LoadError
from jaxik.robot.loading.repair import quiet_mujoco

_COPIED = (
    *("body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "body_subtreemass", "body_inertia"),
    # The flags by which C kinematics skips offsets that are zero: those of the placeholders must not survive.
    *("body_sameframe", "body_simple", "site_sameframe", "geom_sameframe", "geom_size", "dof_simplenum"),
    *("jnt_pos", "jnt_axis", "jnt_range", "jnt_limited", "jnt_margin", "qpos0", "qpos_spring"),
    *("dof_armature", "dof_damping", "dof_frictionloss", "site_pos", "site_quat", "site_size"),
    *("geom_pos", "geom_quat", "geom_rbound", "geom_margin", "key_qpos", "key_mpos", "key_mquat", "key_time"),
    *("eq_type", "eq_obj1id", "eq_obj2id", "eq_objtype", "eq_active0", "eq_data", "eq_solref", "eq_solimp"),
    *("tendon_range", "tendon_limited", "tendon_length0", "tendon_margin", "wrap_prm"),
)
_SHAPES_WITHOUT_DATA = (mujoco.mjtGeom.mjGEOM_MESH, mujoco.mjtGeom.mjGEOM_HFIELD, mujoco.mjtGeom.mjGEOM_SDF)
_MADE_UP = "\x01"  # begins no name of a model file: XML cannot hold it
_TINY = 1e-9  # a size that MuJoCo's compiler accepts where the true one is zero; that is copied afterwards


def is_mjx_model(source: Any) -> bool:
    """Whether this is an `mjx.Model`, told by its class, since importing MJX prints where warp is missing."""
    return type(source).__module__.startswith("mujoco.mjx") and type(source).__name__.startswith("Model")


def rebuild_model(source: Any) -> tuple[mujoco.MjModel, tuple[str, ...]]:
    """Rebuild the host model.

    Args:
        source: an `mjx.Model` without batch axes.

    Returns:
        A model equal to the original in all that kinematics reads, to the precision of the arrays given, and what was
        left out.

    Raises:
        LoadError: the model's arrays have a batch axis, or are being traced.
    """
    if source.body_pos.ndim != 2:
        raise LoadError(
            f"this mjx.Model has a batch axis (body_pos has shape {tuple(source.body_pos.shape)}, not (nbody, 3)); "
            "load one of its models and give the batch to the leaves of the robot"
        )
    try:
        arrays = {name: np.asarray(getattr(source, name)) for name in (*_COPIED, "wrap_type")}
    except Exception as error:
        raise LoadError(f"this mjx.Model cannot be read on the host; load the robot outside of jit: {error}") from error
    spec = mujoco.MjSpec()
    spec.modelname = _name(source, 0)
    spec.compiler.degree = False
    spec.compiler.autolimits = False
    names = {kind: _names(source, kind) for kind in ("body", "jnt", "site", "geom", "tendon")}
    placeholders = _add_tree(spec, source, arrays, names)
    _add_tendons(spec, source, arrays, names)
    _add_equalities(spec, source, arrays, names)
    for i, address in enumerate(source.name_keyadr):
        spec.add_key(name=_name(source, address), qpos=arrays["key_qpos"][i])
    for address, start, size in zip(source.name_numericadr, source.numeric_adr, _numeric_sizes(source), strict=True):
        data = np.asarray(source.numeric_data)[start : start + size]
        spec.add_numeric(name=_name(source, address), data=data, size=int(size))

    with quiet_mujoco():
        model = spec.compile()
    for name in _COPIED:
        getattr(model, name)[...] = arrays[name].reshape(getattr(model, name).shape)
    _blank_made_up_names(model)
    return model, (f"shapes of {placeholders} meshes, height fields or SDFs of the mjx.Model",) if placeholders else ()


def _name(source: Any, address: int) -> str:
    return bytes(source.names[address : source.names.index(b"\0", address)]).decode()


def _names(source: Any, kind: str) -> list[str]:
    """Names of all elements of a kind; one that has none gets a made-up name, so that others can refer to it."""
    addresses = getattr(source, f"name_{kind}adr")
    return [_name(source, address) or f"{_MADE_UP}{kind}{i}" for i, address in enumerate(addresses)]


def _numeric_sizes(source: Any) -> np.ndarray:
    return np.diff(np.append(np.asarray(source.numeric_adr), len(source.numeric_data))).astype(int)


def _add_tree(spec: mujoco.MjSpec, source: Any, arrays: dict[str, np.ndarray], names: dict[str, list[str]]) -> int:
    """Add bodies, joints, sites and geoms; return how many geoms have a shape that the model does not carry."""
    bodies = [spec.worldbody]
    for i in range(1, source.nbody):
        body = bodies[int(source.body_parentid[i])].add_body(
            name=names["body"][i],
            pos=arrays["body_pos"][i],
            quat=arrays["body_quat"][i],
            mocap=bool(source.body_mocapid[i] >= 0),
            mass=1.0,
            ipos=arrays["body_ipos"][i],
            inertia=[1.0, 1.0, 1.0],
        )
        body.explicitinertial = True
        bodies.append(body)
    for i in range(source.njnt):
        bodies[int(source.jnt_bodyid[i])].add_joint(
            name=names["jnt"][i], type=mujoco.mjtJoint(int(source.jnt_type[i])), axis=arrays["jnt_axis"][i]
        )
    for i in range(source.nsite):
        bodies[int(source.site_bodyid[i])].add_site(name=names["site"][i])
    placeholders = 0
    for i in range(source.ngeom):
        shape = mujoco.mjtGeom(int(source.geom_type[i]))
        size = np.maximum(arrays["geom_size"][i], _TINY)
        if shape in _SHAPES_WITHOUT_DATA:
            placeholders += 1
            shape = mujoco.mjtGeom.mjGEOM_BOX
        bodies[int(source.geom_bodyid[i])].add_geom(name=names["geom"][i], type=shape, size=size)
    return placeholders


def _add_tendons(spec: mujoco.MjSpec, source: Any, arrays: dict[str, np.ndarray], names: dict[str, list[str]]) -> None:
    wrap = mujoco.mjtWrap
    for i in range(source.ntendon):
        tendon = spec.add_tendon(name=names["tendon"][i])
        start = int(source.tendon_adr[i])
        for w in range(start, start + int(source.tendon_num[i])):
            kind, target, value = wrap(int(arrays["wrap_type"][w])), int(source.wrap_objid[w]), arrays["wrap_prm"][w]
            if kind == wrap.mjWRAP_JOINT:
                tendon.wrap_joint(names["jnt"][target], float(value))
            elif kind == wrap.mjWRAP_PULLEY:
                tendon.wrap_pulley(float(value))
            elif kind == wrap.mjWRAP_SITE:
                tendon.wrap_site(names["site"][target])
            else:
                tendon.wrap_geom(names["geom"][target], names["site"][int(value)] if value >= 0 else "")


def _add_equalities(
    spec: mujoco.MjSpec, source: Any, arrays: dict[str, np.ndarray], names: dict[str, list[str]]
) -> None:
    by_type = {mujoco.mjtEq.mjEQ_JOINT: "jnt", mujoco.mjtEq.mjEQ_TENDON: "tendon"}
    by_object = {mujoco.mjtObj.mjOBJ_BODY: "body", mujoco.mjtObj.mjOBJ_SITE: "site"}
    for i, address in enumerate(source.name_eqadr):
        objtype = mujoco.mjtObj(int(arrays["eq_objtype"][i]))
        kind = mujoco.mjtEq(int(arrays["eq_type"][i]))
        bound = by_type.get(kind) or by_object.get(objtype)
        if bound is None:
            raise LoadError(f"equality {i} of this mjx.Model is of the kind {kind.name}; load the model from its file")
        known, second = names[bound], int(arrays["eq_obj2id"][i])
        spec.add_equality(
            name=_name(source, address),
            type=kind,
            objtype=objtype,
            name1=known[int(arrays["eq_obj1id"][i])],
            name2=known[second] if second >= 0 else "",
            data=arrays["eq_data"][i],
        )


def _blank_made_up_names(model: mujoco.MjModel) -> None:
    """Take the names away that were needed only so that equalities and tendons could refer to their parts."""
    for kind in ("body", "jnt", "site", "geom", "tendon"):
        addresses = getattr(model, f"name_{kind}adr")
        for i, address in enumerate(addresses):
            if model.names[address : address + 1] == _MADE_UP.encode():
                addresses[i] = model.names.index(b"\0", address)
