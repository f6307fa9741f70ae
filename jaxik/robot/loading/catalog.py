"""Robots known by a name: bundled files, a MuJoCo Menagerie folder, the `robot_descriptions` package."""

import importlib
import importlib.util
import os
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from jaxik.core.errors import LoadError, UnknownNameError, near_names, unknown_name

_BUNDLED = Path(__file__).parents[1] / "bundled"
_DOFS = {"hinge": 1, "slide": 1, "ball": 3, "free": 6}


def bundled_robots() -> tuple[str, ...]:
    """Names of the robots that come with jaxik."""
    return tuple(sorted(file.stem for file in _BUNDLED.glob("*.xml")))


def bundled_meshes(name: str) -> Path | None:
    """The file of a bundled arm's simplified surfaces, where it has one."""
    file = _BUNDLED / "meshes" / f"{name}.npz"
    return file if file.is_file() else None


class Outline(NamedTuple):
    """What a line about a bundled robot says.

    Attributes:
        nv: degrees of freedom.
        sites: names, in the order of the model.
    """

    nv: int
    sites: tuple[str, ...]


def bundled_outline(name: str) -> Outline:
    """Count and list what a bundled robot has, from its XML alone.

    Compiling all of them takes 2 s with the imports. Reading suffices as bundled files have no includes or replicates,
    and defaults for geoms alone.
    """
    world = ElementTree.parse(_BUNDLED / f"{name}.xml").find("worldbody")
    assert world is not None
    kinds = [joint.get("type", "hinge") for joint in world.iter("joint")] + ["free" for _ in world.iter("freejoint")]
    bodies = (world, *world.iter("body"))  # MuJoCo's order too: bodies depth first, each with its sites together
    sites = tuple(site.get("name", "") for body in bodies for site in body.findall("site"))
    return Outline(sum(_DOFS[kind] for kind in kinds), sites)


def find_by_name(name: str) -> Path:
    """Path of the model file that a name stands for.

    Args:
        name: a bundled name ("panda"); a folder of the one in the environment variable MENAGERIE_ROOT, with or without
            a file ("franka_emika_panda", "shadow_hand/left_hand"); or a module of `robot_descriptions`
            ("panda_mj_description"), which may fetch its files at first use.

    Raises:
        UnknownNameError: nothing has that name; with the near ones.
        LoadError: a folder with several models, or a description that cannot be fetched.
    """
    if name in bundled_robots():
        return _BUNDLED / f"{name}.xml"
    menagerie = _menagerie()
    if menagerie is not None:
        if (menagerie / name).is_dir():
            return main_model(menagerie / name)
        file = menagerie / f"{name}.xml"
        if file.is_file():
            return file
    if name.endswith("_description"):
        return _described(name)
    raise _unknown(name)


def main_model(folder: Path) -> Path:
    """The model of a robot's folder: the only one, or the one that the folder is named after; never a scene."""
    models = (*folder.glob("*.xml"), *folder.glob("*.urdf"))
    files = sorted(f for f in models if not f.stem.startswith(("scene", "mjx_")))
    named = [f for f in files if folder.name == f.stem or folder.name.endswith(f"_{f.stem}")]
    found = files if len(files) == 1 else named
    if len(found) != 1:
        choices = ", ".join(f"{folder.name}/{f.stem}" for f in files) or "there is no .xml or .urdf file in it"
        raise LoadError(f"{folder}: which model of this folder? {choices}")
    return found[0]


def _menagerie() -> Path | None:
    root = os.environ.get("MENAGERIE_ROOT")
    return Path(root) if root and Path(root).is_dir() else None


def _described(name: str) -> Path:
    if importlib.util.find_spec("robot_descriptions") is None:
        raise UnknownNameError(f"{_unknown(name)} (names ending in _description need: pip install robot_descriptions)")
    try:
        module = importlib.import_module(f"robot_descriptions.{name}")
    except ModuleNotFoundError as error:
        raise _unknown(name) from error
    except Exception as error:  # the package clones repositories at import, which fails in many ways
        raise LoadError(f"robot_descriptions cannot fetch {name!r}: {error}") from error
    path = getattr(module, "MJCF_PATH", None) or getattr(module, "URDF_PATH", None)
    if path is None:
        raise LoadError(f"robot_descriptions.{name} gives neither MJCF_PATH nor URDF_PATH")
    return Path(path)


def _unknown(name: str) -> UnknownNameError:
    known = list(bundled_robots())
    menagerie = _menagerie()
    if menagerie is not None:
        known += [folder.name for folder in menagerie.iterdir() if any(folder.glob("*.xml"))]
    descriptions = importlib.util.find_spec("robot_descriptions")
    for place in (descriptions.submodule_search_locations or ()) if descriptions else ():
        known += [file.stem for file in Path(place).glob("*_description.py")]
    error = unknown_name("robot", name, near_names(name, known) or bundled_robots())
    return UnknownNameError(f"{error} (or give the path of an MJCF or URDF file)")
