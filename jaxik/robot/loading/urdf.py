"""Read a URDF into an `MjSpec`, with what MuJoCo's own reader leaves out.

MuJoCo drops velocity limits and fuses fixed links into their parents, which takes tool frames away; it does not resolve
`package://`, ignores limits whose two ends are equal, gives the range of a planar joint to one of its slides, and
takes a floating joint only on the world. The XML is rewritten before MuJoCo reads it.
"""

import dataclasses
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import mujoco

from jaxik.core.errors import LoadError
from jaxik.robot.loading.repair import quiet_mujoco, summarise, tidy

_JOINT_TYPES = ("revolute", "continuous", "prismatic", "fixed", "floating", "planar")
_MESH_SUFFIXES = (".stl", ".obj", ".msh")  # what MuJoCo reads without a plugin


@dataclasses.dataclass(frozen=True)
class Urdf:
    """A URDF as MuJoCo can compile it.

    Attributes:
        spec: the specification, not compiled.
        velocity_limits: joint name to rad/s or m/s, where `<limit velocity=...>` is positive.
        locked: joint name to the one position [rad or m] that its equal lower and upper limit allow.
        dropped: what was left out, a sentence each.
        bare: names of links that had shapes and have none.
    """

    spec: mujoco.MjSpec
    velocity_limits: dict[str, float]
    locked: dict[str, float]
    dropped: tuple[str, ...]
    bare: tuple[str, ...]


def read_urdf(text: str, folder: Path, where: str) -> Urdf:
    """Parse URDF text.

    A planar joint `j` becomes the joints `j_TX`, `j_TY`, `j_RZ`, without limits (URDF defines none for it). A floating
    joint becomes a free joint where its parent is the root link, else the joints `j_TX`, `j_TY`, `j_TZ` and the ball
    joint `j_R`. A mimic joint becomes a joint equality; where it names no joint, it is dropped.

    Args:
        text: the XML.
        folder: where relative mesh paths start; `package://` is looked for beside it and beside its parents.
        where: what the error message calls the model.

    Raises:
        LoadError: malformed XML, an unknown joint type, unexpanded xacro, or whatever else MuJoCo refuses.
    """
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise LoadError(f"{where}: malformed XML: {error}") from error
    if any("xacro" in element.tag for element in root.iter()):
        raise LoadError(f"{where}: this is xacro, not URDF; expand it first: xacro robot.urdf.xacro > robot.urdf")
    joints = root.findall("joint")
    for joint in joints:
        if joint.get("type") not in _JOINT_TYPES:
            raise LoadError(
                f"{where}: joint {joint.get('name')!r} has the unknown type {joint.get('type')!r}; "
                f"URDF knows {', '.join(_JOINT_TYPES)}"
            )

    _check_tree(root, joints, where)
    dropped, bare = _resolve_meshes(root, folder)
    dropped += _drop_mimics_of_nothing(joints)
    try:
        locked, unlimited, crossed = _rewrite_limits(joints)
        velocity_limits = {name: value for joint in joints for name, value in _velocity_limits(joint).items()}
    except ValueError as error:
        raise LoadError(f"{where}: a <limit> holds no number: {error}") from error
    if crossed:
        raise LoadError(f"{where}: the lower limit is above the upper one of joints: {summarise(crossed)}")
    if unlimited:
        dropped += (f"limits without lower and upper, taken as none, of joints: {summarise(unlimited)}",)
    inner_floats = _root_floats(root, joints)
    try:
        with quiet_mujoco():
            spec = mujoco.MjSpec.from_string(ET.tostring(root, encoding="unicode"))
    except ValueError as error:
        raise LoadError(f"{where}: {tidy(str(error))}") from error
    for name, child in inner_floats:
        _add_floating(spec.body(child), name)
    return Urdf(spec, velocity_limits, locked, dropped, bare)


def _check_tree(root: ET.Element, joints: list[ET.Element], where: str) -> None:
    """Raise a LoadError for names used twice, links that hang on two joints, and a model without a root link."""
    links = [link.get("name", "") for link in root.findall("link")]
    for kind, names in (("link", links), ("joint", [joint.get("name", "") for joint in joints])):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise LoadError(f"{where}: {kind} names used twice: {summarise(twice)}; give each {kind} its own")
    children = [child.get("link", "") for joint in joints for child in joint.findall("child")]
    parted = [name for name, count in Counter(children).items() if count > 1]
    if parted:
        raise LoadError(
            f"{where}: links that hang on two joints: {summarise(parted)}; a URDF is a tree: drop one of the "
            "joints, and close the loop by robot.with_closure"
        )
    parents = {parent.get("link", "") for joint in joints for parent in joint.findall("parent")}
    if links and not {*links, *parents} - set(children):
        raise LoadError(f"{where}: no link is the root, each hangs on another: drop the joint that closes the loop")


def _drop_mimics_of_nothing(joints: list[ET.Element]) -> tuple[str, ...]:
    """Leave joints free whose <mimic> names a joint that does not exist."""
    names, lost = {joint.get("name") for joint in joints}, []
    for joint in joints:
        mimic = joint.find("mimic")
        if mimic is not None and mimic.get("joint") not in names:
            joint.remove(mimic)
            lost.append(f"{joint.get('name')} (of {mimic.get('joint')})")
    return (f"mimics of joints that do not exist, by joints: {summarise(lost)}",) if lost else ()


def _resolve_meshes(root: ET.Element, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make mesh paths absolute, drop the shapes whose mesh cannot be read, and keep tool frames and visual shapes.

    Returns:
      What was dropped, and the links that lose all of their shapes.
    """
    extension = root.find("mujoco")
    extension = ET.SubElement(root, "mujoco") if extension is None else extension
    compiler = extension.find("compiler")
    compiler = ET.SubElement(extension, "compiler") if compiler is None else compiler
    mesh_folder = folder / compiler.attrib.pop("meshdir", "")
    compiler.attrib.update(fusestatic="false", strippath="false")
    compiler.attrib.setdefault("discardvisual", "false")

    missing: list[str] = []
    foreign: list[str] = []
    bare: list[str] = []
    for link in root.findall("link"):
        shapes = (*link.findall("visual"), *link.findall("collision"))
        for shape in shapes:
            mesh = shape.find("geometry/mesh")
            if mesh is None:
                continue
            name = mesh.get("filename", "")
            found = _find_mesh(name, folder, mesh_folder)
            if found is None or found.suffix.lower() not in _MESH_SUFFIXES:
                (missing if found is None else foreign).append(name)
                link.remove(shape)
            else:
                mesh.set("filename", str(found))
        if shapes and link.find("visual") is None and link.find("collision") is None:
            bare.append(link.get("name", ""))
    sentences = []
    if missing:
        sentences.append(f"meshes that are not found: {summarise(missing)}")
    if foreign:
        sentences.append(f"meshes that MuJoCo does not read: {summarise(foreign)}")
    return tuple(sentences), tuple(bare)


def _find_mesh(name: str, folder: Path, mesh_folder: Path) -> Path | None:
    scheme, separator, rest = name.partition("://")
    if not separator:
        # MuJoCo by default looks for the bare file name in its mesh folder.
        candidates = [folder / name, mesh_folder / name, mesh_folder / Path(name).name]
    elif scheme == "file":
        candidates = [Path(unquote(rest))]
    else:
        package, _, inner = unquote(rest).partition("/")
        candidates = [parent / package / inner for parent in (folder, *folder.parents)]
        candidates += [mesh_folder / Path(inner).name]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _rewrite_limits(joints: list[ET.Element]) -> tuple[dict[str, float], list[str], list[str]]:
    """Leave in the XML only limits that MuJoCo understands.

    Returns:
      The locked joints with their value, those that give no range, and those whose limits are the wrong way round.
    """
    locked: dict[str, float] = {}
    unlimited: list[str] = []
    crossed: list[str] = []
    for joint in joints:
        limit = joint.find("limit")
        if limit is None:
            continue
        name, kind = joint.get("name", ""), joint.get("type")
        ends = limit.attrib.pop("lower", None), limit.attrib.pop("upper", None)
        if kind not in ("revolute", "prismatic"):
            continue
        if ends == (None, None):
            unlimited.append(name)
            continue
        lower, upper = (float(end or 0.0) for end in ends)
        if lower == upper:
            locked[name] = lower
        elif lower > upper:
            crossed.append(name)
        else:
            limit.attrib.update(lower=repr(lower), upper=repr(upper))
    return locked, unlimited, crossed


def _velocity_limits(joint: ET.Element) -> dict[str, float]:
    limit = joint.find("limit")
    velocity = 0.0 if limit is None else float(limit.get("velocity") or 0.0)
    name, kind = joint.get("name", ""), joint.get("type")
    if velocity <= 0.0:
        return {}
    if kind == "planar":
        return {f"{name}_TX": velocity, f"{name}_TY": velocity}
    return {name: velocity} if kind in ("revolute", "continuous", "prismatic") else {}


def _root_floats(root: ET.Element, joints: list[ET.Element]) -> list[tuple[str, str]]:
    """Hang floating joints of the root link on the world; make the others fixed, and return their names and links."""
    links = {link.get("name") for link in root.findall("link")}
    children = {child.get("link") for joint in joints for child in joint.findall("child")}
    inner = []
    for joint in joints:
        parent, child = joint.find("parent"), joint.find("child")
        if joint.get("type") != "floating" or parent is None or child is None:
            continue
        if parent.get("link") == "world" and "world" not in children:
            continue
        if parent.get("link") in children or "world" in links:
            inner.append((joint.get("name", ""), child.get("link", "")))
            joint.set("type", "fixed")
            continue
        # The frame of the root link is the world's, so the pose of the free body does not change.
        if root.find("joint[@name='world_to_root']") is None:
            fixed = ET.SubElement(root, "joint", name="world_to_root", type="fixed")
            ET.SubElement(fixed, "parent", link="world")
            ET.SubElement(fixed, "child", link=parent.get("link", ""))
            root.insert(0, ET.Element("link", name="world"))
        parent.set("link", "world")
    return inner


def _add_floating(body: mujoco.MjsBody, name: str) -> None:
    for axis, letter in zip(((1, 0, 0), (0, 1, 0), (0, 0, 1)), "XYZ", strict=True):
        body.add_joint(name=f"{name}_T{letter}", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
    body.add_joint(name=f"{name}_R", type=mujoco.mjtJoint.mjJNT_BALL)
