"""From whatever a user has to a compiled `mujoco.MjModel`."""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import mujoco
import numpy as np

from jaxik.core.errors import JaxikError, LoadError
from jaxik.robot.loading.catalog import bundled_robots, find_by_name, main_model
from jaxik.robot.loading.mjcf import read_mjcf
from jaxik.robot.loading.mjx import is_mjx_model, rebuild_model
from jaxik.robot.loading.repair import Reduced, compile_kinematics
from jaxik.robot.loading.urdf import read_urdf

__all__ = ["Source", "bundled_robots", "read_source"]

_VELOCITY_LIMIT = "velocity_limit:"  # a <numeric> of this name and a joint's gives its limit: MJCF has no field for it


@dataclasses.dataclass(frozen=True)
class Source:
    """A compiled model and what a compiled model cannot hold.

    Attributes:
        model: the model; the caller's own object where an `MjModel` was given.
        name: the bundled name, the file's stem, or the name written in the model; "model" where there is none.
        velocity_limits: joint name to rad/s or m/s; a joint that is absent has none known.
        dropped: what was left out or repaired so that the model loads, a sentence each.
        bare: names of bodies whose shapes were all left out.
        format: "mjx" has no meshes; of a "urdf" MuJoCo keeps <visual> and <collision> shapes apart by their group.
    """

    model: mujoco.MjModel
    name: str
    velocity_limits: dict[str, float]
    dropped: tuple[str, ...]
    bare: tuple[str, ...] = ()
    format: Literal["mujoco", "urdf", "mjx"] = "mujoco"


def read_source(source: Any) -> Source:
    """Read a robot model.

    Meshes, textures, included files and inertias that are missing or impossible do not stop it: kinematics need none
    of them. What was left out is in `Source.dropped`.

    Args:
        source: a bundled name, a name of a Menagerie folder or of `robot_descriptions`; the path of an MJCF or URDF
            file; XML text of either; a `mujoco.MjModel`, `mujoco.MjSpec` (not modified) or `mjx.Model` (unbatched).

    Raises:
        UnknownNameError: no robot has this name.
        LoadError: no such file, malformed XML, or a model that MuJoCo refuses; with its message and the path.
    """
    if isinstance(source, mujoco.MjModel):
        return _source(Reduced(source), _model_name(source))
    if isinstance(source, mujoco.MjSpec):
        name = _given(source.modelname)
        return _source(compile_kinematics(source, name), name)
    if is_mjx_model(source):
        model, dropped = rebuild_model(source)
        return _source(Reduced(model, dropped), _model_name(model), format="mjx")
    if not isinstance(source, (str, os.PathLike)):
        raise JaxikError(
            f"cannot load a robot from {type(source).__name__}; give a name, a path, XML text, a mujoco.MjModel, "
            "a mujoco.MjSpec or an mjx.Model"
        )
    text = os.fspath(source)
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return _read_xml(text.lstrip("\ufeff \t\r\n"), None)
    path = _path(text, named=isinstance(source, str))
    return _read_xml(path.read_text(encoding="utf-8-sig", errors="replace"), path)


def _path(text: str, named: bool) -> Path:
    """The file that a name or a path stands for; a file of the working folder does not hide a bundled name."""
    path = Path(text).expanduser()
    looks_like_path = not named or path.suffix.lower() in (".xml", ".urdf", ".mjcf", ".xacro") or path.is_absolute()
    if not looks_like_path and not (os.sep in text and path.exists()):
        return find_by_name(text)
    if path.is_dir():
        return main_model(path)
    if not path.is_file():
        raise LoadError(f"{path}: no such file" + ("" if path.is_absolute() else f" in {Path.cwd()}"))
    return path


def _read_xml(text: str, path: Path | None) -> Source:
    where = "XML text" if path is None else str(path)
    root = re.search(r"<([A-Za-z_][\w:.-]*)", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    kind = root.group(1) if root else "no element"
    if kind == "robot":
        folder = Path.cwd() if path is None else path.parent.absolute()
        urdf = read_urdf(text, folder, where)
        compiled = compile_kinematics(urdf.spec, where)
        for name, position in urdf.locked.items():
            joint = compiled.model.joint(name).id
            compiled.model.jnt_limited[joint], compiled.model.jnt_range[joint] = 1, position
        name = path.stem if path is not None else _given(urdf.spec.modelname)
        reduced = Reduced(compiled.model, urdf.dropped + compiled.dropped, urdf.bare + compiled.bare)
        return _source(reduced, name, urdf.velocity_limits, "urdf")
    if kind == "mujoco":
        spec, missing = read_mjcf(text if path is None else path, where)
        compiled = compile_kinematics(spec, " without ".join((where, *missing)))
        if missing and compiled.model.njnt == 0:
            raise LoadError(f"{where}: no joint is left without {', '.join(missing)}; put the missing files in place")
        name = path.stem if path is not None else _given(spec.modelname)
        return _source(Reduced(compiled.model, missing + compiled.dropped, compiled.bare), name)
    raise LoadError(f"{where}: the root element is {kind}; it has to be <mujoco> (MJCF) or <robot> (URDF)")


def _source(
    reduced: Reduced,
    name: str,
    limits: Mapping[str, float] = MappingProxyType({}),
    format: Literal["mujoco", "urdf", "mjx"] = "mujoco",
) -> Source:
    velocity_limits = {**_numeric_velocity_limits(reduced.model), **limits}
    return Source(reduced.model, name, velocity_limits, reduced.dropped, reduced.bare, format)


def _model_name(model: mujoco.MjModel) -> str:
    return _given(model.names[: model.names.index(b"\0")].decode())


def _given(name: str) -> str:
    """The name that somebody gave a model: MuJoCo's own for one without is none."""
    return "model" if name in ("", "MuJoCo Model") else name


def _numeric_velocity_limits(model: mujoco.MjModel) -> dict[str, float]:
    joints = {model.joint(i).name for i in range(model.njnt)}
    limits = {}
    for i in range(model.nnumeric):
        numeric = model.numeric(i)
        joint = numeric.name.removeprefix(_VELOCITY_LIMIT)
        if joint == numeric.name:
            continue
        if joint not in joints:
            raise LoadError(f"numeric {numeric.name!r} gives the velocity limit of a joint that does not exist")
        limits[joint] = float(np.ravel(numeric.data)[0])
    return limits
