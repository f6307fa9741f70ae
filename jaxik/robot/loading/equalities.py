"""Read a compiled model's equality constraints and the tendons that they may couple."""

import mujoco
import numpy as np

from jaxik.kinematics.equality import Equality, Tendon
from jaxik.kinematics.frames import Frame

_FRAME_KINDS = {int(mujoco.mjtObj.mjOBJ_BODY): "body", int(mujoco.mjtObj.mjOBJ_SITE): "site"}


def read_tendons(model: mujoco.MjModel) -> tuple[tuple[Tendon, ...], np.ndarray]:
    """The tendons, and the weights (nweight,) of all their joint coordinates and distances between sites."""
    wrap = mujoco.mjtWrap
    tendons: list[Tendon] = []
    weights: list[float] = []
    for i in range(model.ntendon):
        path = range(model.tendon_adr[i], model.tendon_adr[i] + model.tendon_num[i])
        kinds = [wrap(int(model.wrap_type[w])) for w in path]
        objects = [int(model.wrap_objid[w]) for w in path]
        start = len(weights)
        joints: list[int] = []
        spans: list[tuple[int, int]] = []
        divisor = 1.0
        for place, (w, kind) in enumerate(zip(path, kinds, strict=True)):
            if kind == wrap.mjWRAP_JOINT:
                joints.append(objects[place])
                weights.append(model.wrap_prm[w])
            elif kind == wrap.mjWRAP_PULLEY:
                divisor = model.wrap_prm[w]
            elif kinds[place : place + 2] == [wrap.mjWRAP_SITE, wrap.mjWRAP_SITE]:
                spans.append((objects[place], objects[place + 1]))
                weights.append(1 / divisor)
        wraps = any(kind in (wrap.mjWRAP_SPHERE, wrap.mjWRAP_CYLINDER) for kind in kinds)
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_TENDON, i) or ""
        tendons.append(Tendon(name, start, tuple(joints), tuple(spans), wraps))
    return tuple(tendons), np.asarray(weights)


def read_equalities(model: mujoco.MjModel, tendons: tuple[Tendon, ...]) -> tuple[Equality, ...]:
    """The equality constraints, in the model's order."""
    return tuple(_equality(model, tendons, i) for i in range(model.neq))


def _equality(model: mujoco.MjModel, tendons: tuple[Tendon, ...], i: int) -> Equality:
    kind = mujoco.mjtEq(int(model.eq_type[i])).name.removeprefix("mjEQ_").lower()
    ends = tuple(int(e) for e in (model.eq_obj1id[i], model.eq_obj2id[i]) if e >= 0)
    frames: tuple[Frame, ...] = ()
    bodies: tuple[int, ...] = ()
    if kind in ("connect", "weld"):
        frames = tuple(Frame(_FRAME_KINDS[int(model.eq_objtype[i])], e) for e in ends)
        bodies = tuple(int(model.site_bodyid[f.index]) if f.kind == "site" else f.index for f in frames)
    elif kind == "tendon":
        sites = dict.fromkeys(site for end in ends for span in tendons[end].spans for site in span)
        frames = tuple(Frame("site", site) for site in sites)
        bodies = tuple(dict.fromkeys(int(model.site_bodyid[site]) for site in sites))
    return Equality(
        name=mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_EQUALITY, i) or "",
        index=i,
        kind=kind,
        active=bool(model.eq_active0[i]),
        frames=frames,
        members=ends if kind in ("joint", "tendon") else (),
        bodies=bodies,
    )
