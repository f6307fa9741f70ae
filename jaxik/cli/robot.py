"""Read the robot of a configuration: its source, base pose and added frames."""

from pathlib import Path

import jax.numpy as jnp
import jaxlie
import numpy as np

from jaxik.cli.poses import POSE_KEYS, Needs, Units, read_pose
from jaxik.cli.section import Section, preview
from jaxik.cli.world import read_geometry
from jaxik.robot.loading.catalog import bundled_robots
from jaxik.robot.loading.geometry import Source as GeometrySource
from jaxik.robot.loading.load import load_robot
from jaxik.robot.robot import Robot

_MODEL_FILES = (".xml", ".urdf", ".mjcf", ".xacro", ".npz")


def read_robot(root: Section, folder: Path, units: Units, meshes: bool) -> Robot:
    """Load the robot under the key `robot`: a name or a file, or a mapping with `source`, `base` and `frames`."""
    if isinstance(root.get("robot"), str):
        return _load(root, "robot", folder, read_geometry(root), meshes)
    section = root.section("robot")
    section.allow("source", "base", "frames")
    robot = _load(section, "source", folder, read_geometry(root), meshes)
    if "base" in section:
        base = section.section("base")
        base.allow(*POSE_KEYS)
        with base.place.blamed():
            robot = robot.with_base(_pose(base, units))
    frames = section.get("frames", [])
    if not isinstance(frames, list):
        section.at("frames").fail(f"is a list of frames to add, not {preview(frames)}")
    for i, values in enumerate(frames):
        frame = Section(values, section.at("frames") / i)
        frame.allow("name", "body", *POSE_KEYS)
        name, body = frame.text("name"), frame.text("body")
        with frame.place.blamed():
            robot = robot.with_frame(name, body, _pose(frame, units))
    return robot


def _load(section: Section, key: str, folder: Path, geometry: GeometrySource | None, meshes: bool) -> Robot:
    source = section.text(key)
    file = folder / Path(source).expanduser()
    is_file = Path(source).suffix.lower() in _MODEL_FILES or ("/" in source and file.exists())
    with section.at(key).blamed():
        named = file if is_file and source not in bundled_robots() else source
        meshes = meshes and file.suffix.lower() != ".npz"
        robot = load_robot(named, geometry=geometry, meshes=meshes)
        return robot.astype(jnp.result_type(float))  # a saved robot has a precision of its own


def _pose(section: Section, units: Units) -> jaxlie.SE3:
    pose = read_pose(section, units, Needs(position=False, rotation=False))
    if not np.isfinite(pose).all():
        section.place.fail("is finite")
    return jaxlie.SE3(pose)  # type: ignore[arg-type]
