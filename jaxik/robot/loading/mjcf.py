"""Read MJCF text into an `MjSpec`, also where an included file or an attached model is missing."""

import xml.etree.ElementTree as ET
from pathlib import Path

import mujoco

from jaxik.core.errors import LoadError
from jaxik.robot.loading.repair import quiet_mujoco, summarise, tidy


def read_mjcf(source: str | Path, where: str) -> tuple[mujoco.MjSpec, tuple[str, ...]]:
    """Parse MJCF; assets are not opened yet.

    Args:
        source: a path, or the XML text itself (whose relative paths start at the working folder).
        where: what the error message calls the model.

    Returns:
        The specification, and what was left out.

    Raises:
        LoadError: the text is no MJCF that MuJoCo reads; with MuJoCo's message.
    """
    try:
        with quiet_mujoco():
            if isinstance(source, Path):
                return mujoco.MjSpec.from_file(str(source)), ()
            return mujoco.MjSpec.from_string(source), ()
    except ValueError as error:
        message = str(error)
    if "opening file" not in message.lower():
        raise LoadError(f"{where}: {tidy(message)}")

    folder = source.parent.absolute() if isinstance(source, Path) else Path.cwd()
    missing: list[str] = []
    try:
        root = ET.fromstring(source.read_bytes() if isinstance(source, Path) else source)
        _expand_includes(root, folder, folder, missing)
        _drop_attached(root, folder, missing)
        with quiet_mujoco():
            spec = mujoco.MjSpec.from_string(ET.tostring(root, encoding="unicode"))
    except (ET.ParseError, ValueError) as error:
        lost = f" (left out, not found: {summarise(missing)})" if missing else ""
        raise LoadError(f"{where}: {tidy(str(error))}{lost}") from error
    spec.modelfiledir = str(folder)
    return spec, (f"included files: {summarise(missing)}",)


def _expand_includes(parent: ET.Element, top: Path, here: Path, missing: list[str]) -> None:
    """Put the children of each included file in the place of its `<include>`, and nothing where it is missing."""
    children: list[ET.Element] = []
    for child in parent:
        if child.tag != "include":
            _expand_includes(child, top, here, missing)
            children.append(child)
            continue
        name = child.get("file", "")
        found = next((folder / name for folder in (here, top) if (folder / name).is_file()), None)
        if found is None:
            missing.append(name)
            continue
        included = ET.fromstring(found.read_bytes())
        _expand_includes(included, top, found.parent, missing)
        children.extend(included)
    parent[:] = children


def _drop_attached(root: ET.Element, folder: Path, missing: list[str]) -> None:
    """Remove the models of `<asset>` whose file is missing, and each `<attach>` that names one."""
    gone = set()
    for asset in root.findall("asset"):
        for model in asset.findall("model"):
            file = model.get("file", "")
            if not (folder / file).is_file():
                missing.append(file)
                gone.add(model.get("name") or Path(file).stem)
                asset.remove(model)
    for parent in root.iter():
        for attach in parent.findall("attach"):
            if attach.get("model") in gone:
                parent.remove(attach)
